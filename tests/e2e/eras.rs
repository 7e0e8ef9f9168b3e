//! Clients of 2026-07-28: each request says for itself who asks and in which revision.
//!
//! Every line that such a client gets is checked against the published schema of that revision.

use crate::schema::{check, schema};
use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for};
use serde_json::{Value, json};
use std::collections::HashMap;

pub(crate) const REVISION: &str = "2026-07-28";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// A client of that revision over the real shim.
pub(crate) struct Modern {
    pub(crate) shim: Shim,
    capabilities: Value,
    schema: Value,
    /// Methods of open requests, by id.
    open: HashMap<String, String>,
}

impl Modern {
    pub(crate) fn new(shim: Shim, capabilities: Value) -> Self {
        Self { shim, capabilities, schema: schema(REVISION), open: HashMap::new() }
    }

    /// `params` of a request with what each needs.
    pub(crate) fn params(&self, params: &Value) -> Value {
        let mut params = params.clone();
        let about = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        for (key, value) in about.as_object().unwrap() {
            if params["_meta"].get(key).is_none() {
                params["_meta"][key] = value.clone();
            }
        }
        params
    }

    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> Value {
        let params = self.params(params);
        let id = self.shim.begin(method, &params);
        self.open.insert(id.to_string(), method.to_owned());
        id
    }

    /// The answer to `id`, which fits the schema.
    #[track_caller]
    pub(crate) fn reply(&mut self, id: &Value) -> Value {
        let answer = self.shim.reply(id);
        let method = self.open.remove(&id.to_string()).unwrap();
        if answer.get("error").is_some() {
            check(&self.schema, "JSONRPCErrorResponse", &answer);
            let code = answer["error"]["code"].as_i64().unwrap();
            assert!(!(-32019..=-32000).contains(&code) && code != -32042, "{answer}");
            return answer;
        }
        check(&self.schema, "JSONRPCResultResponse", &answer);
        let kind = match method.as_str() {
            _ if answer["result"]["resultType"] == "input_required" => "InputRequiredResult",
            "server/discover" => "DiscoverResult",
            "tools/list" => "ListToolsResult",
            "tools/call" => "CallToolResult",
            "resources/list" => "ListResourcesResult",
            "resources/templates/list" => "ListResourceTemplatesResult",
            "resources/read" => "ReadResourceResult",
            "prompts/list" => "ListPromptsResult",
            "prompts/get" => "GetPromptResult",
            "completion/complete" => "CompleteResult",
            "subscriptions/listen" => "SubscriptionsListenResult",
            other => panic!("no definition for {other}: {answer}"),
        };
        check(&self.schema, kind, &answer["result"]);
        answer
    }

    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.reply(&id)
    }

    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// The same call again with what the last answer asked for.
    #[track_caller]
    pub(crate) fn retry(&mut self, tool: &str, arguments: &Value, state: &Value, responses: &Value) -> Value {
        let params =
            json!({"name": tool, "arguments": arguments, "requestState": state, "inputResponses": responses});
        self.request("tools/call", &params)
    }

    /// The next notification of this method, which fits the schema.
    #[track_caller]
    pub(crate) fn hear(&mut self, method: &str) -> Value {
        let note = self.shim.wait_method(method);
        check(&self.schema, "ServerNotification", &note);
        note
    }

    #[track_caller]
    pub(crate) fn wait_tool(&mut self, name: &str) {
        wait_for(&format!("{name} is listed"), SOON, || {
            let list = self.request("tools/list", &json!({}));
            list["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == name)
        });
    }
}

pub(crate) fn modern(w: &World, capabilities: Value) -> Modern {
    Modern::new(w.shim(), capabilities)
}

/// The only question that an answer asks: its name and itself.
#[track_caller]
pub(crate) fn question(result: &Value) -> (String, Value) {
    assert_eq!(result["resultType"], "input_required", "{result}");
    let asks = result["inputRequests"].as_object().unwrap();
    assert_eq!(asks.len(), 1, "{result}");
    let (name, question) = asks.iter().next().unwrap();
    (name.clone(), question.clone())
}

fn with_resources() -> Script {
    Script::new().with(|s| {
        s.capabilities = Some(json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}, "prompts": {}}));
        let results = [
            ("resources/list", json!({"resources": [{"uri": "note://one", "name": "one"}, {"uri": "note://two", "name": "two"}]})),
            ("resources/templates/list", json!({"resourceTemplates": []})),
            ("resources/read", json!({"contents": [{"uri": "note://one", "text": "1"}]})),
            ("resources/subscribe", json!({})),
            ("resources/unsubscribe", json!({})),
            ("prompts/list", json!({"prompts": [{"name": "p"}]})),
            ("prompts/get", json!({"messages": []})),
        ];
        s.results = results.into_iter().map(|(method, result)| (method.to_owned(), result)).collect();
    })
}

/// An old server, used by a client that opens no session: discovery, lists, calls, contents, prompts, refusals.
#[test]
fn a_client_without_a_session_uses_an_old_server() {
    let w = world().server("w", with_resources());
    let _daemon = w.start();
    let mut client = modern(&w, json!({}));
    let found = client.request("server/discover", &json!({}))["result"].clone();
    assert_eq!(found["supportedVersions"][0], REVISION);
    assert!(found["capabilities"]["tools"].is_object() && found["instructions"].is_string(), "{found}");
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "hermesd");
    client.wait_tool("mcp_w_echo");
    let list = client.request("tools/list", &json!({}))["result"].clone();
    assert_eq!(
        (list["resultType"].as_str(), list["cacheScope"].as_str()),
        (Some("complete"), Some("private"))
    );
    assert_eq!(list, client.request("tools/list", &json!({}))["result"], "the order is the same");
    let echoed = client.call("mcp_w_echo", &json!({"text": "x"}));
    assert_eq!((&echoed["content"][0]["text"], &echoed["resultType"]), (&json!("x"), &json!("complete")));
    wait_for("resources are listed", SOON, || {
        client.request("resources/list", &json!({}))["result"]["resources"].as_array().unwrap().len() == 2
    });
    let read = client.request("resources/read", &json!({"uri": "note://one"}))["result"].clone();
    assert_eq!((&read["contents"][0]["text"], &read["ttlMs"]), (&json!("1"), &json!(0)));
    client.request("prompts/list", &json!({}));
    client.request("resources/templates/list", &json!({}));
    assert!(
        client
            .request("prompts/get", &json!({"name": "mcp_w_p"}))
            .get("error")
            .is_none_or(|e| e["code"] == -32602)
    );
    // What is between the client and hermesd goes no further: an old server would take it for another era.
    let sent = w.journal("w").received("tools/call")[0].clone();
    assert!(!sent.to_string().contains("io.modelcontextprotocol/protocolVersion"), "{sent}");
    // The codes of this revision.
    let code = |client: &mut Modern, method: &str, params: Value| {
        client.request(method, &params)["error"]["code"].clone()
    };
    assert_eq!(code(&mut client, "resources/read", json!({"uri": "note://none"})), -32602);
    assert_eq!(code(&mut client, "tools/call", json!({"name": "mcp_w_none"})), -32602);
    for gone in ["ping", "logging/setLevel", "resources/subscribe", "no/such/method"] {
        assert_eq!(code(&mut client, gone, json!({})), -32601, "{gone}");
    }
    let old = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}});
    let refusal = client.request("tools/list", &old);
    assert_eq!(refusal["error"]["code"], -32022);
    assert_eq!(refusal["error"]["data"]["requested"], "1900-01-01");
    assert!(refusal["error"]["data"]["supported"].as_array().unwrap().contains(&json!(REVISION)));
    assert_eq!(client.shim.request("server/discover", &json!({}))["error"]["code"], -32602);
    assert_eq!(client.shim.request("tools/list", &json!({}))["error"]["code"], -32602);
    // Status knows who it is, and the same connection may open a session of the other era beside.
    let status = w.ctl(["status", "--json"]).succeeds().stdout;
    assert!(status.contains("\"modern\"") && status.contains(REVISION), "{status}");
    client.shim.initialize();
    assert!(client.shim.request("tools/list", &json!({}))["result"].get("resultType").is_none());
    assert_eq!(client.call("mcp_w_echo", &json!({"text": "y"}))["content"][0]["text"], "y");
}

/// Progress under the client's token; log lines only for a request that wants them.
#[test]
fn progress_and_log_lines_belong_to_their_request() {
    let log = |s: &mut Script| s.capabilities = Some(json!({"tools": {}, "logging": {}}));
    let w = world().server("w", Script::new().with(log));
    let _daemon = w.start();
    let mut client = modern(&w, json!({}));
    client.wait_tool("mcp_w_echo");
    let params = json!({"name": "mcp_w_progress", "arguments": {"n": 2}, "_meta": {"progressToken": "t"}});
    let id = client.begin("tools/call", &params);
    assert_eq!(client.hear("notifications/progress")["params"]["progressToken"], "t");
    client.reply(&id);
    let speak = json!({"method": "notifications/message", "params": {"level": "warning", "data": "said"}});
    client.call("mcp_w_notify", &speak);
    let wants = json!({"name": "mcp_w_notify", "arguments": speak, "_meta": {"io.modelcontextprotocol/logLevel": "info"}});
    client.request("tools/call", &wants);
    assert_eq!(client.hear("notifications/message")["params"]["data"], "said");
    client.call("mcp_w_notify", &speak);
    client.call("mcp_w_echo", &json!({"text": "x"}));
    assert!(client.shim.arrived("notifications/message").is_empty(), "only the request that asked for them");
}

/// A stream begins with its acknowledgement, carries what it asked for under its own id, and ends when it is
/// cancelled; the server has one subscription however many streams there are.
#[test]
fn streams_carry_what_they_asked_for() {
    const LISTS: &str = "notifications/tools/list_changed";
    const UPDATED: &str = "notifications/resources/updated";
    let w = world().server("w", with_resources());
    let _daemon = w.start();
    let mut client = modern(&w, json!({}));
    client.wait_tool("mcp_w_echo");
    wait_for("resources are listed", SOON, || {
        client.request("resources/list", &json!({}))["result"]["resources"].as_array().unwrap().len() == 2
    });
    let wish = json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["note://one", "note://none"]}});
    let first = client.begin("subscriptions/listen", &wish);
    let told = client.hear(ACKNOWLEDGED)["params"].clone();
    assert_eq!(
        told["notifications"],
        json!({"toolsListChanged": true, "resourceSubscriptions": ["note://one"]})
    );
    assert_eq!(told["_meta"]["io.modelcontextprotocol/subscriptionId"], first);
    let second = client
        .begin("subscriptions/listen", &json!({"notifications": {"resourceSubscriptions": ["note://one"]}}));
    client.hear(ACKNOWLEDGED);
    let change = |client: &mut Modern| {
        client.call("mcp_w_notify", &json!({"method": UPDATED, "params": {"uri": "note://one"}}))
    };
    change(&mut client);
    let ids: Vec<Value> = (0..2)
        .map(|_| client.hear(UPDATED)["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone())
        .collect();
    assert_eq!(ids, [first.clone(), second.clone()]);
    client.call("mcp_w_add_tool", &json!({"name": "new"}));
    assert_eq!(client.hear(LISTS)["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], first);
    assert_eq!(w.journal("w").received("resources/subscribe").len(), 1);
    // The id is taken until the stream ends; a client that had none of a kind hears none of it.
    let taken = client.params(&json!({"name": "mcp_w_echo", "arguments": {"text": "x"}}));
    client.shim.send(&json!({"jsonrpc": "2.0", "id": first, "method": "tools/call", "params": taken}));
    let cancel = |client: &mut Modern, id: &Value| {
        client.shim.send(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}),
        );
    };
    assert_eq!(client.reply(&first)["error"]["code"], -32600);
    cancel(&mut client, &first);
    change(&mut client);
    assert_eq!(client.hear(UPDATED)["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], second);
    assert!(client.shim.arrived(UPDATED).is_empty());
    cancel(&mut client, &second);
    wait_for("the server is told", SOON, || w.journal("w").received("resources/unsubscribe").len() == 1);
    let bad = client.request("subscriptions/listen", &json!({}));
    assert_eq!(bad["error"]["code"], -32602);
    // A client that ends its input gets the end of its streams as their answer.
    let last = client.begin("subscriptions/listen", &json!({"notifications": {}}));
    client.hear(ACKNOWLEDGED);
    client.shim.close_stdin();
    let end = client.reply(&last)["result"].clone();
    assert_eq!(end["_meta"]["io.modelcontextprotocol/subscriptionId"], last);
}

/// A daemon that is killed costs a stream nothing: it goes on at the next one without being asked for again,
/// and hears once that it may have missed something.
#[test]
fn a_stream_survives_the_daemon() {
    let w = world().server("w", with_resources());
    let mut daemon = w.start();
    let mut client = Modern::new(w.shim_with(&["mcp", "serve", "--no-spawn"]), json!({}));
    client.wait_tool("mcp_w_echo");
    let id = client.begin("subscriptions/listen", &json!({"notifications": {"toolsListChanged": true}}));
    client.hear(ACKNOWLEDGED);
    client.call("mcp_w_echo", &json!({"text": "x"}));
    daemon.kill_hard();
    let _daemon = w.start();
    assert_eq!(
        client.hear("notifications/tools/list_changed")["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        id
    );
    assert!(client.shim.arrived(ACKNOWLEDGED).is_empty());
    client.wait_tool("mcp_w_echo");
    client.call("mcp_w_add_tool", &json!({"name": "later"}));
    client.hear("notifications/tools/list_changed");
}

fn gated() -> World {
    world().server_with("w", Script::new(), &["approval: [echo]"])
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn chosen(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

fn sent(w: &World) -> usize {
    w.journal("w").received("tools/call").len()
}

/// A question to the user ends the request; the same request with the answer completes the call, once, and
/// nothing else does.
#[test]
fn a_question_ends_the_request_and_its_answer_completes_the_call() {
    let w = gated();
    let _daemon = w.start();
    let (mut client, mut other) = (modern(&w, forms()), modern(&w, forms()));
    client.wait_tool("mcp_w_echo");
    let arguments = json!({"text": "x"});
    let asks = client.call("mcp_w_echo", &arguments);
    let (name, asked) = question(&asks);
    assert_eq!(asked["method"], "elicitation/create");
    assert!(asked["params"]["message"].as_str().unwrap().contains("`modern`"), "{asked}");
    let state = asks["requestState"].clone();
    let allow = json!({ name.clone(): chosen("allow-once") });
    let refused = |answer: Value, why: &str| {
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{answer}");
    };
    let mut changed = state.as_str().unwrap().to_owned();
    let last = if changed.ends_with('A') { "B" } else { "A" };
    changed.replace_range(30..31, last);
    refused(client.retry("mcp_w_echo", &arguments, &json!(changed), &allow), "not one that hermesd gave out");
    refused(other.retry("mcp_w_echo", &arguments, &state, &allow), "another client");
    refused(client.retry("mcp_w_echo", &json!({"text": "y"}), &state, &allow), "another request");
    refused(client.retry("mcp_w_unicode", &json!({}), &state, &allow), "another request");
    assert_eq!(sent(&w), 0, "nothing of that reached the server");
    // Without an answer it is asked again, under the same name and a state of its own.
    let again = client.retry("mcp_w_echo", &arguments, &state, &json!({"other": 1}))["result"].clone();
    assert_eq!(question(&again).0, name);
    refused(client.retry("mcp_w_echo", &arguments, &state, &allow), "used already");
    let done = client.retry("mcp_w_echo", &arguments, &again["requestState"], &allow);
    assert_eq!(done["result"]["content"][0]["text"], "x");
    assert_eq!(done["result"]["resultType"], "complete");
    refused(client.retry("mcp_w_echo", &arguments, &again["requestState"], &allow), "used already");
    assert_eq!(sent(&w), 1);
    // A refusal is one; a client that declared nothing is not asked.
    let asks = client.call("mcp_w_echo", &arguments);
    let deny = json!({ question(&asks).0: {"action": "decline"} });
    let denied = client.retry("mcp_w_echo", &arguments, &asks["requestState"], &deny);
    assert_eq!(denied["result"]["_meta"]["kind"], "approval_denied", "{denied}");
    let params = json!({"name": "mcp_w_echo", "arguments": {"text": "z"}, "_meta": {"io.modelcontextprotocol/clientCapabilities": {}}});
    let id = client.begin("tools/call", &params);
    wait_for("it waits for others", SOON, || {
        w.ctl(["approvals", "--json"]).succeeds().json()["waiting"].as_array().unwrap().len() == 1
    });
    let number =
        w.ctl(["approvals", "--json"]).succeeds().json()["waiting"][0]["id"].as_str().unwrap().to_owned();
    w.ctl(["approvals", "respond", &number, "deny"]).succeeds();
    assert_eq!(client.reply(&id)["result"]["_meta"]["kind"], "approval_denied");
    assert_eq!(sent(&w), 1);
}

/// Suspended calls are bounded for each client, what is decided elsewhere holds, and a client that goes away
/// leaves none behind.
#[test]
fn suspended_calls_are_bounded_and_go_with_their_client() {
    let w = gated();
    let _daemon = w.start();
    let mut client = modern(&w, forms());
    client.wait_tool("mcp_w_echo");
    let waiting = || w.ctl(["approvals", "--json"]).succeeds().json()["waiting"].as_array().unwrap().clone();
    let asks: Vec<Value> =
        (0..8).map(|n| client.call("mcp_w_echo", &json!({"text": n.to_string()}))).collect();
    assert!(asks.iter().all(|asked| asked["resultType"] == "input_required"));
    let refused = client.call("mcp_w_echo", &json!({"text": "one too many"}));
    assert_eq!((&refused["isError"], &refused["_meta"]["kind"]), (&json!(true), &json!("busy")), "{refused}");
    let number = waiting()[0]["id"].as_str().unwrap().to_owned();
    w.ctl(["approvals", "respond", &number, "allow-once"]).succeeds();
    let done = client.retry("mcp_w_echo", &json!({"text": "0"}), &asks[0]["requestState"], &json!({}));
    assert_eq!(done["result"]["content"][0]["text"], "0", "it was allowed meanwhile");
    client.shim.kill_hard();
    wait_for("nothing waits", SOON, || waiting().is_empty());
    assert_eq!(sent(&w), 1);
}

/// The same over HTTP, where each request is a connection's own: the answer to a question comes with another
/// request, and a stream is the response that it was asked for with.
#[test]
fn a_client_over_http_is_asked_and_listens() {
    let script = Script::new().with(|s| s.modern = hermes_tests::script::Modern::Strict);
    let w = world().server("w", script).yaml("hermesd: {http: {listen: '127.0.0.1:0'}}");
    let _daemon = w.start();
    let post = |id: u64, method: &str, params: &Value| {
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": forms(),
        });
        let http = w.http().with("MCP-Protocol-Version", REVISION).with("Mcp-Method", method);
        let http = match params["name"].as_str() {
            Some(name) => http.with("Mcp-Name", name),
            None => http,
        };
        http.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    };
    wait_for("echo is listed", SOON, || {
        let list = post(1, "tools/list", &json!({})).json();
        list["result"]["tools"]
            .as_array()
            .is_some_and(|all| all.iter().any(|tool| tool["name"] == "mcp_w_echo"))
    });
    let mut stream = post(2, "subscriptions/listen", &json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(stream.message().unwrap()["method"], ACKNOWLEDGED);
    let mut call = json!({"name": "mcp_w_ask", "arguments": {"method": "elicitation/create", "params": {"message": "who?"}}});
    let answer = |id: u64, params: &Value| {
        let mut reply = post(id, "tools/call", params);
        if !reply.is_stream() {
            return reply.json();
        }
        let answers = std::iter::from_fn(|| reply.message()).find(|message| message["id"] == id);
        answers.unwrap_or_else(|| panic!("no answer to {id}"))
    };
    let asks = answer(3, &call)["result"].clone();
    let (name, _) = question(&asks);
    call["requestState"] = asks["requestState"].clone();
    call["inputResponses"] = json!({ name: {"action": "decline"} });
    let done = answer(4, &call);
    assert!(
        done["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("decline")),
        "{done}"
    );
    answer(5, &json!({"name": "mcp_w_add_tool", "arguments": {"name": "new"}}));
    let news = stream.message().unwrap();
    assert_eq!(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 2, "{news}");
}
