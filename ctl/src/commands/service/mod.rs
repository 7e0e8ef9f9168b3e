//! `service`: hermesd under the service manager of this user.
//!
//! `files` makes the files, `manager` talks to systemctl or launchctl, `change` installs and removes,
//! `look` reports. Nothing here needs more rights than the user has.

mod change;
mod files;
mod look;
mod manager;

use super::{Context, config};
use crate::beside;
use crate::cli_service::{ServiceAction, ServiceManager};
use crate::failure::{Done, Failure};
use files::{File, Folders};
use manager::Manager;
use std::path::Path;

/// Does one action.
pub(super) async fn run(cx: &Context, action: ServiceAction) -> Result<Done, Failure> {
    match action {
        ServiceAction::Install(args) => {
            change::install(cx, &Place::of(cx, args.manager)?, args.dry_run).await
        }
        ServiceAction::Uninstall(args) => change::uninstall(cx, &Place::of(cx, args.manager)?, args.dry_run),
        ServiceAction::Status(args) => look::status(cx, &Place::of(cx, args.manager)?).await,
        ServiceAction::Logs(args) => look::logs(cx, &Place::of(cx, args.manager)?, args.lines, args.follow),
        ServiceAction::Print { system } => print(cx, system),
    }
}

/// What one home is to one service manager.
struct Place {
    system: ServiceManager,
    folders: Folders,
    manager: Manager,
}

impl Place {
    fn of(cx: &Context, system: Option<ServiceManager>) -> Result<Self, Failure> {
        let system = system.unwrap_or(ServiceManager::of_this_system());
        let manager = Manager::new(system, files::unit_name(system, &cx.home));
        Ok(Self { system, folders: Folders::find(&|name| std::env::var_os(name))?, manager })
    }

    fn files(&self, cx: &Context) -> Result<Vec<File>, Failure> {
        self.files_of(cx, &beside::find("hermesd").ok_or_else(config::no_program)?)
    }

    fn files_of(&self, cx: &Context, program: &Path) -> Result<Vec<File>, Failure> {
        files::files(self.system, program, &cx.home, &self.folders)
    }
}

fn print(cx: &Context, system: ServiceManager) -> Result<Done, Failure> {
    let folders = Folders::find(&|name| std::env::var_os(name))?;
    let program = beside::find("hermesd").unwrap_or_else(|| "/usr/local/bin/hermesd".into());
    let files = files::files(system, &program, &cx.home, &folders)?;
    cx.print(
        || files.iter().map(|f| serde_json::json!({ "path": f.path, "text": f.text })).collect(),
        || files::page(system, &files, &cx.home.runtime_name()),
    )?;
    Ok(Done::Well)
}

/// A path for people: with `~` where it is below the user's home.
fn shown(path: &Path, folders: &Folders) -> String {
    match path.strip_prefix(&folders.user) {
        Ok(below) => format!("~/{}", below.display()),
        Err(_) => path.display().to_string(),
    }
}
