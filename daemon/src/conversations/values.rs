//! Cells of state.db as values, and the conditions that every query on it shares.
//!
//! Runs on the reader thread. Promise: no cell is too odd to be read; a bad byte or a number where a
//! text belongs must not hide a message.

use super::db::Columns;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde_json::Value;

/// Whether there is a table of messages.
/// # Errors
/// `InvalidColumnName` when it lacks a column that a message cannot be read without.
pub(super) fn fit(messages: &Columns) -> rusqlite::Result<bool> {
    let lacks = ["id", "session_id", "role", "content"].into_iter().find(|name| !messages.has(name));
    match lacks {
        None => Ok(true),
        Some(_) if messages.is_empty() => Ok(false),
        Some(name) => Err(rusqlite::Error::InvalidColumnName(format!("messages.{name}"))),
    }
}

/// Leaves out what was taken back or summarised away, and what is never painted for people.
pub(super) fn shown(columns: &Columns) -> String {
    let active = if columns.has("active") { "AND active = 1 " } else { "" };
    let painted = if columns.has("display_kind") { "AND display_kind IS NOT 'hidden'" } else { "" };
    format!("{active}{painted}")
}

/// `s.name`, or NULL where there is no such column.
pub(super) fn column(columns: &Columns, name: &str) -> String {
    if columns.has(name) { format!("s.{name}") } else { "NULL".to_owned() }
}

/// Any scalar as text; bytes that are no UTF-8 are replaced.
pub(super) fn text(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    })
}

/// Any scalar as a number, if it is one.
pub(super) fn number(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<f64>> {
    Ok(match row.get_ref(index)? {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number),
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
        ValueRef::Null | ValueRef::Blob(_) => None,
    })
}

/// A count; zero where there is none.
pub(super) fn count(row: &Row<'_>, index: usize) -> rusqlite::Result<i64> {
    Ok(number(row, index)?.map_or(0, |number| number as i64))
}

/// A stored time as it is: the column takes texts too.
pub(super) fn scalar(row: &Row<'_>, index: usize) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::from(String::from_utf8_lossy(bytes)),
    })
}
