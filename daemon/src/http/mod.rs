//! The optional Streamable HTTP listener: the same sessions for clients that are not on stdio.
//!
//! Owner: [`keeper`], which opens and closes it with `hermesd.http`. `gate` looks at each request before
//! anything else happens (`Host`, `Origin`, token); `service` turns requests into lines of a
//! [`Session`](crate::session::task::Session) on the other end of a socket pair: one for each `Mcp-Session-Id`
//! (`session`, `streams`), one for each request of the revisions without a handshake (`single`).
//! May touch: its sockets, `session`. May not touch: servers, the catalogue, what a message says.

pub mod answer;
pub mod connections;
pub mod gate;
pub mod headers;
pub mod keeper;
pub mod keys;
pub mod line;
pub mod posted;
pub mod service;
pub mod session;
pub mod sessions;
pub mod single;
pub mod streams;

/// The one path that is served.
pub const PATH: &str = "/mcp";
