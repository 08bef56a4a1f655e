//! What the appliance's answers, and its silence, do to the model.

use crate::core::history::Sample;
use crate::core::text::visible;

use super::super::message::{Answer, FetchError, Kind, Reply, Request};
use super::super::model::{Confirm, Model, Page};
use super::super::viewport::Viewport;
use super::{notice, orders, retry_delay_ms};

pub(super) fn handle_reply(model: &mut Model, reply: Reply) {
    let kind = reply.request.kind();
    model.asked.remove(&kind);
    match reply.answer {
        Ok(answer) => {
            connected(model);
            model.fresh.insert(kind, model.now_ms);
            handle_answer(model, reply.request, answer);
        }
        Err(FetchError::Unreachable(fault)) => disconnected(model, &reply.request, &fault),
        // Without a status there is nothing to show: that is no passing line.
        Err(FetchError::Refused(fault)) if kind == Kind::Status => {
            disconnected(model, &reply.request, &fault);
            model.link.refused = true;
        }
        Err(FetchError::Refused(fault)) => {
            // While it refuses the status, a no to another question is no news.
            if !model.link.refused {
                connected(model);
            }
            model.fresh.insert(kind, model.now_ms);
            refused(model, &reply.request, fault);
        }
    }
}

fn connected(model: &mut Model) {
    if model.link.failures > 0 {
        model.changed = true;
        // What was on the screen is old: ask everything anew.
        model.fresh.clear();
    }
    model.link.failures = 0;
    model.link.fault = None;
    model.link.refused = false;
    model.link.retry_at_ms = 0;
    model.link.answered_at_ms = Some(model.now_ms);
}

fn disconnected(model: &mut Model, request: &Request, fault: &str) {
    model.link.failures = model.link.failures.saturating_add(1);
    model.link.retry_at_ms = model.now_ms + retry_delay_ms(model.link.failures);
    model.link.fault = Some(fault.to_owned());
    model.link.refused = false;
    model.changed = true;
    if request.kind() == Kind::Order {
        // The order may or may not have arrived; saying "failed" would be a guess.
        notice(model, format!("no answer to the order, look whether it was done: {fault}"), true);
    }
}

fn refused(model: &mut Model, request: &Request, fault: String) {
    match request {
        Request::DeadLetter(id) => {
            if let Some(open) = model.dead.open.as_mut().filter(|open| open.id == *id) {
                open.fault = Some(fault);
                model.changed = true;
            }
        }
        Request::Story(id) => {
            if let Some(open) = model.events.open.as_mut().filter(|open| open.id == *id) {
                open.fault = Some(fault);
                model.changed = true;
            }
        }
        // An older appliance knows neither; the dashboard does without.
        Request::Access | Request::History => {}
        _ => notice(model, fault, true),
    }
}

fn handle_answer(model: &mut Model, request: Request, answer: Answer) {
    if let Answer::Status(status) = answer {
        handle_status(model, status);
        return;
    }
    if request.kind() == Kind::Order {
        handle_order(model, request, answer);
        return;
    }
    if model.frozen_at_ms.is_some() {
        return;
    }
    model.changed = true;
    match (request, answer) {
        (Request::DeadLetters(query), Answer::DeadLetters(found)) if query == model.dead_query() => {
            let under = model.dead_rows().get(model.dead.page.at).map(|row| row.id.clone());
            model.dead.total = found.total;
            fill(&mut model.dead.page, found.entries, found.cursor);
            let rows = model.dead_rows();
            let ids = rows.iter().map(|row| row.id.as_str());
            model.dead.page.at = same_row(under.as_deref(), ids, model.dead.page.at);
        }
        (Request::DeadLetter(id), Answer::DeadLetter(content)) => {
            if let Some(open) = model.dead.open.as_mut().filter(|open| open.id == id) {
                open.content = Some(content);
            }
        }
        (Request::Outbox { endpoint, area, cursor }, Answer::Outbox(found))
            if endpoint == model.events.endpoint
                && area == model.area
                && cursor == model.events.page.cursor() =>
        {
            let under = model.event_rows().get(model.events.page.at).map(|row| row.event.id.clone());
            fill(&mut model.events.page, found.entries, found.cursor);
            let rows = model.event_rows();
            let ids = rows.iter().map(|row| row.event.id.as_str());
            model.events.page.at = same_row(under.as_deref(), ids, model.events.page.at);
        }
        (Request::Story(id), Answer::Story(content)) => {
            if let Some(open) = model.events.open.as_mut().filter(|open| open.id == id) {
                open.content = Some(content);
                open.fault = None;
            }
        }
        (Request::Access, Answer::Access(access)) => model.access = Some(access),
        (Request::History, Answer::History(view)) => model.history.merge(model.now_ms, &view.spans),
        (Request::Attempts, Answer::Attempts(view)) => model.set_recent(view),
        (Request::Map(part), Answer::Map(view)) => {
            (model.map.data, model.map.part) = (view, part);
            if !model.map.fitted && !model.map.data.cells.is_empty() {
                model.map.fitted = true;
                fit_data(model);
            }
        }
        (Request::Log, Answer::Log(view)) => model.log = view,
        // A question that is no longer asked: the next one is on its way.
        _ => {}
    }
}

/// The view that shows everything which has a place, also what lies outside the part that is known in detail.
pub(super) fn fit_data(model: &mut Model) {
    let screen = super::super::view::map_cells(model.size);
    let data = &model.map.data;
    let corners = data.extent.map(|[west, south, east, north]| [(west, south), (east, north)]);
    let cells = data.cells.iter().map(|cell| (cell.lon, cell.lat));
    model.map.view = Viewport::fit(cells.chain(corners.into_iter().flatten()), screen);
}

/// Where the row that was under the cursor is now. A list that moves on by itself must not slide another row under
/// a finger that is about to press `r`.
fn same_row<'a>(under: Option<&str>, ids: impl ExactSizeIterator<Item = &'a str>, at: usize) -> usize {
    let last = ids.len().saturating_sub(1);
    let mut ids = ids;
    under.and_then(|under| ids.position(|id| id == under)).unwrap_or(at.min(last))
}

fn fill<T>(page: &mut Page<T>, rows: Vec<T>, next: Option<String>) {
    page.rows = rows;
    page.next = next;
    page.loaded = true;
}

fn handle_status(model: &mut Model, status: Box<crate::wire::StatusView>) {
    // Frozen is frozen, the sparklines too; what they miss is asked for afterwards.
    if model.frozen_at_ms.is_some() {
        return;
    }
    let oldest_s = status.endpoints.iter().map(|one| one.oldest_pending_age_s).max().unwrap_or(0);
    model.history.record(model.now_ms, Sample { pending: status.ledger.pending, oldest_s });
    model.endpoint_at = model.endpoint_at.min(status.endpoints.len().saturating_sub(1));
    model.status_at_ms = model.now_ms;
    model.status = Some(status);
    model.changed = true;
}

fn handle_order(model: &mut Model, request: Request, answer: Answer) {
    match (request, answer) {
        (Request::Count(verb, selection), Answer::Dead(counted)) => {
            if counted.matched == 0 {
                notice(model, "nothing matches the selection".to_owned(), false);
            } else if counted.matched == counted.skipped {
                notice(model, orders::nothing_words(verb, &counted), true);
            } else {
                model.confirm = Some(orders::confirm_dead(verb, *selection, &counted));
                model.changed = true;
            }
        }
        (Request::CountExport(selection), Answer::Counted(counted)) => {
            if counted.matched == 0 {
                notice(model, "nothing matches the selection".to_owned(), false);
            } else {
                orders::confirm_export(model, *selection, counted.matched);
            }
        }
        (Request::Dead(verb, _), Answer::Dead(done)) => {
            model.dead.marked.clear();
            model.dead.all = false;
            model.dead.open = None;
            ask_again(model);
            notice(model, orders::done_words(verb, &done), done.done == 0);
        }
        (Request::Export(_), Answer::Exported { file, count }) => {
            notice(model, format!("{count} dead letters written to {}", visible(&file)), false);
        }
        (Request::Endpoint(..), Answer::Endpoint(view)) => {
            ask_again(model);
            let state = super::super::view::state_word(view.state);
            notice(model, format!("{} is now {state}", visible(&view.name)), false);
        }
        _ => {}
    }
}

/// What is shown has been changed by an order: do not wait for the next turn.
fn ask_again(model: &mut Model) {
    model.fresh.clear();
}

/// Puts up a question.
pub(super) fn confirm(model: &mut Model, request: Request, text: String, needs: Option<String>) {
    model.confirm = Some(Confirm { request, text, needs, typed: String::new() });
    model.changed = true;
}
