//! hermesd under a service manager: the unit files agree with the code, and readiness is told.

use crate::world;
use hermes_proto::endpoint::{CONTROL_SOCKET, MCP_SOCKET};
use hermes_tests::{SOON, wait_for};
use std::fs;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;
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

/// launchd is promised the same as systemd, as far as it has words for it.
#[test]
fn the_launch_agent_makes_the_promises_of_the_unit() {
    let service = unit("hermesd.service");
    let text = unit("launchd/hermesd.plist");
    let agent = plist::Value::from_reader_xml(text.as_bytes()).unwrap().into_dictionary().unwrap();
    let number = |value: &plist::Value| value.as_signed_integer().unwrap().to_string();
    let inner = |key: &str, name: &str| agent.get(key).unwrap().as_dictionary().unwrap().get(name).cloned();
    let words: Vec<&str> = agent
        .get("ProgramArguments")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w.as_string().unwrap())
        .collect();
    assert_eq!(words[1..], value(&service, "ExecStart").unwrap().split(' ').skip(1).collect::<Vec<_>>());
    assert_eq!(Some(number(agent.get("ExitTimeOut").unwrap()).as_str()), value(&service, "TimeoutStopSec"));
    // An orderly stop stays a stop, everything else is started afresh, not at once for ever.
    assert_eq!(value(&service, "Restart"), Some("on-failure"));
    assert_eq!(inner("KeepAlive", "SuccessfulExit"), Some(plist::Value::Boolean(false)));
    assert!(value(&service, "RestartSec").is_some() && agent.contains_key("ThrottleInterval"));
    let core = inner("HardResourceLimits", "Core").unwrap();
    assert_eq!(Some(number(&core).as_str()), value(&service, "LimitCORE"));
    assert_eq!(value(&service, "WantedBy"), Some("default.target"), "at login");
    assert_eq!(agent.get("RunAtLoad"), Some(&plist::Value::Boolean(true)));
    // launchd writes to one file without end; the daemon's own log is rotated.
    let quiet = inner("EnvironmentVariables", "HERMESD_STDERR");
    assert_eq!(quiet.as_ref().and_then(plist::Value::as_string), Some("off"));
    assert!(agent.contains_key("StandardErrorPath"), "why it could not start");
}

/// The printed agent is a property list too, with nothing left to fill in.
#[test]
fn the_printed_launch_agent_can_be_read() {
    let w = world();
    let text = w.ctl(["service", "print", "launchd"]).succeeds().stdout;
    let agent = plist::Value::from_reader_xml(text.as_bytes()).unwrap().into_dictionary().unwrap();
    let program = agent.get("ProgramArguments").unwrap().as_array().unwrap()[0].as_string().unwrap();
    assert!(Path::new(program).is_file(), "{program}");
    assert!(!text.contains('@'), "{text}");
}

/// systemd itself finds nothing wrong with the units, for the default home and another one.
#[test]
#[allow(clippy::print_stdout)] // says why it did nothing
fn systemd_finds_nothing_wrong_with_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: no systemd-analyze here");
        return;
    }
    let w = world();
    let default = w.path().join("user/.hermes").display().to_string();
    for home in [w.home().display().to_string(), default] {
        let files = w.ctl(["--home", &home, "--json", "service", "print", "systemd"]).succeeds().json();
        let folder = w.path().join("units");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let mut verify = Command::new("systemd-analyze");
        // A machine without a login has no runtime folder, and the check asks for one.
        verify.args(["verify", "--user"]).env("XDG_RUNTIME_DIR", w.path());
        for file in files.as_array().unwrap() {
            let path = folder.join(Path::new(file["path"].as_str().unwrap()).file_name().unwrap());
            fs::write(&path, file["text"].as_str().unwrap()).unwrap();
            verify.arg(path);
        }
        let output = verify.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let ours = said.lines().any(|line| line.contains("hermesd"));
        assert!(output.status.success() && !ours, "{said}");
    }
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
