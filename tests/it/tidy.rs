//! The source obeys its own map: imports point down, `core` is pure, nothing is left undone.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of the file above which it should be split.
const FILE_LINES_MAX: usize = 700;

/// What a module must not name, beyond the layering rule.
const BANS: &[(&str, &[&str], &str)] = &[
    (
        "core",
        &[
            "tokio",
            "sled::",
            "reqwest",
            "axum",
            "std::fs",
            "std::net",
            "Instant::now",
            "SystemTime",
            "thread_rng",
        ],
        "core is pure",
    ),
    (
        "dashboard",
        &["crate::app", "crate::server", "crate::driver", "crate::sender", "crate::store"],
        "the dashboard is a client",
    ),
    ("sender", &["crate::store"], "the sender knows no disk"),
    ("server", &["crate::sender"], "the server sends nothing"),
];

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            out.push(path);
        }
    }
}

/// Top-level modules in the order of `lib.rs`.
fn modules(src: &Path) -> Vec<String> {
    fs::read_to_string(src.join("lib.rs"))
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.split(';').next().map(str::to_owned))
        .collect()
}

fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn imports_point_down_and_core_is_pure() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order = modules(&src);
    assert!(order.len() > 10, "lib.rs lists the modules");
    let rank = |name: &str| order.iter().position(|module| module == name);
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut faults = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&src).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        let text = fs::read_to_string(&file).unwrap();
        let place = |line: usize| format!("{}:{}", relative.display(), line + 1);
        if text.lines().count() > FILE_LINES_MAX {
            faults.push(format!("{}: over {FILE_LINES_MAX} lines", relative.display()));
        }
        for (number, line) in code_lines(&text) {
            for (found, _) in line.match_indices("crate::") {
                let name: String =
                    line[found + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if let (Some(own), Some(other)) = (rank(module), rank(&name))
                    && other < own
                {
                    faults.push(format!(
                        "{}: {module} names crate::{name}, which stands above it",
                        place(number)
                    ));
                }
            }
            for (banned_in, words, why) in BANS {
                if module == *banned_in
                    && let Some(word) = words.iter().find(|word| line.contains(*word))
                {
                    faults.push(format!("{}: `{word}` in {module}: {why}", place(number)));
                }
            }
            for word in ["todo!(", "unimplemented!(", "dbg!("] {
                if line.contains(word) {
                    faults.push(format!("{}: {word} left in", place(number)));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
