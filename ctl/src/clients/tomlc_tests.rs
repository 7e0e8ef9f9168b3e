//! Edits of TOML, to the byte.

use super::*;
use serde_json::json;

const PATH: [&str; 1] = ["mcp_servers"];

#[test]
fn a_table_is_added_at_the_end_and_removed_again() {
    let text = "model = \"x\" # c\n\n[tui]\na = 1\n";
    let with = insert(text, &PATH, "her mes", &json!({"command": "/a", "args": ["mcp"]})).unwrap().0;
    assert_eq!(with, format!("{text}\n[mcp_servers.\"her mes\"]\ncommand = \"/a\"\nargs = [\"mcp\"]\n"));
    assert_eq!(remove(&with, &PATH, "her mes").unwrap().0, text);
}

#[test]
fn a_header_inside_a_text_of_several_lines_is_no_header() {
    let text = "[mcp_servers.a]\ncommand = '''\n[mcp_servers.b]\n'''\n\n[mcp_servers.b]\ncommand = \"y\"\n";
    let left = remove(text, &PATH, "b").unwrap().0;
    assert_eq!(parse(&left).unwrap(), json!({"mcp_servers": {"a": {"command": "[mcp_servers.b]\n"}}}));
    let left = remove(text, &PATH, "a").unwrap().0;
    assert_eq!(parse(&left).unwrap(), json!({"mcp_servers": {"b": {"command": "y"}}}));
}

#[test]
fn inline_tables_are_edited_too() {
    let text = "mcp_servers = { a = { command = \"x\" } } # c\n";
    let with = insert(text, &PATH, "b", &json!({"command": "y"})).unwrap().0;
    assert!(with.contains("# c"), "{with}");
    assert_eq!(parse(&with).unwrap()["mcp_servers"]["b"]["command"], "y");
    assert_eq!(parse(&remove(&with, &PATH, "b").unwrap().0), parse(text));
}

#[test]
fn malformed_text_is_told_with_its_line() {
    let error = parse("a = 1\nb = \n").unwrap_err();
    assert!(matches!(error, DocError::Malformed { line: 2, .. }), "{error}");
}
