//! The rules of `x-mcp-header`, one by one.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

fn headers(schema: Value, arguments: Value) -> Vec<(String, String)> {
    let mut mirror = Mirror::default();
    mirror.learn(&raw(&json!({"tools": [{"name": "t", "inputSchema": schema}]})));
    let all = mirror.headers("t", &raw(&arguments));
    all.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}

#[test]
fn annotated_arguments_become_headers_in_their_written_form() {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "n": {"type": "integer", "x-mcp-header": "N"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "in": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Inner"}}},
        "plain": {"type": "string"}
    }});
    let arguments = json!({"region": "us-west1", "n": -7, "dry": false, "in": {"er": "ä"}, "plain": "p"});
    let mut got = headers(schema.clone(), arguments);
    got.sort();
    let want = [
        ("mcp-param-dry", "false"),
        ("mcp-param-inner", "=?base64?w6Q=?="),
        ("mcp-param-n", "-7"),
        ("mcp-param-region", "us-west1"),
    ];
    assert_eq!(got, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(headers(schema, json!({"region": null})), [], "null and absent values are left out");
}

#[test]
fn a_schema_that_breaks_the_rules_is_told_apart() {
    let property = |property: Value| mirrored(&json!({"properties": {"p": property}}));
    assert!(matches!(property(json!({"type": "string", "x-mcp-header": ""})), Err(MirrorError::Name { .. })));
    assert!(matches!(
        property(json!({"type": "string", "x-mcp-header": "a b"})),
        Err(MirrorError::Name { .. })
    ));
    assert!(matches!(property(json!({"type": "string", "x-mcp-header": 1})), Err(MirrorError::Name { .. })));
    assert!(matches!(
        property(json!({"type": "number", "x-mcp-header": "P"})),
        Err(MirrorError::Type { .. })
    ));
    assert!(matches!(property(json!({"x-mcp-header": "P"})), Err(MirrorError::Type { .. })));
    let below = json!({"type": "array", "items": {"type": "string", "x-mcp-header": "P"}});
    assert!(matches!(property(below), Err(MirrorError::Place { .. })));
    let twice = json!({"properties": {
        "a": {"type": "string", "x-mcp-header": "X"}, "b": {"type": "string", "x-mcp-header": "x"}}});
    assert!(matches!(mirrored(&twice), Err(MirrorError::Twice { .. })));
    let inside_data = json!({"properties": {"p": {"type": "object", "default": {"x-mcp-header": "P"}}}});
    assert_eq!(mirrored(&inside_data), Ok(vec![]));
}

proptest! {
    #[test]
    fn integers_outside_the_safe_range_are_never_sent(n in any::<i64>()) {
        let schema = json!({"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}});
        let sent = headers(schema, json!({"n": n}));
        prop_assert_eq!(sent.is_empty(), n.checked_abs().is_none_or(|n| n > SAFE));
    }
}
