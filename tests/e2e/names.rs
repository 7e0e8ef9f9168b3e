//! Names of tools: unique, short enough, and each leads to the tool it was made from.

use crate::world;
use hermes_tests::{Script, Shim, World};
use serde_json::{Value, json};

/// A server with these tools beside `echo`; each answers with its own raw name.
fn offering(names: &[&str]) -> Script {
    let item = |name: &&str| json!({"name": name, "description": "d", "inputSchema": {"type": "object", "properties": {}}});
    Script::new().with(|s| s.tools = Some([&["echo"], names].concat().iter().map(item).collect()))
}

/// The exposed name of everything a client sees, with the server and raw name that answered.
fn answers(w: &World, client: &mut Shim, servers: &[&str]) -> Vec<(String, String, String)> {
    let names = client.tool_names();
    let ask = |client: &mut Shim, name: &String| {
        client.call(name, &json!({"text": ""}));
        let last = |server: &str| w.journal(server).received("tools/call").len();
        let counts: Vec<usize> = servers.iter().map(|server| last(server)).collect();
        (name.clone(), counts)
    };
    let mut before = vec![0; servers.len()];
    let mut all = Vec::new();
    for name in &names {
        let (name, counts) = ask(client, name);
        let at = (0..servers.len()).find(|at| counts[*at] > before[*at]).expect("one server got the call");
        let raw = w.journal(servers[at]).received("tools/call").last().unwrap()["params"]["name"].clone();
        all.push((name, servers[at].to_owned(), raw.as_str().unwrap().to_owned()));
        before = counts;
    }
    all
}

/// Names that sanitise alike stay apart, inside a server and between servers, and every one leads to its tool.
#[test]
fn names_that_look_alike_lead_to_their_own_tools() {
    let servers = ["foo-bar", "foo_bar", "a", "a_b", "one"];
    let w = world()
        .server("foo-bar", offering(&["t"]))
        .server("foo_bar", offering(&["t"]))
        .server("a", offering(&["b_c"]))
        .server("a_b", offering(&["c"]))
        .server("one", offering(&["read-file", "read_file", "read.file"]));
    let _daemon = w.start();
    let mut client = w.client(&["foo_bar", "a", "a_b", "one"]);
    hermes_tests::wait_for("the last server is listed", hermes_tests::SOON, || {
        client.tool_names().len() == 12
    });
    let all = answers(&w, &mut client, &servers);
    let mut reached: Vec<(String, String)> =
        all.iter().map(|(_, server, raw)| (server.clone(), raw.clone())).collect();
    reached.sort();
    let mut wanted: Vec<(String, String)> = Vec::new();
    for (server, tools) in [
        ("foo-bar", &["echo", "t"][..]),
        ("foo_bar", &["echo", "t"]),
        ("a", &["echo", "b_c"]),
        ("a_b", &["echo", "c"]),
        ("one", &["echo", "read-file", "read_file", "read.file"]),
    ] {
        wanted.extend(tools.iter().map(|tool| (server.to_owned(), (*tool).to_owned())));
    }
    wanted.sort();
    assert_eq!(reached, wanted, "{all:#?}");
    let named = |server: &str, raw: &str| {
        all.iter().find(|(_, s, r)| s == server && r == raw).map(|(name, ..)| name.clone()).unwrap()
    };
    // Who spells it exactly keeps the plain name; the rest is marked.
    assert_eq!(named("foo_bar", "t"), "mcp_foo_bar_t");
    assert_eq!(named("a_b", "c"), "mcp_a_b_c");
    assert_eq!(named("one", "read_file"), "mcp_one_read_file");
    assert!(named("one", "read-file").starts_with("mcp_one_read_file__"));
    let notes = w.status("one")["notes"].to_string();
    assert!(notes.contains("read-file") && notes.contains("read.file"), "both are reported: {notes}");
}

/// A long server name and a long tool name together stay within what clients and models take.
#[test]
fn long_names_are_cut_and_still_lead_to_their_tools() {
    let server = "s".repeat(40);
    let tools = ["t".repeat(30), format!("{}x", "t".repeat(30)), format!("{}y", "t".repeat(30))];
    let raw: Vec<&str> = tools.iter().map(String::as_str).collect();
    let w = world().server(&server, offering(&raw));
    let _daemon = w.start();
    let mut client = w.shim();
    client.initialize();
    hermes_tests::wait_for("all are listed", hermes_tests::SOON, || client.tool_names().len() == 4);
    let all = answers(&w, &mut client, &[&server]);
    assert!(all.iter().all(|(name, ..)| name.len() <= 50), "{all:?}");
    let mut reached: Vec<&str> = all.iter().map(|(_, _, raw)| raw.as_str()).collect();
    reached.sort_unstable();
    assert_eq!(reached, ["echo", raw[0], raw[1], raw[2]]);
    // The same names after a restart: clients remember them.
    let before = client.tool_names();
    w.ctl(["servers", "restart", &server]).succeeds();
    assert_eq!(client.tool_names(), before);
}

/// The same tool on two servers is two tools.
#[test]
fn the_same_tool_on_two_servers_is_two_tools() {
    let w = world().server("a", offering(&["send_email"])).server("b", offering(&["send_email"]));
    let _daemon = w.start();
    let mut client = w.client(&["a", "b"]);
    let all = answers(&w, &mut client, &["a", "b"]);
    for server in ["a", "b"] {
        let own = (format!("mcp_{server}_send_email"), server.to_owned(), "send_email".to_owned());
        assert!(all.contains(&own), "{all:?}");
    }
}

/// A filter that matches nothing is a typo somebody should hear of; a filter by exposed name works, with a warning.
#[test]
fn a_filter_that_matches_nothing_is_reported() {
    let w = world().server_with("w", offering(&["get"]), &["tools: {include: [echo, gett, mcp_w_get]}"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.tool_names(), ["mcp_w_echo", "mcp_w_get"]);
    let notes = w.status("w")["notes"].to_string();
    assert!(notes.contains("gett") && notes.contains("mcp_w_get"), "{notes}");
}

/// Schemas that model APIs refuse are mended without a change of meaning; definitions and refs move together.
#[test]
fn schemas_are_usable_for_model_apis() {
    let schema = |schema: Value| json!({"name": "t", "description": "d", "inputSchema": schema});
    let cases = [
        json!({"$ref": "#/definitions/A", "definitions": {"A": {"type": "object", "properties": {"n": {"type": ["string", "null"]}}}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/definitions/B"}}, "definitions": {"B": {"type": "string"}}}),
        json!({"type": "object", "properties": {"definitions": {"type": "array"}, "required": {"type": "string"}}, "required": ["gone"]}),
        json!({}),
        Value::Null,
    ];
    for case in cases {
        let tools = vec![
            json!({"name": "echo", "inputSchema": {"type": "object", "properties": {}}}),
            schema(case.clone()),
        ];
        let w = world().server("w", Script::new().with(|s| s.tools = Some(tools)));
        let _daemon = w.start();
        let mut client = w.client(&["w"]);
        let tool = client.tools().into_iter().find(|tool| tool["name"] == "mcp_w_t").unwrap();
        let shown = &tool["inputSchema"];
        assert_eq!(shown["type"], "object", "{case} became {shown}");
        assert!(shown["properties"].is_object(), "{case} became {shown}");
        let text = shown.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(shown.pointer(pointer).is_some(), "{pointer} leads nowhere in {shown}");
        }
        client.call("mcp_w_t", &json!({}));
    }
}
