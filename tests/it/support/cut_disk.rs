//! What a disk holds after a power cut at a line of a trace.
//!
//! Data is there if a finished fsync or fdatasync of its file began after it; a name is there if one of its directory
//! did. Everything else may be there or not: by seed nothing of it, all of it, a part in order, or any sectors of it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rand::{Rng, RngExt as _};

use super::trace::{DataOp, Ino, NameOp, ROOT, Step, What};

/// Sectors are written whole or not at all.
const SECTOR: u64 = 512;

/// What becomes of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    Gone,
    Kept,
    /// The older part of it is there, the younger is not.
    Part,
    /// Each write is there or not.
    Writes,
    /// Each sector of each write is there or not.
    Sectors,
}

/// A cut: after which line, and what the disk does with the rest.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub line: usize,
    pub names: Unsynced,
    pub data: Unsynced,
}

impl Cut {
    /// Everything that was done up to the end of the trace.
    pub fn none() -> Self {
        Self { line: usize::MAX - 1, names: Unsynced::Kept, data: Unsynced::Kept }
    }
}

/// Line up to which what was done to each file or directory is safe.
fn safe(steps: &[Step], line: usize) -> HashMap<Ino, usize> {
    let mut safe = HashMap::new();
    for step in steps.iter().filter(|step| step.done <= line) {
        if let What::Sync(ino) = step.what {
            let until = safe.entry(ino).or_insert(0);
            *until = step.begun.max(*until);
        }
    }
    safe
}

/// Decides for each thing that is not safe, in order.
struct Fate<'a, R> {
    how: Unsynced,
    /// For [`Unsynced::Part`]: how many are kept.
    left: usize,
    rng: &'a mut R,
}

impl<'a, R: Rng> Fate<'a, R> {
    fn new(how: Unsynced, unsafe_count: usize, rng: &'a mut R) -> Self {
        let left = rng.random_range(0..=unsafe_count);
        Self { how, left, rng }
    }

    fn kept(&mut self, running: bool) -> bool {
        match self.how {
            Unsynced::Gone => false,
            Unsynced::Kept => !running || self.rng.random_bool(0.5),
            Unsynced::Part => {
                let kept = self.left > 0;
                self.left = self.left.saturating_sub(1);
                kept
            }
            Unsynced::Writes | Unsynced::Sectors => self.rng.random_bool(0.5),
        }
    }
}

/// Builds the tree that is left in the empty directory `at`.
pub fn rebuild<R: Rng>(steps: &[Step], cut: Cut, rng: &mut R, at: &Path) {
    let safe = safe(steps, cut.line);
    let begun: Vec<&Step> = steps.iter().filter(|step| step.begun <= cut.line).collect();
    let is_safe = |step: &Step, ino: Ino| {
        step.done <= cut.line && safe.get(&ino).is_some_and(|until| step.done <= *until)
    };
    let name_safe = |step: &Step, op: &NameOp| match op {
        NameOp::Link { dir, .. } | NameOp::Unlink { dir, .. } => is_safe(step, *dir),
        NameOp::Rename { from, to } => is_safe(step, from.0) || is_safe(step, to.0),
    };
    let names: Vec<(&Step, &NameOp)> = begun
        .iter()
        .filter_map(|step| if let What::Name(op) = &step.what { Some((*step, op)) } else { None })
        .collect();
    let loose = names.iter().filter(|(step, op)| !name_safe(step, op)).count();
    let mut fate = Fate::new(cut.names, loose, rng);
    let mut dirs: HashMap<Ino, BTreeMap<String, Ino>> = HashMap::from([(ROOT, BTreeMap::new())]);
    for (step, op) in &names {
        if let NameOp::Link { ino, is_dir: true, .. } = op {
            dirs.entry(*ino).or_default();
        }
        if name_safe(step, op) || fate.kept(step.done > cut.line) {
            apply_name(&mut dirs, op);
        }
    }
    let mut places = HashMap::new();
    make(&dirs, ROOT, at, &mut places);
    let data: Vec<(&Step, Ino, &DataOp)> = begun
        .iter()
        .filter_map(|step| if let What::Data(ino, op) = &step.what { Some((*step, *ino, op)) } else { None })
        .collect();
    let loose = data.iter().filter(|(step, ino, _)| !is_safe(step, *ino)).count();
    let mut fate = Fate::new(cut.data, loose, rng);
    // The length of a file may be newer than its content.
    let lengths_too = cut.data != Unsynced::Gone && fate.rng.random_bool(0.5);
    for (step, ino, op) in data {
        let kept = is_safe(step, ino) || fate.kept(step.done > cut.line);
        let Some(file) = places.get(&ino) else { continue };
        match op {
            DataOp::Write { at, bytes } if kept => {
                let whole = is_safe(step, ino) || cut.data != Unsynced::Sectors;
                if whole {
                    file.write_all_at(bytes, *at).unwrap();
                } else {
                    write_sectors(file, *at, bytes, fate.rng);
                }
            }
            DataOp::Write { at, bytes } if lengths_too => lengthen(file, at + bytes.len() as u64),
            DataOp::Length(length) if kept => file.set_len(*length).unwrap(),
            DataOp::Room { until } if kept => lengthen(file, *until),
            _ => {}
        }
    }
}

fn lengthen(file: &File, until: u64) {
    if file.metadata().unwrap().len() < until {
        file.set_len(until).unwrap();
    }
}

fn write_sectors(file: &File, at: u64, bytes: &[u8], rng: &mut impl Rng) {
    let mut from = at;
    let end = at + bytes.len() as u64;
    while from < end {
        let until = ((from / SECTOR + 1) * SECTOR).min(end);
        if rng.random_bool(0.5) {
            file.write_all_at(&bytes[(from - at) as usize..(until - at) as usize], from).unwrap();
        }
        from = until;
    }
}

/// A name that a lost one would have led to is lost with it.
fn apply_name(dirs: &mut HashMap<Ino, BTreeMap<String, Ino>>, op: &NameOp) {
    match op {
        NameOp::Link { dir, name, ino, .. } => {
            dirs.entry(*dir).or_default().insert(name.clone(), *ino);
        }
        NameOp::Unlink { dir, name } => {
            dirs.entry(*dir).or_default().remove(name);
        }
        NameOp::Rename { from, to } => {
            if let Some(ino) = dirs.entry(from.0).or_default().remove(&from.1) {
                dirs.entry(to.0).or_default().insert(to.1.clone(), ino);
            }
        }
    }
}

fn make(dirs: &HashMap<Ino, BTreeMap<String, Ino>>, dir: Ino, at: &Path, files: &mut HashMap<Ino, File>) {
    for (name, ino) in &dirs[&dir] {
        let path = at.join(name);
        if dirs.contains_key(ino) {
            fs::create_dir(&path).unwrap();
            make(dirs, *ino, &path, files);
        } else {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
            files.insert(*ino, file);
        }
    }
}

/// Every regular file below a directory, by its path.
pub fn files(at: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(base: &Path, at: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_dir() {
                walk(base, &path, found);
            } else if kind.is_file() {
                let name = path.strip_prefix(base).unwrap().to_string_lossy().into_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(at, at, &mut found);
    found
}
