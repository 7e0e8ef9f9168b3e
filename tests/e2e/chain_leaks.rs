//! Secrets come out nowhere, and nothing that is no secret is touched.

use crate::world;
use hermes_tests::{SOON, Script, World, wait_for};
use serde_json::json;
use std::path::{Path, PathBuf};

const TOKEN: &str = "q9Xw-planted/value&77";
const PASSWORD: &str = "pl4nted-password-in-url";
const HARMLESS: &str = include_str!("../../daemon/src/redact/harmless.txt");

/// Base64, by hand: the harness has no use for a library else.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..=group.len() {
            out.push(char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    out
}

/// The secret as it is, escaped, in a URL, and in base64 behind zero, one and two bytes.
fn spellings() -> Vec<String> {
    let mut all = vec![
        TOKEN.to_owned(),
        TOKEN.replace('/', "\\/"),
        TOKEN.replace('/', "%2F").replace('&', "%26"),
        PASSWORD.to_owned(),
    ];
    all.extend(["", "x", "xy"].map(|before| base64(format!("{before}{TOKEN}").as_bytes())));
    all
}

/// What must be nowhere: of base64 the middle, whose characters belong to the secret alone.
fn forbidden() -> Vec<String> {
    let middle = |text: String| {
        if text.contains(['-', '%', '\\']) { text } else { text[4..text.len() - 4].to_owned() }
    };
    spellings().into_iter().map(middle).collect()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Everything that hermesd wrote or says.
fn everything(w: &World, daemon: &hermes_tests::Daemon) -> Vec<(String, String)> {
    let mut all = vec![("the daemon's output".to_owned(), daemon.output())];
    for args in [
        &["status", "--json"][..],
        &["servers", "show", "w", "--json"],
        &["servers", "show", "w"],
        &["logs", "w"],
        &["audit", "--json"],
        &["doctor", "--json"],
        &["stats", "--json"],
        &["metrics"],
        &["pins", "list", "--json"],
        &["tools", "--json"],
        &["config", "check"],
    ] {
        let ran = hermes_tests::Ran::of(w.command(&w.bins().hermesctl).args(args));
        all.push((args.join(" "), ran.stdout + &ran.stderr));
    }
    let mut found = Vec::new();
    files(&w.home(), &mut found);
    found.retain(|path| !path.ends_with("config.yaml") && !path.ends_with(".env"));
    for path in found {
        let bytes = std::fs::read(&path).unwrap_or_default();
        all.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    all
}

/// A server that says its secrets everywhere, in every spelling, reaches no log, no status, no error, no
/// audit row, no file, and with `known`, the default, no result.
#[test]
fn a_known_secret_comes_out_nowhere() {
    let w = world().yaml("hermesd:\n  audit: { arguments: full }").server_with(
        "w",
        Script::new(),
        &[
            &format!(
                "env: {{ API_TOKEN: \"{TOKEN}\", DATABASE_URL: \"postgres://u:{PASSWORD}@127.0.0.1/x\" }}"
            ),
            "validate: false",
        ],
    );
    let daemon = w.start();
    let mut client = w.client(&["w"]);
    let mut answers = vec![client.call("mcp_w_env", &json!({})).to_string()];
    for text in spellings() {
        client.call("mcp_w_stderr", &json!({"text": format!("my token is {text}, yes")}));
        answers.push(client.call("mcp_w_echo", &json!({"text": text})).to_string());
        let error = json!({"code": -32000, "message": format!("bad {text}"), "data": {"tried": text}});
        answers.push(
            client.request("tools/call", &json!({"name": "mcp_w_rpc_error", "arguments": error})).to_string(),
        );
        client.call("mcp_w_noise", &json!({"text": format!("noise {text}")}));
    }
    client.call("mcp_w_stderr", &json!({"text": "the last line"}));
    wait_for("the log is written", SOON, || w.ctl(["logs", "w"]).stdout.contains("the last line"));
    answers.push(client.call("mcp_w_crash", &json!({})).to_string());
    let forbidden = forbidden();
    for (at, answer) in answers.iter().enumerate() {
        for secret in &forbidden {
            assert!(!answer.contains(secret), "answer {at} says `{secret}`: {answer}");
        }
    }
    for (place, text) in everything(&w, &daemon) {
        for secret in &forbidden {
            assert!(!text.contains(secret), "{place} holds `{secret}`");
        }
    }
    assert!(w.ctl(["logs", "w"]).stdout.contains("my token is [REDACTED], yes"));
}

/// Code, hashes, prose and identifiers pass through results and logs as they are, also under `patterns`.
#[test]
fn harmless_texts_pass_unchanged() {
    let w = world().server("known", Script::new()).server_with(
        "patterns",
        Script::new(),
        &["redact_results: patterns"],
    );
    let _daemon = w.start();
    let mut client = w.client(&["known", "patterns"]);
    let texts: Vec<&str> =
        HARMLESS.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")).collect();
    assert!(texts.len() >= 60);
    for text in &texts {
        for server in ["known", "patterns"] {
            assert_eq!(&client.text(&format!("mcp_{server}_echo"), &json!({"text": text})), text, "{server}");
        }
    }
    client.call("mcp_known_stderr", &json!({"text": texts.join("\n")}));
    client.call("mcp_known_stderr", &json!({"text": "the last line"}));
    wait_for("the log is written", SOON, || w.ctl(["logs", "known"]).stdout.contains("the last line"));
    let mut logs = Vec::new();
    files(&w.home().join("logs"), &mut logs);
    let log = logs.iter().find(|path| path.ends_with("known.log")).expect("the server has a log");
    let log = std::fs::read_to_string(log).unwrap();
    for text in texts.iter().filter(|text| text.is_ascii() && !text.contains('\t')) {
        assert!(log.contains(text), "{text}");
    }
}

/// A mask that somebody copied into the configuration is refused and not sent to a server as a secret.
#[test]
fn a_masked_value_is_no_configuration() {
    let w = world()
        .server_with("w", Script::new(), &["env: { API_TOKEN: \"[REDACTED]\" }"])
        .server("good", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["good"]);
    assert_eq!(client.text("mcp_good_echo", &json!({"text": "x"})), "x");
    let check = w.ctl(["config", "check"]);
    assert!((check.stdout.clone() + &check.stderr).contains("holds a masked value"), "{}", check.stdout);
    assert_eq!(w.journal("w").starts(), 0);
}
