//! hermesd under a service manager: the unit files agree with the code, and readiness is told.

use crate::world;
use hermes_proto::endpoint::{CONTROL_SOCKET, MCP_SOCKET};
use hermes_tests::{SOON, wait_for};
use std::fs;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

fn unit(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd").join(name)).unwrap()
}

fn value<'a>(unit: &'a str, key: &str) -> Option<&'a str> {
    unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

/// The manager waits longer than the daemon takes for its ordered stop.
#[test]
fn the_stop_timeout_is_longer_than_the_stop_budget() {
    let service = unit("hermesd.service");
    let seconds: u64 = value(&service, "TimeoutStopSec").unwrap().parse().unwrap();
    assert!(Duration::from_secs(seconds) > hermesd::shutdown::BUDGET + Duration::from_secs(5));
    assert_eq!(value(&service, "KillMode"), Some("mixed"), "servers belong to the daemon until it has ended");
    assert_eq!(value(&service, "Type"), Some("notify"));
}

/// The socket unit makes the sockets that clients look for, private ones.
#[test]
fn the_socket_unit_makes_the_sockets_that_clients_look_for() {
    let socket = unit("hermesd.socket");
    for name in [CONTROL_SOCKET, MCP_SOCKET] {
        assert!(socket.lines().any(|line| line == format!("ListenStream=%t/hermesd/{name}")), "{name}");
    }
    assert_eq!(value(&socket, "SocketMode"), Some("0600"));
    assert_eq!(value(&socket, "DirectoryMode"), Some("0700"));
    assert_eq!(value(&unit("hermesd.service"), "RuntimeDirectory"), Some("hermesd"));
}

/// READY=1 is sent when shims can connect, and not before.
#[test]
fn readiness_is_told_when_clients_can_connect() {
    let w = world();
    let path = w.path().join("notify");
    let notify = UnixDatagram::bind(&path).unwrap();
    notify.set_read_timeout(Some(SOON)).unwrap();
    let mut command = w.command(&w.bins().hermesd);
    let mut daemon = w.launch_command(command.env("NOTIFY_SOCKET", &path));
    let mut seen = String::new();
    while !seen.contains("READY=1") {
        let mut buffer = [0; 4096];
        let n = notify.recv(&mut buffer).expect("READY=1 comes");
        seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    UnixStream::connect(w.mcp_socket()).expect("ready means that shims can connect");
    assert!(daemon.stop().success());
}

/// A daemon that a shim started ends by itself when nobody uses it any more.
#[test]
fn an_idle_daemon_ends_when_told_to() {
    let w = world().server("w", hermes_tests::Script::new());
    let mut daemon = w.launch_with(&["run", "--idle-exit", "2s"]);
    wait_for("the daemon accepts", SOON, || UnixStream::connect(w.mcp_socket()).is_ok());
    let client = w.client(&["w"]);
    assert!(
        hermes_tests::holds_for(Duration::from_secs(3), || daemon.exited().is_none()),
        "a client is there"
    );
    drop(client);
    assert!(daemon.wait().success());
    assert_eq!(w.census(), []);
}
