//! The state of the gateway in one sentence: what an operator reads first, and perhaps only.
//!
//! The worst thing comes first, then what it means in events and time, then when it will be over. Only what the
//! appliance says is said; what cannot be told is left out.

use crate::core::text::visible;
use crate::wire::{EndpointState, EndpointView, StatusView};

use super::model::Model;
use super::words::{count, duration};

/// How bad it is: decides the colour, and the word before the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mood {
    /// As it should be.
    Well,
    /// Look at it today.
    Watch,
    /// Look at it now.
    Bad,
}

/// Free time on disk below which it is said.
const DISK_SOON_S: u64 = 7 * 24 * 3600;
/// Free time on disk below which it is bad.
const DISK_BAD_S: u64 = 6 * 3600;
/// Oldest age from which an up endpoint counts as behind: well above the first retries.
const BEHIND_S: u64 = 60;

/// The sentence about the present state, or about the silence.
pub fn headline(model: &Model) -> (Mood, String) {
    let Some(status) = &model.status else {
        return match &model.link.fault {
            Some(fault) if model.link.refused => {
                (Mood::Bad, format!("the appliance refuses to tell: {}", visible(fault)))
            }
            Some(fault) => (Mood::Bad, format!("no answer from the appliance: {}", visible(fault))),
            None => (Mood::Watch, "waiting for the first answer of the appliance".to_owned()),
        };
    };
    let (mood, text) = of_status(status);
    match (&model.link.fault, model.age_s()) {
        (Some(fault), Some(age_s)) => (
            Mood::Bad,
            format!(
                "appliance {}: {}; this was {} ago: {text}",
                if model.link.refused { "refuses to tell" } else { "lost" },
                visible(fault),
                duration(age_s)
            ),
        ),
        _ => (mood, text),
    }
}

/// The sentence about a status.
pub fn of_status(status: &StatusView) -> (Mood, String) {
    let mut mood = Mood::Well;
    let mut parts = Vec::new();
    let mut say = |level: Mood, text: String| {
        mood = mood.max(level);
        parts.push(text);
    };
    if !status.ledger.balanced {
        say(Mood::Bad, "the ledger does not balance".to_owned());
    }
    if status.ledger.lost > 0 {
        say(Mood::Bad, format!("{} lost to damage", count(status.ledger.lost)));
    }
    if !status.ready {
        let reason = status.not_ready_reason.as_deref().unwrap_or("no reason given");
        say(Mood::Bad, format!("not ready: {}", visible(reason)));
    }
    let stopped: Vec<&EndpointView> =
        status.endpoints.iter().filter(|one| one.state != EndpointState::Up).collect();
    for one in stopped.iter().take(2) {
        let level = if one.state == EndpointState::Paused { Mood::Watch } else { Mood::Bad };
        say(level, stopped_words(one));
    }
    if stopped.len() > 2 {
        say(Mood::Bad, format!("{} more endpoints stopped", stopped.len() - 2));
    }
    backlog(status, &stopped, &mut say);
    disk(status, &mut say);
    if !status.clock.trusted {
        say(Mood::Watch, "clock not trusted, nothing expires".to_owned());
    }
    if parts.is_empty() {
        parts.push(well(status));
    }
    (mood, parts.join("; "))
}

fn stopped_words(one: &EndpointView) -> String {
    let name = visible(&one.name).into_owned();
    match one.state {
        EndpointState::Up => name,
        EndpointState::Paused => format!("{name} paused by an operator"),
        EndpointState::Disabled => format!("{name} disabled: it answered 410 gone"),
        EndpointState::Held => {
            let since = one.held_for_s.map(|s| format!(" {}", duration(s))).unwrap_or_default();
            let why = one.hold_detail.as_deref().or(one.hold_reason.as_deref()).unwrap_or("no reason given");
            format!("{name} held{since}: {}", visible(why))
        }
    }
}

fn backlog(status: &StatusView, stopped: &[&EndpointView], say: &mut impl FnMut(Mood, String)) {
    let oldest_s = status.endpoints.iter().map(|one| one.oldest_pending_age_s).max().unwrap_or(0);
    let pending = status.ledger.pending;
    let behind = pending > 0 && (!stopped.is_empty() || oldest_s >= BEHIND_S);
    if !behind {
        return;
    }
    let drained_in_s = status.endpoints.iter().filter_map(|one| one.drained_in_s).max();
    let mut text = format!("{} pending, oldest {}", count(pending), duration(oldest_s));
    if stopped.is_empty() {
        text = format!("draining: {text}");
        if let Some(in_s) = drained_in_s {
            text.push_str(&format!(", done in {}", duration(in_s)));
        }
    }
    say(Mood::Watch, text);
    if let Some(in_s) = drained_in_s.filter(|_| !stopped.is_empty()) {
        say(Mood::Watch, format!("drains in {} once back", duration(in_s)));
    }
}

fn disk(status: &StatusView, say: &mut impl FnMut(Mood, String)) {
    let store = &status.store;
    let full = store.disk_bytes_max > 0 && store.disk_bytes >= store.disk_bytes_max;
    match store.full_in_s {
        _ if full => say(Mood::Bad, "disk full: new events are refused".to_owned()),
        Some(0) => say(Mood::Bad, "disk full: new events are refused".to_owned()),
        Some(in_s) if in_s <= DISK_SOON_S => {
            let level = if in_s <= DISK_BAD_S { Mood::Bad } else { Mood::Watch };
            say(level, format!("disk full in {}", duration(in_s)));
        }
        _ => {}
    }
}

fn well(status: &StatusView) -> String {
    let endpoints = match status.endpoints.len() {
        0 => return "no endpoint is configured".to_owned(),
        1 => "1 endpoint up".to_owned(),
        n => format!("{n} endpoints up"),
    };
    if status.ledger.accepted == 0 {
        return format!("{endpoints}, no event yet");
    }
    let oldest_s = status.endpoints.iter().map(|one| one.oldest_pending_age_s).max().unwrap_or(0);
    let waiting = match status.ledger.pending {
        0 => "nothing waits".to_owned(),
        n => format!("{} pending, none older than {}", count(n), duration(oldest_s.max(1))),
    };
    let dead = match status.ledger.dead {
        0 => String::new(),
        n => format!("; {} dead letters to look at", count(n)),
    };
    format!("all well: {endpoints}, {waiting}{dead}")
}

#[cfg(test)]
mod tests {
    use super::super::demo::{Demo, Scene};
    use super::*;

    fn check(scene: Scene, second: u64, change: impl Fn(&mut StatusView), mood: Mood, words: &str) {
        let mut status = Demo::of_scene(scene).status(second);
        change(&mut status);
        assert_eq!(of_status(&status), (mood, words.to_owned()));
    }

    #[test]
    fn the_state_is_said_in_words_worst_first() {
        let same = |_: &mut StatusView| {};
        check(Scene::Empty, 0, same, Mood::Well, "1 endpoint up, no event yet");
        check(
            Scene::Held,
            1_321,
            same,
            Mood::Bad,
            "hq held 12 min: connection refused; 4 185 pending, oldest 12 min; drains in 4 min once back; \
             disk full in 31 h",
        );
        check(
            Scene::Draining,
            1_375,
            same,
            Mood::Watch,
            "draining: 2 808 pending, oldest 8 min, done in 1 min",
        );
        check(
            Scene::Healthy,
            540,
            |status| {
                status.ledger.pending = 0;
                status.ledger.dead = 0;
            },
            Mood::Well,
            "all well: 3 endpoints up, nothing waits",
        );
        check(
            Scene::FullDisk,
            540,
            |status| {
                status.ledger.balanced = false;
                status.not_ready_reason = Some("full\u{1b}[2J".to_owned());
            },
            Mood::Bad,
            "the ledger does not balance; not ready: full\\u{1b}[2J; disk full: new events are refused",
        );
        check(
            Scene::Healthy,
            540,
            |status| {
                status.ledger.pending = 0;
                status.ledger.lost = 2;
                status.endpoints[1].state = EndpointState::Paused;
                status.endpoints[2].state = EndpointState::Disabled;
                status.clock.trusted = false;
            },
            Mood::Bad,
            "2 lost to damage; archive paused by an operator; city disabled: it answered 410 gone; clock not \
             trusted, nothing expires",
        );
    }
}
