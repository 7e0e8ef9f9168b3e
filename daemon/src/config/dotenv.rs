//! Pure: the `.env` file of a home, read as Hermes Agent reads it.
//!
//! Promise: never fails; what it had to repair or skip is in `remarks`, without values. The file
//! itself is never rewritten. May not touch: files, the process environment.

use super::interpolate::{self, Outcome};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What a `.env` file says.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Dotenv {
    /// Variables; the last of repeated ones.
    pub values: BTreeMap<String, String>,
    /// What was repaired or skipped: 1-based line and what.
    pub remarks: Vec<(u32, Remark)>,
}

/// Something that was not read as written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Remark {
    /// Read as Latin-1.
    #[error("the file is not valid UTF-8 and is read as Latin-1")]
    NotUtf8,
    /// Bytes that no variable can hold.
    #[error("NUL bytes were left out")]
    Nul,
    /// Two assignments in one line.
    #[error("`{name}` is glued to the value before it and was split off")]
    Glued {
        /// The later name.
        name: String,
    },
    /// Look-alike characters from a copied key.
    #[error("`{name}` has characters outside ASCII, which no key has; they were left out")]
    NonAscii {
        /// The variable.
        name: String,
    },
    /// Not `NAME=value`.
    #[error("this line is not `NAME=value` and was skipped")]
    NotAnAssignment,
    /// A quote that is not closed.
    #[error("the quote of `{name}` is not closed; the line was skipped")]
    UnclosedQuote {
        /// The variable.
        name: String,
    },
    /// A variable inside a value.
    #[error("`{name}` uses `{unset}`, which is not set, and was skipped")]
    Unset {
        /// The variable.
        name: String,
        /// What it refers to.
        unset: String,
    },
}

/// Names of variables that people paste without a line break between them.
const WELL_KNOWN: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "BRAVE_API_KEY",
    "DEEPSEEK_API_KEY",
    "DISCORD_BOT_TOKEN",
    "ELEVENLABS_API_KEY",
    "EXA_API_KEY",
    "FAL_KEY",
    "FIRECRAWL_API_KEY",
    "GEMINI_API_KEY",
    "GITHUB_TOKEN",
    "GOOGLE_API_KEY",
    "GROQ_API_KEY",
    "HASS_TOKEN",
    "HASS_URL",
    "HF_TOKEN",
    "KIMI_API_KEY",
    "LINEAR_API_KEY",
    "MATRIX_ACCESS_TOKEN",
    "MINIMAX_API_KEY",
    "MISTRAL_API_KEY",
    "NOTION_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENROUTER_API_KEY",
    "SIGNAL_ACCOUNT",
    "SIGNAL_HTTP_URL",
    "SLACK_APP_TOKEN",
    "SLACK_BOT_TOKEN",
    "TAVILY_API_KEY",
    "TELEGRAM_ALLOWED_USERS",
    "TELEGRAM_BOT_TOKEN",
    "TELEGRAM_HOME_CHANNEL",
    "XAI_API_KEY",
];

/// Reads a `.env` file.
///
/// `process` is asked for variables that values refer to and that the file does not set before.
/// `referenced` are names that the configuration uses; with the well-known ones and those that
/// start a line of the file they decide where glued assignments are split.
pub fn parse(bytes: &[u8], process: &dyn Fn(&str) -> Option<String>, referenced: &[&str]) -> Dotenv {
    let mut reader = Reader { process, known: BTreeSet::new(), out: Dotenv::default() };
    let text = reader.decode(bytes);
    reader.known.extend(WELL_KNOWN.iter().map(|name| (*name).to_owned()));
    reader.known.extend(referenced.iter().map(|name| (*name).to_owned()));
    // Short names at a line's start are no evidence: `ID=` may be part of a value.
    let starts = text.lines().filter_map(|line| assignment(line).map(|(name, _)| name));
    reader.known.extend(starts.filter(|name| name.len() >= 5 && name.contains('_')).map(str::to_owned));
    reader.read(&text);
    reader.out
}

/// Name and rest of `[export] NAME = rest`.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let line = line.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).unwrap_or(line);
    let (name, rest) = line.split_once('=')?;
    let name = name.trim().trim_matches('\'');
    (!name.is_empty() && !name.contains(char::is_whitespace))
        .then(|| (name, rest.trim_start_matches([' ', '\t'])))
}

fn is_credential(name: &str) -> bool {
    ["_API_KEY", "_TOKEN", "_SECRET", "_KEY"].iter().any(|suffix| name.ends_with(suffix))
}

struct Reader<'a> {
    process: &'a dyn Fn(&str) -> Option<String>,
    known: BTreeSet<String>,
    out: Dotenv,
}

impl Reader<'_> {
    fn decode<'t>(&mut self, bytes: &'t [u8]) -> Cow<'t, str> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text)),
            Err(_) => {
                self.out.remarks.push((0, Remark::NotUtf8));
                Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect())
            }
        };
        if text.contains('\0') {
            self.out.remarks.push((0, Remark::Nul));
            return Cow::Owned(text.replace('\0', ""));
        }
        text
    }

    fn read(&mut self, text: &str) {
        let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
        let mut at = 0;
        while at < lines.len() {
            let number = u32::try_from(at + 1).unwrap_or(u32::MAX);
            let line = lines[at].trim();
            at += 1;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, rest)) = assignment(lines[at - 1]) else {
                // A bare name sets nothing, as in Python's reader.
                if !interpolate::is_name(line) {
                    self.out.remarks.push((number, Remark::NotAnAssignment));
                }
                continue;
            };
            match rest.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    // Quoted values may go over several lines.
                    let mut whole = rest[1..].to_owned();
                    let mut end = closing(&whole, quote);
                    let mut next = at;
                    while end.is_none() && next < lines.len() {
                        whole.push('\n');
                        whole.push_str(lines[next]);
                        next += 1;
                        end = closing(&whole, quote);
                    }
                    match end {
                        Some(end) => {
                            at = next;
                            self.set(number, name, &unescape(&whole[..end], quote));
                            self.after_quote(number, &whole[end + 1..]);
                        }
                        None => {
                            self.out.remarks.push((number, Remark::UnclosedQuote { name: name.to_owned() }));
                        }
                    }
                }
                _ => self.unquoted(number, name, rest),
            }
        }
    }

    fn unquoted(&mut self, number: u32, name: &str, rest: &str) {
        let comment =
            rest.char_indices().find(|(at, c)| *c == '#' && (*at == 0 || rest[..*at].ends_with([' ', '\t'])));
        let value = comment.map_or(rest, |(at, _)| &rest[..at]).trim_end();
        match self.glued(value) {
            Some((at, next)) => {
                self.set(number, name, value[..at].trim_end());
                self.out.remarks.push((number, Remark::Glued { name: next.clone() }));
                let (_, rest) = value[at..].split_once('=').expect("glued() found `NAME=`");
                self.unquoted(number, &next, rest);
            }
            None => self.set(number, name, value),
        }
    }

    fn after_quote(&mut self, number: u32, rest: &str) {
        if let Some((name, value)) = assignment(rest).filter(|(name, _)| self.known.contains(*name)) {
            let value = value.trim().trim_matches(['"', '\'']).to_owned();
            self.out.remarks.push((number, Remark::Glued { name: name.to_owned() }));
            self.set(number, name, &value);
        }
    }

    /// Where a known `NAME=` starts inside `value`; of overlapping ones the longest.
    fn glued(&self, value: &str) -> Option<(usize, String)> {
        let equals = value.match_indices('=').map(|(at, _)| at);
        equals
            .filter_map(|at| {
                let longest = self
                    .known
                    .iter()
                    .filter(|name| value[..at].ends_with(name.as_str()))
                    .max_by_key(|n| n.len())?;
                let start = at - longest.len();
                // `?KEY=`, `&KEY=` and `MY_KEY=` are parts of a value or of a longer name.
                let glued = start > 0 && !value[..start].ends_with(['_', '?', '&', '-', '.', '/', '$', '{']);
                glued.then(|| (start, longest.clone()))
            })
            .next()
    }

    fn set(&mut self, number: u32, name: &str, raw: &str) {
        let values = &self.out.values;
        let lookup = |wanted: &str| values.get(wanted).cloned().or_else(|| (self.process)(wanted));
        let mut value = match interpolate::interpolate(raw, &lookup).outcome {
            Outcome::Text(text) => text,
            Outcome::Unset { name: unset } => {
                self.out.remarks.push((number, Remark::Unset { name: name.to_owned(), unset }));
                return;
            }
        };
        if is_credential(name) && !value.is_ascii() {
            value.retain(|c| c.is_ascii());
            self.out.remarks.push((number, Remark::NonAscii { name: name.to_owned() }));
        }
        self.out.values.insert(name.to_owned(), value);
    }
}

/// Byte index of the quote that ends `text`.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescape(text: &str, quote: char) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match (chars.next(), quote) {
            (Some(next @ ('\\' | '\'')), _) => out.push(next),
            (Some('"'), '"') => out.push('"'),
            (Some('n'), '"') => out.push('\n'),
            (Some('r'), '"') => out.push('\r'),
            (Some('t'), '"') => out.push('\t'),
            (Some(other), _) => out.extend(['\\', other]),
            (None, _) => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Dotenv {
        parse(text.as_bytes(), &|name| (name == "FROM_PROCESS").then(|| "p".to_owned()), &["B"])
    }

    fn value(text: &str, name: &str) -> String {
        read(text).values.get(name).cloned().unwrap_or_else(|| panic!("{name} is not set by {text:?}"))
    }

    #[test]
    fn lines_are_read_with_quotes_comments_and_export() {
        let text = "\u{feff}# c\r\nA=1\r\nexport B2 = two words # c\n C='x # y'  # c\nD=\"a\\tb\\\"c\\n\"\nE=\nF=a#b\nG='it\\'s'\nH\n";
        let got = read(text);
        let pairs: Vec<(&str, &str)> = got.values.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let wanted = [
            ("A", "1"),
            ("B2", "two words"),
            ("C", "x # y"),
            ("D", "a\tb\"c\n"),
            ("E", ""),
            ("F", "a#b"),
            ("G", "it's"),
        ];
        assert_eq!(pairs, wanted);
        assert_eq!(got.remarks, []);
    }

    #[test]
    fn quoted_values_go_over_lines_and_an_open_quote_costs_one_line() {
        assert_eq!(value("K=\"-----BEGIN\nx\n-----END\"\nA=1\n", "K"), "-----BEGIN\nx\n-----END");
        let got = read("K=\"open\nA=1\n");
        assert_eq!(got.values.get("A").map(String::as_str), Some("1"));
        assert_eq!(got.remarks, [(1, Remark::UnclosedQuote { name: "K".into() })]);
    }

    #[test]
    fn glued_assignments_of_known_names_are_split() {
        let got = read(
            "A=1B=2\nX_KEY=abcOPENAI_API_KEY=def\nTELEGRAM_BOT_TOKEN=t1TELEGRAM_BOT_TOKEN=t2\nQ=\"q\"B=3\n",
        );
        for (name, wanted) in [
            ("A", "1"),
            ("B", "3"),
            ("X_KEY", "abc"),
            ("OPENAI_API_KEY", "def"),
            ("TELEGRAM_BOT_TOKEN", "t2"),
            ("Q", "q"),
        ] {
            assert_eq!(got.values.get(name).map(String::as_str), Some(wanted), "{name}");
        }
        assert_eq!(got.remarks.len(), 4);
    }

    #[test]
    fn values_that_only_look_glued_stay_whole() {
        for text in ["U=http://h/?B=1&OPENAI_API_KEY=x", "U=aMY_B=1", "U=base64==", "U=a=b", "U=x-B=1"] {
            let got = read(text);
            assert_eq!((got.values["U"].as_str(), got.remarks.len()), (&text[2..], 0), "{text}");
        }
    }

    #[test]
    fn latin_1_nul_and_look_alike_characters_are_repaired_and_remarked() {
        let got = parse(b"NAME=caf\xe9\0\nMY_TOKEN=ab\xe9c\n", &|_| None, &[]);
        assert_eq!((got.values["NAME"].as_str(), got.values["MY_TOKEN"].as_str()), ("café", "abc"));
        assert_eq!(
            got.remarks,
            [(0, Remark::NotUtf8), (0, Remark::Nul), (2, Remark::NonAscii { name: "MY_TOKEN".into() })]
        );
    }

    #[test]
    fn values_may_refer_to_earlier_ones_and_to_the_process() {
        assert_eq!(value("A=1\nC=${A}-${FROM_PROCESS}-${NO:-d}\n", "C"), "1-p-d");
        let got = read("C=${NO}\n");
        assert!(got.values.is_empty());
        assert_eq!(got.remarks, [(1, Remark::Unset { name: "C".into(), unset: "NO".into() })]);
    }

    #[test]
    fn remarks_show_no_values() {
        let got = read("a secret line without sign\nK='topsecret\n");
        for (_, remark) in &got.remarks {
            assert!(!remark.to_string().contains("secret"), "{remark}");
        }
        assert_eq!(got.remarks.len(), 2);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&bytes, &|_| None, &["A"]);
        }

        #[test]
        fn quoted_values_round_trip(value in "[^\0\r$]{0,30}") {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
            let got = parse(format!("V=\"{escaped}\"\n").as_bytes(), &|_| None, &[]);
            prop_assert_eq!(&got.values["V"], &value);
        }
    }
}
