-- Version 2. Kinds of events can be asked for; messages of conversations are recognised when they are
-- written again.

-- `type` of the body.
ALTER TABLE events ADD COLUMN kind TEXT NOT NULL DEFAULT '';
UPDATE events SET kind = CASE WHEN json_valid(body) THEN ifnull(json_extract(body, '$.type'), '') ELSE '' END;

-- Sessions whose messages were told as events.
CREATE TABLE followed (
    session_id  TEXT PRIMARY KEY,
    session_key TEXT NOT NULL,
    last_id     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Their newest messages: row id, and a digest of role and content.
CREATE TABLE trails (
    session_id TEXT NOT NULL,
    id         INTEGER NOT NULL,
    digest     INTEGER NOT NULL,
    PRIMARY KEY (session_id, id)
) STRICT, WITHOUT ROWID;
