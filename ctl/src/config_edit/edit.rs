//! A text of YAML and what is to change in it, to the changed text.
//!
//! Pure; the editing itself is yaml-edit's. Promise: the changed text reads as the old one with
//! the steps applied, or nothing comes back but the differences; bytes outside the edited lines stay,
//! comments outside the edited values too, and so do line ends and a byte order mark. May not touch:
//! files.

use super::tree::{self, Node, Path, TreeError};
use super::value::Value;
use std::str::FromStr;
use yaml_edit::{AsYaml, Document, Mapping, YamlFile};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The value at a path; maps above it are made where they are missing.
    Set(Path, Value),
    /// Takes a key out with its value; nothing happens where it is not there.
    Remove(Path),
    /// Takes a value to another place as it is written, with the comments in it.
    Move {
        /// Where it is.
        from: Path,
        /// Where it will be; must be free.
        to: Path,
    },
}

/// Why a text stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] TreeError),
    /// A key on the way is no mapping.
    #[error("`{path}` is not a mapping of keys to values")]
    NotAMapping {
        /// Its path.
        path: Path,
    },
    /// A value on the way is an alias; a change would show in other places too.
    #[error("`{path}` is an alias (`*name`): what it stands for is written elsewhere in the file")]
    Alias {
        /// Its path.
        path: Path,
    },
    /// Nothing is where it should be moved from, or something is where it should go.
    #[error("`{from}` cannot be moved to `{to}`")]
    CannotMove {
        /// Where from.
        from: Path,
        /// Where to.
        to: Path,
    },
    /// The result would mean something else.
    #[error("the file is written in a way that cannot be edited safely:\n  {}", .differences.join("\n  "))]
    Unfaithful {
        /// Where it would differ from what was meant; no values.
        differences: Vec<String>,
    },
}

/// `text` after `steps`, checked by reading it again.
///
/// # Errors
/// Every [`EditError`]; nothing was changed then.
pub fn apply(text: &str, steps: &[Step]) -> Result<String, EditError> {
    // The library would count the mark as a character of the first key.
    let (mark, body) = match text.strip_prefix('\u{feff}') {
        Some(body) => ("\u{feff}", body),
        None => ("", text),
    };
    let mut now = body.to_owned();
    for step in steps {
        now = one(&now, step)?;
    }
    Ok(format!("{mark}{now}"))
}

/// `tree` after `step`: what an edited text must mean.
pub fn intended(tree: &Node, step: &Step) -> Node {
    let mut tree = tree.clone();
    match step {
        Step::Set(path, value) => put(&mut tree, path.keys(), value.node()),
        Step::Remove(path) => drop(take(&mut tree, path.keys())),
        Step::Move { from, to } => {
            if let Some(node) = take(&mut tree, from.keys()) {
                put(&mut tree, to.keys(), node);
            }
        }
    }
    tree
}

fn put(node: &mut Node, keys: &[String], value: Node) {
    let Some((key, rest)) = keys.split_first() else {
        *node = value;
        return;
    };
    if !matches!(node, Node::Map(_)) {
        *node = Node::Map(Vec::new());
    }
    let Node::Map(entries) = node else { unreachable!("it was just made one") };
    let at = entries.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
        entries.push((key.clone(), Node::null()));
        entries.len() - 1
    });
    put(&mut entries[at].1, rest, value);
}

fn take(node: &mut Node, keys: &[String]) -> Option<Node> {
    let (key, rest) = keys.split_first()?;
    let Node::Map(entries) = node else { return None };
    let at = entries.iter().position(|(name, _)| name == key)?;
    if rest.is_empty() { Some(entries.remove(at).1) } else { take(&mut entries[at].1, rest) }
}

fn one(text: &str, step: &Step) -> Result<String, EditError> {
    let before = tree::parse(text)?;
    check(&before, step)?;
    let wanted = intended(&before, step);
    if before.means(&wanted) && !matches!(step, Step::Move { .. }) {
        return Ok(text.to_owned());
    }
    let edited = edited(text, &before, step)?;
    let differences = match tree::parse(&edited) {
        Ok(after) => wanted.differences(&after),
        Err(error) => vec![error.to_string()],
    };
    let lost = lost_comments(text, &edited, step);
    if differences.is_empty() && lost.is_empty() {
        return Ok(edited);
    }
    let lost = lost.into_iter().map(|comment| format!("the comment `{comment}` would be lost"));
    Err(EditError::Unfaithful { differences: differences.into_iter().chain(lost).collect() })
}

/// What can be seen to be impossible before anything is tried.
fn check(tree: &Node, step: &Step) -> Result<(), EditError> {
    let (Step::Set(path, _) | Step::Remove(path) | Step::Move { to: path, .. }) = step;
    let mut node = Some(tree);
    for (depth, key) in path.keys().iter().enumerate() {
        match node {
            Some(Node::Map(_)) | None => {}
            Some(other) if other.is_null() => {}
            Some(_) => return Err(EditError::NotAMapping { path: Path::of(&path.keys()[..depth]) }),
        }
        node = node.and_then(|node| node.get(key));
    }
    match step {
        Step::Move { from, to } if tree.at(from).is_none() || node.is_some() => {
            Err(EditError::CannotMove { from: from.clone(), to: to.clone() })
        }
        Step::Move { .. } | Step::Set(..) | Step::Remove(_) => Ok(()),
    }
}

fn edited(text: &str, before: &Node, step: &Step) -> Result<String, EditError> {
    let file = YamlFile::from_str(text).map_err(|error| unfaithful(&error))?;
    let root = file.document().and_then(|document| document.as_mapping());
    let Some(root) = root else {
        // Nothing but comments so far: the new lines go to the end.
        return Ok(match step {
            Step::Set(path, value) => appended(text, &nested(path.keys(), value)),
            Step::Remove(_) | Step::Move { .. } => text.to_owned(),
        });
    };
    match step {
        Step::Set(path, value) => set(&root, before, path, &parsed(value), value)?,
        Step::Remove(path) => {
            let (key, above) = path.keys().split_last().expect("a step has a path");
            if let Some(parent) = descend(&root, above)? {
                parent.remove(key.as_str());
            }
        }
        Step::Move { from, to } => {
            let (key, above) = from.keys().split_last().expect("a step has a path");
            let parent = descend(&root, above)?.ok_or_else(|| EditError::Alias { path: from.clone() })?;
            let node = parent.get(key.as_str()).ok_or_else(|| EditError::Alias { path: from.clone() })?;
            let empty = Value::Map(Vec::new());
            set(&root, before, to, &node, &empty)?;
            // Made with its parents where those were missing; now it gets its content.
            let (name, above) = to.keys().split_last().expect("a step has a path");
            if let Some(target) = descend(&root, above)? {
                target.set(name.as_str(), &node);
            }
            parent.remove(key.as_str());
        }
    }
    Ok(file.to_string())
}

/// Sets `node` at `path`; where maps above it are missing or empty, they are written with `value` in them.
fn set(
    root: &Mapping,
    before: &Node,
    path: &Path,
    node: &impl AsYaml,
    value: &Value,
) -> Result<(), EditError> {
    let keys = path.keys();
    let (key, above) = keys.split_last().expect("a step has a path");
    for depth in 0..above.len() {
        let there = before.at(&Path::of(&keys[..=depth]));
        if there.is_none_or(|node| node.entries().is_empty()) {
            let parent = descend(root, &keys[..depth])?
                .ok_or_else(|| EditError::Alias { path: Path::of(&keys[..depth]) })?;
            parent.set(keys[depth].as_str(), parsed(&nested(&keys[depth + 1..], value)));
            return Ok(());
        }
    }
    let parent = descend(root, above)?.ok_or_else(|| EditError::Alias { path: Path::of(above) })?;
    parent.set(key.as_str(), node);
    Ok(())
}

/// The mapping below `keys`; `None` where one of them is not there.
fn descend(root: &Mapping, keys: &[String]) -> Result<Option<Mapping>, EditError> {
    let mut mapping = root.clone();
    for (depth, key) in keys.iter().enumerate() {
        match mapping.get_mapping(key.as_str()) {
            Some(next) => mapping = next,
            None if mapping.get(key.as_str()).is_none() => return Ok(None),
            None => return Err(EditError::Alias { path: Path::of(&keys[..=depth]) }),
        }
    }
    Ok(Some(mapping))
}

/// `value` inside maps with these keys.
fn nested(keys: &[String], value: &Value) -> Value {
    keys.iter().rev().fold(value.clone(), |value, key| Value::Map(vec![(key.clone(), value)]))
}

/// `value` in our own spelling, as the library takes it.
fn parsed(value: &Value) -> Document {
    Document::from_str(&value.block()).expect("what is written can be read: see the test of `Value`")
}

/// `text` with `value` as further lines.
fn appended(text: &str, value: &Value) -> String {
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { end };
    format!("{text}{gap}{}", value.block().replace('\n', end))
}

fn unfaithful(error: &impl std::fmt::Display) -> EditError {
    EditError::Unfaithful { differences: vec![error.to_string()] }
}

/// Comments of `before` that are neither in `after` nor in what `step` takes out.
fn lost_comments(before: &str, after: &str, step: &Step) -> Vec<String> {
    let comments = |text: &str| -> Vec<(String, usize)> {
        let Ok(file) = YamlFile::from_str(text) else { return Vec::new() };
        file.comments().map(|c| (c.text().to_owned(), usize::from(c.text_range().start()))).collect()
    };
    let mut left: Vec<String> = comments(after).into_iter().map(|(text, _)| text).collect();
    let gone = match step {
        Step::Set(path, _) | Step::Remove(path) => range_of(before, path),
        Step::Move { .. } => 0..0,
    };
    let missing =
        comments(before).into_iter().filter(|(text, at)| match left.iter().position(|other| other == text) {
            Some(found) => {
                left.swap_remove(found);
                false
            }
            None => !gone.contains(at),
        });
    missing.map(|(text, _)| text).collect()
}

/// The bytes from the line of the value at `path` to the end of its last line.
fn range_of(text: &str, path: &Path) -> std::ops::Range<usize> {
    let find = || {
        let root = YamlFile::from_str(text).ok()?.document()?.as_mapping()?;
        let (key, above) = path.keys().split_last()?;
        let parent = descend(&root, above).ok()??;
        // A comment may stand between the key and its value.
        let name =
            parent.keys().find(|name| name.as_scalar().is_some_and(|name| name.as_string() == *key))?;
        let value = parent.get(key.as_str())?.byte_range();
        Some((name.byte_range().start as usize, value.end.max(name.byte_range().end) as usize))
    };
    let Some((start, end)) = find() else { return 0..0 };
    let start = text.get(..start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let end = text.get(end..).and_then(|after| after.find('\n')).map_or(text.len(), |at| end + at);
    start..end
}
