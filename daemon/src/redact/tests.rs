//! What is masked, what stays, and that no split of a text hides a secret.

use super::*;
use crate::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

/// Building an automaton takes long without optimisation, so the property tests share one.
static SHARED: LazyLock<Arc<Redactor>> = LazyLock::new(|| Arc::new(redactor(&["known-value-1/ä"])));
static PLANTED: LazyLock<Vec<(String, String)>> = LazyLock::new(planted);

const HARMLESS: &str = include_str!("harmless.txt");

fn redactor(known: &[&str]) -> Redactor {
    with_labels(known, RedactionLabels::Plain)
}

fn with_labels(known: &[&str], labels: RedactionLabels) -> Redactor {
    let mut secrets = KnownSecrets::default();
    for value in known {
        secrets.insert(Secret::new(*value));
    }
    Redactor::new(&secrets, labels)
}

fn harmless() -> Vec<&'static str> {
    HARMLESS.lines().filter(|line| !line.starts_with("# ") && !line.is_empty()).collect()
}

/// Credentials are put together here, so that no scanner takes this file for a leak.
fn planted() -> Vec<(String, String)> {
    let r = |n: usize| "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t7U8v9W0".chars().cycle().take(n).collect::<String>();
    let hex = |n: usize| "0123456789abcdef".chars().cycle().take(n).collect::<String>();
    let upper = |n: usize| "ABCDEFGH12345678".chars().cycle().take(n).collect::<String>();
    let bare = vec![
        format!("ghp_{}", "x".repeat(12)),
        format!("ghp_{}", r(36)),
        format!("gho_{}", r(36)),
        format!("ghu_{}", r(36)),
        format!("ghs_{}", r(36)),
        format!("ghr_{}", r(36)),
        format!("github_pat_{}_{}", r(22), r(30)),
        format!("sk-{}", r(48)),
        format!("sk-{}", "abcdefghijklmnop"),
        format!("sk-proj-{}-{}_{}", r(20), r(9), r(20)),
        format!("sk-ant-api03-{}-{}", r(40), r(20)),
        format!("sk-or-v1-{}", hex(64)),
        format!("AKIA{}", upper(16)),
        format!("ASIA{}", upper(16)),
        format!("xoxb-{}-{}-{}", "123456789012", "1234567890123", r(24)),
        format!("xoxp-{}", r(40)),
        format!("xapp-1-{}-{}", upper(10), r(40)),
        format!("AIza{}", r(35)),
        format!("ya29.{}", r(60)),
        format!("GOCSPX-{}", r(28)),
        format!("sk_live_{}", r(24)),
        format!("rk_test_{}", r(24)),
        format!("whsec_{}", r(32)),
        format!("npm_{}", r(36)),
        format!("hf_{}", r(34)),
        format!("glpat-{}", r(20)),
        format!("eyJ{}.eyJ{}.{}", r(20), r(40), r(43)),
        format!("GHP_{}", upper(20)),
        format!("SK-{}", r(30)),
        format!("ABIA{}", upper(16)),
        format!("ACCA{}", upper(16)),
        format!("xoxe-{}", r(30)),
        format!("pk_live_{}", r(24)),
        format!("pypi-{}", r(60)),
        format!("gsk_{}", r(40)),
        format!("xai-{}", r(40)),
        format!("SG.{}.{}", r(22), r(43)),
        format!("shpat_{}", hex(32)),
        format!("shpss_{}", hex(32)),
        format!("dop_v1_{}", hex(64)),
        format!("sbp_{}", hex(40)),
        format!("figd_{}", r(40)),
        format!("lin_api_{}", r(40)),
    ];
    let mut all: Vec<(String, String)> = bare.into_iter().map(|secret| (secret.clone(), secret)).collect();
    let secret = r(24);
    let basic = STANDARD.encode(format!("user:{secret}"));
    for (text, kept) in [
        (format!("Bearer {secret}"), &secret),
        (format!("bearer  {secret}"), &secret),
        (format!("token={secret}"), &secret),
        (format!("access_token={secret}&x=1"), &secret),
        (format!("key={secret}"), &secret),
        (format!("API_KEY={secret}"), &secret),
        (format!("password={secret}"), &secret),
        (format!("secret={secret}"), &secret),
        (format!("AWS_SECRET_ACCESS_KEY={secret}/+"), &secret),
        (format!("aws_secret_access_key = {secret}"), &secret),
        (format!("password: {secret}"), &secret),
        (format!("\"token\": \"{secret}\""), &secret),
        (format!("'client_secret': '{secret}'"), &secret),
        (format!("{{\\\"apiKey\\\":\\\"{secret}\\\"}}"), &secret),
        (format!("token=\"two words {secret}\""), &secret),
        (format!("X-API-Key: {secret}"), &secret),
        (format!("x-auth-token: {secret}"), &secret),
        (format!("Authorization: {secret}"), &secret),
        (format!("Authorization: Bearer {secret}"), &secret),
        (format!("authorization: token {secret}"), &secret),
        (format!("Proxy-Authorization: Basic {basic}"), &basic),
        (format!("Basic {basic}"), &basic),
        (format!("Cookie: session={secret}; theme=dark"), &secret),
        (format!("Set-Cookie: sid={secret}; Path=/"), &secret),
        (format!("https://user:{secret}@example.com/x"), &secret),
        (format!("https://{secret}:x-oauth-basic@example.com"), &secret),
        (format!("https://{secret}@example.com"), &secret),
        (format!("https://hooks.slack.com/services/T0/B0/{secret}"), &secret),
        (format!("https://api.telegram.org/bot12345678:{secret}{secret}/getMe"), &secret),
        (format!("run --api-key {secret}"), &secret),
    ] {
        all.push((text, kept.clone()));
    }
    let body: Vec<String> = (0..5).map(|i| r(64 - i)).collect();
    let body = body.join("\n");
    for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
        let key = format!("-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----");
        all.push((key, body.clone()));
    }
    all
}

#[test]
fn harmless_texts_stay_as_they_are() {
    let redactor = redactor(&[]);
    let texts = harmless();
    assert!(texts.len() >= 60, "{}", texts.len());
    for text in texts {
        assert_eq!(redactor.redact(text), text);
        assert_eq!(redactor.redact_json(text, Scope::Patterns), text);
        assert!(matches!(redactor.redact(text), Cow::Borrowed(_)));
    }
}

#[test]
fn planted_secrets_are_masked_in_every_form() {
    let redactor = redactor(&[]);
    for (text, secret) in planted() {
        for (before, after) in
            [("", ""), ("failed: ", " (retry)"), ("{\"e\":\"", "\"}"), ("(", ")"), ("日本", "日本")]
        {
            if before.ends_with('本') && !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
                continue;
            }
            let whole = format!("{before}{text}{after}");
            let masked = redactor.redact(&whole);
            assert!(!masked.contains(&secret), "{whole} -> {masked}");
            assert!(masked.contains("[REDACTED]"), "{whole} -> {masked}");
            assert!(masked.starts_with(before), "{whole} -> {masked}");
        }
        let json = serde_json::json!({ "error": format!("line one\n{text}\n\"quoted\"") }).to_string();
        let masked = redactor.redact_json(&json, Scope::Patterns);
        let shown: serde_json::Value = serde_json::from_str(&masked).unwrap();
        assert!(!shown["error"].as_str().unwrap().contains(&secret), "{json} -> {masked}");
    }
}

/// Each alternative of the prefixes has an example above that it and only it finds.
#[test]
fn every_prefix_is_tested() {
    let alternatives = patterns::alternatives();
    assert!(alternatives.len() >= 25, "{alternatives:?}");
    for alternative in alternatives {
        let alone = regex::Regex::new(&format!(r"(?-u:\b)(?:{alternative})")).unwrap();
        assert!(planted().iter().any(|(text, _)| alone.is_match(text)), "{alternative}");
    }
}

#[test]
fn the_eight_patterns_replace_what_the_reference_replaces() {
    let redactor = redactor(&[]);
    for (text, masked) in [
        ("Failed: Invalid GitHub token ghp_xxxxxxxxxxxx", "Failed: Invalid GitHub token [REDACTED]"),
        ("use sk-abcdefghijklmnop1 now", "use [REDACTED] now"),
        ("Bearer abc.def", "[REDACTED]"),
        ("?token=abc&x=1", "?[REDACTED]&x=1"),
        ("key=abcdefgh,", "[REDACTED],"),
        ("key=a1;", "[REDACTED];"),
        ("API_KEY=abc", "[REDACTED]"),
        ("password=hunter", "[REDACTED]"),
        ("secret=abc\"", "[REDACTED]\""),
        ("GHP_ABC", "[REDACTED]"),
    ] {
        assert_eq!(redactor.redact(text), masked);
    }
}

#[test]
fn typed_labels_name_the_kind() {
    let redactor = with_labels(&["my-own-value"], RedactionLabels::Typed);
    for (text, masked) in [
        ("ghp_xxxxxxxxxxxx", "[GH_TOKEN_REDACTED]"),
        ("sk-abcdefghijklmnop1", "[API_KEY_REDACTED]"),
        ("password=x", "[PASSWORD_REDACTED]"),
        ("a my-own-value", "a [KNOWN_SECRET_REDACTED]"),
    ] {
        assert_eq!(redactor.redact(text), masked);
    }
}

#[test]
fn a_masked_text_is_not_masked_again() {
    for labels in [RedactionLabels::Plain, RedactionLabels::Typed] {
        let redactor = with_labels(&["known-value-1"], labels);
        for (text, _) in planted() {
            let once = redactor.redact(&text).into_owned();
            assert_eq!(redactor.redact(&once), once, "{text}");
        }
    }
}

#[test]
fn known_values_are_masked_in_all_their_spellings() {
    let value = "pa\"ss/wörd&=+ 12\\x";
    let redactor = redactor(&[value]);
    let json = serde_json::to_string(value).unwrap();
    let mut spellings = vec![
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        json[1..json.len() - 1].replace('/', "\\/"),
        json[1..json.len() - 1].replace('ö', "\\u00f6"),
        "pa%22ss%2Fw%C3%B6rd%26%3D%2B%2012%5Cx".to_owned(),
        "pa%22ss%2fw%c3%b6rd%26%3d%2b+12%5cx".to_owned(),
        "pa%22ss/w%C3%B6rd%26%3D%2B%2012%5Cx".to_owned(),
    ];
    let nested = serde_json::to_string(&json).unwrap();
    spellings.push(nested[3..nested.len() - 3].to_owned());
    for spelling in spellings {
        let text = format!("x{spelling}y");
        assert_eq!(redactor.redact_scope(&text, Scope::Known), "x[REDACTED]y", "{spelling}");
    }
    for skip in 0..6 {
        let around = format!("{}{value}tail", "a".repeat(skip));
        for encoded in [STANDARD.encode(&around), URL_SAFE.encode(&around), STANDARD_NO_PAD.encode(&around)] {
            let masked = redactor.redact_scope(&encoded, Scope::Known);
            assert!(masked.contains("[REDACTED]") && masked.len() < 10 + 22, "{encoded} -> {masked}");
        }
    }
}

#[test]
fn short_known_values_are_masked_as_whole_words_only() {
    let redactor = redactor(&["abc", "hunter"]);
    assert_eq!(redactor.redact("abc hunter hunters"), "abc [REDACTED] hunters");
}

#[test]
fn the_longest_of_two_known_values_wins() {
    assert_eq!(redactor(&["abcdefgh", "abcdefgh-ijkl"]).redact("x abcdefgh-ijkl y"), "x [REDACTED] y");
}

#[test]
fn json_members_that_hold_a_credential_lose_their_value() {
    let redactor = redactor(&[]);
    let raw = r#"{"apiKey" : "x", "n":1.0, "Authorization":"y z", "token":{"a":"b"}, "password":"", "list":["token","x"], "access_token":"q\"r"}"#;
    assert_eq!(
        redactor.redact_json(raw, Scope::Patterns),
        r#"{"apiKey" : "[REDACTED]", "n":1.0, "Authorization":"[REDACTED]", "token":{"a":"b"}, "password":"", "list":["token","x"], "access_token":"[REDACTED]"}"#
    );
    assert_eq!(redactor.redact_json(raw, Scope::Known), raw);
}

#[test]
fn an_escape_before_a_secret_does_not_hide_it() {
    let raw = r#"{"log":"first\nghp_abcdefghijkl\ttoken=abc\"def"}"#;
    assert_eq!(
        redactor(&[]).redact_json(raw, Scope::Patterns),
        r#"{"log":"first\n[REDACTED]\t[REDACTED]\"def"}"#
    );
}

#[test]
fn a_key_without_an_end_stops_at_the_first_foreign_line() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    let text = format!("x\n-----BEGIN PRIVATE KEY-----\n{line}\n{line}\nserver is ready\n");
    assert_eq!(redactor(&[]).redact(&text), "x\n[REDACTED]server is ready\n");
    let prefixed = format!("-----BEGIN PRIVATE KEY-----\n12:00 INFO {line}\n12:00 INFO ready\n");
    assert_eq!(redactor(&[]).redact(&prefixed), "[REDACTED]12:00 INFO ready\n");
}

#[test]
fn hostile_texts_take_linear_time() {
    let redactor = redactor(&["known-value-1"]);
    for piece in [
        "a=",
        "token",
        "token:",
        "token: ",
        "token=",
        "key=",
        "bearer ",
        "basic aaaa ",
        "cookie: ",
        "cookie: a",
        "authorization: ",
        "authorization: basic ",
        "sk-",
        "sk-a-",
        "eyJaaaaaaaa",
        "eyJaaaaaaaa.",
        "://",
        "://a:",
        "://a:b",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "\"token\":\"",
        "'token':'",
        "token\\\"",
        "--a",
        "--token ",
        "ghp_",
        "known-value-",
        "\\",
        "\"",
        "[",
    ] {
        let text = piece.repeat(20_000 / piece.len());
        // Quadratic time would be hours; the test only has to end.
        let _ = redactor.redact(&text);
        let _ = redactor.redact_json(&text, Scope::Patterns);
        let mut stream = StreamRedactor::new(Arc::clone(&SHARED));
        let _ = stream.push(text.as_bytes());
        assert!(stream.finish().len() <= text.len());
    }
}

fn streamed(redactor: &Arc<Redactor>, pieces: &[&[u8]]) -> String {
    let mut stream = StreamRedactor::new(Arc::clone(redactor));
    let mut out: String = pieces.iter().map(|piece| stream.push(piece)).collect();
    out.push_str(&stream.finish());
    out
}

#[test]
fn a_stream_shows_a_line_as_soon_as_it_is_complete() {
    let mut stream = StreamRedactor::new(Arc::new(redactor(&[])));
    assert_eq!(stream.push(b"ready\ntok"), "ready\n");
    assert_eq!(stream.push(b"en=abc\n"), "[REDACTED]\n");
    assert_eq!(stream.push("日".as_bytes().split_at(1).0), "");
    assert_eq!(stream.push("日".as_bytes().split_at(1).1), "");
    assert_eq!(stream.finish(), "日");
}

#[test]
fn a_key_that_comes_line_by_line_is_masked() {
    let (key, body) = planted().pop().unwrap();
    let redactor = Arc::new(redactor(&[]));
    let text = format!("start\n{key}\nend\n");
    let lines: Vec<&[u8]> = text.split_inclusive('\n').map(str::as_bytes).collect();
    let shown = streamed(&redactor, &lines);
    assert!(body.lines().all(|line| !shown.contains(line)), "{shown}");
    assert!(shown.starts_with("start\n[REDACTED]") && shown.ends_with("end\n"), "{shown}");
}

#[test]
fn a_known_value_of_several_lines_is_masked_line_by_line() {
    let value = "first line of the secret\nsecond line of the secret";
    let redactor = Arc::new(redactor(&[value]));
    assert_eq!(
        streamed(&redactor, &[b"a first line of the secret\n", b"second line of the secret\n"]),
        "a [REDACTED]\n[REDACTED]\n"
    );
}

#[test]
fn a_line_that_never_ends_is_cut_where_no_secret_is() {
    let value = "K".repeat(200);
    let redactor = Arc::new(redactor(&[&value]));
    for lead in [60_000, 65_000] {
        let text = format!(
            "{} {value} password={} tail {}",
            "x".repeat(lead),
            "p1".repeat(8_000),
            "y".repeat(9_000)
        );
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(4096).collect();
        let shown = streamed(&redactor, &pieces);
        assert!(!shown.contains("KKK") && !shown.contains("p1p1"), "lead {lead}");
        assert!(shown.ends_with(&"y".repeat(9_000)) && shown.contains(" tail y"));
    }
}

fn secret_text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => proptest::sample::select(planted()).prop_map(|(text, _)| text),
        2 => Just("known-value-1/ä".to_owned()),
        4 => proptest::sample::select(harmless()).prop_map(str::to_owned),
        1 => ".{0,20}",
    ]
}

proptest! {
    #[test]
    fn no_planted_secret_survives_any_split(
        parts in proptest::collection::vec((secret_text(), proptest::sample::select(vec![" ", "\n", ", ", "\r\n", "\t"])), 1..8),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let redactor = Arc::clone(&SHARED);
        let text: String = parts.iter().map(|(text, gap)| format!("{text}{gap}")).collect();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        at.extend([0, text.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
        let shown = streamed(&redactor, &pieces);
        for (planted, secret) in PLANTED.iter() {
            if text.contains(planted) {
                for line in secret.lines() {
                    prop_assert!(!shown.contains(line), "{} -> {}", text, shown);
                }
            }
        }
        prop_assert!(!shown.contains("known-value-1/ä"));
        let bytewise: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        prop_assert_eq!(&streamed(&redactor, &bytewise), &shown);
    }

    #[test]
    fn no_spelling_of_a_known_value_survives_any_split(
        spelling in proptest::sample::select(spellings("known-value-1/ä")),
        before in "[a-z =]{0,9}",
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let text = format!("{before} {spelling} end\n");
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        at.extend([0, text.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
        let shown = streamed(&SHARED, &pieces);
        prop_assert!(shown.contains("[REDACTED]"), "{} -> {}", text, shown);
        // What is left of an encoded value is at most what its neighbours share a character with.
        let left = shown.replace("[REDACTED]", "").len();
        prop_assert!(left <= before.len() + " end\n".len() + 2 + 8, "{} -> {}", text, shown);
    }

    #[test]
    fn masked_json_is_still_json(value in json_value()) {
        let redactor = &*SHARED;
        for raw in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
            let masked = redactor.redact_json(&raw, Scope::Patterns).into_owned();
            let shown: serde_json::Value = serde_json::from_str(&masked).unwrap();
            prop_assert!(same_shape(&value, &shown), "{} -> {}", raw, masked);
            prop_assert!(!masked.contains("known-value-1/ä"));
        }
    }
}

/// How a value is written: as it is, escaped, in a URL, in base64 behind zero, one and two bytes.
fn spellings(value: &str) -> Vec<String> {
    let json = serde_json::to_string(value).unwrap();
    let escaped = json[1..json.len() - 1].to_owned();
    let mut all = vec![
        value.to_owned(),
        escaped.replace('/', "\\/"),
        escaped.replace('ä', "\\u00e4"),
        value.replace('/', "%2F").replace('ä', "%C3%A4"),
        value.replace('/', "%2f").replace('ä', "%c3%a4"),
        value.replace('ä', "%C3%A4"),
    ];
    for skip in 0..3 {
        let around = format!("{}{value}", "x".repeat(skip));
        all.extend([STANDARD.encode(&around), STANDARD_NO_PAD.encode(&around), URL_SAFE.encode(&around)]);
    }
    all
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let text = || proptest::collection::vec(secret_text(), 1..3).prop_map(|parts| parts.join("\n\""));
    let leaf = prop_oneof![
        text().prop_map(serde_json::Value::from),
        Just(serde_json::json!(1.50)),
        Just(serde_json::json!(null))
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::vec((prop_oneof![Just("token".to_owned()), "[a-z]{1,6}"], inner), 0..4)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Equal but for the content of strings.
fn same_shape(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (a, b) {
        (Value::String(_), Value::String(_)) => true,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.values().zip(b.values()).all(|(a, b)| same_shape(a, b))
        }
        (a, b) => a == b,
    }
}
