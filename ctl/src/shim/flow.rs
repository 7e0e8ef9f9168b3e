//! One direction of the shim: bytes in, whole lines out, nothing copied on the way.
//!
//! Pure. Promise: only lines that were accepted are handed out, whole and in order, whatever the
//! chunking; what the other side did not take whole can be sent again. Memory is bounded by the
//! longest line plus what the caller lets pile up in [`pending`](Flow::pending).

use hermes_proto::shim::framing::HEAD_BYTES;
use memchr::memchr;
use std::collections::VecDeque;

/// How much room a read gets.
const CHUNK: usize = 64 * 1024;
/// A buffer above this size is given back once it is empty.
const KEEP: usize = 256 * 1024;

/// What the next line is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A whole line without its newline. [`Flow::accept`] or [`Flow::discard`] must follow.
    Line(&'a [u8]),
    /// A line over the limit ended; its bytes are gone and nothing needs to follow.
    Oversized {
        /// Its length in bytes.
        bytes: usize,
        /// Its first bytes: enough to find an id.
        head: &'a [u8],
    },
}

/// A buffer of lines: `start..ready` accepted, `ready..end` not looked at yet or incomplete.
#[derive(Debug)]
pub(crate) struct Flow {
    buf: Vec<u8>,
    /// First byte of the oldest line that was not taken whole.
    start: usize,
    /// First byte that was not taken; within the line at `start`.
    sent: usize,
    /// End of the accepted lines.
    ready: usize,
    /// First byte that was not searched for a newline.
    scanned: usize,
    /// End of the valid bytes.
    end: usize,
    /// Lengths of the accepted lines with their newlines, the one at `start` first.
    lens: VecDeque<usize>,
    /// Number of the line at `start`.
    first: u64,
    /// End of the line that [`Flow::next_line`] gave out, newline included.
    found: usize,
    max_line: usize,
    /// Bytes of an oversized line dropped so far.
    skipped: usize,
    /// The beginning of the oversized line that was reported last or is being skipped.
    head: Vec<u8>,
}

impl Flow {
    /// An empty flow whose lines are at most `max_line` bytes long, newline included.
    pub(crate) fn new(max_line: usize) -> Self {
        Self {
            buf: Vec::new(),
            start: 0,
            sent: 0,
            ready: 0,
            scanned: 0,
            end: 0,
            lens: VecDeque::new(),
            // Lines that are put in front get lower numbers.
            first: 1 << 32,
            found: 0,
            max_line,
            skipped: 0,
            head: Vec::new(),
        }
    }

    /// Room for one read, never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.buf.is_empty() {
            self.buf = vec![0; CHUNK];
        }
        if self.buf.len() - self.end < CHUNK / 4 {
            self.shift_down();
            if self.buf.len() - self.end < CHUNK / 4 {
                // Double, so that a line of n bytes is copied O(n) in all.
                let grow = CHUNK.max(self.buf.len());
                self.buf.resize(self.buf.len() + grow, 0);
            }
        }
        &mut self.buf[self.end..]
    }

    /// Says that the first `n` bytes of [`room`](Self::room) hold data now.
    pub(crate) fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buf.len());
    }

    /// The next line that was neither accepted nor discarded, once its newline is here.
    pub(crate) fn next_line(&mut self) -> Option<Next<'_>> {
        let Some(at) = memchr(b'\n', &self.buf[self.scanned..self.end]) else {
            self.scanned = self.end;
            if self.skipped > 0 || self.end - self.ready >= self.max_line {
                self.keep_head(self.end);
                self.skipped += self.end - self.ready;
                self.discard_partial();
            }
            return None;
        };
        self.found = self.scanned + at + 1;
        let whole = self.skipped + (self.found - self.ready);
        if whole > self.max_line {
            self.keep_head(self.found - 1);
            self.skipped = 0;
            self.discard();
            return Some(Next::Oversized { bytes: whole - 1, head: &self.head });
        }
        Some(Next::Line(&self.buf[self.ready..self.found - 1]))
    }

    /// Remembers the beginning of an oversized line, which ends at `to` or later.
    fn keep_head(&mut self, to: usize) {
        if self.skipped == 0 {
            self.head.clear();
            self.head.extend_from_slice(&self.buf[self.ready..to.min(self.ready + HEAD_BYTES)]);
        }
    }

    /// The line that [`next_line`](Self::next_line) gave out, again.
    pub(crate) fn found_line(&self) -> &[u8] {
        &self.buf[self.ready..self.found.max(self.ready + 1) - 1]
    }

    /// Bytes after the last whole line.
    pub(crate) fn partial(&self) -> usize {
        self.end - self.ready
    }

    /// Lets the line that [`next_line`](Self::next_line) gave out pass; returns its number.
    pub(crate) fn accept(&mut self) -> u64 {
        self.lens.push_back(self.found - self.ready);
        self.ready = self.found;
        self.scanned = self.found;
        self.first + self.lens.len() as u64 - 1
    }

    /// Cuts out the line that [`next_line`](Self::next_line) gave out.
    pub(crate) fn discard(&mut self) {
        if self.start == self.ready {
            self.start = self.found;
            self.sent = self.found;
            self.ready = self.found;
        } else {
            self.buf.copy_within(self.found..self.end, self.ready);
            self.end -= self.found - self.ready;
        }
        self.scanned = self.ready;
        self.found = self.ready;
        self.release();
    }

    /// Drops the bytes after the last whole line, when their rest will never come.
    pub(crate) fn discard_partial(&mut self) {
        self.end = self.ready;
        self.scanned = self.ready;
        self.release();
    }

    /// Ends a last line that came without a newline.
    pub(crate) fn finish_partial(&mut self) {
        if self.end > self.ready {
            self.room()[0] = b'\n';
            self.filled(1);
        }
    }

    /// What waits to be taken; always ends with a whole line.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.buf[self.sent..self.ready]
    }

    /// Says that the first `n` bytes of [`pending`](Self::pending) were written.
    pub(crate) fn took(&mut self, n: usize) {
        self.sent = (self.sent + n).min(self.ready);
        while let Some(len) = self.lens.front().copied() {
            if self.start + len > self.sent {
                break;
            }
            self.pop_front(len);
        }
        self.release();
    }

    /// Makes a line that was written in part pending again as a whole, and returns the number of
    /// the first line that the other side cannot have read.
    ///
    /// A line that lacks only its newline counts as read: a peer may use the last line of a stream
    /// that ends without one.
    pub(crate) fn rewind(&mut self) -> u64 {
        if let Some(len) = self.lens.front().copied()
            && self.sent > self.start
            && self.sent + 1 >= self.start + len
        {
            self.pop_front(len);
        }
        self.sent = self.start;
        self.first
    }

    /// Puts a line (without newline) before everything that is pending; returns its number. Only
    /// after [`rewind`](Self::rewind), while nothing of the first pending line was taken.
    pub(crate) fn insert_front(&mut self, line: &[u8]) -> u64 {
        debug_assert_eq!(self.sent, self.start, "a line is being written");
        let at = self.start;
        self.insert(at, line);
        self.lens.push_front(line.len() + 1);
        self.ready += line.len() + 1;
        self.first -= 1;
        self.first
    }

    /// Puts a line (without newline) behind everything that is pending.
    pub(crate) fn append(&mut self, line: &[u8]) {
        let at = self.ready;
        self.insert(at, line);
        self.lens.push_back(line.len() + 1);
        self.ready += line.len() + 1;
    }

    /// Drops the first pending line. Only after [`rewind`](Self::rewind).
    pub(crate) fn drop_front(&mut self) {
        if let Some(len) = self.lens.front().copied() {
            self.pop_front(len);
            self.sent = self.start;
            self.release();
        }
    }

    /// Drops all accepted lines; what is incomplete stays. Only after [`rewind`](Self::rewind).
    pub(crate) fn drop_lines(&mut self) {
        self.first += self.lens.len() as u64;
        self.lens.clear();
        self.start = self.ready;
        self.sent = self.ready;
        self.release();
    }

    fn pop_front(&mut self, len: usize) {
        self.start += len;
        self.lens.pop_front();
        self.first += 1;
    }

    fn insert(&mut self, at: usize, line: &[u8]) {
        let len = line.len() + 1;
        if self.buf.len() - self.end < len {
            self.buf.resize(self.end + len, 0);
        }
        self.buf.copy_within(at..self.end, at + len);
        self.buf[at..at + len - 1].copy_from_slice(line);
        self.buf[at + len - 1] = b'\n';
        self.end += len;
        self.scanned += len;
        self.found += len;
    }

    /// Moves everything to the front of the buffer.
    fn shift_down(&mut self) {
        let by = self.start;
        if by == 0 {
            return;
        }
        self.buf.copy_within(by..self.end, 0);
        for at in [
            &mut self.start,
            &mut self.sent,
            &mut self.ready,
            &mut self.scanned,
            &mut self.end,
            &mut self.found,
        ] {
            *at = at.saturating_sub(by);
        }
    }

    /// Starts again at the front when nothing is left, and gives a large buffer back.
    fn release(&mut self) {
        if self.start != self.end {
            return;
        }
        for at in [
            &mut self.start,
            &mut self.sent,
            &mut self.ready,
            &mut self.scanned,
            &mut self.end,
            &mut self.found,
        ] {
            *at = 0;
        }
        if self.buf.len() > KEEP {
            self.buf = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(flow: &mut Flow, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = flow.room();
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            flow.filled(n);
            bytes = &bytes[n..];
        }
    }

    /// Discards lines that start with `#`, accepts the rest.
    fn sift(flow: &mut Flow) {
        while let Some(next) = flow.next_line() {
            match next {
                Next::Line(line) if line.starts_with(b"#") => flow.discard(),
                Next::Line(_) => {
                    flow.accept();
                }
                Next::Oversized { .. } => {}
            }
        }
    }

    proptest! {
        #[test]
        fn any_chunking_on_both_sides_gives_the_accepted_lines_whole(
            lines in proptest::collection::vec("#?[a-c]{0,12}", 0..40),
            reads in proptest::collection::vec(1usize..40, 1..40),
            writes in proptest::collection::vec(0usize..40, 1..40),
        ) {
            let input: String = lines.iter().map(|l| format!("{l}\n")).collect();
            let want: String =
                lines.iter().filter(|l| !l.starts_with('#') && l.len() < 10).map(|l| format!("{l}\n")).collect();
            let (mut flow, mut out) = (Flow::new(10), Vec::new());
            let (mut rest, mut turn) = (input.as_bytes(), 0);
            while !rest.is_empty() || !flow.pending().is_empty() {
                let n = reads[turn % reads.len()].min(rest.len());
                feed(&mut flow, &rest[..n]);
                rest = &rest[n..];
                sift(&mut flow);
                let n = (writes[turn % writes.len()] + usize::from(rest.is_empty())).min(flow.pending().len());
                out.extend_from_slice(&flow.pending()[..n]);
                flow.took(n);
                turn += 1;
            }
            prop_assert_eq!(String::from_utf8(out).unwrap(), want);
        }

        #[test]
        fn after_a_rewind_no_line_is_lost_and_none_is_cut(taken in 0usize..20) {
            let mut flow = Flow::new(99);
            feed(&mut flow, b"{one}\n{two}\n{three}\npart");
            sift(&mut flow);
            flow.took(taken);
            let before = flow.first;
            let first = flow.rewind();
            let rest = String::from_utf8(flow.pending().to_vec()).unwrap();
            let all = "{one}\n{two}\n{three}\n";
            prop_assert!(all.ends_with(&rest));
            // A line counts as read once its last brace is written.
            let read = all[..taken].matches('}').count() as u64;
            prop_assert_eq!(first, (1 << 32) + read);
            prop_assert!(first >= before);
        }
    }

    #[test]
    fn lines_put_in_front_and_behind_keep_clear_of_an_incomplete_one() {
        let mut flow = Flow::new(99);
        feed(&mut flow, b"a\nb\nhal");
        sift(&mut flow);
        flow.took(2);
        assert_eq!(flow.rewind(), (1 << 32) + 1);
        assert_eq!(flow.insert_front(b"first"), 1 << 32);
        flow.append(b"last");
        feed(&mut flow, b"f\n");
        sift(&mut flow);
        assert_eq!(flow.pending(), b"first\nb\nlast\nhalf\n");
    }

    #[test]
    fn an_endless_line_costs_constant_memory_and_is_reported_once() {
        let mut flow = Flow::new(1024 * 1024);
        for _ in 0..800 {
            feed(&mut flow, &[b'x'; 64 * 1024]);
            assert_eq!(flow.next_line(), None);
        }
        assert!(flow.buf.len() < 4 * 1024 * 1024, "kept {}", flow.buf.len());
        feed(&mut flow, b"\n{}\n");
        assert_eq!(
            flow.next_line(),
            Some(Next::Oversized { bytes: 800 * 64 * 1024, head: &[b'x'; HEAD_BYTES] })
        );
        assert_eq!(flow.next_line(), Some(Next::Line(b"{}")));
    }

    #[test]
    fn a_large_buffer_is_given_back_when_it_is_empty() {
        let mut flow = Flow::new(32 * 1024 * 1024);
        feed(&mut flow, &vec![b'x'; 8 * 1024 * 1024]);
        feed(&mut flow, b"\n");
        sift(&mut flow);
        flow.took(usize::MAX / 2);
        assert!(flow.buf.len() <= KEEP);
    }
}
