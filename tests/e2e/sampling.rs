//! A server asks for a model: the daemon's own provider answers, or the client, within the entry's limits.

use crate::world;
use hermes_tests::{
    Answer, ChatApi, Got, HttpFake, Reply, SOON, Script, Shim, World, plain_server, wait_for,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

const QUESTION: &str = "sampling/createMessage";

/// Answers that came for questions of a server, by id.
#[derive(Default)]
struct Answers {
    by_id: Mutex<HashMap<String, Value>>,
    came: Condvar,
}

/// A remote server whose tool `echo` puts a question on the stream of the call, and returns what it is told.
pub(crate) fn asking() -> HttpFake {
    let answers = Arc::new(Answers::default());
    let last = AtomicUsize::new(0);
    HttpFake::start(move |got: &Got, answer: &mut Answer<'_>| {
        if got.json["method"] == "tools/call" {
            let id = format!("q{}", last.fetch_add(1, Ordering::Relaxed));
            answer.stream(&[]);
            let arguments = &got.json["params"]["arguments"];
            let method = arguments["method"].as_str().unwrap_or(QUESTION);
            answer.event(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": arguments["ask"]}));
            let by_id = answers.by_id.lock().unwrap();
            let unanswered = |by_id: &mut HashMap<String, Value>| !by_id.contains_key(&id);
            let (mut by_id, _) = answers.came.wait_timeout_while(by_id, SOON, unanswered).unwrap();
            // Nobody answers where the call was taken back.
            let Some(said) = by_id.remove(&id) else { return };
            drop(by_id);
            let content = json!([{"type": "text", "text": said.to_string()}]);
            answer.event(&json!({"jsonrpc": "2.0", "id": got.json["id"], "result": {"content": content}}));
        } else if got.json["method"].is_null() && got.json["id"].is_string() {
            let id = got.json["id"].as_str().unwrap().to_owned();
            answers.by_id.lock().unwrap().insert(id, got.json.clone());
            answers.came.notify_all();
            answer.status(202, &[], "");
        } else {
            plain_server(got, answer);
        }
    })
}

fn with(fake: &HttpFake, provider: Option<&ChatApi>, sampling: &str) -> World {
    let (url, sampling) = (format!("url: {}", fake.url()), format!("sampling: {{{sampling}}}"));
    let w = world().entry("r", &[&url, &sampling]);
    match provider {
        None => w,
        Some(api) => w.yaml(&format!(
            "hermesd:\n  sampling_provider: {{base_url: '{}/v1', api_key: key-of-the-provider, model: small}}\n",
            api.url()
        )),
    }
}

fn model() -> ChatApi {
    ChatApi::start(|_, _| {
        Reply::ok(json!({"model": "small-1", "usage": {"prompt_tokens": 5, "completion_tokens": 7},
            "choices": [{"message": {"content": "from the provider"}, "finish_reason": "stop"}]}))
    })
}

fn question(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 9000})
}

/// The whole answer that the server got.
fn told(client: &mut Shim, ask: &Value) -> Value {
    serde_json::from_str(&client.text("mcp_r_echo", &json!({"ask": ask}))).unwrap()
}

fn sampler(w: &World) -> Shim {
    let mut client = w.shim();
    client.initialize_as("2025-11-25", &json!({"sampling": {}}));
    client.wait_tool("mcp_r_echo");
    client
}

/// A client that offers no sampling: the provider answers; tokens are capped, counted and in the audit, the
/// key is nowhere but in the request.
#[test]
fn the_provider_answers_a_server_whose_client_cannot() {
    let (fake, api) = (asking(), model());
    let w = with(&fake, Some(&api), "max_tokens_cap: 300");
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let said = told(&mut client, &question("hello"));
    assert_eq!(said["result"]["content"]["text"], "from the provider");
    assert_eq!(said["result"]["_meta"]["hermes/usage"], json!({"inputTokens": 5, "outputTokens": 7}));
    let request = &api.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer key-of-the-provider"));
    assert_eq!((&request.json()["max_tokens"], &request.json()["model"]), (&json!(300), &json!("small")));
    wait_for("the audit has it", SOON, || {
        let rows = w.ctl(["audit", "--json"]).succeeds().stdout;
        rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).any(|row| {
            row["method"] == QUESTION
                && row["outcome"] == "ok"
                && row["decisions"].to_string().contains("cut to 300")
        })
    });
    for text in
        [w.ctl(["config", "check"]).stdout, w.ctl(["audit", "--json"]).stdout, w.ctl(["status"]).stdout]
    {
        assert!(
            !text.contains("key-of-the-provider") && !text.contains("not used by this version"),
            "{text}"
        );
    }
    assert!(client.arrived(QUESTION).is_empty());
}

/// Two clients, one server: the one whose call it is gets the question, within the limits; `prefer: provider`
/// asks neither.
#[test]
fn the_client_of_the_call_is_asked_unless_the_provider_is_preferred() {
    let (fake, api) = (asking(), model());
    for (prefer, by_client) in [("client", true), ("provider", false)] {
        let w = with(
            &fake,
            Some(&api),
            &format!("prefer: {prefer}, allowed_models: [small, large], max_tokens_cap: 20"),
        );
        let _daemon = w.start();
        let (mut mine, mut other) = (sampler(&w), sampler(&w));
        let call = mine.begin_call("mcp_r_echo", &json!({"ask": question("for mine")}));
        if by_client {
            let asked = mine.wait_method(QUESTION);
            assert_eq!(asked["params"]["messages"][0]["content"]["text"], "for mine");
            assert_eq!(asked["params"]["maxTokens"], 20);
            let said = json!({"role": "assistant", "model": "large", "content": {"type": "text", "text": "from mine"}});
            mine.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": said}));
        }
        let answer = mine.reply(&call).to_string();
        assert!(answer.contains(if by_client { "from mine" } else { "from the provider" }), "{answer}");
        assert!(other.arrived(QUESTION).is_empty());
    }
}

/// What a limit refuses never reaches the provider, and the server hears which limit it was.
#[test]
fn limits_refuse_before_anything_is_sent() {
    let (fake, api) = (asking(), model());
    let w = with(&fake, Some(&api), "max_rpm: 1, max_tool_rounds: 0");
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let mut tools = question("x");
    tools["tools"] = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    assert!(told(&mut client, &tools)["error"]["message"].as_str().unwrap().contains("tools in sampling"));
    assert!(told(&mut client, &question("1"))["result"].is_object());
    let refused = told(&mut client, &question("2"));
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("1 sampling requests a minute"),
        "{refused}"
    );
    assert_eq!(api.requests().len(), 1);
    for (limit, word) in
        [("enabled: false", "switched off"), ("allowed_models: [other]", "`small` is not in")]
    {
        let w = with(&fake, Some(&api), limit);
        let _daemon = w.start();
        let said = told(&mut w.client(&["r"]), &question("3"));
        assert!(said["error"]["message"].as_str().unwrap().contains(word), "{said}");
    }
    assert_eq!(api.requests().len(), 1);
}

/// A provider that says nothing is hung up on when the time is over, and when the call is taken back.
#[test]
fn a_silent_provider_is_hung_up_on() {
    let fake = asking();
    let api = ChatApi::start(|_, _| Reply::Hold);
    let w = with(&fake, Some(&api), "timeout: 1");
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let said = told(&mut client, &question("slow"));
    assert!(said["error"]["message"].as_str().unwrap().contains("no answer within 1s"), "{said}");
    api.wait_for_hang_up();
    let patient = ChatApi::start(|_, _| Reply::Hold);
    let w = with(&fake, Some(&patient), "timeout: 600");
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    client.begin_call("mcp_r_echo", &json!({"ask": question("slow")}));
    patient.wait_for(1);
    client.kill_hard();
    patient.wait_for_hang_up();
}

/// A stdio server that all clients share: nobody can know whose request it is, so the provider answers, no client
/// is asked, and the server stays shared. It is told so in `initialize`.
#[test]
fn a_shared_server_is_answered_by_the_provider() {
    let api = model();
    let provider = format!("hermesd:\n  sampling_provider: {{base_url: '{}/v1', model: small}}\n", api.url());
    let w = world().server("w", Script::new()).yaml(&provider);
    let _daemon = w.start();
    let mut clients: Vec<Shim> = (0..2)
        .map(|_| {
            let mut client = w.shim();
            client.initialize_as("2025-11-25", &json!({"sampling": {}}));
            client.wait_tool("mcp_w_ask");
            client
        })
        .collect();
    for client in &mut clients {
        let said = client.text("mcp_w_ask", &json!({"method": QUESTION, "params": question("hello")}));
        assert!(said.contains("from the provider"), "{said}");
    }
    assert!(clients.iter_mut().all(|client| client.arrived(QUESTION).is_empty()));
    let hello = &w.journal("w").received("initialize")[0];
    assert_eq!(hello["params"]["capabilities"]["sampling"], json!({"tools": {}}));
    assert_eq!((w.journal("w").starts(), w.processes("w").len(), api.requests().len()), (1, 1, 2));
}
