//! What a package is made of: man pages, completions, the assets that its metadata names.

use crate::world;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The commands below `words`, as `--help` lists them.
fn commands(w: &hermes_tests::World, words: &[String]) -> Vec<String> {
    let mut command = w.command(&w.bins().hermesctl);
    let help = hermes_tests::Ran::of(command.args(words).arg("--help")).succeeds().stdout;
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command, and every command of a command, has a page.
#[test]
fn every_command_has_a_man_page() {
    let w = world();
    let folder = w.path().join("man");
    w.ctl(["man", folder.to_str().unwrap()]).succeeds();
    let daemon = w.command(&w.bins().hermesd).arg("man").arg(&folder).status().unwrap();
    assert!(daemon.success());
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(pages.contains("hermesd.1") && pages.contains("hermesctl.1"), "{pages:?}");
    let top = commands(&w, &[]);
    assert!(top.len() > 15, "{top:?}");
    for verb in top {
        assert!(pages.contains(&format!("hermesctl-{verb}.1")), "no page for {verb}: {pages:?}");
        for inner in commands(&w, std::slice::from_ref(&verb)) {
            assert!(pages.contains(&format!("hermesctl-{verb}-{inner}.1")), "no page for {verb} {inner}");
        }
    }
    let text = fs::read_to_string(folder.join("hermesctl-service.1")).unwrap();
    assert!(text.starts_with(".ie") || text.contains(".TH"), "{text}");
}

/// Each shell of the package gets a script, and the one that can be checked here is one.
#[test]
fn completions_are_made_for_three_shells() {
    let w = world();
    for shell in ["bash", "zsh", "fish"] {
        let script = w.ctl(["completions", shell]).succeeds().stdout;
        assert!(script.contains("service") && script.contains("uninstall"), "{shell}");
        if shell == "bash" {
            let file = w.path().join("completion");
            fs::write(&file, script).unwrap();
            assert!(Command::new("bash").arg("-n").arg(file).status().unwrap().success());
        }
    }
}

/// The package's metadata names programs that are built and files that are there or made by its script.
#[test]
fn every_asset_of_the_package_has_a_source() {
    let manifest = fs::read_to_string(root().join("daemon/Cargo.toml")).unwrap();
    let script = fs::read_to_string(root().join("packaging/deb")).unwrap();
    let section = manifest.split("[package.metadata.deb]").nth(1).expect("metadata of the package");
    let assets: Vec<&str> =
        section.lines().filter_map(|line| line.trim().strip_prefix("[\"")?.split('"').next()).collect();
    assert!(assets.len() >= 10, "{assets:?}");
    for asset in assets {
        if let Some(program) = asset.strip_prefix("target/release/") {
            assert!(["hermesd", "hermesctl", "hermes-shim"].contains(&program), "{program}");
        } else if let Some(made) = asset.strip_prefix("../target/packaging/") {
            let folder = made.split('/').next().unwrap();
            assert!(script.contains(&format!("$stage/{folder}")), "{asset} is made by nobody");
        } else {
            assert!(root().join("daemon").join(asset).is_file(), "{asset} is not there");
        }
    }
}

/// The examples and the links of the pages hold.
#[test]
fn examples_pass_the_check_of_hermesd() {
    let w = world();
    let mut seen = 0;
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        seen += 1;
        // A copy: the check of a home may not write into the sources.
        let home = w.path().join(folder.file_name().unwrap());
        fs::create_dir(&home).unwrap();
        fs::copy(folder.join("config.yaml"), home.join("config.yaml")).unwrap();
        let checked =
            w.ctl(["--home", home.to_str().unwrap(), "--json", "config", "check"]).succeeds().json();
        let list = checked["findings"].as_array().cloned().unwrap_or_default();
        let bad: Vec<_> =
            list.iter().filter(|finding| !finding.to_string().contains("others can read it")).collect();
        assert!(bad.is_empty(), "{}: {bad:?}", folder.display());
    }
    assert!(seen >= 5, "{seen}");
}

/// The server that runs code offers that one tool.
#[test]
fn the_code_execution_example_offers_one_tool() {
    let text = fs::read_to_string(root().join("examples/code-execution/config.yaml")).unwrap();
    assert!(text.contains("include: [run-code]") && text.contains("approval: always"), "{text}");
}

/// A reader who follows a link inside the documents arrives.
#[test]
fn links_between_the_documents_lead_somewhere() {
    let mut checked = 0;
    for file in [
        "README.md",
        "docs/security.md",
        "docs/troubleshooting.md",
        "docs/protocol.md",
        "docs/configuration.md",
        "examples/README.md",
        "systemd/README.md",
    ] {
        let path = root().join(file);
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            checked += 1;
            assert!(path.parent().unwrap().join(target).exists(), "{file} links to {link}");
        }
    }
    assert!(checked > 10, "{checked}");
}
