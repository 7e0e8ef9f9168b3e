//! Many clients of the same servers, each with a secret in everything it sends: nobody hears another's.
//!
//! The long one is not part of `tests/run`:
//! `cargo test -p hermes-tests --test e2e nonces -- --ignored --nocapture`.

use crate::sampling::asking;
use crate::world;
use hermes_tests::{HttpFake, Message, SOON, Script, Shim, World, kill, wait_for};
use rustix::process::Signal;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Calls of one client that are open at a time.
const WINDOW: usize = 6;
/// Words that every secret begins with.
const MARK: &str = "nonce-of-";

/// How much is done.
#[derive(Debug, Clone, Copy)]
struct Scale {
    clients: usize,
    calls: usize,
    /// Each of the two pipe servers is killed so often.
    kills: usize,
}

/// What a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Echo,
    Progress,
    Sampling,
    Elicitation,
}

impl Kind {
    fn of(number: usize) -> Self {
        [Self::Echo, Self::Progress, Self::Sampling, Self::Elicitation][number % 4]
    }
}

/// One open call of a client.
struct Open {
    kind: Kind,
    secret: String,
    asked: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    right: usize,
    failed: usize,
    questions: usize,
    steps: usize,
}

struct Client {
    shim: Shim,
    name: String,
    open: BTreeMap<u64, Open>,
    tally: Tally,
}

impl Client {
    fn new(w: &World, name: String) -> Self {
        let mut shim = w.shim();
        shim.initialize_as("2025-11-25", &json!({"sampling": {}, "elicitation": {"form": {}}}));
        for tool in ["mcp_w0_echo", "mcp_w1_echo", "mcp_r_echo"] {
            shim.wait_tool(tool);
        }
        Self { shim, name, open: BTreeMap::new(), tally: Tally::default() }
    }

    /// Ids and progress tokens are the same numbers in every client.
    fn begin(&mut self, number: usize) {
        let secret = format!("{MARK}{}-{number}.", self.name);
        let kind = Kind::of(number);
        let pipe = format!("mcp_w{}", number / 4 % 2);
        let words = json!({"type": "text", "text": secret});
        let (tool, arguments) = match kind {
            Kind::Echo => (format!("{pipe}_echo"), json!({"text": secret})),
            Kind::Progress => (format!("{pipe}_progress"), json!({"n": 3, "say": secret})),
            Kind::Sampling => {
                let ask = json!({"messages": [{"role": "user", "content": words}], "maxTokens": 9});
                ("mcp_r_echo".to_owned(), json!({"ask": ask}))
            }
            Kind::Elicitation => {
                let schema = json!({"type": "object", "properties": {"v": {"type": "string"}}});
                let ask = json!({"mode": "form", "message": secret, "requestedSchema": schema});
                ("mcp_r_echo".to_owned(), json!({"method": "elicitation/create", "ask": ask}))
            }
        };
        let id = 1000 + number as u64;
        let meta = json!({"progressToken": id});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        self.shim.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
        assert!(self.open.insert(id, Open { kind, secret, asked: false }).is_none());
    }

    /// Waits for one message and does what it asks for.
    fn step(&mut self) {
        let message = self.shim.next_message(SOON);
        let message = message.unwrap_or_else(|| panic!("{}: {} calls were lost", self.name, self.open.len()));
        self.nobody_elses(&message);
        let value = &message.value;
        match (value["method"].as_str(), value["id"].as_u64()) {
            (Some("notifications/progress"), _) => {
                let token = value["params"]["progressToken"].as_u64().expect("our own token");
                let open = self.open.get(&token).expect("progress of an open call");
                assert_eq!(value["params"]["message"], json!(open.secret), "{}", message.raw);
                self.tally.steps += 1;
            }
            (Some("sampling/createMessage" | "elicitation/create"), _) => self.answer(&message),
            (Some(_), _) => {}
            (None, Some(id)) => self.finish(id, &message),
            (None, None) => panic!("{}: an answer to nothing: {}", self.name, message.raw),
        }
    }

    /// Every secret in the line is one of ours.
    fn nobody_elses(&self, message: &Message) {
        for (at, _) in message.raw.match_indices(MARK) {
            let rest = &message.raw[at + MARK.len()..];
            assert!(rest.starts_with(&format!("{}-", self.name)), "{} heard {}", self.name, message.raw);
        }
    }

    fn answer(&mut self, question: &Message) {
        let about = |open: &&mut Open| question.raw.contains(&open.secret);
        let open = self.open.values_mut().find(about).expect("a question about an open call");
        assert!(!std::mem::replace(&mut open.asked, true), "asked twice: {}", question.raw);
        let result = match open.kind {
            Kind::Sampling => {
                let words = json!({"type": "text", "text": format!("told {}", open.secret)});
                json!({"role": "assistant", "model": "m", "content": words})
            }
            _ => json!({"action": "accept", "content": {"v": format!("told {}", open.secret)}}),
        };
        self.shim.send(&json!({"jsonrpc": "2.0", "id": question.value["id"], "result": result}));
        self.tally.questions += 1;
    }

    fn finish(&mut self, id: u64, message: &Message) {
        let Some(open) = self.open.remove(&id) else {
            panic!("{}: answered twice: {}", self.name, message.raw);
        };
        let result = &message.value["result"];
        if result.is_null() || result["isError"] == true {
            // Only servers that are killed may fail.
            assert!(matches!(open.kind, Kind::Echo | Kind::Progress), "{}", message.raw);
            self.tally.failed += 1;
            return;
        }
        let text = result["content"][0]["text"].as_str().expect("a text");
        match open.kind {
            Kind::Echo | Kind::Progress => assert_eq!(text, open.secret),
            Kind::Sampling | Kind::Elicitation => {
                assert!(open.asked && text.contains(&format!("told {}", open.secret)), "{text}");
            }
        }
        self.tally.right += 1;
    }

    fn all(&mut self, calls: usize, done: &AtomicUsize) -> Tally {
        for number in 0..calls {
            while self.open.len() >= WINDOW {
                self.step();
            }
            self.begin(number);
            done.fetch_add(1, Ordering::Relaxed);
        }
        while !self.open.is_empty() {
            self.step();
        }
        // Whatever came too late or twice is in front of this answer.
        let last = self.shim.begin("ping", &json!({}));
        self.shim.reply(&last);
        for message in self.shim.drain() {
            self.nobody_elses(&message);
            assert!(message.value["method"].is_string(), "answered twice: {}", message.raw);
        }
        self.tally
    }
}

/// A client that dies with calls and questions open, again and again.
fn die_often(w: &World, number: usize, over: &AtomicBool) -> usize {
    let mut deaths = 0;
    while !over.load(Ordering::Relaxed) {
        let mut client = Client::new(w, format!("victim{number}x{deaths}"));
        (0..WINDOW).for_each(|n| client.begin(n));
        client.step();
        client.shim.kill_hard();
        deaths += 1;
    }
    deaths
}

/// Kills each server `kills` times, spread over the calls, and waits for it to be back.
fn kill_servers(w: &World, scale: Scale, done: &AtomicUsize) {
    let all = scale.clients * scale.calls;
    for round in 0..scale.kills {
        let due = all * (round + 1) / (scale.kills + 1);
        wait_for("the calls of this round", Duration::from_secs(1200), || {
            done.load(Ordering::Relaxed) >= due
        });
        for server in ["w0", "w1"] {
            kill(w.wait_server_pid(server), Signal::KILL);
        }
    }
}

fn servers(fake: &HttpFake) -> World {
    let lines = ["breaker: {threshold: 10000}"];
    let url = format!("url: {}", fake.url());
    world()
        .server_with("w0", Script::new(), &lines)
        .server_with("w1", Script::new(), &lines)
        .entry("r", &[&url, "sampling: {max_rpm: 60000}", "max_concurrency: 24"])
}

/// The secrets of the calls that a server was given, with how often.
fn executed(w: &World, server: &str) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for call in w.journal(server).received("tools/call") {
        let arguments = &call["params"]["arguments"];
        let secret = arguments["text"].as_str().or(arguments["say"].as_str()).unwrap_or_default();
        *all.entry(secret.to_owned()).or_default() += 1;
    }
    all
}

#[allow(clippy::print_stdout)]
fn run(scale: Scale) {
    let fake = asking();
    let w = servers(&fake);
    let _daemon = w.start();
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (tallies, deaths) = std::thread::scope(|threads| {
        let killer = threads.spawn(|| kill_servers(&w, scale, &done));
        let victims: Vec<_> = (0..2)
            .map(|n| {
                threads.spawn({
                    let (w, over) = (&w, &over);
                    move || die_often(w, n, over)
                })
            })
            .collect();
        let clients: Vec<_> = (0..scale.clients)
            .map(|n| {
                let (w, done) = (&w, &done);
                threads.spawn(move || Client::new(w, format!("c{n}")).all(scale.calls, done))
            })
            .collect();
        let tallies: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        over.store(true, Ordering::Relaxed);
        // A failed client must not leave the killer waiting for its calls.
        done.store(usize::MAX / 2, Ordering::Relaxed);
        let deaths: Vec<_> = victims.into_iter().map(|victim| victim.join()).collect();
        killer.join().expect("servers come back");
        (tallies, deaths)
    });
    let tallies: Vec<Tally> =
        tallies.into_iter().map(|tally| tally.expect("a client's promise held")).collect();
    let deaths: usize = deaths.into_iter().map(|deaths| deaths.expect("a victim's promise held")).sum();
    let sum = |of: fn(&Tally) -> usize| tallies.iter().map(of).sum::<usize>();
    let (right, failed) = (sum(|t| t.right), sum(|t| t.failed));
    println!(
        "{right} right, {failed} failed with a killed server, {} questions, {} steps of progress, {deaths} clients died",
        sum(|t| t.questions),
        sum(|t| t.steps)
    );
    assert_eq!(right + failed, scale.clients * scale.calls, "lost");
    assert_eq!(sum(|t| t.questions), scale.clients * scale.calls / 2);
    assert!(right > failed, "{right} right, {failed} failed");
    assert!(deaths > 0 && scale.kills > 0);
    for server in ["w0", "w1"] {
        assert!(w.journal(server).starts() > scale.kills);
        let twice: BTreeSet<String> = executed(&w, server)
            .into_iter()
            .filter(|(_, times)| *times > 1)
            .map(|(secret, _)| secret)
            .collect();
        assert_eq!(twice, BTreeSet::new(), "executed twice at {server}");
    }
}

/// Calls, progress, sampling and elicitation mixed while servers and clients are killed: no secret crosses,
/// no call is lost, none is answered or executed twice.
#[test]
fn no_secret_reaches_another_client_while_servers_and_clients_die() {
    run(Scale { clients: 6, calls: 48, kills: 2 });
}

/// The same with 32 clients and 50,000 calls.
#[test]
#[ignore = "takes minutes"]
fn fifty_thousand_calls_of_thirty_two_clients_never_cross() {
    run(Scale { clients: 32, calls: 1564, kills: 12 });
}
