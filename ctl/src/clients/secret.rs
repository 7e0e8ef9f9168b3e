//! Which values of an entry are secrets, and how they move into `.env`.
//!
//! Pure. The rule is the daemon's ([`hermes_proto::secrets`]), and passwords in addresses.

use super::template::variable_name;
use hermes_proto::secrets::{is_known_key, name_says_secret, value_is_secret};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Words before a secret in a header.
const SCHEMES: [&str; 4] = ["Bearer ", "bearer ", "Basic ", "Token "];

/// Whether a value is worth a line in `.env`: a secret that is no address and no template.
fn is_worth_it(value: &str) -> bool {
    value_is_secret(value) && !value.starts_with("../") && !value.contains("://") && !value.contains("${")
}

fn is_known(value: &str) -> bool {
    is_known_key(value) && is_worth_it(value)
}

/// A secret that stands in an entry as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where, for people: `env GITHUB_TOKEN`, `header Authorization`, `argument 3`.
    pub place: String,
    /// The variable that it would become.
    pub variable: String,
}

/// All secrets of `entry`, which is named `server`, without their values.
pub fn find(server: &str, entry: &Map<String, Value>) -> Vec<Found> {
    let mut found = Vec::new();
    let mut entry = entry.clone();
    visit(server, &mut entry, &mut |place, variable, _| {
        found.push(Found { place, variable });
        None
    });
    found
}

/// Moves the secrets of `entry` into variables: the entry gets templates, `dotenv` the values. A name that holds
/// another value already is not taken. Gives back the new lines.
pub fn move_out(
    server: &str,
    entry: &mut Map<String, Value>,
    dotenv: &mut BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    visit(server, entry, &mut |_, variable, value| {
        let prefixed = format!("{}_{variable}", variable_name(server));
        let numbered = (2..).map(|number| format!("{prefixed}_{number}"));
        let free = [variable, prefixed.clone()]
            .into_iter()
            .chain(numbered)
            .find(|name| dotenv.get(name).is_none_or(|old| old == value))?;
        if dotenv.insert(free.clone(), value.to_owned()).is_none() {
            lines.push((free.clone(), value.to_owned()));
        }
        Some(free)
    });
    lines
}

/// `entry` with every secret as a template, for showing it to others; nothing is written down.
pub fn as_templates(server: &str, entry: &Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let mut shown = entry.clone();
    let lines = move_out(server, &mut shown, &mut BTreeMap::new());
    (shown, lines.into_iter().map(|(name, _)| name).collect())
}

/// What is done with one secret: its place, the name it might get, its value; the name it got, or `None`.
type Visitor<'v> = &'v mut dyn FnMut(String, String, &str) -> Option<String>;

fn visit(server: &str, entry: &mut Map<String, Value>, each: Visitor<'_>) {
    let upper = variable_name(server);
    if let Some(env) = entry.get_mut("env").and_then(Value::as_object_mut) {
        for (name, value) in env {
            let Value::String(text) = value else { continue };
            let headers =
                ["authorization", "bearer "].iter().any(|word| text.to_ascii_lowercase().contains(word));
            if (name_says_secret(name) && is_worth_it(text))
                || is_known(text)
                || (headers && !text.contains("${"))
            {
                swap(text, 0, each, format!("env {name}"), variable_name(name));
            } else {
                address(text, each, &format!("env {name}"), &upper);
            }
        }
    }
    if let Some(headers) = entry.get_mut("headers").and_then(Value::as_object_mut) {
        for (name, value) in headers {
            let Value::String(text) = value else { continue };
            let from = SCHEMES.iter().find(|scheme| text.starts_with(**scheme)).map_or(0, |word| word.len());
            if (name_says_secret(name) && is_worth_it(&text[from..])) || is_known(&text[from..]) {
                // The name that Hermes Agent gives the token of a server.
                let variable = match name.eq_ignore_ascii_case("authorization") {
                    true => format!("MCP_{}_API_KEY", upper.strip_prefix("MCP_").unwrap_or(&upper)),
                    false => format!("{upper}_{}", variable_name(name)),
                };
                swap(text, from, each, format!("header {name}"), variable);
            }
        }
    }
    if let Some(oauth) = entry.get_mut("oauth").and_then(Value::as_object_mut)
        && let Some(Value::String(text)) = oauth.get_mut("client_secret")
        && is_worth_it(text)
    {
        swap(text, 0, each, "oauth client_secret".to_owned(), format!("{upper}_CLIENT_SECRET"));
    }
    arguments(entry, each, &upper);
    if let Some(Value::String(url)) = entry.get_mut("url") {
        query(url, each, &upper);
        address(url, each, "url", &upper);
    }
}

fn arguments(entry: &mut Map<String, Value>, each: Visitor<'_>, upper: &str) {
    let Some(args) = entry.get_mut("args").and_then(Value::as_array_mut) else { return };
    let mut option: Option<String> = None;
    for (number, value) in args.iter_mut().enumerate() {
        let Value::String(text) = value else { continue };
        let place = format!("argument {}", number + 1);
        let before = option.take();
        if let Some((from, name)) = header(text).map(|(from, name)| (from, variable_name(name))) {
            swap(text, from, each, place, format!("{upper}_{name}"));
            continue;
        }
        if let Some((name, given)) = text.split_once('=').filter(|(name, _)| is_option(name)) {
            let from = name.len() + 1;
            if (name_says_secret(name) && is_worth_it(given)) || is_known(given) {
                let variable = variable_name(name.trim_start_matches('-'));
                swap(text, from, each, place, format!("{upper}_{variable}"));
                continue;
            }
        } else if text.starts_with('-') {
            option = Some(text.clone());
            continue;
        }
        let said = before.filter(|option| name_says_secret(option) && is_worth_it(text));
        match said {
            Some(option) => {
                let variable = variable_name(option.trim_start_matches('-'));
                swap(text, 0, each, place, format!("{upper}_{variable}"));
            }
            None if is_known(text) => swap(text, 0, each, place, format!("{upper}_KEY")),
            None => address(text, each, &place, upper),
        }
    }
}

/// `Name: value` with a secret in it, also after `--header=`: where the secret begins, and the name.
fn header(text: &str) -> Option<(usize, &str)> {
    let (before, rest) = text.split_once(':')?;
    let name = before.rsplit('=').next().unwrap_or(before).trim();
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    let value = rest.trim_start();
    let scheme = SCHEMES.iter().find(|scheme| value.starts_with(**scheme)).map_or(0, |word| word.len());
    let from = text.len() - value.len() + scheme;
    (is_name && name_says_secret(name) && is_worth_it(&text[from..])).then_some((from, name))
}

/// Before an `=`: `--name`, `-n`, and names as `docker run -e NAME=VALUE` takes them.
fn is_option(name: &str) -> bool {
    name.starts_with('-')
        || (!name.is_empty()
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
}

/// A parameter of an address that says key or token.
fn query(url: &mut String, each: Visitor<'_>, upper: &str) {
    let Some(start) = url.find('?') else { return };
    let mut at = start + 1;
    while at < url.len() {
        let end = url[at..].find(['&', '#']).map_or(url.len(), |end| at + end);
        let Some(equals) = url[at..end].find('=') else {
            at = end + 1;
            continue;
        };
        let (name, from) = (url[at..at + equals].to_owned(), at + equals + 1);
        let mut text = url[from..end].to_owned();
        if (name_says_secret(&name) && is_worth_it(&text)) || is_known(&text) {
            swap(&mut text, 0, each, "url".to_owned(), format!("{upper}_{}", variable_name(&name)));
            url.replace_range(from..end, &text);
        }
        at = from + text.len() + 1;
    }
}

/// The password of an address.
fn address(text: &mut String, each: Visitor<'_>, place: &str, upper: &str) {
    let Some(start) = text.find("://").map(|at| at + 3) else { return };
    let end = text[start..].find(['/', '?', '#', ' ']).map_or(text.len(), |end| start + end);
    let Some(at_sign) = text[start..end].rfind('@') else { return };
    let Some(colon) = text[start..start + at_sign].find(':') else { return };
    let (from, to) = (start + colon + 1, start + at_sign);
    let password = text[from..to].to_owned();
    if password.is_empty() || password.contains("${") {
        return;
    }
    if let Some(name) = each(place.to_owned(), format!("{upper}_PASSWORD"), &password) {
        text.replace_range(from..to, &format!("${{{name}}}"));
    }
}

fn swap(text: &mut String, from: usize, each: Visitor<'_>, place: String, variable: String) {
    let value = text[from..].to_owned();
    if let Some(name) = each(place, variable, &value) {
        text.replace_range(from.., &format!("${{{name}}}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn moved(entry: Value) -> (Value, Vec<(String, String)>) {
        let mut entry = entry.as_object().unwrap().clone();
        let mut dotenv = BTreeMap::from([("TAKEN_KEY".to_owned(), "another value".to_owned())]);
        let lines = move_out("my-server", &mut entry, &mut dotenv);
        (Value::Object(entry), lines)
    }

    fn line(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn secrets_of_every_place_become_templates() {
        let (entry, lines) = moved(json!({
            "env": {"GITHUB_TOKEN": "ghp_0123456789abcdef", "MODE": "production", "DB": "postgres://me:hunter2@h/db"},
            "args": ["--api-key=abcdefgh1", "--token", "abcdefgh2", "--path", "/a/token/file", "-e", "KEY=abcdefgh3"],
        }));
        assert_eq!(
            entry,
            json!({
                "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "production", "DB": "postgres://me:${MY_SERVER_PASSWORD}@h/db"},
                "args": ["--api-key=${MY_SERVER_API_KEY}", "--token", "${MY_SERVER_TOKEN}", "--path", "/a/token/file", "-e", "KEY=${MY_SERVER_KEY}"],
            })
        );
        assert!(lines.contains(&line("GITHUB_TOKEN", "ghp_0123456789abcdef")), "{lines:?}");
        assert!(lines.contains(&line("MY_SERVER_PASSWORD", "hunter2")), "{lines:?}");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn headers_in_arguments_and_variables_are_secrets_too() {
        let (entry, lines) = moved(json!({
            "args": ["mcp-remote", "https://h/mcp", "--header", "Authorization: Bearer abcdefgh1", "--header=X-Api-Key: abcdefgh2"],
            "env": {"OPENAPI_MCP_HEADERS": "{\"Authorization\":\"Bearer abcdefgh3\"}"},
        }));
        assert_eq!(
            entry,
            json!({
                "args": ["mcp-remote", "https://h/mcp", "--header", "Authorization: Bearer ${MY_SERVER_AUTHORIZATION}", "--header=X-Api-Key: ${MY_SERVER_X_API_KEY}"],
                "env": {"OPENAPI_MCP_HEADERS": "${OPENAPI_MCP_HEADERS}"},
            })
        );
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn headers_keep_their_scheme_and_addresses_their_other_parameters() {
        let (entry, lines) = moved(json!({
            "url": "https://x/mcp?a=1&api_key=abcdefgh1&b=2",
            "headers": {"Authorization": "Bearer abcdefgh2", "Accept": "application/json"},
        }));
        assert_eq!(
            entry,
            json!({
                "url": "https://x/mcp?a=1&api_key=${MY_SERVER_API_KEY}&b=2",
                "headers": {"Authorization": "Bearer ${MCP_MY_SERVER_API_KEY}", "Accept": "application/json"},
            })
        );
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn a_name_that_holds_another_value_is_not_taken() {
        let (entry, lines) = moved(json!({"env": {"TAKEN_KEY": "the new value"}}));
        assert_eq!(entry["env"]["TAKEN_KEY"], "${MY_SERVER_TAKEN_KEY}");
        assert_eq!(lines, [line("MY_SERVER_TAKEN_KEY", "the new value")]);
    }

    #[test]
    fn what_is_no_secret_stays() {
        let entry = json!({
            "command": "npx",
            "env": {"TOKEN": "${TOKEN}", "KEY_FILE": "/home/u/key", "MAX_TOKENS": "100000000", "AUTH": "none"},
            "args": ["-y", "@scope/token-server", "--keys", "all", "-e", "GITHUB_TOKEN", "ghcr.io/x/server"],
        });
        assert_eq!(moved(entry.clone()), (entry.clone(), vec![]));
        assert!(find("x", entry.as_object().unwrap()).is_empty());
    }
}
