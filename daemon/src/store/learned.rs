//! Facts about servers that were learned the hard way: their era, that they ask clients things.

use super::Store;
use super::error::StoreError;
use super::queue::Needs;
use super::time::UnixMs;
use crate::names::ServerName;
use std::collections::BTreeMap;

impl Store {
    /// Remembers `fact` of `server`, in place of an older value.
    /// # Errors
    /// [`StoreError`].
    pub async fn learn(
        &self,
        server: ServerName,
        fact: &'static str,
        value: String,
        at: UnixMs,
    ) -> Result<(), StoreError> {
        self.write(Needs::Anything, move |transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO learned VALUES (?1, ?2, ?3, ?4)",
                (server.as_str(), fact, value, at.0),
            )?;
            Ok(())
        })
        .await
    }

    /// Everything learned, by server and fact.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    pub async fn load_learned(&self) -> Result<BTreeMap<ServerName, BTreeMap<String, String>>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare("SELECT server, fact, value FROM learned")?;
            let mut rows = statement.query([])?;
            let mut found: BTreeMap<ServerName, BTreeMap<String, String>> = BTreeMap::new();
            while let Some(row) = rows.next()? {
                let facts = found.entry(ServerName::new(row.get::<_, String>(0)?)).or_default();
                facts.insert(row.get(1)?, row.get(2)?);
            }
            Ok(found)
        })
        .await
    }
}
