//! A daemon inside a container: its session was begun outside the pid namespace, and its clients may
//! be outside too.

use crate::world;
use hermes_tests::{SOON, Script, wait_for};
use serde_json::json;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// Whether this machine lets this user make a pid namespace.
fn namespaces_are_allowed() -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    unshare.status().is_ok_and(|status| status.success())
}

/// `getsid` answers 0 there, and the numbers of the processes differ on both sides.
#[test]
fn a_daemon_in_a_pid_namespace_of_its_own_serves_and_stops() {
    if !namespaces_are_allowed() {
        return;
    }
    let w = world().server("w", Script::new());
    let mut unshare = w.command("unshare".as_ref());
    // The shell is pid 1 there: the daemon need not be an init.
    unshare.args(["--pid", "--fork", "--mount-proc", "sh", "-c", "\"$0\"; exit $?"]);
    let mut daemon = w.launch_command(unshare.arg(&w.bins().hermesd));
    wait_for("the daemon accepts", SOON, || UnixStream::connect(w.mcp_socket()).is_ok());
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "inside"})), "inside");
    w.ctl(["servers", "restart", "w"]).succeeds();
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "again"})), "again");
    drop(client);
    w.ctl(["daemon", "stop"]).succeeds();
    assert!(daemon.wait().success());
}
