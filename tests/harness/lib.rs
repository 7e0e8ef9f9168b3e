//! Builds a world for one test: a home, a daemon, fake servers, shims, and a look at /proc.
//!
//! Blocking std code: a test reads from top to bottom. Promise: nothing of a world outlives it, and
//! a test fails when something did. May not touch: the inside of the daemon; only its binaries.

pub mod census;
pub mod chat_api;
pub mod ctl;
pub mod daemon;
pub mod foreign;
pub mod handed;
pub mod http;
pub mod http_client;
pub mod journal;
pub mod oauth;
pub mod pty;
pub mod script;
pub mod shim;
pub mod wait;
pub mod world;

pub use chat_api::{ChatApi, Recorded, Reply};
pub use ctl::Ran;
pub use daemon::{Daemon, kill};
pub use foreign::ForeignWriter;
pub use handed::{Handed, Notices, Order};
pub use http::{Answer, Got, HttpFake, plain, plain_server};
pub use http_client::{Event, HttpClient, HttpReply};
pub use journal::Journal;
pub use oauth::{OauthFake, browse, get};
pub use pty::Pty;
pub use script::{Fork, Framing, Script};
pub use shim::{Message, Shim};
pub use wait::{SOON, holds_for, wait_for, wait_some};
pub use world::{Bins, World};

/// The binaries of this package, built fresh for the test that names them.
#[macro_export]
macro_rules! bins {
    () => {
        $crate::Bins {
            hermesd: env!("CARGO_BIN_EXE_t-hermesd").into(),
            hermesctl: env!("CARGO_BIN_EXE_t-hermesctl").into(),
            fake_server: env!("CARGO_BIN_EXE_t-fake-server").into(),
        }
    };
}
