//! Model-visible texts as they were first seen or approved.
//!
//! Promise: only what is on disk counts. After a damaged file was moved aside, [`Pins::first_use`]
//! says so until a person trusts again: what was pinned is unknown then, and taking the next text for
//! the first would let through what a pin was there to stop. May not touch: what a change means
//! (`policy::pins` does).

use super::error::StoreError;
use super::queue::Needs;
use super::time::UnixMs;
use super::{Keeping, Store};
use crate::names::ServerName;
use rusqlite::{OptionalExtension, Row, Transaction};
use std::collections::BTreeMap;

/// Set while pins are lost: the time, in milliseconds.
pub(super) const LOST: &str = "pins_lost_ms";

/// Which text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinKey {
    /// The server.
    pub server: ServerName,
    /// `tool`, `prompt`, `resource`, `instructions`, …
    pub kind: String,
    /// Raw name of the item.
    pub name: String,
}

/// What is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// SHA-256 of the canonical text that counts.
    pub digest: [u8; 32],
    /// That text, for a person to compare.
    pub text: String,
    /// When the item was first seen.
    pub first_seen: UnixMs,
    /// When and by whom the text was approved; `None`: taken at first sight.
    pub approved: Option<(UnixMs, String)>,
    /// What it changed to since.
    pub change: Option<PinChange>,
}

/// A text that differs from the one that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinChange {
    /// SHA-256 of the new text.
    pub digest: [u8; 32],
    /// The new text.
    pub text: String,
    /// When it was first seen.
    pub seen: UnixMs,
}

/// Every pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// By item.
    pub by_key: BTreeMap<PinKey, Pin>,
    /// Whether an unknown item may be taken at first sight.
    pub first_use: FirstUse,
}

/// Whether an unknown item may be taken at first sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstUse {
    /// It is really new.
    Trusted,
    /// Pins were lost: under `pin: block` a person has to approve it.
    LostAt(UnixMs),
}

/// What an approval came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approved {
    /// The text counts from now on.
    Yes,
    /// There is no such item.
    Unknown,
    /// The text is no longer the one that was shown; look again.
    Moved,
}

impl Store {
    /// Every pin.
    /// # Errors
    /// [`StoreError::NotDurable`] without a disk, and everything a read can meet: `pin: block` then blocks.
    pub async fn load_pins(&self) -> Result<Pins, StoreError> {
        self.require_disk()?;
        self.read(|connection| {
            let mut statement = connection.prepare(
                "SELECT server, kind, name, digest, text, first_seen_ms, approved_ms, approved_by, \
                 changed_digest, changed_text, changed_ms FROM pins",
            )?;
            let rows = statement.query_map([], pin)?;
            let by_key = rows.collect::<rusqlite::Result<_>>()?;
            let lost = connection
                .query_row("SELECT value FROM meta WHERE name = ?1", [LOST], |row| row.get(0))
                .optional()?;
            let first_use = lost.map_or(FirstUse::Trusted, |at| FirstUse::LostAt(UnixMs(at)));
            Ok(Pins { by_key, first_use })
        })
        .await
    }

    /// Keeps `pins`, in place of older ones; all or none.
    /// # Errors
    /// [`StoreError`], [`StoreError::NotDurable`] without a disk.
    pub async fn put_pins(&self, pins: Vec<(PinKey, Pin)>) -> Result<(), StoreError> {
        self.write(Needs::Disk, move |transaction| {
            for (key, pin) in &pins {
                put(transaction, key, pin)?;
            }
            Ok(())
        })
        .await
    }

    /// Makes the text with `digest` the one that counts: the changed one, or the one there is.
    /// # Errors
    /// [`StoreError`], [`StoreError::NotDurable`] without a disk.
    pub async fn approve_pin(
        &self,
        key: PinKey,
        digest: [u8; 32],
        by: String,
        at: UnixMs,
    ) -> Result<Approved, StoreError> {
        self.write(Needs::Disk, move |transaction| {
            let item = (key.server.as_str(), &key.kind, &key.name);
            let known: Option<([u8; 32], Option<[u8; 32]>)> = transaction
                .query_row(
                    "SELECT digest, changed_digest FROM pins WHERE (server, kind, name) = (?1, ?2, ?3)",
                    item,
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()?;
            let set = match known {
                None => return Ok(Approved::Unknown),
                Some((_, Some(changed))) if changed == digest => {
                    "digest = changed_digest, text = changed_text,"
                }
                Some((current, None)) if current == digest => "",
                // The old text again, while the server shows another: not what a person looks at.
                Some(_) => return Ok(Approved::Moved),
            };
            transaction.execute(
                &format!(
                    "UPDATE pins SET {set} approved_ms = ?4, approved_by = ?5, changed_digest = NULL, \
                     changed_text = NULL, changed_ms = NULL WHERE (server, kind, name) = (?1, ?2, ?3)"
                ),
                (item.0, item.1, item.2, at.0, by),
            )?;
            Ok(Approved::Yes)
        })
        .await
    }

    /// Forgets pins of items that are gone or renamed.
    /// # Errors
    /// [`StoreError`], [`StoreError::NotDurable`] without a disk.
    pub async fn forget_pins(&self, keys: Vec<PinKey>) -> Result<(), StoreError> {
        self.write(Needs::Disk, move |transaction| {
            for key in &keys {
                transaction.execute(
                    "DELETE FROM pins WHERE (server, kind, name) = (?1, ?2, ?3)",
                    (key.server.as_str(), &key.kind, &key.name),
                )?;
            }
            Ok(())
        })
        .await
    }

    /// A person looked at what there is after pins were lost: new items are taken at first sight again.
    /// # Errors
    /// [`StoreError`], [`StoreError::NotDurable`] without a disk.
    pub async fn trust_first_use_again(&self) -> Result<(), StoreError> {
        self.write(Needs::Disk, |transaction| {
            transaction.execute("DELETE FROM meta WHERE name = ?1", [LOST])?;
            Ok(())
        })
        .await
    }

    /// # Errors
    /// [`StoreError::NotDurable`] if the store lives in memory, [`StoreError::Locked`] if it is not open yet.
    pub(super) fn require_disk(&self) -> Result<(), StoreError> {
        match &self.shared().health.borrow().keeping {
            Keeping::Wal | Keeping::Rollback => Ok(()),
            Keeping::Memory(reason) => Err(StoreError::NotDurable(reason.clone())),
            Keeping::Waiting => Err(StoreError::Locked),
        }
    }
}

fn put(transaction: &Transaction<'_>, key: &PinKey, pin: &Pin) -> rusqlite::Result<()> {
    let (approved_ms, approved_by) = pin.approved.as_ref().map(|(at, by)| (at.0, by)).unzip();
    let change = pin.change.as_ref();
    transaction
        .prepare_cached("INSERT OR REPLACE INTO pins VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?
        .execute(rusqlite::params![
            key.server.as_str(),
            key.kind,
            key.name,
            pin.digest,
            pin.text,
            pin.first_seen.0,
            approved_ms,
            approved_by,
            change.map(|change| change.digest),
            change.map(|change| &change.text),
            change.map(|change| change.seen.0),
        ])
        .map(|_| ())
}

fn pin(row: &Row<'_>) -> rusqlite::Result<(PinKey, Pin)> {
    let key =
        PinKey { server: ServerName::new(row.get::<_, String>(0)?), kind: row.get(1)?, name: row.get(2)? };
    let approved = row.get::<_, Option<i64>>(6)?.zip(row.get::<_, Option<String>>(7)?);
    let changed = (
        row.get::<_, Option<[u8; 32]>>(8)?,
        row.get::<_, Option<String>>(9)?,
        row.get::<_, Option<i64>>(10)?,
    );
    let change = match changed {
        (Some(digest), Some(text), Some(seen)) => Some(PinChange { digest, text, seen: UnixMs(seen) }),
        _ => None,
    };
    let pin = Pin {
        digest: row.get(3)?,
        text: row.get(4)?,
        first_seen: UnixMs(row.get(5)?),
        approved: approved.map(|(at, by)| (UnixMs(at), by)),
        change,
    };
    Ok((key, pin))
}
