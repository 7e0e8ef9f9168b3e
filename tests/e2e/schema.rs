//! What hermesd writes is what the published MCP schemas allow, revision by revision.

use crate::world;
use hermes_tests::Script;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The definitions of one revision, whatever keyword it keeps them under.
pub(crate) fn schema(version: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schema/{version}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

pub(crate) fn check(schema: &Value, kind: &str, value: &Value) {
    let keyword = if schema.get("$defs").is_some() { "$defs" } else { "definitions" };
    assert!(schema[keyword].get(kind).is_some(), "no {kind}");
    let mut root = json!({"$ref": format!("#/{keyword}/{kind}")});
    root[keyword] = schema[keyword].clone();
    let validator = jsonschema::validator_for(&root).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{kind}: {errors:#?} in {value}");
}

/// Handshake, lists, results, refusals and notifications follow the schema of the negotiated revision.
#[test]
fn every_message_follows_the_schema_of_its_revision() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    drop(w.client(&["w"]));
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let schema = schema(version);
        let mut client = w.shim();
        check(&schema, "InitializeResult", &client.initialize_as(version, &json!({})));
        client.wait_tool("mcp_w_echo");
        let list = client.request("tools/list", &json!({}));
        check(&schema, "ListToolsResult", &list["result"]);
        check(&schema, "ListPromptsResult", &client.request("prompts/list", &json!({}))["result"]);
        check(&schema, "ListResourcesResult", &client.request("resources/list", &json!({}))["result"]);
        check(&schema, "CallToolResult", &client.call("mcp_w_echo", &json!({"text": "x"})));
        check(&schema, "CallToolResult", &client.call("mcp_w_image", &json!({})));
        let error = client.request("no/such/method", &json!({}));
        let kind = if version == "2025-11-25" { "JSONRPCErrorResponse" } else { "JSONRPCError" };
        check(&schema, kind, &error);
        let params =
            json!({"name": "mcp_w_progress", "arguments": {"n": 1}, "_meta": {"progressToken": "t"}});
        let id = client.begin("tools/call", &params);
        client.reply(&id);
        check(&schema, "ProgressNotification", &client.wait_method("notifications/progress"));
    }
}

/// The schemas are the published ones and can tell right from wrong.
#[test]
fn the_schemas_can_fail() {
    let schema = schema("2025-11-25");
    let result = std::panic::catch_unwind(|| check(&schema, "CallToolResult", &json!({"content": "text"})));
    assert!(result.is_err());
}
