//! Turns what servers list into what clients see.
//!
//! Pure: configuration and listings in, catalogue out. Item by item: one bad tool never hides the
//! others.

use super::exposed;
use super::filter::{self, Spelling, ToolNames};
use super::greeting::Introduction;
use super::links::{self, Place};
use super::native;
use super::schema;
use super::snapshot::{Catalog, ItemKind, Offered, Origin, ServerNotes, Tool, ToolHints};
use super::uris::{Renamed, Renames};
use super::vet::{TextKind, Verdict};
use crate::config::{Config, ServerConfig, ServerEntry};
use crate::jsonrpc::splice::Members;
use crate::names::{ExposedName, RawTool, ServerName};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Items of one list: what names each, and the raw item.
pub type Items = Vec<(String, Box<RawValue>)>;

/// More tools of one server are worth a note.
const MANY_TOOLS: u32 = 200;

/// What one server offers, as it listed it.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Its configuration.
    pub config: Arc<ServerConfig>,
    /// Its tools: raw name and raw item, in its order.
    pub tools: Vec<(String, Box<RawValue>)>,
    /// Its resources: URI and raw item.
    pub resources: Vec<(String, Box<RawValue>)>,
    /// Its templates: URI template and raw item.
    pub templates: Vec<(String, Box<RawValue>)>,
    /// Its prompts: raw name and raw item.
    pub prompts: Vec<(String, Box<RawValue>)>,
    /// Its `instructions`, where it gives any.
    pub instructions: Option<String>,
    /// Kinds whose list was not read yet: what is missing there is not known to be missing.
    pub unread: BTreeSet<TextKind>,
    /// Its `capabilities`; `None`: not known.
    pub capabilities: Option<Box<RawValue>>,
    /// Items its listing dropped or repaired, as sentences.
    pub notes: Vec<String>,
    /// How many it dropped.
    pub dropped: u32,
    /// What is to be hidden, and what a person should know.
    pub verdict: Verdict,
}

/// One tool of the built-in server.
#[derive(Debug, Clone)]
pub struct Builtin {
    /// Its name, exposed as it is.
    pub name: String,
    /// Its whole item.
    pub json: Box<RawValue>,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// To whom it is offered.
    pub offered: Offered,
}

impl Offer {
    /// An offer of tools and nothing else.
    pub fn of_tools(config: Arc<ServerConfig>, tools: Vec<(String, Box<RawValue>)>) -> Self {
        Self {
            config,
            tools,
            resources: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
            instructions: None,
            unread: BTreeSet::new(),
            capabilities: None,
            notes: Vec::new(),
            dropped: 0,
            verdict: Verdict::default(),
        }
    }

    /// Its lists, each with what its items are.
    pub fn items(&self) -> [(TextKind, &Items); 4] {
        [
            (TextKind::Tool, &self.tools),
            (TextKind::Prompt, &self.prompts),
            (TextKind::Resource, &self.resources),
            (TextKind::Template, &self.templates),
        ]
    }
}

/// Builds the catalogue. `builtins` is empty where the conversation tools are off.
pub fn build(config: &Config, offers: &[Offer], builtins: &[Builtin]) -> Catalog {
    let configured: BTreeSet<ServerName> = config.servers.keys().cloned().collect();
    let mut tools: Vec<Arc<Tool>> = builtins
        .iter()
        .map(|builtin| {
            Arc::new(Tool {
                name: ExposedName::new(builtin.name.as_str()),
                origin: Origin::Conversations { read_only: builtin.read_only, offered: builtin.offered },
                json: builtin.json.clone(),
                schema: None,
                hints: ToolHints { read_only: Some(builtin.read_only), ..ToolHints::default() },
                withheld: None,
                kind: ItemKind::Tool,
            })
        })
        .collect();
    let mut notes = BTreeMap::new();
    let renames = Renames::among(offers);
    for offer in offers {
        let names = renames.of(offer.config.name.as_str()).map(AsRef::as_ref);
        let (offered, mut about) = expose(offer, &configured, config.daemon.name_limit, names);
        tools.extend(offered);
        tools.extend(native::utilities(offer, &configured, config.daemon.name_limit, &mut about));
        notes.insert(offer.config.name.clone(), about);
    }
    let mut natives = native::collect(offers, &configured, config.daemon.name_limit, &renames);
    // In front of those of servers, so that the order is the same whichever servers there are.
    natives.templates.splice(0..0, builtins.first().map(|builtin| native::conversations(builtin.offered)));
    let introductions = introductions(config, offers);
    Catalog::new(tools, natives, notes, config.daemon.profiles.clone())
        .introducing(introductions)
        .renaming(renames)
}

/// Of every server that runs or could.
fn introductions(config: &Config, offers: &[Offer]) -> BTreeMap<ServerName, Introduction> {
    let enabled = config.servers.iter().filter(|(_, entry)| matches!(entry, ServerEntry::Enabled(_)));
    let mut all: BTreeMap<ServerName, Introduction> =
        enabled.map(|(name, _)| (name.clone(), Introduction::unknown())).collect();
    for offer in offers {
        let Some(capabilities) = offer.capabilities.as_deref() else { continue };
        let (kind, name) = (TextKind::Instructions, TextKind::Instructions.word());
        let shown = config.daemon.instructions && offer.verdict.withheld(kind, name).is_none();
        let instructions = offer.instructions.clone().filter(|_| shown);
        let introduction = Introduction { instructions, ..Introduction::of(capabilities) };
        all.insert(offer.config.name.clone(), introduction);
    }
    all
}

fn expose(
    offer: &Offer,
    configured: &BTreeSet<ServerName>,
    limit: usize,
    names: Option<&Renamed>,
) -> (Vec<Arc<Tool>>, ServerNotes) {
    let server = &offer.config.name;
    let raw: Vec<&str> = offer.tools.iter().map(|(name, _)| name.as_str()).collect();
    let named = exposed::expose(server, configured, &raw, limit);
    let mut about = ServerNotes {
        dropped: offer.dropped,
        notes: offer.notes.clone(),
        warnings: offer.verdict.warnings.clone(),
        ..ServerNotes::default()
    };
    let mut usable = Vec::with_capacity(raw.len());
    for ((name, json), named) in offer.tools.iter().zip(&named) {
        if let Some(note) = &named.note {
            about.notes.push(format!("tool `{name}`: {note}"));
        }
        match &named.exposed {
            Some(exposed) => usable.push((name, json, exposed)),
            None => about.dropped += 1,
        }
    }
    let both: Vec<ToolNames<'_>> = usable
        .iter()
        .map(|(raw, _, exposed)| ToolNames { raw: raw.as_str(), exposed: exposed.as_str() })
        .collect();
    let filtered = filter::apply(&offer.config.tools, &both, Spelling::Raw);
    about.notes.extend(filtered.warnings.iter().map(ToString::to_string));
    let mut tools = Vec::with_capacity(usable.len());
    for ((raw, json, exposed), visible) in usable.into_iter().zip(filtered.visible) {
        if !visible {
            about.hidden += 1;
            continue;
        }
        let (original, hints) = facts(json);
        let json = match with_usable_schema(json) {
            Ok((json, notes)) => {
                about.notes.extend(notes.iter().map(|note| format!("tool `{raw}`: {note}")));
                json
            }
            Err(error) => {
                about.dropped += 1;
                about.notes.push(format!("tool `{raw}`: {error}"));
                continue;
            }
        };
        let withheld = offer.verdict.withheld(TextKind::Tool, raw).map(Arc::from);
        match &withheld {
            Some(_) => about.withheld += 1,
            None => about.visible += 1,
        }
        tools.push(Arc::new(Tool {
            name: exposed.clone(),
            origin: Origin::Server { server: server.clone(), raw: RawTool::new(raw.as_str()) },
            json: linked(item(server, raw, &json, exposed.as_str()), names),
            schema: original,
            hints,
            withheld,
            kind: ItemKind::Tool,
        }));
    }
    if about.visible > MANY_TOOLS {
        about.notes.push(format!(
            "{} tools: many clients and models take fewer; `tools.include` picks some",
            about.visible
        ));
    }
    (tools, about)
}

/// The input schema as it was written, and the hints.
fn facts(json: &RawValue) -> (Option<Arc<RawValue>>, ToolHints) {
    let Ok(members) = Members::parse(json) else { return (None, ToolHints::default()) };
    let annotations = members.get("annotations").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let hint = |name| match annotations.get(name).map(RawValue::get) {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => None,
    };
    let hints = ToolHints {
        read_only: hint("readOnlyHint"),
        destructive: hint("destructiveHint"),
        idempotent: hint("idempotentHint"),
    };
    (members.get("inputSchema").map(|schema| Arc::from(schema.to_owned())), hints)
}

/// The item with an input schema that model APIs take, and what was changed for that.
fn with_usable_schema(
    json: &RawValue,
) -> Result<(Cow<'_, RawValue>, Vec<schema::SchemaNote>), schema::SchemaError> {
    let Ok(members) = Members::parse(json) else { return Ok((Cow::Borrowed(json), Vec::new())) };
    let repaired = schema::repair(members.get("inputSchema"))?;
    if repaired.notes.is_empty() {
        return Ok((Cow::Borrowed(json), Vec::new()));
    }
    Ok((Cow::Owned(members.with("inputSchema", repaired.schema.get())), repaired.notes))
}

/// The item with its exposed name and, where it has none, the description the reference gives.
fn item(server: &ServerName, raw: &str, json: &RawValue, exposed: &str) -> Box<RawValue> {
    let renamed = renamed(json, exposed);
    let described =
        Members::parse(&renamed).is_ok_and(|m| m.get("description").is_some_and(|d| d.get() != "null"));
    if described {
        return renamed;
    }
    let description = format!("MCP tool {raw} from {server}");
    let quoted = serde_json::to_string(&description).expect("text serialises");
    Members::parse(&renamed).map_or_else(|_| renamed.clone(), |members| members.with("description", &quoted))
}

/// The item with links to resources as clients know them.
pub(super) fn linked(json: Box<RawValue>, names: Option<&Renamed>) -> Box<RawValue> {
    names.and_then(|names| links::renamed(&json, Place::Item, names)).unwrap_or(json)
}

/// The item under another name, every other byte as it was.
pub(super) fn renamed(json: &RawValue, name: &str) -> Box<RawValue> {
    let quoted = serde_json::to_string(name).expect("text serialises");
    Members::parse(json).map_or_else(|_| json.to_owned(), |members| members.with("name", &quoted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ProfileConfig, StdioConfig, TransportConfig};
    use crate::names::ProfileName;
    use hermes_proto::shim::hello::Only;

    fn offer(server: &str, tools: &[&str], edit: impl FnOnce(&mut ServerConfig)) -> Offer {
        let stdio = TransportConfig::Stdio(StdioConfig::command("x"));
        let mut config = ServerConfig::with_transport(ServerName::new(server), stdio);
        edit(&mut config);
        let item = |name: &&str| {
            let json = format!(
                r#"{{"name":"{name}","x-vendor":1.0,"description":"d","inputSchema":{{"type":"object","properties":{{}}}}}}"#
            );
            ((*name).to_owned(), RawValue::from_string(json).unwrap())
        };
        Offer::of_tools(Arc::new(config), tools.iter().map(item).collect())
    }

    fn names(catalog: &Catalog, profile: &str, only: Only) -> Vec<String> {
        catalog.view(&ProfileName::new(profile), only).tools().iter().map(|t| t.name.to_string()).collect()
    }

    fn builtin(name: &str, read_only: bool) -> Builtin {
        let json = RawValue::from_string(format!(r#"{{"name":"{name}"}}"#)).unwrap();
        Builtin { name: name.into(), json, read_only, offered: Offered::Everybody }
    }

    #[test]
    fn items_keep_every_member_but_their_name() {
        let catalog = build(&Config::default(), &[offer("fs", &["read-file"], |_| {})], &[]);
        assert_eq!(
            catalog.tools()[0].json.get(),
            r#"{"name":"mcp_fs_read_file","x-vendor":1.0,"description":"d","inputSchema":{"type":"object","properties":{}}}"#
        );
    }

    #[test]
    fn hidden_tools_cannot_be_found_by_any_name() {
        let hide = |config: &mut ServerConfig| config.tools.exclude = vec!["b".into()];
        let catalog = build(&Config::default(), &[offer("s", &["a", "b"], hide)], &[]);
        let view = catalog.view(&ProfileName::new("default"), Only::All);
        assert!(view.tool("mcp_s_a").is_some() && view.tool("mcp_s_b").is_none());
        assert!(view.tool_of("s", "b").is_none());
        assert_eq!(catalog.notes()[&ServerName::new("s")].hidden, 1);
    }

    #[test]
    fn a_profile_narrows_servers_tools_and_conversations() {
        let mut config = Config::default();
        let profile = ProfileConfig {
            servers: Some(vec!["s".into()]),
            raw_names: true,
            conversations: crate::config::ProfileConversations::Read,
            ..ProfileConfig::default()
        };
        config.daemon.profiles.insert(ProfileName::new("p"), profile);
        let offers = [offer("s", &["a"], |_| {}), offer("t", &["a"], |_| {})];
        let catalog =
            build(&config, &offers, &[builtin("messages_read", true), builtin("messages_send", false)]);
        assert_eq!(names(&catalog, "p", Only::All), ["a", "messages_read"]);
        assert_eq!(names(&catalog, "default", Only::Servers), ["mcp_s_a", "mcp_t_a"]);
        assert_eq!(names(&catalog, "default", Only::Conversations), ["messages_read", "messages_send"]);
        assert_eq!(names(&catalog, "unknown", Only::All), Vec::<String>::new());
    }

    #[test]
    fn a_raw_name_that_is_taken_keeps_its_prefix() {
        let mut config = Config::default();
        let profile =
            ProfileConfig { servers: Some(vec!["s".into()]), raw_names: true, ..ProfileConfig::default() };
        config.daemon.profiles.insert(ProfileName::new("p"), profile);
        let mut own = offer("s", &["a", "messages_read", "read_resource"], |_| {});
        own.capabilities = Some(RawValue::from_string(r#"{"resources":{}}"#.into()).unwrap());
        let catalog = build(&config, &[own], &[builtin("messages_read", true)]);
        let names = names(&catalog, "p", Only::All);
        assert!(
            ["a", "messages_read", "mcp_s_messages_read", "read_resource"]
                .iter()
                .all(|n| names.contains(&(*n).to_owned())),
            "{names:?}"
        );
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        let view = catalog.view(&ProfileName::new("p"), Only::All);
        assert!(matches!(view.tool("messages_read").unwrap().origin, Origin::Conversations { .. }));
        assert_eq!(view.tool("read_resource").unwrap().kind, ItemKind::Tool);
    }

    #[test]
    fn the_same_offers_in_another_order_are_the_same_bytes() {
        let (a, b) = (offer("s", &["x", "y"], |_| {}), offer("t", &["z"], |_| {}));
        let one = build(&Config::default(), &[a.clone(), b.clone()], &[]);
        let two = build(&Config::default(), &[b, a], &[]);
        let view =
            |catalog: &Catalog| catalog.view(&ProfileName::new("default"), Only::All).digest().to_owned();
        assert_eq!(view(&one), view(&two));
    }
}
