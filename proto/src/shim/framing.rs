//! Splits a byte stream into lines: the same result for any chunking, linear time, bounded memory.
//!
//! Pure. Used for shims, clients and MCP servers alike (MCP 2025-11-25, Transports, stdio:
//! messages are delimited by newlines and contain none). A line over the limit is skipped to its
//! end in constant memory and reported once. Splits at 0x0A before any decoding, so characters
//! cut by a read boundary stay whole.

/// Default longest line in bytes, newline included: 32 MiB.
pub const DEFAULT_MAX_LINE: usize = 32 * 1024 * 1024;

/// What is kept of an oversized line.
pub const HEAD_BYTES: usize = 4096;

/// How much room a read gets at least.
const READ_CHUNK: usize = 64 * 1024;

/// Buffers above this size are given back once they are empty.
const KEEP_CAPACITY: usize = 256 * 1024;

/// One item out of a [`LineBuffer`].
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A whole line without its newline and without a leading UTF-8 byte order mark.
    Full(&'a [u8]),
    /// A line longer than the limit ended here; its bytes are gone.
    Oversized {
        /// Its length in bytes without the newline.
        bytes: usize,
        /// Its first bytes, at most [`HEAD_BYTES`]: enough to find an id.
        head: &'a [u8],
    },
}

/// An incremental line splitter over one growing buffer.
#[derive(Debug)]
pub struct LineBuffer {
    buf: Vec<u8>,
    /// First byte that was not handed out.
    start: usize,
    /// First byte that was not searched for a newline; at least `start`.
    scanned: usize,
    /// End of the valid bytes.
    end: usize,
    max_line: usize,
    /// Bytes of an oversized line dropped so far; 0: not skipping.
    skipping: usize,
    /// The first bytes of the oversized line that is being skipped, or was reported last.
    head: Vec<u8>,
}

impl LineBuffer {
    /// A splitter whose lines are at most `max_line` bytes long, newline included.
    pub fn new(max_line: usize) -> Self {
        Self { buf: Vec::new(), start: 0, scanned: 0, end: 0, max_line, skipping: 0, head: Vec::new() }
    }

    /// Room for the next read, never empty. Call [`filled`](Self::filled) with what was read.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.scanned = 0;
            self.end = 0;
            if self.buf.len() > KEEP_CAPACITY {
                self.buf = Vec::new();
            }
        }
        if self.buf.len() - self.end < READ_CHUNK / 4 {
            // Move the rest to the front before growing: a long-lived stream must not grow for ever.
            if self.start > 0 {
                self.buf.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.scanned -= self.start;
                self.start = 0;
            }
            let free = self.buf.len() - self.end;
            if free < READ_CHUNK / 4 {
                // Double, so that a line of n bytes is copied O(n) in all.
                let grow = READ_CHUNK.max(self.buf.len());
                self.buf.resize(self.buf.len() + grow, 0);
            }
        }
        &mut self.buf[self.end..]
    }

    /// Says that the first `n` bytes of [`room`](Self::room) now hold data.
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buf.len());
    }

    /// Appends a copy of `bytes`; for callers that do not read into [`room`](Self::room).
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            self.filled(n);
            bytes = &bytes[n..];
            if bytes.is_empty() {
                break;
            }
        }
    }

    /// The next complete line, if one is there.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        match memchr::memchr(b'\n', &self.buf[self.scanned..self.end]) {
            Some(at) => {
                let newline = self.scanned + at;
                let (from, to) = (self.start, newline);
                self.start = newline + 1;
                self.scanned = self.start;
                let whole = self.skipping + (to - from);
                if self.skipping > 0 || whole + 1 > self.max_line {
                    if self.skipping == 0 {
                        self.keep_head(from, to);
                    }
                    self.skipping = 0;
                    return Some(Line::Oversized { bytes: whole, head: &self.head });
                }
                Some(Line::Full(trim(&self.buf[from..to])))
            }
            None => {
                self.scanned = self.end;
                if self.end - self.start >= self.max_line || self.skipping > 0 {
                    if self.skipping == 0 {
                        self.keep_head(self.start, self.end);
                    }
                    self.skipping += self.end - self.start;
                    self.start = self.end;
                }
                None
            }
        }
    }

    fn keep_head(&mut self, from: usize, to: usize) {
        self.head.clear();
        self.head.extend_from_slice(&self.buf[from..to.min(from + HEAD_BYTES)]);
    }

    /// What is left after the last newline when the stream ended; empty when it ended cleanly.
    pub fn rest(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Whether bytes are buffered that do not make a whole line yet (or were not asked for).
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.skipping == 0
    }
}

/// Takes off a byte order mark at the front and a carriage return at the end.
fn trim(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Eq, Clone)]
    enum Owned {
        Full(Vec<u8>),
        Oversized(usize),
    }

    fn drain(buffer: &mut LineBuffer, out: &mut Vec<Owned>) {
        while let Some(line) = buffer.next_line() {
            out.push(match line {
                Line::Full(l) => Owned::Full(l.to_vec()),
                Line::Oversized { bytes, .. } => Owned::Oversized(bytes),
            });
        }
    }

    fn split_in(chunks: &[&[u8]], max: usize) -> Vec<Owned> {
        let mut buffer = LineBuffer::new(max);
        let mut out = Vec::new();
        for chunk in chunks {
            buffer.push(chunk);
            drain(&mut buffer, &mut out);
        }
        out
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_lines(
            data in proptest::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..400),
            cuts in proptest::collection::vec(0usize..400, 0..12),
            max in 1usize..64,
        ) {
            let whole = split_in(&[&data], max);
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| *c <= data.len()).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&data[from..cut]);
                from = cut;
            }
            chunks.push(&data[from..]);
            prop_assert_eq!(whole, split_in(&chunks, max));
        }
    }

    #[test]
    fn an_endless_line_costs_constant_memory_and_is_reported_once() {
        let mut buffer = LineBuffer::new(1024 * 1024);
        let chunk = vec![b'x'; 64 * 1024];
        for _ in 0..800 {
            buffer.push(&chunk);
            assert_eq!(buffer.next_line(), None);
        }
        assert!(buffer.buf.len() < 4 * 1024 * 1024, "kept {}", buffer.buf.len());
        buffer.push(b"\n{}\n");
        assert_eq!(
            buffer.next_line(),
            Some(Line::Oversized { bytes: 800 * 64 * 1024, head: &[b'x'; HEAD_BYTES] })
        );
        assert_eq!(buffer.next_line(), Some(Line::Full(b"{}")));
    }

    #[test]
    fn byte_order_mark_and_carriage_return_are_no_part_of_a_line() {
        assert_eq!(split_in(&[b"\xEF\xBB\xBF{}\r\n"], 99), [Owned::Full(b"{}".to_vec())]);
    }
}
