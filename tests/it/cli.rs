//! The command line on the real binary: mistakes get one clear sentence and the right exit code.

use std::net::TcpListener;
use std::time::Duration;

use crate::support::process::{Process, run, stdout, wait_status, waypost};
use crate::support::receiver;

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &std::process::Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn a_wrong_command_line_is_usage() {
    assert_eq!(code(&run(&["nonsense"])), 2);
    assert_eq!(code(&run(&["run"])), 2);
    let version = run(&["--version"]);
    assert!(stdout(&version).starts_with("waypost 0."));
    for command in [
        "run",
        "demo",
        "send",
        "status",
        "dash",
        "outbox",
        "event",
        "dlq",
        "endpoint",
        "check",
        "key",
        "lint",
        "receive",
        "completions",
    ] {
        let help = run(&[command, "--help"]);
        assert_eq!(code(&help), 0, "{command} --help");
        assert!(stdout(&help).contains("Usage: waypost"), "{command} --help");
    }
}

#[test]
fn a_wrong_config_is_told_with_line_and_key_and_nothing_listens() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("waypost.toml");
    std::fs::write(&config, "[[endpoint]]\nname = \"hq\"\nurl = \"http://127.0.0.1:1/\"\ntimout = \"3s\"\n")
        .unwrap();
    let config = config.to_str().unwrap();
    for command in ["check", "run"] {
        let output = run(&[command, "--config", config]);
        assert_eq!(code(&output), 2, "{command}");
        let message = stderr(&output);
        assert!(
            message.contains(
                "waypost.toml:4: endpoint[0].timout: unknown key `timout`; did you mean `timeout`?"
            ),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1, "one clear sentence: {message}");
    }
    let output = run(&["run", "--config", "/nonexistent/waypost.toml"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("cannot read /nonexistent/waypost.toml"), "{}", stderr(&output));
}

/// `check --store` reads the store and changes nothing: none yet, a sound one, a damaged one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_looks_into_the_store_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (data, config) = (dir.path().join("data"), dir.path().join("waypost.toml"));
    let text = format!(
        "data_dir = \"{}\"\nclock_trust = \"always\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n[store]\ndisk_bytes_max = \"128MiB\"\n[[endpoint]]\nname = \"hq\"\nurl = \"http://127.0.0.1:9/\"\n",
        data.display()
    );
    std::fs::write(&config, text).unwrap();
    let check = || run(&["check", "--store", "--config", config.to_str().unwrap()]);
    assert!(stdout(&check()).contains("the first start makes it"), "{}", stdout(&check()));
    assert!(Process::start_config(&config, &data).terminate().success());
    assert!(stdout(&check()).contains("is sound"), "{}", stdout(&check()));
    assert_eq!(code(&check()), 0, "{}", stdout(&check()));
    let segment = std::fs::read_dir(data.join("log")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&segment, "rubbish").unwrap();
    let damaged = check();
    assert_eq!(code(&damaged), 1);
    assert!(stdout(&damaged).contains("waypost store verify"), "{}", stdout(&damaged));
    assert_eq!(std::fs::read(&segment).unwrap(), b"rubbish");
}

#[test]
fn a_port_in_use_and_a_data_directory_that_is_none_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = dir.path().join("data");
    let output = run(&[
        "run",
        "--to",
        "http://127.0.0.1:1/",
        "--listen",
        &address,
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains(&format!("cannot listen on {address}")), "{}", stderr(&output));
    assert!(!data.exists(), "a port in use touches no store");
    let file = dir.path().join("file");
    std::fs::write(&file, "not a store").unwrap();
    let output = run(&[
        "run",
        "--to",
        "http://127.0.0.1:1/",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        file.to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 1);
    let message = stderr(&output);
    let told = message.lines().find(|line| line.starts_with("error:")).unwrap();
    assert!(told.contains("file") && told.contains("directory"), "{message}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a store");
}

#[test]
fn without_an_appliance_commands_say_where_they_looked() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    for args in [
        vec!["status"],
        vec!["dlq", "list"],
        vec!["outbox", "list"],
        vec!["endpoint", "list"],
        vec!["send", "/dev/null"],
    ] {
        let output = waypost().args(&args).args(["--data-dir", data]).output().unwrap();
        if args[0] == "send" {
            continue; // nothing to send is nothing to fail at
        }
        assert_eq!(code(&output), 1, "{args:?}");
        assert!(stderr(&output).contains("admin.sock"), "{args:?}: {}", stderr(&output));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_instance_is_refused_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = receiver::ok().await;
    let process = Process::start(&receiver.url(), &data);
    let output = run(&[
        "run",
        "--to",
        &receiver.url(),
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 1);
    let message = stderr(&output);
    assert!(
        message.contains("is in use by process") && message.contains(&process.pid().to_string()),
        "{message}"
    );
    wait_status(&process.client(), Duration::from_secs(5), |status| status.ready).await;
    assert!(process.terminate().success());
}

/// `run --data-dir d` in one terminal, `status` in another, both in the same directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_find_the_only_appliance_here_and_never_guess_between_two() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver::ok().await;
    let process = Process::start(&receiver.url(), &dir.path().join("d"));
    let status = || waypost().args(["status"]).current_dir(dir.path()).output().unwrap();
    let found = status();
    assert_eq!(code(&found), 0, "{}", stderr(&found));
    std::fs::create_dir(dir.path().join("e")).unwrap();
    std::fs::write(dir.path().join("e/admin.sock"), "").unwrap();
    let two = status();
    assert_eq!(code(&two), 2);
    assert!(stderr(&two).contains("(./d, ./e); say which with --data-dir"), "{}", stderr(&two));
    assert!(process.terminate().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_main_job_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = receiver::ok().await;
    let process = Process::start(&receiver.url(), &data);
    let data_dir = data.to_str().unwrap();
    let file = dir.path().join("events.ndjson");
    std::fs::write(
        &file,
        r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[13.4,52.5]},"properties":{"device_id":"a","seq":1}}
{"type":"Feature","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]},"properties":{"device_id":"a","seq":2}}
{"type":"Feature","geom
{"type":"Feature","geometry":null,"properties":{"device_id":"\u001b[31mred","seq":3}}
"#,
    )
    .unwrap();
    let output = run(&["send", "--data-dir", data_dir, file.to_str().unwrap()]);
    assert_eq!(code(&output), 1, "one line is refused");
    assert!(
        stdout(&output).contains("accepted 2, duplicates 0, dead-lettered 1, rejected 1"),
        "{}",
        stdout(&output)
    );
    assert!(stderr(&output).contains("feature 3: "), "{}", stderr(&output));
    wait_status(&process.client(), Duration::from_secs(10), |status| status.ledger.delivered == 2).await;

    let status = run(&["status", "--data-dir", data_dir]);
    assert_eq!(code(&status), 0);
    assert!(
        stdout(&status).contains("accepted 3 = delivered 2 + pending 0 + dead 1  balanced"),
        "{}",
        stdout(&status)
    );
    let list = run(&["dlq", "list", "--data-dir", data_dir]);
    assert!(stdout(&list).contains("Self-intersection"), "{}", stdout(&list));
    let entry: serde_json::Value =
        serde_json::from_str(&stdout(&run(&["dlq", "list", "--json", "--data-dir", data_dir]))).unwrap();
    assert_eq!(entry["schema"], "dlq.v1");
    assert_eq!(entry["failure_class"], "invalid_geometry");
    assert_eq!(entry["geometry_error"]["location"], serde_json::json!([0.5, 0.5]));
    let show = run(&["dlq", "show", entry["id"].as_str().unwrap(), "--data-dir", data_dir]);
    assert!(stdout(&show).contains("0.5, 0.5"), "{}", stdout(&show));

    let exported = dir.path().join("dead.geojson");
    let export = run(&["dlq", "export", "--out", exported.to_str().unwrap(), "--data-dir", data_dir]);
    assert_eq!(code(&export), 0, "{}", stderr(&export));
    let layer: serde_json::Value = serde_json::from_slice(&std::fs::read(&exported).unwrap()).unwrap();
    assert_eq!(layer["type"], "FeatureCollection");
    assert_eq!(layer["features"].as_array().unwrap().len(), 1);

    let discard = run(&["dlq", "discard", "--all", "--data-dir", data_dir]);
    assert_eq!(code(&discard), 2, "without --yes and without a terminal nothing is done");
    let discard = run(&["dlq", "discard", "--all", "--yes", "--data-dir", data_dir]);
    assert_eq!(code(&discard), 0, "{}", stderr(&discard));
    let status =
        wait_status(&process.client(), Duration::from_secs(5), |status| status.ledger.discarded == 1).await;
    assert!(status.ledger.balanced && status.ledger.dead == 0);
    assert!(stdout(&run(&["dlq", "list", "--data-dir", data_dir])).contains("there are no dead letters"));

    let seen = receiver.book().seen();
    let red = seen.iter().find(|request| request.device.contains("red")).unwrap();
    let story = run(&["event", "show", &red.id, "--data-dir", data_dir]);
    assert!(stdout(&story).contains("delivered"), "{}", stdout(&story));
    assert!(!stdout(&story).contains('\u{1b}'), "a control character reached the terminal");
    let endpoint = run(&["endpoint", "pause", "default", "--data-dir", data_dir]);
    assert!(stdout(&endpoint).contains("default is paused"), "{}", stdout(&endpoint));
    let endpoint = run(&["endpoint", "pause", "nowhere", "--data-dir", data_dir]);
    assert_eq!(code(&endpoint), 1);
    assert!(
        stderr(&endpoint).contains("there is no endpoint \"nowhere\"; there is default"),
        "{}",
        stderr(&endpoint)
    );
    assert!(process.terminate().success());
}

/// `status --watch` prints an object a line into a pipe for as long as somebody reads, and then ends quietly.
#[test]
fn a_watched_status_is_a_line_each_time_and_ends_with_its_reader() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start("http://127.0.0.1:9", &dir.path().join("data"));
    let mut child = waypost()
        .args(["status", "--json", "--watch", "1", "--data-dir"])
        .arg(&process.data_dir)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        let status: waypost::wire::StatusView = serde_json::from_str(&line).unwrap();
        assert!(status.ledger.balanced);
    }
    drop(lines);
    let ended = child.wait().unwrap();
    let mut words = String::new();
    child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(ended.success() && words.is_empty(), "{ended}: {words}");
}
