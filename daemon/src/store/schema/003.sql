-- Version 3. Messages that were sent under a key of the client's, so that a retry sends none twice.
-- `state`: running, done, partly, unknown. `life` is the daemon that runs it; `sent` parts surely arrived.
CREATE TABLE sends (
    key    TEXT PRIMARY KEY,
    digest BLOB NOT NULL,
    at_ms  INTEGER NOT NULL,
    state  TEXT NOT NULL,
    life   INTEGER NOT NULL,
    sent   INTEGER NOT NULL,
    answer TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX sends_by_time ON sends (at_ms);
