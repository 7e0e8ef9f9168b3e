//! What a remote server may not do: take headers elsewhere, hide behind a proxy, ask for a login twice.

use crate::world;
use hermes_tests::{HttpFake, SOON, World, holds_for, plain, plain_server, wait_for};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const KEY: &str = "headers: {X-Api-Key: sesame-of-the-test, Authorization: Bearer token-of-the-test}";

fn with(fake: &HttpFake, lines: &[&str]) -> World {
    let url = format!("url: {}", fake.url());
    world().entry("r", &[&[url.as_str(), KEY], lines].concat())
}

/// 307 and 308 within the origin are followed with method, body and headers; a permanent one is kept.
#[test]
fn a_redirect_within_the_origin_keeps_method_and_body() {
    for code in [307, 308] {
        let fake = HttpFake::start(move |got, answer| match got.target.as_str() {
            "/mcp" => answer.status(code, &[("location", "/mcp/?a=1#f")], ""),
            _ => plain_server(got, answer),
        });
        let w = with(&fake, &[]);
        let _daemon = w.start();
        let mut client = w.client(&["r"]);
        assert_eq!(client.text("mcp_r_echo", &json!({"text": "hi"})), "hi");
        let calls = fake.asked("tools/call");
        assert_eq!(calls.last().unwrap().target, "/mcp/?a=1");
        assert_eq!(calls.last().unwrap().header("x-api-key"), Some("sesame-of-the-test"));
        assert_eq!(calls.len(), if code == 308 { 1 } else { 2 }, "{code}");
    }
}

/// No redirect takes a request or a header to another origin: it is an error that names the target, at once.
#[test]
fn nothing_follows_a_redirect_to_another_origin() {
    let thief = Arc::new(HttpFake::start(plain_server));
    let elsewhere = thief.url();
    for code in [301, 302, 303, 307, 308] {
        let target = elsewhere.clone();
        let fake = HttpFake::start(move |_, answer| answer.status(code, &[("location", &target)], ""));
        let w = with(&fake, &[]);
        let _daemon = w.start();
        w.wait_phase("r", "parked");
        let reason = w.status("r")["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(&thief.address()) && reason.contains(&code.to_string()), "{reason}");
        assert!(reason.contains("write that address as `url`"), "{reason}");
    }
    assert_eq!(thief.seen().len(), 0, "{:?}", thief.seen());
}

/// 301, 302 and 303 would turn a POST into a GET: an error that names the target.
#[test]
fn a_redirect_that_changes_the_method_is_an_error() {
    let fake = HttpFake::start(|_, answer| answer.status(302, &[("location", "/elsewhere")], ""));
    let w = with(&fake, &[]);
    let _daemon = w.start();
    w.wait_phase("r", "parked");
    assert!(w.status("r")["reason"].as_str().unwrap().contains("/elsewhere"));
    assert!(fake.seen().iter().all(|got| got.method == "POST" && got.target == "/mcp"));
}

/// A circle of redirects ends.
#[test]
fn redirects_are_followed_a_few_times_only() {
    let fake = HttpFake::start(|_, answer| answer.status(307, &[("location", "/mcp")], ""));
    let w = with(&fake, &[]);
    let _daemon = w.start();
    w.wait_phase("r", "parked");
    assert!(w.status("r")["reason"].as_str().unwrap().contains("too many redirects"));
    assert_eq!(fake.seen().len(), 6);
}

/// This machine is never reached through a proxy, other hosts are, and NO_PROXY counts.
#[test]
fn a_proxy_is_used_for_others_and_never_for_this_machine() {
    let proxy = HttpFake::start(plain_server);
    let fake = HttpFake::start(plain_server);
    let url = format!("url: {}", fake.url());
    let w = world()
        .entry("near", &[&url])
        .entry("far", &["url: http://far.invalid/mcp"])
        .entry("direct", &["url: http://direct.invalid/mcp", "connect_timeout: 5"])
        .env("HTTP_PROXY", &format!("http://user:secret-of-proxy@{}", proxy.address()))
        .env("NO_PROXY", "localhost,.direct.invalid,direct.invalid");
    let _daemon = w.start();
    let mut client = w.client(&["near", "far"]);
    assert_eq!(client.text("mcp_near_echo", &json!({"text": "near"})), "near");
    assert_eq!(client.text("mcp_far_echo", &json!({"text": "far"})), "far");
    let through = proxy.seen();
    assert!(!through.is_empty() && through.iter().all(|got| got.target == "http://far.invalid/mcp"));
    assert!(through.iter().all(|got| got.header("proxy-authorization").is_some()));
    assert!(fake.seen().iter().all(|got| got.header("proxy-authorization").is_none()));
    let shown = w.ctl(["servers", "show", "far", "--json"]).stdout;
    assert!(shown.contains("through http://127.0.0.1") && !shown.contains("secret-of-proxy"), "{shown}");
    wait_for("the other one fails by itself", SOON, || {
        w.status("direct")["reason"].as_str().unwrap_or_default().contains("direct.invalid")
    });
}

/// A 401 is `needs_auth`: calls fail at once, name what helps, and neither breaker nor server suffers.
#[test]
fn a_refused_login_is_needs_auth_and_fails_fast() {
    let open = Arc::new(AtomicBool::new(true));
    let lets_in = open.clone();
    let fake = HttpFake::start(move |got, answer| {
        if lets_in.load(Ordering::Relaxed) {
            plain_server(got, answer);
        } else {
            answer.status(401, &[("www-authenticate", "Bearer realm=\"x\"")], "token-of-the-test is no good");
        }
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let (mut one, mut two) = (w.client(&["r"]), w.client(&["r"]));
    assert_eq!(one.text("mcp_r_echo", &json!({"text": "in"})), "in");
    open.store(false, Ordering::Relaxed);
    let result = one.call("mcp_r_echo", &json!({"text": "x"}));
    assert_eq!(result["_meta"]["kind"], "needs_auth", "{result}");
    w.wait_phase("r", "needs_auth");
    let before = fake.seen().len();
    let begun = Instant::now();
    for _ in 0..20 {
        let result = two.call("mcp_r_echo", &json!({"text": "x"}));
        assert_eq!(result["_meta"]["kind"], "needs_auth", "{result}");
        assert_eq!(result["_meta"]["delivery"], "not_written");
        assert!(result["content"][0]["text"].as_str().unwrap().contains("`headers` of `r`"), "{result}");
        assert!(!result.to_string().contains("token-of-the-test"));
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(fake.seen().len() - before <= 1, "calls do not hammer a server that wants a login");
    assert_eq!(w.status("r")["breaker"]["state"], "closed", "{}", w.status("r"));
    open.store(true, Ordering::Relaxed);
    w.ctl(["servers", "start", "r"]).succeeds();
    assert_eq!(two.text("mcp_r_echo", &json!({"text": "again"})), "again");
}

/// A server that asks to wait is waited for when it is short; otherwise the caller learns the time.
#[test]
fn retry_after_is_obeyed_or_told() {
    let asked = AtomicUsize::new(0);
    let fake = HttpFake::start(move |got, answer| match got.json["params"]["arguments"]["text"].as_str() {
        Some("short") if asked.fetch_add(1, Ordering::Relaxed) == 0 => {
            answer.status(429, &[("retry-after", "1")], "")
        }
        Some("long") => answer.status(429, &[("retry-after", "120")], "slow down"),
        Some("date") => answer.status(503, &[("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT")], ""),
        Some("none") => answer.status(429, &[], ""),
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &["breaker: {threshold: 2}"]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "short"})), "short");
    let calls = fake.asked("tools/call");
    assert!(calls[1].at - calls[0].at >= Duration::from_secs(1));
    for (text, wait) in [("long", json!(120_000)), ("date", json!(3_600_000)), ("none", json!(null))] {
        let result = client.call("mcp_r_echo", &json!({"text": text}));
        assert_eq!(result["_meta"]["kind"], "rate_limited", "{text}: {result}");
        assert_eq!(result["_meta"]["retry_after_ms"], wait, "{text}");
        assert_eq!(result["_meta"]["delivery"], "not_written");
    }
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "on"})), "on", "the breaker stayed closed");
}

/// A server that asks to wait while it is started is left alone for so long.
#[test]
fn a_start_that_is_asked_to_wait_waits() {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let seen = times.clone();
    let fake = HttpFake::start(move |got, answer| {
        let mut seen = seen.lock().unwrap();
        if got.mcp() == "initialize" {
            seen.push(Instant::now());
        }
        if seen.len() == 1 {
            answer.status(503, &[("retry-after", "12")], "starting");
        } else {
            plain_server(got, answer);
        }
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    w.wait_phase("r", "backing_off");
    assert!(w.status("r")["next_step_ms"].as_u64().unwrap() > 8000, "{}", w.status("r"));
    w.client(&["r"]);
    let times = times.lock().unwrap();
    assert!(times[1] - times[0] >= Duration::from_secs(12));
}

/// A call of a server that asked for a minute is told so at once.
#[test]
fn nobody_waits_for_a_server_that_asked_for_a_minute() {
    let busy = Arc::new(AtomicBool::new(false));
    let is_busy = busy.clone();
    let fake = HttpFake::start(move |got, answer| {
        if is_busy.load(Ordering::Relaxed) {
            answer.status(503, &[("retry-after", "60")], "restarting");
        } else {
            plain_server(got, answer);
        }
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    busy.store(true, Ordering::Relaxed);
    w.ctl(["servers", "restart", "r"]);
    w.wait_phase("r", "backing_off");
    let begun = Instant::now();
    let result = client.call("mcp_r_echo", &json!({"text": "x"}));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(result["_meta"]["retry_after_ms"].as_u64().unwrap() > 20_000, "{result}");
    assert_eq!(result["_meta"]["delivery"], "not_written");
}

/// A server that is restarted costs a client one failed or repeated call at most.
#[test]
fn a_restarted_server_costs_one_call_at_most() {
    let first = HttpFake::start(|got, answer| match (got.mcp(), plain(&got.json)) {
        ("initialize", Some(reply)) => answer.json_text(&[("mcp-session-id", "old")], &reply.to_string()),
        _ => plain_server(got, answer),
    });
    let address = first.address();
    let w = with(&first, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "1"})), "1");
    drop(first);
    let strict = |got: &hermes_tests::Got, answer: &mut hermes_tests::Answer<'_>| match (
        got.mcp(),
        plain(&got.json),
    ) {
        ("initialize", Some(reply)) => answer.json_text(&[("mcp-session-id", "new")], &reply.to_string()),
        _ if got.header("mcp-session-id") != Some("new") => answer.status(404, &[], ""),
        _ => plain_server(got, answer),
    };
    let second = hermes_tests::wait_some("the port is free again", SOON, || {
        std::net::TcpListener::bind(&address).ok().map(drop).map(|()| HttpFake::at(&address, strict))
    });
    let failed = (0..10)
        .filter(|n| client.call("mcp_r_echo", &json!({"text": n.to_string()}))["isError"] == true)
        .count();
    assert!(failed <= 1, "{failed} of 10 failed");
    assert!(second.asked("initialize").len() <= 2);
}

/// An idle connection that the server closed is no failure, and nothing is executed twice.
#[test]
fn a_connection_that_died_while_idle_is_no_failure() {
    let fake = HttpFake::start(plain_server);
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    for n in 0..10 {
        let text = n.to_string();
        assert_eq!(client.text("mcp_r_echo", &json!({"text": text})), text);
        fake.hang_up();
        // The close has to arrive before the next request, as it does between two real calls.
        holds_for(Duration::from_millis(50), || true);
    }
    assert_eq!(fake.asked("tools/call").len(), 10);
    assert_eq!(w.status("r")["generation"], 1);
}

/// Nobody listens: the start fails with the address and the reason, and comes back by itself.
#[test]
fn an_unreachable_server_says_so_and_comes_back() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let w = world().entry("r", &[&format!("url: http://{port}/mcp")]);
    let _daemon = w.start();
    w.wait_phase("r", "backing_off");
    let reason = w.status("r")["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains(&format!("http://{port}/mcp")) && reason.contains("refused"), "{reason}");
    let _fake = HttpFake::at(&port.to_string(), plain_server);
    w.client(&["r"]);
}

/// An address of IPv6, and one with user and password.
#[test]
fn addresses_of_every_kind_are_reached() {
    let fake = HttpFake::at("[::1]:0", plain_server);
    let plain_fake = HttpFake::start(plain_server);
    let w = world()
        .entry("six", &[&format!("url: {}", fake.url())])
        .entry("named", &[&format!("url: http://us%40er:pass-word-1@{}/mcp#here", plain_fake.address())]);
    let _daemon = w.start();
    w.client(&["six", "named"]);
    let basic = plain_fake.asked("initialize")[0].header("authorization").map(str::to_owned);
    assert_eq!(basic.as_deref(), Some("Basic dXNAZXI6cGFzcy13b3JkLTE="));
    assert!(plain_fake.seen().iter().all(|got| got.target == "/mcp"));
    assert!(!w.ctl(["servers", "show", "named", "--json"]).stdout.contains("pass-word-1"));
}
