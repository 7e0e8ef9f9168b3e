//! When two entries are the same server, and when an entry is our own shim.
//!
//! Pure. Works on entries as hermesd writes them; names do not count. May not touch: files (links are resolved by
//! the caller).

use super::template::filled;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Programs whose `mcp serve` is our shim, or the one of Hermes Agent that it replaces.
const OWN: [&str; 4] = ["hermesctl", "hermes", "hermes-shim", "hermesd"];

/// What a server is, whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// A program with its arguments.
    Program {
        /// Name of the program, without folder where it stands in a folder of programs.
        command: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// An address.
    Address(String),
}

/// Everything that makes one server behave as another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// What is started or reached.
    pub what: Identity,
    /// Variables or headers, with templates filled in.
    pub with: BTreeMap<String, String>,
}

/// Looks a variable up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What `entry` is; `None` where it has neither command nor address.
pub fn fingerprint(entry: &Map<String, Value>, lookup: Lookup<'_>) -> Option<Fingerprint> {
    let text = |value: &Value| match value {
        Value::String(text) => filled(text, lookup),
        other => other.to_string(),
    };
    let pairs = |key: &str| {
        let map = entry.get(key).and_then(Value::as_object);
        let lower = |name: &str| if key == "headers" { name.to_ascii_lowercase() } else { name.to_owned() };
        map.into_iter().flatten().map(|(name, value)| (lower(name), text(value))).collect()
    };
    if let Some(url) = entry.get("url") {
        let url = text(url);
        return Some(Fingerprint {
            what: Identity::Address(url.trim_end_matches('/').to_owned()),
            with: pairs("headers"),
        });
    }
    let command = text(entry.get("command")?);
    let args: Vec<String> =
        entry.get("args").and_then(Value::as_array).into_iter().flatten().map(text).collect();
    let asks = |arg: &String| !(is_npx(&command) && is_consent(arg));
    let args = args.into_iter().filter(asks).collect();
    Some(Fingerprint { what: Identity::Program { command: program(&command), args }, with: pairs("env") })
}

/// Whether this starts a package of npm.
pub(super) fn is_npx(command: &str) -> bool {
    Path::new(command).file_name().is_some_and(|name| name == "npx" || name == "bunx")
}

/// An option of npx that only keeps it from asking: with and without it is the same server.
pub(super) fn is_consent(arg: &str) -> bool {
    matches!(arg, "-y" | "--yes")
}

/// `/usr/local/bin/npx` and `npx` are one program; `/opt/x/server` and `/opt/y/server` are two.
fn program(command: &str) -> String {
    let path = Path::new(command);
    let in_bin = path.parent().and_then(Path::file_name).is_some_and(|dir| dir == "bin");
    match path.file_name().and_then(|name| name.to_str()) {
        Some(name) if in_bin => name.to_owned(),
        _ => command.to_owned(),
    }
}

/// Whether this command line is a shim of hermesd, or the server of Hermes Agent in whose place it stands.
pub fn is_own(command: &str, args: &[String], resolve: &dyn Fn(&Path) -> Option<PathBuf>) -> bool {
    let texts = std::iter::once(command).chain(args.iter().map(String::as_str));
    let words: Vec<&str> =
        texts.flat_map(str::split_whitespace).map(|word| word.trim_matches(['"', '\'', ';'])).collect();
    let Some(serve) = words.windows(2).position(|pair| pair == ["mcp", "serve"]) else { return false };
    let names = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        OWN.iter().any(|own| name == *own || name.strip_prefix("t-") == Some(*own))
    };
    words[..serve].iter().any(|word| names(Path::new(word)))
        || resolve(Path::new(command)).is_some_and(|target| names(&target))
}

/// [`is_own`] for an entry in any client's notation.
pub fn is_own_entry(entry: &Value, resolve: &dyn Fn(&Path) -> Option<PathBuf>) -> bool {
    let command = entry.get("command");
    let (command, args) = match command {
        Some(Value::String(command)) => (command.as_str(), entry.get("args")),
        // Zed's older notation.
        Some(Value::Object(inner)) => {
            (inner.get("path").and_then(Value::as_str).unwrap_or_default(), inner.get("args"))
        }
        _ => return false,
    };
    let args = args.and_then(Value::as_array).into_iter().flatten();
    let args: Vec<String> = args.filter_map(|arg| arg.as_str().map(str::to_owned)).collect();
    is_own(command, &args, resolve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(entry: Value) -> Option<Fingerprint> {
        let known = |name: &str| (name == "KEY").then(|| "k-1".to_owned());
        fingerprint(entry.as_object().unwrap(), &known)
    }

    #[test]
    fn the_same_server_is_recognised_under_another_path_and_with_a_template() {
        let one = of(json!({"command": "/usr/local/bin/npx", "args": ["-y", "x"], "env": {"K": "k-1"}}));
        let two = of(json!({"command": "npx", "args": ["-y", "x"], "env": {"K": "${KEY}"}}));
        assert_eq!(one, two);
        assert_eq!(one, of(json!({"command": "npx", "args": ["x"], "env": {"K": "k-1"}})));
        let other = of(json!({"command": "npx", "args": ["-y", "x"], "env": {"K": "k-2"}}));
        assert_ne!(one, other);
        assert_eq!(one.unwrap().what, other.unwrap().what);
    }

    #[test]
    fn addresses_are_compared_without_their_last_slash_and_headers_without_case() {
        let one = of(json!({"url": "https://x/mcp/", "headers": {"X-Key": "k-1"}}));
        assert_eq!(one, of(json!({"url": "https://x/mcp", "headers": {"x-key": "${KEY}"}})));
        assert_eq!(of(json!({"args": []})), None);
        assert_ne!(of(json!({"command": "/a/server"})), of(json!({"command": "/b/server"})));
    }

    #[test]
    fn our_own_shim_is_known_by_name_through_launchers_and_through_links() {
        let link = |path: &Path| (path == Path::new("/x/mcp-hub")).then(|| PathBuf::from("/y/hermesctl"));
        let own = |entry: Value| is_own_entry(&entry, &link);
        assert!(own(json!({"command": "/home/u/.local/bin/hermesctl", "args": ["mcp", "serve"]})));
        assert!(own(json!({"command": "env", "args": ["A=1", "hermes", "mcp", "serve", "-v"]})));
        assert!(own(json!({"command": "/x/mcp-hub", "args": ["mcp", "serve"]})));
        assert!(own(json!({"command": {"path": "hermesctl", "args": ["mcp", "serve"]}})));
        assert!(!own(json!({"command": "codex", "args": ["mcp", "serve"]})));
        assert!(!own(json!({"command": "hermesctl", "args": ["status"]})));
        assert!(!own(json!({"url": "https://hermesctl/mcp/serve"})));
    }
}
