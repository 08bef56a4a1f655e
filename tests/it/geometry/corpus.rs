//! The fuzzer's corpus and seeded mutations of it, held to the fuzzer's laws (`fuzz/laws.rs`).
//! `WAYPOST_FUZZ_CASES` says how many mutations of each file, `WAYPOST_FUZZ_SEED` where they start.

use std::fs;
use std::path::Path;

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

#[path = "../../../fuzz/laws.rs"]
mod laws;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Pieces that mean something to a parser of GeoJSON or to arithmetic.
const PIECES: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "null",
    "[[",
    "]]",
    "[]",
    "{}",
    "0",
    "-0",
    "1",
    "2",
    "1e308",
    "-1e308",
    "1e-320",
    "1e400",
    "0.1",
    "0.30000000000000004",
    "NaN",
    "9007199254740993",
    "\\u0000",
    "\"type\":\"Polygon\"",
    "\"coordinates\":",
    "[0,0]",
    ",[1,1]",
    "[1,2,3]",
    " ",
    "\u{feff}",
    "\u{1e}",
    "é",
];

fn mutated(text: &[u8], others: &[Vec<u8>], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut out = text.to_vec();
    for _ in 0..rng.random_range(1..=6) {
        let from = rng.random_range(0..=out.len());
        let to = (from + rng.random_range(0..=12)).min(out.len());
        match rng.random_range(0..7) {
            0 => drop(out.drain(from..to)),
            1 => {
                let piece = PIECES[rng.random_range(0..PIECES.len())];
                out.splice(from..to, piece.bytes());
            }
            2 => {
                let again = out[from..to].to_vec();
                out.splice(to..to, again);
            }
            3 => {
                if let Some(byte) = out.get_mut(from) {
                    *byte = rng.random();
                }
            }
            4 => {
                // A digit for a digit keeps the text a geometry and moves a corner.
                let digits: Vec<usize> = (0..out.len()).filter(|at| out[*at].is_ascii_digit()).collect();
                if !digits.is_empty() {
                    out[digits[rng.random_range(0..digits.len())]] = rng.random_range(b'0'..=b'9');
                }
            }
            5 => {
                let other = &others[rng.random_range(0..others.len())];
                let a = rng.random_range(0..=other.len());
                let b = (a + rng.random_range(0..=60)).min(other.len());
                out.splice(from..to, other[a..b].iter().copied());
            }
            _ => {
                // Two positions change places: rings begin to cross.
                let open: Vec<usize> = (0..out.len()).filter(|at| out[*at] == b'[').collect();
                if open.len() > 1 {
                    let (a, b) =
                        (open[rng.random_range(0..open.len())], open[rng.random_range(0..open.len())]);
                    let end =
                        |at: usize| out[at..].iter().position(|byte| *byte == b']').map(|len| at + len + 1);
                    if let (Some(a_end), Some(b_end)) = (end(a), end(b))
                        && a_end <= b
                    {
                        let (first, second) = (out[a..a_end].to_vec(), out[b..b_end].to_vec());
                        out.splice(b..b_end, first);
                        out.splice(a..a_end, second);
                    }
                }
            }
        }
    }
    out
}

#[test]
fn the_corpus_and_mutations_of_it_keep_the_laws() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/geometry");
    let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let corpus: Vec<Vec<u8>> = names.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(corpus.len() >= 30, "the corpus is there");
    let seed = setting("WAYPOST_FUZZ_SEED", 3);
    let cases = setting("WAYPOST_FUZZ_CASES", if cfg!(debug_assertions) { 100 } else { 4_000 });
    for (number, (name, text)) in names.iter().zip(&corpus).enumerate() {
        laws::geometry(text);
        for case in 0..cases {
            let mut rng = Pcg64Mcg::seed_from_u64(seed ^ ((number as u64) << 32) ^ case);
            let text = mutated(text, &corpus, &mut rng);
            let held = std::panic::catch_unwind(|| laws::geometry(&text));
            assert!(held.is_ok(), "{} case {case}: {:?}", name.display(), String::from_utf8_lossy(&text));
        }
    }
}
