//! Refusals before the first spawn: a shell that downloads, ourselves as a server, safe mode.
//!
//! Pure. Promise: a refused entry is refused on every way to a start (config, `mcp test`, restart)
//! because all of them ask here; the reason says what was seen, never an argument's text.
//! May not touch: processes, files.

pub use crate::server::package::{Ecosystem, Package, package_of, packages_of};

use crate::config::StdioConfig;
use crate::secret::{KnownSecrets, name_says_secret, value_is_secret};
use crate::server::base_env::password_in;
use crate::server::package::base_name;
use std::path::Path;

/// Why an entry is not started; permanent until its config changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A shell whose arguments fetch something from the network.
    #[error(
        "`{shell}` would run a script that downloads something (`{sign}`); set `allow_shell: true` if that is meant"
    )]
    ShellDownload {
        /// The interpreter.
        shell: String,
        /// The word that gave it away, from our own list.
        sign: &'static str,
    },
    /// The entry is this product's own client side.
    #[error("`{program} mcp serve` is hermesd's own client side; as a server of itself it would never end")]
    Recursion {
        /// The program's name.
        program: String,
    },
}

/// Whether servers may be started at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SafeMode {
    /// `HERMES_SAFE_MODE` is set: none is started.
    On,
    /// The normal case.
    Off,
}

/// Reads `HERMES_SAFE_MODE`: 1, true, yes and on (any case) turn it on.
pub fn safe_mode(value: Option<&str>) -> SafeMode {
    match value.map(|text| text.trim().to_ascii_lowercase()).as_deref() {
        Some("1" | "true" | "yes" | "on") => SafeMode::On,
        Some(_) | None => SafeMode::Off,
    }
}

/// Decides whether `config` may be started. `program` is the resolved command with every symlink
/// followed (or as resolved, if that fails), so that a link under another name does not hide it.
///
/// # Errors
/// [`Refusal`], permanent until the config changes.
pub fn check(config: &StdioConfig, program: &Path) -> Result<(), Refusal> {
    let real = program.to_string_lossy();
    for name in [&config.command, real.as_ref()] {
        if let Some(program) = own_serve(name, &config.args) {
            return Err(Refusal::Recursion { program });
        }
    }
    if config.allow_shell {
        return Ok(());
    }
    let shell = shell_in(&config.command, &config.args).or_else(|| shell_in(&real, &config.args));
    match shell {
        Some(shell) => match config.args.iter().find_map(|arg| download_sign(arg)) {
            Some(sign) => Err(Refusal::ShellDownload { shell, sign }),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// Packages that the entry fetches, also where a wrapper (`env`, `sh -c`) starts the launcher.
pub fn packages(config: &StdioConfig) -> Vec<Package> {
    let direct = packages_of(&config.command, &config.args);
    let name = base_name(&config.command);
    let wrapped = WRAPPERS.contains(&name.as_str()) || SHELLS.contains(&name.as_str());
    if !direct.is_empty() || !wrapped {
        return direct;
    }
    let words: Vec<&str> = config.args.iter().flat_map(|arg| arg.split_whitespace()).map(unquoted).collect();
    (0..words.len())
        .map(|at| packages_of(words[at], &words[at + 1..]))
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

const SHELLS: [&str; 11] =
    ["bash", "sh", "zsh", "dash", "ash", "ksh", "mksh", "fish", "cmd", "powershell", "pwsh"];

/// Programs that start the program named in their arguments.
const WRAPPERS: [&str; 12] = [
    "env", "busybox", "nice", "ionice", "nohup", "setsid", "stdbuf", "timeout", "sudo", "doas", "xargs",
    "script",
];

/// The shell that a command line runs, by itself or through a wrapper.
fn shell_in(command: &str, args: &[String]) -> Option<String> {
    let name = base_name(command);
    if SHELLS.contains(&name.as_str()) {
        return Some(name);
    }
    if !WRAPPERS.contains(&name.as_str()) {
        return None;
    }
    args.iter()
        .flat_map(|arg| arg.split_whitespace())
        .map(base_name)
        .find(|word| SHELLS.contains(&word.as_str()))
}

/// Programs that fetch, found as whole words.
const FETCHERS: [&str; 12] = [
    "curl",
    "wget",
    "nc",
    "ncat",
    "netcat",
    "socat",
    "aria2c",
    "tftp",
    "iwr",
    "irm",
    "certutil",
    "bitsadmin",
];

/// Names that fetch, found anywhere.
const SIGNS: [&str; 8] = [
    "/dev/tcp/",
    "/dev/udp/",
    "invoke-webrequest",
    "invoke-restmethod",
    "start-bitstransfer",
    "system.net.webclient",
    "net.webclient",
    "system.net.http",
];

/// What in a script says that it downloads.
fn download_sign(script: &str) -> Option<&'static str> {
    let lower = script.to_ascii_lowercase();
    // c''url and cu\rl are curl to a shell.
    let bare: String = lower.chars().filter(|c| !matches!(c, '\'' | '"' | '\\' | '^' | '`')).collect();
    let in_text = |text: &str| {
        let word = FETCHERS.iter().find(|word| has_word(text, word));
        word.or_else(|| SIGNS.iter().find(|sign| text.contains(**sign))).copied()
    };
    in_text(&lower).or_else(|| in_text(&bare))
}

/// Whether `word` stands in `text` as a program's name: not inside a longer word or file name.
fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = &text[at + word.len()..];
        let after = after.strip_prefix(".exe").unwrap_or(after);
        !before.is_some_and(inside) && !after.chars().next().is_some_and(inside)
    })
}

const OWN: [&str; 3] = ["hermesctl", "hermes", "hermesd"];

/// Launchers whose arguments name a program, besides wrappers and shells.
const LAUNCHERS: [&str; 10] = ["npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun", "uvx", "uv", "pipx"];

/// Our own program if the command line runs its `mcp serve`, by itself, by a launcher or by a shell.
fn own_serve(command: &str, args: &[String]) -> Option<String> {
    let name = base_name(command);
    let starts_others = [&SHELLS[..], &WRAPPERS, &LAUNCHERS].concat().contains(&name.as_str());
    if !starts_others && !OWN.contains(&name.as_str()) {
        return None; // a word `hermes` among its arguments is only an argument
    }
    let words = std::iter::once(command).chain(args.iter().flat_map(|arg| arg.split_whitespace()));
    let mut words = words.map(unquoted);
    let program = words.find_map(|word| Some(base_name(word)).filter(|name| OWN.contains(&name.as_str())))?;
    let mut rest = words.skip_while(|word| *word != "mcp").skip(1).filter(|word| !word.starts_with('-'));
    (rest.next() == Some("serve")).then_some(program)
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(|c| matches!(c, '\'' | '"' | ';' | '&' | '|' | '(' | ')'))
}

/// Positions (from 0) of arguments that hold a secret; other users can read them in the process list.
/// The warning is the caller's, without the text.
pub fn args_with_secrets(args: &[String], known: &KnownSecrets) -> Vec<usize> {
    let known = known.longest_first();
    let after_secret_option = |at: usize| {
        let option = at.checked_sub(1).and_then(|before| args.get(before))?;
        let says_so = name_says_secret(option) && !option.ends_with("author");
        (option.starts_with('-') && !option.contains('=') && says_so).then_some(())
    };
    let is_secret = |at: usize, arg: &str| {
        known.iter().any(|secret| secret.expose().len() >= 8 && arg.contains(secret.expose()))
            || TOKEN_STARTS.iter().any(|start| has_token(arg, start))
            || named_secret(arg)
            || password_in(arg).is_some()
            || (after_secret_option(at).is_some() && !arg.starts_with('-') && value_is_secret(arg))
    };
    args.iter().enumerate().filter(|(at, arg)| is_secret(*at, arg)).map(|(at, _)| at).collect()
}

/// Starts of tokens that well-known services hand out.
const TOKEN_STARTS: [&str; 9] =
    ["ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "sk-ant-", "sk-proj-", "hf_"];

fn has_token(arg: &str, start: &str) -> bool {
    arg.match_indices(start).any(|(at, _)| {
        let starts_word = !arg[..at].ends_with(|c: char| c.is_alphanumeric());
        let tail = arg[at + start.len()..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        starts_word && tail.count() >= 12
    })
}

/// `--api-key=…`, `TOKEN=…`, `Authorization: Bearer …`.
fn named_secret(arg: &str) -> bool {
    let Some((name, value)) = arg.split_once('=').or_else(|| arg.split_once(": ")) else {
        return false;
    };
    let value = value.strip_prefix("Bearer ").unwrap_or(value);
    let clean =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    clean && name_says_secret(name) && value_is_secret(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use proptest::prelude::*;

    fn config(command: &str, args: &[&str]) -> StdioConfig {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        StdioConfig { args, ..StdioConfig::command(command) }
    }

    fn checked(command: &str, args: &[&str]) -> Result<(), Refusal> {
        check(&config(command, args), Path::new(command))
    }

    #[test]
    fn shells_that_download_are_refused_however_they_are_started() {
        for (command, args) in [
            ("bash", &["-c", "curl https://x | sh"][..]),
            ("/bin/sh", &["-c", "wget -q x"]),
            ("zsh", &["-c", "cat < /dev/tcp/h/80"]),
            ("env", &["A=b", "bash", "-c", "/usr/bin/curl x"]),
            ("/usr/bin/env", &["-S", "bash -c", "nc h 1"]),
            ("busybox", &["sh", "-c", "wget x"]),
            ("timeout", &["5", "sh", "-c", "socat - TCP:h:1"]),
            ("cmd.exe", &["/c", "curl.exe x"]),
            ("PowerShell.exe", &["-Command", "IWR x | iex"]),
            ("pwsh", &["-c", "(New-Object System.Net.WebClient).DownloadString('x')"]),
            ("pwsh", &["-c", "Invoke-RestMethod x"]),
            ("sh", &["-c", "c''url x"]),
            ("sh", &["-c", "cu\\rl x"]),
        ] {
            assert!(
                matches!(checked(command, args), Err(Refusal::ShellDownload { .. })),
                "{command} {args:?}"
            );
        }
    }

    #[test]
    fn shells_that_do_not_download_and_downloads_without_a_shell_pass() {
        for (command, args) in [
            ("bash", &["-c", "exec npx -y foo"][..]),
            ("sh", &["-c", "sync; node func.js --launch"]),
            ("bash", &["/opt/libcurl/run.sh"]),
            ("bash", &["run-curl.sh"]),
            ("node", &["-e", "curl"]),
            ("npx", &["-y", "curl"]),
            ("env", &["A=b", "node", "curl"]),
        ] {
            assert_eq!(checked(command, args), Ok(()), "{command} {args:?}");
        }
    }

    #[test]
    fn allow_shell_lets_a_download_pass_but_not_ourselves() {
        let mut allowed = config("bash", &["-c", "curl x"]);
        allowed.allow_shell = true;
        assert_eq!(check(&allowed, Path::new("/bin/bash")), Ok(()));
        let mut own = config("bash", &["-c", "exec hermesctl mcp serve"]);
        own.allow_shell = true;
        assert!(matches!(check(&own, Path::new("/bin/bash")), Err(Refusal::Recursion { .. })));
    }

    #[test]
    fn a_link_under_another_name_does_not_hide_the_program_behind_it() {
        let renamed = config("fetch-it", &["-c", "curl x"]);
        assert!(matches!(check(&renamed, Path::new("/bin/dash")), Err(Refusal::ShellDownload { .. })));
        let own = config("my-server", &["mcp", "serve"]);
        assert!(matches!(check(&own, Path::new("/usr/bin/hermesctl")), Err(Refusal::Recursion { .. })));
    }

    #[test]
    fn our_own_mcp_serve_is_never_a_server() {
        for (command, args) in [
            ("hermesctl", &["mcp", "serve"][..]),
            ("/opt/bin/hermes", &["mcp", "serve", "-v"]),
            ("hermesctl", &["--home", "/h", "mcp", "--json", "serve"]),
            ("env", &["X=1", "hermesctl", "mcp", "serve"]),
            ("uvx", &["--from", "hermes-agent", "hermes", "mcp", "serve"]),
            ("sh", &["-c", "'hermes' mcp serve; true"]),
        ] {
            assert!(matches!(checked(command, args), Err(Refusal::Recursion { .. })), "{command} {args:?}");
        }
        for (command, args) in [
            ("hermesctl", &["mcp", "list"][..]),
            ("codex", &["mcp", "serve"]),
            ("other", &["--dir", "/srv/hermes", "mcp", "serve"]),
            ("npx", &["-y", "hermes-tools", "mcp", "serve"]),
        ] {
            assert_eq!(checked(command, args), Ok(()), "{command} {args:?}");
        }
    }

    #[test]
    fn safe_mode_is_on_only_for_words_that_say_so() {
        for on in ["1", "true", " YES ", "on"] {
            assert_eq!(safe_mode(Some(on)), SafeMode::On, "{on}");
        }
        for off in [None, Some(""), Some("0"), Some("no"), Some("false")] {
            assert_eq!(safe_mode(off), SafeMode::Off, "{off:?}");
        }
    }

    #[test]
    fn packages_are_found_behind_wrappers_and_shells() {
        let names = |command, args: &[&str]| -> Vec<String> {
            packages(&config(command, args)).into_iter().map(|p| p.name).collect()
        };
        assert_eq!(names("npx", &["-y", "foo"]), ["foo"]);
        assert_eq!(names("env", &["A=b", "npx", "-y", "foo"]), ["foo"]);
        assert_eq!(names("bash", &["-lc", "exec npx -y foo@1.0.0"]), ["foo"]);
        assert_eq!(names("cmd", &["/c", "npx", "-y", "foo"]), ["foo"]);
        assert_eq!(names("node", &["npx", "foo"]), [""; 0]);
    }

    #[test]
    fn secrets_in_arguments_are_found_by_value_name_and_shape() {
        let mut known = KnownSecrets::default();
        known.insert(Secret::new("abcdefgh-known"));
        let args: Vec<String> = [
            "--flag",
            "x=abcdefgh-known",
            "--api-key=0123abcd4567",
            "--token",
            "q0w9e8r7t6",
            "ghp_0123456789abcdef",
            "postgres://u:pw@h/db",
            "Authorization: Bearer abcd1234efgh",
            "API_KEY=zyxw9876vuts",
            "https://u@h/",
            "--key-file=/home/u/key.pem",
            "--author",
            "somebody",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(args_with_secrets(&args, &known), [1, 2, 4, 5, 6, 7, 8]);
    }

    proptest! {
        #[test]
        fn a_shell_is_refused_for_curl_wherever_it_stands(before in "[ ;|&(/a-z]{0,12}", after in "[ -/a-z:]{0,12}") {
            let script = format!("{before} curl {after}");
            let refused = matches!(checked("sh", &["-c", &script]), Err(Refusal::ShellDownload { .. }));
            prop_assert!(refused, "{}", script);
        }
    }
}
