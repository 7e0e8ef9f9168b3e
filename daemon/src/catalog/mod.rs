//! What clients see: exposed names, schemas, filters, the published snapshot.

pub mod build;
pub mod exposed;
pub mod filter;
pub mod greeting;
pub mod keep;
pub mod links;
pub mod look;
pub mod native;
pub mod persisted;
pub mod reconcile;
pub mod schema;
pub mod snapshot;
mod template;
pub mod uris;
pub mod vet;

#[cfg(test)]
mod corpora_tests;
