//! An MCP server that wants a login, and the authorization server that gives it, in one fake.
//!
//! Promise: refresh tokens rotate, and a used one that is shown again is remembered; a test can void
//! tokens and change what is answered. [`browse`] is the browser of a person who agrees.

use crate::http::{Answer, Got, HttpFake, plain_server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the fake knows and how it answers.
#[derive(Debug, Default)]
pub struct Grants {
    /// The access token that is good.
    pub access: Option<String>,
    /// The refresh token that is good.
    pub refresh: Option<String>,
    /// Token answers so far; part of each token.
    pub issued: usize,
    /// A used refresh token was shown again.
    pub reused: bool,
    /// Forms that the token endpoint got.
    pub token_requests: Vec<BTreeMap<String, String>>,
    /// Forms that the revocation endpoint got.
    pub revoked: Vec<BTreeMap<String, String>>,
    /// Queries that the browser brought.
    pub authorized: Vec<BTreeMap<String, String>>,
    /// Members of metadata that replace the usual ones; null leaves one out.
    pub metadata: BTreeMap<String, Value>,
    /// Members of token answers that replace the usual ones.
    pub answer: BTreeMap<String, Value>,
    /// Query that the browser is sent back with, in place of a code; `state` is added.
    pub refuse_with: Option<String>,
    /// Tools that need this right, told by 403.
    pub step_up: Option<&'static str>,
    /// The right was given.
    pub stepped_up: bool,
}

/// A running fake.
#[derive(Debug)]
pub struct OauthFake {
    /// The HTTP side, for what was asked.
    pub http: HttpFake,
    grants: Arc<Mutex<Grants>>,
}

impl OauthFake {
    /// On a free port.
    pub fn start() -> Self {
        let grants = Arc::new(Mutex::new(Grants::default()));
        let shared = grants.clone();
        let http = HttpFake::start(move |got, answer| {
            let mut grants = shared.lock().expect("no holder panics");
            handle(&mut grants, got, answer);
        });
        Self { http, grants }
    }

    /// What it knows.
    pub fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().expect("no holder panics")
    }

    /// Lines of an entry for it.
    pub fn entry(&self, more: &[&str]) -> Vec<String> {
        let mut lines = vec![format!("url: {}", self.http.url()), "auth: oauth".to_owned()];
        lines.extend(more.iter().map(|line| (*line).to_owned()));
        lines
    }

    /// The values of `Authorization` that MCP requests carried.
    pub fn presented(&self) -> Vec<String> {
        let mcp = self.http.seen().into_iter().filter(|got| got.target == "/mcp" && got.method == "POST");
        mcp.filter_map(|got| got.header("authorization").map(str::to_owned)).collect()
    }
}

fn handle(grants: &mut Grants, got: &Got, answer: &mut Answer<'_>) {
    let base = format!("http://{}", got.header("host").unwrap_or_default());
    let (path, query) = got.target.split_once('?').unwrap_or((&got.target, ""));
    let body = String::from_utf8_lossy(&got.body).into_owned();
    match path {
        "/mcp" => resource(grants, &base, got, answer),
        "/.well-known/oauth-protected-resource/mcp" => answer.json(&json!({
            "resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["tools:use"],
        })),
        "/.well-known/oauth-authorization-server" => answer.json(&metadata(grants, &base)),
        "/register" => {
            let mut client = got.json.clone();
            client["client_id"] = json!("client-of-the-test");
            answer.status(201, &[("content-type", "application/json")], &client.to_string());
        }
        "/authorize" => {
            let asked = form(query);
            let state = asked.get("state").cloned().unwrap_or_default();
            let back = grants.refuse_with.clone().unwrap_or_else(|| "code=good-code".to_owned());
            let to = format!("{}?{back}&state={state}", asked.get("redirect_uri").cloned().unwrap_or_default());
            grants.authorized.push(asked);
            answer.status(302, &[("location", &to)], "");
        }
        "/token" => token(grants, form(&body), answer),
        "/revoke" => {
            grants.revoked.push(form(&body));
            (grants.access, grants.refresh) = (None, None);
            answer.status(200, &[], "");
        }
        _ => answer.status(404, &[], ""),
    }
}

fn resource(grants: &mut Grants, base: &str, got: &Got, answer: &mut Answer<'_>) {
    let bearer = got.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if grants.access.is_none() || bearer != grants.access.as_deref() {
        let challenge = format!(
            "Bearer error=\"invalid_token\", resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\""
        );
        return answer.status(401, &[("www-authenticate", &challenge)], "");
    }
    if let Some(right) = grants.step_up
        && got.mcp() == "tools/call"
        && !grants.stepped_up
    {
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{right}\"");
        return answer.status(403, &[("www-authenticate", &challenge)], "");
    }
    plain_server(got, answer);
}

fn metadata(grants: &Grants, base: &str) -> Value {
    let mut all = json!({
        "issuer": base, "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"), "registration_endpoint": format!("{base}/register"),
        "revocation_endpoint": format!("{base}/revoke"), "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
    });
    for (name, value) in &grants.metadata {
        all[name] = value.clone();
    }
    if let Some(members) = all.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    all
}

fn token(grants: &mut Grants, asked: BTreeMap<String, String>, answer: &mut Answer<'_>) {
    let is = |name: &str, value: &str| asked.get(name).is_some_and(|given| given == value);
    let good = if is("grant_type", "refresh_token") {
        let shown = asked.get("refresh_token");
        let good = shown.is_some() && shown == grants.refresh.as_ref();
        if !good {
            // Reuse detection: the whole family is void.
            grants.reused = true;
            (grants.access, grants.refresh) = (None, None);
        }
        good
    } else if is("grant_type", "client_credentials") {
        is("client_secret", "robot-secret") && asked.contains_key("resource")
    } else {
        is("code", "good-code") && asked.contains_key("code_verifier") && asked.contains_key("resource")
    };
    if let Some(right) = grants.step_up {
        let scopes = grants.authorized.last().and_then(|asked| asked.get("scope"));
        grants.stepped_up = scopes.is_some_and(|scopes| scopes.split(' ').any(|scope| scope == right));
    }
    grants.token_requests.push(asked);
    if !good {
        return answer.status(400, &[("content-type", "application/json")], "{\"error\":\"invalid_grant\"}");
    }
    grants.issued += 1;
    let (access, refresh) =
        (format!("access-token-{:04}", grants.issued), format!("refresh-token-{:04}", grants.issued));
    let mut reply = json!({
        "access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh,
    });
    for (name, value) in &grants.answer {
        reply[name] = value.clone();
    }
    (grants.access, grants.refresh) = (Some(access), Some(refresh));
    answer.json(&reply);
}

/// A form or a query, decoded.
pub fn form(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let hex = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (first, hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &rest[2..];
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One GET without following anything: status, location, whole answer.
///
/// # Panics
/// When nobody answers.
pub fn get(url: &str) -> (u16, Option<String>, String) {
    let rest = url.strip_prefix("http://").expect("the tests speak http");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(host).expect("somebody listens");
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").expect("it reads");
    let mut input = BufReader::new(stream);
    let mut text = String::new();
    // A server that closes at once has said what it wanted to say.
    while input.read_line(&mut text).is_ok_and(|read| read > 0) && !text.ends_with("\r\n\r\n") {}
    let length = text
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    let _ = input.read_exact(&mut body);
    text.push_str(&String::from_utf8_lossy(&body));
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let location = text.lines().find_map(|line| line.strip_prefix("location: ").map(str::to_owned));
    (status, location, text)
}

/// Opens `url` and goes wherever it leads; the last status and page.
pub fn browse(url: &str) -> (u16, String) {
    let (status, location, page) = get(url);
    match location {
        Some(next) => browse(&next),
        None => (status, page),
    }
}
