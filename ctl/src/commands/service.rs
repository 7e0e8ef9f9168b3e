//! `service print`: the files of `systemd/` with the path of this installation filled in.
//!
//! A home that is not the default gets units of its own name, so that two homes never share one.

use super::Context;
use crate::beside;
use crate::cli::{ServiceAction, ServiceManager};
use crate::failure::{Done, Failure};
use hermes_proto::endpoint::Home;
use std::path::Path;

const SERVICE: &str = include_str!("../../../systemd/hermesd.service");
const SOCKET: &str = include_str!("../../../systemd/hermesd.socket");
const AGENT: &str = include_str!("../../../systemd/launchd/hermesd.plist");
/// Where the shipped unit expects the daemon.
const SHIPPED: &str = "%h/.local/bin/hermesd";
/// Where the shipped launch agent expects the daemon and the home folder.
const AGENT_PROGRAM: &str = "@HERMESD@";
const AGENT_HOME: &str = "@HOME@";

/// One file and where it belongs.
struct File {
    name: String,
    folder: &'static str,
    text: String,
}

/// Does one action.
pub(super) fn run(cx: &Context, action: ServiceAction) -> Result<Done, Failure> {
    let ServiceAction::Print { system } = action;
    let program = beside::find("hermesd").unwrap_or_else(|| "/usr/local/bin/hermesd".into());
    let files = files(system, &program, &cx.home)?;
    cx.print(
        || files.iter().map(|f| serde_json::json!({ "path": f.path(), "text": f.text })).collect(),
        || page(system, &files, &cx.home.runtime_name()),
    )?;
    Ok(Done::Well)
}

impl File {
    fn path(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }
}

fn files(system: ServiceManager, program: &Path, home: &Home) -> Result<Vec<File>, Failure> {
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
                name: format!("{name}.{kind}"),
                folder: "~/.config/systemd/user",
                text: named(text, &name),
            };
            let service = SERVICE.replace(&format!("{SHIPPED} run"), &start);
            vec![unit("service", &service), unit("socket", SOCKET)]
        }
        ServiceManager::Launchd => {
            let user = std::env::var("HOME").map_err(|_| Failure::refused("HOME is not set"))?;
            let mut text = AGENT.replace(AGENT_PROGRAM, &xml(program)).replace(AGENT_HOME, &xml(&user));
            if let Some(home) = other {
                let run = "<string>run</string>\n";
                let more = format!("{run}    <string>--home</string>\n    <string>{}</string>\n", xml(home));
                text = text.replace(run, &more).replace("dev.hermesd<", &format!("dev.{name}<"));
                text = text.replace("/hermesd.log", &format!("/{name}.log"));
            }
            vec![File { name: format!("dev.{name}.plist"), folder: "~/Library/LaunchAgents", text }]
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

fn page(system: ServiceManager, files: &[File], name: &str) -> String {
    let (open, close) = match system {
        ServiceManager::Systemd => ("# ", ""),
        ServiceManager::Launchd => ("<!-- ", " -->"),
    };
    let mut out = String::new();
    // An XML declaration must come first, so the place is named at the end there.
    match system {
        ServiceManager::Systemd => {
            for file in files {
                out.push_str(&format!("{open}{}{close}\n{}\n", file.path(), file.text.trim_end()));
            }
            out.push_str(&format!(
                "# then: systemctl --user daemon-reload && systemctl --user enable --now {name}.socket\n"
            ));
        }
        ServiceManager::Launchd => {
            for file in files {
                out.push_str(&format!("{}\n{open}{}{close}\n", file.text.trim_end(), file.path()));
            }
            out.push_str(&format!(
                "<!-- then: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/dev.{name}.plist -->\n"
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let units = files(ServiceManager::Systemd, Path::new("/opt/hermesd"), &home).unwrap();
        assert_eq!([&units[0].name, &units[1].name], [&format!("{name}.service"), &format!("{name}.socket")]);
        let start = "ExecStart=\"/opt/hermesd\" run --home \"/nonexistent/my & $$home\"\n";
        assert!(units[0].text.contains(start), "{}", units[0].text);
        assert!(units[0].text.contains(&format!("Requires={name}.socket\n")), "{}", units[0].text);
        assert!(units[0].text.contains(&format!("RuntimeDirectory={name}\n")), "{}", units[0].text);
        // Where clients look: see `Endpoint::choose`.
        assert!(units[1].text.contains(&format!("ListenStream=%t/{name}/mcp.sock\n")), "{}", units[1].text);
        let agent = &files(ServiceManager::Launchd, Path::new("/opt/hermesd"), &home).unwrap()[0];
        assert!(agent.text.contains("<string>/nonexistent/my &amp; $home</string>"), "{}", agent.text);
        assert!(agent.text.contains(&format!("<string>dev.{name}</string>")), "{}", agent.text);
        assert_eq!(agent.name, format!("dev.{name}.plist"));
    }

    #[test]
    fn the_default_home_keeps_the_shipped_files_but_for_the_program() {
        let units = files(ServiceManager::Systemd, Path::new("/opt/hermesd"), &default_home()).unwrap();
        assert_eq!(units[0].text.replace("\"/opt/hermesd\"", SHIPPED), SERVICE);
        assert_eq!(units[1].text, SOCKET);
    }

    #[test]
    fn the_printed_files_name_this_installation() {
        let units =
            files(ServiceManager::Systemd, Path::new("/opt/my apps/100%/hermesd"), &default_home()).unwrap();
        assert!(
            units[0].text.contains("ExecStart=\"/opt/my apps/100%%/hermesd\" run\n"),
            "{}",
            units[0].text
        );
        let agent =
            &files(ServiceManager::Launchd, Path::new("/opt/a&b/hermesd"), &default_home()).unwrap()[0].text;
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
