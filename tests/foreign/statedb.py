#!/usr/bin/env python3
"""Homes of Hermes Agent as another program writes them: Python's own sqlite3 and json.

usage: statedb.py upgrade HOME              make a schema 13 home one of schema 30, index and all
       statedb.py random HOME SEED          replace the databases by random ones; prints cases to check
       statedb.py hold HOME ready-file      hold a write transaction open until stdin ends
       statedb.py big HOME SESSIONS MESSAGES     one session of MESSAGES, SESSIONS conversations
       statedb.py bigfile HOME SESSIONS     so many conversations in sessions.json

What a reader should answer is worked out here a second time, from the rows as this program reads them.
"""

import datetime
import json
import math
import os
import pathlib
import random
import shutil
import sqlite3
import sys
import tempfile

MARK = "\0json:"

# name -> type, in the order of the schema that has them
SESSIONS = {
    13: "id TEXT PRIMARY KEY|source TEXT NOT NULL|user_id TEXT|model TEXT|model_config TEXT|system_prompt TEXT|"
    "parent_session_id TEXT|started_at REAL NOT NULL|ended_at REAL|end_reason TEXT|message_count INTEGER DEFAULT 0|"
    "input_tokens INTEGER DEFAULT 0|output_tokens INTEGER DEFAULT 0|title TEXT",
    16: "cwd TEXT|rewind_count INTEGER NOT NULL DEFAULT 0|archived INTEGER NOT NULL DEFAULT 0",
    30: "session_key TEXT|chat_id TEXT|chat_type TEXT|thread_id TEXT|display_name TEXT|origin_json TEXT|"
    "last_activity_at REAL|hidden INTEGER NOT NULL DEFAULT 0|pinned INTEGER NOT NULL DEFAULT 0",
}
MESSAGES = {
    13: "id INTEGER PRIMARY KEY AUTOINCREMENT|session_id TEXT NOT NULL|role TEXT NOT NULL|content TEXT|tool_calls TEXT|"
    "tool_name TEXT|timestamp REAL NOT NULL|platform_message_id TEXT|observed INTEGER DEFAULT 0",
    16: "active INTEGER NOT NULL DEFAULT 1",
    30: "compacted INTEGER NOT NULL DEFAULT 0|display_kind TEXT|api_content TEXT",
}
INDEXES = [
    "messages(session_id, timestamp)",
    "messages(session_id, id)",
    "messages(session_id)",
    "messages(session_id, active, timestamp)",
    "messages(timestamp)",
    "sessions(session_key)",
]


def columns(table, version):
    return [c for known in sorted(table) if known <= version for c in table[known].split("|")]


def create(db, version, rng):
    for name, table in (("sessions", SESSIONS), ("messages", MESSAGES)):
        wanted = columns(table, version)
        wanted += [f"x_{rng.randrange(10**6)} {rng.choice(['TEXT', 'BLOB', 'INTEGER DEFAULT 7', 'REAL', ''])}" for _ in range(rng.randrange(4))]
        rng.shuffle(wanted)
        db.execute(f"CREATE TABLE {name} ({', '.join(wanted)})")
    for number, index in enumerate(INDEXES):
        if rng.random() < 0.5:
            try:
                db.execute(f"CREATE INDEX i{number} ON {index}")
            except sqlite3.OperationalError:
                pass  # the column is of a later schema
    db.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
    db.execute("INSERT INTO schema_version VALUES (?)", (rng.choice([version, 99]),))


def word(rng):
    return rng.choice(["hello", "部署 ok", "it's \"quoted\"", "a\nb", "🌧", "é\u200b", "x" * 2001, "字" * 2000, "", "MEDIA:/a.png", "back\\slash"])


def value(rng, depth=2):
    kinds = [
        lambda: word(rng),
        lambda: rng.choice([None, True, False, 0, 7, -3, 1.5, 1e22, 0.0, 1e-7, 123456789.125]),
        lambda: [value(rng, depth - 1) for _ in range(rng.randrange(3))],
        lambda: {word(rng)[:9]: value(rng, depth - 1) for _ in range(rng.randrange(3))},
    ]
    return rng.choice(kinds if depth else kinds[:2])()


def part(rng):
    return rng.choice(
        [
            lambda: {"type": "text", "text": value(rng)},
            lambda: {"type": "text", "text": word(rng)},
            lambda: {"type": "text"},
            lambda: {"type": "image_url", "image_url": {"url": "https://a/" + "b" * rng.randrange(6000)}},
            lambda: {"type": "image", "source": 5},
            lambda: {"type": "file", "text": "no"},
            lambda: value(rng),
        ]
    )()


def content(rng):
    return rng.choice(
        [
            lambda: None,
            lambda: "",
            lambda: word(rng),
            lambda: word(rng),
            lambda: word(rng),
            lambda: "nul\0inside",
            lambda: MARK + json.dumps([part(rng) for _ in range(rng.randrange(4))]),
            lambda: MARK + json.dumps(value(rng)),
            lambda: MARK + json.dumps({"k": value(rng)}, ensure_ascii=False),
            lambda: MARK + '[{"type": "text", "text": "half \\ud83d"}]',
            lambda: MARK + "{broken" + word(rng),
            lambda: b"bytes \xff\xfe end",
            lambda: 42,
        ]
    )()


def read_content(stored):
    """Text of a stored content, as a person reads it, and its parts."""
    if stored is None:
        return "", []
    if isinstance(stored, bytes):
        stored = stored.decode("utf-8", "replace")
    stored = str(stored)
    if not stored.startswith(MARK):
        return stored, []
    try:
        decoded = json.loads(stored[len(MARK) :])
    except ValueError:
        return stored, []
    if isinstance(decoded, str):
        return mend(decoded), []
    if isinstance(decoded, list):
        texts = [p.get("text") for p in decoded if isinstance(p, dict) and p.get("type") == "text"]
        return mend("\n".join("" if t is None else str(t) for t in texts)), decoded
    return (mend(str(decoded)), []) if decoded else ("", [])


def mend(text):
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def attachments(stored):
    text, parts = read_content(stored)
    found = 0
    for p in parts:
        if not isinstance(p, dict) or p.get("type") == "text":
            continue
        if p.get("type") == "image_url":
            found += isinstance(p.get("image_url"), dict) and bool(p["image_url"].get("url"))
        elif p.get("type") == "image":
            pass  # the only one made here has no address
        else:
            found += 1
    return found + sum(bool(rest.split()) for rest in text.split("MEDIA:")[1:])


def fill(db, version, rng):
    keys = []
    for number in range(rng.randrange(1, 6)):
        row = {
            "id": f"s{number}",
            "source": rng.choice(["telegram", "Slack", "cli", "signal"]),
            "started_at": 1779000000 + rng.randrange(1000) + number / 8,
            "ended_at": rng.choice([None, None, 1779009999.0]),
            "input_tokens": rng.choice([0, 12]),
            "output_tokens": rng.choice([0, 7]),
            "title": rng.choice([None, f"Title {number}"]),
        }
        if version >= 30:
            row["session_key"] = rng.choice([None, "", f"agent:main:x:{number % 3}", f"agent:main:x:{number % 3}"])
            row["display_name"] = rng.choice([None, "", "Ana", "部署"])
            row["chat_type"] = rng.choice([None, "dm"])
            row["last_activity_at"] = rng.choice([None, 1779000000 + rng.randrange(3000)])
            row["origin_json"] = rng.choice([None, "{broken", "[]", json.dumps({"chat_name": "Chat", "user_name": None, "chat_id": 5})])
            row["hidden"] = int(rng.random() < 0.2)
        insert(db, "sessions", row)
        keys.append(f"s{number}")
    for number in range(rng.randrange(0, 120)):
        row = {
            "session_id": rng.choice(keys),
            "role": rng.choice(["user", "assistant", "user", "assistant", "tool", "system", "odd"]),
            "content": content(rng),
            "timestamp": rng.choice([1779000000 + rng.randrange(5000), 1779000000.125 + number, "2026-05-17T08:00:00"]),
        }
        if version >= 16:
            row["active"] = int(rng.random() < 0.8)
        if version >= 30:
            row["display_kind"] = rng.choice([None, None, None, "hidden", "note"])
        insert(db, "messages", row)
    if rng.random() < 0.5:
        db.execute("DELETE FROM messages WHERE id % 7 = 3")
    return keys


def insert(db, table, row):
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def index_file(rng, sessions):
    entries = {}
    for number, session in enumerate(sessions):
        entry = {
            "session_key": f"agent:main:x:{number}",
            "session_id": session,
            "display_name": rng.choice([None, "", "Ana", "部署 42"]),
            "platform": rng.choice([None, "telegram", "Slack"]),
            "updated_at": rng.choice(["2026-05-17T06:41:23.750000", "2026-05-17T06:41:23", None, ""]),
            "created_at": "2026-05-17T06:40:00",
            "chat_type": "dm",
            "origin": rng.choice([None, {}, {"platform": "signal", "chat_name": "Chat", "chat_id": 7}]),
            rng.choice(["x_new", "suspended"]): True,
        }
        for name in rng.sample(sorted(entry), rng.randrange(3)):
            del entry[name]
        entries[f"agent:main:x:{number}"] = entry
    if rng.random() < 0.5:
        entries.update(rng.choice([{"_note": {"session_id": "x"}}, {"odd": 5}, {"odd": None}, {"odd": {}}]))
    return entries


def text(holder, name):
    if name not in holder:
        return ""
    found = holder[name]
    return str(found) if isinstance(found, (str, int, float)) else None


def listed_file(entries):
    lines = []
    for key, entry in entries.items():
        if key.startswith("_") or not isinstance(entry, dict) or not entry:
            continue
        origin = entry.get("origin") or {}
        lines.append(
            {
                "session_key": key,
                "session_id": text(entry, "session_id"),
                "platform": text(entry, "platform") or text(origin, "platform") or "",
                "chat_type": text(entry if "chat_type" in entry else origin, "chat_type"),
                "display_name": text(entry, "display_name"),
                "chat_name": text(origin, "chat_name"),
                "user_name": text(origin, "user_name"),
                "updated_at": text(entry, "updated_at"),
            }
        )
    return sorted(lines, key=lambda line: line["updated_at"] or "", reverse=True)


def random_home(home, seed):
    rng = random.Random(seed)
    version = rng.choice([13, 16, 30])
    folder = pathlib.Path(tempfile.mkdtemp(dir=home))
    db = sqlite3.connect(folder / "new.db", isolation_level=None)
    mode = rng.choice(["rollback", "wal", "wal left behind"])
    if mode != "rollback":
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("BEGIN")
    create(db, version, rng)
    sessions = fill(db, version, rng)
    db.execute("COMMIT")
    entries = index_file(rng, sessions)
    cases = list(checks(db, version, rng, sessions, entries))
    for name in ("state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)
    if mode == "wal left behind":
        shutil.copy(folder / "new.db", folder / "left.db")
        shutil.copy(folder / "new.db-wal", home / "state.db-wal")
        db.close()
        os.rename(folder / "left.db", home / "state.db")
    else:
        db.close()
        os.rename(folder / "new.db", home / "state.db")
    (home / "sessions").mkdir(exist_ok=True)
    fresh = folder / "sessions.json"
    fresh.write_text(json.dumps(entries, indent=2))
    os.rename(fresh, home / "sessions/sessions.json")
    shutil.rmtree(folder)
    json.dump({"schema": version, "mode": mode, "cases": cases}, sys.stdout)


def checks(db, version, rng, sessions, entries):
    db.row_factory = sqlite3.Row
    rows = [dict(row) for row in db.execute("SELECT * FROM sessions")]
    keyed = [row for row in rows if row.get("session_key")]
    if version >= 30 and keyed:
        best = {}
        for row in sorted(keyed, key=lambda row: row["started_at"]):
            if row["ended_at"] is None:
                best[row["session_key"]] = row["id"]
        readable = best
        yield {"tool": "conversations_list", "arguments": {}, "keys": sorted(best)}
    else:
        lines = listed_file(entries)
        readable = {line["session_key"]: line["session_id"] for line in lines}
        yield {"tool": "conversations_list", "arguments": {}, "expected": {"count": len(lines), "conversations": lines}}
        search = rng.choice(["ana", "X:1", "chat", "zzz"])
        hits = [l for l in lines if any(search.lower() in (n or "").lower() for n in (l["display_name"], l["chat_name"], l["session_key"]))]
        yield {"tool": "conversations_list", "arguments": {"search": search}, "expected": {"count": len(hits), "conversations": hits}}
    for row in rows:
        if not row.get("hidden"):
            readable[f"session:{row['id']}"] = row["id"]
    for key, session in readable.items():
        if not session:
            continue
        for _ in range(3):
            yield page_case(db, version, rng, key, session)


def page_case(db, version, rng, key, session):
    stored = [dict(row) for row in db.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY id", (session,))]
    stored = [row for row in stored if row.get("active", 1) == 1 and row.get("display_kind") != "hidden"]
    spoken = [row for row in stored if row["role"] in ("user", "assistant") and read_content(row["content"])[0]]
    arguments = {"session_key": key, "limit": rng.choice([1, 3, 50, "7", 2.0]), "include_local": True}
    roles, full = ["user", "assistant"], False
    if rng.random() < 0.5:
        full = arguments["full"] = rng.choice([True, False])
        roles = arguments["roles"] = rng.choice([["user"], ["tool", "assistant"], ["system", "user", "assistant", "tool"]])
    ids = [row["id"] for row in stored] or [5]
    for end in ("before", "after"):
        if rng.random() < 0.4:
            arguments[end] = rng.choice([str, int])(rng.choice(ids + [0, 10**9]))
    found = [row for row in stored if row["role"] in roles]
    found = [row for row in found if read_content(row["content"])[0] or (full and attachments(row["content"]))]
    found = [row for row in found if row["id"] < int(arguments.get("before", 10**12)) and row["id"] > int(arguments.get("after", 0))]
    limit = int(arguments["limit"])
    more = len(found) > limit
    found = found[:limit] if "after" in arguments else found[-limit:]
    expected = {"session_key": key, "count": len(found), "total_in_session": len(spoken), "messages": [message(row, full) for row in found]}
    if arguments.keys() - {"session_key", "limit", "include_local"} and (full or set(roles) != {"user", "assistant"} or arguments.keys() & {"before", "after"}):
        expected["more"] = more
    return {"tool": "messages_read", "arguments": arguments, "expected": expected}


def message(row, full):
    whole = read_content(row["content"])[0]
    answer = {"id": str(row["id"]), "role": row["role"], "content": whole if full else whole[:2000], "timestamp": row["timestamp"]}
    if not full and len(whole) > 2000:
        answer["truncated"] = True
    if full and attachments(row["content"]):
        answer["attachments"] = attachments(row["content"])
    return answer


def upgrade(home):
    """The columns of schema 30, filled from sessions.json, which goes."""
    entries = json.loads((home / "sessions/sessions.json").read_text())
    db = sqlite3.connect(home / "state.db", isolation_level=None)
    for table, known in (("sessions", SESSIONS), ("messages", MESSAGES)):
        for version in (16, 30):
            for column in known[version].split("|"):
                db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    db.execute("CREATE INDEX new_order ON messages(session_id, id)")
    seen = set()
    for key, entry in entries.items():
        origin = entry.get("origin")
        used = datetime.datetime.fromisoformat(entry["updated_at"]).replace(tzinfo=datetime.timezone.utc).timestamp()
        # Entries of the same moment keep the order of the file by a difference that no text shows.
        while used in seen:
            used = math.nextafter(used, 0)
        seen.add(used)
        row = {
            "session_key": key,
            "chat_type": entry.get("chat_type"),
            "display_name": entry.get("display_name"),
            "origin_json": json.dumps(origin) if origin else None,
            "last_activity_at": used,
            "input_tokens": entry["input_tokens"],
            "output_tokens": entry["output_tokens"],
        }
        db.execute(f"UPDATE sessions SET {', '.join(f'{name} = ?' for name in row)} WHERE id = ?", [*row.values(), entry["session_id"]])
    db.close()
    (home / "sessions/sessions.json").unlink()


def hold(home, ready):
    db = sqlite3.connect(home / "state.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO messages (session_id, role, content, timestamp) SELECT session_id, 'user', 'not committed', 1 FROM messages LIMIT 1")
    pathlib.Path(ready).touch()
    sys.stdin.read()
    db.execute("ROLLBACK")
    db.close()


def big(home, sessions, messages):
    rng = random.Random(1)
    db = sqlite3.connect(home / "state.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("BEGIN")
    for name, table in (("sessions", SESSIONS), ("messages", MESSAGES)):
        db.execute(f"CREATE TABLE {name} ({', '.join(columns(table, 30))})")
    for number, index in enumerate(INDEXES[:2] + INDEXES[3:4]):
        db.execute(f"CREATE INDEX i{number} ON {index}")
    for number in range(sessions):
        insert(
            db,
            "sessions",
            {
                "id": f"s{number:05}",
                "source": "telegram",
                "session_key": f"agent:main:telegram:dm:{number}",
                "chat_type": "dm",
                "display_name": f"Person {number}",
                "origin_json": json.dumps({"platform": "telegram", "chat_id": str(number), "chat_name": f"Person {number}", "chat_type": "dm", "user_name": f"Person {number}"}),
                "started_at": 1779000000.0 + number,
                "last_activity_at": 1779000000.0 + rng.randrange(10**6),
            },
        )
    body = "A line of what people write to each other, or to an assistant. " * 3
    many = [("s00000", ("user", "assistant", "tool")[n % 3], f"{n} {body}", 1779000000.0 + n) for n in range(messages)]
    many += [(f"s{n % sessions:05}", ("user", "assistant")[n % 2], body, 1779000000.0 + n) for n in range(10 * sessions)]
    db.executemany("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", many)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def big_file(home, sessions):
    (home / "sessions").mkdir()
    sample = {"suspended": False, "resume_pending": False, "resume_reason": None, "is_fresh_reset": False, "was_auto_reset": False}
    counts = {f"{name}_tokens": 0 for name in ("input", "output", "cache_read", "cache_write", "total", "last_prompt")}
    entries = {}
    for number in range(sessions):
        key = f"agent:main:telegram:dm:{number}"
        origin = {"platform": "telegram", "chat_id": str(number), "chat_name": f"Person {number}", "chat_type": "dm"}
        origin |= {"user_id": str(number), "user_name": f"Person {number}", "thread_id": None, "chat_topic": None}
        at = datetime.datetime.fromtimestamp(1779000000 + number * 7919 % 10**6, datetime.timezone.utc).replace(tzinfo=None).isoformat()
        names = {"session_key": key, "session_id": f"s{number}", "created_at": at, "updated_at": at, "display_name": f"Person {number}"}
        entries[key] = {**names, "platform": "telegram", "chat_type": "dm", **counts, **sample, "origin": origin}
    (home / "sessions/sessions.json").write_text(json.dumps(entries, indent=2))


def main():
    verb, home, *rest = sys.argv[1:]
    home = pathlib.Path(home)
    {"upgrade": upgrade, "random": lambda h, s: random_home(h, int(s)), "hold": hold, "big": lambda h, s, m: big(h, int(s), int(m)), "bigfile": lambda h, s: big_file(h, int(s))}[verb](home, *rest)


if __name__ == "__main__":
    main()
