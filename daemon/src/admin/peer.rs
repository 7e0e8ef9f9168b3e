//! Who is at the other end of the admin socket.
//!
//! Checked once at accept, before tonic sees a byte: only this user's own processes get in.

use tokio::net::{UnixListener, UnixStream};

/// The next connection of this user; connections of others are closed and logged.
///
/// # Errors
/// As `accept`.
/// # Cancel safety
/// Cancel safe.
pub async fn accept(listener: &UnixListener) -> std::io::Result<UnixStream> {
    let own = rustix::process::getuid().as_raw();
    loop {
        let (stream, _) = listener.accept().await?;
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == own => return Ok(stream),
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), "refused a connection of another user on control.sock")
            }
            Err(error) => tracing::warn!(%error, "refused a connection without credentials on control.sock"),
        }
    }
}
