//! What each tool of the fake server does; `main.rs` lists them for readers.

use crate::serve::{Message, Shared};
use crate::{catalog, process};
use hermes_tests::script::{Fork, Framing};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// A 1x1 PNG.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Option<Box<RawValue>>,
}

/// Tools that must not stop the reader.
pub(crate) fn takes_time(message: &Message) -> bool {
    let name = message.params_value()["name"].clone();
    matches!(
        name.as_str(),
        Some("sleep" | "late_answer" | "progress" | "ask" | "add_tool" | "endless" | "big" | "notify")
    )
}

/// Answers one `tools/call`.
pub(crate) fn call(shared: &Arc<Shared>, message: &Message) {
    let id = message.id_text();
    let parsed = message.params.as_ref().and_then(|p| serde_json::from_str::<Call>(p.get()).ok());
    let Some(call) = parsed else {
        return shared.error(&id, &json!({"code": -32602, "message": "no tool name"}));
    };
    let raw = call.arguments.as_ref().map_or("", |a| a.get());
    let args: Value = serde_json::from_str(raw).unwrap_or(Value::Null);
    let name = call.name.as_str();
    if let Some(answer) = plain(shared, name, raw, &args, message) {
        return text(shared, &id, &answer);
    }
    if effects(shared, &id, name, &args) || talks(shared, &id, name, &args, message) {
        return;
    }
    if name.starts_with("extra_")
        || shared.tools.lock().expect("no holder panics").iter().any(|t| t["name"] == name)
    {
        return text(shared, &id, name);
    }
    shared.error(&id, &json!({"code": -32602, "message": format!("Unknown tool: {name}")}));
}

fn text(shared: &Shared, id: &str, text: &str) {
    shared.result(id, &json!({"content": [{"type": "text", "text": text}]}).to_string());
}

fn number(args: &Value, key: &str, default: u64) -> u64 {
    args[key].as_u64().unwrap_or(default)
}

fn string(args: &Value, key: &str) -> String {
    args[key].as_str().unwrap_or_default().to_owned()
}

/// Tools whose answer is just a text.
fn plain(shared: &Shared, name: &str, raw: &str, args: &Value, message: &Message) -> Option<String> {
    Some(match name {
        "echo" => string(args, "text"),
        "unicode" => "日本語 · emoji 🦀 · עברית · e\u{301} · \u{2028} · \u{0}".to_owned(),
        "raw_args" => raw.to_owned(),
        "meta" => message.params_value()["_meta"].to_string(),
        "secret" => format!("secret-of-{}", string(args, "nonce")),
        "env" => {
            let all: Vec<String> =
                std::env::vars_os().map(|(k, v)| format!("{}={}", k.display(), v.display())).collect();
            all.join("\n")
        }
        "cwd" => std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default(),
        "fds" => format!("{:?}", shared.fds),
        "pid" => std::process::id().to_string(),
        "argv" => json!(std::env::args().collect::<Vec<_>>()).to_string(),
        "set" => {
            let (key, value) = (string(args, "key"), string(args, "value"));
            shared.values.lock().expect("no holder panics").insert(key, value).unwrap_or_default()
        }
        "get" => shared
            .values
            .lock()
            .expect("no holder panics")
            .get(&string(args, "key"))
            .cloned()
            .unwrap_or_default(),
        "append" => {
            append(args);
            "appended".to_owned()
        }
        "stderr" => {
            let _ = writeln!(std::io::stderr(), "{}", string(args, "text"));
            shared.flood_stderr(number(args, "bytes", 0) as usize);
            "written".to_owned()
        }
        "noise" => {
            shared.out.raw(format!("{}\n", string(args, "text")).as_bytes());
            "noisy".to_owned()
        }
        _ => return None,
    })
}

fn append(args: &Value) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(string(args, "file"));
    let line = format!("{}\n", string(args, "text"));
    file.and_then(|mut f| f.write_all(line.as_bytes())).expect("the test gave a writable path");
}

/// Tools that do something to the process; true when `name` is one of them.
fn effects(shared: &Arc<Shared>, id: &str, name: &str, args: &Value) -> bool {
    match name {
        "hang" => {}
        "crash" => {
            shared.log.note("exit", "crash");
            std::process::exit(number(args, "code", 7) as i32);
        }
        "append_then_die" => {
            append(args);
            std::process::exit(9);
        }
        "sleep" => {
            if !shared.wait_cancelled(id, Duration::from_millis(number(args, "ms", 100))) {
                text(shared, id, args["text"].as_str().unwrap_or("slept"));
            }
        }
        "late_answer" => {
            std::thread::sleep(Duration::from_millis(number(args, "ms", 100)));
            text(shared, id, "late");
        }
        "deaf_while_writing" => {
            // Runs on the reader's thread: nothing is read before all is written.
            text(shared, id, &"w".repeat(number(args, "bytes", 1 << 20) as usize));
        }
        "fork" => {
            let kind: Fork = serde_json::from_value(args["kind"].clone()).unwrap_or(Fork::Plain);
            process::fork(kind, &shared.mark);
            text(shared, id, "forked");
        }
        "close_stdout" => {
            // A closed stdout is one that points elsewhere: the pipe's write end is gone.
            let null = std::fs::File::options().write(true).open("/dev/null").expect("every system has it");
            rustix::stdio::dup2_stdout(&null).expect("fd 1 may be replaced");
        }
        "add_tool" => add_tool(shared, id, args),
        _ => return false,
    }
    true
}

fn add_tool(shared: &Arc<Shared>, id: &str, args: &Value) {
    let notice = || shared.out.message(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    let change =
        || shared.tools.lock().expect("no holder panics").push(catalog::tool(&string(args, "name"), &[]));
    text(shared, id, "will add");
    let after = Duration::from_millis(number(args, "after_ms", 0));
    if args["order"] == "notice_first" {
        notice();
        std::thread::sleep(after);
        change();
    } else {
        std::thread::sleep(after);
        change();
        notice();
    }
}

/// Tools about messages and their form; true when `name` is one of them.
fn talks(shared: &Arc<Shared>, id: &str, name: &str, args: &Value, message: &Message) -> bool {
    match name {
        "answer" => shared.result(id, &string(args, "result")),
        "reply" => {
            for line in args["lines"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                shared.out.raw(format!("{}\n", line.replace("$ID", id)).as_bytes());
            }
        }
        "fail" => {
            let content = json!([{"type": "text", "text": "boom"}]);
            shared.result(id, &json!({"content": content, "isError": true, "extra": {"n": 1.0}}).to_string());
        }
        "rpc_error" => {
            let error =
                json!({"code": args["code"], "message": string(args, "message"), "data": args["data"]});
            shared.error(id, &error);
        }
        "image" => {
            let content = json!([{"type": "image", "data": PIXEL, "mimeType": "image/png"}]);
            shared.result(id, &json!({"content": content}).to_string());
        }
        "big" => {
            let framing: Framing = serde_json::from_value(args["framing"].clone()).unwrap_or_default();
            let body = "b".repeat(number(args, "bytes", 1000) as usize);
            let result = json!({"content": [{"type": "text", "text": body}]});
            shared.out.message_in(framing, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        }
        "invalid_utf8" => {
            shared.out.raw(b"\xFF\xFE\n");
            let head =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"it"#);
            let bytes = [head.as_bytes(), b"\x92s\"}]}}\n"].concat();
            shared.out.raw(&bytes);
        }
        "endless" => {
            let piece = vec![b'x'; 1 << 20];
            let whole = number(args, "bytes", 1 << 20) as usize;
            for _ in 0..whole / piece.len() {
                shared.out.raw(&piece);
            }
            shared.out.raw(b"\n");
            text(shared, id, "ended");
        }
        "notify" => {
            let note = json!({"jsonrpc": "2.0", "method": args["method"], "params": args["params"]});
            let after = Duration::from_millis(number(args, "after_ms", 0));
            let send = |shared: &Shared| {
                (0..number(args, "times", 1)).for_each(|_| shared.out.message(&note.to_string()));
            };
            if after.is_zero() {
                send(shared);
                text(shared, id, "notified");
            } else {
                text(shared, id, "will notify");
                std::thread::sleep(after);
                send(shared);
            }
        }
        "ask" => {
            let request = json!({"jsonrpc": "2.0", "id": format!("ask-{id}"), "method": args["method"], "params": args["params"]});
            let answer = shared.ask(&request);
            text(shared, id, &answer.to_string());
        }
        "progress" | "progress_odd" => progress(shared, id, name, args, message),
        _ => return false,
    }
    true
}

fn progress(shared: &Shared, id: &str, name: &str, args: &Value, message: &Message) {
    let token = message.params_value()["_meta"]["progressToken"].clone();
    let step = |token: &Value, at: Value| {
        let said = args["say"].as_str().unwrap_or("step");
        let params = json!({"progressToken": token, "progress": at, "total": 100, "message": said});
        let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        shared.out.message(&note.to_string());
    };
    if name == "progress" {
        for at in 1..=number(args, "n", 3) {
            if shared.wait_cancelled(id, Duration::from_millis(number(args, "every_ms", 0))) {
                return;
            }
            step(&token, json!(at));
        }
        return text(shared, id, args["say"].as_str().unwrap_or("done"));
    }
    match args["kind"].as_str() {
        Some("fabricated") => {
            step(&json!("made-up"), json!(1));
            step(&json!(424_242), json!(2));
            text(shared, id, "done");
        }
        Some("late") => {
            text(shared, id, "done");
            step(&token, json!(99));
        }
        _ => {
            [json!(0), json!(1), json!(1), json!(0.5), json!("2"), json!(3)]
                .into_iter()
                .for_each(|at| step(&token, at));
            text(shared, id, "done");
        }
    }
}
