//! From an exposed name to a server, and from a client's params to the server's.
//!
//! Pure.

use super::Target;
use super::trace::{HEADER, Trace};
use crate::catalog::snapshot::View;
use crate::jsonrpc::ids::IdKey;
use crate::jsonrpc::reply::{INVALID_PARAMS, RESOURCE_NOT_FOUND, Reply};
use crate::jsonrpc::splice::{Members, push_string};
use crate::names::RawTool;
use serde_json::value::RawValue;

/// The answer to the use of something that this client does not see: a JSON-RPC error with the nearest
/// name, because a misspelt name is the commonest cause.
pub fn unknown(view: &View, target: Target, name: &str) -> Reply {
    match target {
        Target::Tool => {}
        // MCP 2025-11-25, Resources, error handling.
        Target::Resource | Target::Subscription | Target::TemplateCompletion => {
            let names = view.natives().names_of(name);
            let hint = match names.len() {
                0 => String::new(),
                _ => format!("; servers that know it call it {}", names.join(", ")),
            };
            return Reply::error(RESOURCE_NOT_FOUND, &format!("Resource not found: {name}{hint}"));
        }
        Target::Prompt | Target::PromptCompletion => {
            return Reply::error(INVALID_PARAMS, &format!("Unknown prompt: {name}"));
        }
    }
    let near = view
        .tools()
        .iter()
        .map(|tool| tool.name.as_str())
        .filter(|known| known.contains(name) || name.contains(known) || known.ends_with(name))
        .min_by_key(|known| known.len().abs_diff(name.len()));
    let hint = match near {
        Some(near) => format!("; did you mean `{near}`?"),
        None => "; tools/list shows the tools of this session".to_owned(),
    };
    Reply::error(INVALID_PARAMS, &format!("Unknown tool: {name}{hint}"))
}

/// Why the params of a `tools/call` cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("tools/call needs params.name, a string")]
pub struct NoName;

/// The params of one call, ready for its server but for three holes: the server's own name for the
/// tool, the `traceparent` of the hop, and the wire's progress token. The client's members keep their
/// order and their bytes.
#[derive(Debug, Clone)]
pub struct Upstream {
    text: String,
    name_at: usize,
    trace_at: usize,
    token_at: usize,
    arguments: Option<std::ops::Range<usize>>,
}

/// The token's place; the wire replaces it.
const TOKEN_PLACE: char = '0';

impl Upstream {
    /// The params of a request that is no `tools/call`: all of them count as its arguments.
    pub fn native(params: &RawValue) -> Self {
        let text = params.get().to_owned();
        Self { name_at: 0, trace_at: 0, token_at: 0, arguments: Some(0..text.len()), text }
    }

    /// The arguments as the client wrote them; null counts as absent.
    pub fn arguments(&self) -> Option<&RawValue> {
        let text = &self.text[self.arguments.clone()?];
        serde_json::from_str(text).ok()
    }

    /// How many bytes the call holds until it ends.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The arguments as they will be sent, as text; `{}` where there are none.
    pub fn arguments_text(&self) -> &str {
        self.arguments.clone().map_or("{}", |range| &self.text[range])
    }

    /// Bytes of the arguments.
    pub fn arguments_len(&self) -> usize {
        self.arguments_text().len()
    }

    /// The same params with other arguments.
    #[must_use]
    pub fn with_arguments(&self, arguments: &RawValue) -> Self {
        let Some(old) = self.arguments.clone() else { return self.clone() };
        let new = arguments.get();
        let mut text = String::with_capacity(self.text.len() + new.len());
        text.push_str(&self.text[..old.start]);
        text.push_str(new);
        text.push_str(&self.text[old.end..]);
        let moved = |at: usize| if at >= old.end { at - old.len() + new.len() } else { at };
        Self {
            name_at: moved(self.name_at),
            trace_at: moved(self.trace_at),
            token_at: moved(self.token_at),
            arguments: Some(old.start..old.start + new.len()),
            text,
        }
    }

    /// The params for a server that calls the tool `tool`, with the `traceparent` of this hop, and where
    /// the token's digit is in them.
    pub fn params(&self, tool: &RawTool, traceparent: &str) -> (Box<RawValue>, usize) {
        let mut out = String::with_capacity(self.text.len() + tool.as_str().len() + 2);
        out.push_str(&self.text[..self.name_at]);
        push_string(&mut out, tool.as_str());
        let name = out.len() - self.name_at;
        out.push_str(&self.text[self.name_at..]);
        let moved = |at: usize| if at >= self.name_at { at + name } else { at };
        let (trace, token) = (moved(self.trace_at), moved(self.token_at));
        out.replace_range(trace..trace + HEADER, traceparent);
        (RawValue::from_string(out).expect("the holes are filled with JSON"), token)
    }
}

/// What the params of one `tools/call` say.
#[derive(Debug)]
pub struct Request {
    /// The exposed name.
    pub name: String,
    /// What the server gets.
    pub upstream: Upstream,
    /// The client's progress token, raw, if it gave one.
    pub progress_token: Option<Box<RawValue>>,
    /// Where the call is in a trace.
    pub trace: Trace,
}

/// Reads the params of a `tools/call`, once.
///
/// # Errors
/// [`NoName`].
pub fn read(params: &RawValue) -> Result<Request, NoName> {
    let members = Members::parse(params).map_err(|_| NoName)?;
    let name = members.text("name").ok_or(NoName)?.into_owned();
    let meta = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let token = meta.get("progressToken").filter(|raw| IdKey::parse(raw).is_ok()).map(ToOwned::to_owned);
    let trace = Trace::of(meta.text("traceparent").as_deref());
    let mut text = String::with_capacity(params.get().len() + 128);
    let (mut name_at, mut arguments) = (None, None);
    for (key, value) in members.iter() {
        match key {
            // Both are written once, by us: a second one must not reach a server that takes the last.
            "name" if name_at.is_some() => {}
            "name" => {
                open_member(&mut text, key);
                name_at = Some(text.len());
            }
            "_meta" => {}
            "arguments" if arguments.is_some() => {}
            "arguments" => {
                // Some servers choke on null (product: absent or null become {}). The last one counts.
                let value = members.get("arguments").map_or("{}", RawValue::get);
                open_member(&mut text, key);
                let from = text.len();
                text.push_str(if value == "null" { "{}" } else { value });
                arguments = Some(from..text.len());
            }
            _ => {
                open_member(&mut text, key);
                text.push_str(value.get());
            }
        }
    }
    if arguments.is_none() {
        open_member(&mut text, "arguments");
        let from = text.len();
        text.push_str("{}");
        arguments = Some(from..text.len());
    }
    open_member(&mut text, "_meta");
    let mut inner = String::new();
    for (key, value) in meta.iter() {
        let ours = matches!(key, "progressToken" | "traceparent");
        // W3C Trace Context: without a valid traceparent the state belongs to no trace.
        if !ours && (key != "tracestate" || trace.is_continued()) {
            open_member(&mut inner, key);
            inner.push_str(value.get());
        }
    }
    open_member(&mut inner, "traceparent");
    inner.push('"');
    let trace_at = text.len() + inner.len();
    inner.extend(std::iter::repeat_n('0', HEADER));
    inner.push('"');
    open_member(&mut inner, "progressToken");
    let token_at = text.len() + inner.len();
    text.push_str(&inner);
    text.push(TOKEN_PLACE);
    text.push_str("}}");
    let name_at = name_at.expect("a name was found above");
    Ok(Request {
        name,
        upstream: Upstream { text, name_at, trace_at, token_at, arguments },
        progress_token: token,
        trace,
    })
}

/// Opens an object or continues it with `key`.
fn open_member(text: &mut String, key: &str) {
    text.push(if text.is_empty() { '{' } else { ',' });
    push_string(text, key);
    text.push(':');
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn upstream(params: &str, tool: &str) -> (String, usize) {
        let raw = RawValue::from_string(params.into()).unwrap();
        let (params, hole) = read(&raw).unwrap().upstream.params(&RawTool::new(tool), HOP);
        (params.get().to_owned(), hole)
    }

    #[test]
    fn a_server_gets_its_own_name_and_every_other_member_as_it_was() {
        let (params, hole) = upstream(
            r#"{"task":{"ttl":5},"arguments":{"n":1.0},"name":"mcp_s_a","_meta":{"x":1e3,"progressToken":"p"},"v":2}"#,
            "a\"b",
        );
        let start =
            r#"{"task":{"ttl":5},"arguments":{"n":1.0},"name":"a\"b","v":2,"_meta":{"x":1e3,"traceparent":""#;
        assert!(params.starts_with(start), "{params}");
        assert!(params.ends_with(&format!(r#"{HOP}","progressToken":0}}}}"#)), "{params}");
        assert_eq!(&params[hole..=hole], "0");
        assert_eq!(hole, params.len() - 3);
    }

    #[test]
    fn other_arguments_leave_name_and_token_in_their_places() {
        for params in [
            r#"{"arguments":{"n":"1"},"name":"x","_meta":{"progressToken":1}}"#,
            r#"{"name":"x","arguments":{"n":"1"}}"#,
        ] {
            let raw = RawValue::from_string(params.into()).unwrap();
            for other in ["{}", r#"{"n":1,"more":[1,2,3]}"#] {
                let other = RawValue::from_string(other.into()).unwrap();
                let upstream = read(&raw).unwrap().upstream.with_arguments(&other);
                assert_eq!(upstream.arguments().unwrap().get(), other.get());
                let (params, hole) = upstream.params(&RawTool::new("tool"), HOP);
                assert!(params.get().contains(&format!(r#""traceparent":"{HOP}""#)), "{}", params.get());
                assert_eq!(hole, params.get().len() - 3, "{}", params.get());
                assert!(params.get().contains(r#""name":"tool""#) && params.get().contains(other.get()));
            }
        }
    }

    #[test]
    fn a_trace_state_goes_on_only_with_its_trace() {
        let state = |parent: &str| {
            format!(r#"{{"name":"x","_meta":{{"traceparent":"{parent}","tracestate":"a=1"}}}}"#)
        };
        assert!(upstream(&state(HOP), "a").0.contains(r#""tracestate":"a=1""#));
        assert!(!upstream(&state("nonsense"), "a").0.contains("tracestate"));
    }

    #[test]
    fn absent_and_null_arguments_become_an_empty_object() {
        assert!(upstream(r#"{"name":"x","arguments":null}"#, "a").0.contains(r#""arguments":{}"#));
        assert!(upstream(r#"{"name":"x"}"#, "a").0.contains(r#""arguments":{}"#));
        let raw = RawValue::from_string(r#"{"name":"x","arguments":{"k":1}}"#.into()).unwrap();
        assert_eq!(read(&raw).unwrap().upstream.arguments().unwrap().get(), r#"{"k":1}"#);
    }

    #[test]
    fn what_is_given_twice_reaches_the_server_once() {
        let (params, _) =
            upstream(r#"{"name":"x","arguments":{"a":1},"name":"mcp_s_b","arguments":{"a":2}}"#, "b");
        assert!(params.starts_with(r#"{"name":"b","arguments":{"a":2},"_meta""#), "{params}");
        let raw = RawValue::from_string(r#"{"name":5}"#.into()).unwrap();
        assert!(read(&raw).is_err());
    }
}
