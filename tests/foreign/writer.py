"""Writes state.db as Hermes Agent does, from a process of its own: WAL, one connection that stays open,
autocommit, a PASSIVE checkpoint after each 50 writes. Only Python's standard library.

    writer.py HOME

Makes the home's state.db and sessions.json if they are missing, prints `ready`, then carries out one command
a line from stdin and answers each with one line:

    add SESSION TEXT [TIMESTAMP]      one message; answers its id
    burst SESSION FIRST COUNT         messages mFIRST ...; answers the time of the last commit
    pace SESSION FIRST COUNT MS       the same with pauses; answers the times of all commits, comma-separated
    rewrite SESSION KEEP              deletes the session and inserts its first KEEP messages again, one transaction
    rewind SESSION KEEP               marks all but the first KEEP messages as taken back
    checkpoint                        PRAGMA wal_checkpoint(TRUNCATE)
    sleepy SESSION TEXT               begins a transaction with one message and leaves it open, until `commit`
    commit
    rollback

Times are seconds of CLOCK_MONOTONIC.
"""
import json
import os
import sqlite3
import sys
import time

SCHEMA = """
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL NOT NULL, ended_at REAL,
    message_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,
    content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
    observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1);
CREATE INDEX IF NOT EXISTS idx_messages_session ON messages(session_id, timestamp);
"""


class Writer:
    def __init__(self, home):
        self.home = home
        self.db = sqlite3.connect(os.path.join(home, "state.db"), timeout=5, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA foreign_keys=ON")
        self.db.executescript(SCHEMA)
        self.writes = 0
        self.known = {row[0] for row in self.db.execute("SELECT id FROM sessions")}

    def session(self, session):
        if session in self.known:
            return
        self.known.add(session)
        self.db.execute("INSERT INTO sessions (id, source, started_at) VALUES (?, 'telegram', ?)", (session, time.time()))
        folder = os.path.join(self.home, "sessions")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "sessions.json")
        try:
            with open(path) as file:
                index = json.load(file)
        except FileNotFoundError:
            index = {}
        index[f"agent:main:telegram:dm:{session}"] = {
            "session_key": f"agent:main:telegram:dm:{session}", "session_id": session, "platform": "telegram",
            "chat_type": "dm", "display_name": session, "origin": {"platform": "telegram", "chat_id": session},
        }
        with open(path + ".new", "w") as file:
            json.dump(index, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)

    def insert(self, session, text, timestamp):
        sql = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)"
        role = "user" if self.writes % 2 == 0 else "assistant"
        return self.db.execute(sql, (session, role, text, timestamp)).lastrowid

    def write(self, work):
        self.db.execute("BEGIN IMMEDIATE")
        answer = work()
        self.db.execute("COMMIT")
        at = time.monotonic()
        self.writes += 1
        if self.writes % 50 == 0:
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return answer, at

    def add(self, session, text, timestamp=None):
        self.session(session)
        return self.write(lambda: self.insert(session, text, float(timestamp or time.time())))

    def burst(self, session, first, count, pause=0.0):
        times = []
        for number in range(first, first + count):
            # The clock goes backwards: order must not depend on it.
            times.append(self.add(session, f"m{number}", 2_000_000_000.0 - number)[1])
            if pause:
                time.sleep(pause)
        return times

    def rewrite(self, session, keep):
        def work():
            rows = self.db.execute(
                "SELECT role, content FROM messages WHERE session_id = ? AND active = 1 ORDER BY id LIMIT ?",
                (session, keep)).fetchall()
            self.db.execute("DELETE FROM messages WHERE session_id = ?", (session,))
            now = time.time()
            for number, (role, content) in enumerate(rows):
                self.db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
                                (session, role, content, now + number * 1e-6))
        self.write(work)

    def rewind(self, session, keep):
        self.write(lambda: self.db.execute(
            "UPDATE messages SET active = 0 WHERE session_id = ?1 AND id NOT IN "
            "(SELECT id FROM messages WHERE session_id = ?1 AND active = 1 ORDER BY id LIMIT ?2)", (session, keep)))

    def run(self, verb, *words):
        if verb == "add":
            return self.add(*words)[0]
        if verb == "burst":
            return self.burst(words[0], int(words[1]), int(words[2]))[-1]
        if verb == "pace":
            return ",".join(f"{at:.7f}" for at in self.burst(words[0], int(words[1]), int(words[2]), float(words[3]) / 1000))
        if verb == "rewrite":
            return self.rewrite(words[0], int(words[1])) or "done"
        if verb == "rewind":
            return self.rewind(words[0], int(words[1])) or "done"
        if verb == "checkpoint":
            return self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if verb == "sleepy":
            self.session(words[0])
            self.db.execute("BEGIN IMMEDIATE")
            return self.insert(words[0], words[1], time.time())
        if verb in ("commit", "rollback"):
            self.db.execute(verb)
            return "done"
        raise ValueError(verb)


def main():
    writer = Writer(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        print(writer.run(*line.split()), flush=True)


if __name__ == "__main__":
    main()
