//! The dashboard against what breaks terminals: panics, lost links, hostile text, logs of its own process.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use waypost::client::{AdminClient, EndpointAction, EventMedia, PostOptions};
use waypost::core::text::{is_hidden, width};
use waypost::dashboard::demo::Demo;
use waypost::dashboard::feed::Source;
use waypost::dashboard::message::{Answer, FetchError, Request};
use waypost::dashboard::{self, DashArgs, terminal};
use waypost::receiver::record::Keep;
use waypost::receiver::script::{Act, Answer as Reply};

use crate::support::dash::{self, PATIENCE, assert_given_back, is_running, promised, settings, wait_gone};
use crate::support::process::{Process, binary, wait_status};
use crate::support::receiver;
use crate::support::tmux::Tmux;

/// Names this test binary as a child that panics with the terminal taken; see [`child_that_panics`].
const CHILD: &str = "WAYPOST_TEST_PANICS";
/// A process whose terminal has gone may be there so long (field fault 53).
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Runs of a fault: all that the fault asks for when there is time, else some of each kind.
fn runs(quick: usize) -> usize {
    if std::env::var_os("WAYPOST_SLOW").is_some() { 20 } else { quick }
}

/// A panic while drawing, and one in the loop itself: the terminal is as before and the message can be read.
#[test]
fn a_panic_gives_the_terminal_back() {
    let Some(tmux) = Tmux::start(100, 30) else { return };
    let before = settings(&tmux, "before");
    let child = std::env::current_exe().unwrap();
    for run in 0..runs(2) {
        let how = ["drawing", "loop"][run % 2];
        tmux.line(&format!(
            "RUST_BACKTRACE=0 {CHILD}={how} {} --exact dash_faults::child_that_panics --nocapture",
            child.display()
        ));
        tmux.wait_for("message of the panic", PATIENCE, |screen| {
            screen.contains(&format!("forced in the {how}")) && screen.contains("test result: FAILED")
        });
        assert_given_back(&tmux, how, &before);
    }
}

/// Not a test of its own: run by the test above in a terminal, where it takes it and panics.
#[test]
fn child_that_panics() {
    match std::env::var(CHILD).as_deref() {
        Ok("drawing") => {
            let _guard = terminal::Guard::enter(true).unwrap();
            terminal::inside(|| panic!("forced in the drawing"));
        }
        Ok("loop") => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let source = Breaks { demo: Demo::still(), left: Arc::new(AtomicU32::new(3)) };
            runtime.block_on(dashboard::run_on(&DashArgs::default(), source)).unwrap();
        }
        _ => {}
    }
}

/// Made-up data whose third question is one too many for the loop that asks it.
struct Breaks {
    demo: Demo,
    left: Arc<AtomicU32>,
}

impl Clone for Breaks {
    fn clone(&self) -> Self {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        assert!(left > 1, "forced in the loop");
        Self { demo: self.demo.clone(), left: Arc::clone(&self.left) }
    }
}

impl Source for Breaks {
    async fn fetch(&self, request: Request) -> Result<Answer, FetchError> {
        self.demo.fetch(request).await
    }
}

/// A link that breaks takes the dashboard with it: with the hang-up signal, without it (an orphan in a session of its own,
/// or one that ignores the signal), and when the program that holds the other end is killed, as a killed sshd would be.
/// Reading the dead terminal returns at once for ever; nothing of that is left, nor a connection to the appliance.
#[test]
fn the_dashboard_never_outlives_its_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = Process::start("http://127.0.0.1:9", &dir.path().join("data"));
    let options = format!("--data-dir {}", appliance.data_dir.display());
    let mut longest = Duration::ZERO;
    for run in 0..runs(4) {
        let (how, before) = [
            ("a closed pane", ""),
            ("an orphan", "setsid -w"),
            ("no signal", "trap '' HUP;"),
            ("a killed terminal", ""),
        ][run % 4];
        let Some(tmux) = Tmux::start(80, 24) else { return };
        let pid = dash::start(&tmux, before, &options);
        assert!(is_running(pid), "{how}");
        if how == "a killed terminal" {
            let server = tmux.run(&["display-message", "-p", "#{pid}"]);
            kill_process(Pid::from_raw(server.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        } else {
            tmux.run(&["kill-window", "-t", "t:0"]);
        }
        longest = longest.max(wait_gone(pid, how, promised(GONE_WITHIN)));
    }
    println!("gone after {longest:?} at most, in {} runs", runs(4));
    let open = fs::read_to_string(format!("/proc/{}/net/unix", appliance.pid())).unwrap();
    let socket = appliance.data_dir.join("admin.sock");
    // Flag 00010000 marks the listening socket; every other line of that path is a connection.
    let connections = open
        .lines()
        .filter(|line| line.ends_with(socket.to_str().unwrap()) && !line.contains(" 00010000 "))
        .count();
    assert_eq!(connections, 0, "{open}");
    assert!(appliance.terminate().success());
}

/// What a stranger would write to take a terminal over: title, colours, clear, 8-bit controls, bell, line ends,
/// reading direction, wide and joined characters.
const EVIL: &str =
    "e\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31m\u{9b}5n\u{90}q\r\n\t\u{202e}rtl\u{200d}東👩\u{200d}👩";

fn hostile(number: u32) -> String {
    let geometry = json!({"type": "Point", "coordinates": [13.4, 52.5]});
    let properties =
        json!({"device_id": format!("{number}{EVIL}"), "event_type": EVIL, "seq": number, EVIL: EVIL});
    json!({"type": "Feature", "id": EVIL, "geometry": geometry, "properties": properties}).to_string()
}

async fn post(client: &AdminClient, body: String) {
    let body = Bytes::from(body);
    client.post_events(body, EventMedia::Document, &PostOptions::default()).await.unwrap();
}

/// Everything that the program wrote, without the sequences that the dashboard itself uses.
fn without_own_sequences(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    // CSI with numbers: cursor, colours, modes of the screen. Nothing else is ever sent.
    let own = regex::Regex::new("\u{1b}\\[[?]?[0-9;]*[A-Za-z]").unwrap();
    own.replace_all(&text, "").into_owned()
}

/// Hostile text in ids, devices, types, properties and receivers' answers, through a real appliance, on a terminal that
/// logs all bytes: nothing of it reaches the terminal as more than letters, columns stay aligned, exports keep the truth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_control_character_of_an_event_reaches_the_terminal() {
    let Some(tmux) = Tmux::start(120, 40) else { return };
    let answer = Reply { body: Bytes::from(EVIL), ..Reply::status(422) };
    let refusing = receiver::scripted(Arc::new(move |_| Act::Answer(answer.clone())), Keep::Heads).await;
    let process = Process::start(&refusing.url(), &tmux.dir().join("data"));
    let client = process.client();
    post(&client, hostile(1)).await;
    wait_status(&client, PATIENCE, |status| status.ledger.dead == 1).await;
    client.endpoint("default", EndpointAction::Pause).await.unwrap();
    post(&client, hostile(2)).await;
    post(&client, hostile(3).replace("\\u001b", "plain").replace("e\u{1b}", "plain")).await;

    tmux.line(&format!("cd {}", tmux.dir().display()));
    let pid = dash::start(&tmux, "", "--data-dir data --allow-actions --refresh 0.3");
    let log = tmux.dir().join("bytes");
    tmux.run(&["pipe-pane", "-t", "t:0", &format!("cat > {}", log.display())]);
    tmux.keys(&["3"]);
    tmux.wait_for("the dead letter", PATIENCE, |screen| screen.contains("rows 1 to 1"));
    let row = tmux.screen().lines().find(|line| line.contains("rejected")).unwrap().to_owned();
    assert!(row.contains("\\u{1b}]0;"), "shown escaped: {row}");
    tmux.keys(&["Enter"]);
    tmux.wait_for("its answer and body", PATIENCE, |screen| {
        screen.contains("answer:") && screen.contains("u{1b}]0;owned") && screen.contains("body: ")
    });
    tmux.keys(&["x"]);
    tmux.wait_for("the question", PATIENCE, |screen| screen.contains("Write 1 dead letter"));
    tmux.keys(&["y"]);
    tmux.wait_for("the export", PATIENCE, |screen| screen.contains("written to dead-letters-001"));
    tmux.keys(&["5"]);
    tmux.wait_for("the pending events", PATIENCE, |screen| screen.contains("rows 1 to 2"));
    let screen = tmux.screen();
    let places: Vec<usize> = screen
        .lines()
        .filter_map(|line| line.split_once("default").filter(|(_, rest)| rest.contains("pending")))
        .map(|(lead, _)| width(lead))
        .collect();
    assert!(places.len() == 2 && places[0] == places[1], "columns are aligned: {screen}");
    tmux.keys(&["Enter"]);
    tmux.wait_for("its story", PATIENCE, |screen| screen.contains("accepted") && screen.contains("body: "));
    for (key, word) in [("4", "Map "), ("6", "Log "), ("2", "by verdict"), ("1", "ledger ")] {
        tmux.keys(&[key]);
        tmux.wait_for(word, PATIENCE, |screen| screen.contains(word));
    }
    let written = without_own_sequences(&fs::read(&log).unwrap());
    let acting: Vec<char> = written.chars().filter(|c| is_hidden(*c)).collect();
    assert!(written.len() > 5_000 && acting.is_empty(), "{acting:?} in {} bytes", written.len());
    tmux.keys(&["q"]);
    wait_gone(pid, "q", PATIENCE);

    let export = fs::read_to_string(tmux.dir().join("dead-letters-001.geojsonseq")).unwrap();
    let record: serde_json::Value = serde_json::from_str(export.trim_start_matches('\u{1e}')).unwrap();
    assert_eq!(record["properties"]["device_id"], format!("1{EVIL}"), "the export keeps the true value");
    assert!(process.terminate().success());
}

/// The demo runs an appliance in the dashboard's own process: its log is in its pane and never across the screen, however
/// talkative, and leaving it ends with the ledger.
#[test]
fn the_demo_keeps_its_log_off_the_screen() {
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let pid = dash::begin(&tmux, "", "demo --for 1h --log-level debug");
    let in_order = |screen: &str| {
        let lines: Vec<&str> = screen.lines().collect();
        lines.first().is_some_and(|line| line.starts_with("waypost demo") && line.ends_with("live"))
            && lines.get(1).is_some_and(|line| line.starts_with(" 1 Overview"))
            && lines.last().is_some_and(|line| line.ends_with("quit"))
    };
    tmux.wait_for("events", PATIENCE, |screen| in_order(screen) && screen.contains("all well"));
    tmux.keys(&["6"]);
    tmux.wait_for("its log", PATIENCE, |screen| in_order(screen) && screen.contains("summary"));
    assert!(!tmux.screen().contains("DEBUG"));
    tmux.keys(&["q"]);
    tmux.wait_for("the summary", PATIENCE, |screen| screen.contains("the ledger balances"));
    wait_gone(pid, "q", PATIENCE);
}

/// A pane that is closed while the demo drives does not leave its appliance behind.
#[test]
fn a_closed_pane_ends_the_demo_too() {
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let pid = dash::begin(&tmux, "", "demo --for 1h");
    tmux.wait_for("the screen", PATIENCE, |screen| screen.starts_with("waypost demo"));
    assert!(is_running(pid));
    tmux.run(&["kill-window", "-t", "t:0"]);
    wait_gone(pid, "a closed pane", promised(GONE_WITHIN));
}

/// Output that nobody reads any more (`dash --once | head`) ends it quietly, and a pipe is no reason to spin.
#[test]
fn a_closed_pipe_ends_a_printed_frame() {
    let mut child = Command::new(binary())
        .args(["dash", "--demo", "--once", "--width", "500", "--height", "200"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
