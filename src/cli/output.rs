//! What commands print: aligned tables, JSON, times for people, errors on one line.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;

use crate::core::text::visible;

/// A mistake in how a command was called, found after parsing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The chain of an error on one line.
pub fn chain(err: &anyhow::Error) -> String {
    err.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Whether the reader of our output has gone (`waypost dlq list | head`).
pub fn is_closed_pipe(err: &anyhow::Error) -> bool {
    err.chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|err| err.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints a value as JSON, indented for people, on one line for programs.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = if std::io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)?
    } else {
        serde_json::to_string(value)?
    };
    line(&text)
}

/// Prints one line; a closed pipe comes back as an error instead of a panic.
pub fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Asks a person yes or no on the terminal; without a terminal the answer is no.
pub fn confirm(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Usage(format!(
            "{question} Say --yes to do it without a question, or --dry-run to look."
        ))
        .into());
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A table whose columns line up; text from outside comes out with control characters shown, never sent.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With a header.
    pub fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.iter().map(|cell| visible(cell).into_owned()).collect());
    }

    /// Prints it; numbers (columns named in `right`) line up at their end.
    pub fn print(&self, right: &[usize]) -> anyhow::Result<()> {
        use ratatui::text::Span;
        let width = |text: &str| Span::raw(text).width();
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            let mut text = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - width(cell));
                if right.contains(&column) {
                    text += &pad;
                    text += cell;
                } else {
                    text += cell;
                    text += &pad;
                }
                text += "  ";
            }
            line(text.trim_end())?;
        }
        Ok(())
    }
}

/// `95` → `1m 35s`.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A delay for people.
pub fn delay(delay: Duration) -> String {
    if delay < Duration::from_mins(1) { format!("{:.1}s", delay.as_secs_f64()) } else { age(delay.as_secs()) }
}

/// `1536` → `1.5 KiB`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 || unit == "GiB" {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{bytes} B")
}

/// `1234567` → `1 234 567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(size(1_536), "1.5 KiB");
        assert_eq!(size(12), "12 B");
        assert_eq!(age(95), "1m 35s");
        assert_eq!(age(90_000), "1d 1h");
    }
}
