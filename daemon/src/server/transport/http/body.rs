//! Bodies on their way: one that knows whether it left, and ones that are read within a limit.
//!
//! Promise: [`Written`] stays unset until the connection has asked for the body, which it does
//! before it sends the first byte of the request. May not touch: what the bytes mean.

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// Whether a request may have left this machine. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written(Arc<AtomicBool>);

impl Written {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The answer proved that the request was not executed.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Notes that it may have left.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One whole body that notes when it is taken.
pub(crate) struct Watched {
    bytes: Option<Bytes>,
    written: Written,
}

impl Watched {
    pub(crate) fn new(bytes: Bytes, written: Written) -> Self {
        Self { bytes: Some(bytes), written }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.written.set();
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Why a body was not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is longer than allowed; how long it is, as far as known.
    TooLong(usize),
    /// The connection broke.
    Broken(String),
}

/// The whole body, at most `limit` bytes.
pub(crate) async fn whole(mut response: reqwest::Response, limit: usize) -> Result<Bytes, BodyError> {
    let announced = response.content_length().and_then(|length| usize::try_from(length).ok());
    if let Some(length) = announced.filter(|length| *length > limit) {
        return Err(BodyError::TooLong(length));
    }
    let Some(first) = chunk(&mut response).await? else { return Ok(Bytes::new()) };
    if announced == Some(first.len()) {
        // Nothing follows, but the connection is free only when that was seen.
        return match chunk(&mut response).await? {
            None => Ok(first),
            Some(_) => Err(BodyError::Broken("more bytes than announced".to_owned())),
        };
    }
    let mut body = BytesMut::with_capacity(announced.unwrap_or(first.len() * 2).min(limit));
    body.extend_from_slice(&first);
    while let Some(more) = chunk(&mut response).await? {
        if body.len() + more.len() > limit {
            return Err(BodyError::TooLong(body.len() + more.len()));
        }
        body.extend_from_slice(&more);
    }
    Ok(body.freeze())
}

async fn chunk(response: &mut reqwest::Response) -> Result<Option<Bytes>, BodyError> {
    response.chunk().await.map_err(|error| BodyError::Broken(super::client::root_of(&error)))
}

/// The beginning of a body as text, at most `limit` bytes; for people.
pub(crate) async fn beginning(mut response: reqwest::Response, limit: usize) -> String {
    let mut body = Vec::new();
    while let Ok(Some(more)) = response.chunk().await {
        let room = limit - body.len();
        body.extend_from_slice(&more[..more.len().min(room)]);
        if body.len() == limit {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}
