//! Which schemas are repaired, how, and that the same arguments stay acceptable.

use super::*;
use proptest::prelude::*;
use serde_json::{Map, json};

fn raw(value: &Value) -> Box<RawValue> {
    to_raw(value)
}

fn repaired(value: Value) -> Value {
    serde_json::from_str(repair(Some(&raw(&value))).unwrap().schema.get()).unwrap()
}

fn kinds(value: &Value) -> Vec<NoteKind> {
    repair(Some(&raw(value))).unwrap().notes.iter().map(|note| note.kind).collect()
}

#[test]
fn a_good_schema_keeps_its_bytes() {
    let text = r#"{ "properties" : {"b":{"type":"number","maximum":1e400,"x-y":1.0},"a":{"enum":["\u0041"]}},
        "type":"object","required":["b"],"additionalProperties":false}"#;
    let raw: &RawValue = serde_json::from_str(text).unwrap();
    let got = repair(Some(raw)).unwrap();
    assert_eq!(got.schema.get(), text);
    assert_eq!(got.notes, []);
}

#[test]
fn a_repair_keeps_order_and_numbers() {
    let text = r#"{"properties":{"z":{"maximum":12345678901234567890.50,"type":["integer","null"]},"a":{}}}"#;
    let got = repair(Some(serde_json::from_str(text).unwrap())).unwrap();
    assert_eq!(
        got.schema.get(),
        r#"{"type":"object","properties":{"z":{"maximum":12345678901234567890.50,"type":"integer","nullable":true},"a":{}}}"#
    );
}

#[test]
fn an_absent_schema_accepts_any_object() {
    let open = json!({ "type": "object", "properties": {} });
    assert_eq!(repair(None).unwrap().schema.get(), raw(&open).get());
    for empty in [
        json!(null),
        json!({}),
        json!({ "type": "object" }),
        json!(true),
        json!({"type": "object", "properties": null}),
    ] {
        assert_eq!(repaired(empty), open);
    }
}

#[test]
fn what_accepts_no_object_is_refused_with_the_reason() {
    for hopeless in [
        json!({ "type": "string" }),
        json!(false),
        json!("string"),
        json!([1]),
        json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] }),
    ] {
        assert!(repair(Some(&raw(&hopeless))).is_err(), "{hopeless}");
    }
}

#[test]
fn parameters_named_like_keywords_are_left_alone() {
    let schema = json!({
        "type": "object",
        "properties": {
            "properties": { "type": "string" }, "required": { "type": "string" },
            "definitions": { "type": "object", "properties": { "anyOf": { "type": "string" } }, "required": ["anyOf"] },
            "$ref": { "type": "string" }, "items": { "type": "array", "items": {} }, "type": { "enum": ["a"] }
        },
        "required": ["properties", "definitions"]
    });
    assert_eq!(kinds(&schema), []);
}

#[test]
fn definitions_and_their_references_move_together() {
    let schema = json!({
        "type": "object",
        "definitions": {
            "N": { "type": "object", "properties": { "next": { "$ref": "#/definitions/N" } } },
            "a b": { "type": "string" },
            "deep": { "definitions": { "x": { "type": "number" } } }
        },
        "properties": {
            "n": { "$ref": "#/definitions/N" },
            "s": { "$ref": "#/definitions/a%20b" },
            "d": { "$ref": "#/definitions/deep/definitions/x" },
            "definitions": { "$ref": "#/properties/n" },
            "self": { "$ref": "#/properties/definitions" }
        }
    });
    let got = repaired(schema);
    assert!(got.get("definitions").is_none());
    for (name, to) in [
        ("n", "#/$defs/N"),
        ("s", "#/$defs/a%20b"),
        ("d", "#/$defs/deep/$defs/x"),
        ("definitions", "#/properties/n"),
        ("self", "#/properties/definitions"),
    ] {
        assert_eq!(got["properties"][name]["$ref"], to);
    }
    assert_eq!(got["$defs"]["N"]["properties"]["next"]["$ref"], "#/$defs/N");
}

#[test]
fn references_that_lead_nowhere_are_dropped_and_never_fetched() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a": { "$ref": "#/$defs/gone", "description": "kept" },
            "b": { "$ref": "http://127.0.0.1:1/x.json" },
            "c": { "$ref": "file:///etc/passwd" }
        }
    });
    assert_eq!(kinds(&schema), [NoteKind::RefDropped; 3]);
    assert_eq!(repaired(schema)["properties"], json!({ "a": { "description": "kept" }, "b": {}, "c": {} }));
}

#[test]
fn null_alternatives_become_nullable_with_the_outer_texts() {
    let got = repaired(json!({
        "type": "object",
        "properties": {
            "a": { "anyOf": [{ "type": "string", "minLength": 2 }, { "type": "null" }], "default": null, "title": "A" },
            "b": { "anyOf": [{ "type": "string" }, { "type": "number" }, { "type": "null" }] },
            "c": { "oneOf": [{}, { "type": "null" }] },
            "d": { "anyOf": [{ "type": "string" }, { "type": "null" }], "minLength": 2 },
            "e": { "type": ["string", "null"], "enum": ["x", null] },
            "f": { "type": ["string", "null"], "enum": ["x"] },
            "g": { "type": ["array", "object", "null"] }
        }
    }));
    let properties = &got["properties"];
    assert_eq!(
        properties["a"],
        json!({ "type": "string", "minLength": 2, "nullable": true, "default": null, "title": "A" })
    );
    assert_eq!(properties["b"]["anyOf"].as_array().unwrap().len(), 3);
    assert!(properties["c"].get("oneOf").is_some() && properties["d"].get("anyOf").is_some());
    assert_eq!(properties["e"], json!({ "type": "string", "enum": ["x", null], "nullable": true }));
    assert_eq!(properties["f"], json!({ "type": "string", "enum": ["x"] }));
    assert_eq!(
        properties["g"],
        json!({ "anyOf": [{ "type": "array", "items": {} }, { "type": "object", "properties": {} }, { "type": "null" }] })
    );
}

#[test]
fn required_names_are_declared_and_only_forbidden_ones_dropped() {
    let open = json!({ "type": "object", "properties": { "a": {} }, "required": ["a", "b"] });
    assert_eq!(repaired(open)["properties"], json!({ "a": {}, "b": {} }));
    let typed = json!({ "type": "object", "properties": {}, "required": ["b"], "additionalProperties": { "type": "string" } });
    assert_eq!(repaired(typed)["properties"], json!({ "b": { "type": "string" } }));
    let closed = json!({ "type": "object", "properties": { "a": {} }, "required": ["a", "b"], "additionalProperties": false });
    assert_eq!(repaired(closed)["required"], json!(["a"]));
    let branch = json!({ "type": "object", "properties": { "p": { "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] } } });
    assert_eq!(kinds(&branch), []);
    let old = json!({ "type": "object", "properties": { "a": { "type": "string", "required": true } } });
    assert_eq!(repaired(old)["properties"]["a"], json!({ "type": "string" }));
}

#[test]
fn alternatives_at_the_top_are_merged_and_described() {
    let got = repaired(json!({
        "oneOf": [
            { "type": "object", "properties": { "kind": { "const": "a" }, "id": { "type": "string" } }, "required": ["kind", "id"] },
            { "type": "object", "properties": { "kind": { "const": "b" }, "n": { "type": "number" } }, "required": ["kind", "n"] },
            { "type": "string" }
        ]
    }));
    assert_eq!(got["type"], "object");
    assert_eq!(got["required"], json!(["kind"]));
    assert_eq!(got["properties"]["kind"], json!({ "anyOf": [{ "const": "a" }, { "const": "b" }] }));
    assert_eq!(
        got["description"],
        r#"Give exactly one of these sets of arguments: {kind="a", id} or {kind="b", n}."#
    );
}

#[test]
fn a_reference_at_the_top_is_replaced_by_its_target() {
    let got = repaired(json!({
        "$ref": "#/definitions/Args",
        "definitions": { "Args": { "type": "object", "properties": { "self": { "$ref": "#/definitions/Args" } },
            "required": ["self"], "additionalProperties": false } }
    }));
    assert_eq!(got["properties"], json!({ "self": { "$ref": "#/$defs/Args" } }));
    assert_eq!(got["additionalProperties"], json!(false));
    assert_eq!(got["required"], json!(["self"]));
    assert!(got["$defs"]["Args"].is_object() && got.get("allOf").is_none() && got.get("$ref").is_none());
}

#[test]
fn circles_and_depth_end() {
    for circle in [
        json!({ "$ref": "#" }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] } } }),
    ] {
        assert_eq!(repaired(circle)["type"], "object");
    }
    let deep = format!("{}{}", r#"{"items":"#.repeat(4000), "{}".to_owned() + &"}".repeat(4000));
    let refused = RawValue::from_string(deep)
        .map_or(true, |raw| repair(Some(&raw)).err() == Some(SchemaError::TooDeep));
    assert!(refused, "either the parser or the repair stops at the depth limit");
}

// --- the same instances are accepted ------------------------------------------------------------

/// Reads `nullable: true` as OpenAPI does: null, or the rest.
fn read_nullable(value: &mut Value) {
    let Value::Object(schema) = value else { return };
    keywords::for_each_child(schema, &mut |_, _, child| read_nullable(child));
    if schema.shift_remove("nullable") == Some(Value::Bool(true)) {
        let rest = Value::Object(std::mem::take(schema));
        schema.insert("anyOf".to_owned(), json!([rest, { "type": "null" }]));
    }
}

const NAMES: [&str; 5] = ["a", "properties", "required", "definitions", "type"];

fn name() -> impl Strategy<Value = String> + Clone {
    proptest::sample::select(NAMES.as_slice()).prop_map(str::to_owned)
}

fn object(parts: Vec<(&'static str, Option<Value>)>) -> Value {
    Value::Object(
        parts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Map<_, _>>(),
    )
}

fn leaf() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        Just(json!({ "type": "string" })),
        Just(json!({ "type": "null" })),
        Just(json!({ "type": ["string", "null"] })),
        Just(json!({ "type": ["integer", "string"], "maximum": 1 })),
        Just(json!({ "type": ["string", "null"], "enum": ["x", null] })),
        Just(json!({ "type": ["string", "null"], "const": "x" })),
        Just(json!({ "type": "array" })),
        Just(json!({ "type": "object" })),
        Just(json!({ "$ref": "#/definitions/N" })),
        Just(json!(true)),
        Just(json!({})),
    ]
}

fn object_schema(
    inner: impl Strategy<Value = Value> + Clone + 'static,
) -> impl Strategy<Value = Value> + Clone {
    (
        proptest::option::of(Just(json!("object"))),
        proptest::option::of(proptest::collection::btree_map(name(), inner.clone(), 0..4)),
        proptest::option::of(proptest::collection::btree_set(name(), 0..3)),
        proptest::option::of(prop_oneof![Just(json!(true)), inner]),
    )
        .prop_map(|(kind, properties, required, additional)| {
            object(vec![
                ("type", kind),
                ("properties", properties.map(|map| json!(map))),
                ("required", required.map(|set| json!(set))),
                ("additionalProperties", additional),
            ])
        })
}

fn schema() -> impl Strategy<Value = Value> + Clone {
    leaf().prop_recursive(3, 24, 4, |inner| {
        let list = proptest::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            object_schema(inner.clone()),
            (list.clone(), any::<bool>()).prop_map(|(list, title)| {
                object(vec![("title", title.then(|| json!("t"))), ("anyOf", Some(json!(list)))])
            }),
            list.clone().prop_map(|list| json!({ "oneOf": list })),
            (list, inner.clone()).prop_map(|(list, rest)| json!({ "anyOf": list, "not": rest })),
            inner.prop_map(|items| json!({ "type": "array", "items": items })),
        ]
    })
}

fn instance() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!("x")),
        Just(json!("y")),
        Just(json!(1)),
        Just(json!(2.5)),
        Just(json!(true))
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(|list| json!(list)),
            proptest::collection::btree_map(name(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map(name(), instance(), 0..4).prop_map(|map| json!(map))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_same_arguments_are_accepted_before_and_after(
        root in object_schema(schema()), definition in schema(), parts in proptest::collection::vec(object_schema(schema()), 0..2),
        instances in proptest::collection::vec(arguments(), 8),
    ) {
        let mut root = root;
        root["definitions"] = json!({ "N": definition });
        if let [one] = &parts[..] {
            // A single part is merged exactly where the top declares nothing of its own.
            root = json!({ "definitions": root["definitions"], "allOf": [one] });
        }
        let Ok(before) = jsonschema::validator_for(&root) else { return Ok(()) };
        let after = repair(Some(&raw(&root))).unwrap();
        let mut after_value: Value = serde_json::from_str(after.schema.get()).unwrap();
        let again = repair(Some(&after.schema)).unwrap();
        prop_assert!(again.notes.is_empty(), "not stable: {} {:?}", after.schema, again.notes);
        read_nullable(&mut after_value);
        let after_validator = jsonschema::validator_for(&after_value).unwrap();
        for one in &instances {
            prop_assert_eq!(before.is_valid(one), after_validator.is_valid(one), "{} -> {} on {}", root, after.schema, one);
        }
    }

    #[test]
    fn merged_alternatives_accept_whatever_one_of_them_accepted(
        branches in proptest::collection::vec(object_schema(schema()), 1..4), one_of in any::<bool>(),
        instances in proptest::collection::vec(arguments(), 8),
    ) {
        let branches: Vec<Value> = branches.into_iter().map(|mut branch| {
            branch["additionalProperties"] = json!(false);
            branch
        }).collect();
        let root = json!({ if one_of { "oneOf" } else { "anyOf" }: branches, "definitions": { "N": { "type": "string" } } });
        let before = jsonschema::validator_for(&root).unwrap();
        let mut after: Value = serde_json::from_str(repair(Some(&raw(&root))).unwrap().schema.get()).unwrap();
        prop_assert!(after.get("anyOf").is_none() && after.get("oneOf").is_none());
        read_nullable(&mut after);
        let after = jsonschema::validator_for(&after).unwrap();
        for one in &instances {
            prop_assert!(!before.is_valid(one) || after.is_valid(one), "{} on {}", root, one);
        }
    }
}
