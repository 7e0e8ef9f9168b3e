//! Which method of a client is answered where: lists and negotiation here, calls by `call`.
//!
//! List methods are always answered, with an empty list where nothing is there: clients probe
//! them all, and an error would make some give up the whole session.

use super::modern::Heard;
use super::resume::Resumed;
use crate::call::trace::Trace;
use crate::call::{Target, ToolCall, route};
use crate::catalog::greeting::Greeting;
use crate::catalog::snapshot::View;
use crate::jsonrpc::era;
use crate::jsonrpc::log_level::LogLevel;
use crate::jsonrpc::reply::{INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Reply};
use crate::jsonrpc::splice::{self, Members, ObjectWriter};
use serde_json::value::RawValue;

/// What a client has told about itself.
#[derive(Debug, Default)]
pub struct Negotiated {
    /// The revision agreed on; `None` before `initialize`.
    pub revision: Option<&'static str>,
    /// `clientInfo`, raw.
    pub client: Option<Box<RawValue>>,
    /// Its capabilities, raw.
    pub capabilities: Option<Box<RawValue>>,
    /// `logging/setLevel`.
    pub log_level: Option<LogLevel>,
}

impl Negotiated {
    /// From the resume string of an earlier connection.
    pub fn resumed(from: Resumed) -> Self {
        Self {
            // A client whose requests speak for themselves agreed on nothing.
            revision: Some(era::answer_to(&from.revision)).filter(|_| from.revision != era::PER_REQUEST),
            client: from.client,
            capabilities: from.capabilities,
            log_level: from.log_level.as_deref().and_then(LogLevel::parse),
        }
    }

    /// What brings the session back, once there is one.
    pub fn to_resume(&self, heard: Heard) -> Option<Resumed> {
        let level = self.log_level.map(|level| level.word().to_owned());
        let revision = self.revision.or((heard == Heard::Before).then_some(era::PER_REQUEST));
        Some(Resumed::new(revision?, self.client.clone(), self.capabilities.clone(), level))
    }

    /// `clientInfo.name` and `.version`; empty where they are missing.
    pub fn client_name(&self) -> (String, String) {
        let members = self.client.as_deref().and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let text = |key| members.text(key).map(std::borrow::Cow::into_owned).unwrap_or_default();
        (text("name"), text("version"))
    }
}

/// What to do with a request.
#[derive(Debug)]
pub enum Route {
    /// Answered at once.
    Now(Reply),
    /// `initialize`: answered at once with this result, once it is masked, and the session changed.
    Initialized(Box<RawValue>),
    /// The log level changed: answered at once, and the session changed.
    LevelSet(Reply),
    /// A call of a tool, or the use of something else.
    Call(ToolCall),
    /// A resource is not followed any more: its URI.
    Unsubscribe(String),
}

/// Decides what happens to one request.
pub fn route(method: &str, params: Option<&RawValue>, state: &mut Negotiated, view: &View) -> Route {
    match method {
        "initialize" => initialize(params, state, view.greeting()),
        "ping" => Route::Now(empty()),
        "logging/setLevel" => set_level(params, state),
        _ if state.revision.is_none() => {
            let text = format!("`{method}` before `initialize`; send initialize first");
            Route::Now(Reply::error(INVALID_REQUEST, &text))
        }
        "tools/list" => whole_list(params, view.list()),
        "tools/call" => call(params),
        "resources/list" => whole_list(params, &view.natives().resources),
        "resources/templates/list" => whole_list(params, &view.natives().resource_templates),
        "prompts/list" => whole_list(params, &view.natives().prompts),
        "resources/read" => native(params, Target::Resource, "uri"),
        "resources/subscribe" => native(params, Target::Subscription, "uri"),
        "resources/unsubscribe" => unsubscribe(params),
        "prompts/get" => native(params, Target::Prompt, "name"),
        "completion/complete" => completion(params),
        _ => Route::Now(Reply::error(
            METHOD_NOT_FOUND,
            &format!("hermesd does not know the method `{method}`"),
        )),
    }
}

/// Lists come whole: many clients never ask for a second page, and would miss what is on it. So no
/// cursor is ours (MCP 2025-11-25, Pagination, error handling).
fn whole_list(params: Option<&RawValue>, list: &RawValue) -> Route {
    let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    Route::Now(match members.get("cursor").filter(|cursor| cursor.get() != "null") {
        None => Reply::Result(list.to_owned()),
        Some(_) => {
            Reply::error(INVALID_PARAMS, "the cursor is not one of hermesd's; its lists have one page")
        }
    })
}

fn initialize(params: Option<&RawValue>, state: &mut Negotiated, greeting: &Greeting) -> Route {
    let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let requested = members.text("protocolVersion").unwrap_or_default();
    let revision = era::answer_to(&requested);
    state.revision = Some(revision);
    state.client = members.get("clientInfo").map(ToOwned::to_owned);
    state.capabilities = members.get("capabilities").map(ToOwned::to_owned);
    let mut info = ObjectWriter::default();
    info.string("name", "hermesd").string("version", env!("CARGO_PKG_VERSION"));
    if revision >= "2025-06-18" {
        info.string("title", "hermesd");
    }
    let mut result = ObjectWriter::default();
    result
        .string("protocolVersion", revision)
        .member("capabilities", capabilities(greeting).get())
        .member("serverInfo", info.finish().get())
        .string("instructions", &greeting.instructions);
    Route::Initialized(result.finish())
}

/// What a client is offered. Lists are always there, and may be empty: servers come and go, and clients
/// ask for all of them; the rest only where a server in view has it.
pub(super) fn capabilities(greeting: &Greeting) -> Box<RawValue> {
    const CHANGES: &str = r#"{"listChanged":true}"#;
    let resources = if greeting.subscribe { r#"{"subscribe":true,"listChanged":true}"# } else { CHANGES };
    let mut all = ObjectWriter::default();
    all.member("tools", CHANGES).member("resources", resources).member("prompts", CHANGES);
    if greeting.completions {
        all.member("completions", "{}");
    }
    all.member("logging", "{}");
    all.finish()
}

fn set_level(params: Option<&RawValue>, state: &mut Negotiated) -> Route {
    let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    match members.text("level").and_then(|word| LogLevel::parse(&word)) {
        Some(level) => {
            state.log_level = Some(level);
            Route::LevelSet(empty())
        }
        None => {
            let words = LogLevel::ALL.map(LogLevel::word).join(", ");
            Route::Now(Reply::error(INVALID_PARAMS, &format!("level must be one of {words}")))
        }
    }
}

fn call(params: Option<&RawValue>) -> Route {
    match params.map(route::read) {
        Some(Ok(request)) => Route::Call(ToolCall::of(request)),
        Some(Err(error)) => Route::Now(Reply::error(INVALID_PARAMS, &error.to_string())),
        None => Route::Now(Reply::error(INVALID_PARAMS, "tools/call needs params with a name")),
    }
}

fn unsubscribe(params: Option<&RawValue>) -> Route {
    let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    match members.text("uri") {
        Some(uri) => Route::Unsubscribe(uri.into_owned()),
        None => Route::Now(Reply::error(INVALID_PARAMS, "params need `uri`, a string")),
    }
}

fn empty() -> Reply {
    Reply::Result(splice::raw(&serde_json::Map::new()))
}

/// `completion/complete`: what is meant stands in `ref`.
fn completion(params: Option<&RawValue>) -> Route {
    let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let of = members.get("ref").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    match (params, of.text("uri"), of.text("name")) {
        (Some(params), Some(uri), _) => used(params, Target::TemplateCompletion, uri.into_owned()),
        (Some(params), None, Some(name)) => used(params, Target::PromptCompletion, name.into_owned()),
        _ => Route::Now(Reply::error(INVALID_PARAMS, "params need `ref` with a name or a uri")),
    }
}

/// `resources/read` and `prompts/get`: what is meant stands under `key`.
fn native(params: Option<&RawValue>, target: Target, key: &str) -> Route {
    let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    match (params, members.text(key)) {
        (Some(params), Some(name)) => used(params, target, name.into_owned()),
        _ => Route::Now(Reply::error(INVALID_PARAMS, &format!("params need `{key}`, a string"))),
    }
}

/// The call by which a resource is followed.
pub(super) fn following(uri: &str) -> ToolCall {
    let mut params = ObjectWriter::default();
    params.string("uri", uri);
    let params = params.finish();
    let request = route::Request {
        name: uri.to_owned(),
        upstream: route::Upstream::native(&params),
        progress_token: None,
        trace: Trace::of(None),
    };
    ToolCall { target: Target::Subscription, ..ToolCall::of(request) }
}

fn used(params: &RawValue, target: Target, name: String) -> Route {
    let members = Members::parse(params).unwrap_or_default();
    let meta = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let request = route::Request {
        name,
        upstream: route::Upstream::native(params),
        progress_token: meta.get("progressToken").map(ToOwned::to_owned),
        trace: Trace::of(meta.text("traceparent").as_deref()),
    };
    Route::Call(ToolCall { target, ..ToolCall::of(request) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::snapshot::Catalog;
    use crate::names::ProfileName;
    use hermes_proto::shim::hello::Only;

    fn ask(state: &mut Negotiated, method: &str, params: &str) -> String {
        let view = Catalog::default().view(&ProfileName::new("default"), Only::All);
        let params = RawValue::from_string(params.into()).unwrap();
        match super::route(method, Some(&params), state, &view) {
            Route::Now(Reply::Result(raw) | Reply::Error(raw))
            | Route::LevelSet(Reply::Result(raw) | Reply::Error(raw)) => raw.get().to_owned(),
            Route::Initialized(raw) => raw.get().to_owned(),
            Route::Call(call) => format!("call {}", call.name),
            Route::Unsubscribe(uri) => format!("unsubscribe {uri}"),
        }
    }

    #[test]
    fn ping_and_set_level_work_before_initialize_and_nothing_else_does() {
        let mut state = Negotiated::default();
        assert_eq!(ask(&mut state, "ping", "{}"), "{}");
        assert_eq!(ask(&mut state, "logging/setLevel", r#"{"level":"debug"}"#), "{}");
        assert!(ask(&mut state, "tools/list", "{}").contains("-32600"));
        assert!(ask(&mut state, "initialize", r#"{"protocolVersion":"2024-11-05"}"#).contains("2024-11-05"));
        assert_eq!(ask(&mut state, "tools/list", "{}"), r#"{"tools":[]}"#);
        assert_eq!(ask(&mut state, "prompts/list", "{}"), r#"{"prompts":[]}"#);
        assert_eq!(ask(&mut state, "prompts/list", r#"{"cursor":null}"#), r#"{"prompts":[]}"#);
        assert!(ask(&mut state, "tools/list", r#"{"cursor":"x"}"#).contains("-32602"));
        assert_eq!(ask(&mut state, "tools/call", r#"{"name":"x"}"#), "call x");
        assert!(ask(&mut state, "tools/call", r#"{"name":5}"#).contains("-32602"));
        assert!(ask(&mut state, "server/discover", "{}").contains("-32601"));
    }

    #[test]
    fn an_unknown_revision_gets_our_latest() {
        let mut state = Negotiated::default();
        assert!(ask(&mut state, "initialize", r#"{"protocolVersion":"9999-01-01"}"#).contains("2025-11-25"));
        assert!(ask(&mut state, "initialize", r#"{"protocolVersion":5}"#).contains("2025-11-25"));
    }
}
