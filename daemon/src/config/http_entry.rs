//! Pure: the keys of a server that is reached by URL.
//!
//! Promise: what passes has a usable URL and headers that can be sent; credentials never travel
//! unencrypted to another host unless the entry says so. May not touch: the network.

use super::command_line::without_scheme;
use super::file::Kind;
use super::interpolate;
use super::oauth_entry;
use super::reader::{Cx, Field, Flag, Section};
use super::server_entry::TINY;
use super::url::{self, Url};
use super::{HttpConfig, OauthConfig, RemoteKind, TlsConfig, values};
use crate::secret::{Secret, name_says_secret, value_is_secret};
use base64::Engine;
use std::collections::BTreeMap;

/// Keys that mean something here only, besides `url` and `transport`.
pub(super) const KEYS: &[&str] =
    &["headers", "auth", "oauth", "ssl_verify", "client_cert", "client_key", "allow_insecure"];

/// Reads the entry; `None` after an error.
pub(super) fn read(section: &Section<'_>, url: &Field<'_>) -> Option<HttpConfig> {
    let headers = section.get("headers").map_or(Some(BTreeMap::new()), |field| headers(&field));
    let kind = kind(section);
    let oauth = oauth(section);
    let tls = tls(section);
    let allow_insecure = section.flag("allow_insecure", Flag::Off);
    let text = url.word()?;
    let parts = match url::parse(&text) {
        Ok(parts) => parts,
        Err(err) => {
            url.error(format!("`url` {err}"), "write a whole address: `https://host/path`");
            return None;
        }
    };
    note_url(url.cx, &parts);
    let mut headers = headers?;
    if oauth.is_some() {
        let named = headers.keys().find(|name| name.eq_ignore_ascii_case("authorization")).cloned();
        if let Some(name) = named {
            headers.remove(&name);
            section.warn(
                "headers",
                format!("`auth: oauth` is used, the header `{name}` is left out"),
                "remove one of them",
            );
        }
    }
    let carries =
        oauth.is_some() || parts.userinfo.is_some() || headers.keys().any(|name| is_credential(name));
    if carries && !parts.encrypted && !parts.is_loopback() && !allow_insecure {
        url.error(
            "credentials would travel unencrypted to another host".to_owned(),
            "use https, or write `allow_insecure: true`",
        );
        return None;
    }
    Some(HttpConfig { url: text, headers, kind, oauth, tls, allow_insecure })
}

fn is_credential(header: &str) -> bool {
    name_says_secret(header) || header.eq_ignore_ascii_case("cookie")
}

/// Notes what of a URL must never be shown.
pub(super) fn note_url(cx: Cx<'_>, url: &Url<'_>) {
    let mut sink = cx.sink.borrow_mut();
    for part in url.credentials().into_iter().filter(|part| value_is_secret(part)) {
        sink.secrets.insert(Secret::new(part));
    }
    for (name, value) in url.parameters() {
        sink.secrets.note(&name, &value);
    }
}

fn kind(section: &Section<'_>) -> RemoteKind {
    let Some(field) = section.get("transport") else { return RemoteKind::Auto };
    let Some(transport) = field.word() else { return RemoteKind::Auto };
    match transport.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "sse" => RemoteKind::Sse,
        "http" | "streamablehttp" => RemoteKind::Streamable,
        // Hermes Agent takes everything else as Streamable HTTP; so the server still runs.
        _ => {
            let message =
                format!("`{}` is not a value of `transport`; Streamable HTTP is used", field.spelling());
            field.warn(message, "allowed: http, sse");
            RemoteKind::Streamable
        }
    }
}

fn headers(field: &Field<'_>) -> Option<BTreeMap<String, Secret>> {
    let section = field.section()?;
    let mut headers = BTreeMap::new();
    let mut complete = true;
    for (name, entry) in section.fields().filter(|(_, entry)| !entry.node.is_null()) {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            let shown = name.split(|c| !is_token(c)).next().unwrap_or_default();
            entry.error(format!("`{shown}…` cannot be the name of a header"), "letters, digits and `-`");
            complete = false;
            continue;
        }
        // Whatever surrounds a pasted token is never part of it.
        let Some(value) = entry.text().map(|text| text.trim().to_owned()) else {
            complete = false;
            continue;
        };
        if value.chars().any(|c| c.is_control() && c != '\t') {
            entry.error(format!("the value of `{name}` contains control characters"), "headers are one line");
            complete = false;
            continue;
        }
        note_header(field.cx, name, &value);
        headers.insert(name.to_owned(), Secret::new(value));
    }
    complete.then_some(headers)
}

fn note_header(cx: Cx<'_>, name: &str, value: &str) {
    cx.note(name, value);
    let credential = without_scheme(value);
    cx.note(name, credential);
    let is_basic = value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic "));
    let decoded =
        is_basic.then(|| base64::engine::general_purpose::STANDARD.decode(credential).ok()).flatten();
    if let Some((_, password)) =
        decoded.and_then(|bytes| String::from_utf8(bytes).ok()).as_deref().and_then(|t| t.split_once(':'))
    {
        cx.note("password", password);
    }
}

fn oauth(section: &Section<'_>) -> Option<OauthConfig> {
    let auth = section.get("auth").and_then(|field| field.text()).unwrap_or_default();
    let wanted = match auth.trim().to_ascii_lowercase().as_str() {
        "oauth" => true,
        "" | "none" | "header" | "bearer" => false,
        _ => {
            section.warn(
                "auth",
                "`auth` has an unknown value and is ignored".to_owned(),
                "allowed: oauth, none",
            );
            false
        }
    };
    let written = section.section("oauth");
    if !wanted {
        if written.is_some() {
            section.warn(
                "oauth",
                "`oauth` has no effect without `auth: oauth`".to_owned(),
                "add `auth: oauth`",
            );
        }
        return None;
    }
    let Some(inner) = written else { return Some(OauthConfig::default()) };
    let config = OauthConfig {
        client_id: inner.get("client_id").and_then(|f| f.word()),
        client_secret: inner.get("client_secret").and_then(|f| secret(&f)),
        scope: inner.get("scope").and_then(|f| f.names()).map(|scopes| scopes.join(" ")),
        redirect_port: inner
            .get("redirect_port")
            .and_then(|f| f.whole(0..=65_535))
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port != 0),
        client_name: inner.get("client_name").and_then(|f| f.word()),
        timeout: inner.get("timeout").and_then(|f| f.duration(TINY)),
        grant: oauth_entry::grant(&inner),
        client_metadata_url: inner.get("client_metadata_url").and_then(|f| oauth_entry::described_by(&f)),
        private_network: inner.flag("private_network", Flag::Off),
    };
    oauth_entry::together(&inner, &config);
    inner.finish(&|_| None);
    Some(config)
}

/// A value that is a secret by its place, noted for redaction.
pub(super) fn secret(field: &Field<'_>) -> Option<Secret> {
    let value = Secret::new(field.word()?);
    // Short ones would mask half of every log line.
    if value.expose().chars().count() >= 8 {
        field.cx.sink.borrow_mut().secrets.insert(value.clone());
    }
    Some(value)
}

fn tls(section: &Section<'_>) -> TlsConfig {
    let mut tls = TlsConfig::default();
    if let Some(field) = section.get("ssl_verify") {
        match field.text().as_deref().map(values::boolean) {
            Some(Ok(spelled)) => tls.insecure = !spelled.value(),
            Some(Err(_)) => tls.ca_file = existing(&field),
            None => {}
        }
        if tls.insecure {
            field.warn("the server's certificate is not checked".to_owned(), "write the path of its CA file");
        }
    }
    let key = section.get("client_key");
    match section.get("client_cert") {
        Some(cert) if matches!(cert.node.kind, Kind::List(_)) => {
            if key.is_some() {
                section.error(
                    "client_key",
                    "`client_cert` names the key already".to_owned(),
                    "remove one of them",
                );
            }
            cert_list(&cert, &mut tls);
        }
        Some(cert) => {
            tls.client_cert = existing(&cert);
            tls.client_key = key.and_then(|key| existing(&key));
        }
        None if key.is_some() => {
            section.error(
                "client_key",
                "`client_key` has no effect without `client_cert`".to_owned(),
                "add `client_cert`",
            );
        }
        None => {}
    }
    tls
}

fn cert_list(field: &Field<'_>, tls: &mut TlsConfig) {
    let items = field.items("").unwrap_or_default();
    let ([cert, key] | [cert, key, _]) = items.as_slice() else {
        field.error(
            "`client_cert` needs two or three items".to_owned(),
            "`[cert, key]` or `[cert, key, password]`",
        );
        return;
    };
    tls.client_cert = existing(cert);
    tls.client_key = existing(key);
    tls.client_key_password = items.get(2).filter(|item| !item.node.is_null()).and_then(secret);
}

/// The path; a missing file is a warning, because it may be there when the server is reached.
fn existing(field: &Field<'_>) -> Option<std::path::PathBuf> {
    let path = field.path()?;
    if !(field.cx.around.is_file)(&path) {
        // Only what the file spells: a variable may hold anything.
        let shown = field.spelling();
        let shown = if interpolate::names_in(&shown).is_empty() { shown } else { "the file".to_owned() };
        field.warn(format!("{shown} is not there"), "give the path of a PEM file");
    }
    Some(path)
}

#[cfg(test)]
#[path = "http_entry_tests.rs"]
mod tests;
