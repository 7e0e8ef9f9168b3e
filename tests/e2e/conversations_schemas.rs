//! What each of the ten tools answers fits the output schema that it is listed with.

use crate::conversations::client;
use crate::sending::recorded;
use hermes_tests::{ChatApi, SOON, Script, wait_for};
use serde_json::{Map, Value, json};

/// Successes and refusals, as a client gets them; an answer that holds nothing would prove little, so
/// there is a conversation, an event, a call that waits, and a chat that takes messages.
#[test]
fn answers_and_refusals_of_all_ten_tools_fit_their_schemas() {
    let api = ChatApi::friendly();
    let w = recorded(&api, "").server_with("w", Script::new(), &["approval: always"]);
    let _daemon = w.start();
    let mut asks = w.client(&["w"]);
    let mut reads = client(&w);
    let schemas: Map<String, Value> = reads
        .tools()
        .into_iter()
        .map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool["outputSchema"].clone()))
        .collect();
    asks.begin_call("mcp_w_echo", &json!({"text": "x"}));
    let listed = |shim: &mut hermes_tests::Shim| {
        shim.call("permissions_list_open", &json!({}))["structuredContent"].clone()
    };
    wait_for("a call waits", SOON, || listed(&mut reads)["count"] == 1);
    let waiting = listed(&mut reads)["approvals"][0]["id"].clone();
    let key = "agent:main:telegram:dm:6308981865";
    let calls = [
        ("conversations_list", json!({}), json!({"limit": "many"})),
        ("conversation_get", json!({"session_key": key}), json!({"session_key": "nobody"})),
        ("messages_read", json!({"session_key": key}), json!({"session_key": "nobody"})),
        (
            "attachments_fetch",
            json!({"session_key": key, "message_id": newest(&mut reads, key)}),
            json!({"session_key": key, "message_id": "999999"}),
        ),
        ("channels_list", json!({}), json!({"platform": 7})),
        ("events_poll", json!({}), json!({"after_cursor": "x"})),
        ("events_wait", json!({"timeout_ms": 0}), json!({"timeout_ms": []})),
        ("permissions_list_open", json!({}), Value::Null),
        (
            "permissions_respond",
            json!({"id": waiting, "decision": "deny"}),
            json!({"id": waiting, "decision": "deny"}),
        ),
        (
            "messages_send",
            json!({"target": "telegram:6308981865", "message": "hello"}),
            json!({"target": "telegram:nobody of this name", "message": "hello"}),
        ),
    ];
    assert_eq!(calls.len(), 10);
    for (tool, good, bad) in calls {
        let validator = jsonschema::validator_for(&schemas[tool]).unwrap();
        assert!(!validator.is_valid(&json!({})), "{tool}: the schema says nothing");
        let fits = |result: &Value| {
            let structured = &result["structuredContent"];
            let errors: Vec<String> = validator.iter_errors(structured).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{tool}: {errors:?} in {structured}");
        };
        let answer = reads.call(tool, &good);
        assert_ne!(answer["isError"], true, "{tool}: {answer}");
        fits(&answer);
        if !bad.is_null() {
            let refusal = reads.call(tool, &bad);
            assert_eq!(refusal["isError"], true, "{tool}: {refusal}");
            // Wrong arguments are told in the text alone: the call never reached the tool.
            if refusal.get("structuredContent").is_some() {
                fits(&refusal);
            }
        }
    }
}

fn newest(shim: &mut hermes_tests::Shim, key: &str) -> Value {
    let read = shim.call("messages_read", &json!({"session_key": key, "limit": 1}));
    read["structuredContent"]["messages"][0]["id"].clone()
}
