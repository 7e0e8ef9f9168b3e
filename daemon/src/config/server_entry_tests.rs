//! Each key that every server has: ignored, it fails here.

use super::super::testing::*;
use super::super::*;
use std::time::Duration;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn with(key: &str) -> ServerConfig {
    clean(&["command: x", key])
}

#[test]
fn an_entry_without_options_has_every_default() {
    let server = clean(&["command: x"]);
    assert_eq!(
        server,
        ServerConfig::with_transport(name("s"), TransportConfig::Stdio(StdioConfig::command("x")))
    );
    assert_eq!(
        (server.timeout, server.connect_timeout, server.approval_timeout),
        (secs(120), secs(60), secs(300))
    );
    assert_eq!((server.max_concurrency.get(), server.breaker.threshold.get()), (16, 3));
}

#[test]
fn times_are_read_with_units_and_as_numbers_in_any_form() {
    assert_eq!(with("timeout: 90s").timeout, secs(90));
    assert_eq!(with("timeout: 90").timeout, secs(90));
    assert_eq!(with("timeout: '1.5'").timeout, Duration::from_millis(1500));
    assert_eq!(with("connect_timeout: 2m").connect_timeout, secs(120));
    assert_eq!(with("idle_stop: 1h30m").idle_stop, Some(secs(5400)));
    assert_eq!(with("idle_stop: off").idle_stop, None);
    assert_eq!(with("approval_timeout: 10s").approval_timeout, secs(10));
    for bad in
        ["timeout: 0", "timeout: -1", "timeout: soon", "timeout: [1]", "idle_stop: 0", "connect_timeout: inf"]
    {
        let config = one(&["command: x", bad], &[]);
        assert_eq!(only(&config, Severity::Error).line, 4, "{bad}");
        assert!(!refusal(&config, "s").is_empty());
    }
}

#[test]
fn enabled_is_read_in_every_spelling_and_a_wrong_one_never_starts_the_server() {
    for off in ["false", "no", "'off'", "FALSE", "\"0\""] {
        let config = one(&["command: x", &format!("enabled: {off}")], &[]);
        assert!(matches!(entry(&config, "s"), ServerEntry::Disabled(_)), "{off}");
    }
    let config = one(&["command: x", "enabled: 0"], &[]);
    assert!(matches!(entry(&config, "s"), ServerEntry::Disabled(_)));
    assert_eq!(only(&config, Severity::Warning).key, "mcp_servers.s.enabled");
    assert!(refusal(&one(&["command: x", "enabled: flase"], &[]), "s").contains("flase"));
    assert!(matches!(entry(&one(&["command: x", "enabled: ~"], &[]), "s"), ServerEntry::Enabled(_)));
}

#[test]
fn tools_take_one_name_or_a_list_and_an_empty_list_means_none() {
    let server = clean(&["command: x", "tools: {include: [a, 1.10, yes], resources: no, prompts: off}"]);
    assert_eq!(server.tools.include, Some(vec!["a".to_owned(), "1.10".to_owned(), "yes".to_owned()]));
    assert!(!server.tools.resources && !server.tools.prompts);
    assert_eq!(with("tools: {include: []}").tools.include, Some(vec![]));
    assert_eq!(with("tools: {include: ~}").tools.include, None);
    assert_eq!(with("tools: {exclude: rm}").tools.exclude, ["rm"]);
    let both = one(&["command: x", "tools: {include: a, exclude: b}"], &[]);
    assert_eq!(only(&both, Severity::Warning).key, "mcp_servers.s.tools.exclude");
    for bad in ["tools: [a]", "tools: {include: {a: 1}}", "tools: {include: [[a]]}"] {
        assert!(!refusal(&one(&["command: x", bad], &[]), "s").is_empty(), "{bad}");
    }
}

#[test]
fn sampling_may_be_null_false_or_a_mapping() {
    assert_eq!(with("sampling:").sampling, SamplingConfig::default());
    assert!(!with("sampling: false").sampling.enabled);
    assert!(with("sampling: true").sampling.enabled);
    let all = "sampling: {enabled: no, model: m, max_tokens_cap: '100', timeout: 5, max_rpm: 2.0, max_tool_rounds: 0, \
               allowed_models: [a], log_level: debug, prefer: provider}";
    let wanted = SamplingConfig {
        enabled: false,
        model: Some("m".to_owned()),
        max_tokens_cap: 100,
        timeout: secs(5),
        max_rpm: 2,
        max_tool_rounds: 0,
        allowed_models: vec!["a".to_owned()],
        log_level: SamplingLogLevel::Debug,
        prefer: SamplingPreference::Provider,
    };
    assert_eq!(with(all).sampling, wanted);
    assert!(refusal(&one(&["command: x", "sampling: {max_rpm: nan}"], &[]), "s").contains("nan"));
}

#[test]
fn every_listed_value_is_taken_and_another_one_lists_them() {
    assert_eq!(with("sharing: per_client").sharing, Sharing::PerClient);
    assert_eq!(with("sharing: per-root").sharing, Sharing::PerRoot);
    assert_eq!(with("sharing: Exclusive").sharing, Sharing::Exclusive);
    assert_eq!(with("start: eager").start, StartMode::Eager);
    assert_eq!(with("redact_results: patterns").redact_results, RedactResults::Patterns);
    assert_eq!(with("redact_results: false").redact_results, RedactResults::Off);
    assert_eq!(with("pin: block").pin, PinPolicy::Block);
    assert_eq!(with("pin: off").pin, PinPolicy::Off);
    assert_eq!(with("protocol: 2025-06-18").protocol, ProtocolChoice::Revision("2025-06-18".to_owned()));
    assert_eq!(with("protocol: legacy").protocol, ProtocolChoice::Legacy);
    let config = one(&["command: x", "sharing: sharde"], &[]);
    let finding = only(&config, Severity::Error);
    assert!(finding.hint.contains("`shared`") && finding.hint.contains("exclusive"), "{finding:?}");
    assert!(
        only(&one(&["command: x", "protocol: 2031-01-01"], &[]), Severity::Error).hint.contains("2024-11-05")
    );
}

#[test]
fn concurrency_follows_the_parallel_flag_unless_it_is_written() {
    assert_eq!(with("supports_parallel_tool_calls: false").max_concurrency.get(), 1);
    assert_eq!(with("supports_parallel_tool_calls: yes").max_concurrency.get(), 16);
    let both = clean(&["command: x", "supports_parallel_tool_calls: no", "max_concurrency: 4"]);
    assert_eq!(both.max_concurrency.get(), 4);
    assert!(refusal(&one(&["command: x", "max_concurrency: 0"], &[]), "s").contains("out of range"));
}

#[test]
fn breaker_rate_limit_and_result_limit_are_read() {
    let breaker = with("breaker: {threshold: 5, cooldown: 10s, count_tool_errors: on}").breaker;
    assert_eq!((breaker.threshold.get(), breaker.cooldown, breaker.count_tool_errors), (5, secs(10), true));
    let rate = with("rate_limit: {per_minute: 60, burst: 5}").rate_limit.expect("limit");
    assert_eq!((rate.per_minute.get(), rate.burst.get()), (60, 5));
    assert_eq!(with("rate_limit: {per_minute: 60}").rate_limit.map(|rate| rate.burst.get()), Some(60));
    assert_eq!(with("rate_limit: none").rate_limit, None);
    assert_eq!(with("result_limit: 512KB").result_limit.map(|n| n.get()), Some(512_000));
    assert_eq!(with("result_limit: 4MiB").result_limit.map(|n| n.get()), Some(4 << 20));
    assert_eq!(with("result_limit: none").result_limit, None);
    for bad in [
        "rate_limit: {burst: 5}",
        "rate_limit: 60",
        "result_limit: 0",
        "result_limit: big",
        "breaker: {threshold: 0}",
    ] {
        assert!(!refusal(&one(&["command: x", bad], &[]), "s").is_empty(), "{bad}");
    }
}

#[test]
fn approval_is_a_word_or_a_list_of_tools() {
    assert_eq!(with("approval: destructive").approval, ApprovalPolicy::Destructive);
    assert_eq!(with("approval: always").approval, ApprovalPolicy::Always);
    assert_eq!(
        with("approval: [rm, mv]").approval,
        ApprovalPolicy::Tools(vec!["rm".to_owned(), "mv".to_owned()])
    );
    assert!(refusal(&one(&["command: x", "approval: somtimes"], &[]), "s").contains("somtimes"));
}

#[test]
fn switches_are_read() {
    assert!(!with("validate: off").validate);
    assert!(with("trust_annotations: on").trust_annotations);
    let server = with("validate: on");
    assert!(server.validate && !server.trust_annotations);
}

#[test]
fn unknown_keys_warn_with_what_was_probably_meant() {
    for (typo, meant) in [
        ("comand: y", "`command`"),
        ("max-concurency: 1", "`max_concurrency`"),
        ("disabled: true", "enabled: false"),
        ("type: stdio", "transport"),
        ("banana: 1", "known here"),
    ] {
        let config = one(&["command: x", typo], &[]);
        let finding = only(&config, Severity::Warning);
        assert!(finding.hint.contains(meant), "{finding:?}");
        assert_eq!((finding.line, finding.server), (4, Some(name("s"))));
        running(&config, "s");
    }
    let inner = only(&one(&["command: x", "tools: {inclde: [a]}"], &[]), Severity::Warning);
    assert_eq!(
        (inner.key.as_str(), inner.hint.as_str()),
        ("mcp_servers.s.tools.inclde", "did you mean `include`?")
    );
    assert_eq!(one(&["command: x", "x-note: mine", "_comment: mine"], &[]).findings, []);
}

#[test]
fn all_errors_of_an_entry_are_reported_at_once_with_line_and_key() {
    let config =
        one(&["command: ${NO}", "timeout: x", "sharing: y", "args: z", "breaker: {cooldown: q}"], &[]);
    let errors: Vec<(u32, &str)> = config
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| (finding.line, finding.key.as_str()))
        .collect();
    let s = "mcp_servers.s";
    let wanted: [(u32, String); 5] = [
        (3, format!("{s}.command")),
        (4, format!("{s}.timeout")),
        (5, format!("{s}.sharing")),
        (6, format!("{s}.args")),
        (7, format!("{s}.breaker.cooldown")),
    ];
    assert_eq!(errors, wanted.each_ref().map(|(line, key)| (*line, key.as_str())));
}

#[test]
fn a_key_written_twice_refuses_the_server_and_names_both_lines() {
    let config = one(&["command: x", "timeout: 1", "timeout: 2"], &[]);
    let finding = only(&config, Severity::Error);
    assert!(finding.message.contains("line 4") && finding.message.contains("line 5"), "{finding:?}");
    refusal(&config, "s");
}

#[test]
fn errors_of_a_disabled_server_are_warnings() {
    let config = one(&["command: ${NO}", "enabled: false"], &[]);
    assert_eq!(only(&config, Severity::Warning).line, 3);
    assert!(refusal(&config, "s").starts_with("disabled"));
}

#[test]
fn values_may_come_from_variables_wherever_they_stand() {
    let config = one(
        &["command: x", "timeout: ${T}", "sharing: ${S:-exclusive}", "enabled: ${E}"],
        &[("T", "5s"), ("E", "yes")],
    );
    let server = running(&config, "s");
    assert_eq!((server.timeout, server.sharing), (secs(5), Sharing::Exclusive));
    assert!(refusal(&one(&["command: x", "timeout: ${T}"], &[]), "s").contains("`T`"));
}
