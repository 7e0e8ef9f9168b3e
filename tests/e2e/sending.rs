//! `messages_send` through the real shim, to a messaging platform that is made up.

use crate::world;
use hermes_tests::{ChatApi, Reply, SOON, Shim, World, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const TOKEN: &str = "777000:AbCdEf-very-secret-bot-token";
const MUM: &str = "telegram:6308981865";

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A recorded home whose Telegram is `api`; the token is in `.env`, as Hermes Agent keeps it.
pub(crate) fn recorded(api: &ChatApi, more: &str) -> World {
    let w = world()
        .env("TZ", "UTC")
        .yaml(&format!("platforms:\n  telegram:\n    extra: {{ base_url: '{}' }}\n{more}", api.url()));
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/hermes-home"), &w.home());
    fs::write(w.home().join(".env"), format!("TELEGRAM_BOT_TOKEN={TOKEN}\n")).unwrap();
    w
}

fn client(w: &World) -> Shim {
    let mut shim = w.shim();
    shim.initialize();
    shim
}

fn send(shim: &mut Shim, target: &str, message: &str) -> Value {
    shim.call("messages_send", &json!({"target": target, "message": message}))
}

/// A text reaches the chat that was named, and is in its conversation afterwards.
#[test]
fn a_message_reaches_its_chat_and_its_conversation() {
    let api = ChatApi::friendly();
    let w = recorded(&api, "");
    let _daemon = w.start();
    let mut shim = client(&w);
    let result = send(&mut shim, "telegram:wei zhang 张伟", "**On my way.** 马上到");
    assert_ne!(result["isError"], true, "{result}");
    assert_eq!(
        result["structuredContent"],
        json!({"success": true, "platform": "telegram", "chat_id": "6308981865", "message_id": "42", "mirrored": true})
    );
    let requests = api.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path, format!("/bot{TOKEN}/sendMessage"));
    assert_eq!(
        requests[0].json(),
        json!({"chat_id": 6308981865_u64, "text": "*On my way\\.* 马上到", "parse_mode": "MarkdownV2"})
    );
    let key = "agent:main:telegram:dm:6308981865";
    let read = shim.call("messages_read", &json!({"session_key": key, "limit": 1}));
    let newest = &read["structuredContent"]["messages"][0];
    assert_eq!((&newest["role"], &newest["content"]), (&json!("assistant"), &json!("**On my way.** 马上到")));
}

/// The tool says that it acts on the world outside.
#[test]
fn the_tool_says_that_it_acts_outside() {
    let api = ChatApi::friendly();
    let w = recorded(&api, "");
    let _daemon = w.start();
    let tools = client(&w).tools();
    let tool = tools.iter().find(|tool| tool["name"] == "messages_send").unwrap();
    let hints = &tool["annotations"];
    assert_eq!(
        (&hints["readOnlyHint"], &hints["destructiveHint"], &hints["openWorldHint"]),
        (&json!(false), &json!(true), &json!(true))
    );
    assert!(tool["inputSchema"]["properties"]["idempotency_key"].is_object());
}

/// A platform that does not answer keeps nobody else waiting, and a cancelled call is not sent again.
#[test]
fn a_platform_that_hangs_blocks_no_other_tool() {
    let api = ChatApi::start(|_, _| Reply::Hold);
    let w = recorded(&api, "");
    let _daemon = w.start();
    let mut shim = client(&w);
    let held = shim.begin_call("messages_send", &json!({"target": MUM, "message": "x"}));
    api.wait_for(1);
    assert_ne!(shim.call("conversations_list", &json!({}))["isError"], true);
    assert_ne!(client(&w).call("channels_list", &json!({}))["isError"], true);
    shim.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": held}}));
    assert_ne!(shim.call("conversations_list", &json!({}))["isError"], true);
    assert_eq!(api.requests().len(), 1);
}

/// The configuration counts as it is: off, on, another address, gateway.json below it.
#[test]
fn the_configuration_in_force_is_used() {
    let (first, second) = (ChatApi::friendly(), ChatApi::friendly());
    let w = recorded(
        &first,
        "  slack: { enabled: true, token: xoxb-config-token, extra: { base_url: 'http://127.0.0.1:1' } }\n",
    );
    let slack = json!({"platforms": {"slack": {"enabled": true, "home_channel": {"chat_id": "C0B0QV5434G"}},
        "discord": {"enabled": true, "token": "from-gateway-json", "extra": {"base_url": second.url()}}}});
    fs::write(w.home().join("gateway.json"), slack.to_string()).unwrap();
    let _daemon = w.start();
    let mut shim = client(&w);
    let refused = send(&mut shim, "slack", "x");
    assert_eq!(refused["structuredContent"]["delivery"], "not_sent", "{refused}");
    assert!(
        refused["structuredContent"]["error"].as_str().unwrap().contains("slack:C0B0QV5434G"),
        "{refused}"
    );
    assert_ne!(send(&mut shim, "discord:bot-home", "x")["isError"], true);
    assert_eq!(second.requests()[0].header("authorization"), Some("Bot from-gateway-json"));
    let config = w.home().join("config.yaml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(&first.url(), &second.url())).unwrap();
    w.ctl(["reload"]).succeeds();
    assert_ne!(send(&mut shim, MUM, "x")["isError"], true);
    assert_eq!((first.requests().len(), second.requests().len()), (0, 2));
    fs::remove_file(w.home().join(".env")).unwrap();
    w.ctl(["reload"]).succeeds();
    let off = send(&mut shim, MUM, "x");
    assert!(off["structuredContent"]["hint"].as_str().unwrap().contains("enabled: true"), "{off}");
    assert_eq!(second.requests().len(), 2);
}

/// A proxy in the environment is for the way out of this machine only.
#[test]
fn a_proxy_is_not_used_for_this_machine() {
    let (api, proxy) = (ChatApi::friendly(), ChatApi::friendly());
    let w = recorded(&api, "").env("HTTP_PROXY", &proxy.url()).env("ALL_PROXY", &proxy.url());
    let w = w
        .env("TELEGRAM_PROXY", &proxy.url())
        .env("HASS_TOKEN", "hass-token")
        .env("HASS_URL", "http://house.invalid");
    let _daemon = w.start();
    let mut shim = client(&w);
    assert_ne!(send(&mut shim, MUM, "x")["isError"], true);
    assert_eq!((api.requests().len(), proxy.requests().len()), (1, 0));
    assert_ne!(send(&mut shim, "homeassistant:1", "x")["isError"], true);
    assert_eq!(proxy.requests()[0].path, "http://house.invalid/api/services/notify/notify");
}

/// A daemon that is killed in the middle leaves a key behind that does not send again.
#[test]
fn a_key_outlives_a_daemon_that_was_killed() {
    let api = ChatApi::start(|number, request| match number {
        0 => hermes_tests::chat_api::friendly(request),
        _ => Reply::Hold,
    });
    let w = recorded(&api, "");
    let mut daemon = w.start();
    let mut shim = w.shim_with(&["mcp", "serve", "--no-spawn"]);
    shim.initialize();
    let keyed = |key: &str| json!({"target": MUM, "message": "once", "idempotency_key": key});
    assert_ne!(shim.call("messages_send", &keyed("done"))["isError"], true);
    shim.begin_call("messages_send", &keyed("cut"));
    api.wait_for(2);
    daemon.kill_hard();
    drop(daemon);
    let _daemon = w.start();
    let mut shim = client(&w);
    let done = shim.call("messages_send", &keyed("done"));
    assert_eq!(done["structuredContent"]["repeated"], true, "{done}");
    let cut = shim.call("messages_send", &keyed("cut"));
    assert_eq!(cut["structuredContent"]["delivery"], "unknown", "{cut}");
    assert_eq!(api.requests().len(), 2);
}

/// The token is in no log, no status, no audit, no answer.
#[test]
fn the_token_stays_where_it_is() {
    let api = ChatApi::start(|_, request| {
        Reply::status(
            401,
            json!({"ok": false, "description": format!("no bot at {} with {TOKEN}", request.path)}),
        )
    });
    let w = recorded(&api, "");
    let _daemon = w.start();
    let mut shim = client(&w);
    let refused = send(&mut shim, MUM, "x");
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(!refused.to_string().contains("very-secret"), "{refused}");
    let rows = || w.ctl(["audit", "--json"]).succeeds().stdout;
    wait_for("the call is in the audit", SOON, || rows().contains("messages_send"));
    assert!(!rows().contains("very-secret"));
    for command in [["status", "--json"], ["logs", "--json"], ["config", "check"]] {
        assert!(!w.ctl(command).stdout.contains("very-secret"), "{command:?}");
    }
    let mut todo = vec![w.home().join("logs"), w.home().join("hermesd")];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                todo.push(entry.path());
            } else if let Ok(bytes) = fs::read(entry.path()) {
                let found = bytes.windows(11).any(|window| window == b"very-secret");
                assert!(!found, "{}", entry.path().display());
            }
        }
    }
}

/// `hermesd.builtin.approval` holds a message until a person has decided, and looking at approvals never waits.
#[test]
fn a_message_waits_for_a_person_where_the_configuration_says_so() {
    let api = ChatApi::friendly();
    let w = recorded(&api, "hermesd:\n  builtin: { approval: destructive }\n");
    let _daemon = w.start();
    let mut shim = client(&w);
    let call = shim.begin_call("messages_send", &json!({"target": MUM, "message": "may I?"}));
    let waiting = || w.ctl(["approvals", "--json"]).succeeds().json()["waiting"][0].clone();
    wait_for("the call waits", SOON, || waiting()["tool"] == "messages_send");
    assert_eq!(waiting()["server"], "hermes");
    assert_eq!(api.requests().len(), 0);
    // Another client sees it too, and reading waits for nobody.
    let mut other = client(&w);
    let listed = other.call("permissions_list_open", &json!({}));
    assert_eq!(listed["structuredContent"]["approvals"][0]["tool"], "messages_send", "{listed}");
    assert_ne!(other.call("channels_list", &json!({}))["isError"], true);
    w.ctl(["approvals", "respond", waiting()["id"].as_str().unwrap(), "allow-once"]).succeeds();
    let answer = shim.reply(&call);
    assert_eq!(answer["result"]["structuredContent"]["success"], true, "{answer}");
    assert_eq!(api.requests().len(), 1);
    let call = shim.begin_call("messages_send", &json!({"target": MUM, "message": "and now?"}));
    wait_for("the call waits", SOON, || waiting()["tool"] == "messages_send");
    w.ctl(["approvals", "respond", waiting()["id"].as_str().unwrap(), "deny"]).succeeds();
    assert_eq!(shim.reply(&call)["result"]["_meta"]["kind"], "approval_denied");
    assert_eq!(api.requests().len(), 1);
}

/// A missing variable is found by `config check`, with its line.
#[test]
fn a_credential_that_is_missing_is_a_finding() {
    let w = world().yaml("platforms:\n  discord:\n    enabled: true\n    token: ${NOT_SET_ANYWHERE}\n");
    let checked = w.ctl(["config", "check"]).exits(1);
    let text = format!("{}{}", checked.stdout, checked.stderr);
    assert!(text.contains("platforms.discord.token") && text.contains("NOT_SET_ANYWHERE"), "{text}");
}
