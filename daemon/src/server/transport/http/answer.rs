//! Pure: what an HTTP answer means before its body is taken for a message.
//!
//! Promise: content types are compared by essence; nothing here calls an answer "session gone" that
//! an ordinary error of a tool could be. May not touch: the network.

use std::time::{Duration, SystemTime};

/// Longest `Retry-After` that is believed. Longer ones are cut to this.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Characters of a page that are shown.
const EXCERPT: usize = 160;

/// What a body is, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// `application/json` and everything `+json`.
    Json,
    /// `text/event-stream`.
    Events,
    /// A page for people.
    Html,
    /// Something else.
    Other,
    /// No content type at all.
    Absent,
}

impl Media {
    /// By the value of `Content-Type`, parameters left aside.
    pub fn of(content_type: Option<&str>) -> Self {
        let Some(value) = content_type else { return Self::Absent };
        let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "" => Self::Absent,
            "text/event-stream" => Self::Events,
            "text/html" | "application/xhtml+xml" => Self::Html,
            "application/json" | "text/json" => Self::Json,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::Other,
        }
    }
}

/// Whether an answer with this status and body says that the session is not known any more.
///
/// Only asked about requests that carried a session id. 404 is what the protocol says (MCP 2025-11-25,
/// Session Management); the others are what servers in the field send. A JSON-RPC error in a
/// successful answer counts only when its message is nothing but that.
pub fn session_is_gone(status: u16, body: &str) -> bool {
    match status {
        404 => true,
        400 | 409 | 410 | 422 => speaks_of_lost_session(body),
        // Nearly every answer has no such member, and a search is far cheaper than reading a long one.
        200 if !body.contains("\"error\"") => false,
        200 => error_message(body).is_some_and(|message| is_only_lost_session(&message)),
        _ => false,
    }
}

/// What servers call a session that they do not know.
const LOST: [&str; 9] = [
    "session not found",
    "session expired",
    "expired session",
    "unknown session",
    "invalid session",
    "no valid session",
    "session terminated",
    "session does not exist",
    "server not initialized",
];

fn speaks_of_lost_session(body: &str) -> bool {
    let body = words(body);
    LOST.iter().any(|phrase| body.contains(phrase)) || body.contains("invalid or expired session")
}

fn is_only_lost_session(message: &str) -> bool {
    let message = words(message);
    let message = message.strip_prefix("bad request ").unwrap_or(&message);
    let message = message.strip_prefix("not found ").unwrap_or(message);
    // An id behind the phrase is common, a sentence around it is a tool's own error.
    message.split(' ').count() <= 6
        && LOST.iter().chain(&["invalid or expired session"]).any(|phrase| message.starts_with(phrase))
}

/// Letters and digits in lower case, everything between them one space.
fn words(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// `error.message` of a JSON-RPC body.
fn error_message(body: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Failed {
        error: Message,
    }
    #[derive(serde::Deserialize)]
    struct Message {
        message: String,
    }
    serde_json::from_str::<Failed>(body).ok().map(|failed| failed.error.message)
}

/// Reads `Retry-After`: seconds, or a date (RFC 9110, 10.2.3). A date that has passed is zero.
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(value).ok()?;
            let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            let then = u64::try_from(date.timestamp().as_second()).ok()?;
            Duration::from_secs(then).saturating_sub(now)
        }
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// A few words of a body that is no message, for a person: of a page its title, else its text.
/// The server's words: mask before showing.
pub fn excerpt(media: Media, body: &str) -> String {
    let text = match media {
        Media::Html => html_title(body).unwrap_or_else(|| without_tags(body)),
        Media::Json => error_message(body).or_else(|| plain_message(body)).unwrap_or_else(|| body.to_owned()),
        Media::Events | Media::Other | Media::Absent => body.to_owned(),
    };
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut cut: String = one_line.chars().filter(|c| !c.is_control()).take(EXCERPT).collect();
    if cut.chars().count() == EXCERPT {
        cut.push('…');
    }
    match media {
        Media::Html if cut.is_empty() => "an HTML page".to_owned(),
        Media::Html => format!("an HTML page, \"{cut}\""),
        _ => cut,
    }
}

/// What many web frameworks send.
fn plain_message(body: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(body).ok()?;
    ["error_description", "message", "detail", "error"]
        .iter()
        .find_map(|key| value.get(key)?.as_str().map(str::to_owned))
}

fn html_title(body: &str) -> Option<String> {
    let lower = body.to_ascii_lowercase();
    let start = lower.find("<title")?;
    let open = start + lower[start..].find('>')? + 1;
    let end = open + lower[open..].find("</title")?;
    let title = body.get(open..end)?.trim();
    (!title.is_empty()).then(|| title.to_owned())
}

fn without_tags(body: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in body.chars() {
        match c {
            '<' => inside = true,
            '>' if inside => {
                inside = false;
                out.push(' ');
            }
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
