//! The appliance under test as a child process, and what /proc says of it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Appliance {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

/// What a process has used so far.
pub struct Usage {
    cpu_s: f64,
    written: u64,
    pub rss_mib: f64,
}

impl Usage {
    pub fn of(pid: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<f64>().ok()).sum();
        let read = |file: &str, name: &str| -> u64 {
            std::fs::read_to_string(format!("/proc/{pid}/{file}"))
                .unwrap_or_default()
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
                .unwrap_or(0)
        };
        Self {
            cpu_s: ticks / 100.0, // USER_HZ is 100 on every Linux that matters
            written: read("io", "write_bytes:"),
            rss_mib: read("status", "VmRSS:") as f64 / 1024.0,
        }
    }

    pub fn cpu_since(&self, before: &Usage) -> f64 {
        self.cpu_s - before.cpu_s
    }

    pub fn written_since(&self, before: &Usage) -> u64 {
        self.written - before.written
    }
}

impl Appliance {
    pub fn start(to: &str) -> Self {
        let dir = tempfile::tempdir_in(std::env::var_os("WAYPOST_BENCH_DIR").unwrap_or_else(|| ".".into()))
            .unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_waypost"))
            .args(["run", "--to", to, "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path().join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // `run` prints "listening on ADDR" on its first line when it is ready.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line
            .trim()
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .expect("the first line of `run` ends in its address");
        Self { child, address, _dir: dir }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn usage(&self) -> Usage {
        Usage::of(self.child.id())
    }

    /// A clean stop; kills what does not stop within 15 s.
    pub async fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        for _ in 0..150 {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "the appliance ended with {status}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.child.kill().unwrap();
        panic!("the appliance did not stop within 15 s");
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
