//! A messaging platform on this machine: it records requests and answers as it is told.
//!
//! Std only, so that the unit tests of the daemon use the same file. Promise: requests are recorded
//! whole before they are answered; dropped, it ends its threads. May not touch: anything but its port.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time that a test waits for a request.
const LIMIT: Duration = Duration::from_secs(60);

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// `POST`, `PUT`, …
    pub method: String,
    /// The target as written; absolute where it came as to a proxy.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The bytes of the body.
    pub body: Vec<u8>,
    /// When it was read.
    pub at: Instant,
}

impl Recorded {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What the platform does with a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Answers with a status, further headers and JSON.
    Json(u16, Vec<(&'static str, String)>, Value),
    /// Closes the connection without an answer.
    Cut,
    /// Answers nothing until the platform ends.
    Hold,
}

impl Reply {
    /// An answer with status 200.
    pub fn ok(body: Value) -> Self {
        Self::Json(200, Vec::new(), body)
    }

    /// An answer with any status.
    pub fn status(status: u16, body: Value) -> Self {
        Self::Json(status, Vec::new(), body)
    }
}

type Script = dyn Fn(usize, &Recorded) -> Reply + Send + Sync;

/// A platform that runs until it is dropped.
pub struct ChatApi {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    requests: Mutex<Vec<Recorded>>,
    script: Box<Script>,
    ended: AtomicBool,
    /// A client closed a connection whose request was held.
    hung_up: AtomicBool,
    arrived: std::sync::Condvar,
}

impl std::fmt::Debug for ChatApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatApi").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ChatApi {
    /// A platform that takes everything, whichever it is asked to be.
    pub fn friendly() -> Self {
        Self::start(|_, request| friendly(request))
    }

    /// A platform whose answers `script` gives; it gets the number of the request, from 0.
    pub fn start(script: impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            script: Box::new(script),
            ended: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            arrived: std::sync::Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if for_thread.ended.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&for_thread);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Everything that came so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `count` requests came.
    ///
    /// # Panics
    /// After 60 s.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Recorded> {
        let requests = self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let (requests, waited) = self
            .shared
            .arrived
            .wait_timeout_while(requests, LIMIT, |requests| requests.len() < count)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{} of {count} requests came", requests.len());
        requests.clone()
    }
}

impl ChatApi {
    /// Waits until a client has closed the connection of a request that is held.
    ///
    /// # Panics
    /// After 60 s.
    #[track_caller]
    pub fn wait_for_hang_up(&self) {
        let requests = self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let hung_up = |_: &mut Vec<Recorded>| !self.shared.hung_up.load(Ordering::Acquire);
        let (_guard, waited) = self
            .shared
            .arrived
            .wait_timeout_while(requests, LIMIT, hung_up)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "nobody hung up");
    }
}

impl Drop for ChatApi {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.arrived.notify_all();
        // Wakes the accepting thread, which then sees the flag.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let Some(request) = read(&stream) else { return };
    let number = {
        let mut requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request.clone());
        requests.len() - 1
    };
    shared.arrived.notify_all();
    match (shared.script)(number, &request) {
        Reply::Cut => {}
        Reply::Hold => hold(&stream, shared),
        Reply::Json(status, headers, body) => {
            let body = body.to_string();
            let mut head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n",
                body.len()
            );
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            // A client that is gone misses nothing.
            let _ = (&stream).write_all(format!("{head}\r\n{body}").as_bytes());
        }
    }
}

/// Keeps the connection until the client closes it, or the platform ends.
fn hold(mut stream: &TcpStream, shared: &Shared) {
    // Only so that the end of the platform is noticed; nobody waits for it.
    let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
    while !shared.ended.load(Ordering::Acquire) {
        match stream.read(&mut [0; 64]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    shared.hung_up.store(true, Ordering::Release);
    // Under the lock, or one that is about to wait would miss it.
    drop(shared.requests.lock());
    shared.arrived.notify_all();
}

fn read(stream: &TcpStream) -> Option<Recorded> {
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let header =
        |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let mut body = Vec::new();
    if let Some(length) = header("content-length").and_then(|value| value.parse().ok()) {
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
    } else if header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
    Some(Recorded { method, path, headers, body, at: Instant::now() })
}

/// The answer of whichever platform has such a path.
pub fn friendly(request: &Recorded) -> Reply {
    let path = request.path.as_str();
    let is = |part: &str| path.contains(part);
    Reply::ok(if is("/sendMessage") || is("/sendPhoto") || is("/sendDocument") {
        json!({ "ok": true, "result": { "message_id": 42 } })
    } else if is("/threads") {
        return Reply::status(201, json!({ "id": "7001", "message": { "id": "7002" } }));
    } else if is("/channels/") {
        json!({ "id": "m1" })
    } else if is("/chat.postMessage") {
        json!({ "ok": true, "ts": "1.1", "channel": request.json()["channel"] })
    } else if is("/conversations.open") {
        json!({ "ok": true, "channel": { "id": "D0OPENED1" } })
    } else if is("/api/v1/rpc") {
        json!({ "jsonrpc": "2.0", "result": { "timestamp": 1 }, "id": request.json()["id"] })
    } else if is("/api/services/notify") {
        json!([])
    } else if is("/_matrix/media/") {
        json!({ "content_uri": "mxc://x/y" })
    } else if is("/_matrix/") {
        json!({ "event_id": "$ev1" })
    } else if is("/robot") {
        json!({ "errcode": 0, "errmsg": "ok" })
    } else {
        json!({ "success": true, "messageId": "w1" })
    })
}
