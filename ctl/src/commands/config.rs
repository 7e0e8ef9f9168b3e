//! `config check`: hermesd's own reader of config.yaml, run without a daemon.

use super::{Context, Format};
use crate::beside;
use crate::cli::ConfigAction;
use crate::failure::{Done, Failure};
use hermes_proto::control as pb;
use serde_json::Value;
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

/// What `hermesd doctor` finds without a daemon: configuration, folders, databases, commands, addresses.
/// Nothing when there is no hermesd that can say it.
pub(super) fn looked_without_a_daemon(cx: &Context) -> Vec<pb::Finding> {
    let Some(program) = beside::find("hermesd") else { return Vec::new() };
    let mut command = Command::new(program);
    command.args(["doctor", "--home"]).arg(cx.home.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(output) = command.output() else { return Vec::new() };
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    all.iter().map(found).collect()
}

/// One finding as hermesd prints it.
fn found(entry: &Value) -> pb::Finding {
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let severity = match entry["severity"].as_str() {
        Some("error") => pb::Severity::Error,
        Some("warning") => pb::Severity::Warning,
        Some(_) | None => pb::Severity::Info,
    };
    pb::Finding {
        severity: severity.into(),
        server: text("server"),
        file: text("file"),
        line: entry["line"].as_u64().and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
        key: text("key"),
        message: text("message"),
        hint: text("hint"),
        kind: text("kind"),
    }
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
