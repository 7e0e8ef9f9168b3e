//! The servers of config.yaml in the notation of a client.
//!
//! Pure. Promise: no secret leaves: what stands in config.yaml as text becomes a template, named in the notes.
//! May not touch: files.

use super::secret;
use super::template::variables;
use serde_json::{Map, Value, json};

/// Whose notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// `mcpServers`, as Claude Desktop and Claude Code read it
    Claude,
    /// `mcpServers` with `${env:NAME}`
    Cursor,
    /// `servers` with `${env:NAME}`
    #[value(name = "vscode")]
    VsCode,
    /// `[mcp_servers.NAME]`, TOML
    Codex,
    /// The entries as config.yaml has them
    Json,
}

/// The text, and what a person should know about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exported {
    /// The file.
    pub text: String,
    /// What is missing or has to be set.
    pub notes: Vec<String>,
}

/// Writes `servers` as `shape`.
pub fn export(servers: &[(String, Map<String, Value>)], shape: Shape) -> Exported {
    let mut notes = Vec::new();
    let mut out = Map::new();
    for (name, entry) in servers {
        let (entry, moved) = secret::as_templates(name, entry);
        for variable in moved {
            notes.push(format!(
                "{name}: a secret stands in config.yaml as text; here it is `${{{variable}}}`"
            ));
        }
        let entry = match shape {
            Shape::Json => entry,
            Shape::Claude | Shape::Cursor | Shape::VsCode => foreign(name, &entry, shape, &mut notes),
            Shape::Codex => codex(name, &entry, &mut notes),
        };
        out.insert(name.clone(), Value::Object(entry));
    }
    let text = match shape {
        Shape::Codex => toml(&out),
        Shape::VsCode => pretty(&json!({ "servers": out })),
        Shape::Claude | Shape::Cursor => pretty(&json!({ "mcpServers": out })),
        Shape::Json => pretty(&json!({ "mcp_servers": out })),
    };
    Exported { text, notes }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Members that every client has.
const COMMON: [&str; 6] = ["command", "args", "env", "cwd", "url", "headers"];

fn foreign(
    name: &str,
    entry: &Map<String, Value>,
    shape: Shape,
    notes: &mut Vec<String>,
) -> Map<String, Value> {
    let mut out = Map::new();
    let is_remote = entry.contains_key("url");
    if shape == Shape::VsCode || is_remote {
        let sse = entry.get("transport").and_then(Value::as_str) == Some("sse");
        out.insert(
            "type".to_owned(),
            json!(if !is_remote {
                "stdio"
            } else if sse {
                "sse"
            } else {
                "http"
            }),
        );
    }
    for key in COMMON {
        if let Some(value) = entry.get(key).filter(|value| !value.is_null()) {
            out.insert(
                key.to_owned(),
                if shape == Shape::Claude { value.clone() } else { env_notation(value) },
            );
        }
    }
    left_out(name, entry, &COMMON, notes);
    out
}

fn left_out(name: &str, entry: &Map<String, Value>, taken: &[&str], notes: &mut Vec<String>) {
    let left: Vec<&str> =
        entry.keys().map(String::as_str).filter(|key| !taken.contains(key) && *key != "transport").collect();
    if !left.is_empty() {
        notes.push(format!("{name}: only hermesd knows `{}`", left.join("`, `")));
    }
}

/// `${NAME}` as `${env:NAME}`; a default is lost, because these clients have none.
fn env_notation(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let mut out = text.clone();
            for name in variables(text) {
                out = out.replace(&format!("${{{name}}}"), &format!("${{env:{name}}}"));
                if let Some(at) = out.find(&format!("${{{name}:-"))
                    && let Some(end) = out[at..].find('}')
                {
                    out.replace_range(at..=at + end, &format!("${{env:{name}}}"));
                }
            }
            Value::from(out)
        }
        Value::Array(list) => Value::Array(list.iter().map(env_notation).collect()),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), env_notation(value))).collect())
        }
        other => other.clone(),
    }
}

/// Codex fills in no templates: variables are named instead.
fn codex(name: &str, entry: &Map<String, Value>, notes: &mut Vec<String>) -> Map<String, Value> {
    let mut out = Map::new();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for key in ["command", "args", "cwd", "url"] {
        if let Some(value) = entry.get(key).filter(|value| !value.is_null()) {
            if !variables(&value.to_string()).is_empty() {
                notes.push(format!(
                    "{name}: Codex fills in no variables; write the value into `{key}` by hand"
                ));
            }
            out.insert(key.to_owned(), value.clone());
        }
    }
    let mut passed: Vec<String> = Vec::new();
    let mut env = Map::new();
    for (variable, value) in entry.get("env").and_then(Value::as_object).into_iter().flatten() {
        let value = text(value);
        match variables(&value).as_slice() {
            [] => drop(env.insert(variable.clone(), Value::from(value))),
            [only] if only == variable && value == format!("${{{only}}}") => passed.push(variable.clone()),
            _ => notes.push(format!("{name}: Codex fills in no variables; set `env.{variable}` by hand")),
        }
    }
    let passes = entry.get("env_pass").and_then(Value::as_array).into_iter().flatten();
    passed.extend(passes.filter_map(|name| name.as_str().map(str::to_owned)));
    if !passed.is_empty() {
        out.insert("env_vars".to_owned(), json!(passed));
    }
    let (mut plain, mut named) = (Map::new(), Map::new());
    for (header, value) in entry.get("headers").and_then(Value::as_object).into_iter().flatten() {
        let value = text(value);
        let whole = |prefix: &str| {
            value.strip_prefix(prefix)?.strip_prefix("${")?.strip_suffix('}').map(str::to_owned)
        };
        match (variables(&value).is_empty(), whole("Bearer "), whole("")) {
            (true, _, _) => drop(plain.insert(header.clone(), Value::from(value))),
            (false, Some(variable), _) if header.eq_ignore_ascii_case("authorization") => {
                out.insert("bearer_token_env_var".to_owned(), Value::from(variable));
            }
            (false, _, Some(variable)) => drop(named.insert(header.clone(), Value::from(variable))),
            (false, _, None) => notes.push(format!("{name}: set the header `{header}` by hand")),
        }
    }
    for (key, map) in [("env", env), ("http_headers", plain), ("env_http_headers", named)] {
        if !map.is_empty() {
            out.insert(key.to_owned(), Value::Object(map));
        }
    }
    left_out(name, entry, &["command", "args", "cwd", "url", "env", "env_pass", "headers"], notes);
    out
}

fn toml(servers: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, entry) in servers {
        let doc = super::doc::Doc::parse(text.as_bytes(), super::table::Format::Toml, &["mcp_servers"]);
        let put = super::doc::Edit::Put(name.clone(), entry.clone());
        // An entry that TOML cannot hold (a null) was left out before; what still fails is left out too.
        if let Ok(doc) = doc.and_then(|doc| doc.edit(&put)) {
            text = doc.text().to_owned();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Vec<(String, Map<String, Value>)> {
        let of = |value: Value| value.as_object().unwrap().clone();
        vec![
            (
                "gh".to_owned(),
                of(
                    json!({"command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "${TOKEN}", "API_KEY": "plain-secret-1", "REGION": "${R:-eu}"}, "start": "eager"}),
                ),
            ),
            (
                "web".to_owned(),
                of(
                    json!({"url": "https://x", "headers": {"Authorization": "Bearer ${T}", "X-Org": "${ORG}"}}),
                ),
            ),
        ]
    }

    #[test]
    fn no_secret_is_in_any_shape() {
        for shape in [Shape::Claude, Shape::Cursor, Shape::VsCode, Shape::Codex, Shape::Json] {
            let out = export(&servers(), shape);
            assert!(!out.text.contains("plain-secret-1"), "{shape:?}: {}", out.text);
            assert!(!out.notes.join("").contains("plain-secret-1"));
            assert!(out.notes.iter().any(|note| note.contains("API_KEY")), "{:?}", out.notes);
        }
    }

    #[test]
    fn each_client_gets_its_notation() {
        let of = |shape| serde_json::from_str::<Value>(&export(&servers(), shape).text).unwrap();
        assert_eq!(of(Shape::Claude)["mcpServers"]["gh"]["env"]["TOKEN"], "${TOKEN}");
        assert_eq!(of(Shape::Cursor)["mcpServers"]["gh"]["env"]["REGION"], "${env:R}");
        assert_eq!(of(Shape::VsCode)["servers"]["gh"]["type"], "stdio");
        assert_eq!(of(Shape::VsCode)["servers"]["web"]["type"], "http");
        assert_eq!(of(Shape::Json)["mcp_servers"]["gh"]["start"], "eager");
        let codex = export(&servers(), Shape::Codex).text;
        assert!(codex.contains("env_vars = [\"TOKEN\", \"API_KEY\"]"), "{codex}");
        assert!(codex.contains("bearer_token_env_var = \"T\"") && codex.contains("X-Org"), "{codex}");
    }
}
