//! Headers and bodies that agree, and every way in which they do not.

use super::*;
use crate::http::posted::{Kind, read};

fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(*name, value.parse().unwrap());
    }
    map
}

fn call(meta: &str) -> Request {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"größe","arguments":{{}},"_meta":{meta}}}}}"#
    );
    match read(body.as_bytes()).unwrap().kind {
        Kind::Request(request) => *request,
        other => panic!("{other:?}"),
    }
}

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
const REVISION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
const METHOD: (&str, &str) = ("mcp-method", "tools/call");
const NAME: (&str, &str) = ("mcp-name", "=?base64?Z3LDtsOfZQ==?=");

fn code(lines: &[(&'static str, &str)], meta: &str, arguments: &[(String, Option<Value>)]) -> i64 {
    match check(&map(lines), &call(meta), arguments) {
        Ok(()) => 0,
        Err(Reply::Error(error)) => {
            serde_json::from_str::<Value>(error.get()).unwrap()["code"].as_i64().unwrap()
        }
        Err(Reply::Result(_)) => unreachable!(),
    }
}

#[test]
fn headers_that_say_what_the_body_says_pass() {
    assert_eq!(code(&[REVISION, METHOD, NAME], META, &[]), 0);
}

#[test]
fn each_difference_has_its_code() {
    for (lines, expected) in [
        (vec![METHOD, NAME], -32020),
        (vec![REVISION, NAME], -32020),
        (vec![REVISION, METHOD], -32020),
        (vec![("mcp-protocol-version", "2025-11-25"), METHOD, NAME], -32020),
        (vec![REVISION, ("mcp-method", "tools/list"), NAME], -32020),
        (vec![REVISION, ("mcp-method", "TOOLS/CALL"), NAME], -32020),
        (vec![REVISION, METHOD, ("mcp-name", "other")], -32020),
        (vec![REVISION, METHOD, ("mcp-name", "=?base64?!!?=")], -32020),
        (vec![REVISION, METHOD, NAME, NAME], -32020),
    ] {
        assert_eq!(code(&lines, META, &[]), expected, "{lines:?}");
    }
    assert_eq!(code(&[REVISION, METHOD, NAME], "{}", &[]), -32602);
    let no_capabilities = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    assert_eq!(code(&[REVISION, METHOD, NAME], no_capabilities, &[]), -32602);
    let other = META.replace("2026-07-28", "v999");
    assert_eq!(code(&[("mcp-protocol-version", "v999"), METHOD, NAME], &other, &[]), -32022);
    assert_eq!(code(&[REVISION, METHOD, NAME], &other, &[]), -32020);
}

#[test]
fn arguments_in_headers_are_compared_by_value() {
    let check = |header: Option<&str>, body: Option<Value>| {
        let mut lines = vec![REVISION, METHOD, NAME];
        lines.extend(header.map(|value| ("mcp-param-x", value)));
        code(&lines, META, &[("mcp-param-x".to_owned(), body)])
    };
    for (header, body, expected) in [
        (Some("a"), Some(json!("a")), 0),
        (Some("=?base64?w6Q=?="), Some(json!("ä")), 0),
        (Some("42.0"), Some(json!(42)), 0),
        (Some("true"), Some(json!(true)), 0),
        (None, None, 0),
        (None, Some(Value::Null), 0),
        (Some("a"), Some(json!("b")), -32020),
        (Some("a"), None, -32020),
        (None, Some(json!("a")), -32020),
        (Some("41"), Some(json!(42)), -32020),
        (Some("=?base64?w6Q?="), Some(json!("ä")), -32020),
    ] {
        assert_eq!(check(header, body.clone()), expected, "{header:?} {body:?}");
    }
}

#[test]
fn accept_is_read_by_its_rules() {
    for (value, json, events) in [
        ("application/json, text/event-stream", true, true),
        ("*/*", true, true),
        ("application/*, text/*;q=0.5", true, true),
        ("application/json", true, false),
        ("TEXT/EVENT-STREAM", false, true),
        ("text/html", false, false),
        ("application/json;q=0, text/event-stream", false, true),
    ] {
        let headers = map(&[("accept", value)]);
        assert_eq!(accepts(&headers, "application/json"), json, "{value}");
        assert_eq!(accepts(&headers, "text/event-stream"), events, "{value}");
    }
    assert!(accepts(&HeaderMap::new(), "application/json"));
    assert!(is_json(&map(&[("content-type", "Application/JSON; charset=utf-8")])));
    assert!(!is_json(&map(&[("content-type", "text/plain")])) && !is_json(&HeaderMap::new()));
}

#[test]
fn only_errors_of_the_transport_have_a_status_of_their_own() {
    for (answer, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}"#, 404),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"m"}}"#, 400),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}"#, 200),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"error":{"code":-32601}}}"#, 200),
    ] {
        assert_eq!(status(answer.as_bytes()).as_u16(), expected, "{answer}");
    }
}
