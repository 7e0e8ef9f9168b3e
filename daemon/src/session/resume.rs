//! The opaque string by which a session survives the daemon.
//!
//! Pure. The daemon gives it to the shim on a control line and gets it back in the next hello,
//! maybe as a newer version of itself; what it cannot read it ignores, and the client then starts
//! anew. Holds no secrets.

use super::subscriptions::Kept;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Version of the content.
const VERSION: u32 = 1;

/// What a session needs to go on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resumed {
    v: u32,
    /// Negotiated MCP revision.
    pub revision: String,
    /// `clientInfo`, raw.
    pub client: Option<Box<RawValue>>,
    /// `capabilities` of the client, raw.
    pub capabilities: Option<Box<RawValue>>,
    /// Level of `logging/setLevel`, if one was set.
    pub log_level: Option<String>,
    /// Resources that it follows.
    #[serde(default)]
    pub subscriptions: Vec<Kept>,
    /// Raw ids of its open `subscriptions/listen`, which the shim sends again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<String>,
}

impl Resumed {
    /// The state of a session that has been initialized.
    pub fn new(
        revision: &str,
        client: Option<Box<RawValue>>,
        capabilities: Option<Box<RawValue>>,
        log_level: Option<String>,
    ) -> Self {
        let (subscriptions, streams) = (Vec::new(), Vec::new());
        Self {
            v: VERSION,
            revision: revision.to_owned(),
            client,
            capabilities,
            log_level,
            subscriptions,
            streams,
        }
    }

    /// With the resources that the client follows.
    #[must_use]
    pub fn following(self, subscriptions: Vec<Kept>) -> Self {
        Self { subscriptions, ..self }
    }

    /// With the ids of its open `subscriptions/listen`.
    #[must_use]
    pub fn streaming(self, streams: Vec<String>) -> Self {
        Self { streams, ..self }
    }

    /// As one word.
    pub fn seal(&self) -> String {
        let json = serde_json::to_vec(self).expect("raw JSON and text serialise");
        STANDARD_NO_PAD.encode(json)
    }

    /// Reads a word made by [`seal`](Self::seal); `None`: another version, or damaged.
    pub fn open(word: &str) -> Option<Self> {
        let json = STANDARD_NO_PAD.decode(word).ok()?;
        serde_json::from_slice::<Self>(&json).ok().filter(|resumed| resumed.v == VERSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_survives_the_round_trip_and_garbage_is_ignored() {
        let info = RawValue::from_string(r#"{"name":"c","version":"1","x":1.0}"#.into()).unwrap();
        let sealed = Resumed::new("2025-06-18", Some(info), None, Some("debug".into())).seal();
        let open = Resumed::open(&sealed).unwrap();
        assert_eq!(open.client.unwrap().get(), r#"{"name":"c","version":"1","x":1.0}"#);
        assert_eq!((open.revision.as_str(), open.log_level.as_deref()), ("2025-06-18", Some("debug")));
        assert!(Resumed::open("???").is_none() && Resumed::open(&sealed[..9]).is_none());
    }
}
