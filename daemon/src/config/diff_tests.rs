//! The plan between two configurations.

use super::super::testing::checked;
use super::*;
use proptest::prelude::*;

fn server(lines: &str) -> Config {
    checked(&format!("mcp_servers:\n  s: {{command: x, {lines}}}\n  t: {{command: y}}\n"), &[])
}

fn change_of(lines: &str) -> Option<Change> {
    let plan = plan(&server(""), &server(lines));
    assert!(plan.unchanged.contains(&ServerName::new("t")), "{lines}");
    plan.changed.first().map(|(_, change)| *change)
}

#[test]
fn comments_order_defaults_and_spelling_change_nothing() {
    let old = checked(
        "mcp_servers:\n  a:\n    command: x\n    timeout: 90\n    env: {A: 1, B: 2}\n  b: {command: y}\n",
        &[],
    );
    let new = "# c\nmcp_servers:\n  b: {command: y, enabled: yes}\n  a:\n    env: {B: '2', A: \"1\"}\n    timeout: 1m30s # c\n    command: 'x'\n";
    let plan = plan(&old, &checked(new, &[]));
    assert!(plan.is_empty(), "{plan:?}");
    assert_eq!(plan.unchanged.len(), 2);
}

#[test]
fn what_a_process_was_built_from_restarts_it() {
    for lines in [
        "args: [a]",
        "env: {A: 1}",
        "cwd: /w",
        "env_pass: [A]",
        "allow_shell: true",
        "osv: off",
        "detached: keep",
        "protocol: 2025-06-18",
        "sharing: exclusive",
        "sampling: false",
    ] {
        assert_eq!(change_of(lines), Some(Change::Restart), "{lines}");
    }
}

#[test]
fn limits_filters_and_policies_apply_without_a_restart() {
    for lines in [
        "timeout: 1",
        "connect_timeout: 1",
        "tools: {include: [a]}",
        "sampling: {max_rpm: 1}",
        "start: eager",
        "idle_stop: 5m",
        "max_concurrency: 2",
        "breaker: {threshold: 1}",
        "rate_limit: {per_minute: 1}",
        "approval: always",
        "approval_timeout: 5",
        "redact_results: off",
        "result_limit: 1MB",
        "pin: block",
        "validate: off",
        "trust_annotations: on",
    ] {
        assert_eq!(change_of(lines), Some(Change::Apply), "{lines}");
    }
}

#[test]
fn a_changed_secret_restarts_only_its_users() {
    let yaml = "mcp_servers:\n  a: {command: x, env: {K: '${A_KEY}'}}\n  b: {command: x, env: {K: '${B_KEY}'}}\n  c: {command: x}\n";
    let old = checked(yaml, &[("A_KEY", "one-secret"), ("B_KEY", "same")]);
    let plan = plan(&old, &checked(yaml, &[("A_KEY", "two-secret"), ("B_KEY", "same")]));
    assert_eq!(plan.changed, [(ServerName::new("a"), Change::Restart)]);
    assert_eq!(plan.unchanged.len(), 2);
}

#[test]
fn disabling_and_breaking_an_entry_end_it_and_mending_starts_it() {
    let on = checked("mcp_servers: {a: {command: x}}\n", &[]);
    let off = checked("mcp_servers: {a: {command: x, enabled: no}}\n", &[]);
    let bad = checked("mcp_servers: {a: {command: x, timeout: q}}\n", &[]);
    for other in [&off, &bad] {
        assert_eq!(plan(&on, other).removed, [ServerName::new("a")]);
        assert_eq!(plan(other, &on).added, [ServerName::new("a")]);
    }
    assert!(plan(&off, &bad).is_empty());
}

#[test]
fn the_daemons_own_section_is_compared_apart() {
    let plan = plan(
        &server(""),
        &checked("mcp_servers: {s: {command: x}, t: {command: y}}\nhermesd: {name_limit: 60}\n", &[]),
    );
    assert!(plan.daemon_changed && !plan.is_empty());
    assert_eq!(plan.unchanged.len(), 2);
}

/// A configuration of a few servers with a few settings each.
fn configs() -> impl Strategy<Value = Config> {
    let entry = (0..3_u8, 1..3_u8, prop::bool::ANY, prop::option::of(1..3_u8));
    prop::collection::btree_map("[a-e]", entry, 0..5).prop_map(|servers| {
        let lines = servers.iter().map(|(name, (arg, timeout, enabled, limit))| {
            let limit = limit.map_or(String::new(), |n| format!(", max_concurrency: {n}"));
            format!(
                "  {name}: {{command: x, args: [{arg}], timeout: {timeout}, enabled: {enabled}{limit}}}\n"
            )
        });
        checked(&format!("mcp_servers:\n{}", lines.collect::<String>()), &[])
    })
}

proptest! {
    #[test]
    fn a_configuration_does_not_differ_from_itself(config in configs()) {
        let plan = plan(&config, &config.clone());
        prop_assert!(plan.is_empty());
        prop_assert_eq!(plan.unchanged.len(), running(&config).len());
    }

    #[test]
    fn applying_the_plan_to_the_old_gives_the_new(old in configs(), new in configs()) {
        let plan = plan(&old, &new);
        let mut acted = running(&old);
        for name in &plan.removed {
            prop_assert!(acted.remove(name).is_some());
        }
        for (name, server) in running(&new) {
            let touched = plan.added.contains(name) || plan.changed.iter().any(|(changed, _)| changed == name);
            if touched {
                prop_assert_eq!(acted.insert(name, server).is_some(), !plan.added.contains(name));
            }
        }
        prop_assert_eq!(acted, running(&new));
    }
}
