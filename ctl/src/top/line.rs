//! One line of an event or a log, fit for the screen.
//!
//! Pure. Promise: nothing in it can act on a terminal.

use crate::render::table::Tone;
use crate::render::text;
use serde_json::Value;

/// Longest line that is kept, in characters.
const LONGEST: usize = 400;

/// A line and how it should strike the eye.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What is shown.
    pub text: String,
    /// How.
    pub tone: Tone,
}

impl Line {
    /// Words of any origin.
    pub fn of(words: &str, tone: Tone) -> Self {
        Self { text: text::summary(words, LONGEST), tone }
    }

    /// A line of a log: the daemon's own is JSON, of which time, level, message and facts are shown; a
    /// server's is its own words.
    pub fn of_log(line: &str) -> Self {
        match serde_json::from_str::<Value>(line) {
            Ok(Value::Object(members)) => {
                let word = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
                let (level, at) = (word("level"), word("timestamp"));
                let mut words = vec![clock(at).to_owned(), level.to_owned()];
                let facts = members.get("fields").and_then(Value::as_object).unwrap_or(&members);
                words.extend(facts.get("message").and_then(Value::as_str).map(str::to_owned));
                let known = ["message", "level", "timestamp", "target", "fields", "span", "spans"];
                for (name, value) in facts.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    words.push(format!("{name}={value}"));
                }
                words.retain(|word| !word.is_empty());
                Self::of(&words.join(" "), tone_of(level))
            }
            _ => Self::of(line, Tone::Plain),
        }
    }
}

/// The time of day in a time stamp.
fn clock(stamp: &str) -> &str {
    let time = stamp.split_once('T').map_or(stamp, |(_, time)| time);
    time.get(..8).unwrap_or(time)
}

fn tone_of(level: &str) -> Tone {
    match level {
        "ERROR" => Tone::Bad,
        "WARN" => Tone::Wary,
        _ => Tone::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_daemon_is_time_level_message_and_facts() {
        let line = r#"{"timestamp":"2026-11-30T22:44:22.123Z","level":"WARN","fields":{"message":"slow","server":"fs","n":3},"target":"x"}"#;
        assert_eq!(
            Line::of_log(line),
            Line { text: "22:44:22 WARN slow server=fs n=3".into(), tone: Tone::Wary }
        );
    }

    #[test]
    fn a_line_of_a_server_is_its_words_and_cannot_act_on_the_terminal() {
        assert_eq!(Line::of_log("boom\x1b[2J").text, "boom\\u{1b}[2J");
        assert_eq!(Line::of_log(&"x".repeat(9000)).text.chars().count(), LONGEST);
    }
}
