//! The dashboard on a real terminal: it gives it back whatever happens, and never outlives it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use waypost::client::{EventMedia, PostOptions, Posted};
use waypost::receiver::script;

use crate::support::dash::{self, PATIENCE, assert_given_back, is_running, promised, settings, wait_gone};
use crate::support::process::{Process, binary, wait_status};
use crate::support::receiver;
use crate::support::tmux::Tmux;

/// A signal, a lost link or a quit ends the process within this.
const END_WITHIN: Duration = Duration::from_secs(2);
/// The reason of a hold stands on the screen within this.
const REASON_WITHIN: Duration = Duration::from_secs(2);

/// Every way out leaves the terminal as it was: keys, signals, an error while opening, closed output, a lost appliance.
/// `dash_faults` adds panics.
#[test]
fn the_terminal_is_as_before_however_the_dashboard_ends() {
    let Some(tmux) = Tmux::start(100, 30) else { return };
    let before = settings(&tmux, "before");
    for key in ["q", "C-c"] {
        let pid = dash::start(&tmux, "", "--demo --mouse");
        tmux.keys(&[key]);
        wait_gone(pid, key, promised(END_WITHIN));
        assert_given_back(&tmux, key, &before);
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let pid = dash::start(&tmux, "", "--demo --mouse");
        kill_process(pid, signal).unwrap();
        wait_gone(pid, &format!("{signal:?}"), promised(END_WITHIN));
        assert_given_back(&tmux, &format!("{signal:?}"), &before);
    }
    tmux.line(&format!("{} dash --demo --keys /nonexistent", binary()));
    tmux.wait_for("message", PATIENCE, |screen| screen.contains("/nonexistent"));
    assert_given_back(&tmux, "an unreadable key file", &before);
    tmux.line(&format!("{} dash --demo >&-", binary()));
    tmux.wait_for("message", PATIENCE, |screen| screen.contains("standard output is no terminal"));
    assert_given_back(&tmux, "closed output", &before);
    let appliance = Process::start("http://127.0.0.1:9", &tmux.dir().join("data"));
    dash::start(&tmux, "", &format!("--data-dir {}", appliance.data_dir.display()));
    appliance.kill();
    tmux.wait_for("the loss", PATIENCE, |screen| screen.contains("LOST, shown is"));
    tmux.keys(&["q"]);
    assert_given_back(&tmux, "the loss of the appliance", &before);
}

/// Windows that shrink to nothing and grow again, in quick succession, with answers coming in between.
#[test]
fn a_storm_of_sizes_ends_in_a_right_frame() {
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let pid = dash::start(&tmux, "", "--demo --refresh 0.2");
    let mut size = 7u32;
    for step in 0..60 {
        size = size.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let (columns, rows) = ((size >> 16) % 300 + 1, (size >> 8) % 90 + 1);
        tmux.resize(u16::try_from(columns).unwrap(), u16::try_from(rows).unwrap());
        tmux.keys(&[["1", "2", "3", "4", "5", "6", "Tab"][step % 7]]);
    }
    tmux.keys(&["1"]);
    tmux.resize(80, 24);
    let took = tmux.wait_for("right frame", promised(Duration::from_secs(1)), |screen| {
        screen.lines().count() == 24
            && screen.starts_with("waypost gw-017")
            && screen.contains("ledger ✓ balanced")
            && screen.trim_end().ends_with("quit")
    });
    println!("right again after {took:?}");
    assert!(is_running(pid));
    tmux.keys(&["q"]);
    wait_gone(pid, "q", PATIENCE);
}

/// No colour where it is not wanted, no character that a plain font lacks, and keys and colours of one's own.
#[test]
fn options_are_heeded_on_a_real_terminal() {
    let Some(tmux) = Tmux::start(80, 24) else { return };
    // 39 and 49 take a colour back.
    let colour = regex::Regex::new("\u{1b}\\[([0-9]+;)*(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]").unwrap();
    let coloured = |screen: &str| colour.is_match(screen);
    let styled = || tmux.run(&["capture-pane", "-e", "-p", "-t", "t:0"]);
    dash::start(&tmux, "NO_COLOR=1", "--demo --ascii");
    let screen = styled();
    assert!(!coloured(&screen) && screen.replace('\u{1b}', "").is_ascii(), "{screen}");
    tmux.keys(&["q"]);
    tmux.wait_for("prompt", PATIENCE, |screen| screen.trim_end().ends_with('$'));
    let (keys, theme) = (tmux.dir().join("keys.toml"), tmux.dir().join("theme.toml"));
    fs::write(&keys, "quit = [\"ctrl-q\"]\nmap = [\"m\"]\n").unwrap();
    fs::write(&theme, "accent = \"light-magenta\"\n").unwrap();
    let options = format!("--demo --keys {} --theme {}", keys.display(), theme.display());
    let pid = dash::start(&tmux, "", &options);
    assert!(styled().contains("\u{1b}[95m"), "bright magenta in the footer: {}", styled());
    tmux.keys(&["q", "m"]);
    tmux.wait_for("the map", PATIENCE, |screen| screen.contains("Map "));
    tmux.keys(&["C-q"]);
    wait_gone(pid, "C-q", PATIENCE);
}

/// A click on a tab, the wheel over a list, and a box drawn on the map, which then restricts the other panes.
#[test]
fn the_mouse_does_what_keys_do() {
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let pid = dash::start(&tmux, "", "--demo --mouse");
    // Reports as a terminal sends them (SGR, 1-based): button; column; row; M pressed or moved, m let go.
    let report = |text: &str| tmux.run(&["send-keys", "-t", "t:0", "-l", &format!("\u{1b}[<{text}")]);
    report("0;30;2M");
    tmux.wait_for("dead letters", PATIENCE, |screen| screen.contains("▶ "));
    let row = |screen: &str| screen.lines().position(|line| line.starts_with('▶'));
    let before = row(&tmux.screen());
    report("65;10;10M");
    tmux.wait_for("another row", PATIENCE, |screen| row(screen) > before);
    tmux.keys(&["4"]);
    tmux.wait_for("the map", PATIENCE, |screen| screen.contains("placed; "));
    for part in ["0;20;8M", "32;40;14M", "0;40;14m"] {
        report(part);
    }
    tmux.wait_for("the filter", PATIENCE, |screen| screen.contains("area filter"));
    tmux.keys(&["3"]);
    tmux.wait_for("restricted letters", PATIENCE, |screen| screen.contains("endpoint any, area "));
    tmux.keys(&["q"]);
    wait_gone(pid, "q", PATIENCE);
}

/// Without a terminal, or with one that cannot place text, it says what to use instead.
#[test]
fn without_a_usable_terminal_it_says_what_to_use() {
    let output = Command::new(binary()).args(["dash", "--demo"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("dash --once"));
    let Some(tmux) = Tmux::start(80, 24) else { return };
    tmux.line(&format!("TERM=dumb {} dash --demo", binary()));
    tmux.wait_for("message", PATIENCE, |screen| screen.contains("TERM=dumb cannot place text"));
}

/// One frame as text is the same frame that the terminal shows, without a control character in it.
#[test]
fn once_prints_a_frame_as_text() {
    let once = |options: &[&str]| {
        let mut command = Command::new(binary());
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
/// seconds, the backlog drains; a dead letter is redriven by hand and arrives, another is repaired and arrives; a killed appliance is told from a
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
    let pid = dash::start(&tmux, "", &options);
    tmux.wait_for("a healthy gateway", PATIENCE, |screen| screen.contains("1 endpoint up"));

    receiver.set_script(script::always(503));
    post(&process, 0..20).await;
    let client = process.client();
    wait_status(&client, PATIENCE, |status| status.endpoints[0].hold_reason.is_some()).await;
    let took = tmux.wait_for("reason of the hold", promised(REASON_WITHIN), |screen| {
        screen.contains("HELD http_5xx") && screen.contains("hq held")
    });
    println!("the hold was on the screen after {took:?}");
    let before = number_after(&tmux.screen(), "pending ").unwrap();
    post(&process, 20..60).await;
    tmux.wait_for("rising depth", PATIENCE, |screen| {
        number_after(screen, "pending ").is_some_and(|pending| pending >= before + 40)
    });
    tmux.keys(&["2"]);
    tmux.wait_for("attempts by verdict and number", PATIENCE, |screen| {
        let bar = |name: &str| screen.lines().any(|line| line.contains(name) && line.contains('█'));
        bar("hold ") && screen.contains("Delays hq, decorrelated") && screen.contains("p99")
    });
    tmux.keys(&["6"]);
    tmux.wait_for("the line in the log", PATIENCE, |screen| screen.contains("endpoint held endpoint=hq"));
    tmux.keys(&["1"]);
    receiver::set_ok(&receiver);
    tmux.wait_for("drained backlog", PATIENCE, |screen| {
        number_after(screen, "pending ") == Some(0) && screen.contains("all well")
    });

    // Another screen, attached only now, shows the outage that it has not seen.
    let late = Command::new(binary())
        .args(["dash", "--once", "--width", "100", "--height", "30", "--data-dir"])
        .arg(&data)
        .output()
        .unwrap();
    let late = String::from_utf8(late.stdout).unwrap();
    assert!(late.contains("max 60") && late.contains("pending 0"), "{late}");

    receiver.set_script(script::always(422));
    post(&process, 60..61).await;
    tmux.wait_for("a dead letter", PATIENCE, |screen| screen.contains("3 Dead letters 1"));
    receiver::set_ok(&receiver);
    tmux.keys(&["3"]);
    tmux.wait_for("its row", PATIENCE, |screen| screen.contains("rejected"));
    tmux.keys(&["Enter"]);
    tmux.wait_for("its story", PATIENCE, |screen| screen.contains("http 422"));
    tmux.keys(&["r"]);
    tmux.wait_for("the question", PATIENCE, |screen| screen.contains("Redrive 1 dead letter ("));
    tmux.keys(&["y"]);
    tmux.wait_for("what was done", PATIENCE, |screen| screen.contains("redriven 1 of 1 dead letter"));
    let after = wait_status(&client, PATIENCE, |status| status.ledger.delivered == 61).await;
    assert!(after.ledger.balanced && after.ledger.dead == 0, "{:?}", after.ledger);

    let bow_tie = json!({"type": "Feature", "properties": {"device_id": "dispatch", "seq": 1}, "geometry":
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}});
    let body = Bytes::from(bow_tie.to_string());
    client.post_events(body, EventMedia::Document, &PostOptions::default()).await.unwrap();
    tmux.wait_for("the invalid one", PATIENCE, |screen| screen.contains("Self-intersection"));
    tmux.keys(&["R"]);
    tmux.wait_for("the question", PATIENCE, |screen| {
        screen.contains("Repair 1 dead letter (") && screen.contains("Polygon to MultiPolygon")
    });
    tmux.keys(&["y"]);
    tmux.wait_for("what was done", PATIENCE, |screen| screen.contains("repaired 1 of 1 dead letter"));
    let after = wait_status(&client, PATIENCE, |status| status.ledger.delivered == 62).await;
    assert!(after.ledger.balanced && after.ledger.dead == 0, "{:?}", after.ledger);

    tmux.keys(&["1"]);
    process.kill();
    tmux.wait_for("the loss", PATIENCE, |screen| {
        screen.contains("LOST, shown is") && screen.contains("appliance lost")
    });
    let process = Process::start_config(&config, &data);
    tmux.wait_for("it again", PATIENCE, |screen| {
        screen.lines().next().is_some_and(|header| header.ends_with("live"))
            && screen.contains("delivered 62")
    });
    tmux.keys(&["q"]);
    wait_gone(pid, "q", PATIENCE);
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
    let binary = binary();
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
    wait_gone(pid, "SIGTERM with blocked output", promised(END_WITHIN));
    let _ = script.kill();
    let _ = script.wait();
}
