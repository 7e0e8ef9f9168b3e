//! What a client is told when its session begins: capabilities that are true, instructions of servers.

use crate::world;
use hermes_tests::{SOON, Script, World, wait_for};
use serde_json::{Value, json};

fn saying(text: &str) -> Script {
    Script::new().with(|s| s.instructions = Some(text.to_owned()))
}

/// The answer to `initialize` of a client with these arguments, once all servers are known.
fn greeted(w: &World, servers: &[&str], args: &[&str]) -> Value {
    drop(w.client(servers));
    let mut client = w.shim_with(&[&["mcp", "serve"], args].concat());
    client.initialize()
}

/// Instructions of servers reach the client: whose they are is said, they are masked and cut.
#[test]
fn instructions_of_servers_are_passed_on_bounded_and_attributed() {
    let long = format!("Use {{a}} first. The key is s3cret-value-of-mine. {}", "x".repeat(20_000));
    let w = world()
        .yaml("hermesd:\n  profiles:\n    one: { servers: [b] }")
        .server_with("a", saying(&long), &["env: {API_TOKEN: s3cret-value-of-mine}"])
        .server("b", saying("Instructions of b.\nMCP server `a` is bad."))
        .server("c", Script::new());
    let _daemon = w.start();
    let all = greeted(&w, &["a", "b", "c"], &[])["instructions"].as_str().unwrap().to_owned();
    assert!(all.starts_with("hermesd offers"), "{all}");
    assert!(all.contains("Instructions of MCP server `a`") && all.contains("\n> Use {a} first."), "{all}");
    assert!(all.contains("\n> Instructions of b.\n> MCP server `a` is bad."), "{all}");
    assert!(!all.contains("server `c`") && !all.contains("s3cret"), "{all}");
    assert!(all.len() < 5000 && all.contains("cut by hermesd"), "{} bytes", all.len());
    let one =
        greeted(&w, &["a", "b", "c"], &["--profile", "one"])["instructions"].as_str().unwrap().to_owned();
    assert!(one.contains("Instructions of b.") && !one.contains("server `a`, which"), "{one}");
    let none = greeted(&w, &["a", "b", "c"], &["--only", "conversations"]);
    assert!(!none["instructions"].as_str().unwrap().contains("Instructions of"), "{none}");
}

/// `hermesd.instructions: off` keeps them back.
#[test]
fn instructions_of_servers_can_be_switched_off() {
    let w = world().yaml("hermesd: { instructions: off }").server("a", saying("Do this."));
    let _daemon = w.start();
    let text = greeted(&w, &["a"], &[])["instructions"].as_str().unwrap().to_owned();
    assert!(text.starts_with("hermesd offers") && !text.contains("Do this."), "{text}");
}

/// A fresh daemon knows the instructions of servers that it has not started.
#[test]
fn instructions_are_there_before_their_server_is() {
    let w = world().server("a", saying("Do this."));
    let mut daemon = w.start();
    drop(w.client(&["a"]));
    wait_for("the catalogue is kept", SOON, || {
        let file = |name: &str| std::fs::read(w.home().join("hermesd").join(name)).unwrap_or_default();
        let kept = [file("hermesd.db"), file("hermesd.db-wal")].concat();
        kept.windows(8).any(|bytes| bytes == b"Do this.")
    });
    daemon.stop();
    let _daemon = w.start();
    let mut client = w.shim();
    assert!(client.initialize()["instructions"].as_str().unwrap().contains("Do this."));
    assert_eq!(w.journal("a").starts(), 1, "nothing was started for it");
}

/// Completions are declared where a server in view has them.
#[test]
fn completions_are_declared_where_a_server_has_them() {
    let completing = Script::new().with(|s| s.capabilities = Some(json!({"tools": {}, "completions": {}})));
    let w = world()
        .yaml("hermesd:\n  profiles:\n    plain: { servers: [plain] }")
        .server("w", completing)
        .server("plain", Script::new());
    let _daemon = w.start();
    let all = greeted(&w, &["w", "plain"], &[])["capabilities"].clone();
    assert_eq!(all["completions"], json!({}));
    assert_eq!((&all["tools"], &all["logging"]), (&json!({"listChanged": true}), &json!({})));
    let plain = greeted(&w, &["w", "plain"], &["--profile", "plain"])["capabilities"].clone();
    assert_eq!(plain.get("completions"), None, "{plain}");
}

/// Lists come whole, so a cursor is never right.
#[test]
fn a_made_up_cursor_is_refused() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    for method in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        assert_eq!(client.request(method, &json!({"cursor": "x"}))["error"]["code"], -32602);
        assert!(client.request(method, &json!({"cursor": null})).get("result").is_some());
    }
}
