//! Resources, templates and prompts as clients see them, and the utility tools made from them.
//!
//! Pure. Prompts are named like tools. URIs stay as they are, unless two servers offer the same one
//! (`uris`); either way they are found again by table.

use super::build::{Offer, linked, renamed};
use super::exposed::{self, Utility};
use super::snapshot::{ItemKind, Natives, Offered, Origin, ServerNotes, Tool, ToolHints};
use super::template;
use super::uris::{self, Renames};
use super::vet::TextKind;
use crate::jsonrpc::splice::{self, Members};
use crate::names::{ExposedName, RawTool, ServerName};
use percent_encoding::percent_decode_str;
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// What one profile sees besides tools.
#[derive(Debug)]
pub struct NativeView {
    by_uri: HashMap<ExposedName, Arc<Tool>>,
    templates: Vec<Arc<Tool>>,
    by_prompt: HashMap<ExposedName, Arc<Tool>>,
    /// The results of `resources/list`, `resources/templates/list` and `prompts/list`.
    pub resources: Box<RawValue>,
    /// As above.
    pub resource_templates: Box<RawValue>,
    /// As above.
    pub prompts: Box<RawValue>,
}

impl NativeView {
    pub(super) fn of(natives: Natives) -> Self {
        let table =
            |items: &[Arc<Tool>]| items.iter().map(|item| (item.name.clone(), item.clone())).collect();
        Self {
            by_uri: table(&natives.resources),
            by_prompt: table(&natives.prompts),
            resources: list("resources", &shown(&natives.resources)),
            resource_templates: list("resourceTemplates", &shown(&natives.templates)),
            prompts: list("prompts", &shown(&natives.prompts)),
            templates: natives.templates,
        }
    }

    /// The resource that a client calls `uri`: a listed one, or one that a template may stand for.
    pub fn resource(&self, uri: &str) -> Option<Arc<Tool>> {
        if let Some(listed) = self.by_uri.get(uri) {
            return Some(listed.clone());
        }
        // A template itself, whose variables are being completed.
        if let Some(template) = self.templates.iter().find(|template| template.name.as_str() == uri) {
            return Some(template.clone());
        }
        // Who has most of it literally knows it best; of equals the first, whatever started first.
        let fitting = self.templates.iter().filter_map(|template| {
            let literal = template::fits(template.name.as_str(), uri)?;
            Some((std::cmp::Reverse(literal), template))
        });
        let (_, template) = fitting.min_by_key(|(literal, _)| *literal)?;
        let Origin::Server { server, raw } = &template.origin else { return conversation(template, uri) };
        let own = uris::original(template.name.as_str(), raw.as_str(), uri);
        Some(Arc::new(Tool {
            name: ExposedName::new(uri),
            origin: Origin::Server { server: server.clone(), raw: RawTool::new(own) },
            ..Tool::clone(template)
        }))
    }

    /// Whether hermesd itself has resources in it.
    pub(super) fn has_own(&self) -> bool {
        self.templates.iter().any(|template| matches!(template.origin, Origin::Conversations { .. }))
    }

    /// The names that `uri` has, where several servers would call it so.
    pub fn names_of(&self, uri: &str) -> Vec<String> {
        let listed = self.by_uri.values().filter(|item| is_raw(item, uri)).map(|item| item.name.to_string());
        let made = self.templates.iter().filter_map(|template| {
            let Origin::Server { raw, .. } = &template.origin else { return None };
            template::fits(raw.as_str(), uri)?;
            uris::renamed(template.name.as_str(), raw.as_str(), uri)
        });
        let mut all: Vec<String> = listed.chain(made).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Why what `server` calls `raw` is withheld: a resource's URI or a prompt's name; `None`: it is not.
    pub fn withheld(&self, kind: ItemKind, server: &str, raw: &str) -> Option<Arc<str>> {
        let is_prompt = kind == ItemKind::Prompt;
        let table = if is_prompt { &self.by_prompt } else { &self.by_uri };
        let mut withheld = table.values().filter(|tool| tool.withheld.is_some());
        let own = |tool: &&Arc<Tool>| match &tool.origin {
            Origin::Server { server: own, raw: name } => own.as_str() == server && name.as_str() == raw,
            Origin::Conversations { .. } => false,
        };
        if let Some(tool) = withheld.find(own) {
            return tool.withheld.clone();
        }
        // What no list has may stand under a template that is withheld.
        let mut templates = self.templates.iter().filter(|tool| !is_prompt && tool.server() == server);
        let stands = |template: &&Arc<Tool>| match &template.origin {
            Origin::Server { raw: own, .. } => template::fits(own.as_str(), raw).is_some(),
            Origin::Conversations { .. } => false,
        };
        templates.find(|template| template.withheld.is_some() && stands(template))?.withheld.clone()
    }

    /// The prompt that a client calls `name`.
    pub fn prompt(&self, name: &str) -> Option<Arc<Tool>> {
        self.by_prompt.get(name).cloned()
    }
}

/// Whether the server calls `item` so.
fn is_raw(item: &Tool, uri: &str) -> bool {
    matches!(&item.origin, Origin::Server { raw, .. } if raw.as_str() == uri)
}

/// The items that wait for nobody's approval.
fn shown(items: &[Arc<Tool>]) -> Vec<Arc<Tool>> {
    items.iter().filter(|item| item.withheld.is_none()).cloned().collect()
}

/// URIs of conversations: this and the session key, percent-encoded or not.
pub const CONVERSATIONS: &str = "hermes://conversations/";

/// The template of conversations as resources.
pub(super) fn conversations(offered: Offered) -> Arc<Tool> {
    let name = format!("{CONVERSATIONS}{{session_key}}");
    let item = json!({
        "uriTemplate": name,
        "name": "conversation",
        "title": "Conversation",
        "description": "The newest messages of one conversation, as messages_read gives them; session_key is from \
                        conversations_list. Subscribe to hear of new ones.",
        "mimeType": "application/json",
    });
    Arc::new(Tool {
        name: ExposedName::new(name),
        origin: Origin::Conversations { read_only: true, offered },
        json: splice::raw(&item),
        schema: None,
        hints: ToolHints { read_only: Some(true), ..ToolHints::default() },
        withheld: None,
        kind: ItemKind::Resource,
    })
}

/// The conversation behind `uri`, whichever way its key is spelled.
fn conversation(template: &Arc<Tool>, uri: &str) -> Option<Arc<Tool>> {
    let key = percent_decode_str(uri.strip_prefix(CONVERSATIONS)?).decode_utf8().ok()?;
    let name = ExposedName::new(format!("{CONVERSATIONS}{key}"));
    (!key.is_empty()).then(|| Arc::new(Tool { name, ..Tool::clone(template) }))
}

/// The result of a list method.
pub(super) fn list(member: &str, items: &[Arc<Tool>]) -> Box<RawValue> {
    let items: Vec<&str> = items.iter().map(|item| item.json.get()).collect();
    let text = format!("{{\"{member}\":[{}]}}", items.join(","));
    RawValue::from_string(text).expect("items are valid JSON")
}

/// Everything besides tools, of all servers.
pub(super) fn collect(
    offers: &[Offer],
    configured: &BTreeSet<ServerName>,
    limit: usize,
    renames: &Renames,
) -> Natives {
    let mut natives = Natives::default();
    for offer in offers {
        let server = &offer.config.name;
        let names = renames.of(server.as_str()).map(AsRef::as_ref);
        for (uri, json) in &offer.resources {
            let name = names.and_then(|names| names.name(uri)).map(std::borrow::Cow::into_owned);
            let json = name.as_ref().map_or_else(|| json.clone(), |name| with_text(json, "uri", name));
            let (name, json) = (name.unwrap_or_else(|| uri.clone()), linked(json, names));
            let why = offer.verdict.withheld(TextKind::Resource, uri);
            natives.resources.push(item(server, uri, name, json, ItemKind::Resource, why));
        }
        for (template, json) in &offer.templates {
            let why = offer.verdict.withheld(TextKind::Template, template);
            let name = names.and_then(|names| names.template(template));
            let json =
                name.as_ref().map_or_else(|| json.clone(), |name| with_text(json, "uriTemplate", name));
            let name = name.unwrap_or_else(|| template.clone());
            natives.templates.push(item(server, template, name, json, ItemKind::Resource, why));
        }
        let raw: Vec<&str> = offer.prompts.iter().map(|(name, _)| name.as_str()).collect();
        let named = exposed::expose(server, configured, &raw, limit);
        for ((name, json), named) in offer.prompts.iter().zip(named) {
            let Some(exposed) = named.exposed else { continue };
            let json = renamed(json, exposed.as_str());
            let why = offer.verdict.withheld(TextKind::Prompt, name);
            let exposed = exposed.as_str().to_owned();
            natives.prompts.push(item(server, name, exposed, json, ItemKind::Prompt, why));
        }
    }
    for list in [&mut natives.resources, &mut natives.templates, &mut natives.prompts] {
        list.sort_by(|a, b| (&a.name, a.server()).cmp(&(&b.name, b.server())));
    }
    natives
}

fn item(
    server: &ServerName,
    raw: &str,
    name: String,
    json: Box<RawValue>,
    kind: ItemKind,
    withheld: Option<&str>,
) -> Arc<Tool> {
    Arc::new(Tool {
        name: ExposedName::new(name),
        origin: Origin::Server { server: server.clone(), raw: RawTool::new(raw) },
        json,
        schema: None,
        hints: ToolHints { read_only: Some(true), ..ToolHints::default() },
        withheld: withheld.map(Arc::from),
        kind,
    })
}

fn with_text(json: &RawValue, member: &str, text: &str) -> Box<RawValue> {
    let quoted = serde_json::to_string(text).expect("text serialises");
    Members::parse(json).map_or_else(|_| json.to_owned(), |members| members.with(member, &quoted))
}

/// The utility tools of one server, by its capabilities and its `tools.resources` and `tools.prompts`.
pub(super) fn utilities(
    offer: &Offer,
    configured: &BTreeSet<ServerName>,
    limit: usize,
    about: &mut ServerNotes,
) -> Vec<Arc<Tool>> {
    let server = &offer.config.name;
    let capabilities =
        offer.capabilities.as_deref().and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let raw: Vec<&str> = offer.tools.iter().map(|(name, _)| name.as_str()).collect();
    let mut tools = Vec::new();
    for utility in Utility::ALL {
        let (capability, wanted) = match utility {
            Utility::ListResources | Utility::ReadResource => ("resources", offer.config.tools.resources),
            Utility::ListPrompts | Utility::GetPrompt => ("prompts", offer.config.tools.prompts),
        };
        let excluded = offer.config.tools.exclude.iter().any(|name| name == utility.raw());
        if !wanted || excluded || capabilities.get(capability).is_none() {
            continue;
        }
        let named = exposed::expose_utility(server, configured, &raw, utility, limit);
        if let Some(note) = &named.note {
            about.notes.push(format!("utility tool `{}`: {note}", utility.raw()));
        }
        let Some(exposed) = named.exposed else { continue };
        about.visible += 1;
        let (description, schema) = described(utility, server);
        let json = json!({
            "name": exposed.as_str(),
            "description": description,
            "inputSchema": schema,
            "annotations": { "readOnlyHint": true },
        });
        let schema = RawValue::from_string(schema.to_string()).expect("a value is JSON");
        tools.push(Arc::new(Tool {
            schema: Some(Arc::from(schema)),
            json: RawValue::from_string(json.to_string()).expect("a value is JSON"),
            ..Tool::clone(&item(
                server,
                utility.raw(),
                exposed.as_str().to_owned(),
                empty(),
                ItemKind::Utility(utility),
                None,
            ))
        }));
    }
    tools
}

fn empty() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}

fn described(utility: Utility, server: &ServerName) -> (String, serde_json::Value) {
    let object = |properties: serde_json::Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required });
    match utility {
        Utility::ListResources => (
            format!("Lists the resources of MCP server {server}."),
            json!({ "type": "object", "properties": {} }),
        ),
        Utility::ReadResource => (
            format!("Reads one resource of MCP server {server} by its URI."),
            object(json!({ "uri": { "type": "string", "description": "URI of the resource" } }), &["uri"]),
        ),
        Utility::ListPrompts => (
            format!("Lists the prompts of MCP server {server}."),
            json!({ "type": "object", "properties": {} }),
        ),
        Utility::GetPrompt => (
            format!("Gets one prompt of MCP server {server} by its name."),
            object(
                json!({
                    "name": { "type": "string", "description": "Name of the prompt" },
                    "arguments": { "type": "object", "description": "Arguments of the prompt", "properties": {} },
                }),
                &["name"],
            ),
        ),
    }
}
