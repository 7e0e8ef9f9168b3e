//! The last lines of a log file and its rotated parts, read from the end.
//!
//! Blocking file calls: use the blocking pool. Promise: reads at most 8 MiB whatever the size of the
//! log; a line that is being written is left out. May not touch: anything but the file named.

use crate::telemetry::escape::{MAX_LINE, escape_line};
use crate::telemetry::rotate::part_of;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Read at most from one file, in bytes.
const MAX_READ: u64 = 8 * 1024 * 1024;
const BLOCK: u64 = 64 * 1024;
/// Older parts that are looked at.
const MAX_PARTS: u32 = 9;

/// The last `n` lines of the log at `path`, oldest first, with older parts where the newest has too
/// few. A log that does not exist has no lines. Blocking.
///
/// # Errors
/// When the file exists and cannot be read.
pub fn tail_file(path: &Path, n: usize) -> io::Result<Vec<String>> {
    let mut lines = last_lines(path, n)?;
    for part in 1..=MAX_PARTS {
        if lines.len() >= n {
            break;
        }
        let older = part_of(path, part);
        if !older.exists() {
            break;
        }
        let mut before = last_lines(&older, n - lines.len())?;
        before.append(&mut lines);
        lines = before;
    }
    Ok(lines)
}

fn last_lines(path: &Path, n: usize) -> io::Result<Vec<String>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let end = file.metadata()?.len();
    let mut start = end;
    let mut newlines = 0;
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    // One newline more than lines: the one before the first wanted line.
    while start > 0 && newlines <= n && end - start < MAX_READ {
        let from = start.saturating_sub(BLOCK);
        let mut block = vec![0; usize::try_from(start - from).expect("at most one block")];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut block)?;
        newlines += block.iter().filter(|b| **b == b'\n').count();
        blocks.push(block);
        start = from;
    }
    blocks.reverse();
    let bytes = blocks.concat();
    let whole = match bytes.iter().rposition(|b| *b == b'\n') {
        Some(last) => &bytes[..last],
        None => return Ok(Vec::new()),
    };
    let mut lines: Vec<&[u8]> = whole.split(|b| *b == b'\n').collect();
    if start > 0 && !lines.is_empty() {
        lines.remove(0); // its beginning was not read
    }
    let skip = lines.len().saturating_sub(n);
    // The file may have been touched by others; escaping what is already escaped changes nothing.
    Ok(lines[skip..].iter().map(|line| escape_line(line, 2 * MAX_LINE)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn older_parts_fill_up_and_a_missing_log_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        assert_eq!(tail_file(&path, 5).unwrap(), [""; 0]);
        fs::write(&path, "5\n6\nhalf").unwrap();
        fs::write(dir.path().join("a.log.1"), "3\n4\n").unwrap();
        fs::write(dir.path().join("a.log.2"), "1\n2\n").unwrap();
        assert_eq!(tail_file(&path, 5).unwrap(), ["2", "3", "4", "5", "6"]);
        assert_eq!(tail_file(&path, 1).unwrap(), ["6"]);
        assert_eq!(tail_file(&path, 0).unwrap(), [""; 0]);
    }

    proptest! {
        #[test]
        fn the_tail_is_what_the_whole_file_says(
            lengths in proptest::collection::vec(0usize..40_000, 0..12), n in 0usize..15,
        ) {
            let lines: Vec<String> = lengths.iter().enumerate().map(|(i, l)| format!("{i}{}", "x".repeat(l % 9000))).collect();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.log");
            fs::write(&path, lines.iter().map(|l| format!("{l}\n")).collect::<String>()).unwrap();
            prop_assert_eq!(tail_file(&path, n).unwrap(), &lines[lines.len().saturating_sub(n)..]);
        }
    }
}
