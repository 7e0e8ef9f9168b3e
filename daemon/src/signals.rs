//! SIGTERM, SIGINT, SIGHUP and SIGCHLD as messages.
//!
//! Owner: one thread for the life of the process. A second SIGTERM or SIGINT while the daemon ends
//! is passed on too, so that `shutdown` can hurry. May not touch: anything else.

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use tokio::sync::mpsc;

/// What a person or a service manager wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// End in order (SIGTERM, SIGINT).
    End,
    /// Read the configuration again (SIGHUP).
    Reload,
    /// A process below the daemon ended (SIGCHLD).
    Child,
}

/// Starts the thread. Signals that come faster than they are read are one signal.
///
/// # Errors
/// When the handlers cannot be installed or the thread not started.
pub fn listen() -> io::Result<mpsc::Receiver<Signal>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD])?;
    let (sender, receiver) = mpsc::channel(8);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            let meaning = match signal {
                SIGHUP => Signal::Reload,
                SIGCHLD => Signal::Child,
                _ => Signal::End,
            };
            match sender.try_send(meaning) {
                Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => return,
            }
        }
    })?;
    Ok(receiver)
}
