//! One request of the revisions without a handshake, from its line to its answer.
//!
//! Owner: the response. Promise: everything that the session writes until the answer goes into this response; a client
//! that closes it takes its request back, which cancels it at the server. May not touch: what lines say.

use super::line::{About, about};
use super::session::{MAX_ANSWER, too_long};
use bytes::Bytes;
use hermes_proto::shim::framing::{Line, LineBuffer};
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// A request that is being answered; dropped, it is taken back.
#[derive(Debug)]
pub struct Single {
    stream: UnixStream,
    lines: LineBuffer,
    over: bool,
}

/// What comes for the client.
#[derive(Debug)]
pub struct Said {
    /// The line.
    pub line: Bytes,
    /// It is the answer.
    pub last: bool,
}

impl Single {
    /// Sends `line` to the session at the other end of `stream`.
    ///
    /// # Errors
    /// The session went away.
    /// # Cancel safety
    /// Dropped half-way, the session sees the end of its socket and half a line, which it does not take for a request.
    pub async fn send(mut stream: UnixStream, mut line: Vec<u8>) -> io::Result<Self> {
        line.push(b'\n');
        stream.write_all(&line).await?;
        Ok(Self { stream, lines: LineBuffer::new(MAX_ANSWER), over: false })
    }

    /// What comes next; `None`: nothing any more, which before the answer means that the daemon stops.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Said> {
        while !self.over {
            let line = match self.lines.next_line() {
                Some(Line::Full(line)) => Some(Bytes::copy_from_slice(line)),
                Some(Line::Oversized { bytes, head }) => Some(too_long(bytes, head).into()),
                None => None,
            };
            if let Some(line) = line {
                match about(&line) {
                    About::Nothing => continue,
                    About::Answer(_) => self.over = true,
                    _ => {}
                }
                return Some(Said { line, last: self.over });
            }
            self.stream.readable().await.ok()?;
            match self.stream.try_read(self.lines.room()) {
                Ok(0) => return None,
                Ok(n) => self.lines.filled(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

    #[tokio::test]
    async fn everything_until_the_answer_is_given_and_then_the_socket_closes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut single = Single::send(ours, b"request".to_vec()).await.unwrap();
        let mut theirs = BufReader::new(theirs);
        let mut line = String::new();
        theirs.read_line(&mut line).await.unwrap();
        assert_eq!(line, "request\n");
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}"#;
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        theirs
            .get_mut()
            .write_all(format!("#resume x\n{progress}\n{answer}\nmore\n").as_bytes())
            .await
            .unwrap();
        let first = single.next().await.unwrap();
        assert!(!first.last && first.line == progress);
        let last = single.next().await.unwrap();
        assert!(last.last && last.line == answer);
        assert!(single.next().await.is_none());
        drop(single);
        assert_eq!(theirs.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
