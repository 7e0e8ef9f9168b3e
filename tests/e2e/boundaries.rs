//! The rules of ARCHITECTURE.md, checked in the sources themselves.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub(crate) fn sources(dir: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut todo = vec![root().join(dir)];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("node_modules") && !path.ends_with(".venv") {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no sources below {dir}");
    found
}

/// The text in front of the unit tests, without comment lines.
fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Ranks of the import arrow; an owner imports from its own rank or a lower one.
fn rank(module: &str) -> Option<u8> {
    Some(match module {
        "session" | "http" => 6,
        "call" => 5,
        "conversations" | "catalog" | "sampling" => 4,
        "policy" => 3,
        "server" | "store" => 2,
        "jsonrpc" | "redact" | "secret" | "config" => 1,
        _ => return None,
    })
}

fn owner(file: &str) -> String {
    let below = file.strip_prefix("daemon/src/").unwrap();
    below.split('/').next().unwrap().trim_end_matches(".rs").to_owned()
}

fn imports(text: &str) -> BTreeSet<String> {
    let words = code(text);
    let names = words.split("crate::").skip(1).flat_map(|rest| {
        let list =
            rest.strip_prefix('{').map_or(rest, |inside| inside.split("};").next().unwrap_or_default());
        let many = rest.starts_with('{');
        list.split(|c: char| c == ',' && many)
            .take(if many { usize::MAX } else { 1 })
            .map(|item| {
                item.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
            })
            .collect::<Vec<_>>()
    });
    names.collect()
}

/// Imports go one way, so that a reader knows what a change can reach.
#[test]
fn imports_follow_the_arrow() {
    let mut wrong = Vec::new();
    for (file, text) in sources("daemon/src") {
        let Some(from) = rank(&owner(&file)) else { continue };
        for import in imports(&text) {
            let forbidden = matches!(import.as_str(), "boot" | "admin");
            if forbidden || rank(&import).is_some_and(|to| to > from) {
                wrong.push(format!("{file} imports {import}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The import reader sees both ways of writing an import.
#[test]
fn the_import_reader_is_not_blind() {
    let text = "use crate::{call::x, session::{A, B}};\nfn f() { crate::boot::run() }\n// crate::http\n";
    assert!(
        imports(text).is_superset(&["boot", "call", "session"].map(str::to_owned).into()),
        "{:?}",
        imports(text)
    );
    assert!(!imports(text).contains("http"));
}

/// One file holds all unsafe code.
#[test]
fn only_the_guard_is_unsafe() {
    let mut all = sources("daemon/src");
    all.extend(sources("ctl/src"));
    all.extend(sources("proto/src"));
    all.extend(sources("tests"));
    for (file, text) in all {
        let word = concat!("unsa", "fe ");
        let has = code(&text).lines().any(|line| line.split('"').step_by(2).any(|part| part.contains(word)));
        assert!(!has || file.starts_with("daemon/src/guard/"), "{file} has unsafe code");
    }
}

/// Every file says who owns what it does.
#[test]
fn every_file_opens_with_its_module_doc() {
    for dir in ["daemon", "ctl", "proto", "tests"] {
        for (file, text) in sources(dir) {
            assert!(text.starts_with("//!"), "{file} has no //! at its top");
        }
    }
}

/// No owner hides a second program: files stay short enough to be read in one go.
#[test]
fn no_file_is_longer_than_five_hundred_lines_without_its_tests() {
    let mut long = Vec::new();
    for dir in ["daemon/src", "ctl/src", "proto/src", "tests"] {
        for (file, text) in sources(dir) {
            if file.ends_with("tests.rs") {
                continue;
            }
            let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let lines = product.lines().count();
            if lines > 500 {
                long.push(format!("{file}: {lines}"));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Tasks belong to a TaskGroup, queues are bounded, nothing sleeps or exits on the data path.
#[test]
fn banned_calls_stay_out_of_the_product() {
    let banned = [
        "tokio::spawn(",
        "unbounded_channel(",
        "thread::sleep(",
        "process::exit(",
        "todo!(",
        "unimplemented!(",
    ];
    for dir in ["daemon/src", "ctl/src", "proto/src"] {
        for (file, text) in sources(dir) {
            for word in banned {
                assert!(!code(&text).contains(word), "{file} uses {word}");
            }
        }
    }
}

/// The admin client never links the daemon.
#[test]
fn hermesctl_does_not_depend_on_the_daemon() {
    for package in ["ctl", "proto"] {
        let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        let linked =
            manifest.lines().any(|line| line.split('=').next().unwrap_or_default().trim() == "hermesd");
        assert!(!linked, "{package}/Cargo.toml depends on hermesd");
    }
}

/// The gRPC stub has one user in hermesctl.
#[test]
fn only_the_client_file_uses_the_stub() {
    for (file, text) in sources("ctl/src") {
        let uses = code(&text).contains("control_client");
        assert!(!uses || file.starts_with("ctl/src/client"), "{file} talks gRPC past ctl/src/client");
    }
}

/// Pure files decide and never act.
#[test]
fn pure_files_have_no_clock_and_no_runtime() {
    let mut checked = 0;
    for (file, text) in sources("daemon/src") {
        let head: String =
            text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join(" ");
        if !head.contains("//! Pure.") && !head.contains(" Pure.") {
            continue;
        }
        checked += 1;
        for word in ["tokio::", "Instant::now(", "SystemTime::now(", "std::fs::", "std::net::"] {
            assert!(!code(&text).contains(word), "{file} calls itself pure and uses {word}");
        }
    }
    assert!(checked > 0, "no file says `Pure.`");
}

/// A map with wrong roads is worse than none.
#[test]
fn every_path_named_in_architecture_exists() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let named = text.split('`').skip(1).step_by(2).filter(|word| {
        let plain = word.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        plain
            && (word.ends_with('/')
                || word.ends_with(".rs")
                || word.ends_with(".proto")
                || word.ends_with(".toml"))
    });
    for path in named {
        let below = ["", "daemon/src", "daemon/src/server", "ctl/src", "proto/src"];
        let found = below.iter().any(|folder| root().join(folder).join(path).exists());
        assert!(found, "ARCHITECTURE.md names {path}");
    }
}
