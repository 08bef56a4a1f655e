//! What strangers, slow clients and odd content can do to the real binary: nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use waypost::receiver::record::Keep;
use waypost::receiver::script::{self, Act, Answer};

use crate::support::appliance::http;
use crate::support::process::{Process, run, stdout, wait_status, waypost};
use crate::support::receiver;

/// How long anything may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// What one kind of abuse may cost in memory (fault 41, 57).
const RISE_KIB_MAX: u64 = 32 << 10;
/// What one slow sender may cost: 8 KiB are the HTTP library's buffer, which cannot be made smaller.
const SLOW_KIB_MAX: u64 = 14;

fn full_form() -> bool {
    std::env::var_os("WAYPOST_SLOW").is_some()
}

fn status_kib(pid: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Resident memory now.
fn resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:")
}

/// The most it has been.
fn peak_kib(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:")
}

/// As many open files as this process may have, for it and its children.
fn many_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn feature(device: &str, seq: u64) -> String {
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},"properties":{{"device_id":"{device}","seq":{seq}}}}}"#
    )
}

/// Posts so many a second for so long; gives how many were 202, of how many, and the slowest but one in a hundred.
async fn good_client(process: &Process, per_s: u32, length: Duration) -> (usize, usize, Duration) {
    let client = http();
    let url = format!("http://{}/v1/events", process.address);
    let mut tick = tokio::time::interval(Duration::from_secs(1) / per_s);
    let (end, mut times, mut fine) = (Instant::now() + length, Vec::new(), 0);
    while Instant::now() < end {
        let due = tick.tick().await;
        let body = feature("good", rand::random::<u64>() >> 12);
        let answer = client.post(&url).header("content-type", "application/geo+json").body(body).send().await;
        fine += usize::from(answer.is_ok_and(|answer| answer.status() == 202));
        times.push(due.elapsed());
    }
    times.sort_unstable();
    let p99 = times[(times.len() * 99 / 100).min(times.len() - 1)];
    (fine, times.len(), p99)
}

fn assert_served((fine, all, p99): (usize, usize, Duration), beside: &str) {
    println!("beside {beside}: {fine} of {all} posts were 202, p99 {p99:?}");
    assert!(fine * 100 >= all * 99, "{fine} of {all} beside {beside}");
    assert!(p99 <= Duration::from_secs(if full_form() { 1 } else { 5 }), "p99 {p99:?} beside {beside}");
}

/// What a server says to these bytes until it closes; empty if it only closes.
async fn say(process: &Process, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(process.address).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.write_all(bytes).await;
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Thousands of headers and endless ones end with a 4xx or a closed connection, cost no memory and leave no mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_headers_are_refused_and_cost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver::ok().await;
    let process = Process::start(&receiver.url(), &dir.path().join("data"));
    good_client(&process, 50, Duration::from_millis(300)).await;
    let before = resident_kib(process.pid());
    let many = "x-many: 1\r\n".repeat(5_000);
    let head = "POST /v1/events HTTP/1.1\r\nhost: localhost\r\n";
    let floods = [
        format!("{head}{many}content-length: 0\r\n\r\n"),
        format!("{head}x-long: {}\r\n\r\n", "y".repeat(4 << 20)),
        format!("{head}{}: z\r\n\r\n", "n".repeat(4 << 20)),
        format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "p".repeat(4 << 20)),
        "\r\n".repeat(1 << 20),
    ];
    for flood in &floods {
        for _ in 0..4 {
            let answer = say(&process, flood.as_bytes()).await;
            let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
            assert!(refused, "{} -> {answer}", &flood[..60]);
        }
    }
    assert_served(good_client(&process, 50, Duration::from_millis(500)).await, "floods of headers");
    let rise = peak_kib(process.pid()).saturating_sub(before);
    assert!(rise <= RISE_KIB_MAX, "memory rose by {rise} KiB");
    assert!(process.terminate().success());
}

/// Ten thousand connections that say nothing, as far as this machine lets a test open so many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_keep_nobody_out() {
    let wanted = if full_form() { 10_000 } else { 2_000 };
    let count = many_files().saturating_sub(500).min(wanted);
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver::ok().await;
    let process = Process::start(&receiver.url(), &dir.path().join("data"));
    good_client(&process, 50, Duration::from_millis(300)).await;
    let before = resident_kib(process.pid());
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.push(TcpStream::connect(process.address).await.unwrap());
    }
    assert_served(good_client(&process, 20, Duration::from_secs(1)).await, "idle connections");
    let rise = peak_kib(process.pid()).saturating_sub(before);
    println!("{} idle connections, memory rose by {rise} KiB", idle.len());
    assert!(rise <= RISE_KIB_MAX, "memory rose by {rise} KiB");
    drop(idle);
    assert!(process.terminate().success());
}

/// Fault 57. `WAYPOST_SLOW=1` runs it in the form of the report: 2,000 trickling, 500 silent, 100 that stop in mid-body,
/// each closed within 30 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_senders_hold_nobody_up_and_are_closed() {
    let (part, length) = if full_form() { (1, Duration::from_secs(40)) } else { (5, Duration::from_secs(2)) };
    if many_files() < 8_000 {
        println!("skipped: this process may not open enough files");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver::ok().await;
    let process = Process::start(&receiver.url(), &dir.path().join("data"));
    good_client(&process, 50, Duration::from_millis(300)).await;
    let before = resident_kib(process.pid());
    let address = process.address;
    let mut slow = tokio::task::JoinSet::new();
    let begun = Instant::now();
    for number in 0..2_600 / part {
        slow.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let trickles = number % 26 < 20;
            if number % 26 == 25 {
                let head =
                    "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000\r\n\r\n{\"type\":";
                let _ = stream.write_all(head.as_bytes()).await;
            }
            let mut answer = [0; 256];
            let mut tick = tokio::time::interval(Duration::from_secs(5));
            let text =
                b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";
            let mut sent = text.iter();
            loop {
                tokio::select! {
                    read = stream.read(&mut answer) => if matches!(read, Ok(0) | Err(_)) {
                        return begun.elapsed();
                    },
                    _ = tick.tick(), if trickles => {
                        let byte = *sent.next().unwrap();
                        let _ = stream.write_all(&[byte]).await;
                    }
                }
            }
        });
    }
    assert_served(good_client(&process, 10, length).await, "slow senders");
    let rise = peak_kib(process.pid()).saturating_sub(before);
    println!("{} slow senders, memory rose by {rise} KiB", slow.len());
    assert!(rise <= slow.len() as u64 * SLOW_KIB_MAX, "memory rose by {rise} KiB");
    if full_form() {
        let mut last = Duration::ZERO;
        while let Some(closed) = slow.join_next().await {
            last = last.max(closed.unwrap());
        }
        println!("the last slow sender was closed after {last:?}");
        assert!(last <= Duration::from_secs(31), "{last:?}");
    }
    slow.abort_all();
    assert!(process.terminate().success());
}

fn packed(tool: &str, mebibytes: u64) -> Option<Vec<u8>> {
    let zeros = Command::new("head")
        .args(["-c", &format!("{mebibytes}M"), "/dev/zero"])
        .stdout(Stdio::piped())
        .spawn();
    let packed = Command::new(tool).args(["-c", "-9"]).stdin(zeros.ok()?.stdout.take()?).output().ok()?;
    packed.status.success().then_some(packed.stdout)
}

async fn zstd(mebibytes: usize) -> Vec<u8> {
    let mut encoder = async_compression::tokio::write::ZstdEncoder::new(Vec::new());
    for _ in 0..mebibytes {
        encoder.write_all(&vec![b' '; 1 << 20]).await.unwrap();
    }
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

/// Fault 41: bombs and endless bodies, eight at once, while a good client posts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_bombs_at_once_are_413_and_cost_little_memory() {
    let receiver = receiver::ok().await;
    let mut bombs = vec![("zstd", zstd(256).await), ("identity", vec![b' '; 20 << 20])];
    match packed("gzip", 256) {
        Some(gzip) => bombs.push(("gzip", gzip)),
        None => println!("no gzip on this machine"),
    }
    for (encoding, bomb) in bombs {
        // The limit of the report; what is below it may be in memory, so a larger one costs its size a request.
        let (dir, config) = (tempfile::tempdir().unwrap(), "body_bytes_max = \"1MiB\"");
        let data = dir.path().join("data");
        let text = format!(
            "data_dir = \"{}\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n{config}\n[[endpoint]]\nname = \"default\"\nurl = \"{}\"\n",
            data.display(),
            receiver.url()
        );
        std::fs::write(dir.path().join("waypost.toml"), text).unwrap();
        let process = Process::start_config(&dir.path().join("waypost.toml"), &data);
        good_client(&process, 50, Duration::from_millis(300)).await;
        let before = resident_kib(process.pid());
        let mut posts = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (bomb, url) = (bomb.clone(), format!("http://{}/v1/events", process.address));
            posts.spawn(async move {
                let media = if number % 2 == 0 { "application/geo+json" } else { "application/x-ndjson" };
                let mut request = http().post(url).header("content-type", media).body(bomb);
                if encoding != "identity" {
                    request = request.header("content-encoding", encoding);
                }
                request.send().await.unwrap().status().as_u16()
            });
        }
        let served = good_client(&process, 20, Duration::from_secs(1)).await;
        for status in posts.join_all().await {
            // A line of blanks is no feature: as a sequence it is read to its end and holds nothing.
            assert!([413, 429, 400].contains(&status), "{encoding}: {status}");
        }
        assert!(served.1 >= 10, "only {} posts came to an end beside {encoding}", served.1);
        assert_served(served, encoding);
        let rise = peak_kib(process.pid()).saturating_sub(before);
        println!("eight bombs of {encoding}: memory rose by {rise} KiB");
        assert!(rise <= RISE_KIB_MAX, "{encoding}: memory rose by {rise} KiB");
        assert!(process.terminate().success());
    }
}

/// An id is looked up, never opened; whatever it looks like, it is not found or not understood.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_that_look_like_paths_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = receiver::always(422).await;
    let process = Process::start(&receiver.url(), &data);
    let device = "../../../../tmp/escaped";
    let posted = http()
        .post(format!("http://{}/v1/events", process.address))
        .header("content-type", "application/geo+json")
        .body(feature(device, 1));
    assert_eq!(posted.send().await.unwrap().status(), 202);
    wait_status(&process.client(), SOON, |status| status.ledger.dead == 1).await;
    for path in ["events", "dead-letters", "endpoints"] {
        for id in [
            "..%2f..%2fFORMAT",
            "%2e%2e%2fLOCK",
            "..%5c..%5cLOCK",
            "%00",
            "....//",
            "/etc/passwd",
            "%252e%252e%252f",
            "~root",
        ] {
            let url = format!("GET /v1/{path}/{id} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            let answer = say(&process, url.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 4"), "{path} {id}: {answer}");
            assert!(!answer.contains("waypost store") && !answer.contains("root:"), "{path} {id}: {answer}");
        }
    }
    let out = dir.path().join("out.geojson");
    let exported =
        run(&["dlq", "export", "--data-dir", data.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(exported.status.success(), "{exported:?}");
    let names: Vec<PathBuf> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(names.iter().all(|path| path.starts_with(dir.path())) && !Path::new("/tmp/escaped").exists());
    assert!(process.terminate().success());
}

/// Control characters of a device, a body and a receiver's answer are escaped in the log and in what commands print.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_control_character_of_an_event_reaches_the_log_or_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let answer =
        Answer { body: "bad\u{1b}[2J\r\nERROR forged line\u{7}\u{9b}31m".into(), ..Answer::status(422) };
    let receiver =
        receiver::scripted(std::sync::Arc::new(move |_: &_| Act::Answer(answer.clone())), Keep::Heads).await;
    let mut command = waypost();
    command.args([
        "--log-level",
        "debug",
        "run",
        "--to",
        &receiver.url(),
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
    ]);
    command.arg(&data);
    let process = Process::spawn(command, &data);
    let posted = http()
        .post(format!("http://{}/v1/events", process.address))
        .header("content-type", "application/geo+json")
        .body(feature(r"dev\u001b]0;title\u0007\r\nERROR forged\u009b1m\u202e", 1));
    let posted = posted.send().await.unwrap();
    assert_eq!(posted.status(), 202);
    let view: serde_json::Value = serde_json::from_str(&posted.text().await.unwrap()).unwrap();
    wait_status(&process.client(), SOON, |status| status.ledger.dead == 1).await;
    let at = ["--data-dir", data.to_str().unwrap()];
    let id = view["results"][0]["id"].as_str().unwrap();
    let commands: [&[&str]; 6] = [
        &["status"],
        &["outbox", "list"],
        &["dlq", "list"],
        &["dlq", "show", id],
        &["event", "show", id],
        &["endpoint", "list"],
    ];
    let control = |text: &str| text.chars().any(|char| char.is_control() && char != '\n' && char != '\t');
    for command in commands {
        let output = run(&[command, &at].concat());
        let text = stdout(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {text}");
        assert!(!control(&text), "{command:?} prints a control character: {text:?}");
        assert!(
            !text.lines().any(|line| line.trim_start().starts_with("ERROR forged")),
            "{command:?}: {text}"
        );
    }
    assert!(process.terminate().success());
    let log = std::fs::read_to_string(data.with_extension("stderr")).unwrap();
    assert!(!control(&log), "{log:?}");
    assert!(!log.lines().any(|line| line.starts_with("ERROR forged")), "{log}");
}

/// Fault 56: a secret is in its file and in the request, and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_in_no_process_list_no_log_and_no_printed_config() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = receiver::always(401).await;
    let mark = "marker-7f3a";
    let file = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("{mark}-{name}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let url = receiver.url().replace("http://", &format!("http://{mark}-user:{mark}-pw@"));
    let text = format!(
        "data_dir = \"{}\"\n[ingest]\nlisten = \"127.0.0.1:0\"\nadmin_token_file = \"{}\"\n[[endpoint]]\nname = \"default\"\nurl = \"{url}/{mark}-path?token={mark}-query\"\nauth = {{ bearer_file = \"{}\" }}\n",
        data.display(),
        file("admin"),
        file("bearer"),
    );
    let config = dir.path().join("waypost.toml");
    std::fs::write(&config, &text).unwrap();
    let config = config.to_str().unwrap();
    let checked = run(&["check", "--store", "--config", config]);
    let mut shown = vec![("check".to_owned(), stdout(&checked) + &String::from_utf8_lossy(&checked.stderr))];
    // A URL with a user and a bearer token at once is refused, so each has its turn.
    let both_at_once = !checked.status.success();
    if both_at_once {
        let text = text.replace(&format!("{mark}-user:{mark}-pw@"), "");
        std::fs::write(config, text).unwrap();
    }
    let mut command = waypost();
    command.args(["--log-level", "debug", "run", "--config", config]);
    let process = Process::spawn(command, &data);
    let url = format!("http://{}/v1/events", process.address);
    assert_eq!(http().post(url).body(feature("d", 1)).send().await.unwrap().status(), 202);
    receiver.wait(|totals| totals.requests >= 1).await;
    let proc = PathBuf::from(format!("/proc/{}", process.pid()));
    for name in ["cmdline", "environ", "comm"] {
        let bytes = std::fs::read(proc.join(name)).unwrap();
        shown.push((name.to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    let at = data.to_str().unwrap();
    for command in [
        ["status", "--json"],
        ["endpoint", "list"],
        ["outbox", "list"],
        ["dlq", "list"],
        ["status", "--data-dir"],
    ] {
        let args = if command[1] == "--data-dir" {
            vec!["status", "--data-dir", at]
        } else {
            [&command[..], &["--data-dir", at]].concat()
        };
        let output = run(&args);
        shown.push((format!("{command:?}"), stdout(&output) + &String::from_utf8_lossy(&output.stderr)));
    }
    assert!(process.terminate().success());
    shown.push(("log".to_owned(), std::fs::read_to_string(data.with_extension("stderr")).unwrap()));
    for (what, text) in shown {
        assert!(!text.contains(mark), "a secret is in {what}: {text}");
    }
}

fn open_to_others(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.permissions().mode() & 0o077 != 0 {
            found.push((path.clone(), meta.permissions().mode()));
        }
        if meta.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

/// sled makes its files with what the umask leaves; so the process sets its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_the_store_are_for_their_owner_alone_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = receiver::always(503).await;
    let open = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(waypost().get_program()).args(args);
        command
    };
    for _ in 0..2 {
        let at = data.to_str().unwrap();
        let run = open(&["run", "--to", &receiver.url(), "--listen", "127.0.0.1:0", "--data-dir", at]);
        let process = Process::spawn(run, &data);
        good_client(&process, 50, Duration::from_millis(300)).await;
        assert_eq!(open_to_others(&data), []);
        assert!(process.terminate().success());
        assert!(open(&["store", "compact", "--data-dir", at]).output().unwrap().status.success());
        assert_eq!(open_to_others(&data), []);
    }
    assert!(data.join("sled/db").exists());
    receiver.set_script(script::always(200));
}
