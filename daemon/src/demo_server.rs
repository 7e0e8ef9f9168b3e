//! hermes-demo-server: the small MCP server that `hermesctl demo` runs behind hermesd.
//!
//! A real server on the official SDK, over stdio. Three tools: `echo` (latency), `count` (progress)
//! and `whoami` (pid and calls so far, which shows a restart). Touches nothing but its stdio.

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig,
    Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServiceExt};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Highest number `count` counts to: 10 s at its slowest.
const MAX_COUNT: u64 = 100;
/// Longest pause between two numbers, in milliseconds.
const MAX_PAUSE_MS: u64 = 100;

#[derive(Debug, Default)]
struct Demo {
    calls: AtomicU64,
}

impl ServerHandler for Demo {
    fn get_info(&self) -> ServerConfig {
        let mut config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        config.server_info = Implementation::new("hermes-demo-server", env!("CARGO_PKG_VERSION"));
        config.instructions = Some("Sample tools of the hermesd demo.".to_owned());
        config
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let arguments = request.arguments.unwrap_or_default();
        let text = match request.name.as_ref() {
            "echo" => match arguments.get("text") {
                Some(Value::String(text)) => text.clone(),
                _ => return Err(ErrorData::invalid_params("`text` must be a string", None)),
            },
            "count" => count(&arguments, &context).await?,
            "whoami" => format!("pid {}, {calls} calls since this process started", std::process::id()),
            other => return Err(ErrorData::invalid_params(format!("no tool `{other}`"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// Counts up, with a progress notification for each number if the caller asked for them.
async fn count(arguments: &JsonObject, context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let number = |name: &str, default: u64, most: u64| match arguments.get(name) {
        None => Ok(default),
        Some(value) => value.as_u64().filter(|n| (1..=most).contains(n)).ok_or_else(|| {
            ErrorData::invalid_params(format!("`{name}` must be a number from 1 to {most}"), None)
        }),
    };
    let (to, pause) = (number("to", 5, MAX_COUNT)?, number("pause_ms", 50, MAX_PAUSE_MS)?);
    let token = context.meta.get_progress_token();
    for at in 1..=to {
        tokio::select! {
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
            () = tokio::time::sleep(Duration::from_millis(pause)) => {}
        }
        if let Some(token) = &token {
            #[expect(clippy::cast_precision_loss, reason = "at most 100")]
            let progress = ProgressNotificationParam::new(token.clone(), at as f64)
                .with_total(to as f64)
                .with_message(format!("{at} of {to}"));
            // A client that went away ends this server by closing its stdin.
            let _ = context.peer.notify_progress(progress).await;
        }
    }
    Ok(format!("counted to {to}"))
}

fn tools() -> Vec<Tool> {
    let object = |properties: Value, required: &[&str]| match json!({
        "type": "object", "properties": properties, "required": required,
    }) {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    };
    let tool = |name: &'static str, description: &'static str, schema: JsonObject| {
        Tool::new(name, description, schema).with_annotations(ToolAnnotations::new().read_only(true))
    };
    vec![
        tool(
            "echo",
            "Answers with the text it was given.",
            object(json!({ "text": { "type": "string", "description": "What to repeat" } }), &["text"]),
        ),
        tool(
            "count",
            "Counts up and reports progress at each number.",
            object(
                json!({
                    "to": { "type": "integer", "minimum": 1, "maximum": MAX_COUNT, "description": "Last number" },
                    "pause_ms": {
                        "type": "integer", "minimum": 1, "maximum": MAX_PAUSE_MS,
                        "description": "Milliseconds before each number",
                    },
                }),
                &[],
            ),
        ),
        tool("whoami", "Names the server process and counts its calls.", object(json!({}), &[])),
    ]
}

/// What a person who starts it by hand should know.
const ABOUT: &str = concat!(
    "hermes-demo-server ",
    env!("CARGO_PKG_VERSION"),
    "\n\nA small MCP server with the tools echo, count and whoami. `hermesctl demo` runs it behind hermesd.\n\
     Takes no options; speaks MCP (one JSON-RPC message a line) on stdin and stdout until stdin is closed.\n"
);

fn main() -> ExitCode {
    if let Some(word) = std::env::args_os().nth(1) {
        let asked = ["--help", "-h", "--version", "-V", "help"].iter().any(|known| word == **known);
        // A closed stream loses the text, not the exit code.
        let (_, code) = if asked {
            (std::io::stdout().write_all(ABOUT.as_bytes()), ExitCode::SUCCESS)
        } else {
            (std::io::stderr().write_all(ABOUT.as_bytes()), ExitCode::from(2))
        };
        return code;
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let served = runtime.block_on(async {
        let service = Demo::default().serve(rmcp::transport::stdio_pipes()).await.ok()?;
        service.waiting().await.ok()
    });
    // A read of stdin may hang on a thread of its own; nothing is lost by leaving it.
    runtime.shutdown_background();
    if served.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
