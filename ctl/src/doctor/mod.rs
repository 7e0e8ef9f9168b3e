//! What `doctor` sees from outside, whether a daemon runs or not: sockets, programs, other daemons, service
//! files, and clients that start their own copies of servers.
//!
//! Promise: nothing is changed, and each finding names one thing to do. Blocking, a second or two.

mod daemons;
mod programs;
mod services;
mod sockets;

use crate::clients::{Starts, own_copies};
use hermes_proto::control as pb;
use hermes_proto::endpoint::Home;
use std::path::Path;

/// The daemon as far as it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Daemon {
    /// It answered.
    Runs {
        /// Its process.
        pid: u32,
        /// Its version.
        version: String,
    },
    /// Nobody listens.
    Gone,
}

/// How environment variables are looked up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<std::ffi::OsString>;

/// Looks at everything that needs no daemon.
pub fn look(home: &Home, daemon: &Daemon, env: Lookup<'_>) -> Vec<pb::Finding> {
    let mut found = sockets::look(home, daemon, env);
    found.extend(programs::look(daemon, env));
    found.extend(daemons::look(home, daemon));
    found.extend(services::look(home, env));
    found.extend(copies(home));
    found
}

/// Servers that exist twice because a client starts its own.
fn copies(home: &Home) -> Vec<pb::Finding> {
    let copies = own_copies(home).into_iter().map(|copy| {
        let kind = match copy.starts {
            Starts::File { .. } => "own-copy",
            Starts::Process { .. } => "own-copy-runs",
        };
        let found = finding(kind, pb::Severity::Warning, copy.message(), copy.hint());
        pb::Finding { server: copy.server, ..found }
    });
    copies.collect()
}

/// One finding; `kind` is a stable word.
pub(crate) fn finding(kind: &str, severity: pb::Severity, message: String, hint: String) -> pb::Finding {
    pb::Finding { kind: kind.to_owned(), severity: severity.into(), message, hint, ..Default::default() }
}

fn at(path: &Path, found: pb::Finding) -> pb::Finding {
    pb::Finding { file: path.display().to_string(), ..found }
}
