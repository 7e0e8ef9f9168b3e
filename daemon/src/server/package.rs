//! Which packages a launcher command line downloads and runs: npx, bunx, pnpm, yarn, npm, uvx, pipx.
//!
//! Pure. Promise: an option's value is never taken for the package, whatever the options are; what
//! does not come from a registry (paths, git, archives) is not reported. May not touch: the network.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a package comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ecosystem {
    /// The npm registry.
    #[serde(rename = "npm")]
    Npm,
    /// The Python package index.
    #[serde(rename = "PyPI")]
    Pypi,
}

impl Ecosystem {
    /// Its name in the OSV schema.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "PyPI",
        }
    }
}

/// A package that a launcher fetches from a registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Package {
    /// Its registry.
    pub ecosystem: Ecosystem,
    /// Its name, for PyPI in the normal form (lower case, `-` between words).
    pub name: String,
    /// The exact version asked for; `None` for tags, ranges and nothing.
    pub version: Option<String>,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} package {}", self.ecosystem.as_str(), self.name)?;
        match &self.version {
            Some(version) => write!(f, " {version}"),
            None => Ok(()),
        }
    }
}

/// How one launcher reads its command line.
struct Launcher {
    ecosystem: Ecosystem,
    /// Options that name the package, so that the first plain word is only a program in it.
    from: &'static [&'static str],
    /// Options that name a further package.
    with: &'static [&'static str],
    /// Other options that take the next word as their value.
    valued: &'static [&'static str],
    /// Whether the first plain word is a package when no `from` option is there.
    positional: Positional,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Positional {
    Package,
    Program,
}

const NPM_VALUED: &[&str] = &[
    "-c",
    "--call",
    "--registry",
    "--cache",
    "-w",
    "--workspace",
    "--userconfig",
    "--globalconfig",
    "--prefix",
    "-C",
    "--dir",
    "--loglevel",
    "--node-options",
    "--node-arg",
    "-n",
    "--shell",
    "--script-shell",
    "--proxy",
    "--https-proxy",
    "--noproxy",
    "--cafile",
    "--ca",
    "--cert",
    "--key",
    "--before",
    "--tag",
    "--omit",
    "--include",
    "--allow-build",
    "--cpu",
    "--os",
    "--libc",
    "--cwd",
    "--reporter",
    "--fetch-timeout",
    "--otp",
    "--scope",
];

const UV_VALUED: &[&str] = &[
    "-p",
    "--python",
    "-i",
    "--index-url",
    "--extra-index-url",
    "--index",
    "--default-index",
    "--directory",
    "--project",
    "--cache-dir",
    "--config-file",
    "-c",
    "--constraints",
    "--constraint",
    "--overrides",
    "--override",
    "--with-editable",
    "--with-requirements",
    "--env-file",
    "--link-mode",
    "-f",
    "--find-links",
    "--index-strategy",
    "--keyring-provider",
    "--resolution",
    "--prerelease",
    "--exclude-newer",
    "-P",
    "--upgrade-package",
    "--refresh-package",
    "--color",
    "--allow-insecure-host",
    "--trusted-host",
    "-b",
    "--build-constraints",
    "--build-constraint",
    "--no-build-package",
    "--no-binary-package",
    "--reinstall-package",
    "-C",
    "--config-setting",
    "--config-settings",
    "--fork-strategy",
    "--python-preference",
    "--python-platform",
    "--torch-backend",
    "--no-build-isolation-package",
    "--extra",
    "--group",
    "--only-group",
    "--no-group",
    "--no-extra",
    "--package",
    "--excludes",
    "--exclude",
    "--exclude-newer-package",
    "--python-fetch",
    "-m",
    "--module",
    "--script",
];

const PIPX_VALUED: &[&str] =
    &["--python", "-i", "--index-url", "--pip-args", "--backend", "--fetch-missing-python-version"];

const NPX: Launcher = Launcher {
    ecosystem: Ecosystem::Npm,
    from: &["-p", "--package"],
    with: &[],
    valued: NPM_VALUED,
    positional: Positional::Package,
};
const UVX: Launcher = Launcher {
    ecosystem: Ecosystem::Pypi,
    from: &["--from"],
    with: &["-w", "--with"],
    valued: UV_VALUED,
    positional: Positional::Package,
};
const UV_RUN: Launcher = Launcher { positional: Positional::Program, from: &[], ..UVX };
const PIPX: Launcher = Launcher {
    ecosystem: Ecosystem::Pypi,
    from: &["--spec"],
    with: &["--with"],
    valued: PIPX_VALUED,
    positional: Positional::Package,
};

/// Every package that `program` (a base name) with `args` fetches, in the order named; empty for
/// anything that is no package launcher.
pub fn packages_of<S: AsRef<str>>(program: &str, args: &[S]) -> Vec<Package> {
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let plain = |word: &&str| !word.starts_with('-');
    let (launcher, rest) = match base_name(program).as_str() {
        "npx" | "pnpx" | "bunx" => (NPX, args.as_slice()),
        "npm" | "pnpm" | "yarn" | "bun" => match subcommand(&args, NPM_VALUED) {
            Some(("exec" | "x", at)) if base_name(program) != "pnpm" && base_name(program) != "yarn" => {
                (NPX, &args[at + 1..])
            }
            Some(("dlx", at)) => (NPX, &args[at + 1..]),
            Some(_) | None => return Vec::new(),
        },
        "uvx" => (UVX, args.as_slice()),
        "uv" => match subcommand(&args, UV_VALUED) {
            Some(("tool", at)) => match args[at + 1..].iter().position(plain) {
                Some(next) if matches!(args[at + 1 + next], "run") => (UVX, &args[at + next + 2..]),
                Some(_) | None => return Vec::new(),
            },
            Some(("x", at)) => (UVX, &args[at + 1..]),
            Some(("run", at)) => (UV_RUN, &args[at + 1..]),
            Some(_) | None => return Vec::new(),
        },
        "pipx" => match subcommand(&args, PIPX_VALUED) {
            Some(("run", at)) => (PIPX, &args[at + 1..]),
            Some(_) | None => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    read(&launcher, rest)
}

/// The first package of [`packages_of`].
pub fn package_of<S: AsRef<str>>(program: &str, args: &[S]) -> Option<Package> {
    packages_of(program, args).into_iter().next()
}

/// File name without `.exe` and the like, lower case.
pub(crate) fn base_name(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program).to_ascii_lowercase();
    let stem = [".exe", ".cmd", ".bat", ".ps1"].iter().find_map(|end| name.strip_suffix(end));
    stem.unwrap_or(&name).to_owned()
}

/// The first word that is neither an option nor an option's value.
fn subcommand<'a>(args: &[&'a str], valued: &[&str]) -> Option<(&'a str, usize)> {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        if !word.starts_with('-') {
            return Some((word, at));
        }
        at += if valued.contains(word) { 2 } else { 1 };
    }
    None
}

fn read(launcher: &Launcher, args: &[&str]) -> Vec<Package> {
    let mut from = Vec::new();
    let mut with = Vec::new();
    let mut positional = None;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if *word == "--" {
            positional = words.next().copied();
            break;
        }
        if !word.starts_with('-') {
            positional = Some(*word);
            break;
        }
        let (option, attached) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (*word, None),
        };
        if launcher.from.contains(&option) {
            from.extend(attached.or_else(|| words.next().copied()));
        } else if launcher.with.contains(&option) {
            with.extend(
                attached.or_else(|| words.next().copied()).into_iter().flat_map(|list| list.split(',')),
            );
        } else if attached.is_none() && launcher.valued.contains(&option) {
            words.next();
        }
    }
    if from.is_empty() && launcher.positional == Positional::Package {
        from.extend(positional);
    }
    let spec = match launcher.ecosystem {
        Ecosystem::Npm => npm_spec,
        Ecosystem::Pypi => pypi_spec,
    };
    let mut found = Vec::new();
    for package in from.into_iter().chain(with).filter_map(spec) {
        if !found.contains(&package) {
            found.push(package);
        }
    }
    found
}

/// `name`, `name@version`, `@scope/name@version`, `alias@npm:name@version`.
fn npm_spec(spec: &str) -> Option<Package> {
    let spec = match spec.split_once("@npm:") {
        Some((_, real)) => real,
        None => spec.strip_prefix("npm:").unwrap_or(spec),
    };
    // The first @ of a scoped name is part of it.
    let at = spec.char_indices().skip(1).find(|(_, c)| *c == '@').map_or(spec.len(), |(at, _)| at);
    let (name, version) = (&spec[..at], spec.get(at + 1..).unwrap_or(""));
    let (scope, bare) = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/')?,
        None => ("", name),
    };
    let part = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c));
    // user/repo, ./path, git+https://… and archives are no registry packages.
    let registry = !bare.is_empty() && part(bare) && part(scope) && !bare.starts_with(['.', '-']);
    let archive = scope.is_empty() && (bare.ends_with(".tgz") || bare.ends_with(".tar.gz"));
    let foreign = version.contains(['/', ':']);
    (registry && !archive && !foreign).then(|| Package {
        ecosystem: Ecosystem::Npm,
        name: name.to_owned(),
        version: exact_npm(version),
    })
}

/// A version such as `1.2.3` or `=v1.2.3-rc.1`; ranges and tags are none.
fn exact_npm(version: &str) -> Option<String> {
    let version = version.trim_start_matches(['=', 'v']);
    let core = version.split(['-', '+']).next()?;
    let numbers = core.split('.').filter(|part| part.parse::<u64>().is_ok()).count();
    (numbers == 3 && core.split('.').count() == 3 && !version.contains(' ')).then(|| version.to_owned())
}

/// `name`, `name==version`, `name[extra]==version`, `name@version`; ranges give no version.
fn pypi_spec(spec: &str) -> Option<Package> {
    let spec = spec.split(';').next()?.trim();
    let end = spec.find(|c: char| !(c.is_ascii_alphanumeric() || "-._".contains(c))).unwrap_or(spec.len());
    let (name, rest) = spec.split_at(end);
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(extras) => extras.split_once(']')?.1.trim_start(),
        None => rest,
    };
    let archive = [".whl", ".tar.gz", ".zip", ".py"].iter().any(|end| name.ends_with(end));
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || archive
        || !matches!(rest.chars().next(), None | Some('=' | '<' | '>' | '!' | '~' | '@'))
    {
        return None;
    }
    let version = match (rest.strip_prefix("=="), rest.strip_prefix('@')) {
        (Some(exact), _) => exact.trim_start_matches('=').trim(),
        (None, Some(after)) if after.contains(['/', ':']) => return None, // an address
        (None, Some(after)) => after.trim(),
        (None, None) => "",
    };
    let exact =
        version.starts_with(|c: char| c.is_ascii_digit()) && !version.contains(['*', ',', ' ', '<', '>']);
    Some(Package {
        ecosystem: Ecosystem::Pypi,
        name: normal_form(name),
        version: exact.then(|| version.to_owned()),
    })
}

/// Lower case with one `-` for each run of `-`, `_` and `.`, as the index compares names.
fn normal_form(name: &str) -> String {
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `npm:name@version` for each package of a command line.
    fn of(line: &str) -> Vec<String> {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap();
        let args: Vec<&str> = words.collect();
        let short = |p: Package| {
            let version = p.version.map(|v| format!("@{v}")).unwrap_or_default();
            format!("{}:{}{version}", p.ecosystem.as_str(), p.name)
        };
        packages_of(program, &args).into_iter().map(short).collect()
    }

    #[test]
    fn node_launchers_with_every_way_to_name_a_package() {
        for (line, expected) in [
            ("npx foo", "npm:foo"),
            ("npx -y foo@1.2.3 bar", "npm:foo@1.2.3"),
            ("npx --yes @scope/name@1.0.0-rc.1", "npm:@scope/name@1.0.0-rc.1"),
            ("npx @scope/name", "npm:@scope/name"),
            ("npx -p foo bar", "npm:foo"),
            ("npx --package foo@1.0.0 -- bar --flag", "npm:foo@1.0.0"),
            ("npx --package=foo bar", "npm:foo"),
            ("npx --registry https://r.example foo", "npm:foo"),
            ("npx -y -- foo", "npm:foo"),
            ("npx foo@latest", "npm:foo"),
            ("npx foo@^1.2.0", "npm:foo"),
            ("npx alias@npm:real@1.0.0", "npm:real@1.0.0"),
            ("/opt/node/bin/npx.cmd foo", "npm:foo"),
            ("bunx --bun foo", "npm:foo"),
            ("bun x foo", "npm:foo"),
            ("pnpm dlx foo@2.0.0", "npm:foo@2.0.0"),
            ("pnpm --dir /x dlx --package=foo bar", "npm:foo"),
            ("pnpx foo", "npm:foo"),
            ("yarn dlx -q -p foo bar", "npm:foo"),
            ("npm exec --yes -- foo", "npm:foo"),
            ("npm x foo", "npm:foo"),
        ] {
            assert_eq!(of(line), [expected], "{line}");
        }
        assert_eq!(of("npx -p a@1.0.0 -p b c"), ["npm:a@1.0.0", "npm:b"]);
    }

    #[test]
    fn python_launchers_with_every_way_to_name_a_package() {
        for (line, expected) in [
            ("uvx foo", "PyPI:foo"),
            ("uvx foo@1.2", "PyPI:foo@1.2"),
            ("uvx foo@latest", "PyPI:foo"),
            ("uvx --python 3.12 foo", "PyPI:foo"),
            ("uvx -p 3.12 Foo_Bar.baz==1.0", "PyPI:foo-bar-baz@1.0"),
            ("uvx --from foo[cli]==2.0 bar", "PyPI:foo@2.0"),
            ("uvx --from=foo>=1 bar", "PyPI:foo"),
            ("uv --offline tool run --python=3.12 foo", "PyPI:foo"),
            ("uv --directory /x tool run --from foo bar", "PyPI:foo"),
            ("pipx run foo==1.0", "PyPI:foo@1.0"),
            ("pipx run --spec foo bar", "PyPI:foo"),
            ("pipx run --python 3.12 foo", "PyPI:foo"),
            ("uv run --with foo server.py", "PyPI:foo"),
        ] {
            assert_eq!(of(line), [expected], "{line}");
        }
        assert_eq!(of("uvx --with a,b==1.0 c"), ["PyPI:c", "PyPI:a", "PyPI:b@1.0"]);
    }

    #[test]
    fn what_is_no_registry_package_is_not_reported() {
        for line in [
            "npx ./local",
            "npx user/repo",
            "npx github:user/repo",
            "npx git+https://h.example/r.git",
            "npx foo@https://h.example/x.tgz",
            "npx /abs/x.tgz",
            "npx",
            "npm install foo",
            "npm run exec",
            "pnpm exec foo",
            "uvx git+https://h.example/r",
            "uvx ./dir",
            "uvx --from git+https://h.example/r bar",
            "uvx foo@git+https://h.example/r",
            "uv run server.py",
            "uv tool install foo",
            "pipx install foo",
            "node npx foo",
            "python -m foo",
        ] {
            assert_eq!(of(line), [""; 0], "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_command_line_is_read_without_panic_and_names_are_clean(
            program in "npx|uvx|uv|pipx|pnpm|npm|bunx|yarn",
            args in proptest::collection::vec("[-@a-z=:/. 0-9\\[\\]é]{0,12}|run|tool|dlx|exec|--|-p", 0..8),
        ) {
            for package in packages_of(&program, &args) {
                prop_assert!(!package.name.is_empty());
                prop_assert!(!package.name.starts_with('-') && !package.name.contains([' ', ':', '=']), "{}", package.name);
            }
        }

        #[test]
        fn options_before_the_package_do_not_hide_it(
            options in proptest::collection::vec(
                prop_oneof![Just("-y"), Just("--quiet"), Just("--registry=https://r"), Just("--cache /tmp/c"), Just("--prefix /p")], 0..5),
        ) {
            let line = format!("npx {} the-package", options.join(" "));
            prop_assert_eq!(of(&line), ["npm:the-package"]);
        }
    }
}
