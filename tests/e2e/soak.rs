//! Minutes of everything at once; not part of `tests/run`:
//! `HERMES_SOAK_SECONDS=300 cargo test -p hermes-tests --test e2e soak -- --ignored --nocapture`.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, census, wait_for};
use serde_json::json;
use std::time::{Duration, Instant};

/// What a daemon holds at one moment.
#[derive(Debug, Clone, Copy)]
struct Weight {
    fds: usize,
    rss_kib: u64,
    zombies: usize,
}

fn weigh(daemon: i32) -> Weight {
    let below = census::children(daemon);
    let zombies =
        below.iter().flat_map(|g| census::children(g.pid)).chain(below.clone()).filter(|p| p.state == 'Z');
    Weight { fds: census::open_fds(daemon).len(), rss_kib: census::rss_kib(daemon), zombies: zombies.count() }
}

/// Twenty servers: five that behave, five that flood stderr, five that ignore signals, five that fork.
fn servers() -> World {
    (0..20).fold(world(), |w, n| {
        let script = match n % 4 {
            0 => Script::new(),
            1 => Script::new().with(|s| s.stderr_bps = 10_000_000),
            2 => Script::stubborn(),
            _ => Script::forks(hermes_tests::Fork::Setsid),
        };
        w.server_with(&format!("s{n}"), script, &["timeout: 2", "breaker: {cooldown: 1}"])
    })
}

/// One client's share: calls that answer, fail, hang and kill. Gives how many were made.
fn calls(client: &mut Shim, seed: usize, end: Instant) -> usize {
    let mut made = 0;
    while Instant::now() < end {
        let server = (seed * 7 + made) % 20;
        let tool = |name: &str| format!("mcp_s{server}_{name}");
        let id = match made % 23 {
            7 => client.begin_call(&tool("crash"), &json!({})),
            11 => client.begin_call(&tool("hang"), &json!({})),
            13 => client.begin_call(&tool("big"), &json!({"bytes": 1 << 20})),
            17 => client.begin_call(&tool("fail"), &json!({})),
            _ => client.begin_call(&tool("echo"), &json!({"text": "soak"})),
        };
        let answer = client.reply_message(&id, Duration::from_secs(120)).value;
        assert!(answer.get("result").is_some() || answer.get("error").is_some(), "{answer}");
        made += 1;
    }
    made
}

/// Every call is answered; no process, zombie, file descriptor or memory is lost.
#[test]
#[ignore = "takes minutes"]
#[allow(clippy::print_stdout)]
fn a_long_run_loses_nothing() {
    let seconds = std::env::var("HERMES_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(180);
    let w = servers();
    let mut daemon = w.start();
    drop(w.client(&["s0", "s19"]));
    let round = |span: u64| {
        let end = Instant::now() + Duration::from_secs(span);
        let threads: Vec<_> = (0..8)
            .map(|seed| {
                let mut client = w.client(&[]);
                std::thread::spawn(move || calls(&mut client, seed, end))
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("every call was answered")).sum::<usize>()
    };
    // Equal conditions: no client, and every server up, whatever the last minute did to it.
    let quiet = || {
        for n in 0..20 {
            w.ctl(["servers", "start", &format!("s{n}")]).succeeds();
        }
        weigh(daemon.pid())
    };
    // As long as what is measured: the last lines of every log and the caches fill up first.
    let warm_calls = round(seconds);
    let warm = quiet();
    let made = round(seconds);
    let after = quiet();
    println!("{warm_calls} + {made} calls; warm {warm:?}, after {after:?}");
    assert!(after.rss_kib <= warm.rss_kib * 110 / 100, "warm {warm:?}, after {after:?}");
    assert!(after.fds <= warm.fds + 2, "warm {warm:?}, after {after:?}");
    wait_for("no zombie stays", SOON, || weigh(daemon.pid()).zombies == 0);
    assert!(daemon.stop().success());
    assert_eq!(w.census(), []);
}
