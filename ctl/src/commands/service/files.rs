//! The files of `systemd/` with the path of this installation filled in.
//!
//! Pure. A home that is not the default gets units of its own name, so that two homes never share one.

use crate::cli_service::ServiceManager;
use crate::failure::Failure;
use hermes_proto::endpoint::Home;
use std::path::{Path, PathBuf};

const SERVICE: &str = include_str!("../../../../systemd/hermesd.service");
const SOCKET: &str = include_str!("../../../../systemd/hermesd.socket");
const AGENT: &str = include_str!("../../../../systemd/launchd/hermesd.plist");
/// Where the shipped unit expects the daemon.
const SHIPPED: &str = "%h/.local/bin/hermesd";
/// Where the shipped launch agent expects the daemon and the file of its first words.
const AGENT_PROGRAM: &str = "@HERMESD@";
const AGENT_LOG: &str = "@LOG@";

/// Where the service managers of a user look for files.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    /// The user's home folder.
    pub(super) user: PathBuf,
    /// `XDG_CONFIG_HOME`, or `.config` in the home folder.
    pub(super) config: PathBuf,
}

impl Folders {
    /// # Errors
    /// When `HOME` is not set.
    pub(super) fn find(var: &dyn Fn(&str) -> Option<std::ffi::OsString>) -> Result<Self, Failure> {
        let absolute = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = absolute("HOME").ok_or_else(|| Failure::refused("HOME is not set"))?;
        let config = absolute("XDG_CONFIG_HOME").unwrap_or_else(|| user.join(".config"));
        Ok(Self { user, config })
    }
}

/// One file and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The name that all units of a home share, without their ending; of its launch agent, the label.
pub(super) fn unit_name(system: ServiceManager, home: &Home) -> String {
    match system {
        ServiceManager::Systemd => home.runtime_name(),
        ServiceManager::Launchd => format!("dev.{}", home.runtime_name()),
    }
}

/// Where launchd puts what the daemon says before it has a log of its own.
pub(super) fn agent_log(folders: &Folders, home: &Home) -> PathBuf {
    folders.user.join("Library/Logs").join(format!("{}.log", home.runtime_name()))
}

/// # Errors
/// When a path is not UTF-8, which neither kind of file can hold.
pub(super) fn files(
    system: ServiceManager,
    program: &Path,
    home: &Home,
    folders: &Folders,
) -> Result<Vec<File>, Failure> {
    let program = utf8(program)?;
    let name = home.runtime_name();
    let other = if home.is_default() { None } else { Some(utf8(home.path())?) };
    Ok(match system {
        ServiceManager::Systemd => {
            let mut start = format!("{} run", word(program));
            if let Some(home) = other {
                // Only arguments know `$$`; a program is taken as it is.
                start.push_str(&format!(" --home {}", word(&home.replace('$', "$$"))));
            }
            let unit = |kind: &str, text: &str| File {
                path: folders.config.join("systemd/user").join(format!("{name}.{kind}")),
                text: named(text, &name),
            };
            let service = SERVICE.replace(&format!("{SHIPPED} run"), &start);
            vec![unit("service", &service), unit("socket", SOCKET)]
        }
        ServiceManager::Launchd => {
            let log = agent_log(folders, home);
            let mut text = AGENT.replace(AGENT_PROGRAM, &xml(program)).replace(AGENT_LOG, &xml(utf8(&log)?));
            if let Some(home) = other {
                let run = "<string>run</string>\n";
                let more = format!("{run}    <string>--home</string>\n    <string>{}</string>\n", xml(home));
                text = text.replace(run, &more).replace("dev.hermesd<", &format!("dev.{name}<"));
            }
            let path = folders.user.join("Library/LaunchAgents").join(format!("dev.{name}.plist"));
            vec![File { path, text }]
        }
    })
}

fn utf8(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure::refused(format!("{} is not UTF-8", path.display())))
}

/// A unit with the names of one home: of its units, and of its folder below the runtime folder.
fn named(text: &str, name: &str) -> String {
    [("hermesd.socket", "socket"), ("hermesd.service", "service")]
        .into_iter()
        .fold(text.to_owned(), |text, (shipped, kind)| text.replace(shipped, &format!("{name}.{kind}")))
        .replace("%t/hermesd/", &format!("%t/{name}/"))
        .replace("RuntimeDirectory=hermesd\n", &format!("RuntimeDirectory={name}\n"))
        .replace("SyslogIdentifier=hermesd\n", &format!("SyslogIdentifier={name}\n"))
}

/// One word of a command line of systemd, which splits at spaces and expands `%`.
fn word(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// All files as one page that says where each belongs.
pub(super) fn page(system: ServiceManager, files: &[File], name: &str) -> String {
    let mut out = String::new();
    match system {
        ServiceManager::Systemd => {
            for file in files {
                out.push_str(&format!("# {}\n{}\n", file.path.display(), file.text.trim_end()));
            }
            out.push_str(&format!(
                "# then: systemctl --user daemon-reload && systemctl --user enable --now {name}.socket {name}.service\n"
            ));
        }
        // An XML declaration must come first, so the place is named at the end there.
        ServiceManager::Launchd => {
            for file in files {
                let place = file.path.display();
                out.push_str(&format!(
                    "{}\n<!-- {place} -->\n<!-- then: launchctl bootstrap gui/$(id -u) {place} -->\n",
                    file.text.trim_end()
                ));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> Folders {
        Folders::find(&|name| (name == "HOME").then(|| "/nonexistent/u".into())).unwrap()
    }

    fn of(system: ServiceManager, program: &str, home: &Home) -> Vec<File> {
        files(system, Path::new(program), home, &folders()).unwrap()
    }

    fn default_home() -> Home {
        Home::find(None, &|name| (name == "HOME").then(|| "/nonexistent/u".into())).unwrap()
    }

    fn other_home() -> Home {
        let env = |name: &str| (name == "HOME").then(|| "/nonexistent/u".into());
        Home::find(Some(Path::new("/nonexistent/my & $home")), &env).unwrap()
    }

    #[test]
    fn another_home_is_named_in_its_own_files_and_found_at_its_own_sockets() {
        let home = other_home();
        let name = home.runtime_name();
        let units = of(ServiceManager::Systemd, "/opt/hermesd", &home);
        let place = |kind: &str| PathBuf::from(format!("/nonexistent/u/.config/systemd/user/{name}.{kind}"));
        assert_eq!([&units[0].path, &units[1].path], [&place("service"), &place("socket")]);
        let start = "ExecStart=\"/opt/hermesd\" run --home \"/nonexistent/my & $$home\"\n";
        assert!(units[0].text.contains(start), "{}", units[0].text);
        assert!(units[0].text.contains(&format!("Requires={name}.socket\n")), "{}", units[0].text);
        assert!(units[0].text.contains(&format!("RuntimeDirectory={name}\n")), "{}", units[0].text);
        // Where clients look: see `Endpoint::choose`.
        assert!(units[1].text.contains(&format!("ListenStream=%t/{name}/mcp.sock\n")), "{}", units[1].text);
        let agent = &of(ServiceManager::Launchd, "/opt/hermesd", &home)[0];
        assert!(agent.text.contains("<string>/nonexistent/my &amp; $home</string>"), "{}", agent.text);
        assert!(agent.text.contains(&format!("<string>dev.{name}</string>")), "{}", agent.text);
        assert!(agent.path.ends_with(format!("Library/LaunchAgents/dev.{name}.plist")));
        assert!(agent.text.contains(&format!("/Library/Logs/{name}.log</string>")), "{}", agent.text);
    }

    #[test]
    fn the_default_home_keeps_the_shipped_files_but_for_the_program() {
        let units = of(ServiceManager::Systemd, "/opt/hermesd", &default_home());
        assert_eq!(units[0].text.replace("\"/opt/hermesd\"", SHIPPED), SERVICE);
        assert_eq!(units[1].text, SOCKET);
    }

    #[test]
    fn the_printed_files_name_this_installation() {
        let units = of(ServiceManager::Systemd, "/opt/my apps/100%/hermesd", &default_home());
        assert!(
            units[0].text.contains("ExecStart=\"/opt/my apps/100%%/hermesd\" run\n"),
            "{}",
            units[0].text
        );
        let agent = &of(ServiceManager::Launchd, "/opt/a&b/hermesd", &default_home())[0].text;
        assert!(agent.contains("<string>/opt/a&amp;b/hermesd</string>"));
        assert!(!agent.contains('@'), "{agent}");
    }

    #[test]
    fn the_unit_gives_the_daemon_more_time_than_it_takes() {
        let stop = SERVICE.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
        assert!(stop.parse::<u32>().unwrap() > 10, "the daemon stops everything within 10 s");
        assert!(SERVICE.contains("KillMode=mixed\n") && SERVICE.contains("Type=notify\n"));
        assert!(SOCKET.contains("SocketMode=0600\n") && SOCKET.contains("DirectoryMode=0700\n"));
    }
}
