//! Which tools the fake server lists, and in which pages.

use hermes_tests::script::{Paging, Script};
use serde_json::{Value, json};

/// Names of the built-in tools with their arguments; `main.rs` says what each does.
const TOOLS: &[(&str, &[&str])] = &[
    ("echo", &["text"]),
    ("unicode", &[]),
    ("image", &[]),
    ("raw_args", &[]),
    ("meta", &[]),
    ("answer", &["result"]),
    ("reply", &[]),
    ("fail", &[]),
    ("rpc_error", &[]),
    ("sleep", &[]),
    ("hang", &[]),
    ("crash", &[]),
    ("append", &["file", "text"]),
    ("append_then_die", &["file", "text"]),
    ("big", &[]),
    ("invalid_utf8", &[]),
    ("progress", &[]),
    ("progress_odd", &["kind"]),
    ("late_answer", &[]),
    ("notify", &["method"]),
    ("ask", &["method"]),
    ("env", &[]),
    ("cwd", &[]),
    ("fds", &[]),
    ("pid", &[]),
    ("argv", &[]),
    ("set", &["key", "value"]),
    ("get", &["key"]),
    ("secret", &["nonce"]),
    ("stderr", &[]),
    ("noise", &["text"]),
    ("endless", &[]),
    ("deaf_while_writing", &[]),
    ("add_tool", &["name"]),
    ("fork", &["kind"]),
    ("close_stdout", &[]),
];

const READ_ONLY: &[&str] = &["echo", "unicode", "image", "get", "pid", "env"];

/// The tools of a fresh process.
pub(crate) fn initial(script: &Script) -> Vec<Value> {
    let mut tools =
        script.tools.clone().unwrap_or_else(|| TOOLS.iter().map(|(name, args)| tool(name, args)).collect());
    tools.extend((0..script.extra_tools).map(|n| tool(&format!("extra_{n:04}"), &["text"])));
    tools
}

/// One well-formed tool; the named arguments are required strings, others are allowed.
pub(crate) fn tool(name: &str, required: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        required.iter().map(|arg| ((*arg).to_owned(), json!({"type": "string"}))).collect();
    json!({
        "name": name,
        "description": format!("The {name} tool of the fake server."),
        "inputSchema": {"type": "object", "properties": properties, "required": required},
        "annotations": {"readOnlyHint": READ_ONLY.contains(&name)},
    })
}

/// The result of `tools/list` for one cursor.
pub(crate) fn page(tools: &[Value], paging: Option<&Paging>, cursor: Option<&Value>) -> Value {
    let Some(paging) = paging else { return json!({"tools": tools}) };
    let from = cursor
        .and_then(Value::as_str)
        .and_then(|c| c.strip_prefix("at-"))
        .and_then(|n| n.parse().ok())
        .unwrap_or(0usize);
    let to = (from + paging.size).min(tools.len());
    let mut result = json!({"tools": &tools[from.min(to)..to]});
    if paging.repeat {
        result["nextCursor"] = json!("again");
    } else if to < tools.len() {
        result["nextCursor"] = json!(format!("at-{to}"));
    } else if let Some(last) = &paging.last {
        result["nextCursor"] = last.clone();
    }
    result
}
