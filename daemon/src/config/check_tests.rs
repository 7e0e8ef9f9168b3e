//! Whole files: sections, precedence, isolation of bad entries, files on disk.

use super::super::testing::*;
use super::*;
use std::fs;

#[test]
fn one_bad_entry_disables_only_itself() {
    let config =
        checked("mcp_servers:\n  a: {command: x}\n  b: nonsense\n  c:\n  d: [1]\n  e: {command: y}\n", &[]);
    running(&config, "a");
    running(&config, "e");
    for (bad, line) in [("b", 3), ("c", 4), ("d", 5)] {
        refusal(&config, bad);
        let finding = config.findings.iter().find(|finding| finding.server == Some(name(bad))).expect(bad);
        assert_eq!((finding.line, finding.severity), (line, Severity::Error));
        assert_eq!(finding.file.as_deref(), Some(Path::new("/h/config.yaml")));
    }
}

#[test]
fn servers_below_hermesd_win_over_the_others_by_name() {
    let yaml = "mcp_servers:\n  a: {command: old}\n  b: {command: b}\nhermesd:\n  mcp_servers:\n    a: {command: new}\n    c: {command: c}\n";
    let config = checked(yaml, &[]);
    assert_eq!(only(&config, Severity::Info).line, 2);
    assert_eq!(config.findings.len(), 1);
    assert_eq!(stdio(running(&config, "a")).command, "new");
    assert_eq!((config.servers.len(), stdio(running(&config, "c")).command.as_str()), (3, "c"));
}

#[test]
fn a_section_of_the_wrong_shape_is_one_finding_and_no_servers() {
    for yaml in ["mcp_servers: [a]\n", "mcp_servers: x\n", "hermesd: {mcp_servers: [a]}\n", "hermesd: 3\n"] {
        let config = checked(yaml, &[]);
        assert!(config.servers.is_empty());
        assert_eq!(only(&config, Severity::Error).line, 1, "{yaml}");
    }
    for yaml in ["", "mcp_servers:\n", "mcp_servers: {}\nhermesd:\nmodel: x\n", "# nothing\n"] {
        assert_eq!(checked(yaml, &[]).findings, [], "{yaml}");
    }
}

#[test]
fn keys_of_hermes_agent_are_not_judged_and_a_misspelt_section_is() {
    assert_eq!(
        checked("model: {default: m}\nplatforms: {telegram: {token: x}}\napprovals: {}\n", &[]).findings,
        []
    );
    for yaml in ["mcpServers: {a: {command: x}}\n", "mcp_server: {}\n", "mcp_severs: {}\n"] {
        assert!(only(&checked(yaml, &[]), Severity::Warning).hint.contains("mcp_servers"), "{yaml}");
    }
}

#[test]
fn a_server_written_twice_is_refused_with_both_lines() {
    let config = checked("mcp_servers:\n  a: {command: x}\n  b: {command: y}\n  a: {command: z}\n", &[]);
    assert_eq!(refusal(&config, "a"), "written in line 2 and again in line 4");
    assert_eq!(only(&config, Severity::Error).server, Some(name("a")));
    running(&config, "b");
}

#[test]
fn a_section_written_twice_is_an_error_and_the_last_counts() {
    let config = checked("mcp_servers: {a: {command: x}}\nmcp_servers: {b: {command: y}}\n", &[]);
    assert!(only(&config, Severity::Error).message.contains("line 1"));
    running(&config, "b");
    assert_eq!(config.servers.len(), 1);
}

#[test]
fn anchors_and_merge_keys_give_servers_common_settings() {
    let yaml = "x-base: &base {timeout: 5, env: {A: 1}}\nmcp_servers:\n  a:\n    <<: *base\n    command: x\n  b:\n    <<: *base\n    command: y\n    timeout: 7\n";
    let config = checked(yaml, &[]);
    assert_eq!(config.findings, []);
    assert_eq!(running(&config, "a").timeout.as_secs(), 5);
    assert_eq!(
        (running(&config, "b").timeout.as_secs(), stdio(running(&config, "b")).env["A"].expose()),
        (7, "1")
    );
}

#[test]
fn names_are_any_text_but_the_empty_one() {
    let config = checked(
        "mcp_servers:\n  中文: {command: x}\n  010: {command: x}\n  yes: {command: x}\n  a.b-c d: {command: x}\n  '': {command: x}\n",
        &[],
    );
    let names: Vec<&str> = config.servers.keys().map(ServerName::as_str).collect();
    assert_eq!(names, ["010", "a.b-c d", "yes", "中文"]);
    assert!(only(&config, Severity::Error).message.contains("empty name"));
}

#[test]
fn findings_are_sorted_errors_first_then_by_line() {
    let config = checked(
        "mcp_servers:\n  a: {command: x, zzz: 1}\n  b: {timeout: q}\n  c: {command: x, qqq: 1, timeout: r}\n",
        &[],
    );
    let order: Vec<(Severity, u32)> =
        config.findings.iter().map(|finding| (finding.severity, finding.line)).collect();
    let mut sorted = order.clone();
    sorted.sort();
    assert_eq!(order, sorted);
    assert_eq!(order.len(), 5);
}

/// A home on disk.
struct Home(tempfile::TempDir);

impl Home {
    fn new(yaml: Option<&[u8]>, dotenv: Option<&[u8]>) -> Self {
        let dir = tempfile::tempdir().expect("temporary folder");
        for (file, bytes) in [("config.yaml", yaml), (".env", dotenv)] {
            if let Some(bytes) = bytes {
                fs::write(dir.path().join(file), bytes).expect("write");
            }
        }
        Self(dir)
    }

    fn load(&self, env: &[(&str, &str)]) -> Loaded {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        load(&Sources { home: self.0.path(), env: &env, user_home: None })
    }
}

#[test]
fn an_absent_or_empty_file_means_no_servers_and_is_fine() {
    for yaml in [None, Some(&b""[..])] {
        let loaded = Home::new(yaml, None).load(&[]);
        assert_eq!(
            (loaded.state, loaded.config.findings.len(), loaded.config.servers.len()),
            (State::Ok, 0, 0)
        );
    }
}

#[test]
fn dotenv_beats_the_process_and_its_secrets_are_known() {
    let home = Home::new(
        Some(b"mcp_servers:\n  a:\n    command: x\n    env: {A: '${V}', B: '${P}'}\n    env_pass: [V, P]\n"),
        Some(b"V=from dotenv\nSOME_TOKEN=never-referenced\n"),
    );
    let loaded = home.load(&[("V", "from process"), ("P", "p")]);
    assert_eq!(loaded.state, State::Ok);
    let stdio = stdio(running(&loaded.config, "a"));
    assert_eq!((stdio.env["A"].expose(), stdio.env["B"].expose()), ("from dotenv", "p"));
    assert_eq!(stdio.env_file.keys().collect::<Vec<_>>(), ["V"]);
    assert!(knows(&loaded.config, "never-referenced"));
}

#[test]
fn dotenv_repairs_are_findings_in_its_own_file() {
    let home = Home::new(Some(b"mcp_servers: {}\n"), Some(b"A_TOKEN=abOPENAI_API_KEY=cd\nnonsense line\n"));
    let findings = home.load(&[]).config.findings;
    assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [1, 2]);
    assert!(findings.iter().all(|f| f.file == Some(home.0.path().join(".env"))));
}

#[test]
fn a_file_that_cannot_be_used_says_why_and_has_no_servers() {
    for (yaml, why) in [
        (&b"a: [1\nb: 2\n"[..], "line 2"),
        (b"- a\n", "not a mapping"),
        (b"a: \xff\n", "UTF-8"),
        (b"a: 'x\n", "line"),
    ] {
        let loaded = Home::new(Some(yaml), None).load(&[]);
        let State::Unreadable { reason } = loaded.state else { panic!("{yaml:?}") };
        assert!(reason.contains(why), "{reason}");
        assert!(loaded.config.servers.is_empty());
        let finding = only(&loaded.config, Severity::Error);
        assert!(reason.ends_with(&finding.message), "{reason}: {}", finding.message);
        assert!(!finding.message.starts_with("line "), "its place says the line: {}", finding.message);
    }
    let home = Home::new(None, None);
    fs::create_dir(home.0.path().join("config.yaml")).expect("folder");
    assert!(matches!(home.load(&[]).state, State::Unreadable { .. }));
    // A link that leads nowhere is a mistake or a moment between two states, not an absent file.
    let home = Home::new(None, None);
    std::os::unix::fs::symlink("/nonexistent/x", home.0.path().join("config.yaml")).expect("link");
    assert!(matches!(home.load(&[]).state, State::Unreadable { .. }));
}

// macOS has no safe call that makes a pipe.
#[cfg(target_os = "linux")]
#[test]
fn an_unreadable_dotenv_keeps_what_runs_and_a_pipe_is_not_waited_for() {
    let home = Home::new(Some(b"mcp_servers: {a: {command: x}}\n"), None);
    let pipe = home.0.path().join(".env");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .expect("pipe");
    let loaded = home.load(&[]);
    let State::Unreadable { reason } = &loaded.state else { panic!("{loaded:?}") };
    assert!(reason.contains(".env"), "{reason}");
    running(&loaded.config, "a");
}

#[test]
fn an_active_profile_is_warned_about_unless_the_home_was_chosen() {
    let home = Home::new(None, None);
    fs::write(home.0.path().join("active_profile"), "work\n").expect("write");
    assert!(only(&home.load(&[]).config, Severity::Warning).message.contains("`work`"));
    assert_eq!(home.load(&[("HERMES_HOME", "/x")]).config.findings, []);
    fs::write(home.0.path().join("active_profile"), "default\n").expect("write");
    assert_eq!(home.load(&[]).config.findings, []);
}

#[test]
fn an_own_shim_behind_a_link_on_path_is_found() {
    let home = Home::new(Some(b"mcp_servers: {h: {command: bridge, args: [mcp, serve]}}\n"), None);
    let bin = home.0.path().join("bin");
    fs::create_dir(&bin).expect("folder");
    fs::write(bin.join("hermesctl"), "").expect("write");
    std::os::unix::fs::symlink(bin.join("hermesctl"), bin.join("bridge")).expect("link");
    let loaded = home.load(&[("PATH", bin.to_str().expect("utf-8"))]);
    assert!(refusal(&loaded.config, "h").contains("never started"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(mcp_servers:\n  a:\n)?[ \\-:{}\\[\\],&*<>'\"a-c\n~$0-9]{0,60}") {
        let _ = checked(&text, &[]);
    }
}
