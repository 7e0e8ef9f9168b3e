//! The wire against scripted peers over real pipes.

use super::questions::{Front, Unasked};
use super::task::Wire;
use super::*;
use crate::jsonrpc::reply::Reply;
use crate::names::ServerName;
use crate::tasks::TaskGroup;
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

struct Peer {
    input: tokio::io::Lines<BufReader<pipe::Receiver>>,
    output: Option<pipe::Sender>,
    facts: mpsc::Receiver<Fact>,
    stop: CancellationToken,
}

fn connect(limits: WireLimits) -> (WireHandle, Peer, tokio::task::JoinHandle<EndReason>) {
    let (stdin, input) = pipe::pipe().unwrap();
    let (output, stdout) = pipe::pipe().unwrap();
    let (facts_in, facts) = mpsc::channel(16);
    let stop = CancellationToken::new();
    let (handle, task) =
        Wire::start(Generation(1), (stdin, stdout), facts_in, limits, stop.clone(), &TaskGroup::new());
    let input = BufReader::with_capacity(1 << 20, input).lines();
    (handle, Peer { input, output: Some(output), facts, stop }, task)
}

impl Peer {
    async fn heard(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.input.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn say(&mut self, line: &str) {
        let output = self.output.as_mut().unwrap();
        output.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
}

fn call(progress: Progress) -> Request {
    let params = RawValue::from_string(r#"{"name":"t","arguments":{"b":1.0,"a":2}}"#.into()).unwrap();
    let idle = Duration::from_secs(10);
    Request { method: "tools/call".into(), params: Some(params), idle, cap: idle * 10, progress }
}

fn result_of(outcome: Result<Answer, WireError>) -> String {
    match outcome {
        Ok(Answer::Result(raw) | Answer::Error(raw)) => raw.get().to_owned(),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn bodies_pass_byte_for_byte_with_our_id_and_token() {
    let (wire, mut peer, _task) = connect(WireLimits::default());
    let flight = wire.request(call(Progress::Unwanted)).unwrap();
    let line = peer.input.next_line().await.unwrap().unwrap();
    assert_eq!(
        line,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"b":1.0,"a":2},"_meta":{"progressToken":1}}}"#
    );
    peer.say(r#"{"jsonrpc":"2.0","id":1,"result":{"x":1.0,"n":12345678901234567890}}"#).await;
    assert_eq!(result_of(flight.done().await), r#"{"x":1.0,"n":12345678901234567890}"#);
}

#[tokio::test]
async fn progress_comes_before_the_result_and_strangers_tokens_go_nowhere() {
    let (wire, mut peer, _task) = connect(WireLimits::default());
    let mut flight = wire.request(call(Progress::Wanted)).unwrap();
    peer.heard().await;
    for (token, value) in [("1", 1), ("99", 2), ("\"made-up\"", 3), ("1", 4)] {
        let params = format!(r#"{{"progressToken":{token},"progress":{value}}}"#);
        peer.say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#))
            .await;
    }
    peer.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    let mut seen = Vec::new();
    loop {
        match flight.next().await {
            CallEvent::Progress(params) => seen.push(params.get().to_owned()),
            CallEvent::Asked(question) => panic!("{question:?}"),
            CallEvent::Done(outcome) => {
                assert_eq!(result_of(outcome), "{}");
                break;
            }
        }
    }
    assert_eq!(seen, [r#"{"progressToken":1,"progress":1}"#, r#"{"progressToken":1,"progress":4}"#]);
    assert_eq!(wire.stats().stray_messages.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_upstream_and_its_late_answer_is_dropped() {
    let (wire, mut peer, _task) = connect(WireLimits::default());
    let kept = wire.request(call(Progress::Unwanted)).unwrap();
    let dropped = wire.request(call(Progress::Unwanted)).unwrap();
    peer.heard().await;
    peer.heard().await;
    drop(dropped);
    let cancelled = peer.heard().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], 2);
    peer.say(r#"{"id":2,"result":{"late":true}}"#).await;
    peer.say(r#"{"id":1,"result":{}}"#).await;
    assert_eq!(result_of(kept.done().await), "{}");
}

#[tokio::test]
async fn a_cancel_carries_its_reason() {
    let (wire, mut peer, _task) = connect(WireLimits::default());
    let flight = wire.request(call(Progress::Unwanted)).unwrap();
    peer.heard().await;
    flight.cancel("user pressed escape");
    assert_eq!(peer.heard().await["params"]["reason"], "user pressed escape");
}

#[tokio::test]
async fn the_end_of_the_server_fails_everything_pending_and_delivers_what_was_answered() {
    let (wire, mut peer, task) = connect(WireLimits::default());
    let answered = wire.request(call(Progress::Unwanted)).unwrap();
    let open = wire.request(call(Progress::Unwanted)).unwrap();
    peer.heard().await;
    peer.heard().await;
    peer.say(r#"{"id":1,"result":{"last":"words"}}"#).await;
    peer.output = None;
    assert_eq!(task.await.unwrap(), EndReason::Eof);
    assert_eq!(result_of(answered.done().await), r#"{"last":"words"}"#);
    assert_eq!(open.done().await.unwrap_err(), WireError::Gone { delivery: Delivery::MaybeWritten });
    let late = wire.request(call(Progress::Unwanted)).unwrap_err();
    assert_eq!(late, WireError::Gone { delivery: Delivery::NotWritten });
}

#[tokio::test]
async fn stop_ends_the_task_though_somebody_else_holds_stdout() {
    let (wire, mut peer, task) = connect(WireLimits::default());
    let open = wire.request(call(Progress::Unwanted)).unwrap();
    peer.heard().await;
    peer.stop.cancel();
    assert_eq!(task.await.unwrap(), EndReason::Stopped);
    assert!(matches!(open.done().await, Err(WireError::Gone { .. })));
    assert!(peer.input.next_line().await.unwrap().is_none(), "stdin must be closed");
}

#[tokio::test]
async fn noise_big_lines_and_oversized_lines_cost_nothing_but_themselves() {
    let limits = WireLimits { max_line: 8 * 1024 * 1024, ..WireLimits::default() };
    let (wire, mut peer, _task) = connect(limits);
    let first = wire.request(call(Progress::Unwanted)).unwrap();
    let second = wire.request(call(Progress::Unwanted)).unwrap();
    peer.heard().await;
    peer.heard().await;
    peer.say("Server listening on stdio").await;
    let text = "x".repeat(5 * 1024 * 1024);
    peer.say(&format!(r#"{{"id":1,"result":{{"t":"{text}"}}}}"#)).await;
    peer.say(&"y".repeat(9 * 1024 * 1024)).await;
    peer.say(r#"{"id":2,"result":{}}"#).await;
    assert_eq!(result_of(first.done().await).len(), text.len() + 8);
    assert_eq!(result_of(second.done().await), "{}");
    assert_eq!(wire.stats().noise_lines.load(Ordering::Relaxed), 1);
    assert_eq!(wire.stats().oversized_lines.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn both_sides_writing_large_messages_do_not_lock_up() {
    let (wire, mut peer, _task) = connect(WireLimits::default());
    let text = format!(r#"{{"t":"{}"}}"#, "x".repeat(2 * 1024 * 1024));
    let params = RawValue::from_string(text.clone()).unwrap();
    let flight = wire.request(Request { params: Some(params), ..call(Progress::Unwanted) }).unwrap();
    // The peer answers in full before it reads a single byte.
    peer.say(&format!(r#"{{"id":1,"result":{text}}}"#)).await;
    assert_eq!(result_of(flight.done().await).len(), text.len());
    assert_eq!(peer.heard().await["params"]["t"].as_str().unwrap().len(), 2 * 1024 * 1024);
}

#[tokio::test]
async fn requests_of_the_server_are_answered_at_once() {
    let (_wire, mut peer, _task) = connect(WireLimits::default());
    peer.say(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
    peer.say(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#).await;
    peer.say(r#"{"jsonrpc":"2.0","id":8,"method":"sampling/createMessage","params":{}}"#).await;
    let ping = peer.heard().await;
    assert_eq!((&ping["id"], &ping["result"]), (&"p".into(), &serde_json::json!({})));
    assert_eq!(peer.heard().await["result"], serde_json::json!({"roots": []}));
    assert_eq!(peer.heard().await["error"]["code"], -32601);
    assert!(matches!(peer.facts.recv().await, Some(Fact::Declined(_))));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_call_with_the_limit_and_tells_the_server() -> io::Result<()> {
    let (wire, mut peer, _task) = connect(WireLimits::default());
    let flight = wire.request(call(Progress::Unwanted)).unwrap();
    peer.heard().await;
    let error = flight.done().await.unwrap_err();
    assert!(
        matches!(error, WireError::IdleTimeout { limit, .. } if limit == Duration::from_secs(10)),
        "{error}"
    );
    assert_eq!(peer.heard().await["method"], "notifications/cancelled");
    Ok(())
}

/// Limits of an instance that serves one client alone, and that client's end.
fn alone() -> (WireLimits, mpsc::Receiver<Unasked>) {
    let (sender, asked) = mpsc::channel(2);
    let front = Front::default();
    front.serve(ServerName::new("s"), sender);
    (WireLimits { front, ..WireLimits::default() }, asked)
}

fn reply(text: &str) -> Reply {
    Reply::Result(RawValue::from_string(text.to_owned()).unwrap())
}

#[tokio::test]
async fn a_question_reaches_the_one_client_of_the_instance_and_its_answer_the_server() {
    let (limits, mut asked) = alone();
    let (_wire, mut peer, _task) = connect(limits);
    for id in ["\"q\"", "0", "7"] {
        let params = r#"{"message":"m","x":1.0}"#;
        peer.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{params}}}"#
        ))
        .await;
        let (server, question) = asked.recv().await.unwrap();
        assert_eq!((server.as_str(), &*question.method), ("s", "elicitation/create"));
        assert_eq!(question.params.unwrap().get(), params);
        question.answer.send(reply("{\n\"action\":\"accept\"}")).unwrap();
        let line = peer.input.next_line().await.unwrap().unwrap();
        assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{ "action":"accept"}}}}"#));
    }
    let no_id = r#"{"jsonrpc":"2.0","id":[1],"method":"roots/list"}"#;
    peer.say(no_id).await;
    assert_eq!(peer.heard().await["error"]["code"], -32600);
}

#[tokio::test]
async fn a_question_ends_with_its_client_at_once_and_with_the_servers_patience_at_the_client() {
    let (limits, mut asked) = alone();
    let (_wire, mut peer, _task) = connect(limits);
    peer.say(r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#).await;
    drop(asked.recv().await.unwrap());
    assert!(peer.heard().await["error"]["message"].as_str().unwrap().contains("gone"));
    peer.say(r#"{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}"#).await;
    let (_, mut question) = asked.recv().await.unwrap();
    peer.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#).await;
    question.answer.closed().await;
    // Nothing is said about it; the next question is the next line.
    drop(asked);
    peer.say(r#"{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage"}"#).await;
    let answer = peer.heard().await;
    assert_eq!((answer["id"].as_u64(), answer["error"]["code"].as_i64()), (Some(2), Some(-32603)));
    assert!(peer.facts.try_recv().is_err(), "it was declined for lack of its client, which teaches nothing");
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_call_stands_still_while_its_client_is_asked() {
    let (limits, mut asked) = alone();
    let (wire, mut peer, _task) = connect(limits);
    let flight = wire.request(call(Progress::Unwanted)).unwrap();
    peer.heard().await;
    let begun = tokio::time::Instant::now();
    peer.say(r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#).await;
    let (_, question) = asked.recv().await.unwrap();
    tokio::time::sleep(Duration::from_secs(250)).await;
    // One that begins meanwhile waits for the same person.
    let second = wire.request(call(Progress::Unwanted)).unwrap();
    peer.heard().await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    question.answer.send(reply("{}")).unwrap();
    assert_eq!(peer.heard().await["id"], 1);
    for flight in [flight, second] {
        let error = flight.done().await.unwrap_err();
        assert!(matches!(error, WireError::IdleTimeout { .. }), "{error}");
        assert_eq!(begun.elapsed().as_secs(), 310);
    }
}
