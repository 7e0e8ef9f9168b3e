//! The programs of the demo: the real ones, beside hermesctl, and of the same build.
//!
//! Under `cargo run` cargo itself decides what is out of date and builds it; elsewhere they must be
//! there with the same version. hermesctl never contains another implementation.

use crate::beside;
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the demo runs.
#[derive(Debug)]
pub(super) struct Programs {
    /// This executable; the shim is `mcp serve` of it.
    pub(super) hermesctl: PathBuf,
    /// The daemon.
    pub(super) hermesd: PathBuf,
    /// The bundled MCP server.
    pub(super) server: PathBuf,
}

/// A program is not there, or not of our version.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Missing(String);

/// Finds the programs, builds them where cargo runs us.
pub(super) fn ready() -> anyhow::Result<Programs> {
    let hermesctl = beside::own_exe().context("cannot find my own executable")?;
    let folder = hermesctl.parent().context("my own executable has no folder")?.to_owned();
    if let Some((cargo, workspace)) = under_cargo(&hermesctl) {
        build(&cargo, &workspace, &folder)?;
    }
    let found = |name: &str| {
        let path = beside::sibling(&hermesctl, name).filter(|path| path.exists());
        path.ok_or_else(|| Missing(format!("{name} is not beside hermesctl in {}", folder.display())))
    };
    let programs = Programs {
        hermesd: found("hermesd")?,
        server: found("hermes-demo-server")?,
        hermesctl: hermesctl.clone(),
    };
    same_version(&programs.hermesd)?;
    Ok(programs)
}

/// The cargo that runs us and the workspace it runs us from. Copies of ours under another name
/// (tests) are built together with their siblings.
fn under_cargo(exe: &Path) -> Option<(PathBuf, PathBuf)> {
    let cargo = PathBuf::from(std::env::var_os("CARGO")?);
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let workspace = manifest.parent()?.to_owned();
    let is_ours = workspace.join("daemon/Cargo.toml").is_file() && exe.file_name()? == "hermesctl";
    is_ours.then_some((cargo, workspace))
}

fn build(cargo: &Path, workspace: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(cargo);
    command.args(["build", "--package", "hermesd", "--bins"]);
    command.arg("--manifest-path").arg(workspace.join("Cargo.toml"));
    // The folder of a build is <target>/<profile>; `debug` is the profile `dev`.
    if let Some(target) = folder.parent() {
        command.arg("--target-dir").arg(target);
    }
    match folder.file_name().and_then(|profile| profile.to_str()) {
        Some("release") => command.arg("--release"),
        Some("debug") | None => &mut command,
        Some(profile) => command.arg("--profile").arg(profile),
    };
    // cargo shows its progress on stderr; stdout belongs to the demo.
    let status = command.status().with_context(|| format!("cannot run {}", cargo.display()))?;
    ensure!(status.success(), "building hermesd failed; see above");
    Ok(())
}

fn same_version(hermesd: &Path) -> anyhow::Result<()> {
    let output = Command::new(hermesd).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", hermesd.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ours = env!("CARGO_PKG_VERSION");
    if text.split_whitespace().next_back() != Some(ours) {
        let says = format!("{} says `{}`, and this hermesctl is {ours}", hermesd.display(), text.trim());
        return Err(Missing(says).into());
    }
    Ok(())
}
