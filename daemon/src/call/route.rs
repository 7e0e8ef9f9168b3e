//! From an exposed name to a server, and from a client's params to the server's.
//!
//! Pure.

use super::trace::Trace;
use crate::catalog::snapshot::View;
use crate::jsonrpc::reply::{INVALID_PARAMS, Reply};
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::names::RawTool;
use serde_json::value::RawValue;

/// The answer to a call of a tool that this client does not see: a JSON-RPC error with the nearest
/// name, because a misspelt name is the commonest cause.
pub fn unknown(view: &View, name: &str) -> Reply {
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

/// The params a server gets: the client's members in their order, with the server's own name for
/// the tool, an object of arguments, and the trace of this call.
pub fn upstream_params(params: &RawValue, tool: &RawTool, trace: &Trace) -> Box<RawValue> {
    let members = Members::parse(params).unwrap_or_default();
    let name = serde_json::to_string(tool.as_str()).expect("text serialises");
    let meta = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let traceparent = format!("\"{}\"", trace.child());
    let meta = meta.with("traceparent", &traceparent);
    let mut out = ObjectWriter::with_capacity(params.get().len() + 160);
    let mut seen_meta = false;
    let mut seen_arguments = false;
    for (key, value) in members.iter() {
        match key {
            "name" => out.member("name", &name),
            "_meta" => {
                seen_meta = true;
                out.member("_meta", meta.get())
            }
            "arguments" => {
                seen_arguments = true;
                // Some servers take null for a missing object (product: absent or null become {}).
                out.member("arguments", if value.get() == "null" { "{}" } else { value.get() })
            }
            _ => out.member(key, value.get()),
        };
    }
    if !seen_arguments {
        out.member("arguments", "{}");
    }
    if !seen_meta {
        out.member("_meta", meta.get());
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_its_own_name_and_every_other_member_as_it_was() {
        let raw =
            RawValue::from_string(r#"{"task":{"ttl":5},"name":"mcp_s_a","arguments":{"n":1.0}}"#.into())
                .unwrap();
        let trace = Trace::of(&raw);
        let params = upstream_params(&raw, &RawTool::new("a"), &trace);
        let start = r#"{"task":{"ttl":5},"name":"a","arguments":{"n":1.0},"_meta":{"traceparent":"00-"#;
        assert!(params.get().starts_with(start), "{params}");
        let null = RawValue::from_string(r#"{"name":"x","arguments":null}"#.into()).unwrap();
        assert!(upstream_params(&null, &RawTool::new("a"), &trace).get().contains(r#""arguments":{}"#));
    }
}
