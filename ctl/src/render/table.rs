//! Tables: drawn on a terminal, plain aligned columns when piped.
//!
//! Colour only repeats what the words say, and is off with NO_COLOR or when piped. On a terminal
//! too narrow for the columns each row becomes a block of lines: words are never broken for space.

use super::text;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table as Drawn, Width, presets};
use std::io::{IsTerminal, stdout};

/// Spaces around each column.
const PADDING: u16 = 2;
/// Words longer than this (paths, addresses) may be broken: no table would hold them.
const LONGEST_WORD: usize = 24;

/// Room for the text of the last column before it becomes a heap of words.
const LEAST_PROSE: usize = 20;

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
            Style::Drawn { colour } => self.drawn(colour, None),
        }
    }

    fn drawn(&self, colour: Colour, terminal: Option<u16>) -> String {
        let mut table = Drawn::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        if let Some(columns) = terminal {
            table.set_width(columns);
        }
        let least: Vec<u16> = (0..self.header.len()).map(|column| self.least_width(column)).collect();
        // With a separator beside each column, drawn or not.
        let borders = u16::try_from(least.len()).unwrap_or(u16::MAX).saturating_mul(PADDING + 1);
        let needed = least.iter().fold(borders, |sum, width| sum.saturating_add(*width));
        if let Some(columns) = table.width().filter(|columns| *columns < needed) {
            return self.blocks(usize::from(columns));
        }
        table.set_header(self.header.iter());
        for row in &self.rows {
            table.add_row(row.iter().map(|(cell, tone)| match (colour, colour_of(*tone)) {
                (Colour::On, Some(colour)) => Cell::new(cell).fg(colour),
                _ => Cell::new(cell),
            }));
        }
        let wide = least.iter().map(|width| ColumnConstraint::LowerBoundary(Width::Fixed(width + PADDING)));
        table.set_constraints(wide);
        format!("{table}\n")
    }

    /// The width of a column's longest word; the last column, which says why, needs some more.
    fn least_width(&self, column: usize) -> u16 {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|(cell, _)| cell.as_str());
        let words = cells.chain([self.header[column]]).flat_map(str::split_whitespace);
        let longest = words.map(|word| word.chars().count()).max().unwrap_or(0).min(LONGEST_WORD);
        let prose = if column + 1 == self.header.len() { LEAST_PROSE } else { 0 };
        let all = self.rows.iter().filter_map(|row| row.get(column)).map(|(cell, _)| cell.chars().count());
        u16::try_from(longest.max(all.max().unwrap_or(0).min(prose))).unwrap_or(u16::MAX)
    }

    /// Each row as its first cell and below it one line for each other cell that says something.
    fn blocks(&self, columns: usize) -> String {
        let label = self.header.iter().skip(1).map(|header| header.chars().count()).max().unwrap_or(0);
        let mut out = String::new();
        for row in &self.rows {
            let mut cells = self.header.iter().zip(row);
            if let Some((_, (first, _))) = cells.next() {
                out.push_str(first);
                out.push('\n');
            }
            for (header, (cell, _)) in cells.filter(|(_, (cell, _))| !cell.is_empty()) {
                let mut lines = wrapped(cell, columns.saturating_sub(label + 4)).into_iter();
                out.push_str(&format!("  {header:<label$}  {}\n", lines.next().unwrap_or_default()));
                for line in lines {
                    out.push_str(&format!("  {:label$}  {line}\n", ""));
                }
            }
        }
        out
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

/// `text` in lines of at most `width` characters, broken between words; a longer word stands alone.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
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

    fn servers() -> Table {
        let mut table = Table::new(&["server", "state", "in flight", "why"]);
        let why = "exit code 127; the next attempt comes in 9m 12s";
        table.row(["filesystem", "parked", "12 +3 waiting", why].map(|cell| (cell, Tone::Plain)));
        table.row(["b", "ready", "0", ""].map(|cell| (cell, Tone::Plain)));
        table
    }

    #[test]
    fn a_narrow_terminal_gets_blocks_in_place_of_columns() {
        assert_eq!(
            servers().drawn(Colour::Off, Some(34)),
            "filesystem\n  state      parked\n  in flight  12 +3 waiting\n  why        exit code 127; the\n             \
             next attempt comes in\n             9m 12s\nb\n  state      ready\n  in flight  0\n"
        );
    }

    #[test]
    fn no_width_breaks_a_word_or_leaves_the_terminal() {
        for columns in 30..200 {
            let drawn = servers().drawn(Colour::Off, Some(columns));
            for word in ["filesystem", "parked", "attempt", "waiting", "flight"] {
                assert!(columns < 40 || drawn.contains(word), "{columns}:\n{drawn}");
            }
            let widest = drawn.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns), "{columns}:\n{drawn}");
        }
    }
}
