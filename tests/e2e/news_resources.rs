//! Updates of resources: one subscription at the server, each client its own.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, holds_for, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

const UPDATED: &str = "notifications/resources/updated";

fn script() -> Script {
    Script::new().with(|s| {
        s.capabilities = Some(json!({"tools": {}, "resources": {"subscribe": true}}));
        let note = |name: &str| json!({"uri": format!("note://{name}"), "name": name});
        let results = [
            ("resources/list", json!({"resources": [note("one"), note("two")]})),
            ("resources/templates/list", json!({"resourceTemplates": []})),
            ("resources/subscribe", json!({})),
            ("resources/unsubscribe", json!({})),
        ];
        s.results = results.into_iter().map(|(method, result)| (method.to_owned(), result)).collect();
    })
}

/// A client of these servers, once their resources are listed.
fn client_of(w: &World, servers: &[&str]) -> Shim {
    let mut client = w.client(servers);
    wait_for("all resources are listed", SOON, || {
        let listed = client.request("resources/list", &json!({}))["result"]["resources"].clone();
        listed.as_array().unwrap().len() == 2 * servers.len()
    });
    client.drain();
    client
}

fn subscribe(client: &mut Shim, uri: &str) -> Value {
    client.request("resources/subscribe", &json!({"uri": uri}))
}

fn unsubscribe(client: &mut Shim, uri: &str) {
    let answer = client.request("resources/unsubscribe", &json!({"uri": uri}));
    assert_eq!(answer["result"], json!({}), "{answer}");
}

/// Has the server say that its resource changed.
fn change(client: &mut Shim, server: &str, uri: &str) {
    client
        .call(&format!("mcp_{server}_notify"), &json!({"method": UPDATED, "params": {"uri": uri, "x": 1.0}}));
}

/// Method and URI of everything the server was asked about subscriptions.
fn asked(w: &World, server: &str) -> Vec<(String, String)> {
    let all = w.journal(server).events("recv");
    let about = all.iter().filter(|e| e.method().ends_with("subscribe"));
    about
        .map(|e| (e.method(), e.message()["params"]["uri"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

fn pair(method: &str, uri: &str) -> (String, String) {
    (format!("resources/{method}"), uri.to_owned())
}

/// Two clients cost the server one subscription; one that leaves or unsubscribes does not end the other's.
#[test]
fn subscriptions_are_shared_at_the_server_and_apart_for_clients() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let (mut a, mut b, mut c) = (client_of(&w, &["w"]), client_of(&w, &["w"]), client_of(&w, &["w"]));
    for client in [&mut a, &mut b] {
        assert_eq!(subscribe(client, "note://one")["result"], json!({}));
    }
    assert_eq!(subscribe(&mut c, "note://two")["result"], json!({}));
    change(&mut a, "w", "note://one");
    assert_eq!(a.wait_method(UPDATED)["params"], json!({"uri": "note://one", "x": 1.0}));
    assert_eq!(b.wait_method(UPDATED)["params"]["uri"], "note://one");
    unsubscribe(&mut a, "note://one");
    change(&mut a, "w", "note://one");
    b.wait_method(UPDATED);
    assert!(a.arrived(UPDATED).is_empty() && c.arrived(UPDATED).is_empty(), "only subscribers hear of it");
    assert_eq!(asked(&w, "w"), [pair("subscribe", "note://one"), pair("subscribe", "note://two")]);
    unsubscribe(&mut b, "note://one");
    wait_for("the server is told of the loss of the last one", SOON, || {
        asked(&w, "w").last() == Some(&pair("unsubscribe", "note://one"))
    });
    drop(c);
    wait_for("a client that leaves lets go", SOON, || {
        asked(&w, "w").last() == Some(&pair("unsubscribe", "note://two"))
    });
    // Again from the start.
    subscribe(&mut b, "note://one");
    assert_eq!(asked(&w, "w").last(), Some(&pair("subscribe", "note://one")));
}

/// What cannot be followed is refused with the reason, and nothing is asked of a server that cannot do it.
#[test]
fn subscriptions_are_refused_where_they_cannot_work() {
    let deny = |s: &mut Script| {
        s.errors
            .insert("resources/subscribe".to_owned(), json!({"code": -32007, "message": "no", "data": 1}));
    };
    let plain = |s: &mut Script| {
        s.capabilities = Some(json!({"tools": {}, "resources": {}}));
        s.results.insert(
            "resources/list".to_owned(),
            json!({"resources": [{"uri": "x://1", "name": "1"}, {"uri": "x://2", "name": "2"}]}),
        );
    };
    let w = world()
        .yaml("hermesd:\n  profiles:\n    blind: { servers: [] }\n    plain: { servers: [plain] }")
        .server("plain", script().with(plain))
        .server("deny", script().with(deny));
    let _daemon = w.start();
    let mut client = client_of(&w, &["plain", "deny"]);
    let refused = subscribe(&mut client, "x://1");
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("resources.subscribe"), "{refused}");
    assert!(asked(&w, "plain").is_empty());
    let denied = subscribe(&mut client, "note://one");
    assert_eq!(denied["error"], json!({"code": -32007, "message": "no", "data": 1}), "as the server said it");
    assert_eq!(subscribe(&mut client, "nobody://1")["error"]["code"], -32002);
    assert_eq!(client.request("resources/subscribe", &json!({}))["error"]["code"], -32602);
    let mut blind = w.shim_with(&["mcp", "serve", "--profile", "blind"]);
    let answer = blind.initialize();
    assert_eq!(answer["capabilities"]["resources"], json!({"listChanged": true}));
    assert_eq!(subscribe(&mut blind, "note://one")["error"]["code"], -32002);
    let mut plain = w.shim_with(&["mcp", "serve", "--profile", "plain"]);
    let answer = plain.initialize();
    assert_eq!(answer["capabilities"]["resources"], json!({"listChanged": true}), "{answer}");
    let rows = w.ctl(["audit", "--json"]).succeeds().stdout;
    assert!(rows.contains("resources/subscribe"), "{rows}");
}

/// Whether subscriptions work is said when the session begins.
#[test]
fn the_capability_is_declared_where_a_server_has_it() {
    let w = world().server("w", script());
    let _daemon = w.start();
    drop(client_of(&w, &["w"]));
    let mut client = w.shim();
    let answer = client.initialize();
    assert_eq!(answer["capabilities"]["resources"], json!({"subscribe": true, "listChanged": true}));
}

/// A server that was restarted sends updates again, and subscribers look again at what they may have missed.
#[test]
fn subscriptions_survive_a_restart_of_the_server() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let (mut a, mut b) = (client_of(&w, &["w"]), client_of(&w, &["w"]));
    subscribe(&mut a, "note://one");
    subscribe(&mut b, "note://one");
    subscribe(&mut b, "note://two");
    w.ctl(["servers", "restart", "w"]).succeeds();
    for (client, count) in [(&mut a, 1), (&mut b, 2)] {
        let mut seen = Vec::new();
        for _ in 0..count {
            seen.push(client.wait_method(UPDATED)["params"]["uri"].as_str().unwrap().to_owned());
        }
        seen.sort();
        assert_eq!(seen, ["note://one", "note://two"][..count]);
    }
    assert_eq!(asked(&w, "w").len(), 4, "each resource once a generation");
    change(&mut a, "w", "note://one");
    a.wait_method(UPDATED);
    b.wait_method(UPDATED);
}

/// A crash is no reason to hear nothing any more: the server is started again for its subscribers.
#[test]
fn subscriptions_survive_a_crash_of_the_server() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let mut a = client_of(&w, &["w"]);
    subscribe(&mut a, "note://one");
    a.call("mcp_w_crash", &json!({}));
    assert_eq!(a.wait_method(UPDATED)["params"]["uri"], "note://one");
    assert_eq!(asked(&w, "w").len(), 2);
}

/// A client that outlived the daemon goes on hearing of its resources, without asking again.
#[test]
fn subscriptions_survive_a_restart_of_the_daemon() {
    let w = world().server("w", script());
    let mut daemon = w.start();
    let (mut a, mut b) = (client_of(&w, &["w"]), client_of(&w, &["w"]));
    subscribe(&mut a, "note://one");
    subscribe(&mut b, "note://one");
    unsubscribe(&mut b, "note://one");
    daemon.kill_hard();
    let _daemon = w.start();
    a.wait_tool("mcp_w_echo");
    b.wait_tool("mcp_w_echo");
    assert_eq!(a.wait_method(UPDATED)["params"]["uri"], "note://one");
    change(&mut b, "w", "note://one");
    a.wait_method(UPDATED);
    assert!(b.arrived(UPDATED).is_empty());
}

/// A profile that no longer shows the server ends what it followed there.
#[test]
fn a_server_that_is_hidden_is_followed_no_more() {
    let hide = "hermesd:\n  profiles:\n    default: { servers: [v] }\n";
    let w = world().server("w", script()).server("v", Script::new());
    let _daemon = w.start();
    let mut a = w.client(&["w", "v"]);
    wait_for("resources are listed", SOON, || {
        a.request("resources/list", &json!({}))["result"]["resources"].as_array().unwrap().len() == 2
    });
    subscribe(&mut a, "note://one");
    let file = w.home().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{hide}{text}")).unwrap();
    w.ctl(["reload"]).succeeds();
    wait_for("the server is let go", SOON, || {
        asked(&w, "w").last() == Some(&pair("unsubscribe", "note://one"))
    });
}

/// A server that is unused may be stopped, but not while a client relies on it.
#[test]
fn a_followed_server_is_not_idle() {
    let w = world().server_with("w", script(), &["idle_stop: 1"]);
    let _daemon = w.start();
    let mut a = client_of(&w, &["w"]);
    subscribe(&mut a, "note://one");
    assert!(holds_for(Duration::from_secs(3), || w.phase("w") == "ready"));
    unsubscribe(&mut a, "note://one");
    w.wait_phase("w", "stopped");
}

/// However many updates a server sends, the last one is not lost, and a client is not drowned.
#[test]
fn a_flood_of_updates_is_thinned_and_its_end_is_told() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let mut a = client_of(&w, &["w"]);
    subscribe(&mut a, "note://one");
    subscribe(&mut a, "note://two");
    let start = std::time::Instant::now();
    let flood = json!({"method": UPDATED, "params": {"uri": "note://one"}, "times": 5000});
    a.call("mcp_w_notify", &flood);
    a.call("mcp_w_notify", &json!({"method": UPDATED, "params": {"uri": "note://two"}}));
    let mut seen = Vec::new();
    wait_for("the last update is told", SOON, || {
        seen.extend(a.arrived(UPDATED).into_iter().map(|m| m["params"]["uri"].as_str().unwrap().to_owned()));
        seen.contains(&"note://two".to_owned())
    });
    let allowed = 20 + start.elapsed().as_millis() / 250;
    assert!(seen.len() as u128 <= allowed, "{} of 5001, {allowed} allowed", seen.len());
}
