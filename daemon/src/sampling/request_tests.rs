//! Requests as servers write them, and what the provider gets.

use super::*;

fn chat(params: &Value) -> Result<Chat, SamplingError> {
    Chat::read(params)
}

fn body(params: &Value) -> Value {
    let body = chat(params).expect("usable").body(Some("m"), 9, Limit::Old);
    serde_json::from_slice(&body).expect("JSON")
}

fn refused(params: &Value) -> String {
    chat(params).expect_err("unusable").to_string()
}

fn said(role: &str, content: Value) -> Value {
    json!({ "role": role, "content": content })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[test]
fn a_plain_question_is_plain_text_with_the_system_prompt_first() {
    let params = json!({
        "messages": [said("user", text("hi")), said("assistant", text("yes?")), said("user", json!([text("a"), text("b")]))],
        "systemPrompt": "be brief", "maxTokens": 100, "stopSequences": ["1", "2", 3, "4", "5", "6"],
    });
    // Not through a float: the number arrives as it was written.
    let temperature: Value = serde_json::from_str("0.70").unwrap();
    let mut with = params.clone();
    with["temperature"] = temperature;
    let wanted = json!({
        "model": "m",
        "messages": [
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": "hi" },
            { "role": "assistant", "content": "yes?" },
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
        ],
        "max_tokens": 9, "stop": ["1", "2", "4", "5"], "stream": false,
    });
    assert_eq!(body(&params), wanted);
    let raw = String::from_utf8(chat(&with).unwrap().body(None, 9, Limit::New)).unwrap();
    assert!(raw.contains(r#""temperature":0.70"#) && raw.contains(r#""max_completion_tokens":9"#), "{raw}");
    assert!(!raw.contains("max_tokens\"") && !raw.contains("\"model\""), "{raw}");
}

#[test]
fn images_and_sound_are_passed_on() {
    let image = json!({ "type": "image", "data": "QUJD", "mimeType": "image/png" });
    let sound = json!({ "type": "audio", "data": "QUJD", "mimeType": "audio/wav" });
    let content = body(&json!({ "messages": [said("user", json!([text("see"), image, sound]))] }))["messages"][0]
        ["content"]
        .clone();
    assert_eq!(
        content[1],
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,QUJD" } })
    );
    assert_eq!(
        content[2],
        json!({ "type": "input_audio", "input_audio": { "data": "QUJD", "format": "wav" } })
    );
    let other = json!({ "type": "audio", "data": "QUJD", "mimeType": "audio/flac" });
    assert!(refused(&json!({ "messages": [said("user", other)] })).contains("audio/flac"));
}

#[test]
fn tools_their_use_and_their_results_go_both_ways() {
    let used =
        json!({ "type": "tool_use", "id": "c1", "name": "get.weather", "input": { "city": "Ulm", "n": 1 } });
    let result = json!({ "type": "tool_result", "toolUseId": "c1", "isError": true, "content": [
        text("rain"), { "type": "resource_link", "uri": "f://x", "name": "x" },
        { "type": "image", "data": "QUJD", "mimeType": "image/png" },
    ]});
    let structured =
        json!({ "type": "tool_result", "toolUseId": "c2", "content": [], "structuredContent": { "t": 4 } });
    let body = body(&json!({
        "messages": [said("user", text("?")), said("assistant", json!([text("look"), used])), said("user", json!([result, structured]))],
        "tools": [{ "name": "get.weather", "description": "d", "inputSchema": { "type": "object", "properties": {} } }, { "name": "get_weather" }],
        "toolChoice": { "mode": "required" },
    }));
    let call = &body["messages"][1]["tool_calls"][0];
    assert_eq!((&body["messages"][1]["content"], &call["id"]), (&json!("look"), &json!("c1")));
    assert_eq!(call["function"], json!({ "name": "get_weather", "arguments": r#"{"city":"Ulm","n":1}"# }));
    let tool = |id: &str, content: &str| json!({ "role": "tool", "tool_call_id": id, "content": content });
    assert_eq!(body["messages"][2], tool("c1", "error: rain\nx f://x"));
    assert_eq!(body["messages"][3], tool("c2", r#"{"t":4}"#));
    assert_eq!(body["messages"][4]["content"][0]["type"], "image_url");
    assert_eq!(body["tools"][0]["function"]["name"], "get_weather");
    assert_eq!(body["tools"][1]["function"]["name"], "get_weather_2");
    assert_eq!(body["tools"][1]["function"]["parameters"]["type"], "object");
    assert_eq!(body["tool_choice"], "required");
}

#[test]
fn names_of_tools_are_spelled_back_and_stay_apart() {
    let mut names = Names::default();
    let long = "x".repeat(80);
    let given = ["a.b", "a_b", "a/b", long.as_str(), &format!("{long}y"), "é", ""];
    let theirs: Vec<String> = given.iter().map(|name| names.respell(name)).collect();
    for (given, theirs) in given.iter().zip(&theirs) {
        assert_eq!(names.original(theirs), *given);
        assert_eq!(names.respell(given), *theirs);
        assert!(theirs.len() <= NAME && !theirs.is_empty());
    }
    assert_eq!(theirs.iter().collect::<std::collections::BTreeSet<_>>().len(), given.len());
    assert_eq!(names.original("never_seen"), "never_seen");
}

#[test]
fn what_cannot_be_passed_on_is_refused_and_named() {
    for (params, word) in [
        (json!({}), "messages"),
        (json!({ "messages": [] }), "empty"),
        (json!({ "messages": [said("system", text("x"))] }), "role"),
        (json!({ "messages": [said("user", json!("x"))] }), "content"),
        (json!({ "messages": [said("user", json!({ "type": "video" }))] }), "video"),
        (json!({ "messages": [said("user", json!({ "type": "text" }))] }), "`text`"),
        (json!({ "messages": [said("user", text("x"))], "tools": 5 }), "tools"),
        (json!({ "messages": [said("user", text("x"))], "tools": [{}] }), "name"),
        (json!({ "messages": [said("user", text("x"))], "toolChoice": { "mode": "any" } }), "toolChoice"),
    ] {
        assert!(refused(&params).contains(word), "{params}: {}", refused(&params));
    }
}

#[test]
fn limits_see_hints_tokens_and_rounds() {
    let used = json!({ "type": "tool_use", "id": "c", "name": "t", "input": {} });
    let result = json!({ "type": "tool_result", "toolUseId": "c", "content": [] });
    let round = [said("assistant", used), said("user", json!([result]))];
    let with = |messages: Vec<Value>| Facts::of(&json!({ "messages": messages }));
    let mut messages = vec![said("user", text("?"))];
    assert_eq!(with(messages.clone()).rounds, 0);
    messages.extend(round.clone());
    messages.extend(round.clone());
    assert_eq!(with(messages.clone()).rounds, 2);
    assert_eq!(with(messages.clone()).opening, with(messages[..1].to_vec()).opening);
    messages.push(said("assistant", text("done")));
    messages.push(said("user", text("again")));
    messages.extend(round);
    assert_eq!(with(messages).rounds, 1);
    let params = json!({ "messages": [said("user", text("?"))], "maxTokens": 12.0, "tools": [{ "name": "t" }],
        "modelPreferences": { "hints": [{ "name": "a" }, {}, { "name": "b" }] } });
    let facts = Facts::of(&params);
    assert_eq!(
        (facts.hints, facts.max_tokens, facts.tools),
        (vec!["a".into(), "b".into()], Some(12), Tools::Offered)
    );
}
