//! When a server runs and how much it gets: start, idle_stop, budgets, slots, breaker, catalogue kept on disk.

use crate::world;
use hermes_tests::{Fork, SOON, Script, Shim, World, holds_for, kill, wait_for};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// Calls that reached the server.
fn arrived(w: &World, server: &str) -> usize {
    w.journal(server).received("tools/call").len()
}

fn breaker(w: &World, server: &str) -> String {
    w.status(server)["breaker"]["state"].as_str().unwrap_or_default().to_owned()
}

fn cancel(client: &mut Shim, id: &serde_json::Value) {
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
}

/// A fresh daemon lists what it learned before; lazy servers wait for their first call, eager ones do not.
#[test]
fn a_fresh_daemon_lists_known_tools_and_starts_lazy_servers_by_use() {
    let w = world().server("lazy", Script::new()).server_with("eager", Script::new(), &["start: eager"]);
    let mut daemon = w.start();
    drop(w.client(&["lazy", "eager"]));
    assert!(daemon.stop().success());
    let _daemon = w.start();
    let mut client = w.client(&["lazy", "eager"]);
    w.wait_phase("eager", "ready");
    assert!(holds_for(Duration::from_millis(500), || w.journal("lazy").starts() == 1), "listed, not started");
    assert_eq!(w.phase("lazy"), "stopped");
    assert_eq!(client.text("mcp_lazy_echo", &json!({"text": "first"})), "first");
    assert_eq!((w.journal("lazy").starts(), w.journal("eager").starts()), (2, 2));
}

/// What is known of another configuration is served meanwhile and learned anew in the background.
#[test]
fn a_changed_entry_is_learned_anew_by_the_next_daemon() {
    let mut w = world().server("w", Script::new().with(|s| s.extra_tools = 1));
    let mut daemon = w.start();
    drop(w.client(&["w"]));
    assert!(daemon.stop().success());
    w = w.server_with("w", Script::new().with(|s| s.extra_tools = 2), &["env: {GENERATION: two}"]);
    let _daemon = w.start();
    w.client(&[]).wait_tool("mcp_w_extra_0001");
    assert_eq!(w.journal("w").starts(), 2);
}

/// `idle_stop` ends an unused server, never one with a call; its tools stay listed, the next call starts it.
#[test]
fn an_idle_server_is_stopped_and_comes_back_by_use() {
    let w = world().server_with("w", Script::new(), &["idle_stop: 1s"]).server("stays", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w", "stays"]);
    let call = client.begin_call("mcp_w_sleep", &json!({"ms": 2500, "text": "long"}));
    wait_for("the call is at the server", SOON, || !w.journal("w").received("tools/call").is_empty());
    // On a slow machine it was idle before, and this call started it again.
    let starts = w.journal("w").starts();
    assert_eq!(client.reply(&call)["result"]["content"][0]["text"], "long");
    assert_eq!(w.journal("w").starts(), starts, "a call in flight is use");
    wait_for("the idle server is gone", SOON, || w.processes("w").is_empty());
    w.wait_phase("w", "stopped");
    assert!(w.status("w")["reason"].as_str().unwrap_or_default().contains("idle"), "{}", w.status("w"));
    assert!(client.tool_names().contains(&"mcp_w_echo".to_owned()));
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "again"})), "again");
    assert_eq!(w.journal("w").starts(), starts + 1);
    assert_eq!(w.journal("stays").starts(), 1);
    assert_eq!(w.phase("stays"), "ready");
}

/// `max_concurrency` calls are at the server, the others wait here.
#[test]
fn no_more_calls_than_allowed_are_at_a_server() {
    let w = world()
        .server_with("two", Script::new(), &["max_concurrency: 2"])
        .server_with("one", Script::new(), &["supports_parallel_tool_calls: false"])
        .server("usual", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["one", "two", "usual"]);
    for (server, limit) in [("two", 2), ("one", 1), ("usual", 16)] {
        let tool = format!("mcp_{server}_sleep");
        let ids: Vec<_> = (0..limit + 1).map(|_| client.begin_call(&tool, &json!({"ms": 600_000}))).collect();
        wait_for("the last call waits", SOON, || w.status(server)["waiting"] == 1);
        assert_eq!(w.status(server)["in_flight"], limit, "{server}");
        wait_for("the others are there", SOON, || arrived(&w, server) == limit);
        assert!(holds_for(Duration::from_millis(300), || arrived(&w, server) == limit), "{server}");
        cancel(&mut client, &ids[0]);
        wait_for("the next one goes", SOON, || arrived(&w, server) == limit + 1);
        ids[1..].iter().for_each(|id| cancel(&mut client, id));
    }
}

/// `start_concurrency` bounds the starts at one time; the wait is not charged to `connect_timeout`.
#[test]
fn waiting_for_a_start_place_is_not_charged() {
    let slow = || Script::new().with(|s| s.start_delay_ms = 1200);
    let w = (0..6).fold(world().yaml("hermesd: {start_concurrency: 1}"), |w, n| {
        w.server_with(&format!("s{n}"), slow(), &["connect_timeout: 5"])
    });
    let _daemon = w.start();
    wait_for("all are ready", SOON, || {
        let all = w.ctl(["servers", "--json"]).succeeds().json();
        let list = all.as_array().unwrap().clone();
        let starting = list.iter().filter(|s| s["phase"] == "starting" && s["pid"].is_u64()).count();
        assert!(starting <= 1, "{all}");
        list.iter().all(|s| s["phase"] == "ready")
    });
    for n in 0..6 {
        assert_eq!(w.journal(&format!("s{n}")).starts(), 1, "none ran out of time");
    }
}

/// `connect_timeout` is the first budget; a cold start that needs more gets more at each attempt.
#[test]
fn a_cold_start_gets_more_time_at_each_attempt() {
    let w =
        world().server_with("w", Script::new().with(|s| s.start_delay_ms = 2500), &["connect_timeout: 1"]);
    let _daemon = w.start();
    wait_for("the first attempt ran out of time", SOON, || {
        let status = w.status("w");
        status["attempts"].as_u64() >= Some(1) && status["phase"] != "ready"
    });
    w.wait_phase("w", "ready");
    assert!(w.journal("w").starts() >= 3, "2.5 s do not fit into 1 s or 2 s");
}

/// `timeout` is the limit of a silent call.
#[test]
fn the_timeout_of_the_file_ends_a_silent_call() {
    let w = world().server_with("w", Script::new(), &["timeout: 1500ms"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let start = Instant::now();
    assert_eq!(client.call("mcp_w_hang", &json!({}))["isError"], true);
    assert!(start.elapsed() >= Duration::from_millis(1500), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(60), "not the default of 120 s");
}

/// `breaker.threshold` failures open it, `breaker.cooldown` later one call may try; `breaker reset` does it at once.
#[test]
fn the_breaker_follows_its_limits() {
    let lines = ["timeout: 300ms", "breaker: {threshold: 2, cooldown: 2s}"];
    let w = world().server_with("w", Script::new(), &lines);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.call("mcp_w_hang", &json!({}));
    assert_eq!(breaker(&w, "w"), "closed", "one failure is not two");
    client.call("mcp_w_hang", &json!({}));
    let refused = client.call("mcp_w_echo", &json!({"text": "x"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(arrived(&w, "w"), 2, "a refused call is not sent");
    wait_for("the cooldown is over and a call passes", SOON, || {
        client.call("mcp_w_echo", &json!({"text": "x"}))["content"][0]["text"] == "x"
    });
    assert_eq!(breaker(&w, "w"), "closed");
}

/// An open breaker is closed by command.
#[test]
fn an_open_breaker_is_closed_by_command() {
    let w =
        world().server_with("w", Script::new(), &["timeout: 300ms", "breaker: {threshold: 1, cooldown: 1h}"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.call("mcp_w_hang", &json!({}));
    assert_eq!(breaker(&w, "w"), "open");
    w.ctl(["breaker", "reset", "w"]).succeeds();
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "x"})), "x");
}

/// Error results open the breaker only where `breaker.count_tool_errors` says so.
#[test]
fn error_results_count_only_where_asked() {
    let w = world().server("w", Script::new()).server_with(
        "v",
        Script::new(),
        &["breaker: {count_tool_errors: true}"],
    );
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    for _ in 0..3 {
        client.call("mcp_w_fail", &json!({}));
        client.call("mcp_v_fail", &json!({}));
    }
    assert_eq!(breaker(&w, "w"), "closed");
    assert_eq!(breaker(&w, "v"), "open", "three is the default");
}

/// `detached: keep` leaves what a server started on purpose; without it nothing stays.
#[test]
fn detached_processes_stay_only_where_told() {
    let w = world()
        .server_with("keep", Script::forks(Fork::Daemon), &["detached: keep"])
        .server("end", Script::forks(Fork::Daemon));
    let mut daemon = w.start();
    let _client = w.client(&["keep", "end"]);
    wait_for("both have a process beside", SOON, || {
        w.processes("keep").len() == 2 && w.processes("end").len() == 2
    });
    w.ctl(["servers", "stop", "keep"]).succeeds();
    w.ctl(["servers", "stop", "end"]).succeeds();
    assert_eq!(w.processes("end"), []);
    let kept = w.processes("keep");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].cmdline.contains("--sleeper"));
    assert!(daemon.stop().success());
    let pids: Vec<i32> = w.processes("keep").iter().map(|p| p.pid).collect();
    assert_eq!(pids, [kept[0].pid], "nor does the end of the daemon touch it");
    kill(kept[0].pid, Signal::KILL);
}

/// `protocol` pins the revision that is offered to the server.
#[test]
fn a_pinned_revision_is_the_one_that_is_offered() {
    let w = world().server_with("w", Script::new(), &["protocol: 2025-03-26"]);
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let offered = w.journal("w").received("initialize");
    assert_eq!(offered[0]["params"]["protocolVersion"], "2025-03-26");
}

/// `name_limit` bounds exposed names, and the shortened ones work.
#[test]
fn exposed_names_keep_to_the_limit_of_the_file() {
    let long = "a_tool_with_a_rather_long_name_that_must_be_cut";
    let tools = vec![json!({"name": long, "inputSchema": {"type": "object"}})];
    let w =
        world().yaml("hermesd: {name_limit: 30}").server("w", Script::new().with(|s| s.tools = Some(tools)));
    let _daemon = w.start();
    let mut client = w.client(&[]);
    wait_for("the tool is listed", SOON, || client.tool_names().len() == 1);
    let name = client.tool_names().remove(0);
    assert!(name.len() <= 30 && name.starts_with("mcp_w_a_tool"), "{name}");
    client.request("tools/call", &json!({"name": name, "arguments": {}}));
    assert_eq!(w.journal("w").received("tools/call")[0]["params"]["name"], long);
}

/// `hermesd.mcp_servers` wins over `mcp_servers`, entry by entry.
#[test]
fn entries_below_hermesd_win() {
    let w = world().server_with("w", Script::new(), &["env: {FROM: shared}"]).server("v", Script::new());
    let script = w.path().join("w.script");
    let own = json!({"w": {"command": w.bins().fake_server, "args": [script], "env": {"FROM": "own"}}});
    let w = w.yaml(&format!("hermesd: {{mcp_servers: {own}}}"));
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    let seen = client.text("mcp_w_env", &json!({}));
    assert!(seen.lines().any(|line| line == "FROM=own"), "{seen}");
    assert_eq!(w.processes("w").len(), 1, "one server, not two");
}

/// `conversations` decides whether the ten tools are offered, whatever the home holds.
#[test]
fn conversations_are_offered_as_configured() {
    let listed = |w: &World| {
        let mut client = w.client(&["w"]);
        client.tool_names().iter().any(|name| name.ends_with("conversations_list"))
    };
    let on = world().yaml("hermesd: {conversations: on}").server("w", Script::new());
    let off = world().yaml("hermesd: {conversations: off}\nplatforms: {}").server("w", Script::new());
    let auto = world().yaml("platforms: {}").server("w", Script::new());
    for (w, offered) in [(on, true), (off, false), (auto, true)] {
        let _daemon = w.start();
        assert_eq!(listed(&w), offered, "{}", std::fs::read_to_string(w.home().join("config.yaml")).unwrap());
    }
}

/// A parked server keeps its tools listed, and a call brings it back once it was mended.
#[test]
fn a_parked_server_comes_back_by_use() {
    let w = world().server("w", Script::new());
    let mut daemon = w.start();
    drop(w.client(&["w"]));
    assert!(daemon.stop().success());
    w.rescript("w", Script::new().with(|s| s.exit_at_start = Some(127)));
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let refused = client.call("mcp_w_echo", &json!({"text": "x"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(w.phase("w"), "parked");
    assert!(client.tool_names().contains(&"mcp_w_echo".to_owned()), "tools of parked servers stay listed");
    w.rescript("w", Script::new());
    wait_for("the next call starts it", SOON, || {
        client.call("mcp_w_echo", &json!({"text": "back"}))["content"][0]["text"] == "back"
    });
    assert_eq!(w.phase("w"), "ready");
}

/// A first call waits for the start of its server and is answered, also when many come at once.
#[test]
fn first_calls_wait_for_one_start() {
    let w = world().server("w", Script::new());
    let mut daemon = w.start();
    drop(w.client(&["w"]));
    assert!(daemon.stop().success());
    w.rescript("w", Script::new().with(|s| s.start_delay_ms = 800));
    let _daemon = w.start();
    let mut clients: Vec<Shim> = (0..4).map(|_| w.client(&["w"])).collect();
    let ids: Vec<_> =
        clients.iter_mut().map(|client| client.begin_call("mcp_w_echo", &json!({"text": "x"}))).collect();
    for (client, id) in clients.iter_mut().zip(&ids) {
        assert_eq!(client.reply(id)["result"]["content"][0]["text"], "x");
    }
    assert_eq!(w.journal("w").starts(), 2, "one start for all of them");
}
