//! Signs of life: deaf servers, a sleeping machine, long runs of restarts, logs that stay small, the watchdog.

use crate::world;
use hermes_tests::{SOON, Script, census, holds_for, kill, wait_for};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// A server that is stopped (SIGSTOP) is found deaf after a call ran out of time, ended and replaced.
#[test]
fn a_stopped_process_is_replaced() {
    let w = world().server_with("w", Script::new(), &["timeout: 500ms"]).server("v", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    let old = w.wait_server_pid("w");
    kill(old, Signal::STOP);
    assert_eq!(client.call("mcp_w_echo", &json!({"text": "x"}))["isError"], true);
    wait_for("a new process", Duration::from_secs(60), || w.server_pid("w").is_some_and(|new| new != old));
    wait_for("the server is back", SOON, || {
        client.call("mcp_w_echo", &json!({"text": "back"}))["content"][0]["text"] == "back"
    });
    assert_eq!(w.journal("v").starts(), 1);
}

/// A daemon that slept restarts nobody and fails no call: the time asleep is nobody's silence.
#[test]
fn a_sleeping_daemon_restarts_nobody() {
    let w = (0..4).fold(world(), |w, n| {
        w.server_with(&format!("s{n}"), Script::new(), &["timeout: 3", "idle_stop: 1h"])
    });
    let daemon = w.start();
    let mut client = w.client(&["s0", "s1", "s2", "s3"]);
    let ids: Vec<_> = (0..4)
        .map(|n| client.begin_call(&format!("mcp_s{n}_sleep"), &json!({"ms": 1500, "text": "woke"})))
        .collect();
    wait_for("the calls are at the servers", SOON, || {
        (0..4).all(|n| w.journal(&format!("s{n}")).received("tools/call").len() == 1)
    });
    daemon.signal(Signal::STOP);
    assert!(holds_for(Duration::from_secs(6), || census::process(daemon.pid()).is_some()));
    daemon.signal(Signal::CONT);
    for id in ids {
        assert_eq!(client.reply(&id)["result"]["content"][0]["text"], "woke");
    }
    assert!(holds_for(Duration::from_secs(1), || (0..4).all(|n| w.journal(&format!("s{n}")).starts() == 1)));
}

/// Restarts leak neither descriptors nor processes.
#[test]
fn many_restarts_leak_nothing() {
    let w = world().server("w", Script::forks(hermes_tests::Fork::Setsid));
    let daemon = w.start();
    drop(w.client(&["w"]));
    w.ctl(["servers", "restart", "w"]).succeeds();
    let settled = |before: usize| {
        wait_for("descriptors and processes are as before", SOON, || {
            census::open_fds(daemon.pid()).len() <= before && w.guards().len() == 1
        });
    };
    let before = census::open_fds(daemon.pid()).len();
    for _ in 0..15 {
        w.ctl(["servers", "restart", "w"]).succeeds();
    }
    settled(before);
    assert_eq!(w.processes("w").len(), 2, "{:?}", w.processes("w"));
    assert!(census::children(daemon.pid()).iter().all(|p| p.state != 'Z'));
}

/// However fast a server writes, its log stays small, and the daemon's memory too.
#[test]
fn a_flood_on_stderr_stays_small() {
    let w = world().server("w", Script::new().with(|s| s.stderr_bps = 20_000_000));
    let daemon = w.start();
    let mut client = w.client(&["w"]);
    let folder = w.home().join("logs/hermesd");
    let size = || -> u64 {
        fs::read_dir(&folder).unwrap().flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum()
    };
    assert!(holds_for(Duration::from_secs(5), || size() <= 20 * 1024 * 1024), "{} bytes", size());
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
    assert!(census::rss_kib(daemon.pid()) < 100 * 1024, "{} KiB", census::rss_kib(daemon.pid()));
}

/// A log that cannot be written stops neither the daemon nor its servers.
#[test]
fn an_unwritable_log_stops_nobody() {
    let w = world().server("w", Script::new());
    // Folders stand where the files belong.
    for name in ["hermesd.log", "w.log"] {
        fs::create_dir_all(w.home().join("logs/hermesd").join(name)).unwrap();
    }
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.call("mcp_w_stderr", &json!({"bytes": 1_000_000}));
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
}

/// What the program that started the daemon left open does not stay open.
#[test]
fn leaked_descriptors_are_closed() {
    let w = world().server("w", Script::new());
    let leaked = w.path().join("leaked");
    fs::write(&leaked, "").unwrap();
    let line = format!("exec {} 7<{path} 9<{path}", w.bins().hermesd.display(), path = leaked.display());
    let daemon = w.launch_command(w.command("/bin/sh".as_ref()).args(["-c", &line]));
    wait_for("the daemon accepts", SOON, || std::os::unix::net::UnixStream::connect(w.mcp_socket()).is_ok());
    let open: Vec<_> = census::open_fds(daemon.pid())
        .into_iter()
        .filter_map(|fd| fs::read_link(format!("/proc/{}/fd/{fd}", daemon.pid())).ok())
        .filter(|target| *target == leaked)
        .collect();
    assert!(open.is_empty(), "{open:?}");
}

/// The service manager's watchdog is answered, and only where it asked.
#[test]
fn the_watchdog_is_answered() {
    let w = world();
    let path = w.path().join("notify");
    let notify = UnixDatagram::bind(&path).unwrap();
    notify.set_read_timeout(Some(SOON)).unwrap();
    let mut command = w.command(&w.bins().hermesd);
    let mut daemon = w.launch_command(command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "900000"));
    let mut beats = 0;
    while beats < 3 {
        let mut buffer = [0; 4096];
        let n = notify.recv(&mut buffer).expect("beats come");
        beats += usize::from(String::from_utf8_lossy(&buffer[..n]).contains("WATCHDOG=1"));
    }
    assert!(daemon.stop().success());
}

/// A server that ignores everything and a daemon that is stopped: the state folder stays private.
#[test]
fn the_files_of_the_daemon_are_private() {
    use std::os::unix::fs::MetadataExt;
    let w = world().server("w", Script::new());
    let mut daemon = w.start();
    drop(w.client(&["w"]));
    assert!(daemon.stop().success());
    for folder in [w.home().join("hermesd"), w.home().join("logs/hermesd")] {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let mode = entry.metadata().unwrap().mode() & 0o077;
            assert_eq!(mode, 0, "{} {mode:o}", entry.path().display());
        }
    }
}

/// A daemon that runs out of descriptors loses single starts and connections, never itself.
#[test]
fn running_out_of_descriptors_ends_nothing() {
    let w = (0..12).fold(world(), |w, n| w.server(&format!("s{n:02}"), Script::new()));
    let line = format!("ulimit -n 56; exec {}", w.bins().hermesd.display());
    let mut daemon = w.launch_command(w.command("/bin/sh".as_ref()).args(["-c", &line]));
    wait_for("some server is ready", SOON, || {
        let all = w.ctl(["servers", "--json"]);
        all.code == 0 && all.stdout.contains("\"ready\"")
    });
    // Clients come until there is no room; each goes on or is told, the daemon stays.
    let clients: Vec<_> = (0..30).map(|_| w.shim()).collect();
    assert!(holds_for(Duration::from_secs(2), || daemon.exited().is_none()), "{}", daemon.output());
    drop(clients);
    let mut client = w.shim();
    client.initialize();
    wait_for("a server answers again", SOON, || !client.tool_names().is_empty());
    let name = client.tool_names().into_iter().find(|name| name.ends_with("_echo")).unwrap();
    wait_for("a call passes", SOON, || {
        client.call(&name, &json!({"text": "on"}))["content"][0]["text"] == "on"
    });
    drop(client);
    assert!(daemon.stop().success());
    assert_eq!(w.census(), []);
}

/// Files that cannot grow (no room on the disk) stop no call; what is not kept is told.
#[test]
fn a_disk_without_room_stops_no_call() {
    let w = world().server("w", Script::new().with(|s| s.stderr_each = 100_000));
    // Ignored SIGXFSZ: writes beyond 8 KiB fail, as they do on a full disk.
    let line = format!("trap '' XFSZ; ulimit -f 16; exec {}", w.bins().hermesd.display());
    let mut daemon = w.launch_command(w.command("/bin/sh".as_ref()).args(["-c", &line]));
    wait_for("the daemon accepts", SOON, || std::os::unix::net::UnixStream::connect(w.mcp_socket()).is_ok());
    let mut client = w.client(&["w"]);
    for _ in 0..5 {
        assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
    }
    // More lines than the file can take.
    for i in 0..60 {
        client.call("mcp_w_stderr", &json!({"text": format!("line {i} {}", "x".repeat(300))}));
    }
    wait_for("a person is told", SOON, || {
        let findings = w.ctl(["status", "--json"]).json()["findings"].to_string();
        findings.contains("hermesd.db") && findings.contains("log lines were lost")
    });
    drop(client);
    assert!(daemon.stop().success());
    assert_eq!(w.census(), []);
}

/// The daemon may open many files, its servers start with the limit of the person who started it.
#[test]
fn servers_keep_the_usual_descriptor_limit() {
    let soft = |pid: i32| -> u64 {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let w = world().server("w", Script::new());
    let line = format!("ulimit -S -n 300; exec {}", w.bins().hermesd.display());
    let daemon = w.launch_command(w.command("/bin/sh".as_ref()).args(["-c", &line]));
    wait_for("the daemon accepts", SOON, || std::os::unix::net::UnixStream::connect(w.mcp_socket()).is_ok());
    drop(w.client(&["w"]));
    assert_eq!(soft(w.wait_server_pid("w")), 300);
    assert!(soft(daemon.pid()) > 300, "{}", soft(daemon.pid()));
}
