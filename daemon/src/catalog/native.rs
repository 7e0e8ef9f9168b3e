//! Resources, templates and prompts as clients see them, and the utility tools made from them.
//!
//! Pure. Prompts are named like tools. URIs stay as they are, unless two servers offer the same one:
//! then each gets a name of its own under `hermes://` (`ui://` stays `ui://`), found again by table.

use super::build::{Offer, renamed};
use super::exposed::{self, Utility};
use super::snapshot::{ItemKind, Natives, Origin, ServerNotes, Tool, ToolHints};
use super::vet::TextKind;
use crate::jsonrpc::splice::Members;
use crate::names::{ExposedName, RawTool, ServerName};
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
        // The longest fixed beginning wins; a template without one says nothing about its server.
        let fixed = |template: &Arc<Tool>| template.name.as_str().split('{').next().map_or(0, str::len);
        let fits = |template: &&Arc<Tool>| {
            let name = template.name.as_str();
            fixed(template) > 0 && uri.starts_with(&name[..fixed(template)])
        };
        let template = self.templates.iter().filter(fits).max_by_key(|template| fixed(template))?;
        let Origin::Server { server, .. } = &template.origin else { return None };
        Some(Arc::new(Tool {
            name: ExposedName::new(uri),
            origin: Origin::Server { server: server.clone(), raw: RawTool::new(uri) },
            ..Tool::clone(template)
        }))
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
        self.resource(raw).filter(|tool| !is_prompt && tool.server() == server)?.withheld.clone()
    }

    /// The prompt that a client calls `name`.
    pub fn prompt(&self, name: &str) -> Option<Arc<Tool>> {
        self.by_prompt.get(name).cloned()
    }
}

/// The items that wait for nobody's approval.
fn shown(items: &[Arc<Tool>]) -> Vec<Arc<Tool>> {
    items.iter().filter(|item| item.withheld.is_none()).cloned().collect()
}

/// The result of a list method.
pub(super) fn list(member: &str, items: &[Arc<Tool>]) -> Box<RawValue> {
    let items: Vec<&str> = items.iter().map(|item| item.json.get()).collect();
    let text = format!("{{\"{member}\":[{}]}}", items.join(","));
    RawValue::from_string(text).expect("items are valid JSON")
}

/// Everything besides tools, of all servers.
pub(super) fn collect(offers: &[Offer], configured: &BTreeSet<ServerName>, limit: usize) -> Natives {
    let mut natives = Natives::default();
    let mut owners: BTreeMap<&str, u32> = BTreeMap::new();
    for (uri, _) in offers.iter().flat_map(|offer| &offer.resources) {
        *owners.entry(uri).or_default() += 1;
    }
    for offer in offers {
        let server = &offer.config.name;
        for (uri, json) in &offer.resources {
            let name = if owners[uri.as_str()] > 1 { own_uri(server, uri) } else { uri.clone() };
            let json = if name == *uri { json.clone() } else { with_text(json, "uri", &name) };
            let why = offer.verdict.withheld(TextKind::Resource, uri);
            natives.resources.push(item(server, uri, name, json, ItemKind::Resource, why));
        }
        for (template, json) in &offer.templates {
            let why = offer.verdict.withheld(TextKind::Template, template);
            let (name, json) = (template.clone(), json.clone());
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

/// A URI that names its server; the original stays readable in it.
fn own_uri(server: &ServerName, uri: &str) -> String {
    let host = exposed::sanitise(server.as_str());
    match uri.strip_prefix("ui://") {
        Some(rest) => format!("ui://{host}/{rest}"),
        None => format!("hermes://{host}/{uri}"),
    }
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
