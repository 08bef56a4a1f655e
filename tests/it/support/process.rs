//! The real binary as a child: started, asked, stopped, killed. Only processes started here are ever ended.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use waypost::client::{AdminClient, Target};
use waypost::wire::StatusView;

/// Path of the binary under test. `WAYPOST_BIN` names another build of it, for example the release one.
pub fn binary() -> String {
    std::env::var("WAYPOST_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_waypost").to_owned())
}

/// The binary under test.
pub fn waypost() -> Command {
    let mut command = Command::new(binary());
    command.env_remove("WAYPOST_LOG").env_remove("WAYPOST_TOKEN").stdin(Stdio::null());
    command
}

/// Runs a command of the binary to its end.
pub fn run(args: &[&str]) -> Output {
    waypost().args(args).output().unwrap()
}

/// Standard output of a command as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A running `waypost run`.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
    pub data_dir: PathBuf,
}

impl Process {
    /// Starts `waypost run --to` and waits until it listens.
    pub fn start(to: &str, data_dir: &Path) -> Self {
        let mut command = waypost();
        command.args(["run", "--to", to, "--listen", "127.0.0.1:0", "--data-dir"]).arg(data_dir);
        Self::spawn(command, data_dir)
    }

    /// Starts `waypost run --config` and waits until it listens.
    pub fn start_config(config: &Path, data_dir: &Path) -> Self {
        let mut command = waypost();
        command.args(["run", "--config"]).arg(config);
        Self::spawn(command, data_dir)
    }

    pub fn spawn(command: Command, data_dir: &Path) -> Self {
        Self::spawn_logged(command, data_dir, &data_dir.with_extension("stderr"))
    }

    /// With its stderr in a file of that name.
    pub fn spawn_logged(mut command: Command, data_dir: &Path, stderr: &Path) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(stderr).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("listening on ") else {
            let _ = child.kill();
            let status = child.wait().unwrap();
            let log = std::fs::read_to_string(stderr).unwrap_or_default();
            panic!("`waypost run` did not get ready ({status}): {log}");
        };
        Self { address: address.parse().unwrap(), child, data_dir: data_dir.to_owned() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn client(&self) -> AdminClient {
        AdminClient::new(Target::Socket(self.data_dir.join("admin.sock"))).unwrap()
    }

    /// SIGKILL, as a power switch would end it (but for the page cache).
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; how it ended, within 10 s.
    pub fn terminate(mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.wait_exit(Duration::from_secs(10)).expect("exit within 10 s of SIGTERM")
    }

    /// SIGTERM to the only child of this process (a tracer), and until the tracer has ended.
    pub fn terminate_child(self) -> ExitStatus {
        self.signal_child(rustix::process::Signal::TERM)
    }

    /// SIGKILL to it.
    pub fn kill_child(self) {
        self.signal_child(rustix::process::Signal::KILL);
    }

    fn signal_child(mut self, signal: rustix::process::Signal) -> ExitStatus {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let child: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
        let child = rustix::process::Pid::from_raw(child).unwrap();
        rustix::process::kill_process(child, signal).unwrap();
        self.wait_exit(Duration::from_secs(60)).expect("the tracer ends with its child")
    }

    fn wait_exit(&mut self, at_most: Duration) -> Option<ExitStatus> {
        let end = tokio::time::Instant::now() + at_most;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            if tokio::time::Instant::now() > end {
                return None;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks for the status until it is as wanted; fails after `at_most` with the last one.
pub async fn wait_status(
    client: &AdminClient,
    at_most: Duration,
    mut wanted: impl FnMut(&StatusView) -> bool,
) -> StatusView {
    let end = tokio::time::Instant::now() + at_most;
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tick.tick().await;
        let status = client.status().await.unwrap();
        if wanted(&status) {
            return status;
        }
        assert!(
            tokio::time::Instant::now() < end,
            "not as wanted after {at_most:?}: {}",
            serde_json::to_string_pretty(&status).unwrap()
        );
    }
}
