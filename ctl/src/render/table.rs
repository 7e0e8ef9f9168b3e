//! Tables: drawn on a terminal, plain aligned columns when piped.
//!
//! Colour only repeats what the words say, and is off with NO_COLOR or when piped.

use super::text;
use comfy_table::{Cell, Color, ContentArrangement, Table as Drawn, presets};
use std::io::{IsTerminal, stdout};

/// What a cell means, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    Plain,
    /// As it should be.
    Good,
    /// Heals alone, or will.
    Wary,
    /// Someone must act.
    Bad,
}

/// Rows of text under a header. Cell texts are escaped here.
#[derive(Debug)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<(String, Tone)>>,
}

/// How to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// For a terminal, with or without colour.
    Drawn {
        /// Whether tones become colours.
        colour: Colour,
    },
    /// For a pipe or file.
    Aligned,
}

/// Whether tones become colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// They do.
    On,
    /// They do not.
    Off,
}

impl Style {
    /// What suits stdout and the environment.
    pub fn of_stdout() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match (stdout().is_terminal(), no_color || dumb) {
            (false, _) => Self::Aligned,
            (true, true) => Self::Drawn { colour: Colour::Off },
            (true, false) => Self::Drawn { colour: Colour::On },
        }
    }
}

impl Table {
    /// An empty table.
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = (S, Tone)>) {
        self.rows.push(cells.into_iter().map(|(cell, tone)| (text::plain(cell.as_ref()), tone)).collect());
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, with a final line break.
    pub fn render(&self, style: Style) -> String {
        match style {
            Style::Aligned => self.aligned(),
            Style::Drawn { colour } => self.drawn(colour),
        }
    }

    fn drawn(&self, colour: Colour) -> String {
        let mut table = Drawn::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(self.header.iter());
        for row in &self.rows {
            table.add_row(row.iter().map(|(cell, tone)| match (colour, colour_of(*tone)) {
                (Colour::On, Some(colour)) => Cell::new(cell).fg(colour),
                _ => Cell::new(cell),
            }));
        }
        format!("{table}\n")
    }

    fn aligned(&self) -> String {
        let header = self.header.iter().map(|h| h.to_uppercase());
        let rows = self.rows.iter().map(|row| row.iter().map(|(cell, _)| cell.clone()).collect());
        let lines: Vec<Vec<String>> = std::iter::once(header.collect()).chain(rows).collect();
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut out = String::new();
        for line in &lines {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            out.push('\n');
        }
        out
    }
}

fn colour_of(tone: Tone) -> Option<Color> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some(Color::Green),
        Tone::Wary => Some(Color::Yellow),
        Tone::Bad => Some(Color::Red),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["name", "state"]);
        table.row([("fs", Tone::Plain), ("ready\x1b[2J", Tone::Good)]);
        table
    }

    #[test]
    fn piped_tables_are_plain_columns() {
        assert_eq!(table().render(Style::Aligned), "NAME  STATE\nfs    ready\\u{1b}[2J\n");
    }

    #[test]
    fn no_escape_of_a_server_reaches_a_terminal() {
        for colour in [Colour::On, Colour::Off] {
            let drawn = table().render(Style::Drawn { colour });
            assert!(!drawn.contains("\x1b[2J"), "{drawn:?}");
            assert!(drawn.contains("ready"));
        }
    }
}
