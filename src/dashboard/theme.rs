//! How things look: sixteen colours by role, and the glyphs of the two character sets.
//!
//! Views name roles ("warn", "dead"), never colours, and meaning never hangs on colour alone: every state is also a
//! word. A theme file overrides roles; `NO_COLOR` leaves only bold, dim and reversed; `--ascii` swaps the glyphs.

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;

use super::DashError;

/// Styles by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Ordinary text.
    pub text: Style,
    /// What matters less: units, labels, borders.
    pub dim: Style,
    /// Headings and the headline.
    pub title: Style,
    /// As it should be.
    pub good: Style,
    /// Look at it today.
    pub warn: Style,
    /// Look at it now.
    pub bad: Style,
    /// Keys in the footer, the chosen tab.
    pub accent: Style,
    /// The row or tab under the cursor.
    pub selected: Style,
    /// Pending events: sparklines, map.
    pub pending: Style,
    /// Dead letters: map, drawing.
    pub dead: Style,
    /// Outlines of the world.
    pub land: Style,
}

/// Colours that a theme file may set; what it leaves out keeps its default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ThemeFile {
    text: Option<String>,
    dim: Option<String>,
    title: Option<String>,
    good: Option<String>,
    warn: Option<String>,
    bad: Option<String>,
    accent: Option<String>,
    selected: Option<String>,
    pending: Option<String>,
    dead: Option<String>,
    land: Option<String>,
}

/// The sixteen colours every terminal has, by name; the user's palette decides how they look.
const COLOURS: &[(&str, Color)] = &[
    ("default", Color::Reset),
    ("black", Color::Black),
    ("red", Color::Red),
    ("green", Color::Green),
    ("yellow", Color::Yellow),
    ("blue", Color::Blue),
    ("magenta", Color::Magenta),
    ("cyan", Color::Cyan),
    ("gray", Color::Gray),
    ("dark-gray", Color::DarkGray),
    ("light-red", Color::LightRed),
    ("light-green", Color::LightGreen),
    ("light-yellow", Color::LightYellow),
    ("light-blue", Color::LightBlue),
    ("light-magenta", Color::LightMagenta),
    ("light-cyan", Color::LightCyan),
    ("white", Color::White),
];

impl Theme {
    /// The default: legible on dark and on light backgrounds, since it sets no background and no white text.
    pub fn colour() -> Self {
        let plain = Style::new();
        Self {
            text: plain,
            dim: plain.add_modifier(Modifier::DIM),
            title: plain.add_modifier(Modifier::BOLD),
            good: plain.fg(Color::Green),
            warn: plain.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            bad: plain.fg(Color::Red).add_modifier(Modifier::BOLD),
            accent: plain.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            selected: plain.add_modifier(Modifier::REVERSED),
            pending: plain.fg(Color::Blue),
            dead: plain.fg(Color::Magenta),
            land: plain.add_modifier(Modifier::DIM),
        }
    }

    /// No colour at all (<https://no-color.org>): bold, dim and reversed remain.
    pub fn plain() -> Self {
        let bare = |style: Style| Style { fg: None, bg: None, ..style };
        let theme = Self::colour();
        Self {
            text: bare(theme.text),
            dim: bare(theme.dim),
            title: bare(theme.title),
            good: bare(theme.good),
            warn: bare(theme.warn),
            bad: bare(theme.bad),
            accent: bare(theme.accent),
            selected: bare(theme.selected),
            pending: bare(theme.pending),
            dead: bare(theme.dead),
            land: bare(theme.land),
        }
    }

    /// The default with a theme file's roles: `role = "colour"`, or `"bold colour"`, `"dim"`, `"reversed"`.
    pub fn from_toml(text: &str) -> Result<Self, DashError> {
        let file: ThemeFile =
            toml::from_str(text).map_err(|error| DashError::Theme(error.message().to_owned()))?;
        let mut theme = Self::colour();
        for (role, value) in [
            (&mut theme.text, file.text),
            (&mut theme.dim, file.dim),
            (&mut theme.title, file.title),
            (&mut theme.good, file.good),
            (&mut theme.warn, file.warn),
            (&mut theme.bad, file.bad),
            (&mut theme.accent, file.accent),
            (&mut theme.selected, file.selected),
            (&mut theme.pending, file.pending),
            (&mut theme.dead, file.dead),
            (&mut theme.land, file.land),
        ] {
            if let Some(value) = value {
                *role = style(&value)?;
            }
        }
        Ok(theme)
    }
}

fn style(value: &str) -> Result<Style, DashError> {
    let mut style = Style::new();
    for word in value.split_whitespace() {
        style = match word {
            "bold" => style.add_modifier(Modifier::BOLD),
            "dim" => style.add_modifier(Modifier::DIM),
            "reversed" => style.add_modifier(Modifier::REVERSED),
            "underlined" => style.add_modifier(Modifier::UNDERLINED),
            name => {
                let Some((_, colour)) = COLOURS.iter().find(|(known, _)| *known == name) else {
                    let names: Vec<&str> = COLOURS.iter().map(|(known, _)| *known).collect();
                    return Err(DashError::Theme(format!(
                        "`{name}` is no colour; one of {}, with bold, dim, reversed or underlined",
                        names.join(", ")
                    )));
                };
                style.fg(*colour)
            }
        };
    }
    Ok(style)
}

/// The characters of the drawings, in one of two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyphs {
    /// Whether only ASCII may be drawn.
    pub ascii: bool,
    /// Stands where text was cut off.
    pub ellipsis: char,
    /// Levels of a sparkline, lowest first; the first is "nothing".
    pub levels: &'static [char],
    /// Full part of a gauge or bar.
    pub full: char,
    /// Empty part of a gauge.
    pub empty: char,
    /// Horizontal line.
    pub line: char,
    /// Vertical line.
    pub bar: char,
    /// Between parts of a sentence.
    pub dot: &'static str,
    /// A mark that something holds.
    pub tick: &'static str,
    /// A mark that it does not.
    pub cross: &'static str,
    /// The row under the cursor.
    pub pointer: &'static str,
    /// Corners of a frame: top left, top right, bottom left, bottom right.
    pub corners: [char; 4],
    /// Ends of an envelope.
    pub ends: (char, char),
    /// A drawn delay.
    pub point: char,
    /// Up and down, of sort order and scrolling.
    pub arrows: (&'static str, &'static str),
}

/// Unicode: block elements, box lines and braille, all in the fonts of common terminals.
pub const UNICODE: Glyphs = Glyphs {
    ascii: false,
    ellipsis: '…',
    levels: &[' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
    full: '█',
    empty: '░',
    line: '─',
    bar: '│',
    dot: " · ",
    tick: "✓",
    cross: "✗",
    pointer: "▶",
    corners: ['┌', '┐', '└', '┘'],
    ends: ('├', '┤'),
    point: '●',
    arrows: ("▲", "▼"),
};

/// ASCII: for consoles and fonts that have nothing else.
pub const ASCII: Glyphs = Glyphs {
    ascii: true,
    ellipsis: '~',
    levels: &[' ', '_', '.', ':', '-', '=', '+', '*', '#'],
    full: '#',
    empty: '.',
    line: '-',
    bar: '|',
    dot: ", ",
    tick: "ok",
    cross: "NO",
    pointer: ">",
    corners: ['+', '+', '+', '+'],
    ends: ('[', ']'),
    point: 'o',
    arrows: ("^", "v"),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_colour_means_none() {
        let theme = Theme::plain();
        for style in [theme.good, theme.warn, theme.bad, theme.accent, theme.pending, theme.dead] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
    }

    #[test]
    fn a_theme_file_overrides_roles_and_refuses_the_rest() {
        let theme = Theme::from_toml("bad = \"bold light-red\"\n").unwrap();
        assert_eq!(theme.bad, Style::new().fg(Color::LightRed).add_modifier(Modifier::BOLD));
        assert_eq!(theme.good, Theme::colour().good);
        assert!(Theme::from_toml("bad = \"crimson\"").unwrap_err().to_string().contains("crimson"));
        assert!(Theme::from_toml("evil = \"red\"").unwrap_err().to_string().contains("evil"));
    }

    #[test]
    fn ascii_glyphs_are_ascii() {
        let glyphs = ASCII;
        assert!(glyphs.levels.iter().all(char::is_ascii));
        for text in [glyphs.dot, glyphs.tick, glyphs.cross, glyphs.pointer, glyphs.arrows.0, glyphs.arrows.1]
        {
            assert!(text.is_ascii());
        }
        for c in [glyphs.ellipsis, glyphs.full, glyphs.empty, glyphs.line, glyphs.bar, glyphs.point] {
            assert!(c.is_ascii());
        }
    }
}
