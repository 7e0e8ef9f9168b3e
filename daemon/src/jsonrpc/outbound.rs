//! Lines waiting to be written to one peer: whole lines, one writer, never blocking.
//!
//! Pure but for the `writev` itself. Knows of every line whether its first byte has left.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// Slices handed to one `writev`.
const BATCH: usize = 64;

/// The queue of one pipe.
#[derive(Debug, Default)]
pub struct Outbound {
    lines: VecDeque<Line>,
    /// Bytes of the first line that have left.
    front_written: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Line {
    id: Option<u64>,
    bytes: Vec<u8>,
}

impl Outbound {
    /// Queues one line; `id` names the request in it, if it is one.
    pub fn push(&mut self, id: Option<u64>, mut bytes: Vec<u8>) {
        bytes.push(b'\n');
        self.bytes += bytes.len();
        self.lines.push_back(Line { id, bytes });
    }

    /// Whether everything has left.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Bytes that have not left.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no byte of request `id` has left.
    pub fn is_unwritten(&self, id: u64) -> bool {
        let skip = usize::from(self.front_written > 0);
        self.lines.iter().skip(skip).any(|line| line.id == Some(id))
    }

    /// Takes request `id` back if no byte of it has left.
    pub fn take_back(&mut self, id: u64) -> bool {
        let skip = usize::from(self.front_written > 0);
        let Some(at) = self.lines.iter().skip(skip).position(|line| line.id == Some(id)) else {
            return false;
        };
        let line = self.lines.remove(at + skip).expect("position is inside");
        self.bytes -= line.bytes.len();
        true
    }

    /// Writes as much as `write` takes.
    ///
    /// # Errors
    /// Whatever `write` returns, but for `WouldBlock`, which ends the round.
    pub fn flush(&mut self, mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        while !self.lines.is_empty() {
            let mut slices = [IoSlice::new(&[]); BATCH];
            let mut used = 0;
            for (slot, line) in slices.iter_mut().zip(&self.lines) {
                let from = if used == 0 { self.front_written } else { 0 };
                *slot = IoSlice::new(&line.bytes[from..]);
                used += 1;
            }
            match write(&slices[..used]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.advance(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn advance(&mut self, mut n: usize) {
        self.bytes -= n;
        while n > 0 {
            let front = self.lines.front().expect("writev wrote no more than it was given");
            let left = front.bytes.len() - self.front_written;
            if n < left {
                self.front_written += n;
                return;
            }
            n -= left;
            self.front_written = 0;
            self.lines.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whole_lines_leave_in_order_whatever_the_pipe_takes(
            lines in proptest::collection::vec("[a-z]{0,40}", 1..20),
            sizes in proptest::collection::vec(0usize..30, 1..200),
        ) {
            let mut queue = Outbound::default();
            for (i, line) in lines.iter().enumerate() {
                queue.push(Some(i as u64), line.clone().into_bytes());
            }
            let mut out = Vec::new();
            for size in sizes {
                let mut left = size;
                queue.flush(|slices| {
                    let all: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
                    let n = left.min(all.len());
                    if n == 0 { return Err(io::ErrorKind::WouldBlock.into()); }
                    out.extend_from_slice(&all[..n]);
                    left -= n;
                    Ok(n)
                }).unwrap();
            }
            let expected: String = lines.iter().map(|l| format!("{l}\n")).collect();
            prop_assert!(expected.as_bytes().starts_with(&out));
            prop_assert_eq!(queue.bytes(), expected.len() - out.len());
        }
    }

    #[test]
    fn a_request_can_be_taken_back_until_its_first_byte_left() {
        let mut queue = Outbound::default();
        queue.push(Some(1), b"one".to_vec());
        queue.push(Some(2), b"two".to_vec());
        let mut first = true;
        queue
            .flush(|_| if std::mem::take(&mut first) { Ok(1) } else { Err(io::ErrorKind::WouldBlock.into()) })
            .unwrap();
        assert!(!queue.is_unwritten(1) && queue.is_unwritten(2));
        assert!(!queue.take_back(1) && queue.take_back(2) && !queue.take_back(2));
        assert_eq!(queue.bytes(), 3);
    }
}
