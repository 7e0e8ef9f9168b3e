//! Pure: the keys of a server that is a child process.
//!
//! Promise: scalars in `args` and `env` keep their spelling; `~` is expanded in `command` and
//! `cwd` only; nothing here ever becomes a shell line. May not touch: processes.

use super::command_line;
use super::file::Kind;
use super::interpolate;
use super::reader::{Field, Flag, Section, Text};
use super::server_entry::{OWN_SERVE, set};
use super::{Detached, Severity, StdioConfig};
use crate::secret::Secret;
use std::collections::BTreeMap;
use std::path::Path;

/// Keys that mean something here only, besides `command`.
pub(super) const KEYS: &[&str] = &["args", "env", "env_pass", "cwd", "allow_shell", "osv", "detached"];

/// What `desktop` in `env_pass` stands for.
pub const DESKTOP: &[&str] = &[
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DESKTOP_SESSION",
    "GNOME_KEYRING_CONTROL",
];

/// What `proxy` in `env_pass` stands for.
pub const PROXY: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "FTP_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "ftp_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "UV_NATIVE_TLS",
];

/// Variables that make a program load foreign code.
const LOADERS: &[&str] = &[
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "DYLD_INSERT_LIBRARIES",
    "DYLD_LIBRARY_PATH",
    "NODE_OPTIONS",
    "BASH_ENV",
    "PERL5OPT",
    "RUBYOPT",
    "PYTHONSTARTUP",
];

/// The variable names that the entries of `env_pass` stand for, groups resolved.
pub fn passed_names(env_pass: &[String]) -> Vec<&str> {
    let mut names = Vec::new();
    for entry in env_pass {
        match entry.as_str() {
            "desktop" => names.extend_from_slice(DESKTOP),
            "proxy" => names.extend_from_slice(PROXY),
            name => names.push(name),
        }
    }
    names
}

/// Reads the entry; `None` after an error, or where it is our own shim.
pub(super) fn read(section: &Section<'_>, command: &Field<'_>) -> Option<StdioConfig> {
    let args = section.get("args").map_or(Some(Vec::new()), |field| args(&field));
    let env = section.get("env").map_or(Some(BTreeMap::new()), |field| env(&field));
    let env_pass = section.get("env_pass").and_then(|field| env_pass(&field)).unwrap_or_default();
    let cwd = section.get("cwd").and_then(|field| cwd(&field));
    let allow_shell = section.flag("allow_shell", Flag::Off);
    let osv = section.flag("osv", Flag::On);
    let mut detached = Detached::End;
    set(section.get("detached").and_then(|field| field.choice(&Detached::NAMES)), &mut detached);
    let line = command_text(command)?;
    let args = args?;
    if command_line::is_own_serve(&line, &args, section.cx.around.resolve) {
        section.cx.find(Severity::Info, command.line, &command.path, OWN_SERVE.to_owned(), String::new());
        return None;
    }
    visible_secrets(section, &args);
    let env_file = from_dotenv(section, &env_pass);
    Some(StdioConfig { command: line, args, env: env?, env_pass, env_file, cwd, allow_shell, osv, detached })
}

/// Warns about arguments that hold secrets, by their looks or because hermesd resolved them.
fn visible_secrets(section: &Section<'_>, args: &[String]) {
    let mut seen = command_line::visible_secrets(args);
    let known = section.cx.sink.borrow().secrets.longest_first();
    for (i, arg) in
        args.iter().enumerate().filter(|(i, _)| !seen.iter().any(|(at, _)| at == i)).collect::<Vec<_>>()
    {
        seen.extend(
            known.iter().find(|secret| arg.contains(secret.expose())).map(|s| (i, s.expose().to_owned())),
        );
    }
    seen.sort();
    for (at, secret) in seen {
        let message = format!("argument {} holds a secret that every process can read", at + 1);
        section.warn("args", message, "put it into `env`, if the server can read it there");
        section.cx.sink.borrow_mut().secrets.insert(Secret::new(secret));
    }
}

/// The values that `.env` has for passed names, noted for redaction with those of the process.
fn from_dotenv(section: &Section<'_>, env_pass: &[String]) -> BTreeMap<String, Secret> {
    let around = section.cx.around;
    let mut values = BTreeMap::new();
    for name in passed_names(env_pass) {
        if let Some(value) = (around.env)(name) {
            section.cx.note(name, &value);
        }
        if let Some(value) = (around.dotenv)(name) {
            values.insert(name.to_owned(), Secret::new(value));
        }
    }
    values
}

fn command_text(field: &Field<'_>) -> Option<String> {
    let text = field.word()?;
    if text.contains('\0') {
        field.error("`command` contains a NUL byte".to_owned(), "");
        return None;
    }
    if text.starts_with('~') && text != "~" && !text.starts_with("~/") {
        field.warn("only `~/` is expanded, not another user's home".to_owned(), "write the whole path");
    }
    let command = field.cx.expand_home(&text);
    if command.contains(char::is_whitespace) && !(field.cx.around.is_file)(Path::new(&command)) {
        let words: Vec<String> =
            text.split_whitespace().map(|w| w.trim_matches(['"', '\'']).to_owned()).collect();
        // What follows the program may be a secret or come from a variable; then it is not repeated.
        let harmless = command_line::visible_secrets(&words).is_empty() && !field.spelling().contains("${");
        let rest = if harmless { format!("{:?}", &words[1..]) } else { "[…]".to_owned() };
        let hint = format!("write `command: {}` and `args: {rest}`", words[0]);
        field.error(
            "`command` contains spaces and is no file; it is one program, not a command line".to_owned(),
            &hint,
        );
        return None;
    }
    Some(command)
}

fn args(field: &Field<'_>) -> Option<Vec<String>> {
    let mut args = Vec::new();
    let mut complete = true;
    for item in field.items("write one item for each argument: `args: [\"-y\", \"pkg\"]`")? {
        if item.node.is_null() {
            item.warn(
                "an argument without a value is skipped".to_owned(),
                "write `\"\"` for an empty one, `\"null\"` for the word",
            );
            continue;
        }
        match item.text() {
            Some(arg) if arg.contains('\0') => {
                item.error("an argument contains a NUL byte".to_owned(), "");
                complete = false;
            }
            Some(arg) => {
                if arg.starts_with("~/") {
                    item.warn(
                        "`~` is not expanded in `args`, the server gets it as it is".to_owned(),
                        "write `${HOME}/…`",
                    );
                }
                args.push(arg);
            }
            None => complete = false,
        }
    }
    complete.then_some(args)
}

fn env(field: &Field<'_>) -> Option<BTreeMap<String, Secret>> {
    if matches!(field.node.kind, Kind::List(_)) {
        field.error("`env` is a list where a mapping is needed".to_owned(), "write `NAME: value` lines");
        return None;
    }
    let section = field.section()?;
    let mut env = BTreeMap::new();
    for (name, entry) in section.fields() {
        if name.is_empty() || name.contains(['=', '\0']) {
            let shown = name.split(['=', '\0']).next().unwrap_or_default();
            entry.error(format!("`{shown}…` cannot be the name of a variable"), "");
            continue;
        }
        // Null means: do not set it.
        if entry.node.is_null() {
            continue;
        }
        let value = match entry.fill() {
            Some(Text::Filled(value)) => value,
            Some(Text::Unset(unset)) => {
                let message = format!("`{name}` is left out: the variable `{unset}` is not set");
                entry.warn(message, &interpolate::unset_hint(&unset));
                continue;
            }
            None => continue,
        };
        if value.contains('\0') {
            entry.error(format!("the value of `{name}` contains a NUL byte"), "");
            continue;
        }
        if value.starts_with("~/") {
            entry.warn(
                "`~` is not expanded in `env`, the server gets it as it is".to_owned(),
                "write `${HOME}/…`",
            );
        }
        flag_loader(&entry, name);
        field.cx.note(name, &value);
        env.insert(name.to_owned(), Secret::new(value));
    }
    Some(env)
}

fn flag_loader(field: &Field<'_>, name: &str) {
    if LOADERS.contains(&name) {
        let message = format!("`{name}` makes the server load code from elsewhere");
        field.cx.find(Severity::Info, field.line, &field.path, message, String::new());
    }
}

fn env_pass(field: &Field<'_>) -> Option<Vec<String>> {
    let names = field.names()?;
    // The text itself is not shown: `TOKEN=value` is what people write here by mistake.
    for (i, _) in names.iter().enumerate().filter(|(_, name)| !interpolate::is_name(name)) {
        let message = format!("item {} of `env_pass` is not the name of a variable", i + 1);
        field.error(message, "list names, `desktop` or `proxy`");
    }
    names.iter().for_each(|name| flag_loader(field, name));
    Some(names)
}

fn cwd(field: &Field<'_>) -> Option<std::path::PathBuf> {
    let path = field.path()?;
    if path.is_absolute() {
        return Some(path);
    }
    // The daemon's own folder means nothing to a person, so relative ones start at the home.
    let Some(home) = field.cx.around.user_home else {
        field.error(
            "`cwd` is relative and there is no home to start from".to_owned(),
            "write an absolute path",
        );
        return None;
    };
    field.warn(format!("`cwd` is relative and starts at {}", home.display()), "write an absolute path");
    Some(home.join(path))
}

#[cfg(test)]
#[path = "stdio_entry_tests.rs"]
mod tests;
