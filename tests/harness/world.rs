//! The world of one test: a folder with a home, a configuration, fake servers, and the daemon in it.
//!
//! Promise: when a [`Daemon`] is dropped it was ended in order; when a [`World`] is dropped every
//! process that mentions its folder is gone, and the test fails if one had to be killed.

use crate::census::{self, Process};
use crate::ctl::Ran;
use crate::daemon::{Daemon, kill};
use crate::journal::Journal;
use crate::script::Script;
use crate::shim::Shim;
use crate::wait::{SOON, pause, wait_for, wait_some};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where the binaries under test are.
#[derive(Debug, Clone)]
pub struct Bins {
    /// The daemon.
    pub hermesd: PathBuf,
    /// Admin commands and the shim.
    pub hermesctl: PathBuf,
    /// The scripted MCP server.
    pub fake_server: PathBuf,
}

/// A folder with everything one test needs; nothing outside of it is touched.
#[derive(Debug)]
pub struct World {
    dir: tempfile::TempDir,
    bins: Bins,
    servers: BTreeMap<String, Vec<String>>,
    top: String,
    env: BTreeMap<String, String>,
    launches: AtomicUsize,
    seen: Mutex<BTreeMap<i32, u64>>,
}

impl World {
    /// An empty home without servers and conversations.
    pub fn new(bins: Bins) -> Self {
        let dir = tempfile::Builder::new().prefix("hd").tempdir().expect("a temporary folder can be made");
        for name in ["home", "user"] {
            fs::create_dir(dir.path().join(name)).expect("the folder is new");
        }
        Self {
            dir,
            bins,
            servers: BTreeMap::new(),
            top: String::new(),
            env: BTreeMap::new(),
            launches: AtomicUsize::new(0),
            seen: Mutex::default(),
        }
    }

    /// Adds a fake server; keep the name free of YAML syntax.
    #[must_use]
    pub fn server(self, name: &str, script: Script) -> Self {
        self.server_with(name, script, &[])
    }

    /// Adds a fake server with further lines of its entry, e.g. `timeout: 5`.
    #[must_use]
    pub fn server_with(mut self, name: &str, script: Script, lines: &[&str]) -> Self {
        self.rescript(name, script);
        let args = [self.script_file(name)];
        let mut entry = vec![
            format!("command: {}", serde_json::json!(self.bins.fake_server)),
            format!("args: {}", serde_json::json!(args)),
        ];
        entry.extend(lines.iter().map(|line| (*line).to_owned()));
        self.servers.insert(name.to_owned(), entry);
        self.write_config();
        self
    }

    /// Adds an entry from its lines, as they stand in the file.
    #[must_use]
    pub fn entry(mut self, name: &str, lines: &[&str]) -> Self {
        self.servers.insert(name.to_owned(), lines.iter().map(|line| (*line).to_owned()).collect());
        self.write_config();
        self
    }

    /// Adds top-level YAML.
    #[must_use]
    pub fn yaml(mut self, text: &str) -> Self {
        let _ = writeln!(self.top, "{text}");
        self.write_config();
        self
    }

    /// Sets a variable in the environment of the daemon and of hermesctl.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Takes a server out of the file of a living world.
    pub fn remove_server(&mut self, name: &str) {
        self.servers.remove(name);
        self.write_config();
    }

    /// Replaces the script of a server; holds from its next start.
    pub fn rescript(&self, name: &str, mut script: Script) {
        script.journal = Some(self.journal(name).0);
        let text = serde_json::to_vec(&script).expect("scripts serialise");
        fs::write(self.script_file(name), text).expect("the folder is ours");
    }

    fn write_config(&self) {
        let mut text = self.top.clone();
        if !self.servers.is_empty() {
            text.push_str("mcp_servers:\n");
        }
        for (name, lines) in &self.servers {
            let _ = writeln!(text, "  {name}:");
            for line in lines {
                let _ = writeln!(text, "    {line}");
            }
        }
        fs::write(self.home().join("config.yaml"), text).expect("the folder is ours");
    }

    /// The folder itself; its path is in the command line or environment of all processes here.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// HERMES_HOME.
    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// The folder of the sockets.
    pub fn runtime(&self) -> PathBuf {
        self.path().join("run")
    }

    /// The socket of the shims.
    pub fn mcp_socket(&self) -> PathBuf {
        self.runtime().join("mcp.sock")
    }

    /// The binaries under test.
    pub fn bins(&self) -> &Bins {
        &self.bins
    }

    fn script_file(&self, name: &str) -> PathBuf {
        self.path().join(format!("{name}.script"))
    }

    /// What the fake server `name` wrote down.
    pub fn journal(&self, name: &str) -> Journal {
        Journal(self.path().join(format!("{name}.journal")))
    }

    /// A command with the environment of this world and nothing else.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", self.path().join("user"));
        command.env("USER", "tester").env("LOGNAME", "tester").env("TERM", "dumb").env("SHELL", "/bin/sh");
        command.env("HERMES_HOME", self.home()).env("HERMESD_RUNTIME_DIR", self.runtime());
        command.env("LANG", "C.UTF-8").envs(&self.env).current_dir(self.path());
        command
    }

    /// Starts the daemon without waiting for it; its output goes to a file in the folder.
    pub fn launch(&self) -> Daemon {
        self.launch_with(&[])
    }

    /// As [`launch`](Self::launch), with arguments.
    pub fn launch_with(&self, args: &[&str]) -> Daemon {
        self.launch_command(self.command(&self.bins.hermesd).args(args))
    }

    /// Starts any command as the daemon.
    pub fn launch_command(&self, command: &mut Command) -> Daemon {
        let (log, file) = self.daemon_log();
        command.stdin(Stdio::null()).stderr(file.try_clone().expect("an open file")).stdout(file);
        let child = command.spawn().expect("the daemon was built with this test");
        Daemon { child, ended: None, log }
    }

    /// The file for what the next daemon says.
    pub(crate) fn daemon_log(&self) -> (PathBuf, File) {
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        let log = self.path().join(format!("daemon-{number}.err"));
        let file = File::options().append(true).create(true).open(&log).expect("the folder is ours");
        (log, file)
    }

    /// Starts the daemon and waits until shims can connect.
    ///
    /// # Panics
    /// When it is not ready in time or ends instead.
    #[track_caller]
    pub fn start(&self) -> Daemon {
        let mut daemon = self.launch();
        let log = daemon.log.clone();
        wait_for("the daemon accepts shims", SOON, || {
            if let Some(status) = daemon.exited() {
                panic!("the daemon ended with {status}:\n{}", fs::read_to_string(&log).unwrap_or_default());
            }
            UnixStream::connect(self.mcp_socket()).is_ok()
        });
        daemon
    }

    /// Runs hermesctl to its end.
    pub fn ctl<const N: usize>(&self, args: [&str; N]) -> Ran {
        Ran::of(self.command(&self.bins.hermesctl).args(args))
    }

    /// `hermesctl servers --json` for one server.
    ///
    /// # Panics
    /// When the command fails or does not know the server.
    #[track_caller]
    pub fn status(&self, server: &str) -> serde_json::Value {
        let all = self.ctl(["servers", "--json"]).succeeds().json();
        let list = all["servers"].as_array().or(all.as_array()).cloned().unwrap_or_default();
        list.into_iter()
            .find(|s| s["name"] == server)
            .unwrap_or_else(|| panic!("no server {server} in {all}"))
    }

    /// Phase of a server as hermesctl shows it.
    #[track_caller]
    pub fn phase(&self, server: &str) -> String {
        self.status(server)["phase"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until hermesctl shows this phase.
    #[track_caller]
    pub fn wait_phase(&self, server: &str, phase: &str) {
        wait_for(&format!("{server} is {phase}"), SOON, || self.phase(server) == phase);
    }

    /// A client: the real shim on pipes, not yet initialised.
    pub fn shim(&self) -> Shim {
        self.shim_with(&["mcp", "serve"])
    }

    /// The shim with other arguments.
    pub fn shim_with(&self, args: &[&str]) -> Shim {
        Shim::start(self.command(&self.bins.hermesctl).args(args))
    }

    /// A client that has shaken hands and sees the tools of these fake servers.
    #[track_caller]
    pub fn client(&self, servers: &[&str]) -> Shim {
        let mut shim = self.shim();
        shim.initialize();
        for server in servers {
            shim.wait_tool(&format!("mcp_{server}_echo"));
        }
        shim
    }

    /// Everything that runs in this world: daemon, guards, servers, shims, and what they left behind.
    ///
    /// A process that was seen once is recognised later even if nothing of this world names it any more.
    pub fn census(&self) -> Vec<Process> {
        let mut found = census::mentioning(&self.dir.path().display().to_string());
        let mut seen = self.seen.lock().expect("no holder panics");
        let known: Vec<Process> = seen.keys().filter_map(|pid| census::process(*pid)).collect();
        found.extend(known.into_iter().filter(|p| seen.get(&p.pid) == Some(&p.started)));
        found.sort_by_key(|p| p.pid);
        found.dedup_by_key(|p| p.pid);
        seen.extend(found.iter().map(|p| (p.pid, p.started)));
        found
    }

    /// The processes of a fake server, grandchildren included.
    pub fn processes(&self, server: &str) -> Vec<Process> {
        let script = self.script_file(server).display().to_string();
        self.census().into_iter().filter(|p| p.cmdline.contains(&script)).collect()
    }

    /// The fake server's own living process, if there is exactly one.
    pub fn server_pid(&self, server: &str) -> Option<i32> {
        let own: Vec<Process> =
            self.processes(server).into_iter().filter(|p| !p.cmdline.contains("--sleeper")).collect();
        (own.len() == 1).then(|| own[0].pid)
    }

    /// Waits for the fake server's process.
    #[track_caller]
    pub fn wait_server_pid(&self, server: &str) -> i32 {
        wait_some(&format!("one process of {server}"), SOON, || self.server_pid(server))
    }

    /// The guards of this world: the parents of its servers.
    pub fn guards(&self) -> Vec<Process> {
        let all = self.census();
        let script = format!("{}/", self.path().display());
        let is_server = |p: &&Process| {
            p.cmdline.contains(&script)
                && p.cmdline.contains("t-fake-server ")
                && !p.cmdline.contains("--sleeper")
        };
        let parents: Vec<i32> = all.iter().filter(is_server).map(|p| p.ppid).collect();
        all.into_iter().filter(|p| parents.contains(&p.pid)).collect()
    }
}

#[allow(clippy::print_stdout)] // libtest shows it beside the failed test
impl Drop for World {
    fn drop(&mut self) {
        let mut left = self.census();
        let start = std::time::Instant::now();
        while !left.is_empty() && start.elapsed() < Duration::from_secs(15) {
            pause(Duration::from_millis(5));
            left = self.census();
        }
        left.iter().for_each(|p| kill(p.pid, rustix::process::Signal::KILL));
        if !left.is_empty() && !std::thread::panicking() {
            panic!("left behind: {left:#?}");
        }
        for number in 0..self.launches.load(Ordering::Relaxed) {
            if std::thread::panicking() {
                let log = fs::read(self.path().join(format!("daemon-{number}.err"))).unwrap_or_default();
                let tail = &log[log.len().saturating_sub(4000)..];
                println!("daemon {number} said: …{}", String::from_utf8_lossy(tail));
            }
        }
    }
}
