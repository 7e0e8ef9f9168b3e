//! Each key of `hermesd:`: ignored, it fails here.

use super::super::testing::*;
use super::super::*;

fn with(lines: &str) -> Config {
    let body: String = lines.lines().map(|line| format!("  {line}\n")).collect();
    checked(
        &format!("mcp_servers: {{a: {{command: x}}, b: {{command: y}}}}\nhermesd:\n{body}"),
        &[("K", "key-from-env")],
    )
}

#[track_caller]
fn clean(lines: &str) -> DaemonConfig {
    let config = with(lines);
    assert_eq!(config.findings, [], "{lines}");
    config.daemon
}

#[track_caller]
fn error(lines: &str) -> (String, DaemonConfig) {
    let config = with(lines);
    (only(&config, Severity::Error).key, config.daemon)
}

#[test]
fn profiles_are_read_with_every_key() {
    let daemon = clean(
        "profiles:\n  work:\n    servers: [a]\n    tools: {include: [t], exclude: []}\n    names: raw\n    conversations: read\n    \
         quota: {per_day: 100, per_session: 10}\n  bare:",
    );
    let work = &daemon.profiles["work"];
    assert_eq!(work.servers.as_deref(), Some(&["a".to_owned()][..]));
    assert_eq!(work.tools.include.as_deref(), Some(&["t".to_owned()][..]));
    assert!(work.raw_names);
    assert_eq!(work.conversations, ProfileConversations::Read);
    assert_eq!(
        (work.quota_per_day.map(|n| n.get()), work.quota_per_session.map(|n| n.get())),
        (Some(100), Some(10))
    );
    assert_eq!(daemon.profiles["bare"], ProfileConfig::default());
    assert_eq!(daemon.profiles["default"], ProfileConfig::default());
    assert_eq!(
        clean("profiles: {default: {conversations: off}}").profiles["default"].conversations,
        ProfileConversations::Off
    );
    assert_eq!(clean("profiles: {p: {tools: {exclude: rm}}}").profiles["p"].tools.exclude, ["rm"]);
}

#[test]
fn raw_names_need_a_single_server_and_named_servers_must_exist() {
    let (key, daemon) = error("profiles: {p: {names: raw}}");
    assert_eq!(key, "hermesd.profiles.p.names");
    assert!(!daemon.profiles["p"].raw_names);
    let single = checked("mcp_servers: {a: {command: x}}\nhermesd: {profiles: {p: {names: raw}}}\n", &[]);
    let profile = &single.daemon.profiles["p"];
    assert!(profile.raw_names && profile.servers.as_deref() == Some(&["a".to_owned()]));
    let finding = only(&with("profiles:\n  p:\n    servers: [aa]"), Severity::Warning);
    assert_eq!((finding.line, finding.key.as_str()), (5, "hermesd.profiles.p.servers"));
}

#[test]
fn simple_keys_are_read() {
    let daemon = clean("conversations: on\nstart_concurrency: 8\nname_limit: 60\nredaction: {labels: typed}");
    assert_eq!(
        (daemon.conversations, daemon.start_concurrency.get(), daemon.name_limit),
        (ConversationsMode::On, 8, 60)
    );
    assert_eq!(daemon.redaction_labels, RedactionLabels::Typed);
    assert!(daemon.instructions && !clean("instructions: off").instructions);
    assert_eq!(clean("conversations: off").conversations, ConversationsMode::Off);
    let audit = clean("audit: {retention_days: 7, arguments: full}").audit;
    assert_eq!((audit.retention_days, audit.arguments), (7, AuditArguments::Full));
    assert_eq!(clean("audit: {arguments: off}").audit.arguments, AuditArguments::Off);
    for bad in [
        "name_limit: 10",
        "start_concurrency: 0",
        "conversations: maybe",
        "redaction: {labels: x}",
        "audit: {retention_days: x}",
    ] {
        let (key, daemon) = error(bad);
        assert!(key.starts_with("hermesd."), "{bad}");
        assert_eq!(daemon, DaemonConfig::default());
    }
}

#[test]
fn the_sampling_provider_is_ours_or_the_auxiliary_one() {
    let config = with("sampling_provider: {base_url: 'https://h/v1/', api_key: '${K}', model: m}");
    let provider = config.daemon.sampling_provider.clone().expect("provider");
    assert_eq!((provider.base_url.as_str(), provider.model.as_deref()), ("https://h/v1", Some("m")));
    assert_eq!(provider.api_key.as_ref().map(|key| key.expose()), Some("key-from-env"));
    assert!(knows(&config, "key-from-env"));
    assert_eq!(error("sampling_provider: {model: m}").0, "hermesd.sampling_provider.base_url");

    let auxiliary = "auxiliary: {mcp: {provider: auto, model: m, base_url: 'http://127.0.0.1:1/v1', api_key: '', timeout: 30, extra_body: {}}}\n";
    let config = checked(auxiliary, &[]);
    assert_eq!(config.findings, []);
    let provider = config.daemon.sampling_provider.expect("auxiliary.mcp");
    assert_eq!(
        (provider.base_url.as_str(), provider.model.as_deref(), provider.api_key),
        ("http://127.0.0.1:1/v1", Some("m"), None)
    );
    let both =
        checked(&format!("{auxiliary}hermesd: {{sampling_provider: {{base_url: 'https://ours'}}}}\n"), &[]);
    assert_eq!(both.daemon.sampling_provider.expect("ours").base_url, "https://ours");
    assert_eq!(
        checked("auxiliary: {mcp: {provider: auto, base_url: ''}}\n", &[]).daemon.sampling_provider,
        None
    );
}

const TOKEN: &str = "abcdefgh-01234567";

#[test]
fn listeners_stay_on_this_machine() {
    let http = clean("http: {listen: 8765}").http.expect("http");
    assert_eq!((http.listen.as_str(), http.tokens), ("127.0.0.1:8765", ListenTokens::Generated));
    assert_eq!(clean("http: {listen: 'localhost:1'}").http.expect("http").listen, "localhost:1");
    assert_eq!(clean("http: {listen: '[::1]:1'}").http.expect("http").listen, "[::1]:1");
    for off in ["http: off", "http: false", "http:"] {
        assert_eq!(clean(off).http, None);
    }
    for bad in [
        "http: {listen: '0.0.0.0:1'}",
        "http: {listen: '0.0.0.0:1', token: abcdefgh-01234567}",
        "http: {token: abcdefgh-01234567}",
        "http: {listen: nonsense}",
        "http: {listen: ':99999'}",
    ] {
        assert_eq!(error(bad).1.http, None, "{bad}");
    }
    assert_eq!(clean("metrics: {listen: ':9464'}").metrics_listen.as_deref(), Some("127.0.0.1:9464"));
    assert_eq!(only(&with("metrics: {listen: '0.0.0.0:9464'}"), Severity::Warning).key, "hermesd.metrics");
}

#[test]
fn a_token_names_its_profile_and_a_wrong_one_never_opens_the_listener() {
    let given = |text: &str| match with(text).daemon.http.expect("http").tokens {
        ListenTokens::Given(all) => {
            all.into_iter().map(|(name, token)| format!("{name}={}", token.expose())).collect::<Vec<_>>()
        }
        other @ (ListenTokens::Generated | ListenTokens::Open) => panic!("{other:?}"),
    };
    assert_eq!(given(&format!("http: {{listen: 1, token: {TOKEN}}}")), [format!("default={TOKEN}")]);
    assert!(knows(&with(&format!("http: {{listen: 1, token: {TOKEN}}}")), TOKEN));
    let two =
        format!("profiles: {{work: }}\nhttp: {{listen: 1, token: {{default: {TOKEN}, work: {TOKEN}-2}}}}");
    assert_eq!(given(&two), [format!("default={TOKEN}"), format!("work={TOKEN}-2")]);
    let open = with("http: {listen: 1, token: off}");
    assert_eq!(only(&open, Severity::Warning).key, "hermesd.http.token");
    assert_eq!(open.daemon.http.expect("http").tokens, ListenTokens::Open);
    for bad in [
        "http: {listen: 1, token: '${NO}'}",
        "http: {listen: 1, token: short}",
        "http: {listen: 1, token: 'with a space in it'}",
        "http: {listen: 1, token: {default: abcdefgh-01234567, work: abcdefgh-01234567}}",
        "http: {listen: 1, token: {}}",
        "http: {listen: 1, token: {nobody: abcdefgh-01234567}}",
    ] {
        assert_eq!(error(bad).1.http, None, "{bad}");
    }
}

#[test]
fn a_server_that_is_our_own_listener_is_never_run() {
    let config = checked(
        "mcp_servers:\n  me:\n    url: http://127.0.0.1:8765/mcp\nhermesd: {http: {listen: 8765}}\n",
        &[],
    );
    assert!(refusal(&config, "me").contains("own listener"));
    assert_eq!(only(&config, Severity::Info).line, 3);
}

#[test]
fn export_is_read() {
    let otlp = clean("otlp: {endpoint: 'http://127.0.0.1:4318/', sample_ratio: 0.25}").otlp.expect("otlp");
    assert_eq!((otlp.endpoint.as_str(), otlp.sample_ratio), ("http://127.0.0.1:4318", 0.25));
    assert_eq!(clean("otlp: {endpoint: 'http://h'}").otlp.expect("otlp").sample_ratio, 1.0);
    assert_eq!(
        clean("otlp: {endpoint: 'http://h', sample_ratio: 10%}").otlp.expect("otlp").sample_ratio,
        0.1
    );
    assert_eq!(error("otlp: {endpoint: 'http://h', sample_ratio: 3}").0, "hermesd.otlp.sample_ratio");
    assert_eq!(error("otlp: {sample_ratio: 1}").0, "hermesd.otlp.endpoint");
    assert_eq!(error("otlp: {endpoint: h}").1.otlp, None);
}

#[test]
fn unknown_keys_of_the_section_warn() {
    for (lines, meant) in [
        ("start_concurency: 1", "start_concurrency"),
        ("profiles: {p: {servrs: [a]}}", "servers"),
        ("audit: {arguements: off}", "arguments"),
    ] {
        assert!(only(&with(lines), Severity::Warning).hint.contains(meant), "{lines}");
    }
    assert_eq!(error("profiles: [a]").0, "hermesd.profiles");
}

#[test]
fn approvals_of_the_conversation_tools_are_read() {
    assert_eq!(clean("name_limit: 50").builtin.approval, ApprovalPolicy::Never);
    let builtin = clean("builtin: {approval: [messages_send], approval_timeout: 90s}").builtin;
    assert_eq!(builtin.approval, ApprovalPolicy::Tools(vec!["messages_send".to_owned()]));
    assert_eq!(builtin.approval_timeout, Duration::from_secs(90));
    let (key, daemon) = error("builtin: {approval: sometimes}");
    assert_eq!((key.as_str(), daemon.builtin), ("hermesd.builtin.approval", BuiltinConfig::default()));
}
