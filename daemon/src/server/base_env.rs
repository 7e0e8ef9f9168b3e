//! What the machine offers to every child: the daemon's variables, `.env`, the login shell's PATH,
//! the user's account, and the folders where package managers put programs.
//!
//! Owner: `boot` gathers it once and again when `.env` changes. Reads files and the password
//! database (may block: call it on the blocking pool). Starts no process, see `shell_query`.

use crate::secret::{KnownSecrets, Secret, value_is_secret};
use crate::server::environment::FileKind;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a child's environment is taken from.
#[derive(Clone, Default)]
pub struct BaseEnv {
    /// The daemon's own variables; HOME, USER and SHELL filled in from the account.
    pub vars: BTreeMap<String, String>,
    /// `$HERMES_HOME/.env`; beats `vars` for `env_pass`.
    pub dotenv: BTreeMap<String, String>,
    /// Variables of the systemd user manager; looked at last.
    pub manager: BTreeMap<String, String>,
    /// PATH of the user's login shell, if it answered.
    pub login_path: Option<String>,
    /// Folders appended to every PATH if they exist, in this order.
    pub well_known: Vec<PathBuf>,
    /// The user's home.
    pub user_home: PathBuf,
    /// HERMES_HOME.
    pub hermes_home: PathBuf,
}

impl std::fmt::Debug for BaseEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be secrets; names are enough to debug with.
        f.debug_struct("BaseEnv")
            .field("vars", &self.vars.keys())
            .field("dotenv", &self.dotenv.keys())
            .field("manager", &self.manager.keys())
            .field("login_path", &self.login_path)
            .field("user_home", &self.user_home)
            .field("hermes_home", &self.hermes_home)
            .finish_non_exhaustive()
    }
}

/// The user's entry in the password database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// Home folder.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

impl Account {
    /// The account of this process; `None` when the database has no entry (common in containers).
    /// May block on a directory service.
    pub fn of_this_user() -> Option<Self> {
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::current()).ok().flatten()?;
        Some(Self { name: user.name, home: user.dir, shell: user.shell })
    }
}

impl BaseEnv {
    /// Puts together what is known without starting a process: `vars` of the daemon (names and
    /// values that are not UTF-8 are left out), `.env` and the account. Blocking.
    pub fn gather(
        vars: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
        dotenv: BTreeMap<String, String>,
        account: Option<&Account>,
        hermes_home: &Path,
    ) -> Self {
        let mut vars: BTreeMap<String, String> = vars
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        if let Some(account) = account {
            let mut fill = |name: &str, value: &str| {
                let have = vars.get(name).is_some_and(|value| !value.is_empty());
                if !have && !value.is_empty() {
                    vars.insert(name.to_owned(), value.to_owned());
                }
            };
            fill("HOME", &account.home.to_string_lossy());
            fill("USER", &account.name);
            fill("SHELL", &account.shell.to_string_lossy());
        }
        let user_home =
            vars.get("HOME").filter(|home| !home.is_empty()).map_or_else(|| "/".into(), PathBuf::from);
        let well_known = well_known_folders(&user_home, hermes_home);
        Self {
            vars,
            dotenv,
            manager: BTreeMap::new(),
            login_path: None,
            well_known,
            user_home,
            hermes_home: hermes_home.to_owned(),
        }
    }

    /// A variable for `env_pass`: `.env`, then the daemon's, then the user manager's.
    pub fn lookup(&self, name: &str) -> Option<&str> {
        [&self.dotenv, &self.vars, &self.manager]
            .into_iter()
            .find_map(|map| map.get(name))
            .map(String::as_str)
    }
    /// Adds every secret that these variables hold: values under a name that says so, and passwords in
    /// addresses (`http://user:password@proxy`).
    pub fn note_secrets(&self, known: &mut KnownSecrets) {
        for (name, value) in self.dotenv.iter().chain(&self.vars).chain(&self.manager) {
            known.note(name, value);
            if let Some(password) = password_in(value).filter(|password| value_is_secret(password)) {
                known.insert(Secret::new(password));
            }
        }
    }
}

/// The password of `scheme://user:password@host`.
pub(crate) fn password_in(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let (userinfo, _) = authority.rsplit_once('@')?;
    userinfo.split_once(':').map(|(_, password)| password).filter(|password| !password.is_empty())
}

/// Folders below the home where package managers put programs, the common ones first.
const BELOW_HOME: [&str; 19] = [
    ".local/bin",
    ".cargo/bin",
    ".volta/bin",
    ".bun/bin",
    ".deno/bin",
    ".local/share/mise/shims",
    ".asdf/shims",
    ".pyenv/shims",
    ".local/share/fnm/aliases/default/bin",
    "Library/Application Support/fnm/aliases/default/bin",
    ".local/share/pnpm",
    "Library/pnpm",
    ".npm-global/bin",
    ".yarn/bin",
    "go/bin",
    ".dotnet/tools",
    ".nix-profile/bin",
    ".rd/bin",
    "bin",
];

/// Folders of the whole machine; the last ones make even an empty PATH work.
const OF_MACHINE: [&str; 9] = [
    "/opt/homebrew/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "/run/current-system/sw/bin",
    "/nix/var/nix/profiles/default/bin",
    "/snap/bin",
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/sbin",
];

/// Folders worth searching besides the PATH, existing or not. Reads the folder of nvm. Blocking.
pub fn well_known_folders(user_home: &Path, hermes_home: &Path) -> Vec<PathBuf> {
    let mut folders = vec![hermes_home.join("node/bin")];
    folders.extend(BELOW_HOME.iter().map(|name| user_home.join(name)));
    folders.extend(newest_node(&user_home.join(".nvm/versions/node")));
    folders.extend(OF_MACHINE.iter().map(PathBuf::from));
    folders
}

/// `bin` of the newest version below the folder of nvm that has one.
fn newest_node(versions: &Path) -> Option<PathBuf> {
    let mut found: Vec<(Vec<u64>, PathBuf)> = fs::read_dir(versions)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let numbers = version_numbers(entry.file_name().to_str()?)?;
            let bin = entry.path().join("bin");
            bin.is_dir().then_some((numbers, bin))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, bin)| bin)
}

/// `v20.1.0` as numbers, so that 20 is newer than 9.
fn version_numbers(name: &str) -> Option<Vec<u64>> {
    name.strip_prefix('v')?.split('.').map(|part| part.parse().ok()).collect()
}

/// The real file system as a probe for [`resolve`](crate::server::environment::resolve). A few
/// `stat` calls; on a hanging network mount it blocks, so use the blocking pool.
pub fn probe_disk(path: &Path) -> FileKind {
    match fs::metadata(path) {
        Err(_) => FileKind::Missing,
        Ok(meta) if meta.is_dir() => FileKind::Folder,
        Ok(_) if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() => FileKind::Executable,
        Ok(_) => FileKind::File,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StdioConfig;
    use crate::server::environment::resolve;
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn npx_of_the_newest_nvm_version_is_found_with_a_poor_path() {
        let home = tempfile::tempdir().unwrap();
        for version in ["v9.11.2", "v20.10.0", "v20.9.1"] {
            program(&home.path().join(".nvm/versions/node").join(version).join("bin/only-in-nvm"));
        }
        fs::create_dir_all(home.path().join(".nvm/versions/node/v99.0.0")).unwrap(); // a broken install
        let vars = [
            (OsString::from("HOME"), home.path().as_os_str().to_owned()),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ];
        let base = BaseEnv::gather(vars, BTreeMap::new(), None, &home.path().join(".hermes"));
        let resolved = resolve(&StdioConfig::command("only-in-nvm"), &base, &probe_disk).unwrap();
        assert_eq!(resolved.program, home.path().join(".nvm/versions/node/v20.10.0/bin/only-in-nvm"));
    }

    #[test]
    fn home_user_and_shell_come_from_the_account_when_the_daemon_lacks_them() {
        let account = Account { name: "ann".into(), home: "/home/ann".into(), shell: "/bin/zsh".into() };
        let vars = [(OsString::from("USER"), OsString::from("bob")), ("HOME".into(), "".into())];
        let base = BaseEnv::gather(vars, BTreeMap::new(), Some(&account), Path::new("/h"));
        assert_eq!(base.vars["HOME"], "/home/ann");
        assert_eq!(base.vars["USER"], "bob", "what the daemon has is kept");
        assert_eq!(base.vars["SHELL"], "/bin/zsh");
        assert_eq!(base.user_home, Path::new("/home/ann"));
    }

    #[test]
    fn the_account_of_this_process_has_an_absolute_home() {
        if let Some(account) = Account::of_this_user() {
            assert!(account.home.is_absolute() && !account.name.is_empty());
        }
    }

    #[test]
    fn debug_output_shows_names_and_no_values() {
        let dotenv = BTreeMap::from([("API_KEY".to_owned(), "tellnobody".to_owned())]);
        let base = BaseEnv { dotenv, ..BaseEnv::default() };
        let text = format!("{base:?}");
        assert!(text.contains("API_KEY") && !text.contains("tellnobody"), "{text}");
    }

    #[test]
    fn secrets_are_found_by_name_and_in_addresses() {
        let map = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let base = BaseEnv {
            dotenv: map("GITHUB_TOKEN", "tokenvalue"),
            vars: map("HTTPS_PROXY", "http://me:proxypass@proxy:3128/"),
            manager: map("LANG", "de_DE.UTF-8"),
            ..BaseEnv::default()
        };
        let mut known = KnownSecrets::default();
        base.note_secrets(&mut known);
        let found: Vec<String> = known.longest_first().iter().map(|s| s.expose().to_owned()).collect();
        assert_eq!(found, ["tokenvalue", "proxypass"]);
    }

    #[test]
    fn the_probe_tells_folders_programs_and_plain_files_apart() {
        let dir = tempfile::tempdir().unwrap();
        program(&dir.path().join("run"));
        fs::write(dir.path().join("plain"), "x").unwrap();
        fs::set_permissions(dir.path().join("plain"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(probe_disk(dir.path()), FileKind::Folder);
        assert_eq!(probe_disk(&dir.path().join("run")), FileKind::Executable);
        assert_eq!(probe_disk(&dir.path().join("plain")), FileKind::File);
        assert_eq!(probe_disk(&dir.path().join("none")), FileKind::Missing);
    }
}
