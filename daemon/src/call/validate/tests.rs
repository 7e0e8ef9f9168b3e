//! Validation against schemas as servers write them.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

fn validator(schema: &Value) -> Validator {
    Validator::compile(Some(&raw(schema)))
}

fn respelled(schema: &Value, arguments: &str) -> String {
    let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
    validator(schema).check(Some(&arguments)).unwrap().arguments.get().to_owned()
}

fn refused(schema: &Value, arguments: &Value) -> String {
    validator(schema).check(Some(&raw(arguments))).unwrap_err().to_string()
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "n": { "type": "integer", "minimum": 1 }, "x": { "type": "number" }, "flag": { "type": "boolean" },
            "list": { "type": "array", "items": { "type": "integer" } },
            "maybe": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            "text": { "type": "string" }, "both": { "type": ["string", "null"] },
            "mode": { "enum": ["fast", "slow"] },
            "deep": { "type": "object", "properties": { "a/b": { "type": "array", "items": { "type": "boolean" } } } }
        },
        "required": ["n"],
        "additionalProperties": false
    })
}

#[test]
fn valid_arguments_keep_their_bytes() {
    let text = r#"{ "x" : 1.50, "n":12345678901234567890123, "text":"\u0041" }"#;
    let raw: &RawValue = serde_json::from_str(text).unwrap();
    let checked = validator(&schema()).check(Some(raw)).map(|checked| checked.arguments.get().to_owned());
    assert_eq!(checked.unwrap(), text);
}

#[test]
fn absent_and_null_arguments_become_an_empty_object() {
    let open = validator(&json!({ "type": "object" }));
    assert_eq!(open.check(None).unwrap().arguments.get(), "{}");
    assert_eq!(open.check(Some(&raw(&json!(null)))).unwrap().arguments.get(), "{}");
    assert!(refused(&schema(), &json!(null)).contains("`n`: expected a value (it is required), got nothing"));
}

#[test]
fn misspelled_members_are_respelled_and_nothing_else() {
    for (before, after) in [
        (r#"{ "text":"42",  "n" : "42" , "x":1.50}"#, r#"{ "text":"42",  "n" : 42 , "x":1.50}"#),
        (r#"{"n":1,"x":" -1.50"}"#, r#"{"n":1,"x":-1.50}"#),
        (r#"{"n":1,"flag":"True"}"#, r#"{"n":1,"flag":true}"#),
        (r#"{"n":1,"list":7}"#, r#"{"n":1,"list":[7]}"#),
        (r#"{"n":1,"list":"7"}"#, r#"{"n":1,"list":[7]}"#),
        (r#"{"n":1,"list":["7",8]}"#, r#"{"n":1,"list":[7,8]}"#),
        (r#"{"n":1,"list":"[7, 8]"}"#, r#"{"n":1,"list":[7,8]}"#),
        (r#"{"n":1,"maybe":"null"}"#, r#"{"n":1,"maybe":null}"#),
        (r#"{"n":1,"maybe":"5"}"#, r#"{"n":1,"maybe":5}"#),
        (r#"{"n":1,"both":"null"}"#, r#"{"n":1,"both":"null"}"#),
        (r#"{"n":1,"deep":{"a/b":"true"}}"#, r#"{"n":1,"deep":{"a/b":[true]}}"#),
        (r#"{"n":1,"deep":"{\"a/b\":[\"false\"]}"}"#, r#"{"n":1,"deep":{"a/b":[false]}}"#),
        (r#"{"n":"x","n":"2"}"#, r#"{"n":"x","n":2}"#),
    ] {
        assert_eq!(respelled(&schema(), before), after, "{before}");
    }
}

#[test]
fn a_refusal_names_path_expectation_and_value() {
    let text = refused(
        &schema(),
        &json!({
            "n": 0, "flag": "maybe", "list": [1, "two"], "mode": "medium", "nonsense": 1
        }),
    );
    for part in [
        "the tool was not called",
        "`n`: expected at least 1, got the number 0",
        "`flag`: expected a boolean, got the string \"maybe\"",
        "`list[1]`: expected an integer, got the string \"two\"",
        "`mode`: expected one of [\"fast\",\"slow\"], got the string \"medium\"",
        "the arguments: expected no other arguments than the schema names, got `nonsense`",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(
        refused(&schema(), &json!({ "n": 1, "maybe": "x" })).contains("`maybe`: expected integer or null")
    );
    assert!(
        refused(&schema(), &json!([1])).contains("expected an object of named arguments, got an array of 1")
    );
}

#[test]
fn long_values_and_many_problems_are_cut_short() {
    let properties: serde_json::Map<String, Value> =
        (0..50).map(|i| (format!("p{i}"), json!({ "type": "integer" }))).collect();
    let arguments: serde_json::Map<String, Value> =
        (0..50).map(|i| (format!("p{i}"), json!("é".repeat(10_000)))).collect();
    let error =
        validator(&json!({ "properties": properties })).check(Some(&raw(&json!(arguments)))).unwrap_err();
    assert_eq!((error.problems.len(), error.more), (5, 45));
    assert!(error.to_string().len() < 2000);
}

#[test]
fn a_schema_that_does_not_compile_switches_validation_off_and_says_so() {
    for bad in [
        json!({ "type": "no such type" }),
        json!({ "properties": { "a": { "pattern": "(" } } }),
        json!({ "properties": { "a": { "$ref": "#/$defs/gone" } } }),
        json!({ "properties": { "a": { "$ref": "http://127.0.0.1:1/never.json" } } }),
        json!({ "properties": { "a": { "$ref": "file:///etc/passwd" } } }),
        json!({ "properties": { "a": { "required": true } } }),
        json!("object"),
    ] {
        let off = validator(&bad);
        assert!(off.note().is_some(), "{bad}");
        assert!(off.check(Some(&raw(&json!({ "a": 1 })))).is_ok());
        assert!(off.check(Some(&raw(&json!(7)))).is_err(), "arguments are an object even so");
    }
    assert!(validator(&schema()).note().is_none());
    assert!(Validator::compile(None).note().is_none());
}

#[test]
fn a_pattern_that_backtracks_for_ever_is_given_up() {
    let hostile = json!({ "properties": { "a": { "pattern": "^(?=.)(a+)+(?!b)\\1?c$" } } });
    let arguments = json!({ "a": "a".repeat(5000) });
    // It either ends quickly with a verdict or is given up; both end.
    let _ = validator(&hostile).check(Some(&raw(&arguments)));
    let linear = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } });
    assert!(validator(&linear).check(Some(&raw(&json!({ "a": format!("{}!", "a".repeat(5000)) })))).is_err());
    let looking = json!({ "properties": { "a": { "pattern": "^(?!x)" } } });
    assert!(validator(&looking).check(Some(&raw(&json!({ "a": "xy" })))).is_err());
}

#[test]
fn nullable_members_take_null() {
    let schema = json!({ "properties": {
        "a": { "type": "string", "nullable": true },
        "b": { "type": "string", "nullable": true, "enum": ["x"] },
        "nullable": { "type": "string" }
    } });
    assert!(validator(&schema).check(Some(&raw(&json!({ "a": null, "b": null })))).is_ok());
    assert!(validator(&schema).check(Some(&raw(&json!({ "a": 1 })))).is_err());
    assert!(validator(&schema).check(Some(&raw(&json!({ "nullable": null })))).is_err());
}

#[test]
fn formats_are_annotations() {
    let schema = json!({ "properties": { "u": { "type": "string", "format": "uri" } } });
    assert!(validator(&schema).check(Some(&raw(&json!({ "u": "not a uri" })))).is_ok());
}

#[test]
fn validators_are_compiled_once_for_each_schema() {
    let mut all = Validators::default();
    let (server, tool) = (ServerName::new("s"), RawTool::new("t"));
    let (one, two) =
        (raw(&json!({ "type": "object" })), raw(&json!({ "type": "object", "required": ["a"] })));
    let first = all.get(&server, &tool, Some(&one));
    assert!(Arc::ptr_eq(&first, &all.get(&server, &tool, Some(&one))));
    let second = all.get(&server, &tool, Some(&two));
    assert!(!Arc::ptr_eq(&first, &second));
    all.retain(|_, _| false);
    assert!(!Arc::ptr_eq(&second, &all.get(&server, &tool, Some(&two))));
}

fn spelled() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i32>().prop_map(|n| json!(n)),
        any::<i32>().prop_map(|n| json!(n.to_string())),
        Just(json!("true")),
        Just(json!("null")),
        Just(json!(null)),
        Just(json!(["1", 2])),
        "[a-z]{0,4}".prop_map(|s| json!(s)),
    ]
}

proptest! {
    #[test]
    fn what_passes_is_valid_and_differs_only_where_it_says(
        members in proptest::collection::btree_map(
            proptest::sample::select(vec!["n", "x", "flag", "list", "maybe", "text", "both"]), spelled(), 0..7),
    ) {
        let before = json!(members);
        let validator = validator(&schema());
        let sent = raw(&before);
        if let Ok(checked) = validator.check(Some(&sent)) {
            let after: Value = serde_json::from_str(checked.arguments.get()).unwrap();
            prop_assert!(jsonschema::is_valid(&schema(), &after));
            for (name, value) in before.as_object().unwrap() {
                let touched = checked.respelled.iter().any(|path| path.trim_start_matches('/').split('/').next() == Some(name));
                prop_assert_eq!(touched, *value != after[name], "{} -> {}", before, after);
            }
        } else {
            prop_assert!(!jsonschema::is_valid(&schema(), &before));
        }
    }
}
