//! The last known catalogue of each server.
//!
//! Promise: items come back byte for byte. A record that cannot be read is left out and told, it never
//! hides the others. May not touch: what items mean (`catalog::persisted` does).

use super::Store;
use super::error::StoreError;
use super::queue::Needs;
use super::time::UnixMs;
use crate::names::ServerName;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What a server offered when it was last asked.
#[derive(Debug, Clone)]
pub struct CatalogRecord {
    /// Digest of the configuration it ran with; a server with another one is asked again.
    pub config_digest: [u8; 32],
    /// Items as they came, in their order, by kind: `tools`, `resources`, …
    pub items: BTreeMap<String, Vec<Box<RawValue>>>,
    /// Its capabilities.
    pub capabilities: Option<Box<RawValue>>,
    /// Its instructions.
    pub instructions: Option<String>,
}

/// A record and when it was learned.
#[derive(Debug, Clone)]
pub struct StoredCatalog {
    /// The record.
    pub record: CatalogRecord,
    /// When.
    pub learned_at: UnixMs,
}

/// The JSON in the `record` column, written.
#[derive(Serialize)]
struct Body<'a> {
    items: &'a BTreeMap<String, Vec<Box<RawValue>>>,
    capabilities: &'a Option<Box<RawValue>>,
    instructions: &'a Option<String>,
}

/// The same, read.
#[derive(Deserialize)]
struct OwnedBody {
    items: BTreeMap<String, Vec<Box<RawValue>>>,
    capabilities: Option<Box<RawValue>>,
    instructions: Option<String>,
}

impl Store {
    /// Keeps `record` in place of what was known about `server`.
    /// # Errors
    /// [`StoreError`]; what was known before stays.
    pub async fn save_catalog(
        &self,
        server: ServerName,
        record: CatalogRecord,
        learned_at: UnixMs,
    ) -> Result<(), StoreError> {
        self.write(Needs::Anything, move |transaction| {
            let body = Body {
                items: &record.items,
                capabilities: &record.capabilities,
                instructions: &record.instructions,
            };
            let body = serde_json::to_string(&body).expect("raw JSON and texts are JSON");
            transaction.execute(
                "INSERT OR REPLACE INTO catalogue VALUES (?1, ?2, ?3, ?4)",
                (server.as_str(), record.config_digest, learned_at.0, body),
            )?;
            Ok(())
        })
        .await
    }

    /// What is known about every server.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    pub async fn load_catalogs(&self) -> Result<BTreeMap<ServerName, StoredCatalog>, StoreError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare("SELECT server, config_digest, learned_ms, record FROM catalogue")?;
            let mut rows = statement.query([])?;
            let mut found = BTreeMap::new();
            while let Some(row) = rows.next()? {
                let server = ServerName::new(row.get::<_, String>(0)?);
                let parts = (
                    row.get::<_, [u8; 32]>(1),
                    serde_json::from_str::<OwnedBody>(row.get_ref(3)?.as_str().unwrap_or("")),
                );
                let (Ok(config_digest), Ok(body)) = parts else {
                    tracing::warn!(%server, "stored catalogue cannot be read; the server is asked again");
                    continue;
                };
                let record = CatalogRecord {
                    config_digest,
                    items: body.items,
                    capabilities: body.capabilities,
                    instructions: body.instructions,
                };
                found.insert(server, StoredCatalog { record, learned_at: UnixMs(row.get(2)?) });
            }
            Ok(found)
        })
        .await
    }

    /// Forgets what is known about `server`, its learned facts too.
    /// # Errors
    /// [`StoreError`].
    pub async fn forget_catalog(&self, server: ServerName) -> Result<(), StoreError> {
        self.write(Needs::Anything, move |transaction| {
            transaction.execute("DELETE FROM catalogue WHERE server = ?1", [server.as_str()])?;
            transaction.execute("DELETE FROM learned WHERE server = ?1", [server.as_str()])?;
            Ok(())
        })
        .await
    }
}
