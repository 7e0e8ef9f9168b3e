-- Version 1. Times are milliseconds since 1970 (`_ms`), digests are SHA-256 (32 bytes).

-- Single facts: `pins_lost_ms`, `events_latest`, ...
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Last known catalogue of each server. `record` is JSON with the server's items as they came.
CREATE TABLE catalogue (
    server        TEXT PRIMARY KEY,
    config_digest BLOB NOT NULL,
    learned_ms    INTEGER NOT NULL,
    record        TEXT NOT NULL
) STRICT;

-- What was learned about a server besides its catalogue: its era, that it asks clients things.
CREATE TABLE learned (
    server        TEXT NOT NULL,
    fact          TEXT NOT NULL,
    value         TEXT NOT NULL,
    learned_ms    INTEGER NOT NULL,
    PRIMARY KEY (server, fact)
) STRICT, WITHOUT ROWID;

-- One row a call. Rows are only added, and removed by age.
CREATE TABLE audit (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms           INTEGER NOT NULL,
    duration_us     INTEGER NOT NULL,
    uid             INTEGER,
    pid             INTEGER,
    executable      TEXT,
    profile         TEXT NOT NULL,
    client          TEXT,
    client_version  TEXT,
    method          TEXT NOT NULL,
    server          TEXT NOT NULL,
    tool            TEXT,
    arguments_hash  BLOB,
    arguments       TEXT,
    trace_id        TEXT NOT NULL,
    outcome         TEXT NOT NULL,
    delivery        TEXT,
    decisions       TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_time ON audit (at_ms);

-- Calls of a profile on one day (days since 1970).
CREATE TABLE quota (
    profile TEXT NOT NULL,
    day     INTEGER NOT NULL,
    calls   INTEGER NOT NULL,
    PRIMARY KEY (profile, day)
) STRICT, WITHOUT ROWID;

-- Model-visible texts as first seen or approved, and what they changed to since.
CREATE TABLE pins (
    server         TEXT NOT NULL,
    kind           TEXT NOT NULL,
    name           TEXT NOT NULL,
    digest         BLOB NOT NULL,
    text           TEXT NOT NULL,
    first_seen_ms  INTEGER NOT NULL,
    approved_ms    INTEGER,
    approved_by    TEXT,
    changed_digest BLOB,
    changed_text   TEXT,
    changed_ms     INTEGER,
    PRIMARY KEY (server, kind, name)
) STRICT;

-- `allow-always` answers.
CREATE TABLE approvals (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    server      TEXT NOT NULL,
    tool        TEXT NOT NULL,
    schema_hash BLOB NOT NULL,
    created_ms  INTEGER NOT NULL,
    created_by  TEXT NOT NULL,
    UNIQUE (server, tool)
) STRICT;

-- Events of conversations. Numbers never run backwards: meta.events_latest outlives the rows.
CREATE TABLE events (
    cursor      INTEGER PRIMARY KEY,
    at_ms       INTEGER NOT NULL,
    session_key TEXT NOT NULL,
    body        TEXT NOT NULL
) STRICT;

-- How far each source of events has been read; `position` is opaque text of the reader.
CREATE TABLE cursors (
    source   TEXT PRIMARY KEY,
    position TEXT NOT NULL
) STRICT, WITHOUT ROWID;
