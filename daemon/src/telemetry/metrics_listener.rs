//! A tiny HTTP listener on loopback that answers `GET /metrics` and nothing else.
//!
//! Owner: the task in [`MetricsListener::run`]. Promise: only this machine reaches it, and no web page in a
//! browser of this machine; a slow or silent peer costs one of [`CONNECTIONS`] places for at most
//! [`PATIENCE`]. May not touch: what is measured.

use super::metrics::{Format, Metrics};
use crate::loopback;
use crate::tasks::TaskGroup;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Scrapes at once; further ones wait in the kernel's queue.
pub const CONNECTIONS: usize = 16;
/// Longest life of one connection, from accept to the last byte.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Largest request head in bytes; the smallest hyper allows.
const HEAD_BYTES: usize = 8 << 10;

/// Why `metrics.listen` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MetricsListenError {
    /// No `address:port`.
    #[error("`{listen}` is no address and port, for example 127.0.0.1:9464")]
    Malformed {
        /// What was written.
        listen: String,
    },
    /// Another machine could read it.
    #[error("`{address}` is not a loopback address")]
    NotLoopback {
        /// What was written.
        address: SocketAddr,
    },
    /// The address is taken or not there.
    #[error("cannot listen on {address}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A bound listener.
#[derive(Debug)]
pub struct MetricsListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsListener {
    /// Binds `listen`: `address:port`, `localhost:port` or `:port`. Port 0 takes a free one.
    /// # Errors
    /// [`MetricsListenError`].
    pub async fn bind(listen: &str) -> Result<Self, MetricsListenError> {
        let wanted = address(listen)?;
        let bind_error = |source| MetricsListenError::Bind { address: wanted, source };
        let listener = TcpListener::bind(wanted).await.map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers scrapes until `tasks` is told to stop.
    pub async fn run(self, metrics: Metrics, tasks: TaskGroup) {
        let stop = tasks.stop_signal();
        let each = |stream, place| {
            let (metrics, stop) = (metrics.clone(), stop.clone());
            tasks.spawn(async move {
                let _place = place;
                tokio::select! {
                    () = stop.cancelled() => {}
                    // Whoever is too slow, or went away, asks again.
                    _ = tokio::time::timeout(PATIENCE, serve(stream, metrics)) => {}
                }
            });
        };
        loopback::accept_each(&self.listener, "metrics", CONNECTIONS, &stop, each).await;
    }
}

fn address(listen: &str) -> Result<SocketAddr, MetricsListenError> {
    match loopback::socket_address(listen) {
        None => Err(MetricsListenError::Malformed { listen: listen.to_owned() }),
        Some(address) if loopback::is_loopback(address) => Ok(address),
        Some(address) => Err(MetricsListenError::NotLoopback { address }),
    }
}

async fn serve(stream: TcpStream, metrics: Metrics) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let metrics = metrics.clone();
        async move { Ok::<_, Infallible>(answer(&request, &metrics)) }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn answer<B>(request: &Request<B>, metrics: &Metrics) -> Response<Full<Bytes>> {
    if let Some(refusal) = refusal(request.headers()) {
        return plain(StatusCode::FORBIDDEN, refusal);
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "only /metrics is here\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let format = wanted(request.headers());
    let mut response = Response::new(Full::new(Bytes::from(metrics.render(format))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response
}

/// A name that resolves to loopback (DNS rebinding) and a page of another site both show in headers
/// that a browser does not let a page choose.
fn refusal(headers: &HeaderMap) -> Option<&'static str> {
    if headers.contains_key(ORIGIN) {
        return Some("no answers for web pages\n");
    }
    let mut hosts = headers.get_all(HOST).iter();
    let known = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(loopback::is_loopback_host),
        _ => false,
    };
    (!known).then_some("Host must be a loopback address or localhost\n")
}

fn wanted(headers: &HeaderMap) -> Format {
    let accepts = |header: &HeaderValue| {
        header.to_str().is_ok_and(|text| text.contains("application/openmetrics-text"))
    };
    if headers.get_all(ACCEPT).iter().any(accepts) { Format::OpenMetrics } else { Format::Plain }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn metrics() -> Metrics {
        let metrics = Metrics::new("1", UNIX_EPOCH, None);
        metrics.set_clients(7);
        metrics
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_scrape_gets_the_text_and_the_connection_ends() {
        let tasks = TaskGroup::new();
        let listener = MetricsListener::bind("localhost:0").await.unwrap();
        let address = listener.address();
        tasks.spawn(listener.run(metrics(), tasks.clone()));
        let answer = ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\nhermes_clients 7\n"), "{answer}");
        let open = "Accept: application/openmetrics-text;version=1.0.0\r\n";
        let answer = ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{open}\r\n")).await;
        assert!(answer.contains("application/openmetrics-text") && answer.ends_with("# EOF\n"), "{answer}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n", "403"),
            ("GET /metrics HTTP/1.0\r\n\r\n", "403"),
        ] {
            let answer = ask(address, request).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}"))
                    || answer.starts_with(&format!("HTTP/1.0 {status}")),
                "{request}: {answer}"
            );
            assert!(!answer.contains("hermes_clients"), "{answer}");
        }
        assert_eq!(tasks.finish(Duration::from_secs(60)).await, crate::tasks::Finished::All);
    }

    #[tokio::test]
    async fn silent_peers_do_not_hold_up_the_stop() {
        let tasks = TaskGroup::new();
        let listener = MetricsListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        tasks.spawn(listener.run(metrics(), tasks.clone()));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS + 3 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(tasks.finish(Duration::from_secs(60)).await, crate::tasks::Finished::All);
    }

    #[test]
    fn only_loopback_may_be_listened_on() {
        for listen in
            ["127.0.0.1:9464", "[::1]:9464", "localhost:1", ":9464", "127.8.8.8:1", "[::ffff:127.0.0.1]:1"]
        {
            address(listen).unwrap();
        }
        for listen in ["0.0.0.0:9464", "[::]:9464", "192.168.1.2:1", "[::ffff:10.0.0.1]:1"] {
            assert!(matches!(address(listen), Err(MetricsListenError::NotLoopback { .. })), "{listen}");
        }
        for listen in ["", "9464", "example.org:1", "localhost", "localhost:99999", "127.0.0.1"] {
            assert!(matches!(address(listen), Err(MetricsListenError::Malformed { .. })), "{listen}");
        }
    }
}
