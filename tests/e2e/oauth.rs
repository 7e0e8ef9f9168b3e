//! `auth: oauth`: a login by a person once, tokens kept and renewed by the daemon from then on.

use crate::world;
use hermes_tests::{Daemon, OauthFake, Ran, SOON, World, browse, get, wait_for, wait_some};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};

fn with(fake: &OauthFake, more: &[&str]) -> World {
    let lines = fake.entry(more);
    world().entry("r", &lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// `hermesctl mcp login r` under way.
struct Login {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Login {
    fn begin(w: &World, args: &[&str]) -> Self {
        let mut command = w.command(&w.bins().hermesctl);
        command.args(["--json", "mcp", "login", "r"]).args(args);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no event: {line:?}"))
    }

    /// The event that carries the address.
    fn waiting(&mut self) -> Value {
        loop {
            let event = self.event();
            if event["step"] == "waiting" {
                return event;
            }
        }
    }

    fn url(&mut self) -> String {
        self.waiting()["url"].as_str().unwrap().to_owned()
    }

    fn end(mut self) -> Ran {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.out.read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { code: self.child.wait().unwrap().code().unwrap_or(-1), stdout, stderr }
    }
}

fn log_in(w: &World) -> Ran {
    let mut login = Login::begin(w, &["--no-browser"]);
    let (status, page) = browse(&login.url());
    assert_eq!(status, 200, "{page}");
    login.end()
}

fn token_file(w: &World) -> PathBuf {
    w.home().join("mcp-tokens/r.json")
}

fn tokens(w: &World) -> Value {
    serde_json::from_slice(&fs::read(token_file(w)).unwrap()).unwrap()
}

/// Every file of the home but the tokens, and everything status says.
fn shown(w: &World) -> String {
    let mut text = w.ctl(["--json", "servers", "show", "r"]).stdout + &w.ctl(["--json", "status"]).stdout;
    let mut todo = vec![w.home(), w.path().to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("mcp-tokens") {
                todo.push(path);
            } else if path.is_file() {
                text.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap()));
            }
        }
    }
    text
}

fn call(w: &World) -> Ran {
    w.ctl(["--json", "call", "r", "echo", "{\"text\":\"hi\"}"])
}

fn ready(w: &World) -> Daemon {
    let daemon = w.start();
    w.wait_phase("r", "needs_auth");
    log_in(w).succeeds();
    call(w).succeeds();
    daemon
}

/// A server that wants a login says so with the action; after the login it works, also after a restart
/// of the daemon, and no token is to be seen anywhere but in its private file.
#[test]
fn a_login_makes_a_server_usable_for_good() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    let daemon = w.start();
    w.wait_phase("r", "needs_auth");
    assert!(w.status("r")["reason"].as_str().unwrap().contains("hermesctl mcp login r"));
    let done = log_in(&w).succeeds();
    let last: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["step"], &last["server"]["phase"]), (&json!("done"), &json!("ready")));
    assert_eq!(last["server"]["tools"], 2, "the tools are there when the login is done");
    call(&w).succeeds();
    assert_eq!(fake.presented().last().unwrap(), "Bearer access-token-0001");
    let asked = fake.grants().authorized[0].clone();
    assert_eq!((asked["code_challenge_method"].as_str(), asked["scope"].as_str()), ("S256", "tools:use"));
    assert_eq!(asked["resource"], fake.http.url());
    for file in ["r.json", "r.client.json", "r.meta.json", "r.hermesd.json"] {
        let meta = fs::metadata(w.home().join("mcp-tokens").join(file)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{file}");
    }
    drop(daemon);
    let _daemon = w.start();
    call(&w).succeeds();
    let shown = shown(&w);
    for secret in ["access-token-0001", "refresh-token-0001", "good-code"] {
        assert!(!shown.contains(secret), "{secret}");
    }
    assert_eq!(fake.grants().authorized.len(), 1, "one login for two daemons");
}

/// Favicons, scanners, old tabs and forged answers do not disturb a login.
#[test]
fn stray_requests_do_not_end_a_login() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut login = Login::begin(&w, &["--no-browser"]);
    let waiting = login.waiting();
    let back = waiting["redirect_uri"].as_str().unwrap();
    let root = back.strip_suffix("/callback").unwrap();
    assert_eq!(get(&format!("{root}/favicon.ico")).0, 404);
    for query in
        ["", "?code=x", "?code=x&state=forged", "?error=access_denied&state=<script>alert(1)</script>"]
    {
        let (status, _, page) = get(&format!("{back}{query}"));
        assert!(status == 400 && !page.contains("<script>"), "{page}");
    }
    assert_eq!(browse(waiting["url"].as_str().unwrap()).0, 200);
    login.end().succeeds();
}

/// Whoever began a login may go away: another terminal joins it, a third finishes it by hand.
#[test]
fn a_login_outlives_the_terminal_that_began_it() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut first = Login::begin(&w, &["--no-browser"]);
    let url = first.url();
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let mut second = Login::begin(&w, &["--no-browser"]);
    assert_eq!(second.url(), url, "one login for one server");
    let (_, back, _) = get(&url);
    let back = back.unwrap();
    let wrong = back.replace("state=", "state=0");
    let refused = w.ctl(["mcp", "login", "r", "--redirect-url", &wrong]).exits(1);
    assert!(
        refused.stderr.contains("another login") && refused.stderr.contains("still waits"),
        "{}",
        refused.stderr
    );
    w.ctl(["mcp", "login", "r", "--redirect-url", &back]).succeeds();
    second.end().succeeds();
    let late = w.ctl(["mcp", "login", "r", "--redirect-url", &back]).exits(1);
    assert!(late.stderr.contains("no login of `r` is waiting"), "{}", late.stderr);
}

/// Twenty calls that meet a void token cost one renewal, and each gets its answer.
#[test]
fn calls_that_meet_a_void_token_share_one_renewal() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    let _daemon = ready(&w);
    fake.grants().access = Some("voided-by-the-server".into());
    let mut client = w.client(&["r"]);
    let ids: Vec<Value> = (0..20)
        .map(|n| {
            client.begin("tools/call", &json!({"name": "mcp_r_echo", "arguments": {"text": n.to_string()}}))
        })
        .collect();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(client.reply(id)["result"]["content"][0]["text"], n.to_string());
    }
    let grants = fake.grants();
    assert_eq!((grants.issued, grants.reused), (2, false));
    assert_eq!(tokens(&w)["refresh_token"], "refresh-token-0002");
}

/// A refresh token that is void ends in one action, not in a loop, and is not shown twice.
#[test]
fn a_login_that_ended_for_good_is_told_once() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    let _daemon = ready(&w);
    {
        let mut grants = fake.grants();
        (grants.access, grants.refresh) = (Some("other".into()), Some("other".into()));
    }
    for _ in 0..3 {
        let failed = call(&w).exits(1);
        assert!(failed.stdout.contains("hermesctl mcp login r"), "{}", failed.stdout);
    }
    w.wait_phase("r", "needs_auth");
    let shown = fake.grants().token_requests.iter().filter(|form| form.contains_key("refresh_token")).count();
    assert_eq!(shown, 1);
    log_in(&w).succeeds();
    call(&w).succeeds();
}

/// After a change of the url the old tokens go nowhere.
#[test]
fn tokens_do_not_follow_a_url_that_was_changed() {
    let (fake, other) = (OauthFake::start(), OauthFake::start());
    let w = with(&fake, &[]);
    let daemon = ready(&w);
    drop(daemon);
    let lines = other.entry(&[]);
    let w = w.entry("r", &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let _daemon = w.start();
    let failed = call(&w).exits(1);
    assert!(failed.stdout.contains("hermesctl mcp login r"), "{}", failed.stdout);
    wait_for("the new address was asked", SOON, || !other.http.seen().is_empty());
    assert_eq!(other.presented(), Vec::<String>::new());
    assert!(other.grants().token_requests.is_empty());
}

/// A login that Hermes Agent made is used, renewed, and left in a form that it reads.
#[test]
fn a_login_of_hermes_agent_is_taken_over() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    fs::create_dir(w.home().join("mcp-tokens")).unwrap();
    {
        let mut grants = fake.grants();
        grants.refresh = Some("refresh-of-the-agent".into());
        grants.answer.insert("expires_in".into(), json!("3600"));
    }
    let theirs = json!({
        "access_token": "access-of-the-agent", "token_type": "Bearer", "expires_in": 3600, "scope": "tools:use",
        "refresh_token": "refresh-of-the-agent", "expires_at": 1_700_000_000.5,
    });
    fs::write(token_file(&w), theirs.to_string()).unwrap();
    let client = json!({
        "client_id": "client-of-the-agent", "redirect_uris": ["http://127.0.0.1:1/callback"],
        "token_endpoint_auth_method": "none", "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"], "client_name": "Hermes Agent",
    });
    fs::write(w.home().join("mcp-tokens/r.client.json"), client.to_string()).unwrap();
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "hi"})), "hi");
    let asked = fake.grants().token_requests[0].clone();
    assert_eq!(asked["client_id"], "client-of-the-agent");
    let file = tokens(&w);
    assert_eq!((&file["token_type"], &file["expires_in"]), (&json!("Bearer"), &json!(3600)));
    assert_eq!(file["refresh_token"], "refresh-token-0001");
    assert!(file["expires_at"].as_f64().unwrap() > 1_700_000_000.5);
}

/// A logout tells the authorization server and leaves no file; the server wants a login again.
#[test]
fn a_logout_revokes_and_removes() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    let _daemon = ready(&w);
    let done = w.ctl(["mcp", "logout", "r"]).succeeds();
    assert!(done.stdout.contains("revoked"), "{}", done.stdout);
    let revoked: Vec<String> = fake.grants().revoked.iter().map(|form| form["token"].clone()).collect();
    assert_eq!(revoked, ["refresh-token-0001", "access-token-0001"]);
    let left: Vec<_> =
        fs::read_dir(w.home().join("mcp-tokens")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| name == "r.hermesd.lock"), "{left:?}");
    w.wait_phase("r", "needs_auth");
    assert!(w.ctl(["mcp", "logout", "r"]).succeeds().stdout.contains("no login"));
}

/// What a server says about itself cannot run anything, reach inside, or take over the terminal.
#[test]
fn hostile_documents_and_answers_end_a_login_with_a_reason() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    let _daemon = w.start();
    for (member, value) in [
        ("authorization_endpoint", "file:///etc/passwd"),
        ("authorization_endpoint", "javascript:alert(1)"),
        ("authorization_endpoint", "a:$(id)"),
        ("authorization_endpoint", "http://x\"&calc"),
        ("token_endpoint", "http://169.254.169.254/latest"),
    ] {
        fake.grants().metadata.insert(member.into(), json!(value));
        let failed = w.ctl(["mcp", "login", "r"]).exits(1);
        assert!(
            failed.stderr.contains("authorization server") && !failed.stdout.contains(value),
            "{}",
            failed.stderr
        );
        fake.grants().metadata.clear();
    }
    fake.grants().refuse_with = Some("error=access_denied&error_description=%1b%5d0;owned%07no".into());
    let mut login = Login::begin(&w, &["--no-browser"]);
    let (status, page) = browse(&login.url());
    assert_eq!(status, 400, "{page}");
    let failed = login.end().exits(1);
    assert!(
        failed.stderr.contains("access_denied") && !failed.stderr.contains('\u{1b}'),
        "{}",
        failed.stderr
    );
}

/// A tool that needs more rights fails alone and says what to do; the login asks for both.
#[test]
fn more_rights_are_one_login_away_and_other_tools_go_on() {
    let fake = OauthFake::start();
    let w = with(&fake, &[]);
    let _daemon = ready(&w);
    fake.grants().step_up = Some("tools:more");
    let failed = call(&w).exits(1);
    assert!(
        failed.stdout.contains("tools:more") && failed.stdout.contains("mcp login r"),
        "{}",
        failed.stdout
    );
    assert_eq!(w.phase("r"), "ready");
    log_in(&w).succeeds();
    assert_eq!(fake.grants().authorized.last().unwrap()["scope"], "tools:use tools:more");
    call(&w).succeeds();
}

/// The browser gets the address as one argument of one program, and only where somebody sees it.
#[test]
fn a_browser_is_opened_without_a_shell_and_not_over_ssh() {
    let fake = OauthFake::start();
    let opened = |w: &World| w.path().join("opened");
    let w = with(&fake, &[]).env("DISPLAY", ":7");
    let bin = w.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$#\" \"$@\" > {}\n", opened(&w).display());
    fs::write(bin.join("xdg-open"), script).unwrap();
    fs::set_permissions(bin.join("xdg-open"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let w = w.env("PATH", &path);
    let daemon = w.start();
    let mut login = Login::begin(&w, &[]);
    let url = login.url();
    let said = wait_some("the browser was started", SOON, || {
        fs::read_to_string(opened(&w)).ok().filter(|text| text.ends_with('\n') && text.lines().count() == 2)
    });
    assert_eq!(said, format!("1\n{url}\n"));
    fs::remove_file(opened(&w)).unwrap();
    let w = w.env("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22");
    let mut joined = Login::begin(&w, &[]);
    browse(&joined.url());
    joined.end().succeeds();
    login.end().succeeds();
    assert!(!opened(&w).exists());
    drop(daemon);
}

/// The options below `oauth:` do what they say.
#[test]
fn each_option_of_oauth_is_carried_out() {
    let fake = OauthFake::start();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = format!(
        "oauth: {{client_id: mine, client_secret: my-client-secret, scope: a b, redirect_port: {port}, timeout: 77}}"
    );
    fake.grants()
        .metadata
        .insert("token_endpoint_auth_methods_supported".into(), json!(["client_secret_post"]));
    let w = with(&fake, &[&options]);
    let _daemon = w.start();
    let mut login = Login::begin(&w, &["--no-browser"]);
    let waiting = login.waiting();
    assert_eq!(
        (&waiting["limit_ms"], &waiting["redirect_uri"]),
        (&json!(77_000), &json!(format!("http://127.0.0.1:{port}/callback")))
    );
    browse(waiting["url"].as_str().unwrap());
    login.end().succeeds();
    let grants = fake.grants();
    assert_eq!(
        (grants.authorized[0]["client_id"].as_str(), grants.authorized[0]["scope"].as_str()),
        ("mine", "a b")
    );
    assert_eq!(grants.token_requests[0]["client_secret"], "my-client-secret");
    drop(grants);

    let named = OauthFake::start();
    named.grants().metadata.insert("client_id_metadata_document_supported".into(), json!(true));
    let w =
        with(&named, &["oauth: {client_metadata_url: 'https://me.example/client.json', client_name: Mine}"]);
    let _daemon = w.start();
    log_in(&w).succeeds();
    assert_eq!(named.grants().authorized[0]["client_id"], "https://me.example/client.json");
    let registered = OauthFake::start();
    let w = with(&registered, &["oauth: {client_name: Mine}"]);
    let _daemon = w.start();
    log_in(&w).succeeds();
    let registration = registered.http.seen().into_iter().find(|got| got.target == "/register").unwrap();
    assert_eq!(registration.json["client_name"], "Mine");
}

/// A machine logs in with the client's own credentials: no person, no browser, also after a refusal.
#[test]
fn the_grant_of_client_credentials_needs_nobody() {
    let fake = OauthFake::start();
    fake.grants()
        .metadata
        .insert("token_endpoint_auth_methods_supported".into(), json!(["client_secret_post"]));
    let options = "oauth: {grant: client_credentials, client_id: robot, client_secret: robot-secret}";
    let w = with(&fake, &[options]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "hi"})), "hi");
    fake.grants().access = Some("voided-by-the-server".into());
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "again"})), "again");
    let grants = fake.grants();
    assert!(
        grants.token_requests.iter().all(|form| form["scope"] == "tools:use"),
        "{:?}",
        grants.token_requests
    );
    assert!(grants.authorized.is_empty());
}
