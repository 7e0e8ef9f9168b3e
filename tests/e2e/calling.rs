//! `hermesctl call` and `tools` as a person types them.

use crate::world;
use hermes_tests::{Ran, Script};
use serde_json::json;
use std::fs;

fn tool(name: &str, schema: serde_json::Value) -> serde_json::Value {
    json!({"name": name, "description": format!("does {name}"), "inputSchema": schema})
}

/// `key=value` is read by the schema of the tool, files by `@` and `--file`.
#[test]
fn arguments_are_typed_as_words_and_read_by_the_schema() {
    let schema = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}},
    }});
    let w = world().server("w", Script::new().with(|s| s.tools = Some(vec![tool("echo", schema)])));
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let file = w.path().join("args.json");
    fs::write(&file, r#"{"text": "from the file", "n": 1}"#).unwrap();
    let at = format!("@{}", file.display());
    w.ctl(["call", "w", "echo", "text=12", "n=12", "tags=a", "tags=b"]).succeeds();
    w.ctl(["call", "mcp_w_echo", &at, "n=3"]).succeeds();
    w.ctl(["call", "w", "echo", "--file", file.to_str().unwrap(), "text:=\"x\""]).succeeds();
    let sent: Vec<serde_json::Value> = w
        .journal("w")
        .received("tools/call")
        .into_iter()
        .map(|call| call["params"]["arguments"].clone())
        .collect();
    let wanted = [
        json!({"text": "12", "n": 12, "tags": ["a", "b"]}),
        json!({"text": "from the file", "n": 3}),
        json!({"text": "x", "n": 1}),
    ];
    assert_eq!(sent, wanted);
    let wrong = w.ctl(["call", "w", "echo", "n=many"]).exits(2);
    assert!(wrong.stderr.contains("`n` wants integer"), "{wrong:?}");
    assert_eq!(w.journal("w").received("tools/call").len(), 3, "nothing was sent");
}

/// Images of a result become files; nothing that is there is overwritten.
#[test]
fn images_are_saved_on_request() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    assert!(w.ctl(["call", "w", "image"]).succeeds().stdout.contains("--save DIR"));
    let out = w.path().join("out");
    for number in [1, 2] {
        let run = w.ctl(["call", "w", "image", "--save", out.to_str().unwrap()]).succeeds();
        let file = out.join(format!("image-{number}.png"));
        assert!(run.stdout.contains(&file.display().to_string()), "{run:?}");
        assert!(fs::read(&file).unwrap().starts_with(b"\x89PNG"));
    }
}

/// `tools` with words finds by name, title and description.
#[test]
fn tools_are_searched_by_words() {
    let w = world().server(
        "w",
        Script::new().with(|s| {
            s.tools =
                Some(vec![tool("echo", json!({"type": "object"})), tool("paint", json!({"type": "object"}))]);
        }),
    );
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let names = |run: &Ran| -> Vec<String> {
        let found = run.json();
        found.as_array().unwrap().iter().map(|tool| tool["raw_name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&w.ctl(["tools", "DOES", "paint", "--json"]).succeeds()), ["paint"]);
    assert_eq!(names(&w.ctl(["tools", "nothing-like-it", "--json"]).succeeds()), Vec::<String>::new());
    assert!(w.ctl(["tools", "paint", "--server", "w"]).succeeds().stdout.contains("mcp_w_paint"));
}

/// `bench` calls both ways in one run, says the difference, and leaves no copy of the server behind.
#[test]
fn bench_compares_with_a_copy_of_the_server_and_ends_it() {
    let w = world().server_with("w", Script::new(), &["env: {API_TOKEN: abcdefgh-secret-value}"]);
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let run = w.ctl(["bench", "w", "echo", "text=x", "-n", "20", "--json"]).succeeds();
    let figures = run.json();
    for side in ["direct", "through"] {
        let [p50, p99] = ["p50_us", "p99_us"].map(|name| figures[side][name].as_u64().unwrap());
        assert!(p50 > 0 && p50 <= p99, "{figures}");
    }
    assert_eq!(w.journal("w").starts(), 2, "the daemon's and the copy");
    // Twenty and ten to warm up each way, and one before.
    assert_eq!(w.journal("w").received("tools/call").len(), 61);
    assert_eq!(w.processes("w").len(), 1, "the copy is gone");
    let text = w.ctl(["bench", "w", "echo", "text=x", "-n", "10"]).succeeds().stdout;
    assert!(text.contains("through hermesd") && text.contains("a copy of the server of its own"), "{text}");
    w.ctl(["bench", "w", "no_such_tool"]).exits(2);
    let chosen = w.ctl(["bench", "w", "-n", "10", "--json"]).succeeds().json();
    assert_ne!(chosen["tool"], "", "one that only reads: {chosen}");
    assert!(w.ctl(["bench", "w", "fail", "-n", "10"]).exits(1).stderr.contains("boom"));
}
