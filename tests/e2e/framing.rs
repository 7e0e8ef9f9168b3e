//! Whatever bytes a server puts on its stdout: good messages arrive, the rest is skipped and counted.

use crate::world;
use hermes_tests::{Framing, SOON, Script, census, wait_for};
use serde_json::json;

/// The same message in any chunking, with a byte order mark, with CRLF.
#[test]
fn every_line_framing_works() {
    for framing in [Framing::Bom, Framing::Crlf, Framing::FourKib, Framing::Borders, Framing::Bytes] {
        let w = world().server("w", Script::framed(framing));
        let _daemon = w.start();
        let mut client = w.client(&["w"]);
        assert_eq!(client.text("mcp_w_echo", &json!({"text": "日本 é"})), "日本 é", "{framing:?}");
    }
}

/// Five MiB in one line, however the pipe splits it.
#[test]
fn a_large_result_arrives_in_any_chunking() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    for framing in ["line", "borders", "four_kib"] {
        let text = client.text("mcp_w_big", &json!({"bytes": 5 << 20, "framing": framing}));
        assert_eq!(text.len(), 5 << 20, "{framing}");
    }
}

/// Banners and log lines on stdout are skipped, counted, and never shown to a client.
#[test]
fn noise_on_stdout_is_skipped_and_counted() {
    let noisy = Script::new().with(|s| {
        s.banner = vec!["Loading…".into(), "{not json".into(), String::new(), "[1,2]".into(), "true".into()];
        s.noise = Some("INFO tool called".into());
    });
    let w = world().server("w", noisy);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    for _ in 0..5 {
        assert_eq!(client.text("mcp_w_echo", &json!({"text": "ok"})), "ok");
    }
    wait_for("the lines are counted", SOON, || w.status("w")["noise_lines"].as_u64().unwrap_or(0) >= 8);
}

/// Escape sequences and NUL bytes in front of a message do not hide it.
#[test]
fn escapes_before_a_message_do_not_hide_it() {
    for prefix in ["\u{1b}[2K\r", "\u{0}\u{0}"] {
        let w = world().server("w", Script::new().with(|s| s.prefix = prefix.into()));
        let _daemon = w.start();
        let mut client = w.client(&["w"]);
        assert_eq!(client.text("mcp_w_echo", &json!({"text": "ok"})), "ok", "{prefix:?}");
    }
}

/// A bad byte costs one character, not the connection.
#[test]
fn invalid_utf8_costs_one_character() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_invalid_utf8", &json!({})), "it\u{FFFD}s");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
}

/// A line without end costs constant memory, and the next line is understood.
#[test]
fn an_endless_line_is_skipped_in_constant_memory() {
    let w = world().server("w", Script::new());
    let daemon = w.start();
    let mut client = w.client(&["w"]);
    let before = census::rss_kib(daemon.pid());
    assert_eq!(client.text("mcp_w_endless", &json!({"bytes": 300 << 20})), "ended");
    let after = census::rss_kib(daemon.pid());
    assert!(after < before + 100 * 1024, "{before} KiB before, {after} KiB after 300 MiB");
    wait_for("the line is counted", SOON, || w.status("w")["oversized_lines"].as_u64() == Some(1));
}

/// A server that writes before it reads does not lock up with a daemon that writes too.
#[test]
fn both_sides_may_write_at_once() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let first = client.begin_call("mcp_w_deaf_while_writing", &json!({"bytes": 4 << 20}));
    let second = client.begin_call("mcp_w_echo", &json!({"text": "y".repeat(2 << 20)}));
    let third = client.begin_call("mcp_w_deaf_while_writing", &json!({"bytes": 4 << 20}));
    assert_eq!(client.reply(&first)["result"]["content"][0]["text"].as_str().map(str::len), Some(4 << 20));
    assert_eq!(client.reply(&second)["result"]["content"][0]["text"].as_str().map(str::len), Some(2 << 20));
    client.reply(&third);
}

/// Framings that are not MCP are named in the diagnosis, and nobody else suffers.
#[test]
fn foreign_framings_are_recognised_by_name() {
    for (framing, word) in [(Framing::ContentLength, "content-length"), (Framing::Pretty, "several lines")] {
        let w = world()
            .server_with("v", Script::framed(framing), &["connect_timeout: 3"])
            .server("w", Script::new());
        let _daemon = w.start();
        let mut client = w.client(&["w"]);
        assert_eq!(client.text("mcp_w_echo", &json!({"text": "fine"})), "fine");
        wait_for("the noise is named", SOON, || {
            w.ctl(["servers", "show", "v", "--json"]).stdout.to_lowercase().contains(word)
        });
    }
}

/// A client may send messages with a byte order mark, CRLF or in single bytes.
#[test]
fn clients_may_chunk_as_they_like() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let call = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"mcp_w_echo","arguments":{{"text":"é"}}}}}}"#
        )
    };
    client.send_raw(format!("\u{FEFF}{}\r\n", call(9001)).as_bytes());
    assert_eq!(client.reply(&json!(9001))["result"]["content"][0]["text"], "é");
    for byte in format!("{}\n", call(9002)).bytes() {
        client.send_raw(&[byte]);
    }
    assert_eq!(client.reply(&json!(9002))["result"]["content"][0]["text"], "é");
    let text = "z".repeat(20 << 20);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": text})).len(), 20 << 20);
}
