//! Pure: everything that is listed, and what needs nothing of the client.

use serde_json::{Value, json};

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A sample of silence.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

const BARE_TOOLS: [&str; 24] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_error_handling",
    "test_streaming_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_capabilities",
    "test_plain",
];

fn tool(name: &str, schema: Value) -> Value {
    json!({ "name": name, "description": format!("Conformance: {name}"), "inputSchema": schema })
}

/// The tools; `more` has one more of them.
pub(crate) fn tools(more: bool) -> Value {
    let bare = json!({ "type": "object", "properties": {} });
    let with = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    let mut all: Vec<Value> = BARE_TOOLS.iter().map(|name| tool(name, bare.clone())).collect();
    all.push(tool("test_sampling", with("prompt")));
    all.push(tool("test_elicitation", with("message")));
    all.push(tool("json_schema_2020_12_tool", schema_2020_12()));
    all.push(tool(
        "test_header_parameters",
        json!({
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
            "required": ["region"],
        }),
    ));
    if more {
        all.push(tool("test_one_more", bare));
    }
    Value::Array(all)
}

fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// The prompts; `more` has one more of them.
pub(crate) fn prompts(more: bool) -> Value {
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments
            .iter()
            .map(|name| json!({ "name": name, "description": format!("The {name}"), "required": true }))
            .collect();
        json!({ "name": name, "description": format!("Conformance: {name}"), "arguments": arguments })
    };
    let mut all = vec![
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ];
    if more {
        all.push(prompt("test_one_more", &[]));
    }
    Value::Array(all)
}

/// The resources.
pub(crate) fn resources() -> Value {
    let resource = |uri: &str, kind: &str| {
        let name = uri.trim_start_matches("test://");
        json!({ "uri": uri, "name": name, "description": format!("Conformance: {name}"), "mimeType": kind })
    };
    json!([
        resource("test://static-text", "text/plain"),
        resource("test://static-binary", "image/png"),
        resource("test://watched-resource", "text/plain"),
    ])
}

/// The templates.
pub(crate) fn templates() -> Value {
    json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "Conformance: data by id",
        "mimeType": "application/json",
    }])
}

/// The contents behind a URI.
pub(crate) fn read(uri: &str) -> Option<Value> {
    let text = |kind: &str, text: &str| Some(json!({ "uri": uri, "mimeType": kind, "text": text }));
    match uri {
        "test://static-text" => text("text/plain", "This is the content of the static text resource."),
        "test://static-binary" => Some(json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })),
        "test://watched-resource" => text("text/plain", "watched"),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            text("application/json", &data.to_string())
        }
    }
}

/// The result of a tool or prompt that asks nothing.
pub(crate) fn plain(name: &str, arguments: &Value) -> Option<Value> {
    let said = |text: &str| json!({ "type": "text", "text": text });
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let embedded = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    let content = |blocks: Vec<Value>| Some(json!({ "content": blocks }));
    let prompt = |blocks: Vec<Value>| {
        let messages: Vec<Value> =
            blocks.into_iter().map(|block| json!({ "role": "user", "content": block })).collect();
        Some(json!({ "messages": messages }))
    };
    let argument = |key: &str| arguments[key].as_str().unwrap_or_default();
    match name {
        "test_simple_text" => content(vec![said("This is a simple text response for testing.")]),
        "test_plain" | "test_one_more" | "test_header_parameters" => content(vec![said("plain")]),
        "json_schema_2020_12_tool" => content(vec![said("valid")]),
        "test_image_content" => content(vec![image]),
        "test_audio_content" => {
            content(vec![json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })])
        }
        "test_embedded_resource" => content(vec![embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )]),
        "test_multiple_content_types" => {
            let data = json!({ "test": "data", "value": 123 }).to_string();
            let resource = embedded("test://mixed-content-resource", "application/json", &data);
            content(vec![said("Multiple content types test:"), image, resource])
        }
        "test_error_handling" => {
            Some(crate::steps::failed("This tool intentionally returns an error for testing"))
        }
        "test_simple_prompt" => prompt(vec![said("This is a simple prompt for testing.")]),
        "test_prompt_with_arguments" => prompt(vec![said(&format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2")
        ))]),
        "test_prompt_with_embedded_resource" => prompt(vec![
            embedded(argument("resourceUri"), "text/plain", "Embedded resource content for testing."),
            said("Please process the embedded resource above."),
        ]),
        "test_prompt_with_image" => prompt(vec![image, said("Please analyze the image above.")]),
        _ => None,
    }
}

/// A form with a default for each kind of value.
pub(crate) fn defaults() -> Value {
    json!({
        "name": { "type": "string", "description": "User name", "default": "John Doe" },
        "age": { "type": "integer", "description": "User age", "default": 30 },
        "score": { "type": "number", "description": "User score", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "description": "Verification status", "default": true },
    })
}

/// A form with each way to choose.
pub(crate) fn choices() -> Value {
    let titled = |prefix: &str| {
        json!([
            { "const": "value1", "title": format!("First {prefix}") },
            { "const": "value2", "title": format!("Second {prefix}") },
            { "const": "value3", "title": format!("Third {prefix}") },
        ])
    };
    let options = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    })
}
