//! Messages that were sent under a key, so that a repeated call sends none twice.
//!
//! Promise: a key that was begun is never begun again unless nothing of its message arrived; at most
//! [`KEPT`] keys are kept, each for [`KEPT_FOR`]. May not touch: what a message is.

use super::Store;
use super::error::StoreError;
use super::queue::Needs;
use super::time::UnixMs;
use rusqlite::{OptionalExtension, Transaction};
use std::time::Duration;

/// Most keys kept; the oldest go first.
pub const KEPT: u32 = 10_000;
/// How long a key counts.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// One message under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyed {
    /// The client's key.
    pub key: String,
    /// SHA-256 of target and text: a key stands for one message.
    pub digest: [u8; 32],
    /// The daemon's life that sends it; another one that began it is gone.
    pub life: i64,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Nothing, or that `from` parts arrived: go on with part number `from`, counted from 0.
    Go {
        /// The first part to send.
        from: usize,
    },
    /// The whole message arrived; this was the answer.
    Done {
        /// JSON.
        answer: String,
    },
    /// It is being sent at this moment.
    Running,
    /// One part may or may not have arrived.
    Unknown,
    /// The key stands for another message.
    OtherMessage,
}

/// How sending ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendEnd {
    /// All of it arrived.
    Done {
        /// JSON for whoever asks again.
        answer: String,
    },
    /// The first `sent` parts arrived, surely no more; 0 forgets the key.
    Stopped {
        /// Parts that arrived.
        sent: usize,
    },
    /// It is not known.
    Unknown {
        /// Parts that surely arrived.
        sent: usize,
    },
}

impl Store {
    /// Begins a message under its key, at `now`, unless it was begun before.
    /// # Errors
    /// [`StoreError`]; then nothing must be sent.
    pub async fn begin_send(&self, message: Keyed, now: UnixMs) -> Result<Begun, StoreError> {
        self.write(Needs::Anything, move |transaction| begin(transaction, &message, now)).await
    }

    /// Notes how a message that was begun has ended.
    /// # Errors
    /// [`StoreError`]; then the key counts as running, and after the daemon's end as unknown.
    pub async fn end_send(&self, key: String, end: SendEnd) -> Result<(), StoreError> {
        self.write(Needs::Anything, move |transaction| {
            let (state, sent, answer) = match end {
                SendEnd::Stopped { sent: 0 } => {
                    transaction.execute("DELETE FROM sends WHERE key = ?1", [key])?;
                    return Ok(());
                }
                SendEnd::Done { answer } => ("done", 0, Some(answer)),
                SendEnd::Stopped { sent } => ("partly", sent, None),
                SendEnd::Unknown { sent } => ("unknown", sent, None),
            };
            transaction.execute(
                "UPDATE sends SET state = ?2, sent = ?3, answer = ?4 WHERE key = ?1",
                (key, state, i64::try_from(sent).unwrap_or(i64::MAX), answer),
            )?;
            Ok(())
        })
        .await
    }
}

fn begin(transaction: &Transaction<'_>, message: &Keyed, now: UnixMs) -> Result<Begun, StoreError> {
    transaction.execute("DELETE FROM sends WHERE at_ms < ?1", [now.minus(KEPT_FOR).0])?;
    transaction.execute(
        "DELETE FROM sends WHERE key IN (SELECT key FROM sends ORDER BY at_ms DESC LIMIT -1 OFFSET ?1)",
        [KEPT - 1],
    )?;
    let known = transaction
        .query_row(
            "SELECT digest, state, life, sent, answer FROM sends WHERE key = ?1",
            [&message.key],
            |row| {
                let digest: Vec<u8> = row.get(0)?;
                let sent: i64 = row.get(3)?;
                Ok((
                    digest,
                    row.get::<_, String>(1)?,
                    row.get::<_, i64>(2)?,
                    sent,
                    row.get::<_, Option<String>>(4)?,
                ))
            },
        )
        .optional()?;
    let from = match known {
        None => 0,
        Some((digest, ..)) if digest != message.digest => return Ok(Begun::OtherMessage),
        Some((_, state, life, sent, answer)) => match (state.as_str(), answer) {
            ("done", answer) => return Ok(Begun::Done { answer: answer.unwrap_or_default() }),
            ("running", _) if life == message.life => return Ok(Begun::Running),
            ("partly", _) => usize::try_from(sent).unwrap_or(0),
            // A daemon that ended in the middle leaves nobody who knows.
            _ => return Ok(Begun::Unknown),
        },
    };
    transaction.execute(
        "INSERT OR REPLACE INTO sends VALUES (?1, ?2, ?3, 'running', ?4, ?5, NULL)",
        (&message.key, message.digest, now.0, message.life, i64::try_from(from).unwrap_or(0)),
    )?;
    Ok(Begun::Go { from })
}
