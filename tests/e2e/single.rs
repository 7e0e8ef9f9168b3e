//! One daemon for each home, and sockets that belong to nobody else.

use crate::world;
use hermes_tests::{SOON, Script, wait_for};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

fn make_private(path: &std::path::Path) {
    fs::DirBuilder::new().mode(0o700).create(path).unwrap();
}

/// A second daemon of the same home refuses and names the first by its pid.
#[test]
fn a_second_daemon_names_the_pid_of_the_first() {
    let w = world();
    let first = w.start();
    let mut second = w.launch();
    assert!(!second.wait().success());
    assert!(second.output().contains(&first.pid().to_string()), "{}", second.output());
    w.ctl(["status"]).succeeds();
}

/// However many are started at once, exactly one stays, and it serves.
#[test]
fn of_ten_parallel_starts_one_daemon_stays() {
    let w = world().server("w", Script::new());
    let mut all: Vec<_> = (0..10).map(|_| w.launch()).collect();
    wait_for("nine have given up", SOON, || all.iter_mut().filter_map(|d| d.exited()).count() == 9);
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &serde_json::json!({"text": "one"})), "one");
    assert_eq!(all.iter_mut().filter_map(|d| d.exited()).count(), 9);
    assert!(all.iter_mut().filter_map(|d| d.exited()).all(|status| !status.success()));
}

/// Sockets of a crashed daemon do not keep the next one from starting.
#[test]
fn sockets_of_a_crashed_daemon_are_replaced() {
    let w = world();
    w.start().kill_hard();
    assert!(w.mcp_socket().exists(), "a killed daemon cannot clean up");
    let _daemon = w.start();
    w.ctl(["status"]).succeeds();
}

/// A file that is no socket is never removed; the daemon says where it is.
#[test]
fn a_foreign_file_in_the_place_of_a_socket_is_left_alone() {
    for name in ["mcp.sock", "control.sock"] {
        let w = world();
        make_private(&w.runtime());
        let file = w.runtime().join(name);
        fs::write(&file, "precious").unwrap();
        let mut daemon = w.launch();
        assert!(!daemon.wait().success());
        assert!(daemon.output().contains(file.to_str().unwrap()), "{}", daemon.output());
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }
}

/// Nobody else can reach the sockets, whatever the umask was.
#[test]
fn sockets_are_private_under_any_umask() {
    let w = world();
    let mut shell = w.command("/bin/sh".as_ref());
    let _daemon = w.launch_command(shell.arg("-c").arg("umask 000; exec \"$0\"").arg(&w.bins().hermesd));
    wait_for("the daemon accepts", SOON, || std::os::unix::net::UnixStream::connect(w.mcp_socket()).is_ok());
    let mode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&w.runtime()), 0o700);
    assert_eq!(mode(&w.mcp_socket()), 0o600);
    assert_eq!(mode(&w.runtime().join("control.sock")), 0o600);
    assert_eq!(mode(&w.home().join("hermesd")), 0o700);
}

/// A runtime folder prepared by someone else is refused.
#[test]
fn a_runtime_folder_that_is_a_link_or_open_to_others_is_refused() {
    let w = world();
    let elsewhere = w.path().join("elsewhere");
    make_private(&elsewhere);
    symlink(&elsewhere, w.runtime()).unwrap();
    let mut daemon = w.launch();
    assert!(!daemon.wait().success());
    assert!(daemon.output().contains(w.runtime().to_str().unwrap()), "{}", daemon.output());
    fs::remove_file(w.runtime()).unwrap();
    make_private(&w.runtime());
    fs::set_permissions(w.runtime(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut daemon = w.launch();
    assert!(!daemon.wait().success());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// A socket path longer than the system allows is a clear error with a way out, not a cut path.
#[test]
fn a_path_too_long_for_a_socket_says_what_to_set() {
    let w = world();
    let long = w.path().join("d".repeat(120));
    let mut command = w.command(&w.bins().hermesd);
    let mut daemon = w.launch_command(command.env("HERMESD_RUNTIME_DIR", &long));
    assert!(!daemon.wait().success());
    assert!(daemon.output().contains("HERMESD_RUNTIME_DIR"), "{}", daemon.output());
}

/// A long home works as long as its sockets have a short place, and the shim finds them.
#[test]
fn a_long_home_with_a_short_runtime_folder_works() {
    let w = world();
    let home = w.path().join("h".repeat(150));
    fs::create_dir(&home).unwrap();
    let mut command = w.command(&w.bins().hermesd);
    let _daemon = w.launch_command(command.env("HERMES_HOME", &home));
    wait_for("the daemon accepts", SOON, || std::os::unix::net::UnixStream::connect(w.mcp_socket()).is_ok());
    let mut bare = w.command(&w.bins().hermesctl);
    bare.env("HERMES_HOME", &home).env_remove("HERMESD_RUNTIME_DIR").args(["mcp", "serve", "--no-spawn"]);
    let mut shim = hermes_tests::Shim::start(&mut bare);
    assert!(shim.initialize()["serverInfo"]["name"].is_string());
}

/// An ended daemon takes its sockets with it and lets the next one in at once.
#[test]
fn an_orderly_end_frees_the_home() {
    let w = world();
    assert!(w.start().stop().success());
    assert!(!w.mcp_socket().exists());
    assert!(!w.runtime().join("control.sock").exists());
    assert!(w.start().stop().success());
}

/// SIGINT ends the daemon in the same order as SIGTERM.
#[test]
fn an_interrupt_ends_the_daemon_in_order() {
    let w = world().server("w", Script::new());
    let mut daemon = w.start();
    w.wait_server_pid("w");
    daemon.signal(rustix::process::Signal::INT);
    assert!(daemon.wait().success());
    assert_eq!(w.census(), []);
}
