//! Stdout of the fake server: one message at a time, in the framing the script asks for.

use hermes_tests::script::Framing;
use std::io::Write;
use std::sync::Mutex;

/// The only writer of stdout; whole messages, whatever thread they come from.
pub(crate) struct Output {
    lock: Mutex<()>,
    framing: Framing,
    prefix: String,
}

impl Output {
    pub(crate) fn new(framing: Framing, prefix: String) -> Self {
        Self { lock: Mutex::new(()), framing, prefix }
    }

    /// Writes one message in the script's framing.
    pub(crate) fn message(&self, json: &str) {
        self.message_in(self.framing, json);
    }

    /// Writes one message in another framing.
    pub(crate) fn message_in(&self, framing: Framing, json: &str) {
        let prefix = &self.prefix;
        match framing {
            Framing::Line => self.raw(format!("{prefix}{json}\n").as_bytes()),
            Framing::Bom => self.raw(format!("\u{FEFF}{prefix}{json}\n").as_bytes()),
            Framing::Crlf => self.raw(format!("{prefix}{json}\r\n").as_bytes()),
            Framing::ContentLength => {
                self.raw(format!("Content-Length: {}\r\n\r\n{json}", json.len()).as_bytes());
            }
            Framing::Pretty => {
                let value: serde_json::Value = serde_json::from_str(json).expect("made by this program");
                let pretty = serde_json::to_string_pretty(&value).expect("was parsed a line above");
                self.raw(format!("{pretty}\n").as_bytes());
            }
            Framing::FourKib => self.pieces(format!("{prefix}{json}\n").as_bytes(), 4096),
            Framing::Bytes => self.pieces(format!("{prefix}{json}\n").as_bytes(), 1),
            Framing::Borders => self.borders(format!("{prefix}{json}\n").as_bytes()),
        }
    }

    /// Writes bytes as they are, in one write where the pipe allows.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        self.pieces(bytes, bytes.len().max(1));
    }

    fn pieces(&self, bytes: &[u8], size: usize) {
        let _guard = self.lock.lock().expect("no writer panics");
        bytes.chunks(size).for_each(put);
    }

    fn borders(&self, bytes: &[u8]) {
        let _guard = self.lock.lock().expect("no writer panics");
        let edge = 64.min(bytes.len() / 2);
        bytes[..edge].chunks(1).for_each(put);
        put(&bytes[edge..bytes.len() - edge]);
        bytes[bytes.len() - edge..].chunks(1).for_each(put);
    }
}

/// One write and a flush; a closed pipe is not this program's concern.
fn put(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes);
    let _ = out.flush();
}
