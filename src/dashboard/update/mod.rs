//! The one place where the screen's state changes: `(model, now, message)` in, commands out; pure.
//!
//! `keys` says what a person's input does, `replies` what the appliance's answers do; this file holds what time
//! does: which questions are due, when to try again after a failure, which lines have had their time.
//!
//! **Invariants.** One question of a kind is out at a time. After a failure nothing is asked before `retry_at_ms`.
//! An order is never sent without its confirmation, nor without permission.

mod keys;
mod orders;
mod replies;

use super::message::{Command, Message, Request};
use super::model::{Model, Pane};

/// Time between two questions for what a pane shows besides the status.
const PANE_REFRESH_MS: u64 = 2_000;
/// The same for the map: its answer is the largest.
const MAP_REFRESH_MS: u64 = 5_000;
/// The same while the view of the map moves.
const MAP_FOLLOW_MS: u64 = 500;
/// The same for the past: between two answers the dashboard adds what it sees itself.
const HISTORY_REFRESH_MS: u64 = 60_000;
/// First pause after a failure; doubled by each further one.
const RETRY_BASE_MS: u64 = 500;
/// Longest pause: a person waits in front of the screen.
const RETRY_CAP_MS: u64 = 5_000;
/// How long a passing line stays.
const NOTICE_MS: u64 = 8_000;

/// Takes one message in, at `now_ms` since start.
pub fn update(model: &mut Model, now_ms: u64, message: Message) -> Vec<Command> {
    model.now_ms = now_ms.max(model.now_ms);
    let mut commands = Vec::new();
    match message {
        Message::Key(key) => keys::handle_key(model, &key, &mut commands),
        Message::Mouse(mouse) => keys::handle_mouse(model, mouse),
        Message::Resize(columns, rows) => {
            model.size = (columns, rows);
            model.changed = true;
        }
        Message::Tick => {}
        Message::Reply(reply) => replies::handle_reply(model, *reply),
    }
    pass_time(model);
    ask(model, &mut commands);
    commands
}

/// Shows a passing line.
fn notice(model: &mut Model, text: String, bad: bool) {
    model.notice = Some(super::model::Notice { text, bad, until_ms: model.now_ms + NOTICE_MS });
    model.changed = true;
}

/// Pause before the next question after so many failures in a row.
fn retry_delay_ms(failures: u32) -> u64 {
    RETRY_BASE_MS.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(RETRY_CAP_MS)
}

/// Redraws when an age that is shown has moved on, and takes away what has had its time.
fn pass_time(model: &mut Model) {
    let age_s = model.age_s();
    if age_s != model.shown_age_s {
        model.shown_age_s = age_s;
        model.changed = true;
    }
    if model.notice.as_ref().is_some_and(|notice| notice.until_ms <= model.now_ms) {
        model.notice = None;
        model.changed = true;
    }
}

/// What a pane needs besides the status, with the time between two questions.
fn needs(model: &Model) -> Vec<(Request, u64)> {
    // Once per connection: what may be done here does not change while it lasts.
    let mut needs = vec![(Request::Access, u64::MAX)];
    match model.pane {
        Pane::Overview => needs.push((Request::History, HISTORY_REFRESH_MS)),
        Pane::Attempts => needs.push((Request::Attempts, PANE_REFRESH_MS)),
        Pane::DeadLetters => {
            needs.push((Request::DeadLetters(model.dead_query()), PANE_REFRESH_MS));
            if let Some(open) = model.dead.open.as_ref().filter(|open| open.content.is_none()) {
                needs.push((Request::DeadLetter(open.id.clone()), PANE_REFRESH_MS));
            }
        }
        Pane::Map => {
            let part = model.map_part();
            // A view that moves is followed, but not at the pace of a key that is held down.
            let every_ms = if part == model.map.part { MAP_REFRESH_MS } else { MAP_FOLLOW_MS };
            needs.push((Request::Map(part), every_ms));
        }
        Pane::Events => {
            needs.push((
                Request::Outbox {
                    endpoint: model.events.endpoint.clone(),
                    area: model.area,
                    cursor: model.events.page.cursor(),
                },
                PANE_REFRESH_MS,
            ));
            if let Some(open) = &model.events.open {
                needs.push((Request::Story(open.id.clone()), PANE_REFRESH_MS));
            }
        }
        Pane::Log => needs.push((Request::Log, PANE_REFRESH_MS)),
    }
    needs
}

/// Asks what is due. While the appliance does not answer, only the status is asked for, at growing pauses.
fn ask(model: &mut Model, commands: &mut Vec<Command>) {
    if model.now_ms < model.link.retry_at_ms {
        return;
    }
    let mut wanted = vec![(Request::Status, model.settings.refresh_ms)];
    if model.link.failures == 0 && model.frozen_at_ms.is_none() {
        wanted.extend(needs(model));
    }
    for (request, every_ms) in wanted {
        let kind = request.kind();
        let due = model.fresh.get(&kind).is_none_or(|at_ms| model.now_ms >= at_ms.saturating_add(every_ms));
        if due && model.asked.insert(kind) {
            commands.push(Command::Fetch(request));
        }
    }
}

#[cfg(test)]
mod tests;
