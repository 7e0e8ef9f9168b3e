//! One entry of a client's file, turned into an entry of hermesd.
//!
//! Pure, but for the text of an `envFile`, which the caller hands in. Promise: what the client does with the entry is
//! what hermesd will do, or a note says what was left out, or the entry is refused with the reason.

use super::table::Client;
use super::template::{self, Around, Need, TemplateError};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// An entry as hermesd writes it, with what a person should know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The entry.
    pub entry: Map<String, Value>,
    /// Variables that must be set.
    pub needs: Vec<Need>,
    /// What is different or was left out.
    pub notes: Vec<String>,
    /// A file of variables that is to be read into `env`.
    pub env_file: Option<PathBuf>,
}

/// Why an entry cannot be taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is no object.
    #[error("the entry is not an object")]
    NotMap,
    /// It says neither what to start nor where to go.
    #[error("the entry has neither a command nor an address")]
    Nothing,
    /// A member has the wrong type.
    #[error("`{key}` is not {wanted}")]
    Type {
        /// The member.
        key: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A transport that hermesd does not speak.
    #[error("hermesd does not speak the transport `{0}`")]
    Transport(String),
    /// A placeholder without meaning here.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// Members that change nothing for hermesd and are left out without a word.
const SILENT: [&str; 9] =
    ["type", "transport", "source", "name", "description", "gallery", "version", "dev", "icon"];
/// Members that give tools a permission in the client; hermesd has its own rule.
const PERMISSIONS: [&str; 5] =
    ["alwaysAllow", "autoApprove", "autoAllow", "trust", "default_tools_approval_mode"];

/// Turns `value`, an entry of `client`, into one of hermesd.
///
/// # Errors
/// [`Unusable`] with the reason.
pub fn convert(client: Client, value: &Value, around: &Around) -> Result<Converted, Unusable> {
    let mut from = value.as_object().ok_or(Unusable::NotMap)?.clone();
    // Zed's older notation has the program one level deeper.
    if let Some(Value::Object(inner)) = from.get("command").cloned() {
        from.remove("command");
        for (key, value) in inner {
            from.insert(if key == "path" { "command".to_owned() } else { key }, value);
        }
    }
    let mut reading =
        Reading { from, around, entry: Map::new(), needs: Vec::new(), notes: Vec::new(), env_file: None };
    reading.transport()?;
    if client == Client::Codex {
        reading.codex()?;
    }
    reading.common(client)?;
    reading.leftovers();
    let Reading { entry, needs, notes, env_file, .. } = reading;
    Ok(Converted { entry, needs, notes, env_file })
}

struct Reading<'a> {
    from: Map<String, Value>,
    around: &'a Around,
    entry: Map<String, Value>,
    needs: Vec<Need>,
    notes: Vec<String>,
    env_file: Option<PathBuf>,
}

impl Reading<'_> {
    fn transport(&mut self) -> Result<(), Unusable> {
        let kind = self.from.get("type").or_else(|| self.from.get("transport")).and_then(Value::as_str);
        let kind = kind.map(|kind| kind.to_ascii_lowercase().replace(['-', '_'], ""));
        if let Some(kind) = &kind
            && !["stdio", "sse", "http", "streamablehttp", "local", "remote"].contains(&kind.as_str())
        {
            return Err(Unusable::Transport(kind.clone()));
        }
        let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(|key| self.from.shift_remove(key));
        match (self.from.shift_remove("command"), url) {
            (Some(command), _) if kind.as_deref() != Some("http") && kind.as_deref() != Some("sse") => {
                self.program(&command)
            }
            (_, Some(url)) => {
                let url = self.text("url", &url)?;
                self.entry.insert("url".to_owned(), Value::from(url));
                if kind.as_deref() == Some("sse") {
                    self.entry.insert("transport".to_owned(), json!("sse"));
                }
                for key in ["headers", "http_headers"] {
                    if let Some(headers) = self.from.shift_remove(key) {
                        self.pairs("headers", key, &headers)?;
                    }
                }
                self.oauth()
            }
            (Some(_), None) | (None, None) => Err(Unusable::Nothing),
        }
    }

    fn program(&mut self, command: &Value) -> Result<(), Unusable> {
        let mut command = self.text("command", command)?;
        if command.trim().is_empty() {
            return Err(Unusable::Nothing);
        }
        let relative = command.starts_with("./") || command.starts_with("../");
        if let Some(project) = self.around.project.as_ref().filter(|_| relative) {
            let path = project.join(command.strip_prefix("./").unwrap_or(&command));
            command = path.display().to_string();
        }
        self.entry.insert("command".to_owned(), Value::from(command));
        if let Some(args) = self.from.shift_remove("args") {
            let list = args.as_array().ok_or_else(|| wrong("args", "a list"))?;
            let list: Result<Vec<String>, Unusable> = list.iter().map(|arg| self.text("args", arg)).collect();
            let list = list?;
            if !list.is_empty() {
                self.entry.insert("args".to_owned(), json!(list));
            }
        }
        if let Some(env) = self.from.shift_remove("env") {
            self.pairs("env", "env", &env)?;
        }
        if let Some(file) = self.from.shift_remove("envFile") {
            self.env_file = Some(PathBuf::from(self.text("envFile", &file)?));
        }
        let cwd = match self.from.shift_remove("cwd") {
            None | Some(Value::Null) => None,
            Some(cwd) => Some(self.text("cwd", &cwd)?),
        };
        // A client starts the servers of a project in the project.
        let project = self.around.project.as_ref().map(|dir| dir.display().to_string());
        let cwd = match (cwd, &project) {
            (Some(cwd), Some(project)) => Some(Path::new(project).join(cwd).display().to_string()),
            (cwd, project) => cwd.or_else(|| project.clone()),
        };
        if let Some(cwd) = cwd {
            self.entry.insert("cwd".to_owned(), Value::from(cwd));
        }
        Ok(())
    }

    /// What Codex alone writes.
    fn codex(&mut self) -> Result<(), Unusable> {
        if let Some(names) = self.from.shift_remove("env_vars") {
            // A name, or a table with the name and where Codex takes it from.
            let name = |item: &Value| item.as_str().or_else(|| item.get("name")?.as_str()).map(str::to_owned);
            let names = names.as_array().ok_or_else(|| wrong("env_vars", "a list"))?;
            let names: Vec<String> = names.iter().filter_map(name).collect();
            self.entry.insert("env_pass".to_owned(), json!(names));
        }
        let mut headers = self.entry.get("headers").and_then(Value::as_object).cloned().unwrap_or_default();
        if let Some(variable) = self.from.shift_remove("bearer_token_env_var") {
            let variable =
                variable.as_str().ok_or_else(|| wrong("bearer_token_env_var", "a name"))?.to_owned();
            headers.insert("Authorization".to_owned(), Value::from(format!("Bearer ${{{variable}}}")));
            self.need(variable);
        }
        if let Some(from) = self.from.shift_remove("env_http_headers") {
            let from = from.as_object().ok_or_else(|| wrong("env_http_headers", "a table"))?;
            for (header, variable) in from {
                let variable =
                    variable.as_str().ok_or_else(|| wrong("env_http_headers", "a table of names"))?;
                headers.insert(header.clone(), Value::from(format!("${{{variable}}}")));
                self.need(variable.to_owned());
            }
        }
        if !headers.is_empty() {
            self.entry.insert("headers".to_owned(), Value::Object(headers));
        }
        for (theirs, ours) in [("startup_timeout_sec", "connect_timeout"), ("tool_timeout_sec", "timeout")] {
            if let Some(seconds) = self.from.shift_remove(theirs) {
                let number = seconds.as_f64().ok_or_else(|| wrong(theirs, "a number of seconds"))?;
                // Whole seconds as they are; others in the unit in which they are whole.
                let whole = seconds.is_u64();
                let text = || Value::from(format!("{}ms", (number * 1000.0).round()));
                self.entry.insert(ours.to_owned(), if whole { seconds } else { text() });
            }
        }
        Ok(())
    }

    fn common(&mut self, client: Client) -> Result<(), Unusable> {
        let off = self.from.shift_remove("disabled") == Some(Value::Bool(true));
        let on = self.from.shift_remove("enabled");
        if off || on == Some(Value::Bool(false)) {
            self.entry.insert("enabled".to_owned(), Value::Bool(false));
            self.notes.push(format!("switched off in {}: it is taken over switched off", client.title()));
        }
        let mut tools = Map::new();
        for (theirs, ours) in [
            ("enabled_tools", "include"),
            ("disabled_tools", "exclude"),
            ("includeTools", "include"),
            ("excludeTools", "exclude"),
            ("disabledTools", "exclude"),
        ] {
            if let Some(names) = self.from.shift_remove(theirs).filter(Value::is_array) {
                tools.insert(ours.to_owned(), names);
            }
        }
        if !tools.is_empty() {
            self.entry.insert("tools".to_owned(), Value::Object(tools));
        }
        if client == Client::Gemini
            && let Some(limit) = self.from.shift_remove("timeout").and_then(|limit| limit.as_u64())
        {
            self.entry.insert("timeout".to_owned(), Value::from(format!("{limit}ms")));
        }
        Ok(())
    }

    /// A login with a client that was registered by hand, as Cursor and Claude Code write it.
    fn oauth(&mut self) -> Result<(), Unusable> {
        let auth = self.from.shift_remove("auth").or_else(|| self.from.shift_remove("oauth"));
        let Some(Value::Object(auth)) = auth else { return Ok(()) };
        let mut oauth = Map::new();
        for (theirs, ours) in [
            ("CLIENT_ID", "client_id"),
            ("clientId", "client_id"),
            ("client_id", "client_id"),
            ("CLIENT_SECRET", "client_secret"),
            ("clientSecret", "client_secret"),
        ] {
            if let Some(value) = auth.get(theirs) {
                let value = self.text(theirs, value)?;
                oauth.insert(ours.to_owned(), Value::from(value));
            }
        }
        if let Some(scopes) = auth.get("scopes") {
            oauth.insert("scope".to_owned(), scopes.clone());
        }
        if let Some(port) = auth.get("callbackPort") {
            oauth.insert("redirect_port".to_owned(), port.clone());
        }
        self.entry.insert("auth".to_owned(), json!("oauth"));
        if !oauth.is_empty() {
            self.entry.insert("oauth".to_owned(), Value::Object(oauth));
        }
        self.notes.push("log in again with `hermesctl mcp login`".to_owned());
        Ok(())
    }

    fn leftovers(&mut self) {
        let left: Vec<String> = std::mem::take(&mut self.from)
            .into_iter()
            .filter(|(key, value)| !SILENT.contains(&key.as_str()) && !value.is_null())
            .map(|(key, _)| key)
            .collect();
        let (permissions, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|key| PERMISSIONS.contains(&key.as_str()));
        if !permissions.is_empty() {
            self.notes.push(format!(
                "`{}` stays with the client; hermesd's own rule is `approval`",
                permissions.join("`, `")
            ));
        }
        if !others.is_empty() {
            self.notes.push(format!("left out, hermesd has nothing like it: `{}`", others.join("`, `")));
        }
    }

    fn pairs(&mut self, to: &str, key: &str, from: &Value) -> Result<(), Unusable> {
        let map = match from {
            Value::Null => return Ok(()),
            Value::Object(map) => map,
            _ => return Err(wrong(key, "an object")),
        };
        let mut pairs = Map::new();
        for (name, value) in map {
            if value.is_null() {
                continue; // takes a variable away from what the client hands on: hermesd hands nothing on
            }
            let value = self.text(&format!("{key}.{name}"), value)?;
            pairs.insert(name.clone(), Value::from(value));
        }
        if !pairs.is_empty() {
            self.entry.insert(to.to_owned(), Value::Object(pairs));
        }
        Ok(())
    }

    fn text(&mut self, key: &str, value: &Value) -> Result<String, Unusable> {
        match value {
            Value::String(text) => Ok(template::translate(text, self.around, &mut self.needs)?),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(flag) => Ok(flag.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(wrong(key, "a text")),
        }
    }

    fn need(&mut self, name: String) {
        if !self.needs.iter().any(|need| need.name == name) {
            self.needs.push(Need { name, what: String::new() });
        }
    }
}

fn wrong(key: &str, wanted: &'static str) -> Unusable {
    Unusable::Type { key: key.to_owned(), wanted }
}

/// The questions of a VS Code file.
pub fn inputs(whole: &Value) -> Vec<template::Input> {
    let list = whole.get("inputs").and_then(Value::as_array).into_iter().flatten();
    let text = |input: &Value, key: &str| input.get(key).and_then(Value::as_str).map(str::to_owned);
    list.filter_map(|input| {
        Some(template::Input {
            id: text(input, "id")?,
            description: text(input, "description").unwrap_or_default(),
            // A suggested password is none.
            default: text(input, "default").filter(|_| input.get("password") != Some(&Value::Bool(true))),
        })
    })
    .collect()
}

/// The lines of an `envFile`: `NAME=value`, quotes and `export` tolerated.
pub fn env_lines(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
            let value = value.trim();
            let quoted = ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q));
            template::is_name(name.trim())
                .then(|| (name.trim().to_owned(), quoted.unwrap_or(value).to_owned()))
        })
        .collect()
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
