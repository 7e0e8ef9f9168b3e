//! How messages reach a server over HTTP: Streamable HTTP in all its revisions, and legacy HTTP+SSE.
//!
//! Owner: one [`link::Link`] for each generation; requests under way belong to the wire. Promise:
//! no configured header leaves the server's origin; bodies are never read beyond their limit; a
//! request is called unwritten only when no byte of it can have left. What is asked, and what an
//! answer is for, is the wire's business. May not touch: processes, config files, the catalogue.

pub mod answer;
pub(crate) mod body;
pub mod client;
pub(crate) mod events;
pub(crate) mod exchange;
pub(crate) mod link;
pub(crate) mod listen;
pub mod mirror;
pub(crate) mod names;
pub mod proxy;
pub(crate) mod sse;
