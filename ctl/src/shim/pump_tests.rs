//! The pump against a scripted daemon and client, in memory.

use super::*;
use hermes_proto::shim::hello::Only;
use proptest::prelude::*;

const INIT: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
const FRESH: &str = r#"hermes-mcp/1 {"answer":"ok","version":"1","id_prefix":"p","resumed":false}"#;
const RESUMED: &str = r#"hermes-mcp/1 {"answer":"ok","version":"1","id_prefix":"q","resumed":true}"#;

fn hello() -> Hello {
    Hello {
        home: "/h".into(),
        version: "1".into(),
        profile: "default".into(),
        only: Only::All,
        client_pid: 1,
        resume: None,
    }
}

fn client(pump: &mut Pump, text: &str) {
    let mut bytes = text.as_bytes();
    while !bytes.is_empty() {
        let n = pump.client_room().len().min(bytes.len());
        pump.client_room()[..n].copy_from_slice(&bytes[..n]);
        pump.client_filled(n);
        bytes = &bytes[n..];
    }
}

fn daemon(pump: &mut Pump, text: &str) -> Option<Greeting> {
    let (mut bytes, mut said) = (text.as_bytes(), None);
    while !bytes.is_empty() {
        let n = pump.daemon_room().len().min(bytes.len());
        pump.daemon_room()[..n].copy_from_slice(&bytes[..n]);
        said = pump.daemon_filled(n).or(said);
        bytes = &bytes[n..];
    }
    said
}

/// Everything the daemon would read now.
fn sent(pump: &mut Pump) -> String {
    let out = String::from_utf8(pump.to_daemon().to_vec()).unwrap();
    pump.daemon_took(out.len());
    out
}

/// Everything the client would read now.
fn shown(pump: &mut Pump) -> String {
    let out = String::from_utf8(pump.to_client().to_vec()).unwrap();
    pump.client_took(out.len());
    out
}

fn connected(welcome: &str) -> Pump {
    let mut pump = Pump::new();
    connect(&mut pump, welcome);
    pump
}

fn connect(pump: &mut Pump, welcome: &str) -> String {
    pump.greet(hello());
    let said = sent(pump);
    assert!(matches!(daemon(pump, &format!("{welcome}\n")), Some(Greeting::Welcome { .. })));
    said
}

#[test]
fn lines_wait_for_the_welcome_and_then_pass_unchanged() {
    let mut pump = Pump::new();
    client(&mut pump, &format!("{INIT}\r\n\n"));
    pump.greet(hello());
    assert!(sent(&mut pump).starts_with("hermes-mcp/1 {\"home\":\"/h\""));
    assert_eq!(sent(&mut pump), "");
    daemon(&mut pump, &format!("{FRESH}\n"));
    assert_eq!(sent(&mut pump), format!("{INIT}\r\n"));
    daemon(
        &mut pump,
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n#resume abc\n{\"jsonrpc\":\"2.0\",\"meth",
    );
    assert_eq!(shown(&mut pump), "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n");
}

#[test]
fn a_call_in_flight_ends_with_outcome_unknown_and_is_not_sent_again() {
    let mut pump = connected(FRESH);
    client(&mut pump, &format!("{CALL}\n{LIST}\n"));
    sent(&mut pump);
    pump.lost();
    let answer = shown(&mut pump);
    assert!(answer.contains("\"id\":1") && answer.contains("\"hermes/delivery\":\"unknown\""), "{answer}");
    assert_eq!(answer.lines().count(), 1);
    connect(&mut pump, RESUMED);
    assert_eq!(sent(&mut pump), format!("{LIST}\n"));
    daemon(&mut pump, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n");
    assert!(!pump.has_work());
}

#[test]
fn a_call_that_was_never_written_whole_is_sent_after_the_reconnect() {
    let mut pump = connected(FRESH);
    client(&mut pump, &format!("{CALL}\n"));
    pump.daemon_took(CALL.len() - 1);
    pump.lost();
    assert_eq!(shown(&mut pump), "");
    connect(&mut pump, RESUMED);
    assert_eq!(sent(&mut pump), format!("{CALL}\n"));
}

#[test]
fn a_cut_line_of_a_lost_daemon_never_reaches_the_client() {
    let mut pump = connected(FRESH);
    daemon(&mut pump, "{\"jsonrpc\":\"2.0\",\"method\":\"a\"}\n{\"jsonrpc\":\"2.0\",\"me");
    pump.lost();
    connect(&mut pump, RESUMED);
    daemon(&mut pump, "{\"jsonrpc\":\"2.0\",\"method\":\"b\"}\n");
    assert_eq!(
        shown(&mut pump),
        "{\"jsonrpc\":\"2.0\",\"method\":\"a\"}\n{\"jsonrpc\":\"2.0\",\"method\":\"b\"}\n"
    );
}

#[test]
fn the_resume_string_goes_back_in_the_next_hello() {
    let mut pump = connected(FRESH);
    daemon(&mut pump, "#resume v1.xyz\n#future thing\n");
    assert_eq!(shown(&mut pump), "");
    pump.lost();
    assert!(connect(&mut pump, RESUMED).contains("\"resume\":\"v1.xyz\""));
}

#[test]
fn a_daemon_that_forgot_the_session_gets_it_opened_again_behind_the_clients_back() {
    let mut pump = connected(FRESH);
    client(&mut pump, &format!("{INIT}\n"));
    sent(&mut pump);
    daemon(&mut pump, "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"a\":1}}\n");
    shown(&mut pump);
    client(&mut pump, &format!("{LIST}\n"));
    sent(&mut pump);
    for _ in 0..3 {
        pump.lost();
        connect(&mut pump, FRESH);
        // Lost again before, while and after the repeated lines were written: never doubled.
        pump.daemon_took(INIT.len() / 2);
    }
    pump.lost();
    connect(&mut pump, FRESH);
    let up = sent(&mut pump);
    let lines: Vec<&str> = up.lines().collect();
    assert_eq!(lines, [INIT, std::str::from_utf8(answers::INITIALIZED).unwrap(), LIST]);
    shown(&mut pump);
    daemon(
        &mut pump,
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"a\":2}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n",
    );
    assert_eq!(shown(&mut pump), "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n");
    assert!(!pump.has_work());
}

#[test]
fn a_refusal_answers_waiting_and_later_requests_with_its_message() {
    let mut pump = Pump::new();
    client(&mut pump, &format!("{INIT}\n"));
    pump.greet(hello());
    sent(&mut pump);
    let refusal = r#"hermes-mcp/1 {"answer":"refused","code":"home","message":"other home"}"#;
    let said = daemon(&mut pump, &format!("{refusal}\n"));
    assert_eq!(said, Some(Greeting::Refused { code: "home".into(), message: "other home".into() }));
    pump.refuse("other home");
    client(&mut pump, &format!("{LIST}\n{{\"jsonrpc\":\"2.0\",\"method\":\"n\"}}\n"));
    let out = shown(&mut pump);
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(out.lines().all(|l| l.contains("other home")));
    assert_eq!(sent(&mut pump), "");
}

#[test]
fn after_giving_up_each_request_has_an_answer_and_new_ones_wait_for_a_daemon() {
    let mut pump = Pump::new();
    client(&mut pump, &format!("{CALL}\n{LIST}\nhalf"));
    pump.fail_waiting("no daemon");
    assert_eq!(shown(&mut pump).lines().count(), 2);
    assert!(!pump.has_work());
    client(&mut pump, "way\n");
    connect(&mut pump, FRESH);
    assert_eq!(sent(&mut pump), "halfway\n");
}

#[test]
fn a_cancelled_request_is_not_answered_after_a_loss() {
    let mut pump = connected(FRESH);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    client(&mut pump, &format!("{CALL}\n{cancel}\n"));
    sent(&mut pump);
    pump.lost();
    assert_eq!(shown(&mut pump), "");
}

#[test]
fn neither_side_piles_up_without_bound() {
    let mut pump = connected(FRESH);
    let note = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n", "n".repeat(10_000));
    let mut up = 0;
    while pump.wants_client() {
        client(&mut pump, &note);
        up += 1;
        assert!(up < 200, "the daemon does not read, yet the client is read on");
    }
    let mut down = 0;
    while pump.wants_daemon() {
        daemon(&mut pump, &note);
        down += 1;
        assert!(down < 1000, "the client does not read, yet the daemon is read on");
    }
    assert!(!pump.wants_client() && !pump.wants_daemon());
    sent(&mut pump);
    assert!(pump.wants_client(), "a client that does not read can still be heard");
}

#[test]
fn a_message_over_the_limit_is_answered_and_the_stream_goes_on() {
    let mut pump = connected(FRESH);
    client(&mut pump, &"x".repeat(DEFAULT_MAX_LINE));
    client(&mut pump, &format!("y\n{LIST}\n"));
    let answer = shown(&mut pump);
    assert!(answer.contains("-32600") && answer.contains("\"id\":null"), "{answer}");
    assert_eq!(sent(&mut pump), format!("{LIST}\n"));
    // With an id at its front the request itself is answered, not a stranger.
    client(&mut pump, r#"{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"t":""#);
    client(&mut pump, &"x".repeat(DEFAULT_MAX_LINE));
    client(&mut pump, "\"}}\n");
    assert!(shown(&mut pump).contains("\"id\":\"big\""));
}

#[test]
fn the_last_line_counts_without_its_newline() {
    let mut pump = connected(FRESH);
    client(&mut pump, LIST);
    assert_eq!(sent(&mut pump), "");
    pump.client_ended();
    assert!(!pump.is_handed_over());
    assert_eq!(sent(&mut pump), format!("{LIST}\n"));
    assert!(pump.is_handed_over());
}

proptest! {
    /// Whatever is cut where, and however often the daemon is lost: every request gets one answer.
    #[test]
    fn each_request_gets_exactly_one_answer(
        calls in proptest::collection::vec(any::<bool>(), 1..12),
        steps in proptest::collection::vec((0u8..4, 1usize..120), 1..60),
    ) {
        let mut pump = Pump::new();
        let text: String = calls.iter().enumerate().map(|(id, call)| {
            let method = if *call { "tools/call" } else { "tools/list" };
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"}}\n")
        }).collect();
        let mut input = text.as_str();
        let mut heard = String::new(); // by the daemon, on this connection
        let mut runs = vec![0; calls.len()];
        let mut up = false;
        let mut answers = String::new();
        let end = [(0, 9999), (1, 0), (2, 9999), (3, 9999)];
        for (what, n) in steps.into_iter().chain(end) {
            match what {
                0 => {
                    let n = n.min(input.len());
                    client(&mut pump, &input[..n]);
                    input = &input[n..];
                }
                1 if up && n > 60 => { pump.lost(); up = false; heard.clear(); }
                1 if !up => { connect(&mut pump, RESUMED); up = true; }
                2 if up => {
                    let n = n.min(pump.to_daemon().len());
                    heard.push_str(std::str::from_utf8(&pump.to_daemon()[..n]).unwrap());
                    pump.daemon_took(n);
                }
                3 if up => {
                    while let Some((line, rest)) = heard.split_once('\n') {
                        let value: serde_json::Value = serde_json::from_str(line).unwrap();
                        let id = value["id"].as_u64().unwrap();
                        runs[usize::try_from(id).unwrap()] += 1;
                        heard = rest.to_owned();
                        daemon(&mut pump, &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n"));
                    }
                }
                _ => {}
            }
            answers.push_str(&shown(&mut pump));
        }
        let mut got = vec![0; calls.len()];
        for line in answers.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            got[usize::try_from(value["id"].as_u64().unwrap()).unwrap()] += 1;
        }
        prop_assert_eq!(got, vec![1; calls.len()]);
        for (id, call) in calls.iter().enumerate() {
            prop_assert!(!*call || runs[id] <= 1, "call {} ran {} times", id, runs[id]);
        }
    }
}

#[test]
fn questions_of_a_lost_daemon_are_taken_back_once() {
    let mut pump = connected(FRESH);
    let ask = |n: u32| {
        format!(
            "{{\"method\":\"elicitation/create\",\"jsonrpc\":\"2.0\",\"id\":\"p-{n}\",\"params\":{{}}}}\n"
        )
    };
    for n in 1..=3 {
        daemon(&mut pump, &ask(n));
    }
    assert_eq!(shown(&mut pump), [ask(1), ask(2), ask(3)].concat());
    client(&mut pump, "{\"jsonrpc\":\"2.0\",\"id\":\"p-1\",\"result\":{}}\n");
    assert!(sent(&mut pump).contains("p-1"));
    let back =
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"p-2\"}}\n";
    daemon(&mut pump, back);
    assert_eq!(shown(&mut pump), back);
    pump.lost();
    let lines = shown(&mut pump);
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.contains("notifications/cancelled") && lines.contains("\"requestId\":\"p-3\""), "{lines}");
    pump.lost();
    assert_eq!(shown(&mut pump), "");
}
