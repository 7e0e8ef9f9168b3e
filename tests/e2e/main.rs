//! Promises of hermesd to its user, one module each, against the real binaries.
//!
//! A test builds a [`World`](hermes_tests::World), acts, and looks at the outside: /proc, files, pipes.

#![cfg(target_os = "linux")] // the census reads /proc
#![allow(clippy::unwrap_used, missing_docs)] // a test may fail loudly

mod add;
mod add_asked;
mod admin;
mod boundaries;
mod calling;
mod chain_approvals;
mod chain_evidence;
mod chain_keys;
mod chain_lapses;
mod chain_leaks;
mod chain_natives;
mod chain_pin_kinds;
mod chain_pins;
mod chain_steps;
mod child;
mod clients;
mod clients_import;
mod config;
mod conversations;
mod conversations_foreign;
mod conversations_golden;
mod conversations_schemas;
mod crowd;
mod death;
mod defects;
mod doctor;
mod elicitation;
mod entries;
mod eras;
mod eras_servers;
mod events;
mod fake_server;
mod framing;
mod greeting;
mod hostile;
mod leftovers;
mod lenient;
mod life_health;
mod life_modes;
mod life_reload;
mod life_start;
mod listener;
mod listener_gate;
mod listing;
mod names;
mod namespaces;
mod native_names;
mod news_logs;
mod news_resources;
mod nonces;
mod oauth;
mod packaging;
mod progress;
mod relay;
mod remote_http;
mod remote_modern;
mod remote_origin;
mod remote_sse;
mod remote_tls;
mod sampling;
mod schema;
mod sending;
mod service;
mod service_install;
mod service_manager;
mod sharing;
mod shim;
mod single;
mod soak;
mod top;
mod traces;
mod traces_receiver;

use hermes_tests::World;

/// A new world with the binaries of this build.
fn world() -> World {
    World::new(hermes_tests::bins!())
}
