//! Waiting for a condition, with a limit; the only place of the tests that sleeps.

use std::time::{Duration, Instant};

/// Limit for everything that is expected to happen soon. Generous: a loaded machine must not fail a test.
pub const SOON: Duration = Duration::from_secs(30);

/// Looks at `condition` until it holds.
///
/// # Panics
/// When it does not hold within `limit`; the message is `what`.
#[track_caller]
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    wait_some(what, limit, || condition().then_some(()));
}

/// As [`wait_for`], for a condition that yields something.
///
/// # Panics
/// When nothing came within `limit`.
#[track_caller]
pub fn wait_some<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        pause(Duration::from_millis(5));
    }
}

/// Whether `condition` stays true for `span`; for promises that something does *not* happen.
pub fn holds_for(span: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < span {
        if !condition() {
            return false;
        }
        pause(Duration::from_millis(10));
    }
    condition()
}

#[allow(clippy::disallowed_methods)] // test threads are not the data path
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}
