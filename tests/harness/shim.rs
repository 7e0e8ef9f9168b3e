//! A raw MCP client over the real shim: what it sends and sees are plain lines.
//!
//! Promise: nothing that arrives is lost; every line on stdout is checked to be one JSON-RPC message.

use crate::wait::{SOON, wait_some};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Newest revision with an `initialize` handshake.
pub const LATEST: &str = "2025-11-25";

/// One received line.
#[derive(Debug, Clone)]
pub struct Message {
    /// The line without its newline, byte for byte.
    pub raw: String,
    /// The line parsed; numbers keep their digits, members their order.
    pub value: Value,
}

/// One client: a shim process with its pipes.
#[derive(Debug)]
pub struct Shim {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    inbox: VecDeque<Message>,
    next_id: u64,
}

impl Shim {
    /// Starts `command` as an MCP client would.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the shim was built with this test");
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let (tx, lines) = sync_channel(65536);
        std::thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                match stdout.read_until(b'\n', &mut line) {
                    Ok(n) if n > 0 && tx.send(line).is_ok() => {}
                    _ => return,
                }
            }
        });
        Self { child, stdin, lines, inbox: VecDeque::new(), next_id: 1 }
    }

    /// Pid of the shim.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Writes bytes as they are; a shim that is gone is not an error here.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(bytes);
            let _ = stdin.flush();
        }
    }

    /// Writes one message as a line.
    pub fn send(&mut self, message: &Value) {
        self.send_raw(format!("{message}\n").as_bytes());
    }

    /// Sends a request and gives its id; the answer is for [`reply`](Self::reply).
    pub fn begin(&mut self, method: &str, params: &Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a `tools/call` and gives its id.
    pub fn begin_call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.begin("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The answer to `id`, whole message.
    ///
    /// # Panics
    /// When none came in time.
    #[track_caller]
    pub fn reply(&mut self, id: &Value) -> Value {
        self.reply_message(id, SOON).value
    }

    /// The answer to `id` with its raw line.
    #[track_caller]
    pub fn reply_message(&mut self, id: &Value, limit: Duration) -> Message {
        let wanted = |m: &Message| m.value.get("method").is_none() && m.value.get("id") == Some(id);
        self.take(limit, wanted)
            .unwrap_or_else(|| panic!("no answer to {id} within {limit:?}; inbox: {:?}", self.peek()))
    }

    /// The answer to `id`, if it comes within `limit`.
    pub fn maybe_reply(&mut self, id: &Value, limit: Duration) -> Option<Value> {
        self.take(limit, |m| m.value.get("method").is_none() && m.value.get("id") == Some(id))
            .map(|m| m.value)
    }

    /// Sends a request and waits for its answer.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.reply(&id)
    }

    /// Calls a tool: its result.
    ///
    /// # Panics
    /// When the answer is a JSON-RPC error.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.request("tools/call", &json!({"name": tool, "arguments": arguments}));
        assert!(answer.get("result").is_some(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// Calls a tool: the text of its first block.
    #[track_caller]
    pub fn text(&mut self, tool: &str, arguments: &Value) -> String {
        let result = self.call(tool, arguments);
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{tool}: no text in {result}")).to_owned()
    }

    /// Shakes hands with the latest revision: the result of `initialize`.
    #[track_caller]
    pub fn initialize(&mut self) -> Value {
        self.initialize_as(LATEST, &json!({}))
    }

    /// Shakes hands with a revision and capabilities.
    #[track_caller]
    pub fn initialize_as(&mut self, version: &str, capabilities: &Value) -> Value {
        let info = json!({"name": "tester", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info});
        let answer = self.request("initialize", &params);
        assert!(answer.get("result").is_some(), "initialize: {answer}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer["result"].clone()
    }

    /// All tools, all pages.
    #[track_caller]
    pub fn tools(&mut self) -> Vec<Value> {
        let mut tools = Vec::new();
        let mut params = json!({});
        loop {
            let result = self.request("tools/list", &params)["result"].clone();
            tools.extend(result["tools"].as_array().cloned().unwrap_or_default());
            match result.get("nextCursor") {
                Some(cursor) if cursor.is_string() => params = json!({"cursor": cursor}),
                _ => return tools,
            }
        }
    }

    /// Names of all tools, as listed.
    #[track_caller]
    pub fn tool_names(&mut self) -> Vec<String> {
        self.tools().iter().filter_map(|t| t["name"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until the tool is listed.
    #[track_caller]
    pub fn wait_tool(&mut self, name: &str) {
        wait_some(&format!("tool {name} is listed"), SOON, || {
            self.tool_names().iter().any(|t| t == name).then_some(())
        });
    }

    /// The next notification or request with this method, whole message.
    #[track_caller]
    pub fn wait_method(&mut self, method: &str) -> Value {
        let found = self.take(SOON, |m| m.value["method"] == method);
        found.unwrap_or_else(|| panic!("no {method}; inbox: {:?}", self.peek())).value
    }

    /// Takes out what has arrived with this method so far.
    pub fn arrived(&mut self, method: &str) -> Vec<Value> {
        while self.receive(Duration::ZERO) {}
        let (hits, rest) = self.inbox.drain(..).partition(|m| m.value["method"] == method);
        self.inbox = rest;
        Vec::from(hits as VecDeque<Message>).into_iter().map(|m| m.value).collect()
    }

    /// The next message that was not taken, whatever it is; `None`: none came within `limit`.
    pub fn next_message(&mut self, limit: Duration) -> Option<Message> {
        self.take(limit, |_| true)
    }

    /// Everything that has arrived and was not taken, in order.
    pub fn drain(&mut self) -> Vec<Message> {
        while self.receive(Duration::ZERO) {}
        self.inbox.drain(..).collect()
    }

    /// Ends stdin, as a client that is done.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end of the shim.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        wait_some("the shim ends", SOON, || self.child.try_wait().expect("a child of this process"))
    }

    /// Whether the shim still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child of this process").is_none()
    }

    /// `kill -9`.
    pub fn kill_hard(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn take(&mut self, limit: Duration, wanted: impl Fn(&Message) -> bool) -> Option<Message> {
        let end = Instant::now() + limit;
        let mut seen = 0;
        loop {
            if let Some(at) = self.inbox.iter().skip(seen).position(&wanted) {
                return self.inbox.remove(seen + at);
            }
            seen = self.inbox.len();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.receive(left) {
                return None;
            }
        }
    }

    /// Moves one line into the inbox; false when none came.
    fn receive(&mut self, limit: Duration) -> bool {
        match self.lines.recv_timeout(limit) {
            Ok(line) => {
                self.inbox.push_back(parse(line));
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    fn peek(&self) -> Vec<&str> {
        self.inbox.iter().take(5).map(|m| m.raw.get(..200).unwrap_or(&m.raw)).collect()
    }
}

/// A line of the shim is one JSON-RPC message, always.
fn parse(mut line: Vec<u8>) -> Message {
    assert_eq!(line.pop(), Some(b'\n'), "the last line was cut: {:?}", String::from_utf8_lossy(&line));
    let raw = String::from_utf8(line).expect("MCP is UTF-8");
    let value: Value =
        serde_json::from_str(&raw).unwrap_or_else(|e| panic!("not JSON on stdout: {e}: {raw}"));
    assert_eq!(value["jsonrpc"], "2.0", "no JSON-RPC on stdout: {raw}");
    Message { raw, value }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.kill_hard();
    }
}
