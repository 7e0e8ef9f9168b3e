//! A small MCP client over the stdio of a child process, as any client drives a server.

use super::stage::{Interrupt, wait_for};
use anyhow::{Context, anyhow, bail, ensure};
use hermes_proto::shim::framing::{DEFAULT_MAX_LINE, Line, LineBuffer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The revision the demo speaks.
const PROTOCOL: &str = "2025-11-25";
/// Longest wait for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often a wait looks for Ctrl-C.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// One running session.
#[derive(Debug)]
pub(crate) struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    lines: LineBuffer,
    last_id: u64,
    interrupt: Interrupt,
}

impl Session {
    /// Starts the command and opens the session; returns it with the answer to `initialize`.
    pub(crate) fn open(mut command: Command, interrupt: &Interrupt) -> anyhow::Result<(Self, Value)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start the session")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("no pipe to the session")?;
        let lines = LineBuffer::new(DEFAULT_MAX_LINE);
        let mut session = Self { child, stdin, stdout, lines, last_id: 0, interrupt: interrupt.clone() };
        let client = json!({ "name": "hermesctl demo", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({ "protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client });
        let hello = session.request("initialize", params, &mut |_| {})?;
        session.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok((session, hello))
    }

    /// The process at the other end.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks and waits; notifications that come meanwhile go to `note`.
    ///
    /// # Errors
    /// The JSON-RPC error in the answer, a broken pipe, Ctrl-C, or no answer within 30 s.
    pub(crate) fn request(
        &mut self,
        method: &str,
        params: Value,
        note: &mut dyn FnMut(&Value),
    ) -> anyhow::Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        let end = Instant::now() + ANSWER_WITHIN;
        loop {
            let mut message = self.next(end)?.with_context(|| format!("no answer to {method}"))?;
            if message["method"].is_null() && message["id"] == id {
                if let Some(error) = message.get("error") {
                    bail!("{method}: {}", error["message"].as_str().unwrap_or("error without a message"));
                }
                return Ok(message["result"].take());
            }
            self.meet(&message, note)?;
        }
    }

    /// Calls a tool; a result that says it failed is an answer too.
    pub(super) fn call(
        &mut self,
        tool: &str,
        arguments: Value,
        note: &mut dyn FnMut(&Value),
    ) -> anyhow::Result<Value> {
        let token = format!("demo-{}", self.last_id + 1);
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": token } });
        self.request("tools/call", params, note)
    }

    /// Waits for a notification; `false` when the time is over.
    pub(super) fn wait_note(&mut self, method: &str, limit: Duration) -> anyhow::Result<bool> {
        let end = Instant::now() + limit;
        while let Some(message) = self.next(end)? {
            if message["method"] == method {
                return Ok(true);
            }
            self.meet(&message, &mut |_| {})?;
        }
        Ok(false)
    }

    /// Calls `tool` one after the other and returns the times in order of size.
    pub(super) fn measure(
        &mut self,
        tool: &str,
        arguments: &Value,
        calls: u32,
    ) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        // The first calls warm caches up on the way; they are not what one waits for later.
        for turn in 0..calls + 10 {
            let begun = Instant::now();
            let result =
                self.request("tools/call", json!({ "name": tool, "arguments": arguments }), &mut |_| {})?;
            ensure!(result["isError"] != true, "{tool} failed: {result}");
            if turn >= 10 {
                times.push(begun.elapsed());
            }
        }
        times.sort_unstable();
        Ok(times)
    }

    /// Closes stdin, as a client does at its end, and waits for the process.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        self.stdin = None;
        let ended = wait_for(Duration::from_secs(10), || self.child.try_wait().ok().flatten());
        let status = ended.context("the session did not end after its stdin was closed")?;
        ensure!(status.success(), "the session ended with {status}");
        Ok(())
    }

    fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("the session is closed")?;
        stdin.write_all(format!("{message}\n").as_bytes()).context("the session is gone")
    }

    /// Notes notifications; answers requests of the other side so that nobody waits for us.
    fn meet(&mut self, message: &Value, note: &mut dyn FnMut(&Value)) -> anyhow::Result<()> {
        match (message["method"].as_str(), message.get("id")) {
            (Some("ping"), Some(id)) => self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": {} })),
            (Some(method), Some(id)) => {
                let error = json!({ "code": -32601, "message": format!("the demo has no {method}") });
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
            }
            (Some(_), None) => {
                note(message);
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// The next message; `None` when the time is over.
    fn next(&mut self, end: Instant) -> anyhow::Result<Option<Value>> {
        loop {
            match self.lines.next_line() {
                Some(Line::Full(line)) => {
                    let shown = String::from_utf8_lossy(line);
                    return Ok(Some(
                        serde_json::from_slice(line).with_context(|| format!("no JSON: {shown}"))?,
                    ));
                }
                Some(Line::Oversized { bytes, .. }) => bail!("a message of {bytes} bytes"),
                None => {}
            }
            self.interrupt.check()?;
            if Instant::now() >= end {
                return Ok(None);
            }
            let mut fds = [PollFd::new(&self.stdout, PollFlags::IN)];
            match poll(&mut fds, Some(&LOOK_EVERY)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error).context("poll"),
            }
            match self.stdout.read(self.lines.room()).context("the session is gone")? {
                0 => return Err(anyhow!("the session ended")),
                n => self.lines.filled(n),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
