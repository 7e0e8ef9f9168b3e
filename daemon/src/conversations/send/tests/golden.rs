//! The recorded answers and requests of the reference against ours.

use super::*;

/// Where ours differs on purpose: the case, the member, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("send_messages_send_00.json", "error", "names channels_list, which MCP clients have"),
    ("send_messages_send_08.json", "error", "names channels_list, which MCP clients have"),
    ("messages_send_06.json", "error", "names channels_list, which MCP clients have"),
    ("messages_send_08.json", "error", "names channels_list, which MCP clients have"),
    ("messages_send_06.json", "candidates", "an unresolvable name lists what may have been meant"),
    ("messages_send_08.json", "candidates", "an unresolvable name lists what may have been meant"),
    ("send_messages_send_12.json", "warnings", "a file that is left out is said and not dropped in silence"),
];

fn cases(prefix: &str) -> Vec<(String, Value)> {
    let mut cases: Vec<(String, Value)> = std::fs::read_dir(golden_tests::golden())
        .unwrap()
        .map(|item| item.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
        })
        .filter(|(name, _): &(String, Value)| name.starts_with(prefix))
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

fn compare(name: &str, case: &Value, mut ours: Value, is_error: bool) {
    let mut expected: Value = match serde_json::from_str(case["result_text"].as_str().unwrap()) {
        Ok(expected) => expected,
        Err(_) => {
            assert!(is_error, "{name}");
            return;
        }
    };
    assert_eq!(is_error, expected.get("error").is_some(), "{name}: {ours}");
    for (_, member, _) in DIFFERENT.iter().filter(|(case, ..)| *case == name) {
        assert_ne!(ours.get(member), expected.get(member), "{name}: {member} does not differ any more");
        ours.as_object_mut().unwrap().remove(*member);
        expected.as_object_mut().unwrap().remove(*member);
    }
    assert_eq!(ours, expected, "{name}");
}

#[tokio::test]
async fn answers_without_any_platform_are_the_recorded_ones() {
    let empty = World::friendly();
    for file in ["channel_directory.json", "state.db", "sessions/sessions.json"] {
        std::fs::remove_file(empty.home.path().join(file)).unwrap();
    }
    for (prefix, world) in [("messages_send_", World::friendly()), ("empty_messages_send_", empty)] {
        world.configure(|messaging| messaging.platforms.clear());
        let cases = cases(prefix);
        assert!(!cases.is_empty());
        for (name, case) in cases {
            let (ours, is_error) = world.call(case["arguments"].clone()).await;
            compare(&name, &case, ours, is_error);
        }
        assert_eq!(world.api.requests().len(), 0);
    }
}

#[tokio::test]
async fn answers_and_requests_over_the_recorded_platforms_are_the_recorded_ones() {
    let cases = cases("send_messages_send_");
    assert!(cases.len() >= 7);
    for (name, case) in cases {
        let world = World::friendly();
        world.configure(|messaging| {
            messaging.platforms.retain(|name, _| !matches!(name.as_str(), "telegram" | "discord" | "slack"));
            for (platform, config) in &mut messaging.platforms {
                config.home = None;
                match platform.as_str() {
                    "signal" => {
                        config.home = Some(HomeChannel { chat_id: "+15551234567".into(), thread_id: None })
                    }
                    "homeassistant" => config.token = Some(Secret::new("hatok")),
                    "matrix" => config.token = Some(Secret::new("mxtok")),
                    _ => {}
                }
            }
        });
        let (ours, is_error) = world.call(case["arguments"].clone()).await;
        compare(&name, &case, ours, is_error);
        let requests = world.api.requests();
        let recorded = case["http_requests"].as_array().unwrap();
        assert_eq!(requests.len(), recorded.len(), "{name}");
        for (ours, theirs) in requests.iter().zip(recorded) {
            assert_eq!(ours.method, theirs["method"], "{name}");
            let mut path = theirs["path"].as_str().unwrap().to_owned();
            let mut own_path = ours.path.clone();
            // Transaction ids are random.
            if let Some(at) = path.find("/hermes_") {
                path.truncate(at);
                own_path.truncate(own_path.find("/hermes_").unwrap());
            }
            assert_eq!(own_path, path, "{name}");
            for (header, value) in theirs["headers"].as_object().unwrap() {
                assert_eq!(ours.header(header), value.as_str(), "{name}");
            }
            let (mut body, mut expected) = (ours.json(), theirs["body"].clone());
            for body in [&mut body, &mut expected] {
                if body.get("jsonrpc").is_some() {
                    assert!(body["id"].as_str().unwrap().starts_with("send_"), "{name}");
                    body.as_object_mut().unwrap().remove("id");
                }
            }
            assert_eq!(body, expected, "{name}");
        }
    }
}

#[test]
fn every_difference_belongs_to_a_case_and_has_a_reason() {
    for (name, _, reason) in DIFFERENT {
        assert!(golden_tests::golden().join(name).exists(), "{name}");
        assert!(!reason.is_empty());
    }
}
