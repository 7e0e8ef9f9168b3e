//! Each key of a stdio server: ignored, it fails here.

use super::super::testing::*;
use super::super::*;
use std::path::PathBuf;

fn env_of(stdio: &StdioConfig) -> Vec<(&str, &str)> {
    stdio.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect()
}

#[test]
fn scalars_in_args_and_env_keep_their_spelling() {
    let server = clean(&[
        "command: x",
        "args: [010, 1.10, yes, 1e3, 2026-01-01, 'null', \"\", 8080, true]",
        "env: {A: 010, B: 1.10, C: yes, D: 1e3, E: 2026-01-01, F: ~, G: '~', H: null, I: ''}",
    ]);
    let stdio = stdio(&server);
    assert_eq!(stdio.args, ["010", "1.10", "yes", "1e3", "2026-01-01", "null", "", "8080", "true"]);
    let wanted =
        [("A", "010"), ("B", "1.10"), ("C", "yes"), ("D", "1e3"), ("E", "2026-01-01"), ("G", "~"), ("I", "")];
    assert_eq!(env_of(stdio), wanted);
}

#[test]
fn a_null_argument_is_skipped_with_a_warning_and_a_nested_one_is_an_error() {
    let config = one(&["command: x", "args: [a, ~, b]"], &[]);
    assert_eq!(stdio(running(&config, "s")).args, ["a", "b"]);
    assert_eq!(only(&config, Severity::Warning).key, "mcp_servers.s.args[1]");
    for bad in [
        "args: -y x",
        "args: [[a]]",
        "args: {a: 1}",
        "env: [A=1]",
        "env: {A: [1]}",
        "env: {A: {b: 1}}",
        "env: x",
    ] {
        assert!(!refusal(&one(&["command: x", bad], &[]), "s").is_empty(), "{bad}");
    }
}

#[test]
fn tilde_is_the_home_in_command_and_cwd_and_only_warned_about_elsewhere() {
    let config = one(&["command: ~/bin/x", "args: [~/data]", "env: {D: ~/e}", "cwd: ~/work"], &[]);
    let stdio = stdio(running(&config, "s"));
    assert_eq!(
        (stdio.command.as_str(), stdio.cwd.as_deref()),
        ("/home/u/bin/x", Some("/home/u/work".as_ref()))
    );
    assert_eq!((stdio.args[0].as_str(), stdio.env["D"].expose()), ("~/data", "~/e"));
    let warned: Vec<&str> = config.findings.iter().map(|finding| finding.key.as_str()).collect();
    assert_eq!(warned, ["mcp_servers.s.args[0]", "mcp_servers.s.env.D"]);
    let other = one(&["command: ~bob/x"], &[]);
    assert_eq!(self::stdio(running(&other, "s")).command, "~bob/x");
    assert!(only(&other, Severity::Warning).message.contains("only `~/`"));
}

#[test]
fn a_relative_cwd_starts_at_the_home() {
    let config = one(&["command: x", "cwd: work"], &[]);
    assert_eq!(stdio(running(&config, "s")).cwd, Some(PathBuf::from("/home/u/work")));
    assert_eq!(only(&config, Severity::Warning).key, "mcp_servers.s.cwd");
}

#[test]
fn a_command_line_in_one_string_is_refused_with_the_right_way() {
    let config = one(&["command: npx -y foo"], &[]);
    assert_eq!(only(&config, Severity::Error).hint, "write `command: npx` and `args: [\"-y\", \"foo\"]`");
    refusal(&config, "s");
    assert_eq!(stdio(&clean(&["command: /exists/My App/x"])).command, "/exists/My App/x");
    let secret = one(&["command: x --token abcdefgh1234"], &[]);
    assert!(!format!("{:?}", secret.findings).contains("abcdefgh1234"));
    let variable = one(&["command: \"x ${T}\""], &[("T", "abcdefgh1234")]);
    assert!(!format!("{:?}", variable.findings).contains("abcdefgh1234"));
}

#[test]
fn an_unset_variable_drops_an_env_entry_and_refuses_what_needs_it() {
    let config = one(&["command: x", "env: {A: 'a${NO}', B: '${YES}'}"], &[("YES", "1")]);
    assert_eq!(env_of(stdio(running(&config, "s"))), [("B", "1")]);
    let finding = only(&config, Severity::Warning);
    assert!(finding.message.contains("`A`") && finding.message.contains("`NO`"), "{finding:?}");
    for needs in ["args: ['${NO}']", "cwd: ${NO}", "env_pass: ['${NO}']"] {
        let config = one(&["command: x", needs], &[]);
        assert!(refusal(&config, "s").contains("`NO`"), "{needs}");
    }
    let reason = refusal(&one(&["command: ${NO}"], &[]), "s");
    assert!(reason.contains("`command`") && reason.contains("`NO`"), "{reason}");
    assert_eq!(
        stdio(running(&one(&["command: x", "args: ['${NO:-d}', '$${NO}']"], &[]), "s")).args,
        ["d", "${NO}"]
    );
}

#[test]
fn a_bare_dollar_name_warns_and_stays() {
    let config = one(&["command: x", "env: {A: $HOME}"], &[("HOME", "/h")]);
    assert_eq!(env_of(stdio(running(&config, "s"))), [("A", "$HOME")]);
    assert!(only(&config, Severity::Warning).hint.contains("${HOME}"));
}

#[test]
fn env_pass_takes_names_and_groups_and_keeps_what_dotenv_says() {
    let env = [("MY_DOT", "from dotenv"), ("OTHER", "from process")];
    let config = one(&["command: x", "env_pass: [MY_DOT, OTHER, proxy]"], &env);
    assert_eq!(config.findings, []);
    let stdio = stdio(running(&config, "s"));
    assert_eq!(stdio.env_pass, ["MY_DOT", "OTHER", "proxy"]);
    assert_eq!(
        stdio.env_file.iter().map(|(k, v)| (k.as_str(), v.expose())).collect::<Vec<_>>(),
        [("MY_DOT", "from dotenv")]
    );
    let names = passed_names(&stdio.env_pass);
    assert!(names.contains(&"HTTPS_PROXY") && names.contains(&"OTHER") && !names.contains(&"proxy"));
    assert!(passed_names(&["desktop".to_owned()]).contains(&"DISPLAY"));
    assert_eq!(self::stdio(&clean(&["command: x", "env_pass: ONE"])).env_pass, ["ONE"]);
    let wrong = one(&["command: x", "env_pass: [A, 'TOKEN=abcdefgh']"], &[]);
    assert!(refusal(&wrong, "s").contains("item 2"));
    assert!(!format!("{:?}", wrong.findings).contains("abcdefgh"));
}

#[test]
fn switches_of_the_child_are_read() {
    let server = clean(&["command: x", "allow_shell: yes", "osv: off", "detached: keep"]);
    let stdio = stdio(&server);
    assert!(stdio.allow_shell && !stdio.osv);
    assert_eq!(stdio.detached, Detached::Keep);
    assert!(refusal(&one(&["command: x", "detached: kep"], &[]), "s").contains("kep"));
}

#[test]
fn an_entry_that_is_our_own_serve_is_never_run_and_is_no_error() {
    for lines in [
        ["command: hermesctl", "args: [mcp, serve]"],
        ["command: /usr/bin/hermes", "args: [mcp, serve, -v]"],
        ["command: /exists/link", "args: [mcp, serve]"],
        ["command: sh", "args: [-c, 'exec hermes mcp serve']"],
    ] {
        let config = one(&lines, &[]);
        assert!(refusal(&config, "s").contains("never started"), "{lines:?}");
        assert_eq!(only(&config, Severity::Info).line, 3);
    }
}

#[test]
fn secrets_in_args_are_warned_about_and_masked() {
    let config = one(&["command: x", "args: [--token, abcdefgh1234]"], &[]);
    let finding = only(&config, Severity::Warning);
    assert_eq!(finding.message, "argument 2 holds a secret that every process can read");
    assert!(knows(&config, "abcdefgh1234"));
    let variable = one(&["command: x", "args: ['${MY_TOKEN}', plain]"], &[("MY_TOKEN", "zyxwvuts")]);
    assert!(only(&variable, Severity::Warning).message.contains("argument 1"));
}

#[test]
fn values_under_secret_names_and_from_secret_variables_are_masked() {
    let config = one(
        &[
            "command: x",
            "env: {API_TOKEN: literal-secret, PLAIN: '${MY_SECRET}', SHOWN: visible-text, K_KEY: '${P}'}",
        ],
        &[("MY_SECRET", "from-variable"), ("P", "by-its-env-name")],
    );
    for masked in ["literal-secret", "from-variable", "by-its-env-name"] {
        assert!(knows(&config, masked), "{masked}");
    }
    assert!(!knows(&config, "visible-text"));
    let debug = format!("{config:?}");
    for secret in ["literal-secret", "from-variable"] {
        assert!(!debug.contains(secret));
    }
}

#[test]
fn impossible_names_and_values_are_errors() {
    for bad in ["env: {'A=B': 1}", "env: {'': 1}", "env: {A: \"\\0\"}", "args: [\"a\\0b\"]"] {
        assert!(!refusal(&one(&["command: x", bad], &[]), "s").is_empty(), "{bad}");
    }
    for empty in ["command: ''", "command: '  '"] {
        assert!(refusal(&one(&[empty], &[]), "s").contains("empty"));
    }
    assert!(refusal(&one(&["args: [a]"], &[]), "s").contains("neither"));
    assert!(refusal(&one(&["command: [npx, -y]"], &[]), "s").contains("list"));
}

#[test]
fn transport_of_a_child_process_is_stdio() {
    clean(&["command: x", "transport: stdio"]);
    assert!(only(&one(&["command: x", "transport: sse"], &[]), Severity::Warning).message.contains("url"));
}

#[test]
fn variables_that_load_code_are_shown() {
    let config = one(&["command: x", "env: {NODE_OPTIONS: --x}", "env_pass: LD_PRELOAD"], &[]);
    let infos: Vec<&str> = config.findings.iter().map(|f| f.key.as_str()).collect();
    assert_eq!(infos, ["mcp_servers.s.env.NODE_OPTIONS", "mcp_servers.s.env_pass"]);
    running(&config, "s");
}

#[test]
fn a_masked_value_is_never_taken_for_the_real_one() {
    for bad in ["env: {API_TOKEN: '[REDACTED]'}", "args: ['--key=[API_KEY_REDACTED]']"] {
        let config = one(&["command: x", bad], &[]);
        assert!(refusal(&config, "s").contains("masked value"), "{bad}");
    }
    let config = one(&["command: x", "env: {API_TOKEN: '${T}'}"], &[("T", "[REDACTED]")]);
    assert!(refusal(&config, "s").contains("masked value"));
}
