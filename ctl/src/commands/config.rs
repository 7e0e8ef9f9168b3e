//! `config check`: hermesd's own reader of config.yaml, run without a daemon.

use super::{Context, Format};
use crate::beside;
use crate::cli::ConfigAction;
use crate::failure::{Done, Failure};
use std::process::{Command, Stdio};

/// Does one action.
pub(super) fn run(cx: &Context, action: ConfigAction) -> Result<Done, Failure> {
    match action {
        ConfigAction::Check => {
            let mut command = check(cx).ok_or_else(no_program)?;
            if cx.format == Format::Json {
                command.arg("--json");
            }
            let status = command.status()?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            code.map(Done::Code).ok_or_else(|| Failure::refused(format!("hermesd ended with {status}")))
        }
    }
}

/// Whether the file has no errors, as far as that can be asked.
pub(super) fn is_usable(cx: &Context) -> bool {
    let Some(mut command) = check(cx) else { return true };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.code() != Some(1))
}

fn check(cx: &Context) -> Option<Command> {
    let mut command = Command::new(beside::find("hermesd")?);
    command.args(["config", "check", "--home"]).arg(cx.home.path());
    Some(command)
}

/// There is no hermesd to do the work.
pub(super) fn no_program() -> Failure {
    Failure::Refused {
        message: "no hermesd beside hermesctl or on PATH".to_owned(),
        hint: "install hermesd into the folder of hermesctl".to_owned(),
    }
}
