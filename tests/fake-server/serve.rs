//! The loop of the fake server: reads lines, answers or misbehaves.

use crate::output::Output;
use crate::process::{self, Log};
use crate::{catalog, modern, tools};
use hermes_tests::script::{Modern, Ping, Script};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// One received message; bodies stay raw.
#[derive(Deserialize)]
pub(crate) struct Message {
    pub(crate) id: Option<Box<RawValue>>,
    pub(crate) method: Option<String>,
    pub(crate) params: Option<Box<RawValue>>,
}

impl Message {
    /// The id as it was written.
    pub(crate) fn id_text(&self) -> String {
        self.id.as_ref().map_or_else(|| "null".to_owned(), |id| id.get().to_owned())
    }

    pub(crate) fn params_value(&self) -> Value {
        self.params.as_ref().and_then(|p| serde_json::from_str(p.get()).ok()).unwrap_or(Value::Null)
    }
}

/// What the threads of one fake server share.
pub(crate) struct Shared {
    pub(crate) script: Script,
    pub(crate) out: Output,
    pub(crate) log: Log,
    pub(crate) mark: String,
    pub(crate) tools: Mutex<Vec<Value>>,
    /// File descriptors before this program opened any.
    pub(crate) fds: Vec<i32>,
    pub(crate) values: Mutex<BTreeMap<String, String>>,
    cancelled: Mutex<HashSet<String>>,
    cancel_came: Condvar,
    asked: Mutex<HashMap<String, Sender<Value>>>,
}

impl Shared {
    pub(crate) fn result(&self, id: &str, result: &str) {
        self.reply(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    pub(crate) fn error(&self, id: &str, error: &Value) {
        self.reply(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    }

    fn reply(&self, json: &str) {
        self.flood_stderr(self.script.stderr_each);
        if let Some(noise) = &self.script.noise {
            self.out.raw(format!("{noise}\n").as_bytes());
        }
        self.out.message(json);
    }

    pub(crate) fn flood_stderr(&self, bytes: usize) {
        let line = format!("{}\n", "e".repeat(99));
        let mut err = std::io::stderr().lock();
        for _ in 0..bytes / line.len() {
            let _ = err.write_all(line.as_bytes());
        }
    }

    /// Waits `span`, or until request `id` is cancelled; says whether it was.
    pub(crate) fn wait_cancelled(&self, id: &str, span: Duration) -> bool {
        let end = Instant::now() + span;
        let mut cancelled = self.cancelled.lock().expect("no holder panics");
        loop {
            if cancelled.contains(id) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            cancelled = self.cancel_came.wait_timeout(cancelled, left).expect("no holder panics").0;
        }
    }

    /// Sends a request to the client and waits for its answer, whole message.
    pub(crate) fn ask(&self, request: &Value) -> Value {
        let (tx, rx) = channel();
        self.asked.lock().expect("no holder panics").insert(request["id"].to_string(), tx);
        self.out.message(&request.to_string());
        rx.recv_timeout(Duration::from_secs(60)).unwrap_or(Value::Null)
    }
}

pub(crate) struct Server {
    shared: Arc<Shared>,
    initialized: bool,
    seen: HashMap<String, u32>,
}

impl Server {
    pub(crate) fn new(script: Script) -> Self {
        let shared = Shared {
            out: Output::new(script.framing, script.prefix.clone()),
            log: Log(script.journal.clone()),
            mark: std::env::args().nth(1).unwrap_or_default(),
            tools: Mutex::new(catalog::initial(&script)),
            fds: hermes_tests::census::open_fds(std::process::id() as i32),
            values: Mutex::default(),
            cancelled: Mutex::default(),
            cancel_came: Condvar::new(),
            asked: Mutex::default(),
            script,
        };
        Self { shared: Arc::new(shared), initialized: false, seen: HashMap::new() }
    }

    pub(crate) fn run(mut self) -> ExitCode {
        let shared = self.shared.clone();
        let script = &shared.script;
        process::watch_signals(shared.log.clone(), script.ignore_term);
        shared.log.note("start", "");
        if let Some(code) = self.start_failure() {
            shared.log.note("exit", &code.to_string());
            return ExitCode::from(code as u8);
        }
        script.forks.iter().for_each(|kind| process::fork(*kind, &shared.mark));
        std::thread::sleep(Duration::from_millis(script.start_delay_ms));
        let spin = Instant::now();
        while spin.elapsed() < Duration::from_millis(script.start_spin_ms) {
            std::hint::spin_loop();
        }
        shared.flood_stderr(script.stderr_first);
        if script.stderr_bps > 0 {
            let shared = self.shared.clone();
            std::thread::spawn(move || {
                loop {
                    shared.flood_stderr(shared.script.stderr_bps / 100);
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        script.banner.iter().for_each(|line| shared.out.raw(format!("{line}\n").as_bytes()));
        self.read_lines();
        shared.log.note("eof", "");
        if script.ignore_eof {
            loop {
                std::thread::park();
            }
        }
        ExitCode::SUCCESS
    }

    fn start_failure(&self) -> Option<i32> {
        let script = &self.shared.script;
        if let Some(fail) = &script.fail_starts
            && process::starts(script.journal.as_deref()) <= fail.count
        {
            let _ = writeln!(std::io::stderr(), "{}", fail.stderr);
            return Some(fail.code);
        }
        script.exit_at_start
    }

    fn read_lines(&mut self) {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n');
            match serde_json::from_str::<Message>(text) {
                Ok(message) => {
                    self.shared.log.note("recv", text);
                    self.take(message, text);
                }
                Err(error) => self.shared.log.note("bad_line", &error.to_string()),
            }
        }
    }

    fn take(&mut self, message: Message, text: &str) {
        let Some(method) = message.method.clone() else { return self.take_answer(text) };
        if message.id.is_none() {
            return self.take_notification(&method, &message);
        }
        self.maybe_exit(&method);
        let script = &self.shared.script;
        if script.hang.contains(&method) || (method == "ping" && script.ping == Ping::Silent) {
            return;
        }
        let delay = script.delay_ms.get(&method).copied().unwrap_or(0);
        let shared = self.shared.clone();
        let initialized = self.initialized;
        // Everything that may take time runs beside the reader, as in a concurrent server.
        let waits = delay > 0 || method == "initialize" && !script.ask_before_initialize.is_empty();
        if waits || method == "tools/call" && tools::takes_time(&message) {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(delay));
                answer(&shared, &method, &message, initialized);
            });
        } else {
            answer(&shared, &method, &message, initialized);
        }
    }

    fn take_answer(&self, text: &str) {
        let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
        let waiting = self.shared.asked.lock().expect("no holder panics").remove(&value["id"].to_string());
        if let Some(tx) = waiting {
            let _ = tx.send(value);
        }
    }

    fn take_notification(&mut self, method: &str, message: &Message) {
        match method {
            "notifications/initialized" => {
                self.initialized = true;
                for line in &self.shared.script.after_initialized {
                    self.shared.out.raw(format!("{line}\n").as_bytes());
                }
            }
            "notifications/cancelled" => {
                let id = message.params_value()["requestId"].to_string();
                self.shared.cancelled.lock().expect("no holder panics").insert(id);
                self.shared.cancel_came.notify_all();
            }
            _ => {}
        }
    }

    fn maybe_exit(&mut self, method: &str) {
        let count = self.seen.entry(method.to_owned()).or_default();
        *count += 1;
        if let Some(exit) = &self.shared.script.exit_on
            && exit.method == method
            && exit.nth == *count
        {
            self.shared.log.note("exit", &exit.code.to_string());
            std::process::exit(exit.code);
        }
    }
}

fn answer(shared: &Arc<Shared>, method: &str, message: &Message, initialized: bool) {
    let id = message.id_text();
    let script = &shared.script;
    if let Some(error) = script.errors.get(method) {
        return shared.error(&id, error);
    }
    if let Some(result) = script.raw_results.get(method) {
        return shared.result(&id, result);
    }
    if let Some(result) = script.results.get(method) {
        return shared.result(&id, &result.to_string());
    }
    if script.modern != Modern::No && modern::answer(shared, &id, method, message) {
        return;
    }
    match method {
        "initialize" => {
            for request in &script.ask_before_initialize {
                shared.ask(request);
            }
            shared.result(&id, &initialize(script, &message.params_value()).to_string());
        }
        "tools/list" if script.strict_initialized && !initialized => {
            shared.error(&id, &json!({"code": -32600, "message": "not initialized"}));
        }
        "tools/list" => {
            let tools = shared.tools.lock().expect("no holder panics");
            let page = catalog::page(&tools, script.paging.as_ref(), message.params_value().get("cursor"));
            shared.result(&id, &page.to_string());
        }
        "tools/call" => tools::call(shared, message),
        "ping" if script.ping == Ping::Ok => shared.result(&id, "{}"),
        "ping" => shared.error(&id, &json!({"code": -32603, "message": "Unknown method: ping"})),
        _ => shared.error(&id, &json!({"code": -32601, "message": "Method not found"})),
    }
}

fn initialize(script: &Script, params: &Value) -> Value {
    let version =
        if script.version.is_empty() { params["protocolVersion"].clone() } else { json!(script.version) };
    let name = if script.name.is_empty() { "fake" } else { &script.name };
    let capabilities = script.capabilities.clone().unwrap_or_else(|| json!({"tools": {"listChanged": true}}));
    let mut result = json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": name, "version": "1.0.0"}});
    if let Some(instructions) = &script.instructions {
        result["instructions"] = json!(instructions);
    }
    result
}
