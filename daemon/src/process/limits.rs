//! How many descriptors this process may open, and what its servers get.
//!
//! Owner: the daemon process, once at start. Promise: servers start with the soft limit that the
//! daemon was started with: programs that close "all possible" descriptors, or use select(2), do
//! badly with a raised one. May not touch: the hard limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// What a daemon with many servers and clients needs at most (10 descriptors a server).
const WANTED: u64 = 65_536;
/// The most that older macOS accepts.
const MODEST: u64 = 10_240;

static ORIGINAL: OnceLock<u64> = OnceLock::new();

/// What [`raise_descriptors`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// Soft limit before; `None` for no limit.
    pub from: Option<u64>,
    /// Soft limit now.
    pub to: Option<u64>,
}

/// Raises the soft limit of open descriptors as far as allowed and useful, and remembers the old
/// one for servers. To be called once, before the first server starts.
pub fn raise_descriptors() -> Raised {
    let limit = getrlimit(Resource::Nofile);
    let Some(from) = limit.current else { return Raised { from: None, to: None } };
    ORIGINAL.get_or_init(|| from);
    for wanted in [WANTED, MODEST] {
        let to = limit.maximum.map_or(wanted, |hard| hard.min(wanted));
        let asked = Rlimit { current: Some(to), maximum: limit.maximum };
        if to > from && setrlimit(Resource::Nofile, asked).is_ok() {
            return Raised { from: Some(from), to: Some(to) };
        }
    }
    Raised { from: Some(from), to: Some(from) }
}

/// The soft limit for servers; `None` when it was never raised.
pub fn original_descriptors() -> Option<u64> {
    ORIGINAL.get().copied()
}

/// Sets this process's soft limit. For a guard, which hands it on to its server.
pub(crate) fn set_descriptors(soft: u64) {
    let limit = getrlimit(Resource::Nofile);
    let current = Some(limit.maximum.map_or(soft, |hard| hard.min(soft)));
    // A wrong limit is no reason not to start the server.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
}
