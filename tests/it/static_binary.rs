//! The static binary runs where there is nothing: an empty chroot without libc, resolver files or CA bundle.
//!
//! The binary is made by the README's command; its path is taken from WAYPOST_STATIC_BINARY, else from where that
//! command puts it. Without it, without root, or on another machine than x86-64 Linux the test says so and passes.

use std::path::PathBuf;
use std::process::Command;

fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("WAYPOST_STATIC_BINARY").map(PathBuf::from);
    let usual =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/x86_64-unknown-linux-gnu/dist/waypost");
    let found = named.unwrap_or(usual);
    if found.exists() {
        return Some(found);
    }
    println!("skipped: no static binary at {}; the README says how to make one", found.display());
    None
}

#[test]
fn the_static_binary_runs_in_an_empty_chroot() {
    let Some(binary) = binary() else { return };
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a chroot needs root");
        return;
    }
    let ldd = Command::new("ldd").arg(&binary).output().unwrap();
    let word = String::from_utf8_lossy(&[ldd.stdout, ldd.stderr].concat()).into_owned();
    assert!(word.contains("statically linked") || word.contains("not a dynamic executable"), "{word}");
    let size = std::fs::metadata(&binary).unwrap().len();
    assert!(size <= 20 << 20, "{size} bytes");
    let root = tempfile::tempdir().unwrap();
    std::fs::copy(&binary, root.path().join("waypost")).unwrap();
    std::fs::create_dir(root.path().join("tmp")).unwrap();
    let run = |args: &[&str]| {
        Command::new("chroot")
            .arg(root.path())
            .arg("/waypost")
            .args(args)
            .env("TMPDIR", "/tmp")
            .output()
            .unwrap()
    };
    let version = run(&["--version"]);
    assert!(version.status.success(), "{}", String::from_utf8_lossy(&version.stderr));
    // The whole main job: receiver, appliance, fleet, outage, balanced ledger.
    let demo = run(&["demo", "--headless", "--for", "6s"]);
    let text = String::from_utf8_lossy(&demo.stdout).into_owned();
    assert!(demo.status.success(), "{text}\n{}", String::from_utf8_lossy(&demo.stderr));
    assert!(text.contains("the ledger balances"), "{text}");
}
