//! Completions as providers write them, and what the server gets.

use super::*;
use serde_json::json;

fn result(body: Value) -> Value {
    let answer = read(body.to_string().as_bytes(), Some("asked"), &Names::default()).expect("an answer");
    serde_json::from_str(answer.result.get()).expect("JSON")
}

fn choice(message: Value, finish: &str) -> Value {
    json!({ "model": "m-1", "choices": [{ "message": message, "finish_reason": finish }] })
}

#[test]
fn a_text_ends_the_turn_and_says_what_it_cost() {
    let mut body = choice(json!({ "role": "assistant", "content": "hi" }), "stop");
    body["usage"] = json!({ "prompt_tokens": 12, "completion_tokens": 3 });
    let wanted = json!({ "role": "assistant", "content": { "type": "text", "text": "hi" }, "model": "m-1",
        "stopReason": "endTurn", "_meta": { "hermes/usage": { "inputTokens": 12, "outputTokens": 3 } } });
    assert_eq!(result(body), wanted);
}

#[test]
fn reasons_to_stop_are_translated() {
    for (finish, stop) in [
        ("stop", "endTurn"),
        ("length", "maxTokens"),
        ("content_filter", "contentFilter"),
        ("new", "endTurn"),
    ] {
        assert_eq!(result(choice(json!({ "content": "x" }), finish))["stopReason"], stop, "{finish}");
    }
}

#[test]
fn calls_of_tools_are_uses_whatever_the_finish_reason() {
    let call = |id: Value, arguments: Value| json!({ "id": id, "type": "function", "function": { "name": "t", "arguments": arguments } });
    let calls = json!([
        call(json!("c1"), json!("{\"a\":1}")),
        call(Value::Null, json!("{broken")),
        call(json!(""), json!(""))
    ]);
    let said = result(choice(json!({ "content": "let me look", "tool_calls": calls }), "stop"));
    assert_eq!(said["stopReason"], "toolUse");
    assert_eq!(said["content"][0]["text"], "let me look");
    assert_eq!(
        said["content"][1],
        json!({ "type": "tool_use", "id": "c1", "name": "t", "input": { "a": 1 } })
    );
    assert_eq!(said["content"][2]["input"], json!({ "_raw": "{broken" }));
    assert_eq!((&said["content"][2]["id"], &said["content"][3]["id"]), (&json!("call_1"), &json!("call_2")));
    let alone = json!({ "content": null, "tool_calls": [call(json!("c"), json!("{}"))] });
    let answer = read(choice(alone, "tool_calls").to_string().as_bytes(), None, &Names::default()).unwrap();
    assert_eq!(answer.used, Tools::Offered);
    assert!(answer.result.get().contains(r#""content":{"type":"tool_use""#), "{}", answer.result.get());
}

#[test]
fn texts_in_parts_empty_texts_and_refusals_are_texts() {
    let parts = json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] });
    assert_eq!(result(choice(parts, "stop"))["content"]["text"], "ab");
    assert_eq!(result(choice(json!({ "content": "" }), "stop"))["content"]["text"], "");
    assert_eq!(result(choice(json!({ "content": null, "refusal": "no" }), "stop"))["content"]["text"], "no");
    let nameless = json!({ "choices": [{ "message": { "content": "x" } }] });
    assert_eq!(result(nameless)["model"], "asked");
}

#[test]
fn what_is_no_answer_is_none() {
    for (body, error) in [
        ("no JSON".to_owned(), ProviderError::NotChat),
        (json!({}).to_string(), ProviderError::NotChat),
        (json!({ "choices": [] }).to_string(), ProviderError::Empty),
        (json!({ "choices": [{}] }).to_string(), ProviderError::NotChat),
        (choice(json!({ "content": null }), "stop").to_string(), ProviderError::Empty),
        (choice(json!({ "content": null, "tool_calls": [{}] }), "stop").to_string(), ProviderError::Empty),
    ] {
        assert_eq!(read(body.as_bytes(), None, &Names::default()).err(), Some(error), "{body}");
    }
}

#[test]
fn a_clients_answer_shows_its_model_and_its_use_of_tools() {
    let read = |value: Value| of_client(&splice::raw(&value));
    let used = json!({ "type": "tool_use", "id": "c", "name": "t", "input": {} });
    assert_eq!(
        read(json!({ "model": "m", "content": { "type": "text", "text": "x" } })),
        Some(("m".into(), Tools::None))
    );
    assert_eq!(read(json!({ "model": "m", "content": [used] })), Some(("m".into(), Tools::Offered)));
    for nothing in
        [json!([]), json!({ "content": {} }), json!({ "model": "m" }), json!({ "model": 5, "content": {} })]
    {
        assert_eq!(read(nothing.clone()), None, "{nothing}");
    }
}
