//! The first line in each direction, the control lines, and the resume string.
//!
//! Promise: version 1 of the hello stays readable for ever; unknown members are ignored, so both
//! sides may add some. Carries no secrets.

use serde::{Deserialize, Serialize};

/// First word of a hello line; the number after the slash is the hello version.
pub const MAGIC: &str = "hermes-mcp/1";

/// First word of the control line by which the daemon hands the shim its resume string.
pub const RESUME_PREFIX: &str = "#resume ";

/// Longest accepted hello or control line in bytes, newline included.
pub const MAX_HELLO_BYTES: usize = 1024 * 1024;

/// Which part of the offer a client asked for (`--only`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// Conversation tools and servers.
    #[default]
    All,
    /// The ten conversation tools.
    Conversations,
    /// The tools of the configured servers.
    Servers,
}

/// What a shim says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Canonical HERMES_HOME the shim means; a daemon of another home refuses.
    pub home: String,
    /// Version of the shim, for status.
    pub version: String,
    /// Name of the profile, `default` when none was asked for.
    #[serde(default = "default_profile")]
    pub profile: String,
    /// Which part of the offer the client wants.
    #[serde(default)]
    pub only: Only,
    /// Pid of the shim's parent (the client), for status and audit only.
    #[serde(default)]
    pub client_pid: u32,
    /// The opaque string from the daemon's last `#resume` line, when this is a reconnect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

fn default_profile() -> String {
    "default".to_owned()
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Welcome {
    /// The session is open; MCP lines follow.
    Ok {
        /// Version of the daemon.
        version: String,
        /// Random prefix of every request id that the daemon makes on this connection.
        id_prefix: String,
        /// Whether the resume string of the hello was understood and the session is as it was.
        resumed: bool,
    },
    /// The daemon will not serve this shim; it closes after this line. The shim turns the text
    /// into the JSON-RPC error of each request.
    Refused {
        /// Stable word for programs: `home`, `version`, `profile`, `busy`, `nested`, `stopping`.
        code: String,
        /// One sentence for a person, with what to do next.
        message: String,
    },
}

/// Why a hello line cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// The line does not start with a known magic word.
    #[error("not a hermes shim hello; this socket speaks `{MAGIC}`")]
    Magic,
    /// The JSON after the magic word does not parse.
    #[error("hello line is damaged: {0}")]
    Json(#[from] serde_json::Error),
}

/// Writes `hello` as one line, newline included.
pub fn write_line<T: Serialize>(hello: &T) -> String {
    let json = serde_json::to_string(hello).expect("hello types hold only strings, numbers and bools");
    format!("{MAGIC} {json}\n")
}

/// Reads a line made by [`write_line`]; a trailing newline is allowed.
///
/// # Errors
/// [`HelloError`] when the magic word or the JSON is not as expected.
pub fn read_line<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, HelloError> {
    let rest = line.strip_prefix(MAGIC).ok_or(HelloError::Magic)?;
    Ok(serde_json::from_str(rest.trim())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_survives_the_round_trip_and_ignores_unknown_members() {
        let hello = Hello {
            home: "/h".into(),
            version: "1".into(),
            profile: "default".into(),
            only: Only::Servers,
            client_pid: 7,
            resume: Some("x".into()),
        };
        assert_eq!(read_line::<Hello>(&write_line(&hello)).unwrap(), hello);
        let later = r#"hermes-mcp/1 {"home":"/h","version":"9","brand_new":[1]}"#;
        assert_eq!(read_line::<Hello>(later).unwrap().profile, "default");
    }

    #[test]
    fn a_stranger_is_told_what_this_socket_is() {
        assert!(matches!(read_line::<Hello>("GET / HTTP/1.1"), Err(HelloError::Magic)));
    }
}
