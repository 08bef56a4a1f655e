//! Helpers shared by the tests.

#[allow(dead_code, reason = "helpers come before the tests that use them")]
pub mod process;

use std::path::PathBuf;

pub mod appliance;
pub mod cgroup;
pub mod cut_disk;
pub mod dash;
pub mod misbehave;
pub mod receiver;
pub mod tmux;
pub mod trace;

/// The shared reference data beside the checkout, if this machine has it; prints a word and gives `None` if not.
pub fn shared(path: &str) -> Option<PathBuf> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared").join(path);
    if file.exists() {
        return Some(file);
    }
    println!("skipped: reference data ../shared/{path} is not on this machine");
    None
}
