//! The client's requests that have no answer yet, with what it takes to end or repeat each.
//!
//! Pure. Promise: at most [`MAX_OPEN`] entries and [`MAX_KEPT`] bytes of kept lines; a request
//! above these bounds is refused or, if it cannot be kept, answered with an error after a loss.

use super::peek::Method;

/// Most requests a client may have open at one time.
pub(crate) const MAX_OPEN: usize = 4096;
/// Most bytes of request lines kept for sending them again.
pub(crate) const MAX_KEPT: usize = 4 * 1024 * 1024;

/// One request without an answer.
#[derive(Debug)]
pub(crate) struct Request {
    /// The id as the client wrote it.
    pub(crate) id: Box<[u8]>,
    /// Which rules hold for it.
    pub(crate) method: Method,
    /// Number of its line in the flow to the daemon.
    pub(crate) line: u64,
    /// The line itself, for everything but calls; `None` when it was too long to keep.
    pub(crate) raw: Option<Box<[u8]>>,
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Open {
    list: Vec<Request>,
    kept: usize,
}

impl Open {
    /// Whether another request would be too many.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_OPEN
    }

    /// Whether nothing waits for an answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The line to keep for a request, if it must be kept and fits.
    pub(crate) fn keep(&self, method: Method, line: &[u8]) -> Option<Box<[u8]>> {
        let wanted = match method {
            Method::Call => false,
            Method::Initialize | Method::Other => true,
        };
        (wanted && self.kept + line.len() <= MAX_KEPT).then(|| line.into())
    }

    /// Adds a request whose line was accepted.
    pub(crate) fn add(&mut self, request: Request) {
        self.kept += request.raw.as_ref().map_or(0, |raw| raw.len());
        self.list.push(request);
    }

    /// Puts a request that will be sent again before all others.
    pub(crate) fn add_first(&mut self, request: Request) {
        self.kept += request.raw.as_ref().map_or(0, |raw| raw.len());
        self.list.insert(0, request);
    }

    /// Takes out the oldest request with this id: it was answered or cancelled.
    pub(crate) fn close(&mut self, id: &[u8]) -> Option<Request> {
        let at = self.list.iter().position(|request| *request.id == *id)?;
        let request = self.list.remove(at);
        self.kept -= request.raw.as_ref().map_or(0, |raw| raw.len());
        Some(request)
    }

    /// Takes out all requests whose line has a number below `line`, oldest first.
    pub(crate) fn take_before(&mut self, line: u64) -> Vec<Request> {
        let (taken, left) = std::mem::take(&mut self.list).into_iter().partition(|r| r.line < line);
        self.list = left;
        self.kept = self.list.iter().filter_map(|r| r.raw.as_ref()).map(|raw| raw.len()).sum();
        taken
    }
}
