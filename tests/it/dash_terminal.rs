//! The dashboard on a real terminal: it gives it back whatever happens, and never outlives it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::time::Instant;
use waypost::client::{EventMedia, PostOptions, Posted};
use waypost::dashboard::terminal;
use waypost::receiver::script;

use crate::support::process::{Process, wait_status};
use crate::support::receiver;
use crate::support::tmux::Tmux;

/// A signal, a lost link or a quit ends the process within this.
const END_WITHIN: Duration = Duration::from_secs(2);
/// A debug build on a busy machine may take this long to show its first frame.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// Names this test binary as a child that panics with the terminal taken; see [`child_that_panics`].
const CHILD: &str = "WAYPOST_TEST_PANICS";

fn dash(tmux: &Tmux, before: &str, options: &str) -> Pid {
    let pid_file = tmux.dir().join("pid");
    let _ = fs::remove_file(&pid_file);
    let binary = env!("CARGO_BIN_EXE_waypost");
    let script = format!("{before} sh -c 'echo $$ > {}; exec {binary} dash {options}'", pid_file.display());
    tmux.line(&script);
    tmux.wait_for("dashboard", SHOWN_WITHIN, |screen| screen.contains("1 Over") && screen.contains("quit"));
    Pid::from_raw(fs::read_to_string(pid_file).unwrap().trim().parse().unwrap()).unwrap()
}

fn settings(tmux: &Tmux, name: &str) -> String {
    // A number makes the echo one that is not on the screen yet.
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let name = format!("{name}-{}", ASKED.fetch_add(1, Ordering::Relaxed));
    let file = tmux.dir().join(&name);
    tmux.line(&format!("stty -a > {}; echo kept-{name}", file.display()));
    tmux.wait_for("settings", END_WITHIN, |screen| screen.contains(&format!("\nkept-{name}")));
    fs::read_to_string(file).unwrap()
}

/// The shell has the terminal again: main screen, cursor shown, the text from before still there.
fn assert_given_back(tmux: &Tmux, how: &str, before: &str) {
    tmux.wait_for("prompt", END_WITHIN, |screen| screen.trim_end().ends_with('$'));
    assert_eq!(tmux.format("#{alternate_on} #{cursor_flag}"), "0 1", "after {how}");
    assert!(tmux.screen().contains("kept-before"), "the main screen is not as it was, after {how}");
    assert_eq!(settings(tmux, "after"), before, "terminal settings after {how}");
    tmux.keys(&["C-l"]);
    tmux.line("echo kept-before");
}

/// Every way out leaves the terminal as it was: keys, signals, an error while opening, a panic.
#[test]
fn the_terminal_is_as_before_however_the_dashboard_ends() {
    let Some(tmux) = Tmux::start(100, 30) else { return };
    let before = settings(&tmux, "before");
    for key in ["q", "C-c"] {
        dash(&tmux, "", "--demo --mouse");
        tmux.keys(&[key]);
        assert_given_back(&tmux, key, &before);
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let pid = dash(&tmux, "", "--demo --mouse");
        kill_process(pid, signal).unwrap();
        assert_given_back(&tmux, &format!("{signal:?}"), &before);
    }
    tmux.line(&format!("{} dash --demo --keys /nonexistent", env!("CARGO_BIN_EXE_waypost")));
    tmux.wait_for("message", SHOWN_WITHIN, |screen| screen.contains("/nonexistent"));
    assert_given_back(&tmux, "an unreadable key file", &before);
    let child = std::env::current_exe().unwrap();
    tmux.line(&format!(
        "RUST_BACKTRACE=0 {CHILD}=1 {} --exact dash_terminal::child_that_panics --nocapture",
        child.display()
    ));
    tmux.wait_for("message of the panic", SHOWN_WITHIN, |screen| screen.contains("a forced panic"));
    assert_given_back(&tmux, "a panic", &before);
}

/// Not a test of its own: run by the test above in a terminal, where it takes it and panics.
#[test]
fn child_that_panics() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let _guard = terminal::Guard::enter(false).unwrap();
    terminal::inside(|| panic!("a forced panic"));
}

fn is_running(pid: Pid) -> bool {
    // A zombie is nobody's fault here: the shell that would have waited for it died with its pane.
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    test_kill_process(pid).is_ok() && state.is_ok_and(|stat| !stat.contains(") Z "))
}

/// CPU time used so far, in clock ticks of 10 ms.
fn cpu_ticks(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    // utime and stime are fields 14 and 15 of proc_pid_stat(5); two stand before the cut.
    [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
}

fn wait_gone(pid: Pid, how: &str) {
    let (begin, ticks) = (Instant::now(), cpu_ticks(pid));
    while is_running(pid) {
        let used_ms = cpu_ticks(pid).saturating_sub(ticks) * 10;
        assert!(begin.elapsed() < END_WITHIN, "still there after {how}, having used {used_ms} ms of CPU");
        assert!(used_ms < 1_000, "spins after {how}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A link that breaks takes the dashboard with it: with the hang-up signal, and without it (an orphan in a session
/// of its own, or one that ignores the signal), where reading the dead terminal would return at once for ever.
#[test]
fn the_dashboard_never_outlives_its_terminal() {
    for (how, before) in [("a closed pane", ""), ("an orphan", "setsid -w"), ("no signal", "trap '' HUP;")] {
        let Some(tmux) = Tmux::start(80, 24) else { return };
        let pid = dash(&tmux, before, "--demo");
        tmux.run(&["kill-window", "-t", "t:0"]);
        wait_gone(pid, how);
    }
}

/// Windows that shrink to nothing and grow again, in quick succession, with answers coming in between.
#[test]
fn a_storm_of_sizes_ends_in_a_right_frame() {
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let pid = dash(&tmux, "", "--demo --refresh 0.2");
    let mut size = 7u32;
    for step in 0..60 {
        size = size.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let (columns, rows) = ((size >> 16) % 300 + 1, (size >> 8) % 90 + 1);
        tmux.resize(u16::try_from(columns).unwrap(), u16::try_from(rows).unwrap());
        tmux.keys(&[["1", "2", "3", "4", "5", "6", "Tab"][step % 7]]);
    }
    tmux.keys(&["1"]);
    tmux.resize(80, 24);
    let took = tmux.wait_for("right frame", Duration::from_secs(3), |screen| {
        screen.lines().count() == 24
            && screen.starts_with("waypost gw-017")
            && screen.contains("ledger ✓ balanced")
            && screen.trim_end().ends_with("quit")
    });
    println!("right again after {took:?}");
    assert!(is_running(pid));
    tmux.keys(&["q"]);
    wait_gone(pid, "q");
}

/// Without a terminal, or with one that cannot place text, it says what to use instead.
#[test]
fn without_a_usable_terminal_it_says_what_to_use() {
    let output = Command::new(env!("CARGO_BIN_EXE_waypost")).args(["dash", "--demo"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("dash --once"));
    let Some(tmux) = Tmux::start(80, 24) else { return };
    tmux.line(&format!("TERM=dumb {} dash --demo", env!("CARGO_BIN_EXE_waypost")));
    tmux.wait_for("message", SHOWN_WITHIN, |screen| screen.contains("TERM=dumb cannot place text"));
}

/// One frame as text is the same frame that the terminal shows, without a control character in it.
#[test]
fn once_prints_a_frame_as_text() {
    let once = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
        command.args(["dash", "--demo", "--once", "--width", "100", "--height", "30"]).args(options);
        command.env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let frame = once(&[]);
    assert_eq!(frame.lines().count(), 30);
    assert!(frame.contains("hq held 12 min: connection refused"));
    assert!(!frame.chars().any(|c| c.is_control() && c != '\n'));
    assert_eq!(frame, once(&[]), "made-up data is the same each time");
    assert!(once(&["--ascii"]).is_ascii());
    assert!(once(&["--svg"]).starts_with("<svg "));
    assert!(once(&["--pane", "dead-letters"]).contains("polygon ring crosses itself"));
}

fn event(number: u64) -> Bytes {
    Bytes::from(format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},"properties":{{"device_id":"truck-7","seq":{number}}}}}"#
    ))
}

async fn post(process: &Process, numbers: std::ops::Range<u64>) {
    let client = process.client();
    for number in numbers {
        let posted = client.post_events(event(number), EventMedia::Document, &PostOptions::default()).await;
        assert!(matches!(posted.unwrap(), Posted::Done(done) if done.accepted == 1));
    }
}

/// The number after a word on the screen, spaces in it left out.
fn number_after(screen: &str, word: &str) -> Option<u64> {
    let rest = screen.split_once(word)?.1.trim_start();
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// An outage on the screen of a running appliance: the depth rises, the reason of the hold stands there within two
/// seconds, the backlog drains; a dead letter is redriven by hand and arrives; a killed appliance is told from a
/// quiet one, and found again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_a_redrive_and_a_crash_on_the_screen() {
    let Some(tmux) = Tmux::start(100, 30) else { return };
    let receiver = receiver::ok().await;
    let data = tmux.dir().join("data");
    fs::create_dir(&data).unwrap();
    let config = tmux.dir().join("waypost.toml");
    let text = format!(
        "data_dir = {data:?}\n[ingest]\nlisten = \"127.0.0.1:0\"\n[[endpoint]]\nname = \"hq\"\nurl = \"{}\"\n\
         hold = {{ faults = 5, probe_base = \"1s\", probe_cap = \"2s\" }}\n",
        receiver.url()
    );
    fs::write(&config, text).unwrap();
    let process = Process::start_config(&config, &data);
    let options = format!("--data-dir {} --allow-actions --refresh 0.5", data.display());
    let pid = dash(&tmux, "", &options);
    tmux.wait_for("a healthy gateway", SHOWN_WITHIN, |screen| screen.contains("1 endpoint up"));

    receiver.set_script(script::always(503));
    post(&process, 0..20).await;
    let client = process.client();
    wait_status(&client, Duration::from_secs(10), |status| status.endpoints[0].hold_reason.is_some()).await;
    let took = tmux.wait_for("reason of the hold", Duration::from_secs(2), |screen| {
        screen.contains("HELD http_5xx") && screen.contains("hq held")
    });
    println!("the hold was on the screen after {took:?}");
    let before = number_after(&tmux.screen(), "pending ").unwrap();
    post(&process, 20..60).await;
    tmux.wait_for("rising depth", Duration::from_secs(2), |screen| {
        number_after(screen, "pending ").is_some_and(|pending| pending >= before + 40)
    });
    receiver::set_ok(&receiver);
    tmux.wait_for("drained backlog", Duration::from_secs(15), |screen| {
        number_after(screen, "pending ") == Some(0) && screen.contains("all well")
    });

    receiver.set_script(script::always(422));
    post(&process, 60..61).await;
    tmux.wait_for("a dead letter", Duration::from_secs(5), |screen| screen.contains("3 Dead letters 1"));
    receiver::set_ok(&receiver);
    tmux.keys(&["3"]);
    tmux.wait_for("its row", Duration::from_secs(3), |screen| screen.contains("rejected"));
    tmux.keys(&["Enter"]);
    tmux.wait_for("its story", Duration::from_secs(3), |screen| screen.contains("http 422"));
    tmux.keys(&["r"]);
    tmux.wait_for("the question", Duration::from_secs(3), |screen| {
        screen.contains("Redrive 1 dead letter (")
    });
    tmux.keys(&["y"]);
    tmux.wait_for("what was done", Duration::from_secs(3), |screen| {
        screen.contains("redriven 1 of 1 dead letter")
    });
    let after = wait_status(&client, Duration::from_secs(10), |status| status.ledger.delivered == 61).await;
    assert!(after.ledger.balanced && after.ledger.dead == 0, "{:?}", after.ledger);

    tmux.keys(&["1"]);
    process.kill();
    tmux.wait_for("the loss", Duration::from_secs(3), |screen| {
        screen.contains("LOST, shown is") && screen.contains("appliance lost")
    });
    let process = Process::start_config(&config, &data);
    tmux.wait_for("it again", Duration::from_secs(8), |screen| {
        screen.lines().next().is_some_and(|header| header.ends_with("live"))
            && screen.contains("delivered 61")
    });
    tmux.keys(&["q"]);
    wait_gone(pid, "q");
    let status = process.terminate();
    let log = fs::read_to_string(data.with_extension("stderr")).unwrap_or_default();
    assert!(status.success(), "the appliance is not touched by its dashboard: {status}\n{log}");
}

/// A terminal that takes no output any more (a frozen link) does not keep the process: it ends on a signal although
/// its last write never comes back.
#[test]
fn a_terminal_that_takes_no_output_does_not_keep_it() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let binary = env!("CARGO_BIN_EXE_waypost");
    let inner = format!(
        "stty rows 60 cols 240; echo $$ > {}; exec env TERM=xterm LC_ALL=C.UTF-8 {binary} dash --demo",
        pid_file.display()
    );
    // `script` holds the other end of the terminal; nobody reads its output, so it stops taking any.
    let script = Command::new("script")
        .args(["-q", "-c", &inner, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut script) = script else {
        println!("skipped: no `script` on this machine");
        return;
    };
    let mut keys = script.stdin.take().unwrap();
    let pid = loop {
        let text = fs::read_to_string(&pid_file).unwrap_or_default();
        match text.trim().parse().ok().and_then(Pid::from_raw) {
            Some(pid) => break pid,
            None => std::thread::park_timeout(Duration::from_millis(10)),
        }
    };
    // Whole maps and lists in turn: some 20 KB each, more than the terminal and the pipe hold together.
    for step in 0..24 {
        keys.write_all(if step % 2 == 0 { b"4" } else { b"3" }).unwrap();
        std::thread::park_timeout(Duration::from_millis(110));
    }
    assert!(is_running(pid));
    kill_process(pid, Signal::TERM).unwrap();
    wait_gone(pid, "SIGTERM with blocked output");
    let _ = script.kill();
    let _ = script.wait();
}
