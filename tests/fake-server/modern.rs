//! The fake server as one of 2026-07-28: no session, each request says who asks.

use crate::serve::{Message, Shared};
use hermes_tests::script::Modern;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

const REVISION: &str = "2026-07-28";
const KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// Set by the first refusal.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Answers what is different in this era; `false`: it is answered as always.
pub(crate) fn answer(shared: &Shared, id: &str, method: &str, message: &Message) -> bool {
    let params = message.params_value();
    let about = &params["_meta"];
    let spoiled = shared.script.modern == Modern::FirstCounts && REFUSED.load(Ordering::Relaxed);
    if about[KEY] != REVISION || !about["io.modelcontextprotocol/clientCapabilities"].is_object() || spoiled {
        REFUSED.store(true, Ordering::Relaxed);
        let text = format!("the request lacks _meta {KEY}; this server speaks {REVISION}");
        shared.error(id, &json!({"code": -32602, "message": text}));
        return true;
    }
    match method {
        "server/discover" => {
            let capabilities = shared.script.capabilities.clone();
            let capabilities = capabilities.unwrap_or_else(|| json!({"tools": {"listChanged": true}}));
            let result = json!({"supportedVersions": [REVISION], "capabilities": capabilities, "resultType": "complete",
                "ttlMs": 0, "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "1"}}});
            shared.result(id, &result.to_string());
        }
        "subscriptions/listen" => {
            let told = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
                "_meta": {"io.modelcontextprotocol/subscriptionId": message.id.as_ref().map(|id| id.get())},
                "notifications": params["notifications"]}});
            shared.out.message(&told.to_string());
        }
        "tools/call" if params["name"] == "ask" => ask(shared, id, &params),
        // The older revisions had these.
        "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
            shared.error(id, &json!({"code": -32601, "message": "Method not found"}));
        }
        _ => return false,
    }
    true
}

/// Wants what its arguments name, so often as they say, then tells what it got.
fn ask(shared: &Shared, id: &str, params: &Value) {
    let wants = json!({"resultType": "input_required", "requestState": "state \u{e9}",
        "inputRequests": {"one": {"method": params["arguments"]["method"], "params": params["arguments"]["params"]}}});
    let got = params["inputResponses"]["one"].clone();
    if got.is_null() || params["requestState"] != "state \u{e9}" || params["arguments"]["for_ever"] == true {
        return shared.result(id, &wants.to_string());
    }
    let can = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    let text = json!({"got": got, "can": can}).to_string();
    shared.result(
        id,
        &json!({"content": [{"type": "text", "text": text}], "resultType": "complete"}).to_string(),
    );
}
