//! Copies of hermesd's servers that clients still start themselves.
//!
//! Found in the clients' files (what they will start) and in the process table (what runs now outside hermesd).
//! Promise: reads only, needs no daemon, never fails: what cannot be read is left out; no arguments and no variables
//! are given back, they may hold secrets. May not touch: processes, the terminal.

use super::apply;
use super::home;
use super::identity::{Identity, fingerprint, is_consent, is_npx, is_own};
use super::import::{self, Source, Surroundings};
use super::processes::{self, Process};
use super::table::{Client, Places, Scope};
use hermes_proto::endpoint::Home;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One server that exists twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// Its name in config.yaml.
    pub server: String,
    /// Who has the copy.
    pub starts: Starts,
}

/// Who starts a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Starts {
    /// A client will, says its file.
    File {
        /// The client.
        client: Client,
        /// The file.
        file: PathBuf,
        /// The name of the server there.
        name: String,
    },
    /// A process runs that hermesd did not start.
    Process {
        /// Its id.
        pid: u32,
        /// Name of the program that started it, e.g. `Cursor`; empty when it is gone.
        by: String,
    },
}

impl Copy {
    /// What is wrong, in one sentence, without secrets.
    pub fn message(&self) -> String {
        match &self.starts {
            Starts::File { client, file, name } => format!(
                "{} starts its own copy of server {}: `{name}` in {}",
                client.title(),
                self.server,
                file.display()
            ),
            Starts::Process { pid, by } if by.is_empty() => {
                format!("a copy of server {} runs beside hermesd: pid {pid}", self.server)
            }
            Starts::Process { pid, by } => {
                format!("a copy of server {} runs beside hermesd: pid {pid}, started by {by}", self.server)
            }
        }
    }

    /// The one thing to do about it.
    pub fn hint(&self) -> String {
        match &self.starts {
            Starts::File { client, .. } => {
                format!("`hermesctl mcp register {} --replace` takes it out", client.word())
            }
            Starts::Process { .. } => {
                "register hermesd with that client (`hermesctl mcp register`), then start the client again"
                    .to_owned()
            }
        }
    }
}

/// All copies of the servers of `home` that are enabled. Blocking: reads the files of all clients and the process table.
pub fn own_copies(home: &Home) -> Vec<Copy> {
    let Ok(owned) = home::read(home) else { return Vec::new() };
    let lookup = |name: &str| owned.variable(name);
    let servers: Vec<(String, Identity)> = owned
        .running()
        .filter_map(|(name, entry)| Some((name.clone(), fingerprint(entry, &lookup)?.what)))
        .collect();
    let mut copies = Vec::new();
    if let Some(places) = Places::find(&|name| std::env::var_os(name)) {
        for client in Client::FOREIGN {
            copies.extend(in_file(client, &places, &servers, &lookup));
        }
    }
    copies.extend(running(&processes::all(), &servers));
    copies
}

fn in_file(
    client: Client,
    places: &Places,
    servers: &[(String, Identity)],
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Vec<Copy> {
    let Some(file) = client.file(&Scope::User, places) else { return Vec::new() };
    let Ok(Some(bytes)) = apply::look(&file).map(|seen| seen.bytes) else { return Vec::new() };
    let source = Source { client, file: file.clone(), scope: Scope::User };
    let cx =
        Surroundings { user: &places.user, resolve: &|path| fs::canonicalize(path).ok(), read: &|_| None };
    let found = import::read(&source, &bytes, &cx).unwrap_or_default();
    found
        .into_iter()
        .filter_map(|candidate| {
            let entry = candidate.found.ok()?.entry;
            let off = entry.get("enabled") == Some(&serde_json::Value::Bool(false));
            let what = fingerprint(&entry, lookup)?.what;
            let (server, _) = servers.iter().find(|(_, own)| *own == what).filter(|_| !off)?;
            let starts = Starts::File { client, file: file.clone(), name: candidate.name };
            Some(Copy { server: server.clone(), starts })
        })
        .collect()
}

/// Processes that run one of `servers` and have no hermesd above them; of a chain of them the topmost.
fn running(all: &[Process], servers: &[(String, Identity)]) -> Vec<Copy> {
    let by_pid: HashMap<u32, &Process> = all.iter().map(|process| (process.pid, process)).collect();
    let which = |process: &Process| {
        servers.iter().find(
            |(_, what)| matches!(what, Identity::Program { command, args } if runs(process, command, args)),
        )
    };
    let above = |process: &Process| {
        let mut chain = Vec::new();
        let mut at = by_pid.get(&process.parent);
        // A table that was read while it changed may hold a ring.
        while let Some(parent) = at.filter(|parent| parent.pid != process.pid && chain.len() < 64) {
            chain.push(*parent);
            at = by_pid.get(&parent.parent);
        }
        chain
    };
    all.iter()
        .filter_map(|process| {
            let (server, _) = which(process)?;
            let above = above(process);
            let ours = above.iter().any(|parent| is_daemon(parent));
            let inner = above.iter().any(|parent| which(parent).is_some());
            let by = above.first().map(|parent| name(parent)).unwrap_or_default();
            let starts = Starts::Process { pid: process.pid, by };
            (!ours && !inner).then(|| Copy { server: server.clone(), starts })
        })
        .collect()
}

fn name(process: &Process) -> String {
    let path = process.words.first().map(String::as_str).unwrap_or_default();
    Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn is_daemon(process: &Process) -> bool {
    let name = name(process);
    name == "hermesd" || name == "t-hermesd"
}

/// Most words before the arguments: `node /usr/bin/npx ...`, `uv tool uvx ...`.
const BEFORE: usize = 3;

/// Whether the command line is the server's program and then exactly its arguments: a script runs as
/// `python3 /path/script args`, a package as `node /usr/bin/npx args`, which calls itself `npm exec args`.
fn runs(process: &Process, command: &str, args: &[String]) -> bool {
    let npx = is_npx(command);
    // `ps` gives one text for the whole command line, and so does npm: both sides are compared in words.
    let split = |texts: &[String]| -> Vec<String> {
        let words = texts.iter().flat_map(|text| text.split_whitespace());
        words.filter(|word| !(npx && is_consent(word))).map(str::to_owned).collect()
    };
    let (words, wanted) = (split(&process.words), split(args));
    let Some(before) = words.len().checked_sub(wanted.len()).filter(|before| (1..=BEFORE).contains(before))
    else {
        return false;
    };
    if words[before..] != wanted[..] || is_own(command, args, &|_| None) {
        return false;
    }
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let program = words[before - 1].as_str();
    // An editor or a pager before the path is no server.
    let interpreters =
        ["node", "python", "sh", "bash", "ruby", "perl", "deno", "bun", "uv", "npm", "java", "php"];
    let first = base(&words[0]);
    if before > 1
        && !interpreters
            .iter()
            .any(|name| first.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') == *name)
    {
        return false;
    }
    let is_exec = npx && words[..before] == ["npm", "exec"];
    program == command
        || is_exec
        || (base(program) == base(command) && !(command.contains('/') && program.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, line: &str) -> Process {
        Process { pid, parent, words: line.split(' ').map(str::to_owned).collect() }
    }

    fn servers() -> Vec<(String, Identity)> {
        let program = |command: &str, args: &[&str]| Identity::Program {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        };
        vec![("files".to_owned(), program("npx", &["-y", "server-files", "/notes"]))]
    }

    #[test]
    fn a_copy_beside_hermesd_is_found_once_and_its_parent_named() {
        let all = [
            process(1, 0, "init"),
            process(10, 1, "/usr/bin/hermesd"),
            process(11, 10, "npx -y server-files /notes"),
            process(20, 1, "/opt/Cursor/cursor --type=x"),
            process(21, 20, "node /usr/bin/npx -y server-files /notes"),
            process(22, 21, "npx -y server-files /notes"),
            process(30, 20, "npx -y server-files /other"),
            process(31, 20, "grep server-files /notes"),
        ];
        let found = running(&all, &servers());
        assert_eq!(
            found,
            [Copy { server: "files".into(), starts: Starts::Process { pid: 21, by: "cursor".into() } }]
        );
        assert!(!found[0].message().contains("/notes"));
    }

    #[test]
    fn a_package_that_npm_runs_is_known_by_the_title_it_gives_itself() {
        let titled =
            |title: &str| Process { pid: 5, parent: 1, words: vec![title.to_owned(), String::new()] };
        assert_eq!(running(&[titled("npm exec server-files /notes")], &servers()).len(), 1);
        assert!(running(&[titled("npm exec server-files /notes /more")], &servers()).is_empty());
        assert!(running(&[titled("npm test server-files /notes")], &servers()).is_empty());
    }

    #[test]
    fn a_program_that_only_mentions_the_server_is_no_copy() {
        let what = Identity::Program { command: "/opt/x/server".into(), args: vec![] };
        let servers = [("x".to_owned(), what)];
        assert_eq!(running(&[process(5, 1, "/opt/x/server")], &servers).len(), 1);
        assert_eq!(running(&[process(5, 1, "python3 /opt/x/server")], &servers).len(), 1);
        assert!(running(&[process(5, 1, "/opt/y/server")], &servers).is_empty());
        assert!(running(&[process(5, 1, "vim /opt/x/server")], &servers).is_empty());
    }

    #[test]
    fn a_process_of_this_machine_is_found_with_its_parent() {
        let args = ["86399.25".to_owned()];
        let mut child = std::process::Command::new("sleep").args(&args).spawn().unwrap();
        let servers =
            [("nap".to_owned(), Identity::Program { command: "sleep".into(), args: args.to_vec() })];
        // The process shows its own command line a moment after it was made.
        let found = (0..2000).find_map(|_| {
            std::thread::yield_now();
            let pid = child.id();
            let mine =
                |copy: &Copy| matches!(copy.starts, Starts::Process { pid: found, .. } if found == pid);
            running(&processes::all(), &servers).into_iter().find(mine)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        assert!(found.message().contains("started by"), "{}", found.message());
    }

    #[test]
    fn a_ring_in_the_table_ends_the_walk() {
        let all = [process(1, 2, "a"), process(2, 1, "npx -y server-files /notes")];
        assert_eq!(running(&all, &servers()).len(), 1);
    }
}
