//! A control group with a memory limit, of version 1 or 2, where this machine lets us make one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The group; removed when dropped (its processes must have ended).
pub struct MemoryGroup {
    dir: PathBuf,
    version: u8,
}

impl MemoryGroup {
    /// `None` without the rights.
    pub fn new(bytes_max: u64) -> Option<Self> {
        let name = format!("waypost-test-{}", std::process::id());
        for (parent, limit, version) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes", 1), ("/sys/fs/cgroup", "memory.max", 2)]
        {
            let dir = Path::new(parent).join(&name);
            if !Path::new(parent).join("cgroup.procs").exists() || fs::create_dir(&dir).is_err() {
                continue;
            }
            let group = Self { dir, version };
            if fs::write(group.dir.join(limit), bytes_max.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// A command whose process joins the group before it becomes `program`.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.dir.join("cgroup.procs"))
            .arg(program);
        command
    }

    /// Times that the kernel killed a process of it.
    pub fn kills(&self) -> u64 {
        let file = if self.version == 1 { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}
