//! Edits of JSON with comments, to the byte.

use super::*;
use serde_json::json;

fn added(text: &str) -> String {
    insert(text, &["m"], "n", &json!({"a": [1, 2]})).unwrap().0
}

#[test]
fn a_member_is_indented_like_its_neighbours() {
    assert_eq!(
        added("{\n\t\"m\": {\n\t\t\"x\": 1 // c\n\t}\n}\n"),
        "{\n\t\"m\": {\n\t\t\"x\": 1, // c\n\t\t\"n\": {\n\t\t\t\"a\": [1, 2]\n\t\t}\n\t}\n}\n"
    );
    assert_eq!(added("{\"m\":{\"x\":1}}"), "{\"m\":{\"x\":1,\"n\":{\"a\":[1,2]}}}");
    assert_eq!(added("{\"m\": {\"x\": 1}}"), "{\"m\": {\"x\": 1, \"n\": { \"a\": [1, 2] }}}");
}

#[test]
fn missing_objects_are_made_and_an_empty_file_becomes_one() {
    assert_eq!(added("{}"), "{\n  \"m\": {\n    \"n\": {\n      \"a\": [1, 2]\n    }\n  }\n}");
    assert_eq!(added(""), "{\n  \"m\": {\n    \"n\": {\n      \"a\": [1, 2]\n    }\n  }\n}\n");
    assert_eq!(
        added("{\r\n  \"x\": 1,\r\n}"),
        "{\r\n  \"x\": 1,\r\n  \"m\": {\r\n    \"n\": {\r\n      \"a\": [1, 2]\r\n    }\r\n  },\r\n}"
    );
}

#[test]
fn removal_is_the_inverse_and_keeps_comments() {
    for text in ["{\n  \"m\": {\n    \"x\": 1 // c\n  }\n}\n", "{\"m\": {\"x\": 1}}", "{\"m\":{\"x\":1}}"] {
        assert_eq!(remove(&added(text), &["m"], "n").unwrap().0, text);
    }
    let text = "{\n  \"m\": {\n    \"a\": 1, // a\n    \"b\": 2, // b\n    \"c\": 3\n  }\n}";
    assert_eq!(
        remove(text, &["m"], "b").unwrap().0,
        "{\n  \"m\": {\n    \"a\": 1, // a // b\n    \"c\": 3\n  }\n}"
    );
}

#[test]
fn malformed_text_is_told_with_its_line() {
    let error = parse("{\n  \"m\": {\n    \"a\": 1\n    \"b\": 2\n  }\n}").unwrap_err();
    assert!(matches!(error, DocError::Malformed { line: 3 | 4, .. }), "{error}");
    assert!(matches!(parse("{\"a\": 'x'}"), Err(DocError::Malformed { line: 1, .. })));
    assert!(matches!(insert("[]", &["m"], "n", &json!(1)), Err(DocError::NotMap { .. })));
}
