//! Service files of this home: enabled, and with a program that is there.
//!
//! Reads the files, asks no service manager: a wish is what is looked at, not a state.

use super::{Lookup, at, finding};
use hermes_proto::control as pb;
use hermes_proto::endpoint::Home;
use std::fs;
use std::path::{Path, PathBuf};

/// Looks at the units (or the launch agent) of this home; nothing where none is installed.
pub(super) fn look(home: &Home, env: Lookup<'_>) -> Vec<pb::Finding> {
    let Some(user) = env("HOME").map(PathBuf::from) else { return Vec::new() };
    let name = home.runtime_name();
    if cfg!(target_os = "macos") {
        return agent(&user.join(format!("Library/LaunchAgents/dev.{name}.plist"))).into_iter().collect();
    }
    let config = env("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty());
    let units = config.map_or_else(|| user.join(".config"), PathBuf::from).join("systemd/user");
    systemd(&units, &name, &user)
}

fn systemd(units: &Path, name: &str, user: &Path) -> Vec<pb::Finding> {
    let service = units.join(format!("{name}.service"));
    let Ok(text) = fs::read_to_string(&service) else { return Vec::new() };
    let mut found = Vec::new();
    let wanted = ["default.target.wants", "sockets.target.wants"]
        .iter()
        .flat_map(|folder| {
            ["service", "socket"].map(|kind| units.join(folder).join(format!("{name}.{kind}")))
        })
        .any(|link| link.symlink_metadata().is_ok());
    if !wanted {
        let text = "is installed, but nothing starts it at login".to_owned();
        let hint = format!("systemctl --user enable --now {name}.socket");
        found.push(at(&service, finding("service-off", pb::Severity::Warning, text, hint)));
    }
    let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap_or_default();
    let program = program(start).replace("%h", &user.display().to_string());
    found.extend(missing(&service, &program));
    found
}

/// The first word of a command line of systemd, without quotes and signs.
fn program(line: &str) -> String {
    let line = line.trim_start_matches(['-', '@', ':', '+', '!']);
    let word = match line.strip_prefix('"') {
        Some(rest) => rest.split('"').next(),
        None => line.split_whitespace().next(),
    };
    word.unwrap_or_default().replace("%%", "%")
}

fn agent(plist: &Path) -> Option<pb::Finding> {
    let text = fs::read_to_string(plist).ok()?;
    let after = text.split("<key>ProgramArguments</key>").nth(1)?;
    let program = after.split("<string>").nth(1)?.split("</string>").next()?;
    missing(plist, &program.replace("&lt;", "<").replace("&amp;", "&"))
}

fn missing(file: &Path, program: &str) -> Option<pb::Finding> {
    (!program.is_empty() && !Path::new(program).is_file()).then(|| {
        let text = format!("starts {program}, which does not exist");
        let hint = "write the files anew with `hermesctl service install`".to_owned();
        at(file, finding("service-program", pb::Severity::Error, text, hint))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_nothing_starts_or_that_starts_nothing_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let units = dir.path().join("units");
        let kinds = || systemd(&units, "hermesd", dir.path()).into_iter().map(|f| f.kind).collect::<Vec<_>>();
        assert_eq!(kinds(), Vec::<String>::new(), "not installed");
        fs::create_dir_all(units.join("sockets.target.wants")).unwrap();
        fs::write(units.join("hermesd.service"), "[Service]\nExecStart=\"%h/my bin/hermesd\" run\n").unwrap();
        assert_eq!(kinds(), ["service-off", "service-program"]);
        fs::write(units.join("sockets.target.wants/hermesd.socket"), "").unwrap();
        assert_eq!(kinds(), ["service-program"]);
        fs::create_dir(dir.path().join("my bin")).unwrap();
        fs::write(dir.path().join("my bin/hermesd"), "").unwrap();
        assert_eq!(kinds(), Vec::<String>::new());
    }

    #[test]
    fn a_launch_agent_names_its_program() {
        let dir = tempfile::tempdir().unwrap();
        let plist = dir.path().join("dev.hermesd.plist");
        assert_eq!(agent(&plist), None);
        let text = "<key>ProgramArguments</key>\n<array><string>/a &amp; b/hermesd</string>";
        fs::write(&plist, text).unwrap();
        assert!(agent(&plist).unwrap().message.contains("/a & b/hermesd"));
    }
}
