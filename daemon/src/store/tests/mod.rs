//! Promises of the store, shown on real files.

mod opening;
mod records;
mod sharing;

use super::*;
use crate::names::{ProfileName, ServerName};
use std::borrow::Cow;
use std::path::PathBuf;

/// Long enough for any machine; nothing waits for it to pass.
const LONG: Duration = Duration::from_secs(60);

struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("hermesd/hermesd.db")
    }

    fn open(&self) -> (Store, Vec<StoreFinding>) {
        Store::open(&self.path())
    }

    /// Opens a store that must have nothing to complain about.
    #[track_caller]
    fn open_well(&self) -> Store {
        let (store, findings) = self.open();
        assert_eq!(findings, []);
        store
    }

    /// Another process's connection to the file.
    fn stranger(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

fn server(name: &str) -> ServerName {
    ServerName::new(name)
}

fn row(tool: &str) -> AuditRow {
    AuditRow {
        at: UnixMs(1_000),
        duration: Duration::from_micros(1_500),
        caller: Arc::new(Caller {
            uid: Some(1000),
            pid: Some(42),
            executable: Some("/usr/bin/claude".to_owned()),
            profile: ProfileName::new("default"),
            name: Some("claude-code".to_owned()),
            version: Some("2.0".to_owned()),
        }),
        method: Cow::Borrowed("tools/call"),
        server: server("fs"),
        tool: Some(Arc::from(tool)),
        arguments: Arguments::Hash([7; 32]),
        trace_id: "0123456789abcdef0123456789abcdef".to_owned(),
        outcome: Cow::Borrowed("ok"),
        delivery: None,
        decisions: Vec::new(),
    }
}

async fn closed(store: Store) {
    assert_eq!(store.close(LONG).await, Flushed::All);
}

async fn tools(store: &Store, query: AuditQuery) -> Vec<String> {
    store.audit(query).await.unwrap().into_iter().filter_map(|entry| entry.tool).collect()
}
