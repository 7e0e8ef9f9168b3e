//! t-conformance-server: the server that the official conformance suite wants to see, behind hermesd.
//!
//! On the official SDK. `--era old|new|both` says which revisions it speaks; over stdio, or over HTTP with
//! `--http ADDRESS`, whose URL is then the first line on stdout. What a tool asks its client goes either way: as
//! requests of its own (up to 2025-11-25) or as `input_required` (2026-07-28).

mod handler;
mod lists;
mod steps;

use handler::{Backend, Era, Shared};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const USAGE: &str = "usage: t-conformance-server [--era old|new|both] [--http ADDRESS]\n";

fn main() -> ExitCode {
    let Some((era, http)) = options(std::env::args().skip(1)) else {
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime needs a few descriptors");
    let served = runtime.block_on(async {
        match http {
            None => stdio(era).await,
            Some(address) => listen(era, &address).await,
        }
    });
    // A read of stdin may hang on a thread of its own.
    runtime.shutdown_background();
    if served.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options(mut words: impl Iterator<Item = String>) -> Option<(Era, Option<String>)> {
    let (mut era, mut http) = (Era::Both, None);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()?) {
            ("--era", value) => era = Era::named(&value)?,
            ("--http", value) => http = Some(value),
            _ => return None,
        }
    }
    Some((era, http))
}

async fn stdio(era: Era) -> Option<()> {
    let backend = Backend::new(era, Arc::new(Shared::default()));
    let service = backend.serve(rmcp::transport::stdio_pipes()).await.ok()?;
    service.waiting().await.ok()?;
    Some(())
}

async fn listen(era: Era, address: &str) -> Option<()> {
    let listener = TcpListener::bind(address).await.ok()?;
    let shared = Arc::new(Shared::default());
    let make = move || Ok(Backend::new(era, shared.clone()));
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(make, Arc::new(LocalSessionManager::default()), config);
    let mut out = std::io::stdout();
    writeln!(out, "http://{}/mcp", listener.local_addr().ok()?).and_then(|()| out.flush()).ok()?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.ok()?;
        let service = TowerToHyperService::new(service.clone());
        connections.spawn(async move {
            let mut server = hyper::server::conn::http1::Builder::new();
            // A client that goes away ends its connection and nothing else.
            let _ = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
