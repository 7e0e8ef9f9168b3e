//! Registering and undoing on texts as the clients write them.

use super::*;
use crate::clients::table::Format;
use proptest::prelude::*;

fn shim() -> Shim {
    Shim { program: "/home/u/.local/bin/hermesctl".into(), home: None, profile: None }
}

fn doc(client: Client, text: &str) -> Doc {
    Doc::parse(text.as_bytes(), client.format(), &[client.key()]).unwrap()
}

fn registered(client: Client, text: &str, remove: &[&str]) -> (Record, Doc) {
    let before = doc(client, text);
    let remove: Vec<String> = remove.iter().map(|name| (*name).to_owned()).collect();
    let plan = plan(&before, None, "hermes", &shim().entry(client), &remove, &|_| None).unwrap();
    let Plan::Write(change) = plan else { panic!("{plan:?}") };
    let record = Record {
        client: client.word().into(),
        file: "/f".into(),
        name: "hermes".into(),
        created: false,
        folders: vec![],
        replaced: remove,
        cut: change.cut(),
    };
    (record, change.after)
}

const CURSOR: &str = "{\n  // mine\n  \"mcpServers\": {\n    \"gh\": { \"command\": \"npx\", \"args\": [\"x\"] }, // why\n    /* two */\n    \"web\": {\n      \"url\": \"https://x\",\n    },\n  },\n}\n";
const CODEX: &str = "# top\nmodel = \"o\"\n\n[mcp_servers.gh]\ncommand = \"npx\"\nargs = [\n  \"-y\", # c\n]\n\n[mcp_servers.gh.env]\nA = \"b\"\n\n# about web\n[mcp_servers.web]\nurl = \"https://x\"\n\n[tui]\ntheme = \"x\"\n";

#[test]
fn undo_gives_the_bytes_of_before_in_every_format() {
    let claude = "{\"numStartups\":3,\"mcpServers\":{},\"projects\":{\"/p\":{\"mcpServers\":{}}}}";
    let cases = [
        (Client::Cursor, CURSOR),
        (Client::Cursor, ""),
        (Client::Cursor, "{}"),
        (Client::Cursor, "{\r\n\t\"mcpServers\": {\r\n\t}\r\n}"),
        (Client::ClaudeCode, claude),
        (Client::VsCode, "\u{feff}{\n    \"inputs\": [],\n    \"servers\": {\"a\": {\"command\": \"x\"}}\n}"),
        (Client::Zed, "// settings\n{\n  \"theme\": \"x\"\n}\n"),
        (Client::Codex, CODEX),
        (Client::Codex, "model = \"o\""),
        (Client::Codex, "mcp_servers = { gh = { command = \"x\" } }\n"),
    ];
    for (client, text) in cases {
        let (record, after) = registered(client, text, &[]);
        assert!(after.servers().contains_key("hermes"), "{}", after.text());
        let undone = undo(&after, Some(&record), "hermes", &|_| None).unwrap();
        let Undo::Exact(before) = undone else { panic!("{undone:?}") };
        assert_eq!(String::from_utf8(before.bytes()).unwrap(), text);
    }
}

#[test]
fn what_was_replaced_comes_back_with_its_comments() {
    for (client, text) in [(Client::Cursor, CURSOR), (Client::Codex, CODEX)] {
        let (record, after) = registered(client, text, &["gh"]);
        let names: Vec<String> = after.servers().keys().cloned().collect();
        assert_eq!(names, ["web", "hermes"], "{}", after.text());
        for kept in ["// mine", "/* two */", "# top", "# about web"] {
            assert!(!text.contains(kept) || after.text().contains(kept), "{kept}:\n{}", after.text());
        }
        let undone = undo(&after, Some(&record), "hermes", &|_| None).unwrap();
        let Undo::Exact(before) = undone else { panic!("{undone:?}") };
        assert_eq!(before.text(), text);
    }
}

#[test]
fn other_changes_of_the_file_survive_an_undo() {
    let (record, after) = registered(Client::Cursor, CURSOR, &[]);
    let edited = after.edit(&Edit::Put("later".into(), json!({"command": "y"}))).unwrap();
    let undone = undo(&edited, Some(&record), "hermes", &|_| None).unwrap();
    let (Undo::Exact(left) | Undo::TakenOut(left)) = undone else { panic!("nothing was undone") };
    assert_eq!(left.servers().keys().collect::<Vec<_>>(), ["gh", "web", "later"]);
    assert!(left.text().contains("// mine") && left.text().contains("/* two */"));
    // The client wrote the whole file anew.
    let rewritten = doc(Client::Cursor, &serde_json::to_string(after.whole()).unwrap());
    let undone = undo(&rewritten, Some(&record), "hermes", &|_| None).unwrap();
    let Undo::TakenOut(left) = undone else { panic!("{undone:?}") };
    assert_eq!(left.servers().keys().collect::<Vec<_>>(), ["gh", "web"]);
    assert_eq!(undo(&left, Some(&record), "hermes", &|_| None).unwrap(), Undo::Nothing);
}

#[test]
fn a_second_time_changes_nothing_and_another_profile_keeps_the_way_back() {
    let (record, after) = registered(Client::Cursor, CURSOR, &[]);
    let again = plan(&after, Some(&record), "hermes", &shim().entry(Client::Cursor), &[], &|_| None).unwrap();
    assert_eq!(again, Plan::Already("hermes".into()));
    let other = Shim { profile: Some("work".into()), ..shim() };
    let entry = other.entry(Client::Cursor);
    let Plan::Write(change) = plan(&after, Some(&record), "hermes", &entry, &[], &|_| None).unwrap() else {
        panic!("the profile was not taken up")
    };
    assert!(change.updates);
    assert_eq!(change.base.text(), CURSOR);
    assert_eq!(change.after.servers()["hermes"]["args"], json!(["mcp", "serve", "--profile", "work"]));
}

#[test]
fn another_server_of_the_name_is_left_alone_and_hermes_agents_own_is_replaced() {
    let foreign = doc(Client::Cursor, r#"{"mcpServers": {"hermes": {"command": "other"}}}"#);
    let entry = shim().entry(Client::Cursor);
    let refused = plan(&foreign, None, "hermes", &entry, &[], &|_| None);
    assert_eq!(refused, Err(RegisterError::NameTaken { name: "hermes".into() }));
    let python = r#"{"mcpServers": {"hermes": {"command": "hermes", "args": ["mcp", "serve"]}}}"#;
    let (record, after) = registered(Client::Cursor, python, &[]);
    assert_eq!(after.servers()["hermes"], entry);
    let Undo::Exact(before) = undo(&after, Some(&record), "hermes", &|_| None).unwrap() else { panic!() };
    assert_eq!(before.text(), python);
}

/// JSON with comments and odd white space wherever they may stand.
fn jsonc() -> impl Strategy<Value = String> {
    let gap = prop_oneof![
        Just(String::new()),
        Just(" ".to_owned()),
        Just("\n    ".to_owned()),
        Just(" // c{ , }\n  ".to_owned()),
        Just(" /* \"d\": , */ ".to_owned()),
        Just("\n".to_owned()),
    ];
    let member = (gap.clone(), gap.clone(), gap.clone(), gap.clone(), any::<bool>());
    (proptest::collection::vec(member, 0..4), gap.clone(), gap.clone(), any::<bool>()).prop_map(
        |(members, open, close, trailing)| {
            let last = members.len();
            let inner: String = members
                .into_iter()
                .enumerate()
                .map(|(at, (a, b, c, d, nested))| {
                    let value = if nested { "{ \"command\": \"x\",\n \"args\": [1] }" } else { "{}" };
                    let comma = if at + 1 < last || trailing { "," } else { "" };
                    format!("{a}\"s{at}\"{b}:{c}{value}{d}{comma}")
                })
                .collect();
            format!("{{{open}\"mcpServers\":{{{inner}{close}}}{close}}}{open}")
        },
    )
}

fn comments(text: &str) -> usize {
    text.matches("// c").count() + text.matches("/* \"d\"").count()
}

proptest! {
    #[test]
    fn every_comment_is_still_there_and_undo_is_exact(text in jsonc()) {
        let (record, after) = registered(Client::Cursor, &text, &[]);
        prop_assert_eq!(comments(after.text()), comments(&text), "{}", after.text());
        let Undo::Exact(before) = undo(&after, Some(&record), "hermes", &|_| None).unwrap() else { panic!() };
        prop_assert_eq!(before.text(), text.as_str());
        // Without the record the entry alone goes, and no comment with it.
        let Undo::TakenOut(left) = undo(&after, None, "hermes", &|_| None).unwrap() else { panic!() };
        prop_assert_eq!(left.servers(), before.servers());
        prop_assert_eq!(comments(left.text()), comments(&text), "{}", left.text());
    }

    #[test]
    fn any_server_can_be_taken_out_and_comments_beside_it_stay(text in jsonc(), at in 0usize..4) {
        let before = Doc::parse(text.as_bytes(), Format::Json, &["mcpServers"]).unwrap();
        let name = format!("s{at}");
        if before.servers().contains_key(&name) {
            let after = before.edit(&Edit::Remove(name.clone())).unwrap();
            prop_assert!(!after.servers().contains_key(&name));
        }
    }
}
