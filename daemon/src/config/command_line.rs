//! Pure: what a command and its arguments give away: our own `mcp serve`, secrets in plain sight.
//!
//! Promise: looks only, changes nothing. May not touch: files (links are resolved by the caller).

use crate::secret::{name_says_secret, value_is_secret};
use hermes_proto::secrets::is_known_key;
use std::path::{Path, PathBuf};

/// Programs that end up in our own `mcp serve`.
const OWN: &[&str] = &["hermes", "hermesctl", "hermesd", "hermes_cli.main", "hermes_cli"];

/// Whether this command line is a shim of hermesd itself, directly, through a link or through a
/// launcher (`env`, `sh -c`, `uvx --from …`, `python -m …`).
pub(super) fn is_own_serve(
    command: &str,
    args: &[String],
    resolve: &dyn Fn(&Path) -> Option<PathBuf>,
) -> bool {
    let texts = std::iter::once(command).chain(args.iter().map(String::as_str));
    let words: Vec<&str> =
        texts.flat_map(str::split_whitespace).map(|word| word.trim_matches(['"', '\'', ';'])).collect();
    let Some(serve) = words.windows(2).rposition(|pair| pair == ["mcp", "serve"]) else { return false };
    if words[..serve].iter().any(|word| OWN.contains(&program(word))) {
        return true;
    }
    // Only now is it worth asking where a link leads.
    resolve(Path::new(command)).is_some_and(|target| OWN.contains(&program(&target.to_string_lossy())))
}

/// Name of a program without folder, `.exe` and `@version`.
fn program(word: &str) -> &str {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    name.split_once('@').map_or(name, |(plain, _)| plain)
}

/// The secrets that stand in `args`, where every process of the user can read them: index of the
/// argument and the secret part of it.
pub(super) fn visible_secrets(args: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (i, arg) in args.iter().enumerate() {
        let option = i.checked_sub(1).map(|before| args[before].as_str());
        if let Some(secret) = secret_part(option, arg) {
            found.push((i, secret.to_owned()));
        }
    }
    found
}

fn secret_part<'a>(option: Option<&str>, arg: &'a str) -> Option<&'a str> {
    // `--api-key=x`, `API_KEY=x`, `Authorization: Bearer x`
    if let Some((name, value)) = arg.split_once(['=', ':']).filter(|(name, _)| !name.contains(['/', ' '])) {
        let value = without_scheme(value.trim());
        if name_says_secret(name) && worth_hiding(value) {
            return Some(value);
        }
    }
    // `--token x`
    let named = option.is_some_and(|o| o.starts_with('-') && !o.contains('=') && name_says_secret(o));
    if named && !arg.starts_with('-') && worth_hiding(arg) {
        return Some(arg);
    }
    // A key by its looks, alone or after `=`.
    let tail = arg.rsplit(['=', ' ']).next().unwrap_or(arg);
    is_known_key(tail).then_some(tail)
}

fn worth_hiding(value: &str) -> bool {
    value_is_secret(value) && !value.contains("://") && !value.ends_with(".json") && !value.ends_with(".pem")
}

/// The credential of an `Authorization` value without `Bearer`, `Basic` or `Token`.
pub(super) fn without_scheme(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, rest))
            if ["bearer", "basic", "token", "apikey"].contains(&scheme.to_ascii_lowercase().as_str()) =>
        {
            rest.trim()
        }
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(command: &str, args: &[&str]) -> bool {
        let resolve =
            |path: &Path| (path == Path::new("/opt/bridge")).then(|| PathBuf::from("/usr/bin/hermesctl"));
        is_own_serve(command, &args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>(), &resolve)
    }

    #[test]
    fn our_own_serve_is_known_in_every_disguise() {
        assert!(own("hermesctl", &["mcp", "serve"]));
        assert!(own("/usr/local/bin/hermes", &["--home", "/x", "mcp", "serve", "--only", "servers"]));
        assert!(own("env", &["A=1", "hermesctl", "mcp", "serve"]));
        assert!(own("sh", &["-c", "exec '/opt/x/hermesctl' mcp serve"]));
        assert!(own("uvx", &["--from", "hermes-agent", "hermes", "mcp", "serve"]));
        assert!(own("python3", &["-m", "hermes_cli.main", "mcp", "serve"]));
        assert!(own("/opt/bridge", &["mcp", "serve"]));
        assert!(own("C:\\x\\hermesctl.exe", &["mcp", "serve"]));
    }

    #[test]
    fn other_servers_are_not_taken_for_our_own() {
        assert!(!own("hermesctl", &["mcp", "list"]));
        assert!(!own("npx", &["-y", "hermes-mcp-server", "serve"]));
        assert!(!own("my-hermes", &["mcp", "serve"]));
        assert!(!own("docker", &["mcp", "gateway", "serve"]));
        assert!(!own("hermes", &[]));
    }

    fn secrets(args: &[&str]) -> Vec<(usize, String)> {
        visible_secrets(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn secrets_in_arguments_are_seen_in_their_usual_forms() {
        let cases: [(&[&str], usize, &str); 5] = [
            (&["--token", "abcdefgh12"], 1, "abcdefgh12"),
            (&["-y", "x", "--api-key=abcdefgh12"], 2, "abcdefgh12"),
            (&["--header", "Authorization: Bearer abcdefgh12"], 1, "abcdefgh12"),
            (&["-e", "GITHUB_TOKEN=abcdefgh12"], 1, "abcdefgh12"),
            (&["ghp_0123456789abcdefghij"], 0, "ghp_0123456789abcdefghij"),
        ];
        for (args, at, secret) in cases {
            assert_eq!(secrets(args), [(at, secret.to_owned())], "{args:?}");
        }
    }

    #[test]
    fn ordinary_arguments_are_no_secrets() {
        let args = [
            "-y",
            "@scope/keyboard-server",
            "--key-file",
            "/home/u/id.pem",
            "--token-limit",
            "4096",
            "https://h/auth?x=1",
            "-e",
            "GITHUB_TOKEN",
            "--auth",
            "none",
            "--allow",
            "task-force",
        ];
        assert_eq!(secrets(&args), []);
    }
}
