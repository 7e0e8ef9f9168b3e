//! What a child sees: PATH, variables, working folder, resolved command.
//!
//! Pure: [`resolve`] decides from a [`BaseEnv`] and a file probe, so that `mcp test`, `servers show`
//! and the real start come to the same answer. Promise: nothing of the daemon's environment reaches
//! a child except the allow-list, the entry's `env` and its `env_pass`; every error is permanent and
//! names what was looked at. Values never appear in warnings or errors, names do.
//! May not touch: processes, files (the probe is the caller's).

use crate::config::{DESKTOP, PROXY, StdioConfig};
use crate::server::base_env::BaseEnv;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Variables taken over from the daemon; `XDG_*` besides.
pub const ALLOWED: [&str; 8] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "SHELL", "TMPDIR"];

/// Variables that make a program load foreign code; never inherited unless named.
const LOADERS: [&str; 15] = [
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "RUBYLIB",
    "PERL5OPT",
    "PERL5LIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "BASH_ENV",
    "ENV",
    "ZDOTDIR",
    "GCONV_PATH",
];

/// What a path is, as the probe found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Nothing there, or not reachable.
    Missing,
    /// A folder.
    Folder,
    /// A file that this user may execute.
    Executable,
    /// A file that this user may not execute.
    File,
}

/// A child's start, decided.
#[derive(Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments, without the program.
    pub args: Vec<OsString>,
    /// Its whole environment, sorted by name; values may be secrets.
    pub env: Vec<(OsString, OsString)>,
    /// Its working folder, absolute, existing.
    pub cwd: PathBuf,
    /// Folders in which the command was looked for, in order; one folder for a command with a path.
    pub path_searched: Vec<PathBuf>,
    /// Names of the variables that the child gets, sorted.
    pub passed: Vec<String>,
    /// Names in the daemon's environment and in `.env` that it does not get, sorted.
    pub dropped: Vec<String>,
    /// What a person should know, one sentence each, no values.
    pub warnings: Vec<String>,
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved")
            .field("program", &self.program)
            .field("args", &self.args.len()) // arguments may hold secrets
            .field("cwd", &self.cwd)
            .field("passed", &self.passed)
            .field("dropped", &self.dropped)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// Why a command cannot be started; a retry never mends any of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// `command` is empty.
    #[error("the command is empty")]
    EmptyCommand,
    /// No folder of the PATH has it.
    #[error("command `{command}` not found in any of: {}", list(searched))]
    NotFound {
        /// As configured.
        command: String,
        /// Every folder looked at, in order.
        searched: Vec<PathBuf>,
    },
    /// A whole command line was written where the command belongs.
    #[error(
        "command `{program} …` not found: it contains spaces; write `command: {program}` and put the rest into `args`"
    )]
    ContainsSpaces {
        /// The first word.
        program: String,
        /// Every folder looked at, in order.
        searched: Vec<PathBuf>,
    },
    /// The file exists and may not be executed.
    #[error("{path} is not executable; try `chmod +x` on it, or name its interpreter as the command")]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The command names a folder.
    #[error("{path} is a folder, not a program")]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// `cwd` does not exist.
    #[error("working folder {path} does not exist")]
    CwdMissing {
        /// The folder.
        path: PathBuf,
    },
    /// `cwd` is no folder.
    #[error("working folder {path} is not a folder")]
    CwdNotFolder {
        /// The path.
        path: PathBuf,
    },
    /// A NUL byte, which no system call can carry.
    #[error("{field} contains a NUL byte")]
    NulByte {
        /// `command`, `cwd`, `args[2]` or `env.NAME`.
        field: String,
    },
}

impl ResolveError {
    /// Every folder that was looked at; empty where none was.
    pub fn searched(&self) -> &[PathBuf] {
        match self {
            Self::NotFound { searched, .. } | Self::ContainsSpaces { searched, .. } => searched,
            Self::EmptyCommand
            | Self::NotExecutable { .. }
            | Self::IsFolder { .. }
            | Self::CwdMissing { .. }
            | Self::CwdNotFolder { .. }
            | Self::NulByte { .. } => &[],
        }
    }
}

fn list(folders: &[PathBuf]) -> String {
    if folders.is_empty() {
        return "(no folder)".to_owned();
    }
    folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Decides everything about a child's start. Tell [`FileKind`] of a path through `probe`.
///
/// # Errors
/// [`ResolveError`]; all are permanent until the config or the machine changes.
pub fn resolve(
    config: &StdioConfig,
    base: &BaseEnv,
    probe: &dyn Fn(&Path) -> FileKind,
) -> Result<Resolved, ResolveError> {
    let command = config.command.trim();
    if command.is_empty() {
        return Err(ResolveError::EmptyCommand);
    }
    no_nul(config)?;
    let cwd = working_folder(config.cwd.as_deref(), &base.user_home, probe)?;
    let mut warnings = Vec::new();
    let mut folders = path_folders(config, base, probe, &mut warnings);
    let (program, path_searched) = find(command, &cwd, &folders, probe)?;
    if let Some(own) = program.parent() {
        // An interpreter beside the command (node beside npx) must win over an older one elsewhere.
        folders.retain(|folder| folder != own);
        folders.insert(0, own.to_owned());
    }
    let env = variables(config, base, &join(&folders), &mut warnings);
    for (at, arg) in config.args.iter().enumerate() {
        if arg.starts_with("~/") {
            warnings.push(format!(
                "args[{at}] starts with `~/`, which no shell expands here; write the whole path"
            ));
        }
    }
    let passed: Vec<String> = env.keys().cloned().collect();
    let known: BTreeSet<&String> = base.vars.keys().chain(base.dotenv.keys()).collect();
    let dropped = known.into_iter().filter(|name| !env.contains_key(*name)).cloned().collect();
    Ok(Resolved {
        program,
        args: config.args.iter().map(OsString::from).collect(),
        env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        cwd,
        path_searched,
        passed,
        dropped,
        warnings,
    })
}

fn no_nul(config: &StdioConfig) -> Result<(), ResolveError> {
    let nul = |field: String| ResolveError::NulByte { field };
    if config.command.contains('\0') {
        return Err(nul("command".to_owned()));
    }
    if config.cwd.as_ref().is_some_and(|cwd| cwd.as_os_str().as_bytes().contains(&0)) {
        return Err(nul("cwd".to_owned()));
    }
    if let Some(at) = config.args.iter().position(|arg| arg.contains('\0')) {
        return Err(nul(format!("args[{at}]")));
    }
    match config.env.iter().find(|(_, value)| value.expose().contains('\0')) {
        Some((name, _)) => Err(nul(format!("env.{name}"))),
        None => Ok(()),
    }
}

/// The configured folder, `~` and relative paths from the user's home; the home itself by default.
fn working_folder(
    configured: Option<&Path>,
    home: &Path,
    probe: &dyn Fn(&Path) -> FileKind,
) -> Result<PathBuf, ResolveError> {
    let path = match configured {
        None => home.to_owned(),
        Some(path) if path.as_os_str().is_empty() => home.to_owned(),
        Some(path) => home.join(path.strip_prefix("~").unwrap_or(path)),
    };
    match probe(&path) {
        FileKind::Folder => Ok(path),
        FileKind::Missing => Err(ResolveError::CwdMissing { path }),
        FileKind::Executable | FileKind::File => Err(ResolveError::CwdNotFolder { path }),
    }
}

/// The child's PATH: the entry's own, else the login shell's, else the daemon's; then the well-known
/// folders that exist and are not in it yet.
fn path_folders(
    config: &StdioConfig,
    base: &BaseEnv,
    probe: &dyn Fn(&Path) -> FileKind,
    warnings: &mut Vec<String>,
) -> Vec<PathBuf> {
    let own = config.env.get("PATH").map(|value| value.expose().to_owned());
    let from_config = own.is_some();
    let text = own
        .or_else(|| base.login_path.clone())
        .or_else(|| base.vars.get("PATH").cloned())
        .unwrap_or_default();
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(&text) {
        if folder.is_absolute() {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        } else if from_config && !folder.as_os_str().is_empty() {
            // Relative to what? The answer would differ between search and exec.
            warnings.push(format!("env.PATH: {} is not an absolute path and is left out", folder.display()));
        }
    }
    for folder in &base.well_known {
        if !folders.contains(folder) && probe(folder) == FileKind::Folder {
            folders.push(folder.clone());
        }
    }
    folders
}

fn join(folders: &[PathBuf]) -> String {
    // Non-UTF-8 folders cannot come in: every source of them is a String.
    folders.iter().map(|f| f.to_string_lossy()).collect::<Vec<_>>().join(":")
}

/// The program and the folders looked at.
fn find(
    command: &str,
    cwd: &Path,
    folders: &[PathBuf],
    probe: &dyn Fn(&Path) -> FileKind,
) -> Result<(PathBuf, Vec<PathBuf>), ResolveError> {
    if command.contains('/') {
        let path = cwd.join(command.strip_prefix("./").unwrap_or(command));
        let searched = vec![path.parent().unwrap_or(Path::new("/")).to_owned()];
        return match probe(&path) {
            FileKind::Executable => Ok((path, searched)),
            FileKind::File => Err(ResolveError::NotExecutable { path }),
            FileKind::Folder => Err(ResolveError::IsFolder { path }),
            FileKind::Missing => Err(not_found(command, searched)),
        };
    }
    let mut unusable = None;
    for folder in folders {
        let path = folder.join(command);
        match probe(&path) {
            FileKind::Executable => return Ok((path, folders.to_vec())),
            FileKind::File => unusable = unusable.or(Some(path)),
            FileKind::Missing | FileKind::Folder => {}
        }
    }
    match unusable {
        Some(path) => Err(ResolveError::NotExecutable { path }),
        None => Err(not_found(command, folders.to_vec())),
    }
}

fn not_found(command: &str, searched: Vec<PathBuf>) -> ResolveError {
    match command.split_once(char::is_whitespace) {
        // The rest of the line may hold a secret; it is not repeated.
        Some((program, _)) => ResolveError::ContainsSpaces { program: program.to_owned(), searched },
        None => ResolveError::NotFound { command: command.to_owned(), searched },
    }
}

/// Every variable of the child. The entry's `env` beats `env_pass` beats the allow-list.
fn variables(
    config: &StdioConfig,
    base: &BaseEnv,
    path: &str,
    warnings: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = base
        .vars
        .iter()
        .filter(|(name, _)| allowed(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.entry("HOME".to_owned()).or_insert_with(|| base.user_home.to_string_lossy().into_owned());
    for wanted in &config.env_pass {
        pass(wanted, config, base, &mut env, warnings);
    }
    for (name, value) in &config.env {
        if !valid_name(name) {
            warnings.push(format!(
                "env: `{}` cannot be the name of a variable and is left out",
                name.escape_debug()
            ));
            continue;
        }
        if loads_code(name) {
            warnings.push(format!(
                "env.{name} makes programs load foreign code; it is set because the config says so"
            ));
        }
        if config.env_pass.contains(name) {
            warnings.push(format!("{name} is in `env` and in `env_pass`; the value of `env` is used"));
        }
        env.insert(name.clone(), value.expose().to_owned());
    }
    env.insert("PATH".to_owned(), path.to_owned());
    env
}

/// Takes over one name or group of `env_pass`.
fn pass(
    wanted: &str,
    config: &StdioConfig,
    base: &BaseEnv,
    env: &mut BTreeMap<String, String>,
    warnings: &mut Vec<String>,
) {
    // What `.env` said when the configuration was read, so that a change of it is a change of the entry.
    let lookup =
        |name: &str| config.env_file.get(name).map(|value| value.expose()).or_else(|| base.lookup(name));
    let group: &[&str] = match wanted {
        "desktop" => DESKTOP,
        "proxy" => PROXY,
        name if valid_name(name) => {
            match lookup(name) {
                // PATH is decided elsewhere; taking it over here would undo that.
                Some(_) if name == "PATH" => {}
                Some(value) => {
                    if loads_code(name) {
                        warnings.push(format!(
                            "env_pass: {name} makes programs load foreign code; it is passed because the config names it"
                        ));
                    }
                    env.insert(name.to_owned(), value.to_owned());
                }
                None => warnings.push(format!(
                    "env_pass: {name} is set neither in .env nor in the daemon's nor in the user manager's environment"
                )),
            }
            return;
        }
        name => {
            warnings.push(format!("env_pass: `{}` cannot be the name of a variable", name.escape_debug()));
            return;
        }
    };
    for name in group {
        if let Some(value) = lookup(name) {
            env.insert((*name).to_owned(), value.to_owned());
        }
    }
}

fn allowed(name: &str) -> bool {
    ALLOWED.contains(&name) || name.starts_with("XDG_")
}

fn valid_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Whether a variable makes programs load code that its owner did not name.
pub fn loads_code(name: &str) -> bool {
    name.starts_with("LD_") || name.starts_with("DYLD_") || LOADERS.contains(&name)
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
