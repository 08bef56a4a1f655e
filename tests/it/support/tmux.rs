//! A real terminal for tests: tmux on a socket of its own, with one window, whose screen can be read.

use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

/// One tmux server with one pane. Ended when dropped.
pub struct Tmux {
    dir: TempDir,
}

impl Tmux {
    /// A pane of the given size running a shell; says a word and gives `None` where there is no tmux.
    pub fn start(columns: u16, rows: u16) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("skipped: no tmux on this machine");
            return None;
        }
        let tmux = Self { dir: tempfile::tempdir().unwrap() };
        let size = [columns.to_string(), rows.to_string()];
        let shell = "env -u NO_COLOR -u WAYPOST_TOKEN LC_ALL=C.UTF-8 PS1='$ ' sh";
        // A quiet session keeps the server alive when the window of the other is killed.
        tmux.run(&["new-session", "-d", "-s", "keep", "cat"]);
        tmux.run(&["new-session", "-d", "-s", "t", "-x", &size[0], "-y", &size[1], shell]);
        tmux.run(&["set-option", "-t", "t", "window-size", "manual"]);
        tmux.wait_for("a prompt", Duration::from_secs(5), |screen| screen.contains('$'));
        Some(tmux)
    }

    /// Directory for files of the test; gone afterwards.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// One tmux command; its output.
    pub fn run(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .env_remove("TMUX")
            .arg("-S")
            .arg(self.dir.path().join("socket"))
            .args(["-f", "/dev/null"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types a line and enter.
    pub fn line(&self, text: &str) {
        self.run(&["send-keys", "-t", "t:0", "-l", text]);
        self.keys(&["Enter"]);
    }

    /// Presses keys, by tmux's names.
    pub fn keys(&self, keys: &[&str]) {
        let mut args = vec!["send-keys", "-t", "t:0"];
        args.extend(keys);
        self.run(&args);
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.run(&["resize-window", "-t", "t:0", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// What the pane shows.
    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-t", "t:0"])
    }

    /// A tmux format of the pane, for example `#{alternate_on}`.
    pub fn format(&self, format: &str) -> String {
        self.run(&["display-message", "-p", "-t", "t:0", format]).trim().to_owned()
    }

    /// Reads the screen until it is as wanted; how long that took.
    pub fn wait_for(&self, what: &str, at_most: Duration, wanted: impl Fn(&str) -> bool) -> Duration {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return begin.elapsed();
            }
            assert!(begin.elapsed() < at_most, "no {what} within {at_most:?}; the screen shows:\n{screen}");
            // A terminal gives no event to wait for.
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ =
            Command::new("tmux").arg("-S").arg(self.dir.path().join("socket")).arg("kill-server").output();
    }
}
