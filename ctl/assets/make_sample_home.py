#!/usr/bin/env python3
"""Makes sample-home/, the invented conversations that `hermesctl demo` shows.

Run it in this folder after a change of the texts. The tables are the columns of Hermes Agent's
state.db (schema 13) that hold conversations; search tables are left out. Everybody is invented.
"""
import datetime
import json
import pathlib
import sqlite3

HERE = pathlib.Path(__file__).parent / "sample-home"
START = 1779000000.0
TALKS = [
    ("telegram", "dm", "1001", "Ada", None, [
        ("user", "good morning! what is on my list today?"),
        ("assistant", "Three things: the dentist at 10:30, the train tickets, and the roses want water."),
        ("user", "move the dentist to next week please"),
        ("assistant", "Done: Tuesday 14:00. They asked you to bring the old X-ray."),
    ]),
    ("discord", "channel", "2002", "garden-club", "Kim", [
        ("user", "does anyone know why my tomatoes split?"),
        ("assistant", "Usually a dry week followed by a lot of water. Mulch helps, and so does watering a little each day."),
        ("user", "that fits, it rained on Sunday 🌧️"),
    ]),
    ("slack", "channel", "C3003", "releases", "Noor", [
        ("user", "is 2.4 out?"),
        ("assistant", "Yes, since 09:12. All 14 checks were green; the notes are in the wiki."),
    ]),
    ("signal", "dm", "+15550100", "Grandpa", None, [
        ("user", "How do I send a photo with this thing?"),
        ("assistant", "Tap the + beside the text, choose the photo, then the arrow. Try it with me!"),
    ]),
]


def iso(moment):
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).replace(tzinfo=None).isoformat()


def main():
    (HERE / "sessions").mkdir(parents=True, exist_ok=True)
    for old in HERE.glob("state.db*"):
        old.unlink()
    db = sqlite3.connect(HERE / "state.db")
    db.executescript("""
        pragma page_size=1024;
        create table schema_version (version integer not null);
        insert into schema_version values (13);
        create table sessions (id text primary key, source text not null, user_id text, model text,
            parent_session_id text, started_at real not null, ended_at real, end_reason text,
            message_count integer default 0, title text);
        create table messages (id integer primary key autoincrement, session_id text not null references sessions(id),
            role text not null, content text, tool_call_id text, tool_calls text, tool_name text,
            timestamp real not null, finish_reason text, platform_message_id text, observed integer default 0);
        create index idx_messages_session on messages(session_id, timestamp);
    """)
    sessions, channels, now = {}, {}, START
    for number, (platform, kind, chat, name, speaker, lines) in enumerate(TALKS):
        session = f"20260517_07{number}000_demo000{number}"
        begun = now
        db.execute("insert into sessions (id, source, user_id, model, started_at, message_count) values (?,?,?,?,?,?)",
                   (session, platform, chat, "sample", begun, len(lines)))
        for role, text in lines:
            now += 20
            db.execute("insert into messages (session_id, role, content, timestamp) values (?,?,?,?)",
                       (session, role, text, now))
        who = speaker or name
        sessions[f"agent:main:{platform}:{kind}:{chat}"] = {
            "session_key": f"agent:main:{platform}:{kind}:{chat}", "session_id": session,
            "created_at": iso(begun), "updated_at": iso(now), "display_name": name, "platform": platform,
            "chat_type": kind, "input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
            "origin": {"platform": platform, "chat_id": chat, "chat_name": name, "chat_type": kind,
                       "user_id": chat, "user_name": who, "thread_id": None, "chat_topic": None}}
        channels[platform] = [{"id": chat, "name": name, "type": kind}]
        now += 600
    db.commit()
    db.execute("vacuum")
    db.close()
    text = json.dumps(sessions, ensure_ascii=False, indent=1) + "\n"
    (HERE / "sessions" / "sessions.json").write_text(text, encoding="utf-8")
    text = json.dumps({"updated_at": iso(now), "platforms": channels}, ensure_ascii=False, indent=1) + "\n"
    (HERE / "channel_directory.json").write_text(text, encoding="utf-8")


main()
