//! The immutable catalogue that sessions read, and the views of it that profiles see.
//!
//! Owner: the `reconcile` task makes one, everyone else reads it through `watch<Arc<Catalog>>`.
//! Promise: tools are sorted by exposed name, each item is serialised once, and a tool that a view
//! does not show cannot be found in it either. May not touch: servers, files.

use super::exposed::Utility;
use super::filter::{self, Spelling, ToolNames};
use super::greeting::{Greeting, Introduction};
use super::native::{self, NativeView};
use super::uris::{Renamed, Renames};
use crate::config::{ProfileConfig, ProfileConversations};
use crate::names::{ExposedName, ProfileName, RawTool, ServerName};
use hermes_proto::shim::hello::Only;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

/// Who answers calls of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A configured server, under its own name for the tool.
    Server {
        /// The server.
        server: ServerName,
        /// The server's name for the tool.
        raw: RawTool,
    },
    /// The built-in server `hermes`: the ten conversation tools.
    Conversations {
        /// Whether it changes nothing.
        read_only: bool,
        /// To whom it is offered.
        offered: Offered,
    },
}

/// To whom the conversation tools are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// Every client whose profile shows them.
    Everybody,
    /// Clients that ask for exactly them (`--only conversations`): there is nothing to read yet.
    WhereAsked,
}

/// What a server says about a tool's effects (`annotations`); `None`: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolHints {
    /// `readOnlyHint`
    pub read_only: Option<bool>,
    /// `destructiveHint`
    pub destructive: Option<bool>,
    /// `idempotentHint`
    pub idempotent: Option<bool>,
}

/// Calls that a profile may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Calls a day; `None`: no limit.
    pub per_day: Option<NonZeroU32>,
    /// Calls of one session; `None`: no limit.
    pub per_session: Option<NonZeroU32>,
}

/// What a server is asked for when an item is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    /// `tools/call`.
    Tool,
    /// One of the four tools that hermesd makes from a server's resources and prompts.
    Utility(Utility),
    /// `resources/read`; `raw` of the origin is the URI.
    Resource,
    /// `resources/subscribe`.
    Subscription,
    /// `prompts/get`; `raw` of the origin is the prompt's name.
    Prompt,
    /// `completion/complete` for a resource template or a prompt.
    Completion,
}

/// What servers offer besides tools; each list sorted by name, items as clients see them.
#[derive(Debug, Default)]
pub struct Natives {
    /// Resources by URI.
    pub resources: Vec<Arc<Tool>>,
    /// Templates by URI template.
    pub templates: Vec<Arc<Tool>>,
    /// Prompts by name.
    pub prompts: Vec<Arc<Tool>>,
}

/// One tool, resource, template or prompt as clients see it.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its name for clients.
    pub name: ExposedName,
    /// Who answers.
    pub origin: Origin,
    /// The whole item of `tools/list`, with the exposed name.
    pub json: Box<RawValue>,
    /// The input schema as the server wrote it; arguments are checked against this one.
    pub schema: Option<Arc<RawValue>>,
    /// What the server says about its effects.
    pub hints: ToolHints,
    /// Why it is neither shown nor called until a person approves it; `None`: it is shown.
    pub withheld: Option<Arc<str>>,
    /// What using it means.
    pub kind: ItemKind,
}

impl Tool {
    /// Name of the server that answers; `hermes` for the conversation tools.
    pub fn server(&self) -> &str {
        match &self.origin {
            Origin::Server { server, .. } => server.as_str(),
            Origin::Conversations { .. } => "hermes",
        }
    }
}

/// What is wrong with, or worth knowing about, one server's items.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerNotes {
    /// Visible tools.
    pub visible: u32,
    /// Tools that a filter hides.
    pub hidden: u32,
    /// Items that cannot be offered.
    pub dropped: u32,
    /// Tools that wait for a person's approval of their texts.
    pub withheld: u32,
    /// Sentences for status.
    pub notes: Vec<String>,
    /// Sentences that somebody should act upon.
    pub warnings: Vec<String>,
}

/// Every tool of every server, before profiles.
#[derive(Debug, Default)]
pub struct Catalog {
    revision: u64,
    tools: Vec<Arc<Tool>>,
    natives: Natives,
    notes: BTreeMap<ServerName, ServerNotes>,
    introductions: BTreeMap<ServerName, Introduction>,
    renames: Arc<Renames>,
    profiles: BTreeMap<ProfileName, ProfileConfig>,
    views: Mutex<HashMap<(ProfileName, Only), Arc<View>>>,
}

impl Catalog {
    /// A catalogue of `tools` (any order; names must be unique) and what there is besides.
    pub fn new(
        mut tools: Vec<Arc<Tool>>,
        natives: Natives,
        notes: BTreeMap<ServerName, ServerNotes>,
        profiles: BTreeMap<ProfileName, ProfileConfig>,
    ) -> Self {
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let (introductions, renames, views) = (BTreeMap::new(), Arc::default(), Mutex::default());
        Self { revision: 0, tools, natives, notes, introductions, renames, profiles, views }
    }

    /// With what servers say about themselves as a whole.
    #[must_use]
    pub fn introducing(self, introductions: BTreeMap<ServerName, Introduction>) -> Self {
        Self { introductions, ..self }
    }

    /// With the names of URIs that several servers offer.
    #[must_use]
    pub fn renaming(self, renames: Renames) -> Self {
        Self { renames: Arc::new(renames), ..self }
    }

    /// The same catalogue with its number, counted from 1; 0 is the empty one before the first.
    #[must_use]
    pub fn numbered(self, revision: u64) -> Self {
        Self { revision, ..self }
    }

    /// Its number.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All tools, sorted by name.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// What is to be known about each server's items.
    pub fn notes(&self) -> &BTreeMap<ServerName, ServerNotes> {
        &self.notes
    }

    /// Whether a profile of this name exists.
    pub fn has_profile(&self, profile: &ProfileName) -> bool {
        self.profiles.contains_key(profile)
    }

    /// The names of all profiles.
    pub fn profile_names(&self) -> impl Iterator<Item = &ProfileName> {
        self.profiles.keys()
    }

    /// What `profile` shows; made once for each catalogue. An unknown profile shows nothing.
    pub fn view(&self, profile: &ProfileName, only: Only) -> Arc<View> {
        let mut views = self.views.lock().expect("nothing panics while holding it");
        let key = (profile.clone(), only);
        views.entry(key).or_insert_with(|| Arc::new(self.greeted(self.make_view(profile, only)))).clone()
    }

    fn greeted(&self, view: View) -> View {
        let seen = self.introductions.iter().filter(|(server, _)| view.sees(server.as_str()));
        let mut greeting = Greeting::of(seen);
        // Conversations send updates.
        greeting.subscribe |= view.natives.has_own();
        View { greeting, renames: self.renames.clone(), ..view }
    }

    fn make_view(&self, profile: &ProfileName, only: Only) -> View {
        let Some(config) = self.profiles.get(profile) else {
            let seen = Seen::Only(Vec::new());
            return View::of(profile.clone(), only, seen, Quota::default(), Vec::new(), Natives::default());
        };
        let shown: Vec<&Arc<Tool>> = self.tools.iter().filter(|tool| shows(config, only, tool)).collect();
        let names: Vec<ToolNames<'_>> = shown
            .iter()
            .map(|tool| ToolNames {
                raw: match &tool.origin {
                    Origin::Server { raw, .. } => raw.as_str(),
                    Origin::Conversations { .. } => tool.name.as_str(),
                },
                exposed: tool.name.as_str(),
            })
            .collect();
        let kept = filter::apply(&config.tools, &names, Spelling::Either).visible;
        let tools = shown.into_iter().zip(kept).filter(|(_, keep)| *keep);
        let quota = Quota { per_day: config.quota_per_day, per_session: config.quota_per_session };
        let tools = under_their_names(config, tools.map(|(tool, _)| tool));
        let of = |items: &[Arc<Tool>]| {
            let shown = items.iter().filter(|item| shows(config, only, item));
            shown.map(|item| exposed_for(config, item)).collect()
        };
        let natives = Natives {
            resources: of(&self.natives.resources),
            templates: of(&self.natives.templates),
            prompts: of(&self.natives.prompts),
        };
        let seen = config.servers.clone().map_or(Seen::All, Seen::Only);
        View::of(profile.clone(), only, seen, quota, tools, natives)
    }
}

fn shows(profile: &ProfileConfig, only: Only, tool: &Tool) -> bool {
    match &tool.origin {
        Origin::Conversations { read_only, offered } => {
            only != Only::Servers
                && (*offered == Offered::Everybody || only == Only::Conversations)
                && match profile.conversations {
                    ProfileConversations::On => true,
                    ProfileConversations::Read => *read_only,
                    ProfileConversations::Off => false,
                }
        }
        Origin::Server { server, .. } => {
            let listed = |servers: &Vec<String>| servers.iter().any(|name| name == server.as_str());
            only != Only::Conversations && profile.servers.as_ref().is_none_or(listed)
        }
    }
}

/// The tool under the name this profile uses: raw names only where the profile has one server.
fn exposed_for(profile: &ProfileConfig, tool: &Arc<Tool>) -> Arc<Tool> {
    let single = profile.servers.as_ref().is_some_and(|servers| servers.len() == 1);
    match &tool.origin {
        Origin::Server { .. } if tool.kind == ItemKind::Resource => tool.clone(),
        Origin::Server { raw, .. } if profile.raw_names && single => Arc::new(Tool {
            name: ExposedName::new(raw.as_str()),
            json: super::build::renamed(&tool.json, raw.as_str()),
            ..Tool::clone(tool)
        }),
        _ => tool.clone(),
    }
}

/// Tools under the names that a profile uses. A raw name may be that of a conversation tool, or a utility's that of
/// a tool: then the conversation tool has it, or the server's own one, and the other keeps its prefix.
fn under_their_names<'a>(
    profile: &ProfileConfig,
    tools: impl Iterator<Item = &'a Arc<Tool>>,
) -> Vec<Arc<Tool>> {
    let tools: Vec<&Arc<Tool>> = tools.collect();
    let is_ours = |tool: &Tool| matches!(tool.origin, Origin::Conversations { .. });
    let mut taken: HashSet<ExposedName> =
        tools.iter().filter(|tool| is_ours(tool)).map(|tool| tool.name.clone()).collect();
    let mut named: Vec<Option<Arc<Tool>>> = vec![None; tools.len()];
    let is_utility = |tool: &Tool| matches!(tool.kind, ItemKind::Utility(_));
    for utilities in [false, true] {
        for (at, tool) in tools.iter().enumerate().filter(|(_, tool)| is_utility(tool) == utilities) {
            let raw = exposed_for(profile, tool);
            let free = is_ours(tool) || taken.insert(raw.name.clone());
            named[at] = Some(if free { raw } else { Arc::clone(tool) });
        }
    }
    named.into_iter().zip(tools).map(|(named, tool)| named.unwrap_or_else(|| Arc::clone(tool))).collect()
}

/// The servers that a profile shows.
#[derive(Debug)]
enum Seen {
    All,
    Only(Vec<String>),
}

/// What one profile sees.
#[derive(Debug)]
pub struct View {
    profile: ProfileName,
    only: Only,
    seen: Seen,
    quota: Quota,
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<ExposedName, Arc<Tool>>,
    list: Box<RawValue>,
    digest: [u8; 32],
    natives: NativeView,
    greeting: Greeting,
    renames: Arc<Renames>,
}

impl View {
    fn of(
        profile: ProfileName,
        only: Only,
        seen: Seen,
        quota: Quota,
        tools: Vec<Arc<Tool>>,
        natives: Natives,
    ) -> Self {
        let by_name = tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect();
        let tools: Vec<Arc<Tool>> = tools.into_iter().filter(|tool| tool.withheld.is_none()).collect();
        let list = native::list("tools", &tools);
        let digest = Sha256::digest(list.get().as_bytes()).into();
        let natives = NativeView::of(natives);
        let (greeting, renames) = (Greeting::default(), Arc::default());
        Self { profile, only, seen, quota, tools, by_name, list, digest, natives, greeting, renames }
    }

    /// What a session begins with.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The other names of URIs of `server`, if there are any.
    pub fn renamed(&self, server: &str) -> Option<&Arc<Renamed>> {
        self.renames.of(server)
    }

    /// Whether it shows anything of `server`.
    pub fn sees(&self, server: &str) -> bool {
        self.only != Only::Conversations
            && match &self.seen {
                Seen::All => true,
                Seen::Only(names) => names.iter().any(|name| name == server),
            }
    }

    /// Resources, templates and prompts.
    pub fn natives(&self) -> &NativeView {
        &self.natives
    }

    /// Whose view it is.
    pub fn profile(&self) -> &ProfileName {
        &self.profile
    }

    /// Which part of the offer was asked for.
    pub fn only(&self) -> Only {
        self.only
    }

    /// How many calls the profile may make.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The result of `tools/list`, ready to send.
    pub fn list(&self) -> &RawValue {
        &self.list
    }

    /// The tool a client calls `name`, if this view shows it, or would but for its texts.
    pub fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// The tool that `server` calls `raw`, if this view shows it.
    pub fn tool_of(&self, server: &str, raw: &str) -> Option<&Arc<Tool>> {
        // The shown ones first: they are in order, and a utility never hides a tool of the same name.
        let own = |tool: &&Arc<Tool>| tool.kind == ItemKind::Tool;
        let all = || self.tools.iter().chain(self.by_name.values());
        all().filter(own).chain(all()).find(|tool| match &tool.origin {
            Origin::Server { server: own, raw: name } => own.as_str() == server && name.as_str() == raw,
            Origin::Conversations { .. } => server == "hermes" && tool.name.as_str() == raw,
        })
    }

    /// All tools of the view, sorted by name.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// Changes if and only if [`list`](Self::list) does.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}
