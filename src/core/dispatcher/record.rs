//! What is written of an attempt: counts, history, the start of the answer.

use std::time::Duration;

use super::super::classify::Outcome;
use super::super::delivery::{ANSWER_BYTES_MAX, AttemptRecord, HISTORY_MAX, Progress};
use super::queue::Item;

/// Failures of one delivery whose place among the endpoint's attempts is remembered; more are never asked about.
const NOTED_MAX: usize = 16;

impl Item {
    /// It failed, as the endpoint's attempt number `noted`.
    pub(super) fn failed(&mut self, noted: u64) {
        self.failures += 1;
        if self.failures_noted.len() >= NOTED_MAX {
            self.failures_noted.remove(0);
        }
        self.failures_noted.push(noted);
    }

    /// Counts of a delivery that goes back in line: what the present streak charged is taken back, and its delays start
    /// over.
    pub(super) fn return_progress(&mut self, streak_number: u64) -> Progress {
        if self.streak_number == streak_number {
            self.progress.charged = self.progress.charged.saturating_sub(self.streak_charged);
        }
        self.streak_charged = 0;
        self.free_repeats = 0;
        self.passed_before = None;
        self.failures = 0;
        self.failures_noted.clear();
        self.progress.previous_delay = Duration::ZERO;
        self.progress.clone()
    }
}

/// Append to a bounded history: the first attempt and the last ones stay, and only the last keeps its answer.
pub(super) fn remember(progress: &mut Progress, record: AttemptRecord) {
    progress.attempts = record.number;
    if let Some(last) = progress.history.last_mut() {
        last.answer = String::new();
    }
    if progress.history.len() >= HISTORY_MAX {
        progress.history.remove(1);
    }
    progress.history.push(record);
}

pub(super) fn answer_text(outcome: &Outcome) -> String {
    let Outcome::Response(answer) = outcome else { return String::new() };
    let body = &answer.body[..answer.body.len().min(ANSWER_BYTES_MAX)];
    let mut text = String::from_utf8_lossy(body).into_owned();
    // Replacement characters are longer than what they replace.
    while text.len() > ANSWER_BYTES_MAX {
        text.pop();
    }
    text
}
