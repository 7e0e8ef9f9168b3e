//! Where lines go, and what can be read again.

use super::*;
use crate::http::line::about;
use proptest::prelude::*;

fn id(n: u64) -> IdKey {
    IdKey::Number(n.to_string().into())
}

fn post(n: u64) -> Waits {
    Waits { ids: vec![id(n)], tokens: vec![id(n)], may_ask: true, batch: false }
}

fn take(streams: &mut Streams, line: &str) -> bool {
    streams.take(Bytes::copy_from_slice(line.as_bytes()), about(line.as_bytes()))
}

/// Everything that is there for `reading`, and how it goes on.
fn all(streams: &mut Streams, reading: &mut Reading) -> (Vec<String>, Next) {
    let mut lines = Vec::new();
    loop {
        match streams.next(reading) {
            Next::Event { line, .. } => lines.push(String::from_utf8(line.to_vec()).unwrap()),
            next => return (lines, next),
        }
    }
}

fn answer(n: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{n},"result":{{}}}}"#)
}

fn progress(n: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{n},"progress":1}}}}"#
    )
}

const NEWS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
const QUESTION: &str = r#"{"method":"elicitation/create","jsonrpc":"2.0","id":"p-1","params":{}}"#;
const WITHDRAWN: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"p-1"}}"#;

#[test]
fn each_line_goes_to_the_stream_it_belongs_to() {
    let mut streams = Streams::default();
    let (mut one, mut two) = (streams.open(post(1)).unwrap(), streams.open(post(2)).unwrap());
    let mut general = streams.attach(GENERAL, 0).unwrap();
    for line in [progress(2), progress(1), answer(2), answer(1), NEWS.to_owned()] {
        assert!(take(&mut streams, &line));
    }
    assert_eq!(all(&mut streams, &mut one), (vec![progress(1), answer(1)], Next::End));
    assert_eq!(all(&mut streams, &mut two), (vec![progress(2), answer(2)], Next::End));
    assert_eq!(all(&mut streams, &mut general), (vec![NEWS.to_owned()], Next::Wait));
    assert!(
        !take(&mut streams, &answer(3))
            && !take(&mut streams, &progress(1))
            && !take(&mut streams, "#resume x")
    );
}

#[test]
fn a_question_goes_with_a_request_that_may_have_caused_it_and_so_does_its_end() {
    let mut streams = Streams::default();
    let mut general = streams.attach(GENERAL, 0).unwrap();
    let mut call = streams.open(post(1)).unwrap();
    let mut list = streams.open(Waits { may_ask: false, ..post(2) }).unwrap();
    assert!(take(&mut streams, QUESTION) && take(&mut streams, WITHDRAWN));
    assert_eq!(all(&mut streams, &mut call).0, [QUESTION, WITHDRAWN]);
    assert!(take(&mut streams, &answer(1)) && take(&mut streams, &answer(2)));
    assert!(take(&mut streams, QUESTION) && take(&mut streams, WITHDRAWN));
    assert_eq!(all(&mut streams, &mut general).0, [QUESTION, WITHDRAWN]);
    assert_eq!(all(&mut streams, &mut list).0, [answer(2)]);
}

#[test]
fn a_log_line_goes_with_the_only_open_request_or_to_whoever_listens() {
    let mut streams = Streams::default();
    let mut one = streams.open(post(1)).unwrap();
    assert!(take(&mut streams, LOG));
    assert_eq!(all(&mut streams, &mut one).0, [LOG]);
    let mut two = streams.open(post(2)).unwrap();
    assert!(take(&mut streams, LOG));
    assert_eq!(all(&mut streams, &mut two).0, [LOG], "nobody listens in general");
    let mut general = streams.attach(GENERAL, 0).unwrap();
    assert!(take(&mut streams, LOG));
    assert_eq!(all(&mut streams, &mut general).0, [LOG]);
}

#[test]
fn a_reader_that_comes_back_goes_on_behind_the_last_event_it_saw() {
    let mut streams = Streams::default();
    let mut first = streams.open(post(1)).unwrap();
    assert!(take(&mut streams, &progress(1)));
    assert!(matches!(streams.next(&mut first), Next::Event { number: 1, last: false, .. }));
    streams.detach(&first);
    assert!(take(&mut streams, &progress(1)) && take(&mut streams, &answer(1)));
    let mut second = streams.attach(first.stream, 1).unwrap();
    assert_eq!(streams.next(&mut first), Next::End, "one reader at a time");
    assert_eq!(all(&mut streams, &mut second), (vec![progress(1), answer(1)], Next::End));
    let mut again = streams.attach(first.stream, 2).unwrap();
    assert_eq!(all(&mut streams, &mut again).0, [answer(1)]);
    assert_eq!(streams.attach(first.stream, 4), None, "an event that never was");
    assert_eq!(streams.attach(99, 0), None);
}

#[test]
fn an_id_that_is_still_open_is_refused_and_may_be_used_afterwards() {
    let mut streams = Streams::default();
    let _one = streams.open(post(1)).unwrap();
    assert_eq!(streams.open(post(1)), Err(SameId));
    assert!(take(&mut streams, &answer(1)));
    streams.open(post(1)).unwrap();
}

#[test]
fn a_batch_is_answered_by_one_line_whatever_became_of_it() {
    let mut streams = Streams::default();
    let waits = Waits { ids: vec![id(1), id(2)], tokens: vec![], may_ask: true, batch: true };
    let mut batch = streams.open(waits.clone()).unwrap();
    let line = format!("[{},{}]", answer(2), answer(1));
    assert!(take(&mut streams, &line));
    assert_eq!(all(&mut streams, &mut batch), (vec![line], Next::End));
    let mut refused = streams.open(waits).unwrap();
    let line = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#;
    assert!(take(&mut streams, line));
    assert_eq!(all(&mut streams, &mut refused), (vec![line.to_owned()], Next::End));
}

#[test]
fn the_end_of_the_session_ends_every_stream_after_what_is_there() {
    let mut streams = Streams::default();
    let mut one = streams.open(post(1)).unwrap();
    assert!(take(&mut streams, &progress(1)));
    streams.end();
    assert_eq!(all(&mut streams, &mut one), (vec![progress(1)], Next::End));
}

#[test]
fn what_nobody_reads_is_bounded() {
    let mut streams = Streams::default();
    for _ in 0..3 * KEPT_NEWS {
        assert!(take(&mut streams, NEWS));
    }
    let mut general = streams.attach(GENERAL, 0).unwrap();
    assert_eq!(all(&mut streams, &mut general).0.len(), KEPT_NEWS);
    let big = format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"x":"{}"}}}}"#, "x".repeat(KEPT_BYTES / 4));
    for n in 0..100 {
        let mut reading = streams.open(post(n)).unwrap();
        assert!(take(&mut streams, &big.replace("ID", &n.to_string())));
        if n % 2 == 0 {
            assert!(matches!(streams.next(&mut reading), Next::Event { last: true, .. }));
        }
        streams.detach(&reading);
        assert!(streams.bytes <= KEPT_BYTES + big.len(), "{}", streams.bytes);
    }
    assert!(streams.all.len() <= KEPT_STREAMS + 2 && !streams.is_full());
    let mut stalled = streams.open(post(1000)).unwrap();
    while !streams.is_full() {
        assert!(take(
            &mut streams,
            &format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1000,"x":"{}"}}}}"#,
                "x".repeat(1 << 20)
            )
        ));
    }
    let (lines, _) = all(&mut streams, &mut stalled);
    assert!(lines.len() > 8 && !streams.is_full(), "nothing of a stream that is read later is lost");
}

proptest! {
    /// Whatever is asked and read in whatever order: each answer reaches its own stream, once.
    #[test]
    fn no_answer_is_lost_or_given_twice(steps in proptest::collection::vec((0u8..4, 0u64..6), 1..200)) {
        let mut streams = Streams::default();
        let mut open: BTreeMap<u64, Reading> = BTreeMap::new();
        let mut got: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for (step, n) in steps {
            match (step, open.get_mut(&n)) {
                (0, None) => { open.insert(n, streams.open(post(n)).unwrap()); got.insert(n, vec![]); }
                (1, Some(_)) => { take(&mut streams, &progress(n)); }
                (2, Some(reading)) => {
                    take(&mut streams, &answer(n));
                    got.get_mut(&n).unwrap().extend(all(&mut streams, reading).0);
                    let lines = &got[&n];
                    prop_assert_eq!(lines.iter().filter(|line| **line == answer(n)).count(), 1);
                    prop_assert!(lines[..lines.len() - 1].iter().all(|line| *line == progress(n)));
                    streams.detach(reading);
                    open.remove(&n);
                }
                (3, Some(reading)) => got.get_mut(&n).unwrap().extend(all(&mut streams, reading).0),
                _ => {}
            }
        }
    }
}
