//! The same URI or template on two servers: two names, in both directions, and no change elsewhere.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for};
use serde_json::{Value, json};

fn script(text: &str) -> Script {
    Script::new().with(|s| {
        s.capabilities =
            Some(json!({"tools": {}, "resources": {"subscribe": true}, "prompts": {}, "completions": {}}));
        let link = json!({"type": "resource_link", "uri": "row://9", "name": "n"});
        let results = [
            (
                "resources/list",
                json!({"resources": [{"uri": "note://one", "name": "one"}, {"uri": "ui://app", "name": "app"}]}),
            ),
            (
                "resources/templates/list",
                json!({"resourceTemplates": [{"uriTemplate": "row://{id}", "name": "row"}, {"uriTemplate": format!("{text}://{{id}}"), "name": "own"}]}),
            ),
            ("resources/read", json!({"contents": [{"uri": "row://7", "text": text}, {"uri": "x://1", "text": ""}]})),
            ("resources/subscribe", json!({})),
            ("completion/complete", json!({"completion": {"values": [text]}})),
            ("prompts/list", json!({"prompts": [{"name": "p"}]})),
            ("prompts/get", json!({"messages": [{"role": "user", "content": link}]})),
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

fn texts(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

/// A template of two servers is two templates; each leads to its own server, for completions too.
#[test]
fn the_same_template_on_two_servers_stays_apart() {
    let w = world().server("a", script("from_a")).server("b-b", script("from_b"));
    let _daemon = w.start();
    let mut client = w.client(&["a"]);
    client.wait_tool("mcp_b_b_echo");
    wait_for("all templates are listed", SOON, || {
        let all =
            client.request("resources/templates/list", &json!({}))["result"]["resourceTemplates"].clone();
        texts(&all, "uriTemplate")
            == ["from_a://{id}", "from_b://{id}", "hermes://a/row://{id}", "hermes://b-b/row://{id}"]
    });
    for (host, text) in [("a", "from_a"), ("b-b", "from_b")] {
        let uri = format!("hermes://{host}/row://7");
        let read = client.request("resources/read", &json!({"uri": uri}))["result"]["contents"].clone();
        assert_eq!(read, json!([{"uri": uri, "text": text}, {"uri": "x://1", "text": ""}]));
        let asked = w.journal(host).received("resources/read");
        assert_eq!(asked.last().unwrap()["params"]["uri"], "row://7");
        let of = json!({"type": "ref/resource", "uri": format!("hermes://{host}/row://{{id}}")});
        let params = json!({"ref": of, "argument": {"name": "id", "value": ""}});
        let answer = client.request("completion/complete", &params);
        assert_eq!(answer["result"]["completion"]["values"], json!([text]), "{answer}");
        assert_eq!(w.journal(host).received("completion/complete")[0]["params"]["ref"]["uri"], "row://{id}");
    }
    client.request("resources/read", &json!({"uri": "from_a://1"}));
    assert_eq!(w.journal("a").received("resources/read").last().unwrap()["params"]["uri"], "from_a://1");
    let unclear = client.request("resources/read", &json!({"uri": "row://7"}));
    assert_eq!(unclear["error"]["code"], -32002);
    let text = unclear["error"]["message"].as_str().unwrap();
    assert!(text.contains("hermes://a/row://7, hermes://b-b/row://7"), "{text}");
}

/// Links in results, prompts and tools lead to the resource that their server means; nothing else changes.
#[test]
fn links_follow_the_names_of_their_targets() {
    let tool = json!({"name": "app", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://app"}}});
    let echo = |name: &str| json!({"name": name, "description": "d", "inputSchema": {"type": "object", "properties": {}}});
    let with_app =
        |text: &str| script(text).with(|s| s.tools = Some(vec![tool.clone(), echo("echo"), echo("answer")]));
    let w = world().server("a", with_app("from_a")).server("b", with_app("from_b"));
    let _daemon = w.start();
    let mut client = client_of(&w, &["a", "b"]);
    let said = r#"{"z":1.0,"content":[{"type":"text","text":"note://one"},{"type":"resource_link","uri":"note://one","name":"n","big":12345678901234567890},{"type":"resource","resource":{"uri":"row://8","text":"t"}},{"type":"resource_link","uri":"other://1","name":"o"}],"structuredContent":{"uri":"note://one"},"_meta":{"ui":{"resourceUri":"ui://app"}}}"#;
    let id = client.begin_call("mcp_b_answer", &json!({"result": said}));
    let raw = client.reply_message(&id, SOON).raw;
    let wanted = said
        .replace(r#""uri":"note://one","name""#, r#""uri":"hermes://b/note://one","name""#)
        .replace(r#""uri":"row://8""#, r#""uri":"hermes://b/row://8""#)
        .replace("ui://app", "ui://b/app");
    assert!(raw.ends_with(&format!(r#""result":{wanted}}}"#)), "{raw}");
    let prompt = client.request("prompts/get", &json!({"name": "mcp_a_p"}));
    assert_eq!(prompt["result"]["messages"][0]["content"]["uri"], "hermes://a/row://9", "{prompt}");
    let tools = client.tools();
    let app = tools.iter().find(|tool| tool["name"] == "mcp_a_app").unwrap();
    assert_eq!(app["_meta"], json!({"ui": {"resourceUri": "ui://a/app"}}));
    let listed = client.request("resources/list", &json!({}))["result"]["resources"].clone();
    assert!(texts(&listed, "uri").contains(&"ui://a/app".to_owned()), "{listed}");
    // Who follows one hears of it under the name it knows, and the other server's news stay away.
    client.request("resources/subscribe", &json!({"uri": "hermes://b/note://one"}));
    assert_eq!(w.journal("b").received("resources/subscribe")[0]["params"]["uri"], "note://one");
    assert!(w.journal("a").received("resources/subscribe").is_empty());
}

/// Where one server alone has a URI, its results pass byte for byte.
#[test]
fn links_of_a_single_server_are_left_alone() {
    let w = world().server("w", script("from_w"));
    let _daemon = w.start();
    let mut client = client_of(&w, &["w"]);
    let said = r#"{"content":[{"type":"resource_link","uri":"note:\/\/one","name":"n"}],"_meta":{"ui":{"resourceUri":"ui://app"}}}"#;
    let id = client.begin_call("mcp_w_answer", &json!({"result": said}));
    assert!(client.reply_message(&id, SOON).raw.ends_with(&format!(r#""result":{said}}}"#)));
}

/// A list that never rests is announced now and then, and its last state always.
#[test]
fn a_restless_list_is_announced_at_a_bounded_rate() {
    const CHANGED: &str = "notifications/tools/list_changed";
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let (mut client, mut other) = (w.client(&["w"]), w.client(&["w"]));
    other.drain();
    let start = std::time::Instant::now();
    for n in 0..60 {
        client.call("mcp_w_add_tool", &json!({"name": format!("t{n}"), "order": "change_first"}));
        client.text("mcp_w_sleep", &json!({"ms": 50}));
    }
    let mut notices = 0;
    wait_for("the last state is announced", SOON, || {
        let new = other.arrived(CHANGED).len();
        notices += new;
        new > 0 && other.tool_names().contains(&"mcp_w_t59".to_owned())
    });
    let allowed = 5 + start.elapsed().as_secs() / 2;
    assert!(notices as u64 <= allowed, "{notices} notices, {allowed} allowed");
}

/// What a server offers besides tools may change too; its clients hear of each list that did.
#[test]
fn changed_resources_and_prompts_are_announced() {
    let w = world().server("w", script("from_w"));
    let _daemon = w.start();
    let mut client = client_of(&w, &["w"]);
    client.drain();
    let more = script("from_w").with(|s| {
        let prompts = json!({"prompts": [{"name": "p"}, {"name": "q"}]});
        s.results.insert("prompts/list".to_owned(), prompts);
        s.results.insert("resources/list".to_owned(), json!({"resources": []}));
    });
    w.rescript("w", more);
    w.ctl(["servers", "restart", "w"]).succeeds();
    client.wait_method("notifications/prompts/list_changed");
    client.wait_method("notifications/resources/list_changed");
    let prompts = client.request("prompts/list", &json!({}))["result"]["prompts"].clone();
    assert_eq!(texts(&prompts, "name"), ["mcp_w_p", "mcp_w_q"]);
    assert_eq!(client.request("resources/list", &json!({}))["result"]["resources"], json!([]));
    assert!(client.arrived("notifications/tools/list_changed").is_empty(), "the tools are as before");
}
