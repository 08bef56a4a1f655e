//! Keys: one table from which dispatch, the `?` help and the footer are all made, so that they cannot disagree.
//!
//! A key means the same in every pane that knows it; the table says in which panes that is. A key file overrides
//! the keys of any action by its name; a key claimed twice in one pane, or an unknown name, is refused with the reason.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::DashError;
use super::model::Pane;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is described to the user in the table below")]
pub enum Action {
    Quit,
    Help,
    Filter,
    Freeze,
    Refresh,
    Show(Pane),
    NextPane,
    PreviousPane,
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
    Left,
    Right,
    Open,
    Back,
    Span,
    Sort,
    Reverse,
    Mark,
    All,
    Class,
    Endpoint,
    Redrive,
    Discard,
    Repair,
    Export,
    Pause,
    Resume,
    Probe,
    ZoomIn,
    ZoomOut,
    FitWorld,
    FitData,
    Layer,
    Area,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Binding {
    /// What it asks for.
    pub action: Action,
    /// Its name in a key file.
    pub name: &'static str,
    /// Its keys.
    pub keys: Vec<Key>,
    /// What it does, for the help.
    pub help: &'static str,
    /// Its word in the footer, if it has a place there.
    pub footer: Option<&'static str>,
    /// The panes that know it; empty means all.
    pub panes: &'static [Pane],
    /// Whether it changes something at the appliance (only with permission).
    pub acts: bool,
}

/// A key with its modifiers, as written in a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    code: KeyCode,
    control: bool,
}

/// Key names that are words.
const NAMED: &[(&str, KeyCode)] = &[
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("pgup", KeyCode::PageUp),
    ("pgdn", KeyCode::PageDown),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("tab", KeyCode::Tab),
    ("backtab", KeyCode::BackTab),
    ("space", KeyCode::Char(' ')),
    ("backspace", KeyCode::Backspace),
    ("del", KeyCode::Delete),
];

impl Key {
    /// Reads `q`, `ctrl-c`, `pgdn`.
    pub fn parse(text: &str) -> Option<Self> {
        let (control, name) = text.strip_prefix("ctrl-").map_or((false, text), |rest| (true, rest));
        let mut chars = name.chars();
        let code = match (chars.next(), chars.next()) {
            (Some(c), None) if !crate::core::text::is_hidden(c) => KeyCode::Char(c),
            _ => NAMED.iter().find(|(known, _)| *known == name)?.1,
        };
        Some(Self { code, control })
    }

    /// The key of an event. Shift is part of the character, so it is not compared.
    pub fn of(event: &KeyEvent) -> Self {
        Self { code: event.code, control: event.modifiers.contains(KeyModifiers::CONTROL) }
    }

    /// As written in a key file.
    pub fn name(self) -> String {
        let word = NAMED.iter().find(|(_, code)| *code == self.code).map(|(name, _)| (*name).to_owned());
        let name = word.unwrap_or_else(|| match self.code {
            KeyCode::Char(c) => c.to_string(),
            _ => "?".to_owned(),
        });
        if self.control { format!("ctrl-{name}") } else { name }
    }
}

/// All bindings.
#[derive(Clone, Debug)]
pub struct Keymap {
    bindings: Vec<Binding>,
}

const LISTS: &[Pane] = &[Pane::Overview, Pane::DeadLetters, Pane::Events, Pane::Log];
const DEAD: &[Pane] = &[Pane::DeadLetters];
const MAP: &[Pane] = &[Pane::Map];
const OVERVIEW: &[Pane] = &[Pane::Overview];
const BY_ENDPOINT: &[Pane] = &[Pane::Attempts, Pane::DeadLetters, Pane::Events];
const OPENED: &[Pane] = &[Pane::DeadLetters, Pane::Events];
const MOVED: &[Pane] = &[Pane::Overview, Pane::DeadLetters, Pane::Events, Pane::Log, Pane::Map];
const AREA: &[Pane] = &[Pane::Map, Pane::DeadLetters, Pane::Events];

type Row = (
    Action,
    &'static str,
    &'static [&'static str],
    &'static str,
    Option<&'static str>,
    &'static [Pane],
    bool,
);

/// The table. The order is that of the help and the footer: what belongs to the pane first.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    (Action::Up, "up", &["up", "k"], "one row up; on the map: north", None, MOVED, false),
    (Action::Down, "down", &["down", "j"], "one row down; on the map: south", None, MOVED, false),
    (Action::Left, "left", &["left", "h"], "previous pane; on the map: west", None, &[], false),
    (Action::Right, "right", &["right", "l"], "next pane; on the map: east", None, &[], false),
    (Action::PageUp, "page-up", &["pgup", "ctrl-b"], "one page up", None, LISTS, false),
    (Action::PageDown, "page-down", &["pgdn", "ctrl-f"], "one page down; at the end: the next page of the store", None, LISTS, false),
    (Action::Top, "top", &["home", "g"], "to the first row", None, LISTS, false),
    (Action::Bottom, "bottom", &["end", "G"], "to the last row", None, LISTS, false),
    (Action::Open, "open", &["enter"], "open the row", Some("open"), OPENED, false),
    (Action::Redrive, "redrive", &["r"], "send the selection again", Some("redrive"), DEAD, true),
    (Action::Discard, "discard", &["D"], "drop the selection for good", Some("discard"), DEAD, true),
    (Action::Repair, "repair", &["R"], "repair the geometry of the selection, each as a new event", Some("repair"), DEAD, true),
    (Action::Export, "export", &["x"], "write the selection to a file here", Some("export"), DEAD, false),
    (Action::Back, "back", &["esc"], "close what is open, clear marks, then the filter", None, &[], false),
    (Action::Span, "span", &["w"], "time span of the sparklines: 5 min, 1 h, 24 h", Some("span"), OVERVIEW, false),
    (Action::Sort, "sort", &["s"], "sort by the next column", Some("sort"), DEAD, false),
    (Action::Reverse, "reverse", &["S"], "turn the sort order round", None, DEAD, false),
    (Action::Mark, "mark", &["space"], "mark the row", Some("mark"), DEAD, false),
    (Action::All, "all", &["a"], "mean all of this class, endpoint and area, on all pages; with a filter: mark what it shows", Some("all"), DEAD, false),
    (Action::Class, "class", &["c"], "only the next class", Some("class"), DEAD, false),
    (Action::Endpoint, "endpoint", &["e"], "only the next endpoint", Some("endpoint"), BY_ENDPOINT, false),
    (Action::Pause, "pause", &["p"], "pause the endpoint: no attempts, data kept", Some("pause"), OVERVIEW, true),
    (Action::Resume, "resume", &["u"], "resume the endpoint", Some("resume"), OVERVIEW, true),
    (Action::Probe, "probe", &["o"], "probe the held endpoint now", Some("probe"), OVERVIEW, true),
    (Action::ZoomIn, "zoom-in", &["+", "="], "zoom in", Some("zoom"), MAP, false),
    (Action::ZoomOut, "zoom-out", &["-"], "zoom out", None, MAP, false),
    (Action::FitData, "fit-data", &["d"], "fit the view to the data", Some("fit"), MAP, false),
    (Action::FitWorld, "fit-world", &["0"], "show the world", Some("world"), MAP, false),
    (Action::Layer, "layer", &["t"], "show pending and dead, only pending, only dead", Some("layer"), MAP, false),
    (Action::Area, "area", &["b"], "take the view (or a dragged box) as area filter for all panes; again: clear it", Some("area"), AREA, false),
    (Action::Show(Pane::Overview), "overview", &["1"], "overview", None, &[], false),
    (Action::Show(Pane::Attempts), "attempts", &["2"], "attempts: histograms, latency, delays", None, &[], false),
    (Action::Show(Pane::DeadLetters), "dead-letters", &["3"], "dead letters", None, &[], false),
    (Action::Show(Pane::Map), "map", &["4"], "map", None, &[], false),
    (Action::Show(Pane::Events), "events", &["5"], "pending events, and one event's story", None, &[], false),
    (Action::Show(Pane::Log), "log", &["6"], "recent notable lines", None, &[], false),
    (Action::NextPane, "next-pane", &["tab"], "next pane", None, &[], false),
    (Action::PreviousPane, "previous-pane", &["backtab"], "previous pane", None, &[], false),
    (Action::Filter, "filter", &["/"], "filter rows by text, or by a regular expression written as /.../", Some("filter"), LISTS, false),
    (Action::Freeze, "freeze", &["f"], "freeze what is shown; again: go on", Some("freeze"), &[], false),
    (Action::Refresh, "refresh", &["ctrl-l"], "ask again now and draw everything anew", None, &[], false),
    (Action::Help, "help", &["?"], "this help", Some("help"), &[], false),
    (Action::Quit, "quit", &["q", "ctrl-c"], "leave; the appliance is not touched", Some("quit"), &[], false),
];

impl Default for Keymap {
    fn default() -> Self {
        let bindings = TABLE
            .iter()
            .map(|&(action, name, keys, help, footer, panes, acts)| Binding {
                action,
                name,
                keys: keys.iter().filter_map(|key| Key::parse(key)).collect(),
                help,
                footer,
                panes,
                acts,
            })
            .collect();
        Self { bindings }
    }
}

impl Binding {
    fn known_in(&self, pane: Pane) -> bool {
        self.panes.is_empty() || self.panes.contains(&pane)
    }

    /// Its first key, for the footer.
    pub fn key(&self) -> String {
        self.keys.first().map_or_else(String::new, |key| key.name())
    }
}

impl Keymap {
    /// The default with the keys of a file: `action = ["key", …]`.
    pub fn from_toml(text: &str) -> Result<Self, DashError> {
        let file: BTreeMap<String, Vec<String>> =
            toml::from_str(text).map_err(|error| DashError::Keys(error.message().to_owned()))?;
        let mut map = Self::default();
        for (name, keys) in file {
            let Some(binding) = map.bindings.iter_mut().find(|binding| binding.name == name) else {
                let nearest = TABLE
                    .iter()
                    .map(|row| row.1)
                    .max_by(|a, b| strsim::jaro(a, &name).total_cmp(&strsim::jaro(b, &name)))
                    .unwrap_or("quit");
                return Err(DashError::Keys(format!("`{name}` is no action; did you mean `{nearest}`?")));
            };
            let mut parsed = Vec::new();
            for key in &keys {
                parsed.push(Key::parse(key).ok_or_else(|| {
                    DashError::Keys(format!("`{key}` of `{name}` is no key; write q, ctrl-q, pgdn or space"))
                })?);
            }
            binding.keys = parsed;
        }
        map.check()?;
        Ok(map)
    }

    /// No key may mean two things in one pane, and one must always be able to leave.
    fn check(&self) -> Result<(), DashError> {
        for (index, one) in self.bindings.iter().enumerate() {
            for other in &self.bindings[index + 1..] {
                let together = Pane::ALL.iter().any(|pane| one.known_in(*pane) && other.known_in(*pane));
                if let Some(key) = one.keys.iter().find(|key| together && other.keys.contains(key)) {
                    return Err(DashError::Keys(format!(
                        "key `{}` would mean both `{}` and `{}`",
                        key.name(),
                        one.name,
                        other.name
                    )));
                }
            }
        }
        if self.bindings.iter().any(|binding| binding.action == Action::Quit && binding.keys.is_empty()) {
            return Err(DashError::Keys("`quit` needs a key".to_owned()));
        }
        Ok(())
    }

    /// What a key means in a pane.
    pub fn action(&self, pane: Pane, key: &KeyEvent) -> Option<Action> {
        let key = Key::of(key);
        self.bindings
            .iter()
            .find(|binding| binding.known_in(pane) && binding.keys.contains(&key))
            .map(|binding| binding.action)
    }

    /// Every binding that a pane knows, in the order of the table.
    pub fn of_pane(&self, pane: Pane) -> impl Iterator<Item = &Binding> {
        self.bindings.iter().filter(move |binding| binding.known_in(pane))
    }

    /// Whether the action changes something at the appliance.
    pub fn acts(&self, action: Action) -> bool {
        self.bindings.iter().any(|binding| binding.action == action && binding.acts)
    }

    /// Every binding.
    pub fn all(&self) -> &[Binding] {
        &self.bindings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_parses_and_no_key_means_two_things() {
        let map = Keymap::default();
        for (binding, row) in map.all().iter().zip(TABLE) {
            assert_eq!(binding.keys.len(), row.2.len(), "{}", binding.name);
            assert!(!binding.help.is_empty());
            for (key, text) in binding.keys.iter().zip(row.2) {
                assert_eq!(key.name(), *text);
            }
        }
        map.check().unwrap();
    }

    #[test]
    fn a_key_file_overrides_by_name() {
        let map = Keymap::from_toml("quit = [\"ctrl-q\"]\n").unwrap();
        let press = |c, modifiers| KeyEvent::new(KeyCode::Char(c), modifiers);
        assert_eq!(map.action(Pane::Map, &press('q', KeyModifiers::CONTROL)), Some(Action::Quit));
        assert_eq!(map.action(Pane::Map, &press('q', KeyModifiers::NONE)), None);
        assert_eq!(map.action(Pane::DeadLetters, &press('D', KeyModifiers::SHIFT)), Some(Action::Discard));
    }

    #[test]
    fn faults_in_a_key_file_are_named() {
        for (text, word) in [
            ("qiut = [\"q\"]", "did you mean `quit`"),
            ("quit = [\"hyper-q\"]", "is no key"),
            ("quit = [\"f\"]", "would mean both"),
            ("quit = []", "needs a key"),
            ("quit = 7", "invalid type"),
        ] {
            let error = Keymap::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
