//! Answers to a JSON-RPC batch, sent together (MCP 2025-03-26, Base Protocol, batching).
//!
//! Pure. A batch of nothing but notifications has no answer.

use std::sync::{Arc, Mutex};

/// The answers of one batch that are there so far.
#[derive(Debug, Clone)]
pub struct Batch {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    waiting: usize,
    lines: Vec<Vec<u8>>,
}

impl Batch {
    /// A batch with `waiting` requests.
    pub fn of(waiting: usize) -> Self {
        Self { state: Arc::new(Mutex::new(State { waiting, lines: Vec::new() })) }
    }

    /// One request is over, with its response line or, if it was cancelled, without. Returns the
    /// whole answer when it was the last one and there is anything to say.
    pub fn done(&self, line: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let mut state = self.state.lock().expect("nothing panics while holding it");
        state.waiting = state.waiting.saturating_sub(1);
        state.lines.extend(line);
        if state.waiting > 0 || state.lines.is_empty() {
            return None;
        }
        let mut all = vec![b'['];
        all.extend(state.lines.join(&b','));
        all.push(b']');
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_comes_once_with_everything_that_was_answered() {
        let batch = Batch::of(3);
        assert_eq!(batch.done(Some(b"1".to_vec())), None);
        assert_eq!(batch.done(None), None);
        assert_eq!(batch.done(Some(b"2".to_vec())), Some(b"[1,2]".to_vec()));
        assert_eq!(Batch::of(1).done(None), None);
    }
}
