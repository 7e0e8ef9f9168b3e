//! One client's configuration file as text: the servers in it, and edits that are checked before they count.
//!
//! Pure. Promise: an edit is given back only when the new text, read again, is exactly the old document with that
//! one server added, replaced or removed; else it is refused. A byte order mark stays. May not touch: files.

use super::table::Format;
use super::{jsonc, tomlc};
use serde_json::{Map, Value};

/// A new text that was not checked yet.
#[derive(Debug)]
pub(super) struct Edited(pub(super) String);

/// Why a document cannot be read or edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocError {
    /// The text is no document of its format.
    #[error("line {line}: {what}")]
    Malformed {
        /// Line of the first error, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// The text is not UTF-8.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// Something that holds servers is no object.
    #[error("{} is not an object", if key.is_empty() { "the document" } else { key })]
    NotMap {
        /// Its key; empty for the whole document.
        key: String,
    },
    /// The member to change is not there.
    #[error("the entry is not there")]
    Missing,
    /// The edited text would not be what was meant.
    #[error(
        "the file is written in a way that cannot be edited safely: the result would not read as intended"
    )]
    NotAsIntended,
}

/// The text of one file and where its servers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doc {
    /// The byte order mark, if the file has one.
    mark: &'static str,
    text: String,
    format: Format,
    path: Vec<String>,
    whole: Value,
}

/// What happens to one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// It is written, in place of one of this name if there is one.
    Put(String, Value),
    /// It is taken out.
    Remove(String),
}

const MARK: &str = "\u{feff}";

impl Doc {
    /// Reads `bytes`; nothing and white space are an empty document.
    ///
    /// # Errors
    /// [`DocError`] when the bytes are no document of this format.
    pub fn parse(bytes: &[u8], format: Format, path: &[&str]) -> Result<Self, DocError> {
        let text = std::str::from_utf8(bytes).map_err(|_| DocError::NotText)?;
        let (mark, text) = match text.strip_prefix(MARK) {
            Some(rest) => (MARK, rest),
            None => ("", text),
        };
        let whole = read(text, format)?;
        if !whole.is_object() {
            return Err(DocError::NotMap { key: String::new() });
        }
        let path = path.iter().map(|key| (*key).to_owned()).collect();
        let doc = Self { mark, text: text.to_owned(), format, path, whole };
        doc.at()?;
        Ok(doc)
    }

    /// The whole document as a value.
    pub fn whole(&self) -> &Value {
        &self.whole
    }

    /// The servers; empty when there are none.
    pub fn servers(&self) -> Map<String, Value> {
        self.at().ok().flatten().cloned().unwrap_or_default()
    }

    /// The document without its servers.
    pub fn rest(&self) -> Value {
        let mut whole = self.whole.clone();
        let Some((last, path)) = self.path.split_last() else { return whole };
        let at = path.iter().try_fold(&mut whole, |at, key| at.get_mut(key));
        if let Some(map) = at.and_then(Value::as_object_mut) {
            map.shift_remove(last);
        }
        whole
    }

    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        format!("{}{}", self.mark, self.text).into_bytes()
    }

    fn at(&self) -> Result<Option<&Map<String, Value>>, DocError> {
        let mut value = &self.whole;
        for key in &self.path {
            match value.get(key) {
                None | Some(Value::Null) => return Ok(None),
                Some(inner) if inner.is_object() => value = inner,
                Some(_) => return Err(DocError::NotMap { key: key.clone() }),
            }
        }
        Ok(value.as_object())
    }

    /// The document after `edit`.
    ///
    /// # Errors
    /// [`DocError::NotAsIntended`] when the text cannot be changed without changing something else.
    pub fn edit(&self, edit: &Edit) -> Result<Self, DocError> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let has = |name: &str| self.servers().contains_key(name);
        let Edited(text) = match (self.format, edit) {
            (Format::Json, Edit::Put(name, value)) if has(name) => {
                jsonc::replace(&self.text, &path, name, value)?
            }
            (Format::Json, Edit::Put(name, value)) => jsonc::insert(&self.text, &path, name, value)?,
            (Format::Json, Edit::Remove(name)) => jsonc::remove(&self.text, &path, name)?,
            (Format::Toml, Edit::Put(name, value)) if has(name) => {
                let Edited(without) = tomlc::remove(&self.text, &path, name)?;
                tomlc::insert(&without, &path, name, value)?
            }
            (Format::Toml, Edit::Put(name, value)) => tomlc::insert(&self.text, &path, name, value)?,
            (Format::Toml, Edit::Remove(name)) => tomlc::remove(&self.text, &path, name)?,
            (Format::Yaml, _) => return Err(DocError::NotAsIntended),
        };
        let whole = read(&text, self.format).map_err(|_| DocError::NotAsIntended)?;
        if !same(&whole, &self.intended(edit)) {
            return Err(DocError::NotAsIntended);
        }
        Ok(Self { text, whole, ..self.clone() })
    }

    /// The same file with another text, as when an older state of it comes back.
    ///
    /// # Errors
    /// As [`Doc::parse`].
    pub fn with_text(&self, text: &str) -> Result<Self, DocError> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        Self::parse(format!("{}{text}", self.mark).as_bytes(), self.format, &path)
    }

    /// The text without its byte order mark.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn intended(&self, edit: &Edit) -> Value {
        let mut whole = self.whole.clone();
        let mut at = &mut whole;
        for key in &self.path {
            let map = at.as_object_mut().expect("every step of the path was checked to be an object");
            let inner = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
            if inner.is_null() {
                *inner = Value::Object(Map::new());
            }
            at = inner;
        }
        let servers = at.as_object_mut().expect("every step of the path was checked to be an object");
        match edit {
            Edit::Put(name, value) => servers.insert(name.clone(), value.clone()),
            Edit::Remove(name) => servers.shift_remove(name),
        };
        whole
    }
}

/// Equal but for an empty map of servers that one of them lacks.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
            let all = |from: &Map<String, Value>, to: &Map<String, Value>| {
                from.iter().all(|(key, value)| match to.get(key) {
                    Some(other) => same(value, other),
                    None => empty(value),
                })
            };
            all(left, right) && all(right, left)
        }
        _ => left == right,
    }
}

fn read(text: &str, format: Format) -> Result<Value, DocError> {
    match format {
        Format::Json => jsonc::parse(text),
        Format::Toml => tomlc::parse(text),
        Format::Yaml => Err(DocError::NotAsIntended),
    }
}
