//! `service print`: the files of `systemd/` with the path of this installation filled in.

use super::Context;
use crate::beside;
use crate::cli::{ServiceAction, ServiceManager};
use crate::failure::{Done, Failure};
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
    name: &'static str,
    folder: &'static str,
    text: String,
}

/// Does one action.
pub(super) fn run(cx: &Context, action: ServiceAction) -> Result<Done, Failure> {
    let ServiceAction::Print { system } = action;
    let program = beside::find("hermesd").unwrap_or_else(|| "/usr/local/bin/hermesd".into());
    let files = files(system, &program)?;
    cx.print(
        || files.iter().map(|f| serde_json::json!({ "path": f.path(), "text": f.text })).collect(),
        || page(system, &files),
    )?;
    Ok(Done::Well)
}

impl File {
    fn path(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }
}

fn files(system: ServiceManager, program: &Path) -> Result<Vec<File>, Failure> {
    let program = program.to_str().ok_or_else(|| Failure::refused("the path of hermesd is not UTF-8"))?;
    let units = "~/.config/systemd/user";
    Ok(match system {
        ServiceManager::Systemd => vec![
            // systemd splits at spaces and expands %.
            File {
                name: "hermesd.service",
                folder: units,
                text: SERVICE.replace(SHIPPED, &format!("\"{}\"", program.replace('%', "%%"))),
            },
            File { name: "hermesd.socket", folder: units, text: SOCKET.to_owned() },
        ],
        ServiceManager::Launchd => {
            let home = std::env::var("HOME").map_err(|_| Failure::refused("HOME is not set"))?;
            let text = AGENT.replace(AGENT_PROGRAM, &xml(program)).replace(AGENT_HOME, &xml(&home));
            vec![File { name: "dev.hermesd.plist", folder: "~/Library/LaunchAgents", text }]
        }
    })
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn page(system: ServiceManager, files: &[File]) -> String {
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
            out.push_str(
                "# then: systemctl --user daemon-reload && systemctl --user enable --now hermesd.socket\n",
            );
        }
        ServiceManager::Launchd => {
            for file in files {
                out.push_str(&format!("{}\n{open}{}{close}\n", file.text.trim_end(), file.path()));
            }
            out.push_str(
                "<!-- then: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/dev.hermesd.plist -->\n",
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_files_name_this_installation() {
        let units = files(ServiceManager::Systemd, Path::new("/opt/my apps/100%/hermesd")).unwrap();
        assert!(
            units[0].text.contains("ExecStart=\"/opt/my apps/100%%/hermesd\" run\n"),
            "{}",
            units[0].text
        );
        let agent = &files(ServiceManager::Launchd, Path::new("/opt/a&b/hermesd")).unwrap()[0].text;
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
