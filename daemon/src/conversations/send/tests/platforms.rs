//! Each platform: to whom, in which form, and what its own words mean.

use super::*;

/// Targets of one platform and the recipients that they may reach.
struct Case {
    platform: &'static str,
    /// An explicit target's reference and its recipient.
    explicit: (&'static str, &'static str),
    /// A directory entry (id, name) and its recipient.
    named: (&'static str, &'static str),
    recipient: &'static str,
    home: &'static str,
}

const CASES: [Case; 8] = [
    Case {
        platform: "telegram",
        explicit: ("-1001:5", "-1001"),
        named: ("-1002:7", "Ops"),
        recipient: "-1002",
        home: "-100999",
    },
    Case {
        platform: "discord",
        explicit: ("111222:333", "333"),
        named: ("444555", "general"),
        recipient: "444555",
        home: "999000999",
    },
    Case {
        platform: "slack",
        explicit: ("C0AAAAAAA:1.5", "C0AAAAAAA"),
        named: ("C0BBBBBBB", "eng"),
        recipient: "C0BBBBBBB",
        home: "C0HOMEHOME",
    },
    Case {
        platform: "signal",
        explicit: ("+15550001111", "+15550001111"),
        named: ("group:abc/def=", "Family"),
        recipient: "group:abc/def=",
        home: "+19999999999",
    },
    Case {
        platform: "whatsapp",
        explicit: ("+4917012345678", "+4917012345678"),
        named: ("491701234567@s.whatsapp.net", "Ana"),
        recipient: "491701234567@s.whatsapp.net",
        home: "home@g.us",
    },
    Case {
        platform: "matrix",
        explicit: ("!a:server:$root", "!a:server"),
        named: ("!b:server", "lobby"),
        recipient: "!b:server",
        home: "!home:server",
    },
    Case {
        platform: "homeassistant",
        explicit: ("123", "123"),
        named: ("mobile_app_phone", "Phone"),
        recipient: "mobile_app_phone",
        home: "home_phone",
    },
    Case {
        platform: "dingtalk",
        explicit: ("cidHome", "webhook"),
        named: ("cidOther", "Team"),
        recipient: "",
        home: "webhook",
    },
];

/// A directory with the named chat, a rival whose name only begins alike, and two of the same name.
fn with_directory(world: &World, case: &Case) {
    let (id, name) = case.named;
    let other = if case.platform == "telegram" { "-1009" } else { "other-chat" };
    let entries = json!([
        {"id": id, "name": name, "type": "group"},
        {"id": other, "name": format!("{name} archive"), "type": "group"},
        {"id": "twin-1", "name": "Twins", "type": "group"},
        {"id": "twin-2", "name": "twins", "type": "group"},
    ]);
    world.write("channel_directory.json", &json!({"platforms": {case.platform: entries}}));
}

#[tokio::test]
async fn no_platform_ever_writes_to_anybody_but_the_chat_that_was_named() {
    for case in CASES {
        let world = World::friendly();
        with_directory(&world, &case);
        let target = |reference: &str| format!("{}:{reference}", case.platform);
        let mut expected = Vec::new();
        world.sent(&target(case.explicit.0), "one").await;
        expected.push(case.explicit.1);
        if case.recipient.is_empty() {
            // The webhook has one group; a chat that is not known to be it is refused.
            let refused = world.refused(&target(case.named.1), "two").await;
            assert!(refused["error"].as_str().unwrap().contains("nothing was sent"), "{refused}");
        } else {
            world.sent(&target(case.named.1), "two").await;
            world.sent(&target(case.named.0), "three").await;
            expected.extend([case.recipient, case.recipient]);
        }
        // None of these names one chat; each of them has the home channel at hand.
        for nobody in ["Twins", "tw", "nosuch", "#nosuch", "fam ily", "", " "] {
            let refused = world.refused(&target(nobody), "lost").await;
            assert!(refused.get("error").is_some(), "{} {nobody}", case.platform);
        }
        let twins = world.refused(&target("Twins"), "x").await;
        assert_eq!(twins["candidates"].as_array().unwrap().len(), 2, "{twins}");
        let got: Vec<String> = world.api.requests().iter().map(recipient).collect();
        assert_eq!(got, expected, "{}", case.platform);
        // The bare platform alone is the home channel, and says so.
        let answer = world.sent(case.platform, "home").await;
        assert!(
            answer["note"].as_str().unwrap().starts_with(&format!("Sent to {} home channel", case.platform))
        );
        assert_eq!(recipient(world.api.requests().last().unwrap()), case.home, "{}", case.platform);
    }
}

#[tokio::test]
async fn a_bare_platform_without_a_home_channel_sends_nothing() {
    let world = World::friendly();
    world.configure(|messaging| messaging.platforms.values_mut().for_each(|config| config.home = None));
    for case in CASES.iter().filter(|case| case.platform != "dingtalk") {
        let refused = world.refused(case.platform, "x").await;
        assert!(
            refused["error"]
                .as_str()
                .unwrap()
                .starts_with(&format!("No home channel set for {}", case.platform))
        );
    }
    assert_eq!(world.api.requests().len(), 0);
    world.sent("dingtalk", "the group of the webhook").await;
}

#[tokio::test]
async fn platforms_that_hermesd_lacks_are_told_from_those_that_nobody_has() {
    let world = World::friendly();
    let foreign = world.refused("email:a@b.c", "x").await;
    let text = foreign["error"].as_str().unwrap();
    assert!(
        text.contains("cannot send to email") && text.contains("telegram, discord, slack, signal"),
        "{text}"
    );
    assert_eq!(world.refused("pigeon:1", "x").await, json!({"error": "Unknown platform: pigeon"}));
}

#[tokio::test]
async fn a_home_without_a_directory_resolves_what_channels_list_shows() {
    let world = World::friendly();
    std::fs::remove_file(world.home.path().join("channel_directory.json")).unwrap();
    world.sent("slack:C0B0QV5434G", "x").await;
    world.write(
        "sessions/sessions.json",
        &json!({"k": {"session_id": "s", "platform": "whatsapp", "display_name": "Ana",
            "origin": {"platform": "whatsapp", "chat_id": "49@s.whatsapp.net"}}}),
    );
    world.sent("whatsapp:49@s.whatsapp.net", "x").await;
    world.sent("whatsapp:ana", "x").await;
    let got: Vec<String> = world.api.requests().iter().map(recipient).collect();
    assert_eq!(got, ["C0B0QV5434G", "49@s.whatsapp.net", "49@s.whatsapp.net"]);
}

#[tokio::test]
async fn telegram_gets_markdown_v2_with_the_thread_and_the_token_in_the_path_only() {
    let world = World::friendly();
    let answer = world.sent("telegram:-1001234567890:17585", "**Done.** See `a_b`!").await;
    assert_eq!(answer["message_id"], "42");
    assert_eq!(answer["thread_id"], "17585");
    let request = &world.api.requests()[0];
    assert_eq!(request.path, format!("/bot{TOKEN}/sendMessage"));
    assert_eq!(
        request.json(),
        json!({"chat_id": -1001234567890_i64, "text": "*Done\\.* See `a_b`\\!", "parse_mode": "MarkdownV2", "message_thread_id": 17585})
    );
    world.set_extra("telegram", "disable_link_previews", "true");
    world.set_extra("telegram", "base_url", &format!("{}/bot", world.api.url()));
    world.sent("telegram:-1001:1", "<b>hi</b>").await;
    let request = world.api.requests()[1].clone();
    assert_eq!(request.path, format!("/bot{TOKEN}/sendMessage"));
    assert_eq!(
        request.json(),
        json!({"chat_id": -1001, "text": "<b>hi</b>", "parse_mode": "HTML", "link_preview_options": {"is_disabled": true}})
    );
}

#[tokio::test]
async fn telegram_gets_the_plain_text_when_it_cannot_read_the_markup() {
    let world = World::with(ChatApi::start(|number, request| match number {
        0 => Reply::status(400, json!({"ok": false, "description": "Bad Request: can't parse entities: x"})),
        _ => super::super::chat_api::friendly(request),
    }));
    world.sent("telegram:5", "a **b** c.").await;
    let plain = world.api.requests()[1].json();
    assert_eq!(plain, json!({"chat_id": 5, "text": "a **b** c."}));
}

#[tokio::test]
async fn telegram_never_falls_back_from_a_thread_to_the_whole_chat() {
    let world = World::with(ChatApi::start(|_, _| {
        Reply::status(400, json!({"ok": false, "description": "Bad Request: message thread not found"}))
    }));
    let refused = world.refused("telegram:-1001:9", "x").await;
    assert_eq!(refused["delivery"], "not_sent");
    assert!(refused["error"].as_str().unwrap().contains("no thread 9"), "{refused}");
    assert_eq!(world.api.requests().len(), 1);
}

#[tokio::test]
async fn discord_opens_a_post_in_a_forum_and_goes_on_in_it() {
    let world = World::friendly();
    let long = format!("# Title of it\n{}", "word ".repeat(600));
    let answer = world.sent("discord:Nous Lab/ideas", &long).await;
    assert_eq!(answer["parts"], json!(2));
    assert_eq!(answer["message_ids"], json!(["7002", "m1"]));
    let requests = world.api.requests();
    assert_eq!(requests[0].path, "/channels/112233445566778801/threads");
    assert_eq!(requests[0].json()["name"], "Title of it");
    assert_eq!(requests[0].header("authorization"), Some(&*format!("Bot {TOKEN}")));
    assert_eq!(requests[1].path, "/channels/7001/messages");
    assert_eq!(requests[1].json()["allowed_mentions"], json!({"parse": ["users"]}));
}

#[tokio::test]
async fn discord_learns_that_a_channel_is_a_forum() {
    let world = World::with(ChatApi::start(|number, request| match number {
        0 => Reply::status(
            400,
            json!({"message": "Cannot send messages in a non-text channel", "code": 50008}),
        ),
        _ => super::super::chat_api::friendly(request),
    }));
    world.sent("discord:555666", "hello").await;
    let paths: Vec<String> = world.api.requests().iter().map(|request| request.path.clone()).collect();
    assert_eq!(paths, ["/channels/555666/messages", "/channels/555666/threads"]);
}

#[tokio::test]
async fn slack_keeps_the_thread_and_opens_the_direct_messages_of_a_person() {
    let world = World::friendly();
    let answer = world.sent("slack:C0B0QV5434G:1722.0001", "**hi** <@x> & [a](http://b)").await;
    assert_eq!(answer["message_id"], "1.1");
    let request = &world.api.requests()[0];
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    assert_eq!(
        request.json(),
        json!({"channel": "C0B0QV5434G", "text": "*hi* &lt;@x&gt; &amp; <http://b|a>", "mrkdwn": true, "thread_ts": "1722.0001"})
    );
    let answer = world.sent("slack:U02ABCDEF", "hi").await;
    assert_eq!(answer["chat_id"], "D0OPENED1");
    let requests = world.api.requests();
    assert_eq!(requests[1].json(), json!({"users": "U02ABCDEF"}));
    assert_eq!(requests[2].json()["channel"], "D0OPENED1");
}

#[tokio::test]
async fn slacks_own_errors_say_whether_the_message_may_be_there() {
    for (error, delivery) in [("channel_not_found", "not_sent"), ("internal_error", "unknown")] {
        let world = World::with(ChatApi::start(move |_, _| Reply::ok(json!({"ok": false, "error": error}))));
        let refused = world.refused("slack:C0B0QV5434G", "x").await;
        assert_eq!(refused["delivery"], delivery, "{refused}");
        assert!(refused["error"].as_str().unwrap().contains(error));
    }
}

#[tokio::test]
async fn signal_tells_a_group_whose_members_were_not_all_reached() {
    let result = |kinds: &[&str]| {
        let results: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind})).collect();
        json!({"jsonrpc": "2.0", "id": "x", "result": {"timestamp": 1, "results": results}})
    };
    let some = result(&["SUCCESS", "UNREGISTERED_FAILURE"]);
    let world = World::with(ChatApi::start(move |_, _| Reply::ok(some.clone())));
    let answer = world.sent("signal:group:abc=", "x").await;
    assert!(answer["warnings"][0].as_str().unwrap().contains("1 of 2"), "{answer}");
    let none = result(&["NETWORK_FAILURE"]);
    let world = World::with(ChatApi::start(move |_, _| Reply::ok(none.clone())));
    assert_eq!(world.refused("signal:+15551234567", "x").await["delivery"], "not_sent");
    let unclear = json!({"jsonrpc": "2.0", "id": "x", "error": {"code": -3, "message": "io"}});
    let world = World::with(ChatApi::start(move |_, _| Reply::ok(unclear.clone())));
    assert_eq!(world.refused("signal:+15551234567", "x").await["delivery"], "unknown");
}

#[tokio::test]
async fn whatsapp_says_when_its_bridge_is_not_connected_or_not_there() {
    let world =
        World::with(ChatApi::start(|_, _| Reply::status(503, json!({"error": "Not connected to WhatsApp"}))));
    assert_eq!(world.refused("whatsapp:+4917012345678", "x").await["delivery"], "not_sent");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    world.set_extra("whatsapp", "bridge_port", &free.to_string());
    let refused = world.refused("whatsapp:+4917012345678", "x").await;
    assert!(refused["error"].as_str().unwrap().contains("bridge is not there"), "{refused}");
    assert_eq!(refused["delivery"], "not_sent");
}

#[tokio::test]
async fn matrix_writes_into_threads_and_into_the_one_direct_room_of_a_person() {
    let world = World::with(ChatApi::start(|_, request| match request.path.as_str() {
        path if path.ends_with("/whoami") => Reply::ok(json!({"user_id": "@me:server"})),
        path if path.ends_with("/m.direct") => Reply::ok(json!({
            "@ana:server": ["!left:server", "!ana:server"], "@bo:server": ["!b1:server", "!b2:server"],
        })),
        path if path.ends_with("/joined_rooms") => {
            Reply::ok(json!({"joined_rooms": ["!ana:server", "!b1:server", "!b2:server"]}))
        }
        _ => super::super::chat_api::friendly(request),
    }));
    world.sent("matrix:!a:server:$root", "x").await;
    let relation = world.api.requests()[0].json()["m.relates_to"].clone();
    assert_eq!(relation["event_id"], "$root");
    assert_eq!(relation["rel_type"], "m.thread");
    let answer = world.sent("matrix:@ana:server", "x").await;
    assert_eq!(answer["chat_id"], "!ana:server");
    assert_eq!(recipient(world.api.requests().last().unwrap()), "!ana:server");
    let count = world.api.requests().len();
    for (person, why) in [("@bo:server", "several direct rooms"), ("@cy:server", "no direct room")] {
        let refused = world.refused(&format!("matrix:{person}"), "x").await;
        assert!(refused["error"].as_str().unwrap().contains(why), "{refused}");
        assert_eq!(refused["delivery"], "not_sent");
    }
    assert!(world.api.requests()[count..].iter().all(|request| request.method == "GET"));
}

#[tokio::test]
async fn dingtalk_answers_with_its_error_in_a_success() {
    let world = World::with(ChatApi::start(|_, _| {
        Reply::ok(json!({"errcode": 310000, "errmsg": "keywords not in content"}))
    }));
    let refused = world.refused("dingtalk", "x").await;
    assert_eq!(refused["delivery"], "not_sent");
    assert!(refused["error"].as_str().unwrap().contains("310000"), "{refused}");
}

#[tokio::test]
async fn files_go_where_they_are_taken_and_are_said_to_be_left_out_elsewhere() {
    let world = World::friendly();
    let images = world.home.path().join("cache/images");
    std::fs::create_dir_all(&images).unwrap();
    std::fs::write(images.join("a.png"), b"\x89PNG data").unwrap();
    let message = format!("look MEDIA:{}", images.join("a.png").display());
    world.sent("telegram:5", &message).await;
    world.sent("discord:5", &message).await;
    world.sent("signal:+15551234567", &message).await;
    world.sent("matrix:!a:server", &message).await;
    let requests = world.api.requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(paths[..6], ["sendMessage", "sendPhoto", "messages", "messages", "rpc", "rpc"]);
    assert_eq!(requests[0].json()["text"], "look");
    let photo = requests[1].text();
    assert!(
        photo.contains("name=\"photo\"; filename=\"a.png\"") && photo.contains("name=\"chat_id\""),
        "{photo}"
    );
    assert!(requests[3].text().contains("name=\"files[0]\""));
    let attachment = requests[5].json()["params"]["attachments"][0].as_str().unwrap().to_owned();
    assert!(attachment.starts_with("data:image/png;filename=a.png;base64,"), "{attachment}");
    assert!(paths[7].starts_with("upload"));
    assert_eq!(requests[8].json()["msgtype"], "m.image");
    let slack = world.sent("slack:C0B0QV5434G", &message).await;
    assert!(slack["warnings"][0].as_str().unwrap().contains("not sent to slack"), "{slack}");
    let count = world.api.requests().len();
    for target in ["slack:C0B0QV5434G", "telegram:5"] {
        let only = world.refused(target, "MEDIA:/etc/passwd").await;
        assert!(only["error"].as_str().unwrap().starts_with("No deliverable text or media"), "{only}");
        assert!(only["warnings"][0].as_str().unwrap().contains("not in a media folder"), "{only}");
    }
    assert_eq!(world.api.requests().len(), count, "an empty message is never posted");
}
