//! What a person's keys, time and the appliance's answers do to the model, without a terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::demo::{Demo, Scene};
use super::super::filter::Filter;
use super::super::headline::{Mood, headline};
use super::super::keymap::Keymap;
use super::super::message::{
    Answer, Command, DeadQuery, DeadVerb, FetchError, Kind, Message, Reply, Request,
};
use super::super::model::{Model, Settings};
use super::super::theme::{Theme, UNICODE};
use super::update;
use crate::core::history::Span;
use crate::wire::{AccessView, DeadLetterActionView, DeadLetterCount, DeadLetterPage, MapView, Way};

fn model(allow_actions: bool) -> Model {
    let settings = Settings {
        allow_actions,
        refresh_ms: 1_000,
        theme: Theme::colour(),
        glyphs: UNICODE,
        keymap: Keymap::default(),
        demo: false,
    };
    let mut model = Model::new(settings, (80, 24));
    reply(&mut model, Request::Status, Ok(status()));
    // As after a start: asked once, not yet answered.
    model.asked.clear();
    model.asked.insert(Kind::Access);
    model.fresh.insert(Kind::History, 0);
    model
}

fn status() -> Answer {
    Answer::Status(Box::new(Demo::of_scene(Scene::Held).status(1_300)))
}

fn reply(model: &mut Model, request: Request, answer: Result<Answer, FetchError>) -> Vec<Command> {
    let now_ms = model.now_ms;
    update(model, now_ms, Message::Reply(Box::new(Reply { request, answer })))
}

fn key(model: &mut Model, code: KeyCode) -> Vec<Command> {
    let now_ms = model.now_ms;
    update(model, now_ms, Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn press(model: &mut Model, keys: &str) -> Vec<Command> {
    keys.chars().flat_map(|c| key(model, KeyCode::Char(c))).collect()
}

/// The dead letters that the model asks for, answered from a demo of so many.
fn load_dead(model: &mut Model, demo_dead: u64) {
    let demo = Demo::of_scene(Scene::Held).with_dead(demo_dead);
    let query = model.dead_query();
    let page = demo.dead_page(&query, 0);
    reply(model, Request::DeadLetters(query), Ok(Answer::DeadLetters(page)));
}

fn fetched(commands: &[Command]) -> Vec<Kind> {
    commands
        .iter()
        .filter_map(|command| match command {
            Command::Fetch(request) => Some(request.kind()),
            _ => None,
        })
        .collect()
}

#[test]
fn the_status_is_asked_for_once_a_refresh_and_a_pane_for_its_own() {
    let mut model = model(false);
    assert!(fetched(&update(&mut model, 999, Message::Tick)).is_empty());
    assert_eq!(fetched(&update(&mut model, 1_000, Message::Tick)), [Kind::Status]);
    assert!(fetched(&update(&mut model, 1_900, Message::Tick)).is_empty(), "one of a kind at a time");
    assert_eq!(fetched(&press(&mut model, "3")), [Kind::DeadLetters]);
    assert_eq!(fetched(&press(&mut model, "4")), [Kind::Map]);
}

#[test]
fn a_lost_appliance_is_asked_again_at_growing_pauses_and_its_age_is_told() {
    let mut model = model(false);
    let mut asked_at = Vec::new();
    for now_ms in (0..20_000).step_by(250) {
        if !fetched(&update(&mut model, now_ms, Message::Tick)).is_empty() {
            asked_at.push(now_ms);
            reply(&mut model, Request::Status, Err(FetchError::Unreachable("refused".to_owned())));
        }
    }
    assert_eq!(asked_at, [1_000, 1_500, 2_500, 4_500, 8_500, 13_500, 18_500]);
    assert_eq!(model.age_s(), Some(19));
    reply(&mut model, Request::Status, Ok(status()));
    assert_eq!((model.age_s(), model.link.failures), (None, 0));
}

#[test]
fn a_shown_age_moves_on_by_itself() {
    let mut model = model(false);
    reply(&mut model, Request::Status, Err(FetchError::Unreachable("refused".to_owned())));
    model.changed = false;
    update(&mut model, 100, Message::Tick);
    assert!(!model.changed, "nothing to see yet");
    update(&mut model, 1_100, Message::Tick);
    assert!(model.changed);
}

#[test]
fn frozen_shows_the_past_and_says_so() {
    let mut model = model(false);
    press(&mut model, "f");
    let before = model.status.clone();
    model.now_ms = 5_000;
    reply(
        &mut model,
        Request::Status,
        Ok(Answer::Status(Box::new(Demo::of_scene(Scene::Healthy).status(9)))),
    );
    assert_eq!(model.status, before);
    assert_eq!(model.history.columns(Span::Minutes, 300).iter().flatten().count(), 1, "sparklines too");
    assert_eq!(model.age_s(), Some(5));
    let commands = press(&mut model, "f");
    assert_eq!(model.age_s(), Some(5), "until the next answer");
    assert_eq!(fetched(&commands), [Kind::Status, Kind::History], "what was missed is asked for");
}

#[test]
fn without_permission_no_order_leaves() {
    let mut model = model(false);
    press(&mut model, "3");
    load_dead(&mut model, 10);
    for order in ["r", "D", "R"] {
        assert!(fetched(&press(&mut model, order)).is_empty());
        assert!(model.confirm.is_none());
        assert!(model.notice.as_ref().unwrap().text.contains("--allow-actions"));
    }
}

#[test]
fn the_appliance_says_what_may_be_done_and_the_dashboard_keeps_to_it() {
    for (flag, way, changes, may) in [
        (false, Way::Socket, true, false),
        (true, Way::Socket, true, true),
        (false, Way::Token, true, true),
        (true, Way::Token, false, false),
        (true, Way::Loopback, false, false),
    ] {
        let mut model = model(flag);
        reply(&mut model, Request::Access, Ok(Answer::Access(AccessView { way, changes })));
        press(&mut model, "p");
        assert_eq!((model.may_act(), model.confirm.is_some()), (may, may), "{flag} {way:?} {changes}");
        let words = model.notice.as_ref().map(|notice| notice.text.as_str());
        assert_eq!(words.is_some_and(|text| text.starts_with("read-only")), !may);
    }
    let mut model = model(true);
    let refused = Err(FetchError::Refused("no such path".to_owned()));
    reply(&mut model, Request::Access, refused);
    assert!(model.may_act() && model.notice.is_none(), "an older appliance: its own check decides");
}

#[test]
fn a_refused_status_is_told_in_the_headline_and_not_called_silence() {
    let mut model = model(false);
    model.status = None;
    let no = || Err(FetchError::Refused("send the admins' token".to_owned()));
    reply(&mut model, Request::Status, no());
    reply(&mut model, Request::Access, no());
    let (mood, words) = headline(&model);
    assert_eq!((mood, words.as_str()), (Mood::Bad, "the appliance refuses to tell: send the admins' token"));
    assert!(model.notice.is_none() && model.link.failures == 1);
    reply(&mut model, Request::Status, Ok(status()));
    assert!(!model.link.refused && model.age_s().is_none());
}

#[test]
fn an_export_of_everything_asks_with_its_true_count() {
    let mut model = model(false);
    press(&mut model, "3");
    load_dead(&mut model, 100_000);
    let counting = press(&mut model, "cax");
    let Some(Command::Fetch(Request::CountExport(selection))) = counting.last().cloned() else {
        panic!("{counting:?}")
    };
    assert!(selection.ids.is_empty() && selection.class.is_some());
    reply(
        &mut model,
        Request::CountExport(selection),
        Ok(Answer::Counted(DeadLetterCount { matched: 14_987 })),
    );
    assert!(model.confirm.as_ref().unwrap().text.contains("Write 14 987 dead letters"));
    let sent = press(&mut model, "y");
    assert!(matches!(&sent[..], [Command::Fetch(Request::Export(_))]));
}

#[test]
fn all_with_a_filter_means_what_the_filter_shows() {
    let mut model = model(true);
    press(&mut model, "3");
    load_dead(&mut model, 500);
    model.filter = Filter::new("zone is unknown".to_owned());
    let shown = model.dead_rows().len();
    assert!(shown > 0 && shown < 500);
    press(&mut model, "a");
    assert_eq!((model.dead.marked.len(), model.dead.all), (shown, false));
    press(&mut model, "a");
    assert!(model.dead.marked.is_empty(), "again: not any more");
}

#[test]
fn the_map_follows_its_view_but_not_at_the_pace_of_a_held_key() {
    let mut model = model(false);
    let first = press(&mut model, "4");
    let Some(Command::Fetch(Request::Map(None))) =
        first.iter().find(|command| matches!(command, Command::Fetch(Request::Map(_))))
    else {
        panic!("the whole world first: {first:?}")
    };
    reply(&mut model, Request::Map(None), Ok(Answer::Map(MapView::default())));
    let held: Vec<Command> = (0..40).flat_map(|_| press(&mut model, "+")).collect();
    assert!(fetched(&held).is_empty(), "{held:?}");
    let later = update(&mut model, 600, Message::Tick);
    assert!(matches!(&later[..], [Command::Fetch(Request::Map(Some(_)))]), "{later:?}");
}

#[test]
fn an_order_is_counted_asked_and_only_then_sent() {
    let mut model = model(true);
    press(&mut model, "3");
    load_dead(&mut model, 10);
    let counting = press(&mut model, "  r");
    let Some(Command::Fetch(Request::Count(DeadVerb::Redrive, selection))) = counting.last() else {
        panic!("a dry run first: {counting:?}")
    };
    assert!(selection.dry_run);
    assert_eq!(selection.ids.len(), 2);
    let counted = DeadLetterActionView { matched: 2, dry_run: true, ..DeadLetterActionView::default() };
    let request = Request::Count(DeadVerb::Redrive, selection.clone());
    assert!(fetched(&reply(&mut model, request.clone(), Ok(Answer::Dead(counted.clone())))).is_empty());
    assert!(model.confirm.as_ref().unwrap().text.contains("Redrive 2 dead letters"));
    assert!(fetched(&press(&mut model, "n")).is_empty(), "anything but y is no");
    reply(&mut model, request, Ok(Answer::Dead(counted)));
    let sent = press(&mut model, "y");
    assert!(
        matches!(&sent[..], [Command::Fetch(Request::Dead(DeadVerb::Redrive, selection))] if !selection.dry_run)
    );
}

#[test]
fn discarding_many_takes_their_number() {
    let mut model = model(true);
    press(&mut model, "3");
    load_dead(&mut model, 1_000);
    let counting = press(&mut model, "aD");
    let Some(Command::Fetch(Request::Count(verb, selection))) = counting.last().cloned() else {
        panic!("{counting:?}")
    };
    assert!(selection.ids.is_empty(), "everything that matches, not what is on the page");
    let counted = DeadLetterActionView { matched: 1_000, ..DeadLetterActionView::default() };
    reply(&mut model, Request::Count(verb, selection), Ok(Answer::Dead(counted)));
    assert!(press(&mut model, "y").is_empty());
    assert!(model.confirm.is_none(), "y alone is not enough, and closes the question");
    let counting = press(&mut model, "D");
    let Some(Command::Fetch(Request::Count(verb, selection))) = counting.last().cloned() else {
        panic!("{counting:?}")
    };
    let counted = DeadLetterActionView { matched: 1_000, ..DeadLetterActionView::default() };
    reply(&mut model, Request::Count(verb, selection), Ok(Answer::Dead(counted)));
    press(&mut model, "100");
    assert!(model.confirm.is_some());
    press(&mut model, "0");
    let sent = key(&mut model, KeyCode::Enter);
    assert!(matches!(&sent[..], [Command::Fetch(Request::Dead(DeadVerb::Discard, _))]));
}

#[test]
fn an_order_without_an_answer_is_not_called_failed() {
    let mut model = model(true);
    let order = Request::Dead(DeadVerb::Redrive, Box::default());
    reply(&mut model, order, Err(FetchError::Unreachable("reset".to_owned())));
    assert!(model.notice.as_ref().unwrap().text.contains("look whether it was done"));
}

#[test]
fn the_cursor_stays_on_its_dead_letter_while_the_list_moves() {
    let mut model = model(true);
    press(&mut model, "3");
    load_dead(&mut model, 50);
    press(&mut model, "jjj");
    let under = model.dead_rows()[model.dead.page.at].id.clone();
    let query = model.dead_query();
    let mut page = Demo::of_scene(Scene::Held).with_dead(60).dead_page(&query, 0);
    page.entries.remove(0);
    reply(&mut model, Request::DeadLetters(query), Ok(Answer::DeadLetters(page)));
    assert_eq!(model.dead_rows()[model.dead.page.at].id, under);
}

#[test]
fn pages_are_turned_over_a_hundred_thousand_and_back() {
    let mut model = model(false);
    press(&mut model, "3");
    load_dead(&mut model, 100_000);
    let first = model.dead.page.rows[0].id.clone();
    for _ in 0..3 {
        key(&mut model, KeyCode::End);
        let commands = key(&mut model, KeyCode::PageDown);
        assert_eq!(fetched(&commands), [Kind::DeadLetters]);
        load_dead(&mut model, 100_000);
    }
    assert_eq!((model.dead.page.before, model.dead.page.rows.len()), (1_500, 500));
    for _ in 0..3 {
        key(&mut model, KeyCode::Home);
        key(&mut model, KeyCode::PageUp);
        load_dead(&mut model, 100_000);
    }
    assert_eq!(model.dead.page.before, 0);
    assert_eq!(model.dead.page.rows[0].id, first);
}

#[test]
fn an_answer_to_an_old_question_is_dropped() {
    let mut model = model(false);
    press(&mut model, "3");
    let old = model.dead_query();
    let commands = press(&mut model, "c");
    assert_eq!(fetched(&commands), [Kind::DeadLetters], "the new question is asked at once");
    let page = DeadLetterPage { total: 7, ..DeadLetterPage::default() };
    reply(&mut model, Request::DeadLetters(old), Ok(Answer::DeadLetters(page)));
    assert!(!model.dead.page.loaded);
}

#[test]
fn an_area_chosen_on_the_map_restricts_the_other_panes() {
    let mut model = model(false);
    press(&mut model, "4");
    press(&mut model, "++++b");
    let area = model.area.unwrap();
    assert!(area[2] - area[0] < 90.0);
    assert_eq!(model.dead_query(), DeadQuery { bbox: Some(area), ..DeadQuery::default() });
    press(&mut model, "3b");
    assert_eq!(model.area, None);
}

#[test]
fn keys_of_a_filter_being_typed_do_nothing_else() {
    let mut model = model(true);
    press(&mut model, "3");
    load_dead(&mut model, 50);
    let commands = press(&mut model, "/qDr");
    assert!(commands.iter().all(|command| *command != Command::Quit));
    assert_eq!(model.filter.text(), "qDr");
    key(&mut model, KeyCode::Esc);
    assert!(model.filter.is_empty() && !model.typing);
    model.filter = Filter::new("/invalid|crs/".to_owned());
    assert!(model.dead_rows().len() < 50 && !model.dead_rows().is_empty());
}

#[test]
fn ctrl_c_leaves_from_anywhere() {
    let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for keys in ["", "/abc", "?", "3", "p"] {
        let mut model = model(true);
        press(&mut model, keys);
        let commands = update(&mut model, 0, Message::Key(quit));
        assert!(commands.contains(&Command::Quit), "after {keys:?}");
    }
}
