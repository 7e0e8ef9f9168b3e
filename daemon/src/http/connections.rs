//! Accepts connections of the listener and serves each in a task of its own.
//!
//! Owner: the task in [`Connections::run`]. Promise: only this machine is listened to; at most
//! [`CONNECTIONS`] are open, further ones wait in the kernel; a peer that sends no whole request head is cut off
//! after [`HEAD_TIME`]. May not touch: what a request wants.

use super::service::Service;
use crate::loopback;
use crate::tasks::TaskGroup;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Connections at once; a stream of events takes one for as long as it is open.
pub const CONNECTIONS: usize = 512;
/// Longest time for a request head to come, and between two requests.
pub const HEAD_TIME: Duration = Duration::from_secs(60);
/// Largest request head in bytes.
const HEAD_BYTES: usize = 64 << 10;

/// Why `hermesd.http.listen` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// No `address:port` of this machine.
    #[error("`{listen}` is no loopback address and port, for example 127.0.0.1:8765")]
    NotLoopback {
        /// What was written.
        listen: String,
    },
    /// The address is taken or not there.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A bound listener.
#[derive(Debug)]
pub struct Connections {
    listener: TcpListener,
    address: SocketAddr,
}

impl Connections {
    /// Binds `listen`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn bind(listen: &str) -> Result<Self, ListenError> {
        let wanted = loopback::socket_address(listen)
            .filter(|address| loopback::is_loopback(*address))
            .ok_or_else(|| ListenError::NotLoopback { listen: listen.to_owned() })?;
        let bind_error = |source| ListenError::Bind { address: wanted, source };
        let listener = TcpListener::bind(wanted).await.map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; connections go on in `tasks` until those are told to stop.
    pub async fn run(self, service: Arc<Service>, tasks: TaskGroup, stop: CancellationToken) {
        let each = |stream: TcpStream, place| {
            // Events are small and wanted at once.
            let _ = stream.set_nodelay(true);
            let (service, stop) = (service.clone(), tasks.stop_signal());
            tasks.spawn(async move {
                let _place = place;
                serve(stream, service, stop).await;
            });
        };
        loopback::accept_each(&self.listener, "http", CONNECTIONS, &stop, each).await;
    }
}

async fn serve(stream: TcpStream, service: Arc<Service>, stop: CancellationToken) {
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // What the sessions wrote last still goes out; whoever owns the tasks bounds how long that may take.
    let _ = connection.await;
}
