//! What a person's keys and mouse do.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};

use super::super::filter::{FILTER_CHARS_MAX, Filter};
use super::super::keymap::{Action, Keymap};
use super::super::message::{Command, Kind};
use super::super::model::{CLASSES, Layer, Model, Opened, Page, Pane, SortBy};
use super::super::view;
use super::super::viewport::Viewport;
use super::{notice, orders, replies};

/// Zoom of one key or wheel step.
const ZOOM: f64 = 1.5;
/// Lines of one turn of the wheel.
const WHEEL_ROWS: isize = 3;

pub(super) fn handle_key(model: &mut Model, key: &KeyEvent, commands: &mut Vec<Command>) {
    if key.kind == KeyEventKind::Release {
        return;
    }
    model.changed = true;
    // Ctrl-C leaves from anywhere, also out of a question or a half-typed filter, unless a key file took it.
    let quits = key.modifiers.contains(crossterm::event::KeyModifiers::CONTROL)
        && model.settings.keymap.action(model.pane, key) == Some(Action::Quit);
    if quits {
        commands.push(Command::Quit);
    } else if model.confirm.is_some() {
        answer_question(model, key, commands);
    } else if model.typing {
        type_filter(model, key);
    } else if let Some(action) = model.settings.keymap.action(model.pane, key) {
        act(model, action, commands);
    } else if model.help.is_some() {
        model.help = None;
    }
}

fn answer_question(model: &mut Model, key: &KeyEvent, commands: &mut Vec<Command>) {
    let Some(mut confirm) = model.confirm.take() else { return };
    match (&confirm.needs, key.code) {
        (None, KeyCode::Char('y')) => orders::send(model, confirm.request, commands),
        (Some(needs), KeyCode::Enter) if confirm.typed == *needs => {
            orders::send(model, confirm.request, commands);
        }
        (Some(_), KeyCode::Char(c)) if c.is_ascii_digit() && confirm.typed.len() < 20 => {
            confirm.typed.push(c);
            model.confirm = Some(confirm);
        }
        (Some(_), KeyCode::Backspace) => {
            confirm.typed.pop();
            model.confirm = Some(confirm);
        }
        _ => notice(model, "nothing was changed".to_owned(), false),
    }
}

fn type_filter(model: &mut Model, key: &KeyEvent) {
    let mut text = model.filter.text().to_owned();
    match key.code {
        KeyCode::Enter => model.typing = false,
        KeyCode::Esc => {
            model.typing = false;
            text.clear();
        }
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(c) if !c.is_control() && text.chars().count() < FILTER_CHARS_MAX => text.push(c),
        _ => {}
    }
    set_filter(model, text);
}

fn set_filter(model: &mut Model, text: String) {
    if text != model.filter.text() {
        model.filter = Filter::new(text);
        model.dead.page.at = 0;
        model.events.page.at = 0;
        model.log_back = 0;
        model.endpoint_at = 0;
    }
}

fn act(model: &mut Model, action: Action, commands: &mut Vec<Command>) {
    match action {
        Action::Quit => commands.push(Command::Quit),
        Action::Help => model.help = if model.help.is_some() { None } else { Some(0) },
        Action::Filter => model.typing = true,
        Action::Freeze => freeze(model),
        Action::Refresh => {
            model.fresh.clear();
            model.link.retry_at_ms = 0;
            commands.push(Command::Repaint);
        }
        Action::Show(pane) => show(model, pane),
        Action::NextPane => show(model, model.pane.step(1)),
        Action::PreviousPane => show(model, model.pane.step(-1)),
        Action::Left if model.pane == Pane::Map => model.map.view = model.map.view.pan(-1.0, 0.0),
        Action::Right if model.pane == Pane::Map => model.map.view = model.map.view.pan(1.0, 0.0),
        Action::Left => show(model, model.pane.step(-1)),
        Action::Right => show(model, model.pane.step(1)),
        Action::Up => step(model, -1),
        Action::Down => step(model, 1),
        Action::PageUp => step(model, -(model.list_height() as isize)),
        Action::PageDown => step(model, model.list_height() as isize),
        Action::Top => step(model, isize::MIN / 2),
        Action::Bottom => step(model, isize::MAX / 2),
        Action::Open => open(model),
        Action::Back => back(model),
        Action::Span => model.span = model.span.next(),
        Action::Sort => sort(model),
        Action::Reverse => model.dead.reverse = !model.dead.reverse,
        Action::Mark => mark(model),
        Action::All => all(model),
        Action::Class => next_class(model),
        Action::Endpoint => next_endpoint(model),
        Action::ZoomIn => model.map.view = model.map.view.zoom(ZOOM),
        Action::ZoomOut => model.map.view = model.map.view.zoom(1.0 / ZOOM),
        Action::FitWorld => model.map.view = Viewport::default(),
        Action::FitData => replies::fit_data(model),
        Action::Layer => {
            model.map.layer = match model.map.layer {
                Layer::Both => Layer::Pending,
                Layer::Pending => Layer::Dead,
                Layer::Dead => Layer::Both,
            };
        }
        Action::Area => toggle_area(model),
        Action::Redrive
        | Action::Discard
        | Action::Repair
        | Action::Export
        | Action::Pause
        | Action::Resume
        | Action::Probe => orders::begin(model, action, commands),
    }
}

fn show(model: &mut Model, pane: Pane) {
    model.help = None;
    model.pane = pane;
}

fn freeze(model: &mut Model) {
    if model.frozen_at_ms.take().is_some() {
        model.fresh.clear();
    } else {
        // Frozen at what is shown, so its age goes on counting from there.
        model.frozen_at_ms = Some(if model.status.is_some() { model.status_at_ms } else { model.now_ms });
    }
}

fn step(model: &mut Model, rows: isize) {
    if let Some(scroll) = &mut model.help {
        *scroll = moved(*scroll, rows, Keymap::default().all().len());
        return;
    }
    match model.pane {
        Pane::Overview => {
            model.endpoint_at = moved(model.endpoint_at, rows, view::overview_rows(model));
        }
        Pane::DeadLetters => match &mut model.dead.open {
            Some(open) => open.scroll = moved(open.scroll, rows, view::DETAIL_LINES_MAX),
            None => step_dead(model, rows),
        },
        Pane::Events => match &mut model.events.open {
            Some(open) => open.scroll = moved(open.scroll, rows, view::DETAIL_LINES_MAX),
            None => step_events(model, rows),
        },
        Pane::Map => model.map.view = model.map.view.pan(0.0, -(rows.signum() as f64)),
        Pane::Log => model.log_back = moved(model.log_back, -rows, model.log_rows().len()),
        Pane::Attempts => {}
    }
}

/// `at` moved by `rows` within `0..len`.
fn moved(at: usize, rows: isize, len: usize) -> usize {
    at.saturating_add_signed(rows).min(len.saturating_sub(1))
}

fn step_events(model: &mut Model, rows: isize) {
    let shown = model.event_rows().len();
    if move_in_page(&mut model.events.page, rows, shown) == Moved::ToOtherPage {
        ask_again(model, Kind::Outbox);
    }
}

fn step_dead(model: &mut Model, rows: isize) {
    let shown = model.dead_rows().len();
    if move_in_page(&mut model.dead.page, rows, shown) == Moved::ToOtherPage {
        ask_again(model, Kind::DeadLetters);
    }
}

/// The question has changed: ask it now, even if the old one is still out (its answer will be dropped).
fn ask_again(model: &mut Model, kind: Kind) {
    model.fresh.remove(&kind);
    model.asked.remove(&kind);
}

/// What a movement came to.
#[derive(PartialEq)]
enum Moved {
    InPage,
    ToOtherPage,
}

/// Moves the cursor; a page step beyond an end turns to the neighbouring page, if there is one.
fn move_in_page<T>(page: &mut Page<T>, rows: isize, shown: usize) -> Moved {
    let last = shown.saturating_sub(1);
    let far = rows.unsigned_abs() > 1 && rows.unsigned_abs() < usize::MAX / 4;
    if far && rows > 0 && page.at >= last && page.next.is_some() {
        let rows = page.rows.len() as u64;
        page.before += rows;
        page.sizes.push(rows);
        page.trail.push(page.next.take());
        (page.rows, page.at, page.loaded) = (Vec::new(), 0, false);
        return Moved::ToOtherPage;
    }
    if far && rows < 0 && page.at == 0 && page.trail.len() > 1 {
        page.trail.pop();
        page.before = page.before.saturating_sub(page.sizes.pop().unwrap_or(0));
        (page.rows, page.at, page.loaded) = (Vec::new(), 0, false);
        return Moved::ToOtherPage;
    }
    page.at = moved(page.at, rows, shown);
    Moved::InPage
}

fn open(model: &mut Model) {
    match model.pane {
        Pane::DeadLetters if model.dead.open.is_none() => {
            let id = model.dead_rows().get(model.dead.page.at).map(|row| row.id.clone());
            model.dead.open = id.map(Opened::new);
            ask_again(model, Kind::DeadLetter);
        }
        Pane::Events if model.events.open.is_none() => {
            let id = model.event_rows().get(model.events.page.at).map(|row| row.event.id.clone());
            model.events.open = id.map(Opened::new);
            ask_again(model, Kind::Story);
        }
        _ => {}
    }
}

fn back(model: &mut Model) {
    if model.help.take().is_some() {
        return;
    }
    match model.pane {
        Pane::DeadLetters if model.dead.open.take().is_some() => return,
        Pane::DeadLetters if model.dead.all || !model.dead.marked.is_empty() => {
            model.dead.all = false;
            model.dead.marked.clear();
            return;
        }
        Pane::Events if model.events.open.take().is_some() => return,
        _ => {}
    }
    if model.filter.is_empty() {
        model.notice = None;
    } else {
        set_filter(model, String::new());
    }
}

fn sort(model: &mut Model) {
    let at = SortBy::ALL.iter().position(|by| *by == model.dead.sort).unwrap_or(0);
    model.dead.sort = SortBy::ALL[(at + 1) % SortBy::ALL.len()];
}

fn mark(model: &mut Model) {
    let id = model.dead_rows().get(model.dead.page.at).map(|row| row.id.clone());
    if let Some(id) = id {
        if !model.dead.marked.remove(&id) {
            model.dead.marked.insert(id);
        }
        model.dead.all = false;
        step_dead(model, 1);
    }
}

/// Everything that the appliance would list; with a text filter, which only this page knows, the rows that it shows.
fn all(model: &mut Model) {
    if model.filter.is_empty() {
        model.dead.all = !model.dead.all;
        return;
    }
    let shown: Vec<String> = model.dead_rows().iter().map(|row| row.id.clone()).collect();
    if shown.iter().all(|id| model.dead.marked.contains(id)) {
        model.dead.marked.retain(|id| !shown.contains(id));
    } else {
        model.dead.marked.extend(shown);
    }
}

/// The list is another one now: back to its first page, and ask.
fn reload_dead(model: &mut Model) {
    model.dead.page = Page::default();
    model.dead.open = None;
    model.dead.all = false;
    // Marks would be invisible behind the new filter, and an order would still mean them.
    model.dead.marked.clear();
    ask_again(model, Kind::DeadLetters);
}

fn next_class(model: &mut Model) {
    let at = model.dead.class.and_then(|class| CLASSES.iter().position(|known| *known == class));
    model.dead.class = CLASSES.get(at.map_or(0, |at| at + 1)).copied();
    reload_dead(model);
}

fn following(names: &[String], now: Option<&String>) -> Option<String> {
    let at = now.and_then(|now| names.iter().position(|name| name == now));
    names.get(at.map_or(0, |at| at + 1)).cloned()
}

fn next_endpoint(model: &mut Model) {
    let names = model.endpoints();
    match model.pane {
        Pane::Attempts => model.attempts_endpoint = following(&names, model.attempts_endpoint.as_ref()),
        Pane::Events => {
            model.events.endpoint = following(&names, model.events.endpoint.as_ref());
            model.events.page = Page::default();
            ask_again(model, Kind::Outbox);
        }
        _ => {
            model.dead.endpoint = following(&names, model.dead.endpoint.as_ref());
            reload_dead(model);
        }
    }
}

fn set_area(model: &mut Model, area: Option<[f64; 4]>) {
    model.area = area;
    model.events.page = Page::default();
    ask_again(model, Kind::Outbox);
    reload_dead(model);
    let text = match area {
        Some(area) => format!("area filter {} (b clears it)", view::area_words(&area)),
        None => "area filter cleared".to_owned(),
    };
    notice(model, text, false);
}

fn toggle_area(model: &mut Model) {
    if model.area.is_some() {
        set_area(model, None);
    } else if model.pane == Pane::Map {
        set_area(model, Some(model.map.view.area(view::map_cells(model.size))));
    } else {
        notice(model, "choose an area on the map first (4, then b)".to_owned(), false);
    }
}

pub(super) fn handle_mouse(model: &mut Model, mouse: MouseEvent) {
    if model.confirm.is_some() {
        return;
    }
    let at = (mouse.column, mouse.row);
    match mouse.kind {
        MouseEventKind::ScrollUp if model.pane == Pane::Map => model.map.view = model.map.view.zoom(ZOOM),
        MouseEventKind::ScrollDown if model.pane == Pane::Map => {
            model.map.view = model.map.view.zoom(1.0 / ZOOM);
        }
        MouseEventKind::ScrollUp => step(model, -WHEEL_ROWS),
        MouseEventKind::ScrollDown => step(model, WHEEL_ROWS),
        MouseEventKind::Down(MouseButton::Left) if mouse.row == view::TABS_ROW => {
            if let Some(pane) = view::tab_at(model, mouse.column) {
                show(model, pane);
            }
        }
        MouseEventKind::Down(MouseButton::Left) if model.pane == Pane::Map => {
            model.map.drag = view::map_cell_at(model.size, at).map(|cell| (cell, cell));
        }
        MouseEventKind::Drag(MouseButton::Left) => {
            if let (Some(drag), Some(cell)) = (&mut model.map.drag, view::map_cell_at(model.size, at)) {
                drag.1 = cell;
            }
        }
        MouseEventKind::Up(MouseButton::Left) => {
            if let Some((one, other)) = model.map.drag.take().filter(|(one, other)| one != other) {
                let area = model.map.view.area_of(view::map_cells(model.size), one, other);
                set_area(model, Some(area));
            }
        }
        _ => return,
    }
    model.changed = true;
}
