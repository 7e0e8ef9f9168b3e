//! systemctl and launchctl: what is asked of them, and what they answer.
//!
//! Promise: every order is a plain list of words that can be shown before it is given; answers are
//! read by name, and what is not there is `None`.

use crate::cli_service::ServiceManager;
use crate::failure::Failure;
use std::process::{Command, Output, Stdio};

/// The units or the agent of one home.
#[derive(Debug, Clone)]
pub(super) struct Manager {
    system: ServiceManager,
    name: String,
}

/// One command of a service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) words: Vec<String>,
    /// Whether its failure ends the work.
    pub(super) needed: Needed,
}

/// What the failure of an [`Order`] means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed {
    /// Nothing after it makes sense.
    Yes,
    /// There was nothing to do.
    No,
}

/// How the service is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// `enabled`, `disabled`, ... in the manager's words.
    pub(super) at_login: Option<String>,
    /// `active`, `failed`, ... in the manager's words.
    pub(super) service: Option<String>,
    /// The same of the socket unit; launchd has none.
    pub(super) socket: Option<String>,
    /// The daemon, while one runs.
    pub(super) pid: Option<u32>,
    /// How often the manager started it afresh.
    pub(super) restarts: Option<u32>,
    /// How the last run ended, where it ended badly.
    pub(super) result: Option<String>,
    /// Whether it also runs while nobody is logged in.
    pub(super) lingers: Option<bool>,
}

impl Manager {
    pub(super) fn new(system: ServiceManager, name: String) -> Self {
        Self { system, name }
    }

    /// Name of the service for people.
    pub(super) fn service(&self) -> String {
        match self.system {
            ServiceManager::Systemd => format!("{}.service", self.name),
            ServiceManager::Launchd => self.name.clone(),
        }
    }

    fn socket(&self) -> String {
        format!("{}.socket", self.name)
    }

    fn domain() -> String {
        format!("gui/{}", rustix::process::getuid().as_raw())
    }

    fn order(&self, needed: Needed, rest: &[&str]) -> Order {
        let front: &[&str] = match self.system {
            ServiceManager::Systemd => &["systemctl", "--user"],
            ServiceManager::Launchd => &["launchctl"],
        };
        Order { words: front.iter().chain(rest).map(|word| (*word).to_owned()).collect(), needed }
    }

    /// What makes new files count and lets clients in, before any daemon runs. `changed`: the manager
    /// knows older files.
    pub(super) fn listen(&self, changed: bool) -> Vec<Order> {
        match self.system {
            ServiceManager::Systemd => {
                let (service, socket) = (self.service(), self.socket());
                let mut orders = Vec::new();
                if changed {
                    orders.push(self.order(Needed::Yes, &["daemon-reload"]));
                }
                orders.push(self.order(Needed::No, &["reset-failed", &service, &socket]));
                orders.push(self.order(Needed::Yes, &["enable", &socket, &service]));
                orders.push(self.order(Needed::Yes, &["start", &socket]));
                orders
            }
            ServiceManager::Launchd => Vec::new(),
        }
    }

    /// What starts the daemon, now and with launchd at each login; `runs`: the manager runs one already.
    pub(super) fn start(&self, agent: &str, changed: bool, runs: bool) -> Vec<Order> {
        let mut orders = Vec::new();
        match self.system {
            ServiceManager::Systemd => {
                let verb = if changed && runs { "restart" } else { "start" };
                orders.push(self.order(Needed::Yes, &["--no-block", verb, &self.service()]));
            }
            ServiceManager::Launchd => {
                let target = format!("{}/{}", Self::domain(), self.name);
                if changed && runs {
                    orders.push(self.order(Needed::No, &["bootout", &target]));
                }
                if changed || !runs {
                    orders.push(self.order(Needed::No, &["enable", &target]));
                    orders.push(self.order(Needed::Yes, &["bootstrap", &Self::domain(), agent]));
                }
            }
        }
        orders
    }

    /// What stops the service and takes it out of the login.
    pub(super) fn end(&self) -> Vec<Order> {
        match self.system {
            ServiceManager::Systemd => {
                // Both in one order: a socket that still listens would start the service again.
                vec![self.order(Needed::No, &["disable", "--now", &self.socket(), &self.service()])]
            }
            ServiceManager::Launchd => {
                vec![self.order(Needed::No, &["bootout", &format!("{}/{}", Self::domain(), self.name)])]
            }
        }
    }

    /// What makes the manager forget removed files.
    pub(super) fn forget(&self) -> Vec<Order> {
        match self.system {
            ServiceManager::Systemd => vec![
                self.order(Needed::Yes, &["daemon-reload"]),
                self.order(Needed::No, &["reset-failed", &self.service(), &self.socket()]),
            ],
            ServiceManager::Launchd => Vec::new(),
        }
    }

    /// Whether there is a manager that listens to us.
    ///
    /// # Errors
    /// Why not, with what helps.
    pub(super) fn answers(&self) -> Result<(), Failure> {
        let (question, hint) = match self.system {
            ServiceManager::Systemd => (
                self.order(Needed::Yes, &["show-environment"]),
                "log in as this user itself (not with su or sudo), or let the manager run without a login: \
                 `loginctl enable-linger`; without systemd nothing must be installed, the first client starts hermesd",
            ),
            ServiceManager::Launchd => (
                self.order(Needed::Yes, &["print", &Self::domain()]),
                "log in at the screen of this Mac; without launchd the first client starts hermesd",
            ),
        };
        let why = match output(&question.words) {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => last_line(&output.stderr),
            Err(error) => error.to_string(),
        };
        let message =
            format!("the service manager of this user does not answer ({}): {why}", question.words[0]);
        Err(Failure::Refused { message, hint: hint.to_owned() })
    }

    /// How the service is doing; empty where the manager does not answer.
    pub(super) fn state(&self) -> State {
        match self.system {
            ServiceManager::Systemd => {
                let service = self.properties(&self.service());
                let socket = self.properties(&self.socket());
                let linger = ["loginctl", "show-user", "--property=Linger", "--value"].map(str::to_owned);
                let mut words = linger.to_vec();
                words.push(rustix::process::getuid().as_raw().to_string());
                State {
                    at_login: value(&service, "UnitFileState"),
                    service: value(&service, "ActiveState"),
                    socket: value(&socket, "ActiveState"),
                    pid: value(&service, "MainPID").and_then(|pid| pid.parse().ok()).filter(|pid| *pid != 0),
                    restarts: value(&service, "NRestarts").and_then(|count| count.parse().ok()),
                    result: value(&service, "Result").filter(|result| result != "success"),
                    lingers: text(&words).map(|text| text.trim() == "yes"),
                }
            }
            ServiceManager::Launchd => {
                let target = format!("{}/{}", Self::domain(), self.name);
                let Some(text) = text(&self.order(Needed::No, &["print", &target]).words) else {
                    return State::default();
                };
                let pid = value(&text, "pid").and_then(|pid| pid.parse().ok());
                let result = value(&text, "last exit code").filter(|code| code.parse::<i32>() != Ok(0));
                State {
                    at_login: Some("enabled".to_owned()),
                    service: value(&text, "state"),
                    pid,
                    restarts: value(&text, "runs").and_then(|runs| runs.parse::<u32>().ok()?.checked_sub(1)),
                    result: result.filter(|code| code.parse::<i32>().is_ok()),
                    ..State::default()
                }
            }
        }
    }

    fn properties(&self, unit: &str) -> String {
        let order = self.order(
            Needed::No,
            &["show", "--property=UnitFileState,ActiveState,MainPID,NRestarts,Result", unit],
        );
        text(&order.words).unwrap_or_default()
    }
}

/// Carries an order out.
///
/// # Errors
/// [`Failure`] with the manager's own words, for a needed one.
pub(super) fn give(order: &Order) -> Result<(), Failure> {
    let failed = |why: String| match order.needed {
        Needed::No => Ok(()),
        Needed::Yes => Err(Failure::Refused {
            message: format!("`{}` failed: {why}", order.words.join(" ")),
            hint: "`hermesctl service status` says what is there now; the same command may be repeated"
                .to_owned(),
        }),
    };
    match output(&order.words) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => failed(last_line(&output.stderr)),
        Err(error) => failed(error.to_string()),
    }
}

fn output(words: &[String]) -> std::io::Result<Output> {
    let (program, args) = words.split_first().expect("an order has a program");
    Command::new(program).args(args).stdin(Stdio::null()).output()
}

fn text(words: &[String]) -> Option<String> {
    let output = output(words).ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The value behind `name =` of the first line that has one.
fn value(text: &str, name: &str) -> Option<String> {
    let found = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    found.filter(|value| !value.is_empty())
}

fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it did not say why").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(orders: &[Order]) -> Vec<String> {
        orders.iter().map(|order| order.words.join(" ")).collect()
    }

    #[test]
    fn the_socket_listens_first_and_stops_with_the_service() {
        let manager = Manager::new(ServiceManager::Systemd, "hermesd".to_owned());
        let fresh = lines(&manager.listen(true));
        assert_eq!(fresh[0], "systemctl --user daemon-reload");
        assert_eq!(fresh.last().unwrap(), "systemctl --user start hermesd.socket");
        let start = |changed, runs| lines(&manager.start("", changed, runs)).concat();
        assert_eq!(start(true, false), "systemctl --user --no-block start hermesd.service");
        assert_eq!(start(false, true), "systemctl --user --no-block start hermesd.service");
        assert_eq!(start(true, true), "systemctl --user --no-block restart hermesd.service");
        assert!(!lines(&manager.listen(false)).iter().any(|line| line.contains("reload")));
        assert_eq!(lines(&manager.end()), ["systemctl --user disable --now hermesd.socket hermesd.service"]);
    }

    #[test]
    fn an_agent_that_runs_unchanged_is_left_alone() {
        let manager = Manager::new(ServiceManager::Launchd, "dev.hermesd".to_owned());
        assert_eq!(manager.start("/a.plist", false, true), []);
        let changed = lines(&manager.start("/a.plist", true, true));
        assert!(changed[0].starts_with("launchctl bootout gui/"), "{changed:?}");
        assert!(changed.last().unwrap().ends_with(" /a.plist"), "{changed:?}");
    }

    #[test]
    fn answers_of_both_managers_are_read_by_name() {
        assert_eq!(value("A=1\nMainPID=0\n", "MainPID").as_deref(), Some("0"));
        assert_eq!(value("\tstate = running\n\tpid = 7\n", "pid").as_deref(), Some("7"));
        assert_eq!(value("UnitFileState=\n", "UnitFileState"), None);
    }
}
