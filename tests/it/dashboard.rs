//! Screens without a terminal: every pane in every state at three sizes, and no size or input that breaks one.

use std::fmt::Write as _;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;
use waypost::core::text::is_hidden;
use waypost::dashboard::demo::{Demo, Scene};
use waypost::dashboard::feed::Source;
use waypost::dashboard::keymap::Keymap;
use waypost::dashboard::message::{Answer, Command, FetchError, Message, Reply, Request};
use waypost::dashboard::model::{Model, Pane, Settings};
use waypost::dashboard::plain;
use waypost::dashboard::theme::{ASCII, Theme, UNICODE};
use waypost::dashboard::update::update;
use waypost::wire::DeadLetterView;

const SIZES: [(u16, u16); 3] = [(60, 16), (80, 24), (140, 45)];

fn settings() -> Settings {
    Settings {
        allow_actions: true,
        refresh_ms: 1_000,
        theme: Theme::colour(),
        glyphs: UNICODE,
        keymap: Keymap::default(),
        demo: false,
    }
}

fn model_of(settings: Settings, scene: Scene, pane: Pane, size: (u16, u16)) -> (Model, Demo) {
    let mut model = Model::new(settings, size);
    model.pane = pane;
    (model, Demo::of_scene(scene))
}

/// Sends a message and answers every question that follows from it.
fn send(model: &mut Model, source: &impl Source, message: Message) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let now_ms = model.now_ms;
    let mut commands = update(model, now_ms, message);
    while let Some(command) = commands.pop() {
        if let Command::Fetch(request) = command {
            let answer = runtime.block_on(source.fetch(request.clone()));
            commands.extend(update(model, now_ms, Message::Reply(Box::new(Reply { request, answer }))));
        }
    }
}

fn press(model: &mut Model, source: &impl Source, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        send(model, source, Message::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
}

fn lose(model: &mut Model) {
    let lost = Err(FetchError::Unreachable("/data/admin.sock: connection refused".to_owned()));
    let now_ms = model.now_ms + 1_000;
    let reply = Reply { request: Request::Status, answer: lost };
    let _ = update(model, now_ms, Message::Reply(Box::new(reply)));
    let _ = update(model, now_ms + 11_000, Message::Tick);
}

fn frame(model: &Model) -> String {
    plain::text(&plain::render(model))
}

fn pane_name(pane: Pane) -> String {
    pane.title().to_lowercase().replace(' ', "-")
}

#[test]
fn every_pane_in_every_state_at_every_size() {
    let scenes = [
        ("empty", Scene::Empty, false),
        ("healthy", Scene::Healthy, false),
        ("held", Scene::Held, false),
        ("draining", Scene::Draining, false),
        ("full-disk", Scene::FullDisk, false),
        ("lost", Scene::Held, true),
    ];
    for (name, scene, lost) in scenes {
        for pane in Pane::ALL {
            let mut frames = String::new();
            for size in SIZES {
                let (mut model, demo) = model_of(settings(), scene, pane, size);
                send(&mut model, &demo, Message::Tick);
                if lost {
                    lose(&mut model);
                }
                let _ = write!(frames, "=== {}x{}\n{}", size.0, size.1, frame(&model));
            }
            insta::assert_snapshot!(format!("{}-{name}", pane_name(pane)), frames);
        }
    }
}

#[test]
fn opened_letters_events_questions_and_help() {
    for (name, pane, keys) in [
        ("dead-letter-open", Pane::DeadLetters, "cc\n"),
        ("dead-letter-confirm-redrive", Pane::DeadLetters, " r"),
        ("dead-letter-confirm-discard-all", Pane::DeadLetters, "cccaD12"),
        ("event-open", Pane::Events, "\n"),
        ("help", Pane::Map, "?"),
        ("filter-typing", Pane::DeadLetters, "//zone/"),
        ("map-area", Pane::Map, "+++b"),
        ("overview-confirm-pause", Pane::Overview, "p"),
    ] {
        let mut frames = String::new();
        for size in SIZES {
            let (mut model, demo) = model_of(settings(), Scene::Held, pane, size);
            send(&mut model, &demo, Message::Tick);
            press(&mut model, &demo, keys);
            let _ = write!(frames, "=== {}x{}\n{}", size.0, size.1, frame(&model));
        }
        insta::assert_snapshot!(name, frames);
    }
}

/// ASCII and no colour: every pane says the same with 95 characters and no colour at all.
#[test]
fn ascii_without_colour_loses_no_meaning() {
    let plain_settings = Settings { theme: Theme::plain(), glyphs: ASCII, ..settings() };
    let mut frames = String::new();
    for pane in Pane::ALL {
        let (mut model, demo) = model_of(plain_settings.clone(), Scene::Held, pane, (80, 24));
        send(&mut model, &demo, Message::Tick);
        let buf = plain::render(&model);
        assert!(buf.content().iter().all(|cell| cell.symbol().is_ascii()));
        assert!(buf.content().iter().all(|cell| {
            let style = cell.style();
            [style.fg, style.bg].into_iter().flatten().all(|colour| colour == ratatui::style::Color::Reset)
        }));
        frames.push_str(&plain::text(&buf));
    }
    insta::assert_snapshot!("ascii-no-colour", frames);
}

/// Every binding of the keymap stands in the help, with its first key and its words, whatever the pane.
#[test]
fn the_help_is_complete() {
    for pane in Pane::ALL {
        let (mut model, demo) = model_of(settings(), Scene::Healthy, pane, (200, 80));
        press(&mut model, &demo, "?");
        let help = frame(&model);
        for binding in Keymap::default().all() {
            assert!(help.contains(binding.help), "{} is missing in the help of {pane:?}", binding.name);
            assert!(help.contains(&binding.key()));
        }
    }
}

/// Text from outside in every place where it is shown: nothing of it acts on the terminal, and columns stay aligned.
#[test]
fn hostile_text_is_shown_escaped_and_aligned() {
    let evil = "e\u{1b}[2J\u{9b}31m\u{7}\r\n\u{202e}x\u{200d}\u{fe0f}東👨\u{200d}👩";
    for pane in Pane::ALL {
        for opened in ["", "\n"] {
            let (mut model, demo) = model_of(settings(), Scene::Held, pane, (100, 30));
            let source = Hostile { inner: demo, evil };
            model.fresh.clear();
            send(&mut model, &source, Message::Tick);
            press(&mut model, &source, opened);
            let buf = plain::render(&model);
            let symbols: String = buf.content().iter().map(ratatui::buffer::Cell::symbol).collect();
            assert!(!symbols.chars().any(is_hidden), "{pane:?}");
            if !matches!(pane, Pane::Map | Pane::Attempts) {
                assert!(symbols.contains("e\\u{1b}"), "{pane:?} shows it escaped");
            }
        }
    }
}

/// Answers of the demo with hostile text in every field that comes from outside.
#[derive(Clone)]
struct Hostile {
    inner: Demo,
    evil: &'static str,
}

impl Source for Hostile {
    async fn fetch(&self, request: Request) -> Result<Answer, FetchError> {
        let evil = || self.evil.to_owned();
        let mut answer = self.inner.fetch(request).await?;
        match &mut answer {
            Answer::Status(status) => {
                (status.node, status.warnings) = (evil(), vec![evil()]);
                for one in &mut status.endpoints {
                    (one.name, one.hold_reason, one.hold_detail) = (evil(), Some(evil()), Some(evil()));
                    one.last_outcome = Some(evil());
                }
            }
            Answer::Attempts(view) => view.recent.iter_mut().for_each(|one| one.endpoint = evil()),
            Answer::Log(view) => view.lines.iter_mut().for_each(|line| line.text = evil()),
            Answer::DeadLetters(page) => page.entries.iter_mut().for_each(|one| poison(one, self.evil)),
            Answer::DeadLetter(one) => poison(one, self.evil),
            Answer::Outbox(page) => {
                for one in &mut page.entries {
                    (one.event.device, one.delivery.endpoint, one.delivery.state) = (evil(), evil(), evil());
                }
            }
            Answer::Story(story) => {
                (story.event.device, story.event.key, story.body) = (evil(), evil(), Some(evil()));
            }
            _ => {}
        }
        Ok(answer)
    }
}

fn poison(letter: &mut DeadLetterView, evil: &str) {
    let evil = || evil.to_owned();
    (letter.error_message, letter.endpoint, letter.device) = (evil(), evil(), evil());
    (letter.event_type, letter.idempotency_key, letter.source_crs) = (evil(), evil(), evil());
    letter.raw_payload = letter.raw_payload.as_ref().map(|_| evil());
    for attempt in &mut letter.history {
        (attempt.reason, attempt.answer) = (evil(), evil());
    }
}

fn any_message() -> impl Strategy<Value = Message> {
    let keys: Vec<char> = "qhjklgGwsSacerDRxpuo+-d0bt123456/f?y9 ".chars().filter(|c| *c != 'q').collect();
    let code = prop_oneof![
        8 => prop::sample::select(keys).prop_map(KeyCode::Char),
        1 => Just(KeyCode::Enter),
        1 => Just(KeyCode::Esc),
        1 => Just(KeyCode::PageDown),
        1 => Just(KeyCode::PageUp),
        1 => Just(KeyCode::End),
        1 => Just(KeyCode::Backspace),
        1 => any::<char>().prop_map(KeyCode::Char),
    ];
    let mouse = prop::sample::select(vec![
        MouseEventKind::Down(MouseButton::Left),
        MouseEventKind::Drag(MouseButton::Left),
        MouseEventKind::Up(MouseButton::Left),
        MouseEventKind::ScrollUp,
        MouseEventKind::ScrollDown,
    ]);
    prop_oneof![
        6 => code.prop_map(|code| Message::Key(KeyEvent::new(code, KeyModifiers::NONE))),
        2 => (0u16..=500, 0u16..=200).prop_map(|(columns, rows)| Message::Resize(columns, rows)),
        2 => (0u16..40, 0u16..24).prop_map(|(columns, rows)| Message::Resize(columns, rows)),
        2 => (mouse, 0u16..600, 0u16..300).prop_map(|(kind, column, row)| {
            Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
        }),
        2 => Just(Message::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if std::env::var_os("WAYPOST_SLOW").is_some() { 512 } else { 12 }, ..ProptestConfig::default() })]

    /// Any play of keys, mouse, sizes, answers, failures and hostile text: no panic, and a clean screen.
    #[test]
    fn any_size_and_any_input_draws_a_clean_screen(
        scene in prop::sample::select(vec![Scene::Empty, Scene::Healthy, Scene::Held, Scene::Draining, Scene::FullDisk]),
        steps in prop::collection::vec((any_message(), 0u8..20), 0..25),
        hostile in any::<bool>(),
    ) {
        let (mut model, demo) = model_of(settings(), scene, Pane::Overview, (80, 24));
        let evil = if hostile { "\u{1b}]0;x\u{7}東\u{202e}" } else { "plain" };
        let source = Hostile { inner: demo, evil };
        for (message, luck) in steps {
            if luck == 0 {
                lose(&mut model);
            }
            model.now_ms += 700;
            send(&mut model, &source, message);
            let buf = plain::render(&model);
            prop_assert!(buf.content().iter().all(|cell| !cell.symbol().chars().any(is_hidden)));
        }
    }
}

/// Each size of a small window, each pane (field fault: small windows broke the drawing).
#[test]
fn every_small_size_draws() {
    for pane in Pane::ALL {
        for entries in [0, 1, 100_000] {
            let (mut model, demo) = model_of(settings(), Scene::Held, pane, (80, 24));
            send(&mut model, &demo.with_dead(entries), Message::Tick);
            for size in [(60, 16), (61, 17), (80, 24), (500, 200)] {
                model.size = size;
                assert_clean(&plain::render(&model));
            }
        }
        let (mut model, demo) = model_of(settings(), Scene::Held, pane, (80, 24));
        send(&mut model, &demo, Message::Tick);
        // Below 60x16 all panes are the same note.
        let (columns_min, rows_min) = if pane == Pane::Overview { (0, 0) } else { (57, 13) };
        for columns in columns_min..=63 {
            for rows in rows_min..=18 {
                model.size = (columns, rows);
                let buf = plain::render(&model);
                assert_clean(&buf);
            }
        }
        model.size = (59, 15);
        assert!(frame(&model).contains("window 59x15: 60x16 needed, q quits"), "{}", frame(&model));
        for size in [(500, 200), (500, 1), (1, 200), (59, 200), (500, 15)] {
            model.size = size;
            assert_clean(&plain::render(&model));
        }
    }
}

/// A thousand changes of the window while answers come in and panes change: no panic, and the next frame at 80x24 is as
/// if nothing had been.
#[test]
fn a_thousand_sizes_while_updating_leave_no_trace() {
    let (mut model, demo) = model_of(settings(), Scene::Held, Pane::Overview, (80, 24));
    send(&mut model, &demo, Message::Tick);
    let before = frame(&model);
    let mut random = 7u32;
    for step in 0..1_000u32 {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let size = ((random >> 20) % 160, (random >> 10) % 60);
        model.now_ms += 100;
        model.pane = Pane::ALL[(step % 6) as usize];
        let resize = Message::Resize(u16::try_from(size.0).unwrap(), u16::try_from(size.1).unwrap());
        send(&mut model, &demo, resize);
        assert_clean(&plain::render(&model));
    }
    model.pane = Pane::Overview;
    send(&mut model, &demo, Message::Resize(80, 24));
    // The scene stands still, but its second goes on in the sparkline.
    let without_sparkline = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains('█') || line.contains("hq"));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(without_sparkline(&frame(&model)), without_sparkline(&before));
}

fn assert_clean(buf: &ratatui::buffer::Buffer) {
    assert!(buf.content().iter().all(|cell| !cell.symbol().chars().any(is_hidden)));
}

/// An image of a frame is one well-formed document with every line's words in it.
#[test]
fn a_frame_as_an_image_keeps_its_words() {
    let (mut model, demo) = model_of(settings(), Scene::Held, Pane::Overview, (100, 30));
    send(&mut model, &demo, Message::Tick);
    let svg = plain::svg(&plain::render(&model));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("hq held 12 min: connection refused"));
    assert!(!svg.contains("& "));
}

/// The dashboard's page: its frame, its image and its table of keys are those of the program.
/// `WAYPOST_WRITE_DOCS=1 cargo test --test it page_of_the_dashboard` writes them anew.
#[test]
fn the_page_of_the_dashboard_shows_what_it_is() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let demo = Demo::still();
    let mut model = Model::new(Settings { demo: true, allow_actions: false, ..settings() }, (100, 30));
    send(&mut model, &demo, Message::Tick);
    let buf = plain::render(&model);
    let mut keys = String::new();
    for binding in Keymap::default().all() {
        let names: Vec<String> = binding.keys.iter().map(|key| format!("`{}`", key.name())).collect();
        let order = if binding.acts { " (order)" } else { "" };
        let _ = writeln!(keys, "| {} | `{}` | {}{order} |", names.join(" "), binding.name, binding.help);
    }
    let frame = format!("```text\n{}```\n", plain::text(&buf));
    let keys = format!("| key | name | does |\n|---|---|---|\n{keys}");
    let write = std::env::var_os("WAYPOST_WRITE_DOCS").is_some();
    for (file, parts) in [
        (docs.join("DASHBOARD.md"), &[("frame", &frame), ("keys", &keys)][..]),
        (docs.join("../README.md"), &[("frame", &frame)]),
    ] {
        let page = std::fs::read_to_string(&file).unwrap();
        let mut wanted = page.clone();
        for (name, text) in parts {
            let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
            let (head, rest) = wanted.split_once(&begin).unwrap();
            let (_, tail) = rest.split_once(&end).unwrap();
            wanted = format!("{head}{begin}{text}{end}{tail}");
        }
        if write {
            std::fs::write(&file, &wanted).unwrap();
        }
        assert!(write || page == wanted, "{} is out of date", file.display());
    }
    let svg = plain::svg(&buf);
    let image = docs.join("dashboard.svg");
    if write {
        std::fs::write(&image, &svg).unwrap();
    }
    assert!(std::fs::read_to_string(&image).unwrap() == svg, "docs/dashboard.svg is out of date");
}
