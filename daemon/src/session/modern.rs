//! Requests of 2026-07-28 that a client makes: each says for itself who asks and in which revision.
//!
//! Pure. Which era a request belongs to is decided here ([`era_of`]); so is the form of the answers of that
//! era: `resultType`, who answers, cache hints, error codes. What a relayed body holds already stays as it is.
//! May not touch: what is answered.

use crate::jsonrpc::era::{self, meta};
use crate::jsonrpc::log_level::LogLevel;
use crate::jsonrpc::reply::{
    INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, Reply, UNSUPPORTED_REVISION, URL_ELICITATION_REQUIRED,
};
use crate::jsonrpc::splice::{self, Members, ObjectWriter};
use serde_json::value::RawValue;

/// How long a client may use a list without looking again, in ms. Changes are announced to those who listen;
/// for the others this is how late they may be.
const LIST_TTL_MS: &str = "10000";

/// Lists differ by profile, so nobody may share what one client got.
const SCOPE: &str = "\"private\"";

/// What one request says about itself.
#[derive(Debug)]
pub struct Opening {
    /// `clientInfo`, raw.
    pub client: Option<Box<RawValue>>,
    /// What the client can be asked for this request, raw; an object.
    pub capabilities: Box<RawValue>,
    /// The least grave log lines that it wants; `None`: none.
    pub log_level: Option<LogLevel>,
    /// `requestState` of an answer that asked for input.
    pub state: Option<String>,
    /// `inputResponses`, raw.
    pub responses: Option<Box<RawValue>>,
    /// The params without all of that.
    pub params: Box<RawValue>,
}

/// Whose rules a request follows.
#[derive(Debug)]
pub enum EraOf {
    /// Those of a session that `initialize` opens.
    Session,
    /// Its own.
    Itself(Box<Opening>),
    /// It follows none; the answer.
    Neither(Reply),
}

/// Whether a connection had a request of the newest revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Heard {
    /// No.
    #[default]
    Never,
    /// Yes.
    Before,
}

/// Whose rules the request follows, on a connection that agreed on `session` by `initialize`.
pub fn era_of(method: &str, params: Option<&RawValue>, session: Option<&str>, heard: Heard) -> EraOf {
    // `initialize` is how the other era begins, whatever else it carries.
    if method == "initialize" {
        return EraOf::Session;
    }
    // A search is far cheaper than reading long params of a request that has no such member.
    let speaks = params.is_some_and(|params| params.get().contains(meta::REVISION));
    if !speaks && method != "server/discover" && (session.is_some() || heard == Heard::Never) {
        return EraOf::Session;
    }
    let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let about = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let Some(revision) = about.text(meta::REVISION) else {
        // The words may stand elsewhere, such as in an argument.
        let is_ours = method != "server/discover" && (session.is_some() || heard == Heard::Never);
        return if is_ours { EraOf::Session } else { EraOf::Neither(lacks(meta::REVISION)) };
    };
    if session == Some(&*revision) {
        return EraOf::Session;
    }
    if revision != era::PER_REQUEST {
        return EraOf::Neither(unsupported(&revision));
    }
    let Some(capabilities) = about.get(meta::CAPABILITIES).filter(|raw| Members::parse(raw).is_ok()) else {
        return EraOf::Neither(lacks(meta::CAPABILITIES));
    };
    let level = about.text(meta::LOG_LEVEL);
    if level.as_deref().is_some_and(|word| LogLevel::parse(word).is_none()) {
        let words = LogLevel::ALL.map(LogLevel::word).join(", ");
        let text = format!("`_meta` `{}` must be one of {words}", meta::LOG_LEVEL);
        return EraOf::Neither(Reply::error(INVALID_PARAMS, &text));
    }
    EraOf::Itself(Box::new(Opening {
        client: about.get(meta::CLIENT).map(ToOwned::to_owned),
        capabilities: capabilities.to_owned(),
        log_level: level.as_deref().and_then(LogLevel::parse),
        state: members.text("requestState").map(std::borrow::Cow::into_owned),
        responses: members.get("inputResponses").map(ToOwned::to_owned),
        params: bare(&members, &about),
    }))
}

/// The params without what is between this client and hermesd.
fn bare(members: &Members<'_>, about: &Members<'_>) -> Box<RawValue> {
    let mut rest = ObjectWriter::default();
    let mut any = false;
    for (name, value) in about.iter() {
        if !matches!(name, meta::REVISION | meta::CLIENT | meta::CAPABILITIES) {
            rest.member(name, value.get());
            any = true;
        }
    }
    let rest = rest.finish();
    let mut params = ObjectWriter::default();
    for (name, value) in members.iter() {
        match name {
            "requestState" | "inputResponses" => {}
            "_meta" if any => drop(params.member(name, rest.get())),
            "_meta" => {}
            _ => drop(params.member(name, value.get())),
        }
    }
    params.finish()
}

fn lacks(key: &str) -> Reply {
    let text = format!(
        "the request lacks `_meta` `{key}`; each request of {} needs it, and a session of an older revision begins with `initialize`",
        era::PER_REQUEST
    );
    Reply::error(INVALID_PARAMS, &text)
}

fn unsupported(requested: &str) -> Reply {
    let mut data = ObjectWriter::default();
    data.member("supported", splice::raw(&era::ALL).get()).string("requested", requested);
    Reply::error_with(UNSUPPORTED_REVISION, "Unsupported protocol version", &data.finish())
}

/// How an answer may be kept by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The kind of result has no such hints.
    No,
    /// A list of hermesd's.
    List,
    /// Whatever the server says; else not at all.
    Content,
}

/// An answer in the form of this era.
pub fn answer(reply: Reply, keep: Keep) -> Reply {
    match reply {
        Reply::Result(body) => Reply::Result(result(body, keep)),
        Reply::Error(body) => Reply::Error(error(body)),
    }
}

fn result(body: Box<RawValue>, keep: Keep) -> Box<RawValue> {
    let wants_input = asks(&body);
    let ttl = match keep {
        Keep::No => None,
        // What asks for input is no content.
        Keep::Content | Keep::List if wants_input => None,
        Keep::List => Some(LIST_TTL_MS),
        Keep::Content => Some("0"),
    };
    let mut lacking = Vec::with_capacity(4);
    if !has(&body, "resultType") {
        lacking.push(("resultType", "\"complete\"".to_owned()));
    }
    if let Some(ttl) = ttl {
        for (key, value) in [("ttlMs", ttl), ("cacheScope", SCOPE)] {
            if !has(&body, key) {
                lacking.push((key, value.to_owned()));
            }
        }
    }
    let body = with_meta(body, &mut lacking);
    in_front(body, &lacking)
}

/// Whether a result asks for input instead of being one.
fn asks(body: &RawValue) -> bool {
    body.get().contains("\"input_required\"")
        && Members::parse(body)
            .is_ok_and(|members| members.text("resultType").as_deref() == Some("input_required"))
}

/// Whether the object has this member. Nearly always a search tells, which is cheaper than reading.
fn has(body: &RawValue, key: &str) -> bool {
    body.get().contains(&format!("\"{key}\""))
        && Members::parse(body).is_ok_and(|members| members.get(key).is_some())
}

/// Says who answers, unless somebody further on did.
fn with_meta(body: Box<RawValue>, lacking: &mut Vec<(&'static str, String)>) -> Box<RawValue> {
    let own = |about: &Members<'_>| about.with(meta::SERVER, own_info().get());
    if !body.get().contains("\"_meta\"") {
        lacking.push(("_meta", own(&Members::default()).get().to_owned()));
        return body;
    }
    let Ok(members) = Members::parse(&body) else { return body };
    let about = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    if about.get(meta::SERVER).is_some() {
        return body;
    }
    members.with("_meta", own(&about).get())
}

/// The object with these members before its own.
fn in_front(body: Box<RawValue>, members: &[(&str, String)]) -> Box<RawValue> {
    let Some(rest) = body.get().strip_prefix('{').filter(|_| !members.is_empty()) else { return body };
    let mut front = ObjectWriter::with_capacity(body.get().len() + 160);
    for (key, value) in members {
        front.member(key, value);
    }
    let mut text = front.finish().get().to_owned();
    text.pop();
    if rest.trim_start() != "}" {
        text.push(',');
    }
    text.push_str(rest);
    RawValue::from_string(text).expect("members in front of an object's own are an object")
}

fn own_info() -> Box<RawValue> {
    let mut info = ObjectWriter::default();
    info.string("name", "hermesd").string("title", "hermesd").string("version", env!("CARGO_PKG_VERSION"));
    info.finish()
}

/// Codes that this revision does not have become those that it has; the rest is the server's.
fn error(body: Box<RawValue>) -> Box<RawValue> {
    let Ok(members) = Members::parse(&body) else { return body };
    let code = members.get("code").and_then(|raw| raw.get().parse::<i32>().ok());
    match code {
        Some(RESOURCE_NOT_FOUND) => members.with("code", &INVALID_PARAMS.to_string()),
        Some(URL_ELICITATION_REQUIRED | -32000) => members.with("code", &INTERNAL_ERROR.to_string()),
        Some(_) | None => body,
    }
}

/// The result of `server/discover`; instructions are masked by the caller.
pub fn discovery(capabilities: &RawValue, instructions: &str) -> Box<RawValue> {
    let mut result = ObjectWriter::with_capacity(instructions.len() + 512);
    result
        .member("supportedVersions", splice::raw(&era::ALL).get())
        .member("capabilities", capabilities.get())
        .string("instructions", instructions);
    result.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn about(extra: &Value) -> Value {
        let mut about = json!({ meta::REVISION: "2026-07-28", meta::CAPABILITIES: {"roots": {}}, meta::CLIENT: {"name": "c"} });
        about.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        about
    }

    fn code(era: EraOf) -> i64 {
        match era {
            EraOf::Neither(Reply::Error(error)) => {
                serde_json::from_str::<Value>(error.get()).unwrap()["code"].as_i64().unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_that_speaks_for_itself_is_read_and_its_own_members_go_no_further() {
        let params = json!({"name": "x", "arguments": {"n": 1.0}, "requestState": "s", "inputResponses": {"k": 1},
            "_meta": about(&json!({"progressToken": 7, meta::LOG_LEVEL: "info"}))});
        let EraOf::Itself(opening) = era_of("tools/call", Some(&raw(&params)), None, Heard::Never) else {
            panic!()
        };
        assert_eq!(
            opening.params.get(),
            format!(
                r#"{{"name":"x","arguments":{{"n":1.0}},"_meta":{{"progressToken":7,"{}":"info"}}}}"#,
                meta::LOG_LEVEL
            )
        );
        assert_eq!((opening.state.as_deref(), opening.log_level), (Some("s"), Some(LogLevel::Info)));
        assert_eq!(opening.responses.unwrap().get(), r#"{"k":1}"#);
        assert_eq!(opening.capabilities.get(), r#"{"roots":{}}"#);
    }

    #[test]
    fn what_is_missing_or_unknown_is_refused_with_the_code_of_the_era() {
        let of = |params: Value| era_of("tools/list", Some(&raw(&params)), None, Heard::Never);
        assert_eq!(code(of(json!({"_meta": {meta::REVISION: "2026-07-28"}}))), -32602);
        assert_eq!(code(of(json!({"_meta": {meta::REVISION: "2026-07-28", meta::CAPABILITIES: 5}}))), -32602);
        assert_eq!(code(of(json!({"_meta": about(&json!({meta::LOG_LEVEL: "loud"}))}))), -32602);
        assert_eq!(code(of(json!({"_meta": about(&json!({meta::REVISION: "1900-01-01"}))}))), -32022);
        assert_eq!(code(era_of("server/discover", None, Some("2025-11-25"), Heard::Never)), -32602);
        assert_eq!(code(era_of("tools/list", None, None, Heard::Before)), -32602);
    }

    #[test]
    fn a_session_keeps_its_own_requests() {
        let session = |method: &str, params: Value, agreed| {
            matches!(era_of(method, Some(&raw(&params)), agreed, Heard::Before), EraOf::Session)
        };
        assert!(session("tools/list", json!({}), Some("2025-11-25")));
        assert!(session("initialize", json!({"_meta": about(&json!({}))}), None));
        assert!(session("tools/list", json!({"_meta": {meta::REVISION: "2025-11-25"}}), Some("2025-11-25")));
        assert!(session("tools/call", json!({"arguments": {"text": meta::REVISION}}), Some("2025-11-25")));
        assert!(matches!(era_of("tools/list", None, None, Heard::Never), EraOf::Session));
    }

    #[test]
    fn errors_of_older_revisions_get_the_codes_of_this_one() {
        for (old, new) in [(-32002, -32602), (-32042, -32603), (-32000, -32603), (-32601, -32601), (7, 7)] {
            let Reply::Error(error) = answer(Reply::error(old, "m"), Keep::No) else { panic!() };
            assert_eq!(error.get(), format!(r#"{{"code":{new},"message":"m"}}"#));
        }
    }

    #[test]
    fn what_a_server_says_of_keeping_its_content_stays() {
        let Reply::Result(body) = answer(
            Reply::Result(raw(&json!({"contents": [], "ttlMs": 5, "cacheScope": "public"}))),
            Keep::Content,
        ) else {
            panic!()
        };
        let body: Value = serde_json::from_str(body.get()).unwrap();
        assert_eq!((&body["ttlMs"], &body["cacheScope"]), (&json!(5), &json!("public")));
        let asking = json!({"resultType": "input_required", "requestState": "s"});
        let Reply::Result(body) = answer(Reply::Result(raw(&asking)), Keep::Content) else { panic!() };
        assert!(!body.get().contains("ttlMs"), "{body}");
    }

    proptest! {
        #[test]
        fn a_result_keeps_every_member_and_has_what_the_era_wants(
            names in proptest::collection::btree_set("[a-zA-Z_]{0,8}|resultType|_meta|ttlMs", 0..6),
            space in "[ ]{0,2}",
        ) {
            let inner: Vec<String> = names.iter().map(|name| match name.as_str() {
                "_meta" => format!(r#""_meta":{{"a":1.50}}{space}"#),
                name => format!(r#"{space}"{name}":"resultType""#),
            }).collect();
            let body = RawValue::from_string(format!("{{{space}{}}}", inner.join(","))).unwrap();
            let before: Value = serde_json::from_str(body.get()).unwrap();
            let after = result(body, Keep::List);
            let members = Members::parse(&after).unwrap();
            prop_assert_eq!(members.duplicate(), None);
            let after: Value = serde_json::from_str(after.get()).unwrap();
            for (name, value) in before.as_object().unwrap().iter().filter(|(name, _)| *name != "_meta") {
                prop_assert_eq!(&after[name], value);
            }
            for key in ["resultType", "ttlMs", "cacheScope"] {
                prop_assert!(after.get(key).is_some());
            }
            prop_assert_eq!(&after["_meta"][meta::SERVER]["name"], "hermesd");
            prop_assert!(!names.contains("_meta") || after["_meta"]["a"] == before["_meta"]["a"]);
        }
    }
}
