//! The MCP side of the server: which request is answered how, in either era.

// Log messages, subscriptions and requests of servers are of the old era, which is spoken here too.
#![allow(deprecated)]

use crate::lists;
use crate::steps::{self, Given, Step, Wanted};
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, Implementation, InputRequest, InputRequiredResult,
    InputResponses, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;

/// Rounds of questions before a tool gives up.
const ROUNDS: usize = 8;

/// Which revisions are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Up to 2025-11-25.
    Old,
    /// From 2026-07-28.
    New,
    /// All of them.
    Both,
}

impl Era {
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "old" => Some(Self::Old),
            "new" => Some(Self::New),
            "both" => Some(Self::Both),
            _ => None,
        }
    }
}

/// A list that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Tools,
    Prompts,
}

/// What all sessions of one process share.
#[derive(Debug)]
pub(crate) struct Shared {
    more_tools: AtomicBool,
    more_prompts: AtomicBool,
    changes: broadcast::Sender<Change>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            more_tools: AtomicBool::new(false),
            more_prompts: AtomicBool::new(false),
            changes: broadcast::Sender::new(16),
        }
    }
}

/// One session.
#[derive(Debug)]
pub(crate) struct Backend {
    era: Era,
    shared: Arc<Shared>,
}

impl Backend {
    pub(crate) fn new(era: Era, shared: Arc<Shared>) -> Self {
        Self { era, shared }
    }
}

type Context = RequestContext<RoleServer>;

/// JSON of the protocol as the SDK's type for it.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A result as the SDK's type for it; the new era names the kind of every result.
fn result<T: DeserializeOwned>(mut value: Value, context: &Context) -> Result<T, ErrorData> {
    if is_new(context) {
        value["resultType"] = json!("complete");
    }
    typed(value)
}

fn is_new(context: &Context) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

fn capabilities(context: &Context) -> ClientCapabilities {
    context.client_capabilities().unwrap_or_default()
}

fn has(capabilities: &ClientCapabilities, method: &str) -> bool {
    match method {
        "sampling/createMessage" => capabilities.sampling.is_some(),
        "elicitation/create" => capabilities.elicitation.is_some(),
        _ => capabilities.roots.is_some(),
    }
}

impl Backend {
    /// What a tool or prompt comes to: its result, or in the new era what it needs first.
    async fn run(
        &self,
        name: &str,
        arguments: &Value,
        responses: Option<InputResponses>,
        state: Option<String>,
        context: &Context,
    ) -> Result<Result<Value, InputRequiredResult>, ErrorData> {
        let declared = capabilities(context);
        let can = |method: &str| has(&declared, method);
        let mut given = Given { responses: responses.unwrap_or_default(), state };
        for _ in 0..ROUNDS {
            match steps::step(name, arguments, &given, &can)? {
                Step::Done(result) => return Ok(Ok(result)),
                Step::Needs { wanted, state } if is_new(context) => {
                    let requests = wanted.into_iter().map(|(key, one)| Ok((key, request(one)?)));
                    let requests = requests.collect::<Result<BTreeMap<_, _>, ErrorData>>()?;
                    return Ok(Err(InputRequiredResult::new(Some(requests), state)));
                }
                Step::Needs { wanted, state } => {
                    let mut responses = InputResponses::new();
                    for (key, one) in wanted {
                        if !can(one.method) {
                            let text = format!("the client cannot answer {}", one.method);
                            return Ok(Ok(steps::failed(&text)));
                        }
                        responses.insert(key, ask(one, context).await?);
                    }
                    given = Given { responses, state };
                }
            }
        }
        Err(ErrorData::internal_error("too many rounds of questions", None))
    }

    /// Tools that do something besides answering.
    async fn act(&self, name: &str, context: &Context) -> Option<Result<Value, ErrorData>> {
        match name {
            "test_tool_with_logging" | "test_logging_tool" => {
                for (at, text) in
                    ["Tool execution started", "Tool processing data", "Tool execution completed"]
                        .iter()
                        .enumerate()
                {
                    if at > 0 {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    log(text, context).await;
                }
                Some(Ok(steps::text("logged")))
            }
            "test_tool_with_progress" => {
                for step in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let progress = ProgressNotificationParam::new(token, step).with_total(100.0);
                        let _ = context.peer.notify_progress(progress).await;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Some(Ok(steps::text("made progress")))
            }
            "test_trigger_tool_change" => {
                self.shared.more_tools.fetch_xor(true, Ordering::Relaxed);
                self.tell(Change::Tools, context).await;
                Some(Ok(steps::text("the tools changed")))
            }
            "test_trigger_prompt_change" => {
                self.shared.more_prompts.fetch_xor(true, Ordering::Relaxed);
                self.tell(Change::Prompts, context).await;
                Some(Ok(steps::text("the prompts changed")))
            }
            "test_missing_capability" if !has(&capabilities(context), "sampling/createMessage") => {
                let required = typed(json!({ "sampling": {} })).expect("a client may have sampling");
                Some(Err(ErrorData::missing_required_client_capability(required)))
            }
            _ => None,
        }
    }

    async fn tell(&self, change: Change, context: &Context) {
        // Without a subscription there is nobody to send it to.
        let _ = self.shared.changes.send(change);
        if !is_new(context) {
            let _ = match change {
                Change::Tools => context.peer.notify_tool_list_changed().await,
                Change::Prompts => context.peer.notify_prompt_list_changed().await,
            };
        }
    }
}

async fn log(text: &str, context: &Context) {
    // In the new era a request has to ask for log lines.
    if is_new(context) && !context.meta.contains_key("io.modelcontextprotocol/logLevel") {
        return;
    }
    let params: Result<LoggingMessageNotificationParam, _> =
        typed(json!({ "level": "info", "logger": "conformance", "data": text }));
    if let Ok(params) = params {
        let _ = context.peer.notify_logging_message(params).await;
    }
}

fn request(wanted: Wanted) -> Result<InputRequest, ErrorData> {
    typed(json!({ "method": wanted.method, "params": wanted.params }))
}

/// Asks the client the old way.
async fn ask(wanted: Wanted, context: &Context) -> Result<Value, ErrorData> {
    let failed = |error: rmcp::ServiceError| ErrorData::internal_error(error.to_string(), None);
    let json = |value: Result<Value, serde_json::Error>| {
        value.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    };
    match wanted.method {
        "sampling/createMessage" => {
            let answer = context.peer.create_message(typed(wanted.params)?).await.map_err(failed)?;
            json(serde_json::to_value(answer))
        }
        "elicitation/create" => {
            let answer = context.peer.create_elicitation(typed(wanted.params)?).await.map_err(failed)?;
            json(serde_json::to_value(answer))
        }
        _ => {
            let answer = context.peer.list_roots().await.map_err(failed)?;
            json(serde_json::to_value(answer))
        }
    }
}

impl ServerHandler for Backend {
    fn get_info(&self) -> ServerConfig {
        let capabilities: ServerCapabilities = typed(json!({
            "tools": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "prompts": { "listChanged": true },
            "completions": {},
            "logging": {},
        }))
        .expect("these are capabilities of servers");
        let mut config = ServerConfig::new(capabilities);
        config.server_info = Implementation::new("conformance-backend", "1");
        config
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.era {
            Era::Old => Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25)),
            Era::New => Cow::Owned(vec![ProtocolVersion::V_2026_07_28]),
            Era::Both => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
        }
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        result(json!({ "tools": lists::tools(self.shared.more_tools.load(Ordering::Relaxed)) }), &context)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(done) = self.act(&request.name, &context).await {
            return Ok(CallToolResponse::Complete(result(done?, &context)?));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let came =
            self.run(&request.name, &arguments, request.input_responses, request.request_state, &context);
        Ok(match came.await? {
            Ok(done) => CallToolResponse::Complete(result(done, &context)?),
            Err(needed) => CallToolResponse::InputRequired(needed),
        })
    }

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        result(
            json!({ "prompts": lists::prompts(self.shared.more_prompts.load(Ordering::Relaxed)) }),
            &context,
        )
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = serde_json::to_value(request.arguments.unwrap_or_default()).unwrap_or_default();
        let came =
            self.run(&request.name, &arguments, request.input_responses, request.request_state, &context);
        Ok(match came.await? {
            Ok(done) => GetPromptResponse::Complete(result(done, &context)?),
            Err(needed) => GetPromptResponse::InputRequired(needed),
        })
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        result(json!({ "resources": lists::resources() }), &context)
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        result(json!({ "resourceTemplates": lists::templates() }), &context)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match lists::read(&request.uri) {
            Some(contents) => {
                Ok(ReadResourceResponse::Complete(result(json!({ "contents": [contents] }), &context)?))
            }
            None => Err(ErrorData::invalid_params("Resource not found", Some(json!({ "uri": request.uri })))),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let fitting =
            ["paris", "park", "party"].into_iter().filter(|word| word.starts_with(&request.argument.value));
        let values: Vec<&str> = fitting.collect();
        let completion = json!({ "total": values.len(), "hasMore": false, "values": values });
        result(json!({ "completion": completion }), &context)
    }

    async fn set_level(&self, _request: SetLevelRequestParams, _context: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _request: SubscribeRequestParams, _context: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => {
                    // What nobody asked for is left out by the sink.
                    let _ = match change {
                        Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                        Ok(Change::Prompts) => context.sink().notify_prompt_list_changed().await,
                        Err(_) => Ok(()),
                    };
                }
            }
        }
    }
}
