//! The listener on loopback that a browser is sent back to.
//!
//! Owner: one login flow; it lives as long as the flow. Promise: bound before the address is told to
//! anybody; strays (a favicon, a scanner, an old tab) get a page and change nothing; a slow peer costs
//! one of [`CONNECTIONS`] places for at most [`PATIENCE`]. May not touch: tokens.

use super::callback::{self, Answer};
use crate::tasks::TaskGroup;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Requests at once; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 8;
/// Longest life of one connection, the exchange of the code included.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// An answer, and where the page for it goes: whether the login is done now.
pub type Brought = (Answer, oneshot::Sender<Result<(), String>>);

/// A bound listener.
#[derive(Debug)]
pub struct Callback {
    listener: TcpListener,
    port: u16,
}

impl Callback {
    /// Binds 127.0.0.1 at `port`; 0 takes a free one.
    ///
    /// # Errors
    /// The system's word; most often that the port is taken.
    pub async fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// Where browsers are to be sent.
    pub fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, callback::PATH)
    }

    /// Answers requests until `stop`; what carries `state` goes to `brought`.
    pub async fn run(
        self,
        state: Arc<str>,
        brought: mpsc::Sender<Brought>,
        tasks: TaskGroup,
        stop: CancellationToken,
    ) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = places.clone().acquire_owned().await.expect("nobody closes the semaphore");
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => continue,
                }
            };
            let (state, brought, ends) = (state.clone(), brought.clone(), tasks.stop_signal());
            tasks.spawn(async move {
                let _place = place;
                tokio::select! {
                    () = ends.cancelled() => {}
                    _ = tokio::time::timeout(PATIENCE, serve(stream, state, brought)) => {}
                }
            });
        }
    }
}

async fn serve(stream: TcpStream, state: Arc<str>, brought: mpsc::Sender<Brought>) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let (state, brought) = (state.clone(), brought.clone());
        async move { Ok::<_, Infallible>(answer(&request, &state, &brought).await) }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn answer<B>(
    request: &Request<B>,
    state: &str,
    brought: &mpsc::Sender<Brought>,
) -> Response<Full<Bytes>> {
    if request.uri().path() != callback::PATH || !to_loopback(request) {
        return html(StatusCode::NOT_FOUND, "Nothing here", "hermesd waits for the answer to a login here.");
    }
    if request.method() != Method::GET {
        return html(StatusCode::METHOD_NOT_ALLOWED, "Not this way", "Only GET is answered.");
    }
    let answer = match callback::read(request.uri().query().unwrap_or_default(), state) {
        Ok(answer) => answer,
        Err(stray) => {
            return html(StatusCode::BAD_REQUEST, "Not the login that hermesd waits for", &stray.to_string());
        }
    };
    let (done, outcome) = oneshot::channel();
    // Full only when the flow is busy with an answer already.
    if brought.try_send((answer, done)).is_err() {
        return html(StatusCode::CONFLICT, "Login is under way", "hermesd has an answer already.");
    }
    match outcome.await {
        Ok(Ok(())) => {
            html(StatusCode::OK, "Logged in", "You can close this window and go back to the terminal.")
        }
        Ok(Err(why)) => html(StatusCode::BAD_REQUEST, "Login failed", &why),
        Err(_) => html(StatusCode::GONE, "Login is over", "hermesd does not wait for this answer any more."),
    }
}

/// A name that somebody made resolve to loopback shows in the Host header.
fn to_loopback<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")
}

fn html(status: StatusCode, headline: &str, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(callback::page(headline, text))));
    *response.status_mut() = status;
    let fixed = HeaderValue::from_static;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, fixed("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, fixed("no-store"));
    // The address holds the code.
    headers.insert(REFERRER_POLICY, fixed("no-referrer"));
    headers.insert("content-security-policy", fixed("default-src 'none'; frame-ancestors 'none'"));
    headers.insert("x-content-type-options", fixed("nosniff"));
    response
}
