//! The first words with a server: initialize, and what was agreed.
//!
//! Pure but for [`agree`], which waits on the wire. The wire answers requests of the server
//! from the first byte, so a server may ask before it answers. Promise: `notifications/initialized`
//! is sent exactly once a generation, after the answer and before any other request.
//! May not touch: processes, listings.
//!
//! Which [`Era`] a server belongs to is decided here and nowhere else.

use super::pages::read_error;
use super::wire::questions::Sampling;
use super::wire::{Answer, Carrier, Progress, Request, WireError, WireHandle};
use crate::config::{ProtocolChoice, RemoteKind, ServerConfig, Sharing, TransportConfig};
use crate::jsonrpc::era::{self, Era, INITIALIZE_REVISIONS, LATEST_INITIALIZE, PER_REQUEST};
use crate::jsonrpc::splice::{Members, ObjectWriter};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What was agreed with one generation.
#[derive(Debug, Clone)]
pub struct Agreed {
    /// How the session runs.
    pub era: Era,
    /// The revision both sides use.
    pub revision: &'static str,
    /// `serverInfo.name`; empty: not said.
    pub name: String,
    /// `serverInfo.version`; empty: not said.
    pub version: String,
    /// `capabilities`, raw; an object.
    pub capabilities: Box<RawValue>,
    /// `instructions`.
    pub instructions: Option<String>,
}

/// Why there is no agreement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The connection gave no answer.
    #[error("initialize: {0}")]
    Wire(#[from] WireError),
    /// The server answered with an error.
    #[error("initialize: the server answered error {code}: {message}")]
    Refused {
        /// JSON-RPC code.
        code: i64,
        /// Its text, at most 300 characters.
        message: String,
    },
    /// The server speaks only a revision that we do not, or not the pinned one.
    #[error(
        "initialize: the server speaks protocol `{offered}`, hermesd asked for `{asked}` and knows {known}"
    )]
    Revision {
        /// What it offered.
        offered: String,
        /// What we asked for.
        asked: String,
        /// What we can speak.
        known: String,
    },
    /// The pinned revision is not one we know.
    #[error("protocol `{pinned}` is not known; known are {known}")]
    UnknownPin {
        /// What the configuration says.
        pinned: String,
        /// What we can speak.
        known: String,
    },
    /// The answer is not an initialize result.
    #[error("initialize: the answer is no object with a protocolVersion")]
    NoResult,
}

impl HandshakeError {
    /// Whether the server may belong to the era without a handshake: it refused `initialize` as a
    /// method or for what the request lacks (2026-07-28, Versioning).
    fn names_other_era(&self) -> bool {
        match self {
            Self::Refused { code, message } => {
                matches!(code, -32022..=-32020 | -32601)
                    || message.contains(PER_REQUEST)
                    || (*code == -32602 && message.contains("_meta"))
            }
            Self::Revision { offered, .. } => offered == PER_REQUEST,
            Self::Wire(WireError::Http(refusal)) => {
                refusal.status == 400 || refusal.text.contains(PER_REQUEST)
            }
            Self::Wire(_) | Self::UnknownPin { .. } | Self::NoResult => false,
        }
    }

    /// Whether a retry cannot mend it.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Revision { .. } | Self::UnknownPin { .. } => true,
            Self::Wire(_) | Self::Refused { .. } | Self::NoResult => false,
        }
    }
}

fn known_revisions() -> String {
    INITIALIZE_REVISIONS.join(", ")
}

/// The revision to ask for.
fn asked(choice: &ProtocolChoice) -> Result<&'static str, HandshakeError> {
    match choice {
        ProtocolChoice::Auto | ProtocolChoice::Legacy => Ok(LATEST_INITIALIZE),
        ProtocolChoice::Revision(pinned) => era::known(pinned)
            .ok_or_else(|| HandshakeError::UnknownPin { pinned: pinned.clone(), known: known_revisions() }),
    }
}

/// What an instance can do for its server: the `capabilities` of `initialize`, a JSON object. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer(Arc<str>);

impl Offer {
    /// These capabilities.
    pub fn of(capabilities: &RawValue) -> Self {
        Self(Arc::from(capabilities.get()))
    }

    /// By the JSON array that `roots/list` is answered with: nothing else can be asked of an instance that
    /// cannot tell its clients apart.
    pub fn of_roots(roots: &str) -> Self {
        Self(Arc::from(if roots == "[]" { "{}" } else { r#"{"roots":{}}"# }))
    }

    /// By its configuration: where each question reaches the one client that it is about, everything is
    /// offered; what that client lacks is declined then.
    pub(super) fn by_config(config: &ServerConfig, roots: &str) -> Self {
        let tied = match (&config.transport, config.sharing) {
            (_, Sharing::PerClient | Sharing::Exclusive) => true,
            (_, Sharing::PerRoot) => false,
            // Questions come on the answer stream of the call that they are about.
            (TransportConfig::Http(http), Sharing::Shared) => http.kind != RemoteKind::Sse,
            (TransportConfig::Stdio(_), Sharing::Shared) => false,
        };
        match (tied, config.sampling.enabled) {
            (false, _) => Self::of_roots(roots),
            (true, true) => Self(Arc::from(ALL)),
            (true, false) => Self(Arc::from(NO_SAMPLING)),
        }
    }
}

impl Offer {
    /// With what the daemon itself can answer of requests for a model.
    pub(super) fn and_sampling(self, own: Sampling) -> Self {
        let raw = RawValue::from_string(self.0.as_ref().to_owned());
        let (Ok(raw), false) = (raw, own == Sampling::None) else { return self };
        let members = Members::parse(&raw).unwrap_or_default();
        let declared = members.get("sampling").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let sampling = match own {
            Sampling::Tools if declared.get("tools").is_none() => declared.with("tools", "{}"),
            Sampling::None | Sampling::Text | Sampling::Tools if members.get("sampling").is_some() => {
                return self;
            }
            Sampling::None | Sampling::Text | Sampling::Tools => ObjectWriter::default().finish(),
        };
        Self(Arc::from(members.with("sampling", sampling.get()).get()))
    }
}

const ALL: &str = r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;
const NO_SAMPLING: &str = r#"{"roots":{},"elicitation":{"form":{},"url":{}}}"#;

/// Parameters of `initialize`.
fn initialize_params(revision: &str, offer: &Offer) -> Box<RawValue> {
    let mut info = ObjectWriter::default();
    info.string("name", "hermesd").string("version", env!("CARGO_PKG_VERSION"));
    let mut params = ObjectWriter::default();
    params
        .string("protocolVersion", revision)
        .member("capabilities", &offer.0)
        .member("clientInfo", info.finish().get());
    params.finish()
}

/// Reads the answer to `initialize`.
fn read_result(result: &RawValue, asked: &str, choice: &ProtocolChoice) -> Result<Agreed, HandshakeError> {
    let members = Members::parse(result).map_err(|_| HandshakeError::NoResult)?;
    let offered = members.text("protocolVersion").ok_or(HandshakeError::NoResult)?;
    let acceptable = match choice {
        ProtocolChoice::Auto | ProtocolChoice::Legacy => era::known(&offered),
        ProtocolChoice::Revision(pinned) => era::known(&offered).filter(|revision| revision == pinned),
    };
    let revision = acceptable.ok_or_else(|| HandshakeError::Revision {
        offered: offered.chars().take(60).collect(),
        asked: asked.to_owned(),
        known: known_revisions(),
    })?;
    Ok(agreed(Era::Initialize, revision, &members, members.get("serverInfo")))
}

fn agreed(era: Era, revision: &'static str, members: &Members<'_>, info: Option<&RawValue>) -> Agreed {
    let info = info.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let text = |key| info.text(key).map(std::borrow::Cow::into_owned).unwrap_or_default();
    let capabilities = members.get("capabilities").filter(|raw| raw.get().starts_with('{'));
    Agreed {
        era,
        revision,
        name: text("name"),
        version: text("version"),
        capabilities: capabilities.map_or_else(|| ObjectWriter::default().finish(), ToOwned::to_owned),
        instructions: members.text("instructions").map(std::borrow::Cow::into_owned),
    }
}

/// What a server on pipes is asked first, as its last generation taught it. `initialize`, unless it refused
/// that: some servers take the first request for the era of all, so a question of the other era needs a process
/// of its own (rmcp 3.11).
#[derive(Debug, Default)]
pub struct FirstWord(AtomicBool);

impl FirstWord {
    fn is_discover(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, discover: Discover) {
        self.0.store(discover == Discover::First, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discover {
    First,
    IfRefused,
}

/// Longest wait for a server on pipes to say what it is, once it refused `initialize`.
const PROBE: Duration = Duration::from_secs(10);

/// Finds the era of the server and agrees with it, within `budget`: `initialize` first; a server that refuses that
/// as one does that only knows requests which speak for themselves is asked with `server/discover`. `first` is what
/// earlier generations taught, and is told what this one did.
///
/// # Errors
/// [`HandshakeError`]; nothing more may be asked of this generation then.
/// # Cancel safety
/// Not to be repeated on the same generation: a dropped handshake leaves it half introduced.
pub async fn agree(
    wire: &WireHandle,
    choice: &ProtocolChoice,
    offer: &Offer,
    first: &FirstWord,
    budget: Duration,
) -> Result<Agreed, HandshakeError> {
    let begun = Instant::now();
    let is_auto = match choice {
        ProtocolChoice::Revision(pinned) if pinned == PER_REQUEST => return discover(wire, budget).await,
        ProtocolChoice::Auto => true,
        ProtocolChoice::Legacy | ProtocolChoice::Revision(_) => false,
    };
    if is_auto && wire.carrier() == Carrier::Pipes && first.is_discover() {
        let outcome = discover(wire, budget).await;
        if outcome.is_err() {
            first.set(Discover::IfRefused);
        }
        return outcome;
    }
    match initialize(wire, choice, offer, budget).await {
        Err(refusal) if is_auto && refusal.names_other_era() => {
            let left = budget.saturating_sub(begun.elapsed());
            let left = if wire.carrier() == Carrier::Pipes { left.min(PROBE) } else { left };
            let outcome = discover(wire, left).await;
            // Found or not: the next generation is asked this first, and shows it.
            first.set(Discover::First);
            // The first refusal is about what most servers speak, and says more to a person.
            outcome.map_err(|_| refusal)
        }
        outcome => outcome,
    }
}

/// Asks a server of the era without handshake what it is (2026-07-28, Discovery).
async fn discover(wire: &WireHandle, budget: Duration) -> Result<Agreed, HandshakeError> {
    wire.agreed(PER_REQUEST, Era::PerRequest)?;
    let (idle, cap, progress) = (budget, budget, Progress::Unwanted);
    let request = Request { method: "server/discover".into(), params: None, idle, cap, progress };
    match wire.request(request)?.done().await? {
        Answer::Result(result) => read_discovery(&result),
        Answer::Error(error) => Err(refused(&error)),
    }
}

/// Reads the answer to `server/discover`.
fn read_discovery(result: &RawValue) -> Result<Agreed, HandshakeError> {
    let members = Members::parse(result).map_err(|_| HandshakeError::NoResult)?;
    let versions = members.get("supportedVersions").ok_or(HandshakeError::NoResult)?;
    let versions: Vec<String> = serde_json::from_str(versions.get()).map_err(|_| HandshakeError::NoResult)?;
    if !versions.iter().any(|version| version == PER_REQUEST) {
        return Err(HandshakeError::Revision {
            offered: versions.join(", ").chars().take(60).collect(),
            asked: PER_REQUEST.to_owned(),
            known: known_revisions(),
        });
    }
    let meta = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    Ok(agreed(Era::PerRequest, PER_REQUEST, &members, meta.get("io.modelcontextprotocol/serverInfo")))
}

async fn initialize(
    wire: &WireHandle,
    choice: &ProtocolChoice,
    offer: &Offer,
    budget: Duration,
) -> Result<Agreed, HandshakeError> {
    let first = asked(choice)?;
    let agreed = match ask(wire, first, offer, budget).await? {
        Answer::Result(result) => read_result(&result, first, choice)?,
        Answer::Error(error) => match other_revision(&error, first, choice) {
            None => return Err(refused(&error)),
            // Some servers answer an error where the protocol wants their own revision as a result.
            Some(second) => match ask(wire, second, offer, budget).await? {
                Answer::Result(result) => read_result(&result, second, choice)?,
                Answer::Error(error) => return Err(refused(&error)),
            },
        },
    };
    wire.agreed(agreed.revision, agreed.era)?;
    wire.notify("notifications/initialized", None)?;
    Ok(agreed)
}

async fn ask(
    wire: &WireHandle,
    revision: &str,
    offer: &Offer,
    budget: Duration,
) -> Result<Answer, WireError> {
    let params = Some(initialize_params(revision, offer));
    // The wire's own limits, not a timer here: they know when the machine slept.
    let (idle, cap, progress) = (budget, budget, Progress::Unwanted);
    wire.request(Request { method: "initialize".into(), params, idle, cap, progress })?.done().await
}

fn refused(error: &RawValue) -> HandshakeError {
    let (code, message) = read_error(error);
    HandshakeError::Refused { code, message }
}

/// A revision to try after an error that is about the revision; `data.supported` says which
/// (MCP 2025-11-25, Lifecycle, error handling), else the oldest.
fn other_revision(error: &RawValue, asked: &str, choice: &ProtocolChoice) -> Option<&'static str> {
    match choice {
        ProtocolChoice::Revision(_) => return None,
        ProtocolChoice::Auto | ProtocolChoice::Legacy => {}
    }
    let (_, message) = read_error(error);
    let data = Members::parse(error).ok().and_then(|m| m.get("data"));
    let supported = data.and_then(|raw| Members::parse(raw).ok()).and_then(|m| m.get("supported"));
    let supported: Vec<String> =
        supported.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    if !supported.is_empty() && supported.iter().all(|revision| era::known(revision).is_none()) {
        // It names what it speaks, and nothing of it begins with this handshake.
        return None;
    }
    let offered = INITIALIZE_REVISIONS.into_iter().rev().find(|known| supported.iter().any(|s| s == known));
    // What is about the other era is not mended by an older revision of this one.
    let about_revision =
        message.to_ascii_lowercase().contains("version") && !refused(error).names_other_era();
    offered.or(about_revision.then_some(INITIALIZE_REVISIONS[0])).filter(|revision| *revision != asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(version: &str) -> Box<RawValue> {
        let text = format!(
            r#"{{"protocolVersion":"{version}","serverInfo":{{"name":"s","version":"2","x":1}},"capabilities":{{"tools":{{}}}},"instructions":"use me"}}"#
        );
        RawValue::from_string(text).unwrap()
    }

    #[test]
    fn sampling_is_declared_where_the_daemon_itself_can_answer() {
        let declared = |before: &str, own| {
            let raw = RawValue::from_string(before.to_owned()).unwrap();
            Offer::of(&raw).and_sampling(own).0.to_string()
        };
        assert_eq!(declared("{}", Sampling::None), "{}");
        assert_eq!(declared("{}", Sampling::Text), r#"{"sampling":{}}"#);
        assert_eq!(declared(r#"{"roots":{}}"#, Sampling::Tools), r#"{"roots":{},"sampling":{"tools":{}}}"#);
        assert_eq!(declared(r#"{"sampling":{"x":1}}"#, Sampling::Text), r#"{"sampling":{"x":1}}"#);
        assert_eq!(
            declared(r#"{"sampling":{"x":1}}"#, Sampling::Tools),
            r#"{"sampling":{"x":1,"tools":{}}}"#
        );
        assert_eq!(declared(r#"{"sampling":{"tools":{}}}"#, Sampling::Tools), r#"{"sampling":{"tools":{}}}"#);
    }

    #[test]
    fn any_known_revision_that_the_server_offers_is_taken() {
        for revision in INITIALIZE_REVISIONS {
            let agreed = read_result(&answer(revision), LATEST_INITIALIZE, &ProtocolChoice::Auto).unwrap();
            assert_eq!(agreed.revision, revision);
            assert_eq!((agreed.name.as_str(), agreed.version.as_str()), ("s", "2"));
            assert_eq!(agreed.capabilities.get(), r#"{"tools":{}}"#);
        }
    }

    #[test]
    fn an_unknown_revision_is_permanent_and_the_error_names_both() {
        let error = read_result(&answer("9999-01-01"), LATEST_INITIALIZE, &ProtocolChoice::Auto).unwrap_err();
        assert!(error.is_permanent());
        let text = error.to_string();
        assert!(text.contains("9999-01-01") && text.contains("2025-11-25"), "{text}");
    }

    #[test]
    fn a_pin_takes_its_revision_and_no_other() {
        let pin = ProtocolChoice::Revision("2025-06-18".into());
        assert_eq!(asked(&pin).unwrap(), "2025-06-18");
        assert!(read_result(&answer("2025-06-18"), "2025-06-18", &pin).is_ok());
        assert!(read_result(&answer("2025-11-25"), "2025-06-18", &pin).unwrap_err().is_permanent());
        assert!(asked(&ProtocolChoice::Revision("1999".into())).unwrap_err().is_permanent());
    }

    #[test]
    fn what_a_server_leaves_out_is_empty_and_not_an_error() {
        let bare =
            RawValue::from_string(r#"{"protocolVersion":"2024-11-05","capabilities":null}"#.into()).unwrap();
        let agreed = read_result(&bare, LATEST_INITIALIZE, &ProtocolChoice::Auto).unwrap();
        assert_eq!(agreed.capabilities.get(), "{}");
        let none = RawValue::from_string("[]".into()).unwrap();
        assert_eq!(read_result(&none, "", &ProtocolChoice::Auto).unwrap_err(), HandshakeError::NoResult);
    }

    #[test]
    fn an_error_about_the_revision_leads_to_one_that_the_server_supports() {
        let error = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let auto = ProtocolChoice::Auto;
        let told = error(
            r#"{"code":-32602,"message":"Unsupported","data":{"supported":["2024-11-05","2025-03-26"]}}"#,
        );
        assert_eq!(other_revision(&told, LATEST_INITIALIZE, &auto), Some("2025-03-26"));
        let vague = error(r#"{"code":-32602,"message":"Unsupported protocol version"}"#);
        assert_eq!(other_revision(&vague, LATEST_INITIALIZE, &auto), Some("2024-11-05"));
        let other = error(r#"{"code":-32603,"message":"database is down"}"#);
        assert_eq!(other_revision(&other, LATEST_INITIALIZE, &auto), None);
        assert_eq!(other_revision(&told, "2025-06-18", &ProtocolChoice::Revision("2025-06-18".into())), None);
    }
}
