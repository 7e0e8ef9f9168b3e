//! Servers that are container clients: ending the client does not end the container.
//!
//! Promise: `docker run` and `podman run` get a label and, where possible, a file for the
//! container's id; [`end`] stops that container and no other. May not touch: any container that
//! was not started by this server instance. May block: only guards and blocking threads call [`end`].

use super::orders::{AfterStop, ContainerOrder};
use super::table;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Label that every container of the daemon carries; its value is the instance marker.
pub const LABEL: &str = "hermesd.instance";

/// Options before the subcommand that take their value as the next argument.
const GLOBAL_WITH_VALUE: [&str; 31] = [
    "--config",
    "-c",
    "--context",
    "-H",
    "--host",
    "-l",
    "--log-level",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
    "--cgroup-manager",
    "--conmon",
    "--connection",
    "--events-backend",
    "--hooks-dir",
    "--identity",
    "--imagestore",
    "--module",
    "--namespace",
    "--network-cmd-path",
    "--network-config-dir",
    "--out",
    "--root",
    "--runroot",
    "--runtime",
    "--runtime-flag",
    "--ssh",
    "--storage-driver",
    "--storage-opt",
    "--tmpdir",
    "--url",
];

/// Rewrites the arguments of a container client so that its container can be found again.
///
/// `None`, with `args` untouched, when `program` is no such client or does not `run` anything.
/// `folder` is a private folder of the daemon for id files.
pub fn prepare(
    program: &Path,
    args: &mut Vec<OsString>,
    instance: &str,
    folder: &Path,
) -> Option<ContainerOrder> {
    let name = program.file_name()?.to_str()?;
    if !matches!(name, "docker" | "podman") {
        return None;
    }
    let (run, globals) = find_run(args)?;
    let rest = &args[run + 1..];
    let has = |option: &str| {
        let with_value = format!("{option}=");
        rest.iter().any(|arg| arg == option || arg.as_bytes().starts_with(with_value.as_bytes()))
    };
    let after = if has("--rm") { AfterStop::Remove } else { AfterStop::Leave };
    // A snap's client cannot see hidden folders of the home and would refuse to run at all.
    let cidfile = (!has("--cidfile") && !program.starts_with("/snap"))
        .then(|| folder.join(format!("{}.cid", file_part(instance))));
    let mut added = vec![OsString::from("--label"), OsString::from(format!("{LABEL}={instance}"))];
    if let Some(path) = &cidfile {
        added.push("--cidfile".into());
        added.push(path.into());
    }
    args.splice(run + 1..run + 1, added);
    Some(ContainerOrder { label: instance.to_owned(), cidfile, after, globals })
}

/// Index of `run` and the global options before it; `container run` counts too.
fn find_run(args: &[OsString]) -> Option<(usize, Vec<OsString>)> {
    let mut at = 0;
    while let Some(arg) = args.get(at).filter(|arg| arg.as_bytes().starts_with(b"-")) {
        at += if GLOBAL_WITH_VALUE.iter().any(|option| arg == option) { 2 } else { 1 };
    }
    let globals = args.get(..at)?.to_vec();
    if args.get(at).is_some_and(|arg| arg == "container") {
        at += 1;
    }
    (args.get(at)? == "run").then_some((at, globals))
}

/// `instance` as part of a file name.
fn file_part(instance: &str) -> String {
    instance
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' })
        .collect()
}

/// Whether `text` is a container id that may be put on a command line.
fn as_id(text: &str) -> Option<&str> {
    let id = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (!id.is_empty() && id.len() <= 128 && !id.starts_with('-') && id.chars().all(plain)).then_some(id)
}

/// Stops (and with `--rm` removes) the container of `order`, at most until `deadline`
/// ([`table::clock`]); removes the id file. Returns how many containers were addressed.
///
/// The client program says no more than that a container is unknown when it ended long ago.
pub fn end(program: &Path, env: &Environment<'_>, order: &ContainerOrder, deadline: Duration) -> usize {
    let client = Client { program, env, globals: &order.globals, deadline };
    let filed = order.cidfile.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    let ids: Vec<String> = match filed.as_deref().and_then(as_id) {
        Some(id) => vec![id.to_owned()],
        // Ended before the id was written, or no file possible: the label finds it.
        None => {
            let filter = format!("label={LABEL}={}", order.label);
            let (_, listed) = client.run(&["ps", "-aq", "--filter", &filter]);
            listed.lines().filter_map(as_id).map(str::to_owned).collect()
        }
    };
    for id in &ids {
        // TERM went through the client already, so a second is enough here.
        let stopped = client.run(&["stop", "-t", "1", id]).0;
        match (order.after, stopped) {
            (AfterStop::Remove, _) => drop(client.run(&["rm", "-f", id])),
            (AfterStop::Leave, Done::Refused) => drop(client.run(&["kill", id])),
            (AfterStop::Leave, Done::Well) => {}
        }
    }
    if let Some(path) = &order.cidfile {
        let _ = std::fs::remove_file(path);
    }
    ids.len()
}

/// Environment of a client program.
#[derive(Clone, Copy)]
pub enum Environment<'a> {
    /// Exactly this one.
    Given(&'a [(OsString, OsString)]),
    /// That of this process: the start-up reaper knows no other, secrets are not on disk.
    Inherited,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Well,
    Refused,
}

struct Client<'a> {
    program: &'a Path,
    env: &'a Environment<'a>,
    globals: &'a [OsString],
    deadline: Duration,
}

impl Client<'_> {
    /// Runs one command of the client to its end or the deadline; its output, at most 64 KiB.
    fn run(&self, args: &[&str]) -> (Done, String) {
        let mut command = Command::new(self.program);
        command.args(self.globals).args(args.iter().map(OsStr::new));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Environment::Given(env) = self.env {
            command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        }
        let Ok(mut child) = command.spawn() else { return (Done::Refused, String::new()) };
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if table::clock() < self.deadline => table::pause(Duration::from_millis(10)),
                Ok(None) | Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
        };
        let mut output = Vec::new();
        // The pipe holds 64 KiB; a grandchild may keep it open, so it is not read to its end blindly.
        if status.is_some()
            && let Some(stdout) = child.stdout.take()
        {
            let _ = rustix::io::ioctl_fionbio(&stdout, true);
            let _ = stdout.take(64 * 1024).read_to_end(&mut output);
        }
        let done = if status.is_some_and(|status| status.success()) { Done::Well } else { Done::Refused };
        (done, String::from_utf8_lossy(&output).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(program: &str, line: &str) -> (Option<ContainerOrder>, String) {
        let mut args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let order = prepare(Path::new(program), &mut args, "i/1", Path::new("/p"));
        (order, args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn run_gets_a_label_and_an_id_file_right_behind_it() {
        let (order, line) = prepared("/usr/bin/docker", "run -i --rm -e TOKEN mcp/github stdio");
        assert_eq!(
            line,
            "run --label hermesd.instance=i/1 --cidfile /p/i_1.cid -i --rm -e TOKEN mcp/github stdio"
        );
        assert_eq!(order.unwrap().after, AfterStop::Remove);
    }

    #[test]
    fn global_options_are_skipped_and_kept_for_the_stop() {
        let (order, line) = prepared("podman", "--root /r --remote container run -i image");
        assert_eq!(
            line,
            "--root /r --remote container run --label hermesd.instance=i/1 --cidfile /p/i_1.cid -i image"
        );
        let order = order.unwrap();
        assert_eq!(order.globals, ["--root", "/r", "--remote"]);
        assert_eq!(order.after, AfterStop::Leave);
    }

    #[test]
    fn a_users_id_file_and_a_snap_leave_only_the_label() {
        for (program, line) in [("docker", "run --cidfile=/mine image"), ("/snap/bin/docker", "run image")] {
            let (order, line) = prepared(program, line);
            assert!(order.unwrap().cidfile.is_none());
            assert!(line.starts_with("run --label hermesd.instance=i/1 ") && !line.contains("/p/"), "{line}");
        }
    }

    #[test]
    fn other_programs_and_other_subcommands_stay_as_they_are() {
        for (program, line) in [
            ("node", "run x"),
            ("docker", "mcp gateway run"),
            ("docker", "exec -i c x"),
            ("docker", "compose run x"),
            ("docker", "--host"),
        ] {
            assert_eq!(prepared(program, line), (None, line.to_owned()));
        }
    }

    #[test]
    fn an_id_file_cannot_smuggle_an_option() {
        assert_eq!(as_id("abc123\n"), Some("abc123"));
        for bad in ["", "-f", "a b", "a\nb", "$(x)"] {
            assert_eq!(as_id(bad), None, "{bad}");
        }
    }
}
