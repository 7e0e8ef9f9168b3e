//! Tests of `environment`: a world of made-up files, no disk.

use super::*;
use crate::secret::Secret;
use proptest::prelude::*;

struct World {
    programs: Vec<&'static str>,
    files: Vec<&'static str>,
    folders: Vec<&'static str>,
}

impl World {
    fn probe(&self) -> impl Fn(&Path) -> FileKind {
        |path| {
            let text = path.to_str().unwrap();
            if self.programs.contains(&text) {
                FileKind::Executable
            } else if self.files.contains(&text) {
                FileKind::File
            } else if self.folders.contains(&text) {
                FileKind::Folder
            } else {
                FileKind::Missing
            }
        }
    }
}

fn world() -> World {
    World {
        programs: vec![
            "/bin/sh",
            "/home/u/.volta/bin/npx",
            "/login/bin/node",
            "/bin/node",
            "/home/u/srv/run",
        ],
        files: vec!["/bin/plain"],
        folders: vec!["/bin", "/login/bin", "/home/u", "/home/u/srv", "/home/u/.volta/bin"],
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn base() -> BaseEnv {
    BaseEnv {
        vars: map(&[
            ("PATH", "/bin"),
            ("HOME", "/home/u"),
            ("USER", "u"),
            ("LANG", "C"),
            ("XDG_DATA_HOME", "/d"),
        ]),
        well_known: vec!["/home/u/.volta/bin".into(), "/home/u/.bun/bin".into()],
        user_home: "/home/u".into(),
        hermes_home: "/home/u/.hermes".into(),
        ..BaseEnv::default()
    }
}

fn get<'a>(resolved: &'a Resolved, name: &str) -> Option<&'a str> {
    resolved.env.iter().find(|(n, _)| n == name).map(|(_, v)| v.to_str().unwrap())
}

fn run(config: &StdioConfig, base: &BaseEnv) -> Result<Resolved, ResolveError> {
    resolve(config, base, &world().probe())
}

#[test]
fn secrets_and_loader_variables_of_the_daemon_do_not_reach_a_child() {
    let mut base = base();
    base.vars.extend(map(&[("OPENAI_API_KEY", "k"), ("LD_PRELOAD", "/x.so"), ("NODE_OPTIONS", "-r x")]));
    base.dotenv = map(&[("GITHUB_TOKEN", "t")]);
    let resolved = run(&StdioConfig::command("sh"), &base).unwrap();
    assert_eq!(resolved.passed, ["HOME", "LANG", "PATH", "USER", "XDG_DATA_HOME"]);
    assert_eq!(resolved.dropped, ["GITHUB_TOKEN", "LD_PRELOAD", "NODE_OPTIONS", "OPENAI_API_KEY"]);
}

#[test]
fn env_pass_looks_in_dotenv_then_daemon_then_user_manager_and_knows_groups() {
    let mut base = base();
    base.vars.extend(map(&[("A", "daemon"), ("B", "daemon"), ("https_proxy", "http://p")]));
    base.dotenv = map(&[("A", "dotenv")]);
    base.manager = map(&[("B", "manager"), ("DISPLAY", ":1")]);
    let mut config = StdioConfig::command("sh");
    config.env_pass = ["A", "B", "desktop", "proxy", "NOWHERE"].map(str::to_owned).to_vec();
    let resolved = run(&config, &base).unwrap();
    assert_eq!(get(&resolved, "A"), Some("dotenv"));
    assert_eq!(get(&resolved, "B"), Some("daemon"));
    assert_eq!(get(&resolved, "DISPLAY"), Some(":1"));
    assert_eq!(get(&resolved, "https_proxy"), Some("http://p"));
    assert_eq!(resolved.warnings.len(), 1, "{:?}", resolved.warnings);
    assert!(resolved.warnings[0].contains("NOWHERE"));
}

#[test]
fn env_of_the_entry_wins_and_explicit_loader_variables_are_flagged_without_their_value() {
    let mut config = StdioConfig::command("sh");
    config.env.insert("LANG".into(), Secret::new("de"));
    config.env.insert("LD_PRELOAD".into(), Secret::new("/secret.so"));
    config.env.insert("bad=name".into(), Secret::new("x"));
    let resolved = run(&config, &base()).unwrap();
    assert_eq!(get(&resolved, "LANG"), Some("de"));
    assert_eq!(get(&resolved, "LD_PRELOAD"), Some("/secret.so"));
    assert!(resolved.warnings.iter().any(|w| w.contains("LD_PRELOAD") && !w.contains("/secret.so")));
    assert!(resolved.warnings.iter().any(|w| w.contains("bad=name")));
    assert_eq!(get(&resolved, "bad=name"), None);
}

#[test]
fn path_is_the_entrys_then_the_login_shells_then_the_daemons_with_known_folders_behind() {
    let mut base = base();
    let config = StdioConfig::command("node");
    let resolved = run(&config, &base).unwrap();
    assert_eq!(resolved.program, Path::new("/bin/node"));
    base.login_path = Some("/login/bin:/bin".into());
    let resolved = run(&config, &base).unwrap();
    assert_eq!(resolved.program, Path::new("/login/bin/node"));
    assert_eq!(get(&resolved, "PATH"), Some("/login/bin:/bin:/home/u/.volta/bin"));
    let mut own = config.clone();
    own.env.insert("PATH".into(), Secret::new("/bin:rel"));
    let resolved = run(&own, &base).unwrap();
    assert_eq!(resolved.program, Path::new("/bin/node"));
    assert_eq!(get(&resolved, "PATH"), Some("/bin:/home/u/.volta/bin"));
    assert!(resolved.warnings.iter().any(|w| w.contains("rel")));
}

#[test]
fn the_folder_of_the_command_is_in_front_of_the_childs_path() {
    let resolved = run(&StdioConfig::command("npx"), &base()).unwrap();
    assert_eq!(resolved.program, Path::new("/home/u/.volta/bin/npx"));
    assert_eq!(get(&resolved, "PATH"), Some("/home/u/.volta/bin:/bin"));
}

#[test]
fn a_missing_command_names_every_folder_searched() {
    let error = run(&StdioConfig::command("nosuch"), &base()).unwrap_err();
    assert_eq!(error.searched(), [PathBuf::from("/bin"), "/home/u/.volta/bin".into()]);
    let text = error.to_string();
    assert!(text.contains("nosuch") && text.contains("/bin, /home/u/.volta/bin"), "{text}");
}

#[test]
fn a_command_line_in_one_string_is_diagnosed_without_repeating_its_arguments() {
    let error = run(&StdioConfig::command("npx -y foo --token=abc"), &base()).unwrap_err();
    assert!(matches!(&error, ResolveError::ContainsSpaces { program, .. } if program == "npx"), "{error:?}");
    assert!(error.to_string().contains("args") && !error.to_string().contains("abc"), "{error}");
}

#[test]
fn files_that_cannot_run_and_folders_have_errors_of_their_own() {
    let error = |command: &str| run(&StdioConfig::command(command), &base()).unwrap_err();
    assert_eq!(error("plain"), ResolveError::NotExecutable { path: "/bin/plain".into() });
    assert_eq!(error("/bin/plain"), ResolveError::NotExecutable { path: "/bin/plain".into() });
    assert_eq!(error("/bin"), ResolveError::IsFolder { path: "/bin".into() });
    assert_eq!(error("  "), ResolveError::EmptyCommand);
}

#[test]
fn cwd_is_the_home_by_default_and_relative_commands_start_from_it() {
    assert_eq!(run(&StdioConfig::command("sh"), &base()).unwrap().cwd, Path::new("/home/u"));
    let mut config = StdioConfig::command("./run");
    config.cwd = Some("~/srv".into());
    let resolved = run(&config, &base()).unwrap();
    assert_eq!(resolved.cwd, Path::new("/home/u/srv"));
    assert_eq!(resolved.program, Path::new("/home/u/srv/run"));
    config.cwd = Some("/gone".into());
    assert_eq!(run(&config, &base()).unwrap_err(), ResolveError::CwdMissing { path: "/gone".into() });
    config.cwd = Some("/bin/plain".into());
    assert_eq!(run(&config, &base()).unwrap_err(), ResolveError::CwdNotFolder { path: "/bin/plain".into() });
}

#[test]
fn a_nul_byte_is_refused_with_the_name_of_its_field() {
    let mut config = StdioConfig::command("sh");
    config.args = vec!["a".into(), "b\0".into()];
    assert_eq!(run(&config, &base()).unwrap_err(), ResolveError::NulByte { field: "args[1]".into() });
}

#[test]
fn a_tilde_in_an_argument_is_reported_by_position() {
    let mut config = StdioConfig::command("sh");
    config.args = vec!["x".into(), "~/data".into()];
    let resolved = run(&config, &base()).unwrap();
    assert!(resolved.warnings.iter().any(|w| w.contains("args[1]")), "{:?}", resolved.warnings);
    assert_eq!(resolved.args, ["x", "~/data"]);
}

proptest! {
    #[test]
    fn a_child_gets_nothing_that_was_not_allowed_named_or_configured(
        vars in proptest::collection::btree_map("[A-Z_]{1,12}|XDG_[A-Z]{1,4}|LD_[A-Z]{1,6}", "[a-z]{0,4}", 0..20),
        dotenv in proptest::collection::btree_map("[A-Z_]{1,3}", "[a-z]{0,4}", 0..10),
        own in proptest::collection::btree_map("[A-Z_]{1,3}", "[a-z]{0,4}", 0..5),
        env_pass in proptest::collection::vec("[A-Z_]{1,3}|proxy|desktop", 0..5),
    ) {
        let mut config = StdioConfig::command("sh");
        config.env = own.iter().map(|(k, v)| (k.clone(), Secret::new(v.as_str()))).collect();
        config.env_pass = env_pass.clone();
        let base = BaseEnv { vars, dotenv, ..base() };
        let resolved = run(&config, &BaseEnv { login_path: Some("/bin".into()), ..base.clone() }).unwrap();
        for name in &resolved.passed {
            prop_assert!(
                ALLOWED.contains(&name.as_str()) || name.starts_with("XDG_") || own.contains_key(name)
                    || env_pass.contains(name) || DESKTOP.contains(&name.as_str()) || PROXY.contains(&name.as_str()),
                "{name}"
            );
        }
        for (name, value) in own.iter().filter(|(name, _)| *name != "PATH") {
            prop_assert_eq!(get(&resolved, name), Some(value.as_str()));
        }
        for name in base.vars.keys().chain(base.dotenv.keys()) {
            prop_assert!(resolved.passed.contains(name) != resolved.dropped.contains(name), "{}", name);
        }
    }
}
