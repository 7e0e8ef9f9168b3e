//! The servers of hermesd's own config.yaml, as values, and the steps that change them.
//!
//! Promise: reads only; every change is a list of steps for the editor of config.yaml, which proves the result.
//! May not touch: files of clients.

use super::entry::env_lines;
use super::identity::is_own_entry;
use super::register::Resolve;
use crate::config_edit::file::{FileError, read_tree};
use crate::config_edit::{Node, Path, Step, Value as Written, servers};
use hermes_proto::endpoint::Home;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;

/// What the home holds.
#[derive(Debug, Clone)]
pub struct Owned {
    /// The file as a tree.
    pub tree: Node,
    /// Every entry, each name once.
    pub servers: Vec<(String, Map<String, Value>)>,
    /// Variables of `.env`.
    pub dotenv: BTreeMap<String, String>,
}

/// Why the servers of Hermes Agent cannot be moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The name is in both sections.
    #[error("`{name}` is in `mcp_servers` and in `hermesd.mcp_servers`; remove one of them")]
    Twice {
        /// The name.
        name: String,
    },
    /// Another server has the name of the entry.
    #[error("a server is called `{name}`, and that name is needed for the entry of hermesd")]
    NameTaken {
        /// The name.
        name: String,
    },
}

/// Reads config.yaml and `.env`; what is not there is empty.
///
/// # Errors
/// [`FileError`] when config.yaml cannot be read as YAML.
pub fn read(home: &Home) -> Result<Owned, FileError> {
    let tree = read_tree(&home.path().join("config.yaml"))?;
    let dotenv = fs::read(home.path().join(".env")).unwrap_or_default();
    let dotenv = env_lines(&String::from_utf8_lossy(&dotenv)).into_iter().collect();
    let servers = servers::all(&tree)
        .into_iter()
        .filter_map(|entry| match json(entry.node) {
            Value::Object(map) => Some((entry.name.to_owned(), map)),
            _ => None,
        })
        .collect();
    Ok(Owned { tree, servers, dotenv })
}

impl Owned {
    /// A variable as the daemon would find it, as far as files tell.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.dotenv.get(name).cloned().or_else(|| std::env::var(name).ok())
    }

    /// The servers that hermesd runs: enabled, and not our own shim.
    pub fn running(&self) -> impl Iterator<Item = &(String, Map<String, Value>)> {
        self.servers.iter().filter(|(_, entry)| {
            let off = entry.get("enabled").is_some_and(|flag| {
                flag == &Value::Bool(false) || flag.as_str().is_some_and(|word| ["no", "off"].contains(&word))
            });
            !off && !is_own_entry(&Value::Object(entry.clone()), &|_| None)
        })
    }
}

/// A value of config.yaml; bare numbers and booleans as such where no spelling is lost.
pub fn json(node: &Node) -> Value {
    match node {
        Node::List(items) => Value::Array(items.iter().map(json).collect()),
        Node::Map(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), json(value))).collect())
        }
        Node::Scalar { .. } if node.is_null() => Value::Null,
        Node::Scalar { text, plain: false } => Value::from(text.as_str()),
        Node::Scalar { text, plain: true } => match text.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            other => match other.parse::<i64>() {
                Ok(number) if number.to_string() == *other => Value::from(number),
                _ => Value::from(other),
            },
        },
    }
}

/// A value for config.yaml.
pub fn written(value: &Value) -> Written {
    match value {
        Value::Bool(flag) => Written::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Written::Number(whole),
            None => Written::text(number.to_string()),
        },
        Value::String(text) => Written::text(text.as_str()),
        Value::Null => Written::text(""),
        Value::Array(list) => Written::List(list.iter().map(written).collect()),
        Value::Object(map) => {
            Written::Map(map.iter().map(|(key, value)| (key.clone(), written(value))).collect())
        }
    }
}

fn shared() -> Path {
    Path::of(["mcp_servers"])
}

fn own() -> Path {
    Path::of(["hermesd", "mcp_servers"])
}

/// Steps that move the servers of Hermes Agent to hermesd alone and leave one entry, with the names that move.
///
/// # Errors
/// [`MoveError`].
pub fn take_over(
    tree: &Node,
    name: &str,
    entry: &Value,
    resolve: Resolve<'_>,
) -> Result<(Vec<Step>, Vec<String>), MoveError> {
    let entries = tree.at(&shared()).map_or(&[][..], Node::entries);
    let (ours, theirs): (Vec<_>, Vec<_>) =
        entries.iter().partition(|(_, node)| is_own_entry(&json(node), resolve));
    let names: Vec<String> = theirs.into_iter().map(|(name, _)| name.clone()).collect();
    if names.iter().any(|other| other == name) {
        return Err(MoveError::NameTaken { name: name.to_owned() });
    }
    if let Some(name) = names.iter().find(|name| tree.at(&own().join(name)).is_some()) {
        return Err(MoveError::Twice { name: name.clone() });
    }
    let there = ours.iter().any(|(other, node)| other == name && json(node) == *entry);
    let mut steps = Vec::new();
    if !there {
        steps.push(Step::Set(shared().join(name), written(entry)));
    }
    steps.extend(names.iter().map(|name| Step::Move { from: shared().join(name), to: own().join(name) }));
    Ok((steps, names))
}

/// Steps that move servers back and take our entry out; `moved` names those to move, all without it.
pub fn give_back(tree: &Node, name: &str, moved: Option<&[String]>, resolve: Resolve<'_>) -> Vec<Step> {
    let entries = tree.at(&own()).map_or(&[][..], Node::entries);
    let free = |name: &str| tree.at(&shared().join(name)).is_none();
    let wanted = |name: &String| moved.is_none_or(|moved| moved.contains(name)) && free(name);
    let back: Vec<&String> = entries.iter().map(|(name, _)| name).filter(|name| wanted(name)).collect();
    let mut steps: Vec<Step> =
        back.iter().map(|name| Step::Move { from: own().join(name), to: shared().join(name) }).collect();
    if tree.at(&shared().join(name)).is_some_and(|node| is_own_entry(&json(node), resolve)) {
        steps.push(Step::Remove(shared().join(name)));
    }
    // What is empty now was made by us, or says nothing.
    if !entries.is_empty() && back.len() == entries.len() {
        let only = tree.get("hermesd").is_some_and(|section| section.entries().len() == 1);
        steps.push(Step::Remove(if only { Path::of(["hermesd"]) } else { own() }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_edit::{edit::apply, tree::parse};
    use serde_json::json;

    const FILE: &str = "# mine\nmodel: x # keep\nmcp_servers:\n  # the first\n  a:\n    command: x # why\n    args: [1, '2']\n  b: {url: \"https://h/${P}\"}\nplatforms: {}\n";

    fn shim() -> Value {
        json!({"command": "/bin/hermesctl", "args": ["mcp", "serve"]})
    }

    #[test]
    fn the_servers_of_hermes_agent_move_and_come_back() {
        let tree = parse(FILE).unwrap();
        let (steps, names) = take_over(&tree, "hermes", &shim(), &|_| None).unwrap();
        assert_eq!(names, ["a", "b"]);
        let moved = apply(FILE, &steps).unwrap();
        let after = parse(&moved).unwrap();
        let own: Vec<&str> = after.at(&own()).unwrap().entries().iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(own, ["a", "b"]);
        assert_eq!(after.at(&shared()).unwrap().entries().len(), 1);
        for kept in ["# mine", "# keep", "# the first", "# why", "'2'", "${P}"] {
            assert!(moved.contains(kept), "{kept} is lost:\n{moved}");
        }
        let (again, none) = take_over(&after, "hermes", &shim(), &|_| None).unwrap();
        assert!(again.is_empty() && none.is_empty());
        let back = apply(&moved, &give_back(&after, "hermes", None, &|_| None)).unwrap();
        assert!(parse(&back).unwrap().means(&tree), "{back}");
    }

    #[test]
    fn a_name_in_both_sections_is_not_guessed_about() {
        let tree = parse("mcp_servers:\n  a: {command: x}\nhermesd:\n  mcp_servers:\n    a: {command: y}\n")
            .unwrap();
        let twice = take_over(&tree, "hermes", &shim(), &|_| None);
        assert_eq!(twice, Err(MoveError::Twice { name: "a".into() }));
        let taken = take_over(&tree, "a", &shim(), &|_| None);
        assert_eq!(taken, Err(MoveError::NameTaken { name: "a".into() }));
    }

    #[test]
    fn values_keep_their_spelling_where_a_number_would_lose_it() {
        let tree = parse("a: 010\nb: 10\nc: '10'\nd: yes\ne: true\nf:\n").unwrap();
        assert_eq!(json(&tree), json!({"a": "010", "b": 10, "c": "10", "d": "yes", "e": true, "f": null}));
    }
}
