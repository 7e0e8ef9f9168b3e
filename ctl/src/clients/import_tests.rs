//! Files of each client in their real shape, and what is planned with them.

use super::*;
use serde_json::json;

fn read_as(client: Client, scope: Scope, text: &str) -> Vec<Candidate> {
    let source = Source { client, file: "/f".into(), scope };
    let cx = Surroundings {
        user: Path::new("/u"),
        resolve: &|_| None,
        read: &|path| (path == Path::new("/p/.env")).then(|| "FROM_FILE=1\nOWN=2\n".to_owned()),
    };
    read(&source, text.as_bytes(), &cx).unwrap()
}

fn planned(candidates: Vec<Candidate>, existing: Value, conflicts: Conflicts) -> Vec<Item> {
    let existing: Vec<(String, Map<String, Value>)> = existing
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, entry)| (name.clone(), entry.as_object().unwrap().clone()))
        .collect();
    let known = |name: &str| (name == "TOKEN").then(|| "ghp_0123456789abcdef".to_owned());
    plan(candidates, &existing, &known, conflicts, &|_| "cursor".to_owned())
}

fn verdicts(items: &[Item]) -> Vec<(&str, &Verdict)> {
    items.iter().map(|item| (item.name.as_str(), &item.verdict)).collect()
}

#[test]
fn a_server_that_hermesd_has_is_recognised_under_another_name() {
    let found = read_as(
        Client::Cursor,
        Scope::User,
        r#"{"mcpServers": {
            "gh": {"command": "/usr/bin/npx", "args": ["x"], "env": {"T": "ghp_0123456789abcdef"}},
            "hub": {"command": "hermesctl", "args": ["mcp", "serve"]},
            "files": {"command": "other"},
            "new": {"url": "https://n"},
            "new-again": {"url": "https://n/"},
            "broken": {"args": []}
        }}"#,
    );
    let existing = json!({
        "github": {"command": "npx", "args": ["x"], "env": {"T": "${TOKEN}"}},
        "files": {"command": "mine"},
    });
    let items = planned(found, existing, Conflicts::Skip);
    let why = "the entry has neither a command nor an address".to_owned();
    assert_eq!(
        verdicts(&items),
        [
            ("gh", &Verdict::Same("github".into())),
            ("hub", &Verdict::Own),
            ("files", &Verdict::Conflict),
            ("new", &Verdict::Add("new".into())),
            ("new-again", &Verdict::Same("new".into())),
            ("broken", &Verdict::Unusable(why)),
        ]
    );
}

#[test]
fn names_that_are_taken_are_handled_as_asked() {
    let file = r#"{"mcpServers": {"a": {"command": "x"}, "hermes": {"command": "y"}}}"#;
    let with = |conflicts| {
        let items =
            planned(read_as(Client::Cursor, Scope::User, file), json!({"a": {"command": "z"}}), conflicts);
        items.into_iter().map(|item| item.verdict).collect::<Vec<_>>()
    };
    let add = |name: &str| Verdict::Add(name.to_owned());
    assert_eq!(with(Conflicts::Skip), [Verdict::Conflict, Verdict::Conflict]);
    assert_eq!(with(Conflicts::Rename), [add("a-cursor"), add("hermes-cursor")]);
    assert_eq!(with(Conflicts::Replace), [Verdict::Replace("a".into()), add("hermes-cursor")]);
}

#[test]
fn claude_codes_servers_of_projects_run_in_their_project() {
    let found = read_as(
        Client::ClaudeCode,
        Scope::User,
        r#"{"numStartups": 3, "mcpServers": {"u": {"type": "stdio", "command": "x", "args": [], "env": {}}},
            "projects": {"/p/one": {"history": [], "mcpServers": {"l": {"type": "stdio", "command": "y"}}}, "/p/two": {}}}"#,
    );
    let entries: Vec<(&str, &str, Value)> = found
        .iter()
        .map(|c| (c.name.as_str(), c.from.as_str(), Value::Object(c.found.clone().unwrap().entry)))
        .collect();
    assert_eq!(entries[0], ("u", "Claude Code", json!({"command": "x"})));
    assert_eq!(entries[1], ("l", "Claude Code, project /p/one", json!({"command": "y", "cwd": "/p/one"})));
}

#[test]
fn a_file_of_variables_is_read_and_the_entrys_own_win() {
    let found = read_as(
        Client::VsCode,
        Scope::Project("/p".into()),
        "{ // comment\n \"servers\": {\"a\": {\"type\": \"stdio\", \"command\": \"x\", \"env\": {\"OWN\": \"1\"}, \"envFile\": \"${workspaceFolder}/.env\",},}}",
    );
    let entry = found[0].found.clone().unwrap().entry;
    assert_eq!(entry["env"], json!({"OWN": "1", "FROM_FILE": "1"}));
}

#[test]
fn secrets_move_for_what_is_taken_over_only() {
    let file = r#"{"mcpServers": {"a": {"command": "x", "env": {"A_KEY": "secret-one"}}, "b": {"command": "y", "env": {"B_KEY": "secret-two"}}}}"#;
    let mut items =
        planned(read_as(Client::Cursor, Scope::User, file), json!({"b": {"command": "z"}}), Conflicts::Skip);
    assert_eq!(items[0].secrets.len(), 1);
    let lines = move_secrets(&mut items, &BTreeMap::new());
    assert_eq!(lines, [("A_KEY".to_owned(), "secret-one".to_owned())]);
    assert_eq!(items[0].entry["env"]["A_KEY"], "${A_KEY}");
}

#[test]
fn the_client_of_an_unknown_file_is_seen_from_its_shape() {
    let of = |path: &str, text: &str| guess(Path::new(path), text.as_bytes()).map(|(client, _)| client);
    assert_eq!(of("/x/y.json", r#"{"servers": {}}"#), Some(Client::VsCode));
    assert_eq!(of("/x/y.json", r#"{"mcpServers": {}}"#), Some(Client::Cursor));
    assert_eq!(of("/x/y.json", r#"{"mcpServers": {}, "projects": {}}"#), Some(Client::ClaudeCode));
    assert_eq!(of("/x/y.toml", ""), Some(Client::Codex));
    assert_eq!(of("/p/.vscode/mcp.json", "{}"), Some(Client::VsCode));
    assert_eq!(of("/x/y.json", "{}"), None);
}
