//! System calls of a traced run, read from what strace wrote.
//!
//! A call takes effect between the line that begins it and the line that ends it; both are kept, so that a power cut can
//! fall between them.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Number of a file or directory of the traced tree.
pub type Ino = usize;

/// The directory that everything lives under.
pub const ROOT: Ino = 0;

/// What was done to the names in directories.
#[derive(Clone, Debug)]
pub enum NameOp {
    Link { dir: Ino, name: String, ino: Ino, is_dir: bool },
    Unlink { dir: Ino, name: String },
    Rename { from: (Ino, String), to: (Ino, String) },
}

/// What was done to a file.
#[derive(Clone, Debug)]
pub enum DataOp {
    Write { at: u64, bytes: Vec<u8> },
    Length(u64),
    Room { until: u64 },
}

/// A call's effect.
#[derive(Clone, Debug)]
pub enum What {
    Name(NameOp),
    Data(Ino, DataOp),
    Sync(Ino),
    /// A producer was answered 202: `(event id, key)`.
    Acknowledged(Vec<(String, String)>),
    /// Its receiver answered 200.
    Answered(String),
}

/// A call with the lines of the trace that begin and end it, and the time of its end in seconds.
#[derive(Clone, Debug)]
pub struct Step {
    pub begun: usize,
    pub done: usize,
    pub at: f64,
    pub what: What,
}

/// What strace is asked for; a call that a machine does not have is left out.
pub const CALLS: &str = "trace=openat,?creat,?open,write,pwrite64,writev,pwritev,?pwritev2,sendto,sendmsg,read,recvfrom,recvmsg,lseek,fdatasync,fsync,ftruncate,fallocate,?rename,renameat,?renameat2,?unlink,unlinkat,?rmdir,?mkdir,mkdirat,?copy_file_range,?sendfile";

/// Reads traces one after the other.
pub struct Reader {
    root: PathBuf,
    line: usize,
    begun: HashMap<Vec<u8>, (usize, Vec<u8>)>,
    /// The tree as the processes saw it.
    dirs: HashMap<Ino, HashMap<String, Ino>>,
    next: Ino,
    positions: HashMap<i64, u64>,
    sizes: HashMap<Ino, u64>,
    /// The event that was sent last over a socket.
    sent: HashMap<Vec<u8>, String>,
    pub steps: Vec<Step>,
    /// Time of each line.
    pub times: Vec<f64>,
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// The head of a text: names and ids stand there, bodies behind it.
fn head(text: &[u8], bytes: usize) -> &[u8] {
    &text[..text.len().min(bytes)]
}

/// Undoes the quoting of a string; gives it and what stands behind it.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = &text[text.iter().position(|byte| *byte == b'"')? + 1..];
    let mut out = Vec::with_capacity(rest.len());
    loop {
        let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        out.extend_from_slice(&rest[..plain]);
        if rest[plain] == b'"' {
            return Some((out, &rest[plain + 1..]));
        }
        let escape = &rest[plain + 1..];
        let digits = escape.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
        if digits > 0 {
            let code = escape[..digits].iter().fold(0_u32, |code, digit| code * 8 + u32::from(digit - b'0'));
            out.push(u8::try_from(code).unwrap());
            rest = &escape[digits..];
        } else {
            out.push(match escape[0] {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'v' => 0x0b,
                b'f' => 0x0c,
                other => other,
            });
            rest = &escape[1..];
        }
    }
}

/// All quoted strings one after the other.
fn strings(text: &[u8]) -> Vec<u8> {
    let (mut all, mut rest) = (Vec::new(), text);
    while let Some((one, behind)) = unquote(rest) {
        assert!(!behind.starts_with(b"..."), "the trace cut a string short");
        all.extend_from_slice(&one);
        rest = behind;
    }
    all
}

/// `7</path>` at the beginning of a text: descriptor, path, whether the file still has a name.
fn descriptor(text: &[u8]) -> Option<(i64, &[u8], bool)> {
    let open = text.iter().take(12).position(|byte| *byte == b'<')?;
    let close = open + head(&text[open..], 4096).iter().position(|byte| *byte == b'>')?;
    let number = std::str::from_utf8(&text[..open]).ok()?;
    let number = if number == "AT_FDCWD" { -100 } else { number.parse().ok()? };
    Some((number, &text[open + 1..close], !text[close + 1..].starts_with(b"(deleted)")))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The numbers between the commas at the end of a call's arguments.
fn numbers(call: &[u8]) -> Vec<u64> {
    let end = call.iter().rposition(|byte| *byte == b')').unwrap_or(call.len());
    let start =
        call[..end].iter().rposition(|byte| matches!(byte, b'"' | b'>' | b']')).map_or(0, |at| at + 1);
    let list = String::from_utf8_lossy(&call[start..end]).into_owned();
    list.split(',').filter_map(|one| one.trim().parse().ok()).collect()
}

impl Reader {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            line: 0,
            begun: HashMap::new(),
            dirs: HashMap::from([(ROOT, HashMap::new())]),
            next: ROOT + 1,
            positions: HashMap::new(),
            sizes: HashMap::new(),
            sent: HashMap::new(),
            steps: Vec::new(),
            times: Vec::new(),
        }
    }

    /// Reads one run of the process.
    pub fn read(&mut self, trace: &[u8]) {
        self.positions.clear();
        for line in trace.split(|byte| *byte == b'\n') {
            let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
            let (pid, rest) = (line[..space].to_vec(), line[space..].trim_ascii_start());
            let Some(space) = rest.iter().position(|byte| *byte == b' ') else { continue };
            let at: f64 = text(&rest[..space]).parse().unwrap();
            let rest = &rest[space + 1..];
            let number = self.line;
            self.line += 1;
            self.times.push(at);
            if let Some(beginning) = rest.strip_suffix(b"<unfinished ...>") {
                self.early(number, at, beginning);
                self.begun.insert(pid, (number, beginning.to_vec()));
            } else if rest.starts_with(b"<...") {
                let Some((begun, mut call)) = self.begun.remove(&pid) else { continue };
                call.extend_from_slice(&rest[rest.iter().position(|byte| *byte == b'>').unwrap() + 1..]);
                self.call(begun, number, at, &call);
            } else if rest.starts_with(b"+++ killed") {
                // A write that a kill found in the kernel is finished by the kernel.
                if let Some((begun, call)) = self.begun.remove(&pid) {
                    self.call(begun, number, at, &[&call[..], b") = 0"].concat());
                }
            } else if !rest.starts_with(b"+++") && !rest.starts_with(b"---") {
                self.early(number, at, rest);
                self.call(number, number, at, rest);
            }
        }
        self.begun.clear();
    }

    /// What an answer says holds from the moment at which it begins to be sent.
    fn early(&mut self, line: usize, at: f64, call: &[u8]) {
        let first = head(call, 4096);
        if !["write(", "writev(", "sendto(", "sendmsg("].iter().any(|name| call.starts_with(name.as_bytes()))
            || find(first, b"202 Accepted").is_none()
        {
            return;
        }
        let mut events = Vec::new();
        let mut rest = call;
        let value = |text: &[u8], name: &[u8]| {
            let begin = find(text, name)? + name.len();
            let end = begin + text[begin..].iter().position(|byte| *byte == b'\\')?;
            Some((String::from_utf8_lossy(&text[begin..end]).into_owned(), end))
        };
        while let Some((id, end)) = value(rest, br#"\"id\":\""#) {
            let (key, _) = value(&rest[end..], br#"\"key\":\""#).unwrap();
            events.push((id, key));
            rest = &rest[end..];
        }
        self.steps.push(Step { begun: line, done: line, at, what: What::Acknowledged(events) });
    }

    fn call(&mut self, begun: usize, done: usize, at: f64, call: &[u8]) {
        let Some(open) = head(call, 32).iter().position(|byte| *byte == b'(') else { return };
        let (name, args) = (text(&call[..open]), &call[open + 1..]);
        let result = call.windows(3).rposition(|window| window == b" = ").map(|at| &call[at + 3..]);
        if result.is_none_or(|result| result.starts_with(b"-") || result.starts_with(b"?")) {
            return;
        }
        let count = self.steps.len();
        self.effects(&name, args, result.unwrap());
        for step in &mut self.steps[count..] {
            (step.begun, step.done, step.at) = (begun, done, at);
        }
    }

    fn push(&mut self, what: What) {
        self.steps.push(Step { begun: 0, done: 0, at: 0.0, what });
    }

    fn effects(&mut self, name: &str, args: &[u8], result: &[u8]) {
        match name {
            "openat" => self.open(args, result),
            "write" | "pwrite64" | "writev" | "pwritev" | "sendto" | "sendmsg" => self.write(name, args),
            "read" | "recvfrom" | "recvmsg" => {
                let Some((_, socket, _)) = descriptor(args) else { return };
                if socket.starts_with(b"socket:")
                    && find(head(args, 200), b"HTTP/1.1 200").is_some()
                    && let Some(id) = self.sent.remove(socket)
                {
                    self.push(What::Answered(id));
                }
            }
            "lseek" => {
                let Some((fd, _, _)) = descriptor(args) else { return };
                self.positions.insert(fd, text(result).trim().parse().unwrap());
            }
            "fdatasync" | "fsync" => {
                if let Some(ino) = self.file(args) {
                    self.push(What::Sync(ino));
                }
            }
            "ftruncate" => {
                if let Some(ino) = self.file(args) {
                    let length = numbers(args)[0];
                    self.sizes.insert(ino, length);
                    self.push(What::Data(ino, DataOp::Length(length)));
                }
            }
            "fallocate" => {
                if let Some(ino) = self.file(args) {
                    let [0, from, length] = numbers(args)[..] else { panic!("fallocate {}", text(args)) };
                    self.push(What::Data(ino, DataOp::Room { until: from + length }));
                }
            }
            "mkdir" | "mkdirat" => {
                let (path, _) = self.path(args);
                if let Some((dir, name)) = self.parent(&path) {
                    let ino = self.link(dir, &name, true);
                    self.dirs.insert(ino, HashMap::new());
                }
            }
            "rename" | "renameat" | "renameat2" => {
                let (from, rest) = self.path(args);
                let (to, _) = self.path(&rest);
                if let (Some(from), Some(to)) = (self.parent(&from), self.parent(&to)) {
                    let ino = self.dirs.get_mut(&from.0).unwrap().remove(&from.1).unwrap();
                    self.dirs.get_mut(&to.0).unwrap().insert(to.1.clone(), ino);
                    self.push(What::Name(NameOp::Rename { from, to }));
                }
            }
            "unlink" | "unlinkat" | "rmdir" => {
                let (path, _) = self.path(args);
                if let Some((dir, name)) = self.parent(&path)
                    && self.dirs.get_mut(&dir).unwrap().remove(&name).is_some()
                {
                    self.push(What::Name(NameOp::Unlink { dir, name }));
                }
            }
            "copy_file_range" | "sendfile" | "pwritev2" | "creat" | "open" => {
                assert!(
                    find(args, self.root.to_str().unwrap().as_bytes()).is_none(),
                    "{name} is not modelled"
                );
            }
            _ => {}
        }
    }

    fn link(&mut self, dir: Ino, name: &str, is_dir: bool) -> Ino {
        let ino = self.next;
        self.next += 1;
        self.dirs.get_mut(&dir).unwrap().insert(name.to_owned(), ino);
        self.push(What::Name(NameOp::Link { dir, name: name.to_owned(), ino, is_dir }));
        ino
    }

    fn open(&mut self, args: &[u8], result: &[u8]) {
        let Some((fd, _, _)) = descriptor(result) else { return };
        let (path, rest) = self.path(args);
        self.positions.insert(fd, 0);
        let Some((dir, name)) = self.parent(&path) else { return };
        let known = self.dirs[&dir].get(&name).copied();
        let flag = |flag: &[u8]| find(&rest, flag).is_some();
        assert!(!flag(b"O_APPEND"), "appending is not modelled: {}", path.display());
        match known {
            None if flag(b"O_CREAT") => drop(self.link(dir, &name, false)),
            Some(ino) if flag(b"O_TRUNC") => {
                self.sizes.insert(ino, 0);
                self.push(What::Data(ino, DataOp::Length(0)));
            }
            _ => {}
        }
    }

    fn write(&mut self, name: &str, args: &[u8]) {
        let Some((fd, path, named)) = descriptor(args) else { return };
        if path.starts_with(b"socket:") {
            let first = head(args, 8192);
            if let Some(begin) = find(first, b"webhook-id: ") {
                let id = &first[begin + b"webhook-id: ".len()..];
                let id = text(&id[..id.iter().position(|byte| *byte == b'\\').unwrap()]);
                self.sent.insert(path.to_vec(), id);
            }
            return;
        }
        let Some(ino) = self.file(args).filter(|_| named) else { return };
        let bytes = strings(args);
        let at = match name {
            "pwrite64" | "pwritev" => *numbers(args).last().unwrap(),
            _ => {
                let position = self.positions.get_mut(&fd).expect("a descriptor that was opened");
                *position += bytes.len() as u64;
                *position - bytes.len() as u64
            }
        };
        self.push(What::Data(ino, DataOp::Write { at, bytes }));
    }

    /// The file of the descriptor that stands first.
    fn file(&self, args: &[u8]) -> Option<Ino> {
        let (_, path, named) = descriptor(args)?;
        let path = PathBuf::from(String::from_utf8_lossy(path).into_owned());
        if path == self.root {
            return Some(ROOT);
        }
        let (dir, name) = self.parent(&path).filter(|_| named)?;
        self.dirs[&dir].get(&name).copied()
    }

    /// A path argument, with the directory it is relative to if one is named; and the arguments behind it.
    fn path(&self, args: &[u8]) -> (PathBuf, Vec<u8>) {
        let args = args.trim_ascii_start();
        let base = if args.starts_with(b"\"") { None } else { descriptor(args) };
        let (path, rest) = unquote(args).unwrap_or_default();
        let path = PathBuf::from(String::from_utf8_lossy(&path).into_owned());
        let rest = rest.strip_prefix(b",").unwrap_or(rest).to_vec();
        match base {
            Some((_, base, _)) => {
                (PathBuf::from(String::from_utf8_lossy(base).into_owned()).join(path), rest)
            }
            None => (self.cwd_free(path), rest),
        }
    }

    fn cwd_free(&self, path: PathBuf) -> PathBuf {
        assert!(path.is_absolute() || !path.starts_with(&self.root), "{}", path.display());
        path
    }

    /// Directory and name of a path inside the tree.
    fn parent(&self, path: &Path) -> Option<(Ino, String)> {
        let inside = path.strip_prefix(&self.root).ok()?;
        let mut names: Vec<String> = inside
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect();
        let name = names.pop()?;
        let dir = names.iter().try_fold(ROOT, |dir, name| self.dirs.get(&dir)?.get(name).copied())?;
        self.dirs.contains_key(&dir).then_some((dir, name))
    }
}
