//! Each key of a remote server: ignored, it fails here.

use super::super::testing::*;
use super::super::*;
use std::path::Path;
use std::time::Duration;

fn with(lines: &[&str]) -> ServerConfig {
    clean(&[&["url: https://h.example/mcp"], lines].concat())
}

fn header(server: &ServerConfig, name: &str) -> String {
    http(server).headers[name].expose().to_owned()
}

#[test]
fn url_headers_and_transport_are_read() {
    let server = with(&["headers: {X-A: 010, X-B: ' padded '}", "transport: sse"]);
    assert_eq!(http(&server).url, "https://h.example/mcp");
    assert_eq!((header(&server, "X-A"), header(&server, "X-B")), ("010".to_owned(), "padded".to_owned()));
    assert_eq!(http(&server).kind, RemoteKind::Sse);
    assert_eq!(http(&with(&["transport: streamable-http"])).kind, RemoteKind::Streamable);
    assert_eq!(http(&with(&[])).kind, RemoteKind::Auto);
    let odd = one(&["url: https://h", "transport: websocket"], &[]);
    assert_eq!(http(running(&odd, "s")).kind, RemoteKind::Streamable);
    assert_eq!(only(&odd, Severity::Warning).hint, "allowed: http, sse");
}

#[test]
fn a_bad_url_refuses_the_server_with_the_reason() {
    for (url, why) in [
        ("h.example/mcp", "scheme"),
        ("ws://h", "scheme"),
        ("http://", "host"),
        ("http://:80", "host"),
        ("'http://a b'", "spaces"),
        ("[a]", "list"),
        ("''", "empty"),
        ("42", "scheme"),
    ] {
        let config = one(&[&format!("url: {url}")], &[]);
        let reason = refusal(&config, "s");
        assert!(reason.contains(why), "{url}: {reason}");
        assert_eq!(only(&config, Severity::Error).line, 3);
    }
}

#[test]
fn an_unset_variable_in_url_or_headers_refuses_the_server() {
    assert!(refusal(&one(&["url: 'https://${NO}/'"], &[]), "s").contains("`NO`"));
    let reason = refusal(&one(&["url: https://h", "headers: {Authorization: 'Bearer ${NO}'}"], &[]), "s");
    assert!(reason.contains("`Authorization`") && reason.contains("`NO`"), "{reason}");
}

#[test]
fn url_beats_command_with_a_warning_and_keys_of_the_other_kind_warn() {
    let config = one(&["url: https://h", "command: x", "args: [a]"], &[]);
    http(running(&config, "s"));
    let keys: Vec<&str> = config.findings.iter().map(|f| f.key.as_str()).collect();
    assert_eq!(keys, ["mcp_servers.s.command", "mcp_servers.s.args"]);
    let config = one(&["command: x", "headers: {A: b}"], &[]);
    assert!(only(&config, Severity::Warning).message.contains("no effect"));
    assert_eq!(stdio(&clean(&["url: ~", "command: x"])).command, "x");
}

#[test]
fn oauth_options_are_read_and_beat_an_authorization_header() {
    let all = "oauth: {client_id: i, client_secret: s3cr3t-value, scope: [a, b], redirect_port: 8085, client_name: n, timeout: 30}";
    let server = with(&["auth: OAuth ", all]);
    let oauth = http(&server).oauth.clone().expect("oauth");
    assert_eq!(
        (oauth.client_id.as_deref(), oauth.scope.as_deref(), oauth.client_name.as_deref()),
        (Some("i"), Some("a b"), Some("n"))
    );
    assert_eq!((oauth.redirect_port, oauth.timeout), (Some(8085), Some(Duration::from_secs(30))));
    assert_eq!(oauth.client_secret.as_ref().map(|s| s.expose()), Some("s3cr3t-value"));
    assert_eq!(
        http(&with(&["auth: oauth", "oauth: {redirect_port: 0}"])).oauth,
        Some(OauthConfig::default())
    );
    assert_eq!(http(&with(&["auth: ''"])).oauth, None);

    let both = one(&["url: https://h", "auth: oauth", "headers: {authorization: Bearer abcdefgh}"], &[]);
    assert!(http(running(&both, "s")).headers.is_empty());
    assert_eq!(only(&both, Severity::Warning).key, "mcp_servers.s.headers");
    let idle = one(&["url: https://h", "oauth: {client_id: i}"], &[]);
    assert!(http(running(&idle, "s")).oauth.is_none());
    assert!(only(&idle, Severity::Warning).message.contains("auth: oauth"));
    let odd = one(&["url: https://h", "auth: Bearer abcdefgh"], &[]);
    assert!(only(&odd, Severity::Warning).hint.contains("oauth"));
    assert!(!format!("{:?}", odd.findings).contains("abcdefgh"));
}

#[test]
fn oauth_options_that_cannot_work_are_said_when_the_file_is_read() {
    let robot = "oauth: {grant: client_credentials, client_id: i, client_secret: s3cr3t-value, private_network: true}";
    let oauth = http(&with(&["auth: oauth", robot])).oauth.clone().expect("oauth");
    assert_eq!((oauth.grant, oauth.private_network), (OauthGrant::ClientCredentials, true));
    let described = "oauth: {client_metadata_url: 'https://me.example/client.json'}";
    let oauth = http(&with(&["auth: oauth", described])).oauth.clone().expect("oauth");
    assert_eq!(oauth.client_metadata_url.as_deref(), Some("https://me.example/client.json"));
    for (bad, said) in [
        ("oauth: {grant: client_credentials}", "client_secret"),
        ("oauth: {client_metadata_url: 'http://me.example/c.json'}", "https"),
        ("oauth: {client_metadata_url: 'https://me.example/'}", "path"),
        ("oauth: {grant: password}", "password"),
    ] {
        let config = one(&["url: https://h", "auth: oauth", bad], &[]);
        let text = format!("{:?}", config.findings);
        assert!(text.contains(said), "{bad}: {text}");
    }
}

#[test]
fn tls_options_are_read_with_home_expanded() {
    let server = with(&["ssl_verify: ~/ca.pem", "client_cert: ~/c.pem", "client_key: /exists/k.pem"]);
    let tls = &http(&server).tls;
    assert_eq!(tls.ca_file.as_deref(), Some(Path::new("/home/u/ca.pem")));
    assert_eq!(tls.client_cert.as_deref(), Some(Path::new("/home/u/c.pem")));
    assert_eq!(tls.client_key.as_deref(), Some(Path::new("/exists/k.pem")));
    assert!(!tls.insecure);
    let list = with(&["client_cert: [/exists/c, /exists/k, long-password]"]);
    assert_eq!(http(&list).tls.client_key.as_deref(), Some(Path::new("/exists/k")));
    assert_eq!(http(&list).tls.client_key_password.as_ref().map(|s| s.expose()), Some("long-password"));
    let off = one(&["url: https://h", "ssl_verify: no"], &[]);
    assert!(http(running(&off, "s")).tls.insecure);
    assert_eq!(only(&off, Severity::Warning).key, "mcp_servers.s.ssl_verify");
    assert!(!http(&with(&["ssl_verify: yes"])).tls.insecure);
    let missing = one(&["url: https://h", "ssl_verify: /nowhere/ca.pem"], &[]);
    assert!(only(&missing, Severity::Warning).message.contains("/nowhere/ca.pem"));
    for bad in [
        &["client_cert: [/exists/c]"][..],
        &["client_key: /exists/k"],
        &["client_cert: [/exists/c, /exists/k]", "client_key: /exists/k"],
    ] {
        let lines = [&["url: https://h"], bad].concat();
        assert!(!refusal(&one(&lines, &[]), "s").is_empty(), "{bad:?}");
    }
}

#[test]
fn credentials_never_travel_unencrypted_to_another_host_unless_allowed() {
    let risky: [&[&str]; 4] = [
        &["url: http://h.example/", "headers: {Authorization: Bearer abcdefgh}"],
        &["url: http://u:p@h.example/"],
        &["url: http://h.example/", "auth: oauth"],
        &["url: http://10.0.0.5/", "headers: {X-Api-Key: abcdefgh}"],
    ];
    for lines in risky {
        assert!(refusal(&one(lines, &[]), "s").contains("unencrypted"), "{lines:?}");
        let allowed = [lines, &["allow_insecure: true"]].concat();
        assert!(http(running(&one(&allowed, &[]), "s")).allow_insecure);
    }
    clean(&["url: http://127.0.0.1:8000/", "headers: {Authorization: Bearer abcdefgh}"]);
    clean(&["url: http://h.example/", "headers: {X-Trace: abcdefgh}"]);
}

#[test]
fn headers_that_cannot_be_sent_are_errors() {
    for bad in ["headers: {'A B': x}", "headers: {A: \"x\\ny\"}", "headers: [a]", "headers: {A: [x]}"] {
        assert!(!refusal(&one(&["url: https://h", bad], &[]), "s").is_empty(), "{bad}");
    }
}

#[test]
fn secrets_of_headers_and_urls_are_masked_in_every_part() {
    let config = one(
        &[
            "url: https://user:p%40ssword1@h.example/?api_key=query-secret",
            "headers: {Authorization: 'Bearer ${T}', X-Api-Key: literal-key, Proxy-Authorization: Basic dTpwYXNzd29yZDI=}",
        ],
        &[("T", "token-value")],
    );
    for masked in [
        "p%40ssword1",
        "p@ssword1",
        "query-secret",
        "token-value",
        "literal-key",
        "dTpwYXNzd29yZDI=",
        "password2",
    ] {
        assert!(knows(&config, masked), "{masked}");
    }
    let oauth = one(&["url: https://h", "auth: oauth", "oauth: {client_secret: abcdefgh}"], &[]);
    assert!(knows(&oauth, "abcdefgh"));
}
