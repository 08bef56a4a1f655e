//! The dashboard in a terminal of its own: started, watched, seen to be gone.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tokio::time::Instant;

use super::process::binary;
use super::tmux::Tmux;

/// A time that is promised: asserted as it is when tests have the machine for themselves (`WAYPOST_SLOW`); else a busy
/// machine may take longer, and only what happens is looked at.
pub fn promised(time: Duration) -> Duration {
    if std::env::var_os("WAYPOST_SLOW").is_some() { time } else { PATIENCE }
}

/// What is waited for at most, where a busy machine and not a promise decides how long it takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Starts `waypost dash` with options after the shell words `before`, and waits for its first frame.
pub fn start(tmux: &Tmux, before: &str, options: &str) -> Pid {
    let pid = begin(tmux, before, &format!("dash {options}"));
    tmux.wait_for("dashboard", PATIENCE, |screen| screen.contains("1 Over") && screen.contains("quit"));
    pid
}

/// Starts any command of the binary in the terminal; its process id.
pub fn begin(tmux: &Tmux, before: &str, command: &str) -> Pid {
    let pid_file = tmux.dir().join("pid");
    let _ = fs::remove_file(&pid_file);
    let binary = binary();
    tmux.line(&format!("{before} sh -c 'echo $$ > {}; exec {binary} {command}'", pid_file.display()));
    let begin = Instant::now();
    loop {
        let text = fs::read_to_string(&pid_file).unwrap_or_default();
        if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
            return pid;
        }
        assert!(begin.elapsed() < PATIENCE, "{command} did not start:\n{}", tmux.screen());
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// The terminal's settings as `stty` tells them.
pub fn settings(tmux: &Tmux, name: &str) -> String {
    // A number makes the echo one that is not on the screen yet.
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let name = format!("{name}-{}", ASKED.fetch_add(1, Ordering::Relaxed));
    let file = tmux.dir().join(&name);
    tmux.line(&format!("stty -a > {}; echo kept-{name}", file.display()));
    tmux.wait_for("settings", PATIENCE, |screen| screen.contains(&format!("\nkept-{name}")));
    fs::read_to_string(file).unwrap()
}

/// The shell has the terminal again: main screen, cursor shown, the text from before still there.
pub fn assert_given_back(tmux: &Tmux, how: &str, before: &str) {
    tmux.wait_for("prompt", PATIENCE, |screen| screen.trim_end().ends_with('$'));
    assert_eq!(tmux.format("#{alternate_on} #{cursor_flag}"), "0 1", "after {how}");
    assert!(tmux.screen().contains("kept-before"), "the main screen is not as it was, after {how}");
    assert_eq!(settings(tmux, "after"), before, "terminal settings after {how}");
    tmux.keys(&["C-l"]);
    tmux.line("echo kept-before");
}

pub fn is_running(pid: Pid) -> bool {
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

/// Waits until the process has gone, within the time that is promised, and without having spun; how long it took.
pub fn wait_gone(pid: Pid, how: &str, within: Duration) -> Duration {
    let (begin, ticks) = (Instant::now(), cpu_ticks(pid));
    while is_running(pid) {
        let used_ms = cpu_ticks(pid).saturating_sub(ticks) * 10;
        assert!(begin.elapsed() < within, "still there after {how}, having used {used_ms} ms of CPU");
        assert!(used_ms < 1_000, "spins after {how}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    begin.elapsed()
}
