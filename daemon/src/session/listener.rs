//! Accepts shims on mcp.sock: peer check, hello, then one session task each.
//!
//! A stranger's uid is refused before a byte is read. A peer that says nothing for
//! [`HELLO_BUDGET`] is dropped. Refusals name the reason in a [`Welcome::Refused`].

use super::Shared;
use super::task::{Ended, Session};
use crate::names::ProfileName;
use crate::process::table;
use crate::store;
use crate::tasks::TaskGroup;
use hermes_proto::shim::framing::{Line, LineBuffer};
use hermes_proto::shim::hello::{self, Hello, MAX_HELLO_BYTES, Welcome};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

/// Longest wait for the hello line.
pub const HELLO_BUDGET: Duration = Duration::from_secs(10);

/// Clients at once; further ones are refused.
pub const MAX_CLIENTS: usize = 512;

/// Serves mcp.sock until `stop`.
pub async fn serve(listener: UnixListener, shared: Arc<Shared>, tasks: TaskGroup, stop: CancellationToken) {
    let mut failures = 0_u32;
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                failures = 0;
                let (shared, stop) = (shared.clone(), tasks.stop_signal());
                tasks.spawn(serve_one(stream, shared, stop));
            }
            Err(error) => {
                // Out of descriptors: the clients that are there go on; others get their turn later.
                if failures.is_multiple_of(100) {
                    tracing::warn!(%error, failures, "accept on mcp.sock failed");
                }
                failures = failures.saturating_add(1);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_one(mut stream: UnixStream, shared: Arc<Shared>, stop: CancellationToken) {
    let Ok(peer) = stream.peer_cred() else { return };
    if peer.uid() != rustix::process::getuid().as_raw() {
        tracing::warn!(uid = peer.uid(), "refused a connection of another user on mcp.sock");
        return;
    }
    let Ok(Some((line, rest))) = tokio::time::timeout(HELLO_BUDGET, read_hello(&stream)).await else {
        return;
    };
    let welcome = match hello::read_line::<Hello>(&line) {
        Err(error) => Err(Welcome::Refused { code: "version".into(), message: error.to_string() }),
        Ok(hello) => check(&shared, &hello).map(|()| hello),
    };
    let hello = match welcome {
        Ok(hello) => hello,
        Err(refusal) => {
            let _ = stream.write_all(hello::write_line(&refusal).as_bytes()).await;
            return;
        }
    };
    let resumed = hello.resume.as_deref().is_some_and(|word| super::resume::Resumed::open(word).is_some());
    let prefix = id_prefix();
    let ok =
        Welcome::Ok { version: env!("CARGO_PKG_VERSION").to_owned(), id_prefix: prefix.clone(), resumed };
    if stream.write_all(hello::write_line(&ok).as_bytes()).await.is_err() {
        return;
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    let facts = shared.clients.enter(pid, &hello.profile);
    let id = facts.id;
    tracing::debug!(client = %id, pid, profile = hello.profile, "client connected");
    let identity = store::Caller {
        uid: Some(peer.uid()),
        pid: (pid != 0).then_some(pid),
        executable: (hello.client_pid != 0).then(|| table::executable(hello.client_pid)).flatten(),
        profile: ProfileName::new(hello.profile.as_str()),
        name: None,
        version: None,
    };
    let ended =
        Session::new(shared.clone(), facts, stream, &hello, identity, prefix.into(), rest).run(stop).await;
    shared.clients.leave(id);
    shared.calls.forget_client(id);
    match ended {
        Ended::NotReading => {
            tracing::warn!(client = %id, pid, "client disconnected: it does not read its answers")
        }
        other => tracing::debug!(client = %id, pid, reason = other.word(), "client gone"),
    }
}

/// The first line and what came after it; `None`: the peer went away or sent something endless.
async fn read_hello(stream: &UnixStream) -> Option<(String, Vec<u8>)> {
    let mut lines = LineBuffer::new(MAX_HELLO_BYTES);
    loop {
        match lines.next_line() {
            Some(Line::Full(line)) => {
                let text = String::from_utf8_lossy(line).into_owned();
                return Some((text, lines.rest().to_vec()));
            }
            Some(Line::Oversized { .. }) => return None,
            None => {}
        }
        stream.readable().await.ok()?;
        match stream.try_read(lines.room()) {
            Ok(0) => return None,
            Ok(n) => lines.filled(n),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

fn check(shared: &Shared, hello: &Hello) -> Result<(), Welcome> {
    let refuse = |code: &str, message: String| Err(Welcome::Refused { code: code.into(), message });
    if Path::new(&hello.home) != shared.home {
        let message =
            format!("this daemon serves {}, the shim was started for {}", shared.home.display(), hello.home);
        return refuse("home", message);
    }
    let profiles = shared.calls.profiles();
    if profiles.iter().all(|profile| profile.as_str() != hello.profile) {
        let names: Vec<&str> = profiles.iter().map(ProfileName::as_str).collect();
        let message =
            format!("no profile `{}` in config.yaml; there are: {}", hello.profile, names.join(", "));
        return refuse("profile", message);
    }
    if shared.clients.all().len() >= MAX_CLIENTS {
        return refuse("busy", format!("{MAX_CLIENTS} clients are connected already"));
    }
    Ok(())
}

/// Random, so that an id the daemon makes means nothing on another connection.
pub fn id_prefix() -> String {
    let mut bytes = [0u8; 6];
    // Without randomness the prefix is only less unlikely, never wrong.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
