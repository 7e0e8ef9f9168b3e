//! An HTTP client of the daemon's listener, by hand: a test sees every byte of what came.
//!
//! One connection for each request. Promise: reading ends at the limit of [`SOON`]; nothing is followed or repeated.

use crate::wait::SOON;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A client of one listener.
#[derive(Debug, Clone)]
pub struct HttpClient {
    /// `host:port`.
    pub authority: String,
    /// What it shows as its bearer token.
    pub token: Option<String>,
    /// What goes with every request besides.
    pub headers: Vec<(String, String)>,
}

/// A response whose body may still be coming.
#[derive(Debug)]
pub struct HttpReply {
    /// The status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    /// What is left of the chunk that is being read; `None`: the body is not chunked.
    chunk: Option<usize>,
    length: usize,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its id, where it has one.
    pub id: Option<String>,
    /// Its data, byte for byte.
    pub data: String,
}

impl Event {
    /// Its data as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or(Value::Null)
    }
}

impl HttpClient {
    /// A client of the listener at `url`.
    pub fn of(url: &str, token: Option<&str>) -> Self {
        let rest = url.strip_prefix("http://").expect("an address of the listener");
        let authority = rest.split('/').next().unwrap_or_default().to_owned();
        Self { authority, token: token.map(ToOwned::to_owned), headers: Vec::new() }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut more = self.clone();
        more.headers.push((name.to_owned(), value.to_owned()));
        more
    }

    /// The same in another session.
    #[must_use]
    pub fn in_session(&self, id: &str) -> Self {
        self.with("Mcp-Session-Id", id).with("MCP-Protocol-Version", "2025-11-25")
    }

    /// Sends a request as it stands and gives what comes back.
    ///
    /// # Panics
    /// When nothing comes in time.
    pub fn raw(&self, head: &str, body: &[u8]) -> HttpReply {
        let mut stream = TcpStream::connect(&self.authority).expect("the listener is open");
        stream.set_read_timeout(Some(SOON)).expect("a socket takes a limit");
        stream.write_all(head.as_bytes()).expect("the listener reads");
        // A server that refuses early may have closed already.
        let _ = stream.write_all(body);
        HttpReply::read(stream)
    }

    /// Any request to `path`.
    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> HttpReply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let own = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut add = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if !own("host") {
            add("Host", &self.authority);
        }
        if !own("accept") {
            add("Accept", "application/json, text/event-stream");
        }
        if !own("content-type") && method == "POST" {
            add("Content-Type", "application/json");
        }
        if let Some(token) = self.token.as_deref().filter(|_| !own("authorization")) {
            add("Authorization", &format!("Bearer {token}"));
        }
        self.headers.iter().for_each(|(name, value)| add(name, value));
        if method == "POST" {
            add("Content-Length", &body.len().to_string());
        }
        head.push_str("\r\n");
        self.raw(&head, body)
    }

    /// POST of one message.
    pub fn post(&self, message: &Value) -> HttpReply {
        self.send("POST", "/mcp", message.to_string().as_bytes())
    }

    /// POST of a request, and its answer, whatever form that takes.
    pub fn request(&self, id: &Value, method: &str, params: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut reply = self.post(&message);
        loop {
            let found = if reply.is_stream() { reply.event().map(|e| e.json()) } else { Some(reply.json()) };
            let found = found.unwrap_or_else(|| panic!("no answer to {message}"));
            if found["id"] == *id || !reply.is_stream() {
                return found;
            }
        }
    }

    /// Shakes hands: a client in its new session.
    ///
    /// # Panics
    /// When there is none.
    pub fn initialize(&self, capabilities: &Value) -> Self {
        let mut reply = self.post(&json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": "2025-11-25", "capabilities": capabilities,
                        "clientInfo": { "name": "tester", "version": "1" } },
        }));
        let session = reply.header("mcp-session-id").map(ToOwned::to_owned);
        let said = reply.json();
        let session = session.unwrap_or_else(|| panic!("{} without a session: {said}", reply.status));
        assert_eq!(said["result"]["protocolVersion"], "2025-11-25", "{said}");
        let client = self.in_session(&session);
        let done = client.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(done.status, 202);
        client
    }
}

impl HttpReply {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let line = |reader: &mut BufReader<TcpStream>| {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a response in time");
            line.trim_end().to_owned()
        };
        let first = line(&mut reader);
        let status = first.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut headers = Vec::new();
        loop {
            let next = line(&mut reader);
            let Some((name, value)) = next.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut reply = Self { status, headers, reader, chunk: None, length: 0 };
        reply.length = reply.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        reply.chunk = reply.header("transfer-encoding").map(|_| 0);
        reply
    }

    /// The first header of this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is a stream of events.
    pub fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The whole body.
    pub fn body(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(byte) = self.byte() {
            out.push(byte);
        }
        out
    }

    /// The whole body as JSON; null where it is none.
    pub fn json(&mut self) -> Value {
        serde_json::from_slice(&self.body()).unwrap_or(Value::Null)
    }

    /// The next event; `None`: the stream is over.
    pub fn event(&mut self) -> Option<Event> {
        let mut event = Event { id: None, data: String::new() };
        let mut any = false;
        loop {
            let line = self.line()?;
            match line.split_once(':') {
                _ if line.is_empty() && any => return Some(event),
                None | Some(("", _)) => {}
                Some((field, value)) => {
                    let value = value.strip_prefix(' ').unwrap_or(value);
                    any = true;
                    match field {
                        "id" => event.id = Some(value.to_owned()),
                        "data" => event.data.push_str(value),
                        _ => {}
                    }
                }
            }
        }
    }

    /// The next event that carries a message.
    pub fn message(&mut self) -> Option<Value> {
        loop {
            let event = self.event()?;
            if !event.data.is_empty() {
                return Some(event.json());
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => return String::from_utf8(line).ok(),
                byte => line.push(byte),
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        match &mut self.chunk {
            None if self.length == 0 => return None,
            None => self.length -= 1,
            Some(0) => {
                let mut size = String::new();
                while size.trim().is_empty() {
                    size.clear();
                    if self.reader.read_line(&mut size).ok()? == 0 {
                        return None;
                    }
                }
                let size = usize::from_str_radix(size.trim(), 16).ok().filter(|size| *size > 0)?;
                self.chunk = Some(size - 1);
            }
            Some(left) => *left -= 1,
        }
        let mut byte = [0];
        self.reader.read_exact(&mut byte).ok()?;
        Some(byte[0])
    }
}

impl crate::World {
    /// A client of the listener of this world, once that is open, with the generated token if there is one.
    ///
    /// # Panics
    /// When it does not open in time.
    pub fn http(&self) -> HttpClient {
        let status = crate::wait::wait_some("the HTTP listener is open", SOON, || {
            let http = self.ctl(["status", "--json"]).succeeds().json()["http"].clone();
            (http["trouble"] == "" && http["url"].is_string()).then_some(http)
        });
        let file = status["token"].as_str().filter(|place| place.starts_with('/'));
        let token = file.map(|file| std::fs::read_to_string(file).expect("the token file can be read"));
        let url = status["url"].as_str().expect("checked");
        HttpClient::of(url, token.as_deref().map(str::trim))
    }
}
