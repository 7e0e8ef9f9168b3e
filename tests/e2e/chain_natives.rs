//! Resources and prompts: natively, and as the four utility tools of each server.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for};
use serde_json::{Value, json};

fn script(text: &str) -> Script {
    Script::new().with(|s| {
        s.capabilities = Some(json!({"tools": {}, "resources": {}, "prompts": {}}));
        let results = [
            ("resources/list", json!({"resources": [{"uri": "note://one", "name": "one", "x-vendor": 1.0}]})),
            (
                "resources/templates/list",
                json!({"resourceTemplates": [{"uriTemplate": "row://{id}", "name": "row"}]}),
            ),
            ("resources/read", json!({"contents": [{"uri": "note://one", "text": text, "z": 1.50}]})),
            ("completion/complete", json!({"completion": {"values": ["7", "8"]}})),
            ("prompts/list", json!({"prompts": [{"name": "ask-me", "description": "d"}]})),
            (
                "prompts/get",
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}),
            ),
        ];
        s.results = results.into_iter().map(|(method, result)| (method.to_owned(), result)).collect();
    })
}

/// A client of these servers, once everything they have is listed.
fn client_of(w: &World, servers: &[&str]) -> Shim {
    let mut client = w.client(servers);
    wait_for("all prompts are listed", SOON, || {
        let listed = client.request("prompts/list", &json!({}))["result"]["prompts"].clone();
        listed.as_array().unwrap().len() == servers.len()
    });
    client
}

/// Resources and prompts are listed and read like those of a server of one's own, byte for byte.
#[test]
fn resources_and_prompts_are_offered_natively() {
    let w = world().server("w", script("hello"));
    let _daemon = w.start();
    let mut client = client_of(&w, &["w"]);
    let listed = client.request("resources/list", &json!({}))["result"]["resources"].clone();
    assert_eq!(listed, json!([{"uri": "note://one", "name": "one", "x-vendor": 1.0}]));
    let templates =
        client.request("resources/templates/list", &json!({}))["result"]["resourceTemplates"].clone();
    assert_eq!(templates[0]["uriTemplate"], "row://{id}");
    let read = client.request("resources/read", &json!({"uri": "note://one"}))["result"].clone();
    assert_eq!(read.to_string(), r#"{"contents":[{"uri":"note://one","text":"hello","z":1.5}]}"#);
    client.request("resources/read", &json!({"uri": "row://7"}));
    let asked = w.journal("w").received("resources/read");
    assert_eq!(asked.last().unwrap()["params"]["uri"], "row://7", "{asked:?}");
    let missing = client.request("resources/read", &json!({"uri": "nobody://x"}));
    assert_eq!(missing["error"]["code"], -32002, "{missing}");
    let prompts = client.request("prompts/list", &json!({}))["result"]["prompts"].clone();
    assert_eq!(prompts[0]["name"], "mcp_w_ask_me", "{prompts}");
    let got = client.request("prompts/get", &json!({"name": "mcp_w_ask_me", "arguments": {"a": "1"}}));
    assert_eq!(got["result"]["messages"][0]["content"]["text"], "hello", "{got}");
    let asked = &w.journal("w").received("prompts/get")[0];
    assert_eq!(
        (&asked["params"]["name"], &asked["params"]["arguments"]),
        (&json!("ask-me"), &json!({"a": "1"}))
    );
    let rows = w.ctl(["audit", "--json"]).succeeds().stdout;
    assert!(rows.contains("resources/read") && rows.contains("prompts/get"), "{rows}");
}

/// Completions go to the server of the prompt or template, under its own name for it.
#[test]
fn completions_reach_the_server_of_their_item() {
    let w = world().server("w", script("hello"));
    let _daemon = w.start();
    let mut client = client_of(&w, &["w"]);
    let argument = json!({"name": "a", "value": "x"});
    let prompt = json!({"ref": {"type": "ref/prompt", "name": "mcp_w_ask_me"}, "argument": argument});
    let template = json!({"ref": {"type": "ref/resource", "uri": "row://{id}"}, "argument": argument});
    for params in [&prompt, &template] {
        let answer = client.request("completion/complete", params);
        assert_eq!(answer["result"]["completion"]["values"], json!(["7", "8"]), "{answer}");
    }
    let asked = w.journal("w").received("completion/complete");
    assert_eq!(asked[0]["params"]["ref"], json!({"type": "ref/prompt", "name": "ask-me"}));
    assert_eq!(asked[1]["params"]["ref"], template["ref"]);
    let unknown = json!({"ref": {"type": "ref/prompt", "name": "nobody"}, "argument": argument});
    assert_eq!(client.request("completion/complete", &unknown)["error"]["code"], -32602);
}

/// The same URI on two servers gets two names, and each leads to its own server.
#[test]
fn the_same_uri_on_two_servers_stays_apart() {
    let w = world().server("a", script("from a")).server("b", script("from b"));
    let _daemon = w.start();
    let mut client = client_of(&w, &["a", "b"]);
    let listed = client.request("resources/list", &json!({}))["result"]["resources"].clone();
    let uris: Vec<String> =
        listed.as_array().unwrap().iter().map(|r| r["uri"].as_str().unwrap().to_owned()).collect();
    assert_eq!(uris, ["hermes://a/note://one", "hermes://b/note://one"]);
    for (uri, text) in uris.iter().zip(["from a", "from b"]) {
        let content = client.request("resources/read", &json!({"uri": uri}))["result"]["contents"][0].clone();
        assert_eq!((&content["text"], &content["uri"]), (&json!(text), &json!(uri)), "{content}");
    }
}

fn utility(names: &[String]) -> Vec<&str> {
    let all = ["list_resources", "read_resource", "list_prompts", "get_prompt"];
    all.into_iter().filter(|name| names.contains(&format!("mcp_w_{name}"))).collect()
}

/// The utility tools give what Hermes Agent's give; `tools.resources` and `tools.prompts` switch them off.
#[test]
fn utility_tools_follow_capabilities_and_configuration() {
    let w = world().server("w", script("hello"));
    let _daemon = w.start();
    let mut client = client_of(&w, &["w"]);
    assert_eq!(utility(&client.tool_names()).len(), 4);
    let answer = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let listed = answer(client.text("mcp_w_list_resources", &json!({})));
    assert_eq!(listed, json!({"resources": [{"uri": "note://one", "name": "one"}]}));
    let read = answer(client.text("mcp_w_read_resource", &json!({"uri": "note://one"})));
    assert_eq!(read, json!({"result": "hello"}));
    let prompts = answer(client.text("mcp_w_list_prompts", &json!({})));
    assert_eq!(prompts, json!({"prompts": [{"name": "ask-me", "description": "d"}]}));
    let got = answer(client.text("mcp_w_get_prompt", &json!({"name": "ask-me"})));
    assert_eq!(got, json!({"messages": [{"role": "user", "content": "hello"}]}));
    let refused = client.call("mcp_w_read_resource", &json!({}));
    assert_eq!(refused["_meta"]["kind"], "invalid_arguments", "{refused}");
    for (line, left) in [
        ("tools: { resources: false }", ["list_prompts", "get_prompt"]),
        ("tools: { prompts: false }", ["list_resources", "read_resource"]),
    ] {
        let w = world().server_with("w", script("hello"), &[line]);
        let _daemon = w.start();
        assert_eq!(utility(&w.client(&["w"]).tool_names()), left, "{line}");
    }
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    assert!(utility(&w.client(&["w"]).tool_names()).is_empty());
}

/// A profile that does not show a server shows none of its resources and prompts.
#[test]
fn profiles_hide_resources_and_prompts() {
    let w = world().yaml("hermesd:\n  profiles:\n    blind: { servers: [] }").server("w", script("hello"));
    let _daemon = w.start();
    drop(client_of(&w, &["w"]));
    let mut client = w.shim_with(&["mcp", "serve", "--profile", "blind"]);
    client.initialize();
    for (method, member) in [("resources/list", "resources"), ("prompts/list", "prompts")] {
        assert_eq!(client.request(method, &json!({}))["result"][member], json!([]));
    }
    assert_eq!(client.request("resources/read", &json!({"uri": "note://one"}))["error"]["code"], -32002);
    assert!(w.journal("w").received("resources/read").is_empty());
}
