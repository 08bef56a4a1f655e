//! Orders to the appliance: what the selection is, and the question that must be answered before one is sent.

use crate::core::text::visible;
use crate::wire::{AccessView, DeadLetterActionView, DeadLetterSelection, Way};

use super::super::keymap::Action;
use super::super::message::{Command, DeadVerb, EndpointVerb, Kind, Request};
use super::super::model::{Confirm, Model};
use super::super::words;
use super::{notice, replies};

/// The dead letters that an order would mean: all that match, or the marked, or the one under the cursor.
fn selection(model: &Model) -> Option<DeadLetterSelection> {
    if let Some(open) = &model.dead.open {
        return Some(DeadLetterSelection { ids: vec![open.id.clone()], ..DeadLetterSelection::default() });
    }
    if model.dead.all {
        return Some(DeadLetterSelection {
            endpoint: model.dead.endpoint.clone(),
            class: model.dead.class,
            bbox: model.area,
            ..DeadLetterSelection::default()
        });
    }
    let ids: Vec<String> = if model.dead.marked.is_empty() {
        model.dead_rows().get(model.dead.page.at).map(|row| row.id.clone()).into_iter().collect()
    } else {
        model.dead.marked.iter().cloned().collect()
    };
    (!ids.is_empty()).then(|| DeadLetterSelection { ids, ..DeadLetterSelection::default() })
}

/// Begins an order; nothing is sent but, for counting, a dry run.
pub(super) fn begin(model: &mut Model, action: Action, commands: &mut Vec<Command>) {
    if model.settings.keymap.acts(action) && !model.may_act() {
        notice(model, read_only_words(model).to_owned(), false);
        return;
    }
    if model.asked.contains(&Kind::Order) {
        notice(model, "the last order has not been answered yet".to_owned(), false);
        return;
    }
    match action {
        Action::Pause => endpoint(model, EndpointVerb::Pause),
        Action::Resume => endpoint(model, EndpointVerb::Resume),
        Action::Probe => endpoint(model, EndpointVerb::Probe),
        Action::Repair => count(model, DeadVerb::Repair, commands),
        Action::Export => export(model, commands),
        Action::Redrive => count(model, DeadVerb::Redrive, commands),
        Action::Discard => count(model, DeadVerb::Discard, commands),
        _ => {}
    }
}

/// Why nothing may be changed, and how it could be.
fn read_only_words(model: &Model) -> &'static str {
    match model.access {
        Some(AccessView { changes: false, way: Way::Token }) => "read-only: this token may change nothing",
        Some(AccessView { changes: false, .. }) => {
            "read-only: changes need the admin's token, or --data-dir on the box itself"
        }
        _ => "read-only: start with --allow-actions to change anything",
    }
}

fn count(model: &mut Model, verb: DeadVerb, commands: &mut Vec<Command>) {
    match selection(model) {
        None => notice(model, "no dead letter is selected".to_owned(), false),
        Some(mut selection) => {
            selection.dry_run = true;
            send(model, Request::Count(verb, Box::new(selection)), commands);
        }
    }
}

fn export(model: &mut Model, commands: &mut Vec<Command>) {
    match selection(model) {
        None => notice(model, "no dead letter is selected".to_owned(), false),
        Some(selection) if selection.ids.is_empty() => {
            send(model, Request::CountExport(Box::new(selection)), commands);
        }
        Some(selection) => {
            let count = selection.ids.len() as u64;
            confirm_export(model, selection, count);
        }
    }
}

/// The question before an export, which changes nothing at the appliance but may be long.
pub(super) fn confirm_export(model: &mut Model, selection: DeadLetterSelection, count: u64) {
    let text = format!("Write {} to a GeoJSON text sequence in this directory?", plural(count));
    replies::confirm(model, Request::Export(Box::new(selection)), text, None);
}

fn endpoint(model: &mut Model, verb: EndpointVerb) {
    let Some(name) = model.endpoints().get(model.endpoint_at).cloned() else { return };
    let shown = visible(&name).into_owned();
    let text = match verb {
        EndpointVerb::Pause => {
            format!("Pause 1 endpoint, {shown}? No attempts are made; its events are kept.")
        }
        EndpointVerb::Resume => format!("Resume 1 endpoint, {shown}?"),
        EndpointVerb::Probe => format!("Probe 1 endpoint, {shown}, now, with one pending event?"),
    };
    replies::confirm(model, Request::Endpoint(verb, name), text, None);
}

fn plural(count: u64) -> String {
    let letters = if count == 1 { "dead letter" } else { "dead letters" };
    format!("{} {letters}", words::count(count))
}

/// The question for a counted order. Dropping more than one thing for good takes typing their number: no key that was
/// meant for something else can do that.
pub(super) fn confirm_dead(
    verb: DeadVerb,
    mut selection: DeadLetterSelection,
    counted: &DeadLetterActionView,
) -> Confirm {
    selection.dry_run = false;
    let what = match selection.ids.as_slice() {
        [id] => format!("{} ({})", plural(counted.matched), visible(id)),
        _ => plural(counted.matched),
    };
    let able = counted.matched - counted.skipped.min(counted.matched);
    let mut text = match verb {
        DeadVerb::Redrive => format!("Redrive {what}? They keep their keys and bytes."),
        DeadVerb::Discard => format!("Discard {what} for good?"),
        DeadVerb::Repair if able == 1 => {
            format!("Repair {what} as 1 new event that replaces it?{}", changes(counted))
        }
        DeadVerb::Repair => format!("Repair {what} as {} new events that replace them?", words::count(able)),
    };
    if counted.skipped > 0 {
        let why = counted.skipped_reason.as_deref().unwrap_or("not possible");
        text.push_str(&format!(" {} will be skipped: {}.", words::count(counted.skipped), visible(why)));
    }
    let needs = (verb == DeadVerb::Discard && counted.matched > 1).then(|| counted.matched.to_string());
    Confirm { request: Request::Dead(verb, Box::new(selection)), text, needs, typed: String::new() }
}

/// What a repair would do to the geometry, if it is one.
fn changes(counted: &DeadLetterActionView) -> String {
    let [letter] = counted.repaired.as_slice() else { return String::new() };
    let mut text = format!(" {}", letter.changes.join(", "));
    if letter.type_before != letter.type_after {
        text.push_str(&format!(" ({} to {})", letter.type_before, letter.type_after));
    }
    format!("{}.", visible(&text))
}

/// Why an order would come to nothing.
pub(super) fn nothing_words(verb: DeadVerb, counted: &DeadLetterActionView) -> String {
    let why = counted.skipped_reason.as_deref().unwrap_or("not possible");
    format!("nothing to {}: {}", verb_words(verb).0, visible(why))
}

/// A verb and its past.
fn verb_words(verb: DeadVerb) -> (&'static str, &'static str) {
    match verb {
        DeadVerb::Redrive => ("redrive", "redriven"),
        DeadVerb::Discard => ("discard", "discarded"),
        DeadVerb::Repair => ("repair", "repaired"),
    }
}

/// What came of it.
pub(super) fn done_words(verb: DeadVerb, done: &DeadLetterActionView) -> String {
    let mut text = format!("{} {} of {}", verb_words(verb).1, words::count(done.done), plural(done.matched));
    if done.skipped > 0 {
        let why = done.skipped_reason.as_deref().unwrap_or("not possible");
        text.push_str(&format!("; {} skipped: {}", words::count(done.skipped), visible(why)));
    }
    text
}

/// Sends an order or a count.
pub(super) fn send(model: &mut Model, request: Request, commands: &mut Vec<Command>) {
    if model.asked.insert(request.kind()) {
        commands.push(Command::Fetch(request));
    }
}
