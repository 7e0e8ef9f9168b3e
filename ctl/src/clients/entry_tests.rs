//! Entries of each client in their real shape, and what becomes of them.

use super::*;

fn around() -> Around {
    Around { user: "/u".into(), ..Around::default() }
}

fn of(client: Client, value: Value) -> Converted {
    convert(client, &value, &around()).unwrap()
}

fn entry(client: Client, value: Value) -> Value {
    Value::Object(of(client, value).entry)
}

#[test]
fn a_program_keeps_its_arguments_and_variables_and_numbers_become_text() {
    assert_eq!(
        entry(
            Client::ClaudeDesktop,
            json!({"command": "npx", "args": ["-y", "x", 8080], "env": {"PORT": 1, "DEBUG": true, "GONE": null}})
        ),
        json!({"command": "npx", "args": ["-y", "x", "8080"], "env": {"PORT": "1", "DEBUG": "true"}})
    );
}

#[test]
fn every_spelling_of_a_remote_server_is_understood() {
    let plain = json!({"url": "https://x/mcp"});
    assert_eq!(entry(Client::Windsurf, json!({"serverUrl": "https://x/mcp"})), plain);
    assert_eq!(entry(Client::Gemini, json!({"httpUrl": "https://x/mcp"})), plain);
    assert_eq!(entry(Client::ClaudeCode, json!({"type": "http", "url": "https://x/mcp"})), plain);
    assert_eq!(
        entry(Client::VsCode, json!({"type": "sse", "url": "https://x/sse", "headers": {"A": "${env:B}"}})),
        json!({"url": "https://x/sse", "transport": "sse", "headers": {"A": "${B}"}})
    );
    let error = convert(Client::VsCode, &json!({"type": "websocket", "url": "wss://x"}), &around());
    assert_eq!(error, Err(Unusable::Transport("websocket".into())));
}

#[test]
fn codex_names_of_variables_become_templates() {
    assert_eq!(
        entry(
            Client::Codex,
            json!({"url": "https://x", "bearer_token_env_var": "TOKEN", "http_headers": {"A": "b"},
                   "env_http_headers": {"X-Org": "ORG"}, "tool_timeout_sec": 30, "startup_timeout_sec": 5.5,
                   "enabled_tools": ["a"], "disabled_tools": ["b"]})
        ),
        json!({"url": "https://x", "headers": {"A": "b", "Authorization": "Bearer ${TOKEN}", "X-Org": "${ORG}"},
               "connect_timeout": "5500ms", "timeout": 30, "tools": {"include": ["a"], "exclude": ["b"]}})
    );
    let stdio =
        of(Client::Codex, json!({"command": "x", "env_vars": ["A", {"name": "B", "source": "local"}]}));
    assert_eq!(stdio.entry["env_pass"], json!(["A", "B"]));
}

#[test]
fn a_server_of_a_project_runs_in_the_project() {
    let project = Around { project: Some("/p".into()), ..around() };
    let of = |value: Value| Value::Object(convert(Client::Cursor, &value, &project).unwrap().entry);
    assert_eq!(of(json!({"command": "./run"})), json!({"command": "/p/run", "cwd": "/p"}));
    assert_eq!(of(json!({"command": "x", "cwd": "sub"})), json!({"command": "x", "cwd": "/p/sub"}));
    assert_eq!(of(json!({"command": "x", "cwd": "/abs"})), json!({"command": "x", "cwd": "/abs"}));
    let outside = convert(Client::Cursor, &json!({"command": "${workspaceFolder}/x"}), &around());
    assert!(matches!(outside, Err(Unusable::Template(TemplateError::NoProject(_)))));
}

#[test]
fn what_is_left_out_is_said() {
    let found = of(
        Client::Windsurf,
        json!({"command": "x", "disabled": true, "alwaysAllow": ["a"], "sandbox": {"a": 1}, "type": "stdio"}),
    );
    assert_eq!(Value::Object(found.entry), json!({"command": "x", "enabled": false}));
    let notes = found.notes.join("\n");
    assert!(notes.contains("alwaysAllow") && notes.contains("sandbox") && notes.contains("switched off"));
    assert!(!notes.contains("type"), "{notes}");
}

#[test]
fn zeds_older_notation_and_an_own_oauth_client_are_understood() {
    assert_eq!(
        entry(Client::Zed, json!({"command": {"path": "x", "args": ["a"], "env": {}}, "settings": {}}))["args"],
        json!(["a"])
    );
    let login = of(
        Client::Cursor,
        json!({"url": "https://x", "auth": {"CLIENT_ID": "${env:ID}", "CLIENT_SECRET": "s", "scopes": ["r"]}}),
    );
    assert_eq!(login.entry["oauth"], json!({"client_id": "${ID}", "client_secret": "s", "scope": ["r"]}));
    assert_eq!(login.entry["auth"], "oauth");
}

#[test]
fn broken_entries_say_what_is_wrong_with_them() {
    let of = |value: Value| convert(Client::Cursor, &value, &around()).unwrap_err().to_string();
    assert_eq!(of(json!("x")), "the entry is not an object");
    assert_eq!(of(json!({"args": []})), "the entry has neither a command nor an address");
    assert_eq!(of(json!({"command": "x", "args": "a b"})), "`args` is not a list");
    assert_eq!(of(json!({"command": "x", "env": {"A": []}})), "`env.A` is not a text");
}

#[test]
fn the_lines_of_a_file_of_variables_are_read_as_shells_write_them() {
    let lines = env_lines("# c\nA=1\nexport B=\"two words\"\n\nno line\nC='x'\n1D=2\n");
    let pairs: Vec<(&str, &str)> = lines.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(pairs, [("A", "1"), ("B", "two words"), ("C", "x")]);
}
