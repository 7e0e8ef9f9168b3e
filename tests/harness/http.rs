//! A scripted HTTP server on loopback: what it answers is a closure, what it was asked is kept.
//!
//! One thread for each connection, HTTP/1.1 with keep-alive. Promise: every request is recorded whole
//! before it is answered; dropping the server closes its port and every connection.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Got {
    /// `POST`, `GET`, `DELETE`.
    pub method: String,
    /// Path and query; the whole address when we are used as a proxy.
    pub target: String,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// The body as JSON; null when it is none.
    pub json: Value,
    /// Which connection, counted from 1.
    pub connection: usize,
    /// When it was complete.
    pub at: Instant,
}

impl Got {
    /// The first header of this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The MCP method of the body; empty when there is none.
    pub fn mcp(&self) -> &str {
        self.json["method"].as_str().unwrap_or_default()
    }
}

type Handler = dyn Fn(&Got, &mut Answer<'_>) + Send + Sync;

#[derive(Debug, Default)]
struct Kept {
    seen: Mutex<Vec<Got>>,
    open: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    stop: AtomicBool,
}

/// A server that answers by script.
#[derive(Debug)]
pub struct HttpFake {
    address: SocketAddr,
    kept: Arc<Kept>,
}

impl HttpFake {
    /// On a free port of 127.0.0.1.
    pub fn start(handler: impl Fn(&Got, &mut Answer<'_>) + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", handler)
    }

    /// On this address.
    ///
    /// # Panics
    /// When it is taken.
    pub fn at(address: &str, handler: impl Fn(&Got, &mut Answer<'_>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let address = listener.local_addr().expect("it is bound");
        let kept = Arc::new(Kept::default());
        let handler: Arc<Handler> = Arc::new(handler);
        let shared = kept.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
                if let Ok(clone) = stream.try_clone() {
                    shared.open.lock().expect("no holder panics").push(clone);
                }
                let (kept, handler) = (shared.clone(), handler.clone());
                std::thread::spawn(move || serve(&stream, number, &kept, &*handler));
            }
        });
        Self { address, kept }
    }

    /// `http://127.0.0.1:PORT/mcp`.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Everything it was asked so far.
    pub fn seen(&self) -> Vec<Got> {
        self.kept.seen.lock().expect("no holder panics").clone()
    }

    /// What it was asked with this MCP method.
    pub fn asked(&self, mcp: &str) -> Vec<Got> {
        self.seen().into_iter().filter(|got| got.mcp() == mcp).collect()
    }

    /// Requests with this HTTP method.
    pub fn with_verb(&self, verb: &str) -> Vec<Got> {
        self.seen().into_iter().filter(|got| got.method == verb).collect()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.kept.connections.load(Ordering::Relaxed)
    }

    /// Closes all open connections; new ones are accepted.
    pub fn hang_up(&self) {
        for stream in self.kept.open.lock().expect("no holder panics").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for HttpFake {
    fn drop(&mut self) {
        self.kept.stop.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then closes the port.
        let _ = TcpStream::connect(self.address);
        self.hang_up();
    }
}

fn serve(stream: &TcpStream, connection: usize, kept: &Kept, handler: &Handler) {
    let Ok(mut input) = stream.try_clone().map(BufReader::new) else { return };
    while let Some(got) = read(&mut input, connection) {
        kept.seen.lock().expect("no holder panics").push(got.clone());
        let mut answer = Answer { stream, begun: false, streaming: false, close: false };
        handler(&got, &mut answer);
        if answer.streaming {
            answer.chunk("");
        } else if !answer.begun && !answer.close {
            answer.status(202, &[], "");
        }
        if answer.close {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn read(input: &mut BufReader<TcpStream>, connection: usize) -> Option<Got> {
    let mut line = String::new();
    input.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)];
    input.read_exact(&mut body).ok()?;
    let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Got { method, target, headers, body, json, connection, at: Instant::now() })
}

/// Writes the answer to one request; without a word from the script it is 202 and empty.
#[derive(Debug)]
pub struct Answer<'a> {
    stream: &'a TcpStream,
    begun: bool,
    streaming: bool,
    close: bool,
}

impl Answer<'_> {
    /// A whole answer.
    pub fn status(&mut self, code: u16, headers: &[(&str, &str)], body: &str) {
        let mut head = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        self.raw(format!("{head}\r\n{body}").as_bytes());
    }

    /// 200 with a JSON body as it stands.
    pub fn json_text(&mut self, headers: &[(&str, &str)], body: &str) {
        let all = [&[("content-type", "application/json")], headers].concat();
        self.status(200, &all, body);
    }

    /// 200 with a JSON body.
    pub fn json(&mut self, body: &Value) {
        self.json_text(&[], &body.to_string());
    }

    /// Bytes as they are; nothing is added.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.begun = true;
        if (&mut &*self.stream).write_all(bytes).is_err() {
            self.close = true;
        }
    }

    /// Begins a stream of events.
    pub fn stream(&mut self, headers: &[(&str, &str)]) {
        let mut head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n".to_owned();
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        self.raw(format!("{head}\r\n").as_bytes());
        self.streaming = true;
    }

    /// A piece of the stream as it stands; false when nobody reads any more.
    pub fn chunk(&mut self, text: &str) -> bool {
        self.raw(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
        !self.close
    }

    /// One message as an event.
    pub fn event(&mut self, message: &Value) -> bool {
        self.chunk(&format!("data: {message}\n\n"))
    }

    /// Breaks the connection off where it is.
    pub fn hang_up(&mut self) {
        self.streaming = false;
        self.close = true;
    }

    /// Keeps a stream open until nobody reads any more, at most `limit`.
    pub fn hold(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        while Instant::now() < end && self.chunk(": keep-alive\n\n") {
            crate::wait::pause(Duration::from_millis(20));
        }
    }
}

/// What a plain MCP server with the tools `echo` and `slow` answers to a request; `None` for
/// notifications.
pub fn plain(request: &Value) -> Option<Value> {
    let id = request.get("id")?;
    let result = match request["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "fake", "version": "1"}}),
        "tools/list" => json!({"tools": [
            {"name": "echo", "inputSchema": {"type": "object"}},
            {"name": "slow", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}]}),
        "tools/call" => {
            let text = request["params"]["arguments"]["text"].as_str().unwrap_or("nothing");
            json!({"content": [{"type": "text", "text": text}]})
        }
        "ping" => json!({}),
        _ => {
            return Some(
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "method not found"}}),
            );
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// A plain server: JSON answers, no session, no stream.
pub fn plain_server(got: &Got, answer: &mut Answer<'_>) {
    match (got.method.as_str(), plain(&got.json)) {
        ("POST", Some(reply)) => answer.json(&reply),
        ("POST", None) => answer.status(202, &[], ""),
        _ => answer.status(405, &[], ""),
    }
}
