//! What is said about a message that did not simply arrive, and how often it is sent.

use super::*;
use std::time::{Duration, Instant};

fn long(parts: usize) -> String {
    (0..parts).map(|part| format!("part {part} {}\n\n", "x".repeat(1900))).collect()
}

fn telegram_ok() -> Reply {
    Reply::ok(json!({"ok": true, "result": {"message_id": 7}}))
}

#[tokio::test]
async fn a_platform_that_limits_is_waited_for_and_then_gets_the_message() {
    let header = |name| vec![(name, "1".to_owned())];
    let limits = [
        ("telegram:5", Reply::status(429, json!({"ok": false, "parameters": {"retry_after": 1}}))),
        ("discord:5", Reply::status(429, json!({"retry_after": 1.0, "global": false}))),
        (
            "slack:C0B0QV5434G",
            Reply::Json(429, header("retry-after"), json!({"ok": false, "error": "ratelimited"})),
        ),
        (
            "matrix:!a:server",
            Reply::status(429, json!({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1000})),
        ),
    ];
    for (target, limit) in limits {
        let world = World::with(ChatApi::start(move |number, request| match number {
            0 => limit.clone(),
            _ => super::super::chat_api::friendly(request),
        }));
        world.sent(target, "x").await;
        let requests = world.api.requests();
        assert_eq!(requests.len(), 2, "{target}");
        assert!(requests[1].at - requests[0].at >= Duration::from_secs(1), "{target}");
    }
}

#[tokio::test]
async fn a_limit_that_outlasts_the_client_is_told_at_once_and_nothing_is_tried_again() {
    let world = World::with(ChatApi::start(|_, _| {
        Reply::status(429, json!({"ok": false, "parameters": {"retry_after": 600}}))
    }));
    let began = Instant::now();
    let refused = world.refused("telegram:5", "x").await;
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(refused["delivery"], "not_sent");
    assert_eq!(refused["retry_after_ms"], json!(600_000));
    assert!(refused["error"].as_str().unwrap().contains("wait 600 s"), "{refused}");
    assert_eq!(world.api.requests().len(), 1);
}

#[tokio::test]
async fn a_long_text_goes_in_parts_and_an_answer_says_which_arrived() {
    let world = World::with(ChatApi::start(|number, _| match number {
        2 => Reply::status(403, json!({"message": "Missing Access", "code": 50001})),
        _ => Reply::ok(json!({"id": format!("m{number}")})),
    }));
    let text = long(4);
    let refused = world.refused("discord:5", &text).await;
    assert_eq!(refused["delivery"], "partly_sent");
    assert_eq!((&refused["parts_sent"], &refused["parts"]), (&json!(2), &json!(4)));
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.contains("only parts 1 to 2 of 4 reached discord:5") && error.contains("part 2 xxx"),
        "{error}"
    );
    let contents: Vec<String> = world
        .api
        .requests()
        .iter()
        .map(|request| request.json()["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(contents.concat(), text[..contents.concat().len()]);
    assert_eq!(world.api.requests().len(), 3);
}

#[tokio::test]
async fn a_text_that_needs_too_many_parts_is_refused_whole() {
    let world = World::friendly();
    let refused = world.refused("discord:5", &long(30)).await;
    assert!(refused["error"].as_str().unwrap().contains("at most 20"), "{refused}");
    assert_eq!(world.api.requests().len(), 0);
}

#[tokio::test]
async fn an_answer_that_never_came_is_unknown_and_is_not_sent_again() {
    for target in [
        "telegram:5",
        "slack:C0B0QV5434G",
        "signal:+15551234567",
        "whatsapp:+4917012345678",
        "homeassistant:1",
        "dingtalk",
    ] {
        for reply in [Reply::Cut, Reply::status(502, json!({"x": 1}))] {
            let world = World::with(ChatApi::start(move |_, _| reply.clone()));
            let refused = world.refused(target, "x").await;
            assert_eq!(refused["delivery"], "unknown", "{target}: {refused}");
            assert!(refused["error"].as_str().unwrap().contains("not known whether"), "{refused}");
            assert_eq!(world.api.requests().len(), 1, "{target}");
        }
    }
}

#[tokio::test]
async fn where_the_platform_takes_a_message_once_it_is_sent_again_under_the_same_mark() {
    for target in ["matrix:!a:server", "discord:5"] {
        let mark = |request: &Recorded| format!("{} {}", request.path, request.json()["nonce"]);
        let world = World::with(ChatApi::start(|number, request| match number {
            0 => Reply::Cut,
            _ => super::super::chat_api::friendly(request),
        }));
        world.sent(target, "x").await;
        let requests = world.api.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(mark(&requests[0]), mark(&requests[1]), "{target}");
        assert!(
            requests
                .iter()
                .all(|request| target != "discord:5" || request.json()["enforce_nonce"] == json!(true))
        );
        // A refusal after a lost answer does not make the first try undone.
        let world = World::with(ChatApi::start(|number, _| match number {
            0 => Reply::Cut,
            _ => Reply::status(403, json!({})),
        }));
        assert_eq!(world.refused(target, "x").await["delivery"], "unknown", "{target}");
    }
}

#[tokio::test]
async fn a_platform_that_is_not_there_got_nothing() {
    let world = World::friendly();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (platform, key, target) in [
        ("telegram", "base_url", "telegram:5"),
        ("matrix", "homeserver", "matrix:!a:server"),
        ("slack", "base_url", "slack:C0B0QV5434G"),
    ] {
        world.set_extra(platform, key, &format!("http://{free}"));
        let refused = world.refused(target, "x").await;
        assert_eq!(refused["delivery"], "not_sent", "{refused}");
        assert!(refused["error"].as_str().unwrap().contains("no connection"), "{refused}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_no_credential_travels_on() {
    let elsewhere = ChatApi::friendly();
    let place = elsewhere.url();
    let world = World::with(ChatApi::start(move |_, _| {
        Reply::Json(307, vec![("location", place.clone())], json!({}))
    }));
    for target in ["telegram:5", "discord:5", "slack:C0B0QV5434G", "matrix:!a:server", "homeassistant:1"] {
        let refused = world.refused(target, "x").await;
        assert_eq!(refused["delivery"], "not_sent", "{refused}");
        assert!(refused["error"].as_str().unwrap().contains("redirect"), "{refused}");
    }
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a_proxy_is_used_for_other_machines_and_never_for_this_one() {
    let proxy = ChatApi::friendly();
    let world = World::friendly();
    world.configure(|messaging| {
        let url = Some(Secret::new(proxy.url()));
        messaging.proxies = Proxies {
            https: url.clone(),
            http: url.clone(),
            all: url.clone(),
            telegram: url,
            none_for: None,
        };
    });
    world.sent("telegram:5", "x").await;
    world.sent("homeassistant:1", "x").await;
    world.sent("whatsapp:+4917012345678", "x").await;
    assert_eq!(proxy.requests().len(), 0);
    world.set_extra("homeassistant", "url", "http://house.invalid:8123");
    world.sent("homeassistant:1", "x").await;
    assert_eq!(proxy.requests()[0].path, "http://house.invalid:8123/api/services/notify/notify");
    world.configure(|messaging| messaging.proxies.none_for = Some("house.invalid".to_owned()));
    let refused = world.refused("homeassistant:1", "x").await;
    assert_eq!(refused["delivery"], "not_sent", "reached without the proxy, where nobody is: {refused}");
    assert_eq!(proxy.requests().len(), 1);
}

#[tokio::test]
async fn a_token_does_not_travel_readable_to_another_machine_unless_told_so() {
    let world = World::friendly();
    world.set_extra("telegram", "base_url", "http://api.invalid");
    let refused = world.refused("telegram:5", "x").await;
    assert!(refused["error"].as_str().unwrap().contains("unencrypted to api.invalid"), "{refused}");
    world.set_extra("telegram", "allow_insecure", "true");
    let refused = world.refused("telegram:5", "x").await;
    assert!(refused["error"].as_str().unwrap().contains("no connection"), "{refused}");
}

#[tokio::test]
async fn what_a_platform_repeats_of_a_token_is_masked() {
    let world = World::with(ChatApi::start(|_, request| {
        Reply::status(
            401,
            json!({"ok": false, "description": format!("bad {}", request.path), "message": TOKEN}),
        )
    }));
    for target in ["telegram:5", "discord:5"] {
        let refused = world.refused(target, "x").await;
        assert!(refused["error"].as_str().unwrap().contains("[REDACTED]"), "{refused}");
    }
}

#[tokio::test]
async fn a_key_sends_a_message_once_over_a_restart_too() {
    let world = World::friendly();
    let ask = json!({"target": "telegram:5", "message": "once", "idempotency_key": "k1"});
    let (first, is_error) = world.call(ask.clone()).await;
    assert!(!is_error, "{first}");
    let (mut again, _) = world.call(ask.clone()).await;
    assert_eq!(again["repeated"], json!(true));
    again.as_object_mut().unwrap().remove("repeated");
    assert_eq!(again, first);
    let world = world.restarted();
    assert_eq!(world.call(ask).await.0["repeated"], json!(true));
    assert_eq!(world.api.requests().len(), 1);
    for other in [
        json!({"target": "telegram:6", "message": "once", "idempotency_key": "k1"}),
        json!({"target": "telegram:5", "message": "twice", "idempotency_key": "k1"}),
    ] {
        let (refused, is_error) = world.call(other).await;
        assert!(is_error && refused["error"].as_str().unwrap().contains("another message"), "{refused}");
    }
    let (refused, _) =
        world.call(json!({"target": "telegram:5", "message": "x", "idempotency_key": "k".repeat(201)})).await;
    assert!(refused["error"].as_str().unwrap().contains("201 characters"), "{refused}");
    assert_eq!(world.api.requests().len(), 1);
}

#[tokio::test]
async fn a_key_whose_message_did_not_arrive_may_be_tried_again_and_an_unknown_one_may_not() {
    let world = World::with(ChatApi::start(|number, _| match number {
        0 => Reply::status(403, json!({"ok": false, "description": "Forbidden"})),
        1 => telegram_ok(),
        _ => Reply::Cut,
    }));
    let ask = |key: &str| json!({"target": "telegram:5", "message": "x", "idempotency_key": key});
    assert!(world.call(ask("a")).await.1);
    assert!(!world.call(ask("a")).await.1, "the second try arrives");
    assert_eq!(world.call(ask("b")).await.0["delivery"], "unknown");
    let (refused, _) = world.call(ask("b")).await;
    assert_eq!(refused["delivery"], "unknown");
    assert!(refused["error"].as_str().unwrap().contains("not sent again"), "{refused}");
    assert_eq!(world.api.requests().len(), 3);
}

#[tokio::test]
async fn a_key_goes_on_behind_the_parts_that_arrived() {
    let world = World::with(ChatApi::start(|number, _| match number {
        2 => Reply::status(403, json!({"message": "Missing Access"})),
        _ => Reply::ok(json!({"id": format!("m{number}")})),
    }));
    let text = long(4);
    let ask = json!({"target": "discord:5", "message": text, "idempotency_key": "k"});
    assert_eq!(world.call(ask.clone()).await.0["delivery"], "partly_sent");
    assert!(!world.call(ask).await.1);
    let mut contents: Vec<String> = world
        .api
        .requests()
        .iter()
        .map(|request| request.json()["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(contents.remove(2), contents[2], "the refused part is sent again");
    assert_eq!(contents.concat(), text);
}

#[tokio::test]
async fn a_call_that_is_dropped_sends_no_further_part_and_its_key_knows_what_arrived() {
    let world = World::with(ChatApi::start(|number, _| match number {
        0 => Reply::ok(json!({"id": "m0"})),
        1 => Reply::Json(429, vec![], json!({"retry_after": 30.0})),
        _ => Reply::ok(json!({"id": format!("m{number}")})),
    }));
    let text = long(3);
    let ask = json!({"target": "discord:5", "message": text, "idempotency_key": "k"});
    {
        let call = world.call(ask.clone());
        tokio::pin!(call);
        // The second part waits for 30 s; then the client gives up.
        while world.api.requests().len() < 2 {
            tokio::select! {
                answer = &mut call => panic!("answered too early: {answer:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    // The first call's task notes how far it came; then the same call goes on from there.
    let answer = loop {
        let (answer, is_error) = world.call(ask.clone()).await;
        match answer["error"].as_str() {
            Some(error) if error.contains("being sent at this moment") => tokio::task::yield_now().await,
            _ => break (answer, is_error),
        }
    };
    assert!(!answer.1, "{answer:?}");
    let contents: Vec<String> = world
        .api
        .requests()
        .iter()
        .map(|request| request.json()["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(contents.len(), 4);
    assert_eq!(contents[1], contents[2], "the part that was limited");
    assert_ne!(contents[0], contents[1], "the part that arrived is not sent again");
}

#[tokio::test]
async fn a_sent_message_is_in_its_session_and_a_failed_one_is_not() {
    let world = World::friendly();
    let key = "agent:main:signal:dm:+15551234567";
    let read = async || {
        let arguments = RawValue::from_string(json!({"session_key": key}).to_string()).unwrap();
        let reply = world.conversations.call("messages_read", Some(&arguments)).await.unwrap();
        let result: Value = serde_json::from_str(reply.json.get()).unwrap();
        result["structuredContent"]["messages"].as_array().unwrap().last().unwrap().clone()
    };
    assert_eq!(world.sent("signal:Mum", "see you").await["mirrored"], json!(true));
    let newest = read().await;
    assert_eq!((&newest["role"], &newest["content"]), (&json!("assistant"), &json!("see you")));
    assert_eq!(world.sent("signal:+15550001111", "nobody's session").await.get("mirrored"), None);
    world.configure(|messaging| {
        messaging
            .platforms
            .get_mut("signal")
            .unwrap()
            .extra
            .insert("http_url".into(), Secret::new("http://127.0.0.1:1"));
    });
    world.refused("signal:Mum", "lost").await;
    assert_eq!(read().await["content"], "see you");
}

#[tokio::test]
async fn a_platform_that_is_off_or_lacks_a_variable_says_which() {
    let world = World::friendly();
    world.configure(|messaging| {
        messaging.platforms.get_mut("telegram").unwrap().enabled = false;
        messaging.platforms.get_mut("discord").unwrap().problem =
            Some("`platforms.discord.token` needs X".to_owned());
        messaging.platforms.get_mut("slack").unwrap().token = None;
    });
    for (target, hint) in
        [("telegram:5", "enabled: true"), ("discord:5", "needs X"), ("slack:C0B0QV5434G", "SLACK_BOT_TOKEN")]
    {
        let refused = world.refused(target, "x").await;
        assert!(refused["error"].as_str().unwrap().contains("is not configured"), "{refused}");
        assert!(refused["hint"].as_str().unwrap().contains(hint), "{refused}");
    }
    assert_eq!(world.api.requests().len(), 0);
}
