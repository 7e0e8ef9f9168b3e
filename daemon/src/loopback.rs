//! Addresses that only this machine reaches, names that browsers give them, and accepting connections there.
//!
//! Promise: what looks like loopback and is not (`127.0.0.1.evil.example`, `evil@localhost`) is told apart; a
//! flood of connections waits in the kernel and holds up no stop. May not touch: what a connection is for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Pause after a failed accept: out of descriptors is not mended by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Reads `address:port`, `localhost:port` or `:port`; port 0 means a free one. `None`: it is none of them.
pub fn socket_address(listen: &str) -> Option<SocketAddr> {
    match listen.strip_prefix("localhost:").or_else(|| listen.strip_prefix(':')) {
        Some(port) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?)),
        None => listen.parse().ok(),
    }
}

/// Whether only this machine reaches `address`.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whether the value of a `Host` header is an address of this machine, with or without a port.
pub fn is_loopback_host(host: &str) -> bool {
    let Ok(authority) = host.parse::<hyper::http::uri::Authority>() else { return false };
    let name = authority.host();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let user = host.contains('@');
    !user
        && (name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

/// Gives each connection to `serve` with its place, of which there are `places`, until `stop`. `serve` returns at
/// once; who drops the place lets the next one in. `what` is named in the log.
pub async fn accept_each(
    listener: &TcpListener,
    what: &'static str,
    places: usize,
    stop: &CancellationToken,
    mut serve: impl FnMut(TcpStream, OwnedSemaphorePermit),
) {
    let places = Arc::new(Semaphore::new(places));
    loop {
        let accepted = tokio::select! {
            biased; // a flood of connections must not hold up the stop
            () = stop.cancelled() => return,
            accepted = accept(listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => serve(stream, place),
            Err(error) => {
                tracing::warn!(%error, what, "a listener cannot accept");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
}

/// A place first, so that connections wait in the kernel and not here.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.expect("nobody closes the semaphore");
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_only_look_like_loopback_are_refused() {
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:9464", "[::1]:9464", "127.1.2.3"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in
            ["", "localhost.evil.example", "127.0.0.1.evil.example", "evil@localhost", "10.0.0.1", "[::]:1"]
        {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn addresses_are_read_in_each_form() {
        for listen in ["127.0.0.1:9464", "[::1]:9464", "localhost:1", ":9464", "[::ffff:127.0.0.1]:1"] {
            assert!(is_loopback(socket_address(listen).unwrap()), "{listen}");
        }
        for listen in ["0.0.0.0:9464", "[::]:9464", "192.168.1.2:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!is_loopback(socket_address(listen).unwrap()), "{listen}");
        }
        for listen in ["", "9464", "example.org:1", "localhost", "localhost:99999", "127.0.0.1"] {
            assert_eq!(socket_address(listen), None, "{listen}");
        }
    }
}
