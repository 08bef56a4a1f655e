//! The parser and the gate on any bytes. `cargo +nightly fuzz run geometry` in the main directory.
#![no_main]

#[path = "../laws.rs"]
mod laws;

libfuzzer_sys::fuzz_target!(|data: &[u8]| laws::geometry(data));
