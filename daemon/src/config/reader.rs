//! Pure: reads typed values out of the YAML tree and collects what is wrong with them.
//!
//! Promise: a reader never stops at the first error; keys that nobody asked for are reported
//! with the closest key that was; findings show what the file says, never a variable's value.
//! May not touch: files; the environment only through [`Surroundings`].

use super::file::{Entry, Kind, Map, Node, Scalar};
use super::interpolate::{self, Outcome};
use super::values::{self, Spelled, ValueError};
use super::{Finding, Severity};
use crate::names::ServerName;
use crate::secret::KnownSecrets;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What checking may ask of the machine; all of it can be answered by a test.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Path of the configuration, for findings.
    pub file: &'a Path,
    /// Value of a variable: `.env`, then the process.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Value of a variable in `.env` alone.
    pub dotenv: &'a dyn Fn(&str) -> Option<String>,
    /// The user's home, for `~`.
    pub user_home: Option<&'a Path>,
    /// Whether a file exists.
    pub is_file: &'a dyn Fn(&Path) -> bool,
    /// Where a path leads after all links; `None` if nowhere.
    pub resolve: &'a dyn Fn(&Path) -> Option<PathBuf>,
}

/// What has been found so far.
#[derive(Debug, Default)]
pub(super) struct Sink {
    pub(super) findings: Vec<Finding>,
    pub(super) secrets: KnownSecrets,
    /// Every key that was asked for: what the reference must list.
    #[cfg(test)]
    pub(super) asked: BTreeSet<String>,
}

/// The place of the reader: whose entry it is and where findings go.
#[derive(Clone, Copy)]
pub(super) struct Cx<'a> {
    pub(super) around: &'a Surroundings<'a>,
    pub(super) sink: &'a RefCell<Sink>,
    pub(super) server: Option<&'a ServerName>,
}

impl<'a> Cx<'a> {
    /// The same place, for findings about `server`.
    pub(super) fn of(self, server: &'a ServerName) -> Self {
        Self { server: Some(server), ..self }
    }

    pub(super) fn find(&self, severity: Severity, line: u32, key: &str, message: String, hint: String) {
        self.sink.borrow_mut().findings.push(Finding {
            severity,
            server: self.server.cloned(),
            file: Some(self.around.file.to_owned()),
            line,
            key: key.to_owned(),
            message,
            hint,
        });
    }

    /// Remembers `value` for redaction if `name` says that it is a secret.
    pub(super) fn note(&self, name: &str, value: &str) {
        self.sink.borrow_mut().secrets.note(name, value);
    }

    /// `~` and `~/x` with the user's home; everything else unchanged.
    pub(super) fn expand_home(&self, text: &str) -> String {
        match (text, self.around.user_home) {
            ("~", Some(home)) => home.to_string_lossy().into_owned(),
            (_, Some(home)) if text.starts_with("~/") => home.join(&text[2..]).to_string_lossy().into_owned(),
            _ => text.to_owned(),
        }
    }
}

/// One mapping whose keys are known to the reader.
pub(super) struct Section<'a> {
    pub(super) cx: Cx<'a>,
    pub(super) map: &'a Map,
    pub(super) path: String,
    pub(super) line: u32,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Section<'a> {
    pub(super) fn new(cx: Cx<'a>, map: &'a Map, path: String, line: u32) -> Self {
        let section = Self { cx, map, path, line, asked: RefCell::default() };
        for twice in &map.duplicates {
            let message = format!(
                "`{}` is written in line {} and again in line {}",
                twice.key, twice.first, twice.second
            );
            let path = section.path_of(&twice.key);
            cx.find(Severity::Error, twice.second, &path, message, "keep one of them".to_owned());
        }
        for line in &map.odd_keys {
            let message = "a key is a list or a mapping and was skipped".to_owned();
            cx.find(Severity::Error, *line, &section.path, message, "quote the key".to_owned());
        }
        section
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of `key`, null included.
    pub(super) fn raw(&self, key: &'static str) -> Option<Field<'a>> {
        self.asked.borrow_mut().insert(key);
        #[cfg(test)]
        self.cx.sink.borrow_mut().asked.insert(self.path_of(key));
        self.map.get(key).map(|entry| self.field_of(entry))
    }

    /// The value of `key`; null is the same as absent.
    pub(super) fn get(&self, key: &'static str) -> Option<Field<'a>> {
        self.raw(key).filter(|field| !field.node.is_null())
    }

    fn field_of(&self, entry: &'a Entry) -> Field<'a> {
        Field { cx: self.cx, path: self.path_of(&entry.key), line: entry.line, node: &entry.value }
    }

    /// Every entry, for mappings whose keys are names.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        self.map.entries.iter().map(|entry| (entry.key.as_str(), self.field_of(entry)))
    }

    pub(super) fn flag(&self, key: &'static str, default: Flag) -> bool {
        self.get(key).and_then(|field| field.flag()).unwrap_or(default == Flag::On)
    }

    /// An inner mapping; anything else there is an error.
    pub(super) fn section(&self, key: &'static str) -> Option<Section<'a>> {
        self.get(key).and_then(|field| field.section())
    }

    pub(super) fn error(&self, key: &str, message: String, hint: &str) {
        let line = self.map.get(key).map_or(self.line, |entry| entry.line);
        self.cx.find(Severity::Error, line, &self.path_of(key), message, hint.to_owned());
    }

    pub(super) fn warn(&self, key: &str, message: String, hint: &str) {
        let line = self.map.get(key).map_or(self.line, |entry| entry.line);
        self.cx.find(Severity::Warning, line, &self.path_of(key), message, hint.to_owned());
    }

    /// Warns about each of `keys` that is written: they mean nothing here.
    pub(super) fn no_effect(&self, keys: &[&'static str], why: &str) {
        self.asked.borrow_mut().extend(keys);
        for key in keys.iter().filter(|key| self.map.get(key).is_some_and(|entry| !entry.value.is_null())) {
            self.warn(key, format!("`{key}` has no effect {why}"), "remove it");
        }
    }

    /// Reports every key that nobody asked for. `foreign` explains keys of other programs.
    pub(super) fn finish(self, foreign: &dyn Fn(&str) -> Option<&'static str>) {
        let asked = self.asked.borrow();
        for entry in &self.map.entries {
            let key = entry.key.as_str();
            if asked.contains(key) || key.starts_with("x-") || key.starts_with('_') {
                continue;
            }
            let hint = match (foreign(key), values::closest(key, asked.iter().copied())) {
                (Some(hint), _) => hint.to_owned(),
                (None, Some(known)) => format!("did you mean `{known}`?"),
                (None, None) => {
                    format!("known here: {}", asked.iter().copied().collect::<Vec<_>>().join(", "))
                }
            };
            let message = format!("unknown key `{key}`, ignored");
            self.cx.find(Severity::Warning, entry.line, &self.path_of(key), message, hint);
        }
    }
}

/// Default of a boolean key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    On,
    Off,
}

/// One value and its place.
pub(super) struct Field<'a> {
    pub(super) cx: Cx<'a>,
    pub(super) path: String,
    pub(super) line: u32,
    pub(super) node: &'a Node,
}

/// A text of the file with its variables filled in.
pub(super) enum Text {
    Filled(String),
    /// A variable is missing; nothing was reported yet.
    Unset(String),
}

impl<'a> Field<'a> {
    pub(super) fn error(&self, message: String, hint: &str) {
        self.cx.find(Severity::Error, self.line, &self.path, message, hint.to_owned());
    }

    pub(super) fn warn(&self, message: String, hint: &str) {
        self.cx.find(Severity::Warning, self.line, &self.path, message, hint.to_owned());
    }

    /// Last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    fn wrong_shape(&self, wanted: &str, hint: &str) {
        self.error(format!("`{}` is {} where {wanted} is needed", self.name(), self.node.describe()), hint);
    }

    fn scalar(&self) -> Option<&'a Scalar> {
        match &self.node.kind {
            Kind::Scalar(scalar) => Some(scalar),
            Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// As the file spells it, cut to a line, for messages.
    pub(super) fn spelling(&self) -> String {
        let text = self.scalar().map_or("", |scalar| scalar.text.as_str());
        let line = text.lines().next().unwrap_or("");
        if line.chars().count() > 40 {
            format!("{}…", line.chars().take(40).collect::<String>())
        } else {
            line.to_owned()
        }
    }

    /// The text with variables filled in; another shape is reported.
    pub(super) fn fill(&self) -> Option<Text> {
        let Some(scalar) = self.scalar() else {
            self.wrong_shape("a single value", "");
            return None;
        };
        let filled = interpolate::interpolate(&scalar.text, self.cx.around.env);
        for warning in &filled.warnings {
            self.warn(warning.to_string(), &warning.hint());
        }
        for name in &filled.used {
            if let Some(value) = (self.cx.around.env)(name) {
                self.cx.note(name, &value);
            }
        }
        if matches!(&filled.outcome, Outcome::Text(text) if values::is_masked(text)) {
            // Copied from a log or a status; using it, or writing it back, would lose the real value.
            let message = format!("`{}` holds a masked value, not the real one", self.name());
            self.error(message, "write the value itself, or a `${VARIABLE}` that `.env` sets");
            return None;
        }
        if let Outcome::Text(text) = &filled.outcome {
            self.cx.sink.borrow_mut().secrets.note_urls(text);
        }
        Some(match filled.outcome {
            Outcome::Text(text) => Text::Filled(text),
            Outcome::Unset { name } => Text::Unset(name),
        })
    }

    /// The text; a missing variable is an error.
    pub(super) fn text(&self) -> Option<String> {
        match self.fill()? {
            Text::Filled(text) => Some(text),
            Text::Unset(name) => {
                let message = format!("`{}` needs the variable `{name}`, which is not set", self.name());
                self.error(message, &interpolate::unset_hint(&name));
                None
            }
        }
    }

    /// The text, trimmed; an empty one is an error.
    pub(super) fn word(&self) -> Option<String> {
        let text = self.text()?.trim().to_owned();
        if text.is_empty() {
            self.error(format!("`{}` is empty", self.name()), "give a value or remove the key");
            return None;
        }
        Some(text)
    }

    fn refuse(&self, err: &ValueError) {
        self.error(format!("`{}` for `{}`: {err}", self.spelling(), self.name()), err.hint());
    }

    pub(super) fn flag(&self) -> Option<bool> {
        match values::boolean(&self.text()?) {
            Ok(Spelled::Word(value)) => Some(value),
            Ok(spelled @ Spelled::Digit(value)) => {
                let message = format!(
                    "`{}` is read as {value}; Hermes Agent ignores bare numbers here",
                    self.spelling()
                );
                self.warn(message, if spelled.value() { "write `true`" } else { "write `false`" });
                Some(value)
            }
            Err(err) => {
                self.refuse(&err);
                None
            }
        }
    }

    /// A duration of at least `min`.
    pub(super) fn duration(&self, min: Duration) -> Option<Duration> {
        match values::duration(&self.text()?) {
            Ok(duration) if duration >= min => Some(duration),
            Ok(_) => {
                self.error(
                    format!("`{}` for `{}` is too short", self.spelling(), self.name()),
                    &format!("at least {min:?}"),
                );
                None
            }
            Err(err) => {
                self.refuse(&err);
                None
            }
        }
    }

    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        match values::whole(&self.text()?) {
            Ok(n) if range.contains(&n) => Some(n),
            Ok(_) => {
                let hint = format!("{} to {}", range.start(), range.end());
                self.error(format!("`{}` for `{}` is out of range", self.spelling(), self.name()), &hint);
                None
            }
            Err(err) => {
                self.refuse(&err);
                None
            }
        }
    }

    pub(super) fn size(&self) -> Option<u64> {
        values::size(&self.text()?).map_err(|err| self.refuse(&err)).ok()
    }

    /// One of `allowed`; `false` and `true` stand for a listed `off` and `on`.
    pub(super) fn choice<T: Clone>(&self, allowed: &[(&'static str, T)]) -> Option<T> {
        let text = self.text()?;
        let plain = text.trim().to_ascii_lowercase().replace('-', "_");
        let same = |name: &str, wanted: &str| name.replace('-', "_") == wanted;
        let find = |wanted: &str| {
            allowed.iter().find(|(name, _)| same(name, wanted)).map(|(_, value)| value.clone())
        };
        let as_switch = || find(if values::boolean(&plain).ok()?.value() { "on" } else { "off" });
        if let Some(value) = find(&plain).or_else(as_switch) {
            return Some(value);
        }
        let names: Vec<&str> = allowed.iter().map(|(name, _)| *name).collect();
        let hint = match values::closest(&plain, names.iter().copied()) {
            Some(name) => format!("did you mean `{name}`? Allowed: {}", names.join(", ")),
            None => format!("allowed: {}", names.join(", ")),
        };
        self.error(format!("`{}` is not a value of `{}`", self.spelling(), self.name()), &hint);
        None
    }

    /// The items of a list; another shape is reported with `hint`.
    pub(super) fn items(&self, hint: &str) -> Option<Vec<Field<'a>>> {
        let Kind::List(items) = &self.node.kind else {
            self.wrong_shape("a list", hint);
            return None;
        };
        let item = |(i, node): (usize, &'a Node)| Field {
            cx: self.cx,
            path: format!("{}[{i}]", self.path),
            line: node.line,
            node,
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// One name or a list of names, in their spelling; empty ones are skipped with a warning.
    pub(super) fn names(&self) -> Option<Vec<String>> {
        if matches!(self.node.kind, Kind::Scalar(_)) {
            return self.text().map(|name| vec![name]);
        }
        let mut names = Vec::new();
        let mut complete = true;
        for item in self.items("write one name or a list: `[a, b]`")? {
            if item.node.is_null() {
                item.warn("an empty item is skipped".to_owned(), "");
                continue;
            }
            match item.text() {
                Some(name) => names.push(name),
                None => complete = false,
            }
        }
        complete.then_some(names)
    }

    pub(super) fn section(&self) -> Option<Section<'a>> {
        match &self.node.kind {
            Kind::Map(map) => Some(Section::new(self.cx, map, self.path.clone(), self.line)),
            Kind::Scalar(_) | Kind::List(_) => {
                self.wrong_shape("a mapping", "write `key: value` lines below it");
                None
            }
        }
    }

    /// Whether the value is one of the words that turn a section off: null, `false`, `off`, `none`.
    pub(super) fn says_off(&self) -> bool {
        self.node.is_null()
            || self.scalar().is_some_and(|scalar| {
                matches!(values::boolean(&scalar.text), Ok(Spelled::Word(false)))
                    || scalar.text.trim().eq_ignore_ascii_case("none")
            })
    }

    /// A path with `~` expanded.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let text = self.word()?;
        if text.starts_with('~') && text != "~" && !text.starts_with("~/") {
            self.warn("only `~/` is expanded, not another user's home".to_owned(), "write the whole path");
        }
        Some(PathBuf::from(self.cx.expand_home(&text)))
    }
}
