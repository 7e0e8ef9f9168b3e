//! Every key of the configuration that the road of a call obeys has a test that fails when the key is
//! ignored. The table says which; a test checks that each named test exists.
//!
//! | Key | Test |
//! |---|---|
//! | `timeout` | `life_modes::the_timeout_of_the_file_ends_a_silent_call` |
//! | `supports_parallel_tool_calls`, `max_concurrency` | `life_modes::no_more_calls_than_allowed_are_at_a_server` |
//! | `tools.include`, `tools.exclude` | `listing::hidden_tools_are_neither_listed_nor_callable` |
//! | `tools.resources`, `tools.prompts` | `chain_natives::utility_tools_follow_capabilities_and_configuration` |
//! | `validate` | `chain_steps::validation_can_be_switched_off` |
//! | `trust_annotations` | `chain_steps::only_trusted_harmless_tools_are_called_twice` |
//! | `breaker.threshold`, `breaker.cooldown` | `life_modes::the_breaker_follows_its_limits` |
//! | `breaker.count_tool_errors` | `life_modes::error_results_count_only_where_asked` |
//! | `rate_limit.per_minute` | `chain_steps::rate_limits_are_counted_for_each_client` |
//! | `rate_limit.burst` | `chain_keys::a_burst_is_what_may_come_at_once` |
//! | `approval` as a word | `chain_approvals::destructive_tools_wait_and_readers_do_not` |
//! | `approval` as a list | `chain_keys::only_the_tools_of_a_list_wait` |
//! | `approval_timeout` | `chain_approvals::waiting_ends_with_its_time_or_its_call` |
//! | `redact_results` | `chain_steps::results_are_masked_as_configured` |
//! | `result_limit` | `chain_steps::long_results_are_cut_only_where_asked_for` |
//! | `pin: warn`, `pin: off` | `chain_pins::a_changed_text_is_reported_by_default_and_ignored_when_off` |
//! | `pin: block` | `chain_pins::a_changed_text_waits_for_approval_under_block` |
//! | `hermesd.profiles.NAME.servers` | `chain_natives::profiles_hide_resources_and_prompts` |
//! | `hermesd.profiles.NAME.tools` | `chain_keys::a_profile_narrows_tools` |
//! | `hermesd.profiles.NAME.names` | `chain_keys::raw_names_are_used_where_a_profile_has_one_server` |
//! | `hermesd.profiles.NAME.conversations` | `chain_keys::a_profile_decides_about_the_conversation_tools` |
//! | `hermesd.profiles.NAME.quota.per_day` | `chain_steps::a_daily_quota_survives_a_restart` |
//! | `hermesd.profiles.NAME.quota.per_session` | `chain_steps::a_session_quota_ends_with_its_session` |
//! | `hermesd.conversations` | `life_modes::conversations_are_offered_as_configured` |
//! | `hermesd.name_limit` | `life_modes::exposed_names_keep_to_the_limit_of_the_file` |
//! | `hermesd.metrics.listen` | `chain_evidence::metrics_are_served_where_configured` |
//! | `hermesd.audit.arguments` | `chain_evidence::arguments_are_recorded_as_configured` |
//! | `hermesd.audit.retention_days` | `chain_keys::audit_rows_go_after_their_days` |
//! | `hermesd.otlp.endpoint` | `traces::a_call_is_one_trace_from_the_shim_to_the_server` |
//! | `hermesd.otlp.sample_ratio` | `traces::the_ratio_decides_only_about_traces_that_begin_here` |
//! | `hermesd.redaction.labels` | `chain_steps::labels_say_what_was_masked_where_asked_for` |

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, holds_for, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

fn client(w: &World, profile: &str) -> Shim {
    let mut client = w.shim_with(&["mcp", "serve", "--profile", profile]);
    client.initialize();
    client
}

/// The table above names tests that exist.
#[test]
fn each_key_names_a_test_that_exists() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e");
    let own = std::fs::read_to_string(folder.join("chain_keys.rs")).unwrap();
    let rows: Vec<&str> = own.lines().filter_map(|line| line.strip_prefix("//! | `")).collect();
    assert!(rows.len() >= 30, "{}", rows.len());
    for row in rows {
        let named = row.rsplit('`').nth(1).unwrap();
        let (file, test) = named.split_once("::").unwrap();
        let text = std::fs::read_to_string(folder.join(format!("{file}.rs"))).unwrap();
        assert!(text.contains(&format!("#[test]\nfn {test}()")), "{named}");
    }
}

/// `rate_limit.burst` calls pass at once, the next one waits for its minute's share.
#[test]
fn a_burst_is_what_may_come_at_once() {
    let w = world()
        .server_with("three", Script::new(), &["rate_limit: { per_minute: 1, burst: 3 }"])
        .server_with("one", Script::new(), &["rate_limit: { per_minute: 1, burst: 1 }"]);
    let _daemon = w.start();
    let mut client = w.client(&["three", "one"]);
    for (server, burst) in [("three", 3), ("one", 1)] {
        let mut passed = 0;
        while client.call(&format!("mcp_{server}_echo"), &json!({"text": "x"}))["isError"] != true {
            passed += 1;
            assert!(passed <= burst, "{server}");
        }
        assert_eq!(passed, burst, "{server}");
    }
}

/// `approval: [NAME]` gates that tool and no other.
#[test]
fn only_the_tools_of_a_list_wait() {
    let w = world().server_with("w", Script::new(), &["approval: [raw_args]", "approval_timeout: 1"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "free"})), "free");
    assert_eq!(client.call("mcp_w_raw_args", &json!({}))["_meta"]["kind"], "approval_timeout");
}

/// `tools` of a profile hides tools from its clients only; what it hides cannot be called.
#[test]
fn a_profile_narrows_tools() {
    let w = world()
        .yaml(
            "hermesd:\n  profiles:\n    few: { tools: { include: [echo] } }\n    \
             less: { tools: { exclude: [mcp_w_echo] } }",
        )
        .server("w", Script::new());
    let _daemon = w.start();
    assert!(w.client(&["w"]).tool_names().len() > 5);
    let mut few = client(&w, "few");
    assert_eq!(few.tool_names(), ["mcp_w_echo"]);
    let params = json!({"name": "mcp_w_raw_args", "arguments": {}});
    assert_eq!(few.request("tools/call", &params)["error"]["code"], -32602);
    let less = client(&w, "less").tool_names();
    assert!(less.len() > 5 && !less.contains(&"mcp_w_echo".to_owned()), "{less:?}");
}

/// `names: raw` takes the prefix away where a profile has a single server, and only there.
#[test]
fn raw_names_are_used_where_a_profile_has_one_server() {
    let w = world()
        .yaml(
            "hermesd:\n  profiles:\n    raw: { servers: [w], names: raw }\n    long: { servers: [w], names: prefixed }",
        )
        .server("w", Script::new())
        .server("other", Script::new());
    let _daemon = w.start();
    drop(w.client(&["w", "other"]));
    let mut raw = client(&w, "raw");
    assert!(raw.tool_names().contains(&"echo".to_owned()));
    assert_eq!(raw.text("echo", &json!({"text": "x"})), "x");
    assert!(client(&w, "long").tool_names().iter().all(|name| name.starts_with("mcp_w_")));
}

/// `conversations: read` leaves out what changes something, `off` all ten.
#[test]
fn a_profile_decides_about_the_conversation_tools() {
    let w = world()
        .yaml(
            "hermesd:\n  conversations: on\n  profiles:\n    all: { conversations: on }\n    \
             reader: { conversations: read }\n    none: { conversations: off }",
        )
        .server("w", Script::new());
    let _daemon = w.start();
    for (profile, lists, sends) in [("all", true, true), ("reader", true, false), ("none", false, false)] {
        let mut client = client(&w, profile);
        client.wait_tool("mcp_w_echo");
        let names = client.tool_names();
        let has = |end: &str| names.iter().any(|name| name.ends_with(end));
        assert_eq!((has("conversations_list"), has("messages_send")), (lists, sends), "{profile}: {names:?}");
    }
}

/// Ages every audit row, as if so many days had gone.
fn age(w: &World, days: i64) {
    let database = rusqlite::Connection::open(w.home().join("hermesd/hermesd.db")).unwrap();
    database.busy_timeout(SOON).unwrap();
    let changed = database.execute("UPDATE audit SET at_ms = at_ms - ?1", [days * 86_400_000]).unwrap();
    assert!(changed > 0);
}

fn rows(w: &World) -> usize {
    let listed = w.ctl(["audit", "--json"]).succeeds().stdout;
    listed.lines().filter(|line| serde_json::from_str::<Value>(line).unwrap()["tool"] == "echo").count()
}

/// `audit.retention_days` removes older rows, when the daemon starts and when the key changes.
#[test]
fn audit_rows_go_after_their_days() {
    let w = world().yaml("hermesd:\n  audit: { retention_days: 9 }").server("w", Script::new());
    let mut daemon = w.start();
    w.client(&["w"]).call("mcp_w_echo", &json!({"text": "old"}));
    assert_eq!(rows(&w), 1);
    daemon.stop();
    age(&w, 5);
    let mut daemon = w.start();
    assert!(holds_for(Duration::from_millis(500), || rows(&w) == 1), "five days are less than nine");
    let config = w.home().join("config.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("retention_days: 9", "retention_days: 4")).unwrap();
    w.ctl(["reload"]).succeeds();
    wait_for("the row goes", SOON, || rows(&w) == 0);
    w.client(&["w"]).call("mcp_w_echo", &json!({"text": "new"}));
    assert_eq!(rows(&w), 1, "a fresh row stays");
    daemon.stop();
    age(&w, 5);
    let _daemon = w.start();
    wait_for("the row goes at the start", SOON, || rows(&w) == 0);
}
