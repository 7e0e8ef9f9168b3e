//! Which servers and tools a profile shows.
//!
//! Pure. A profile filters after the servers' own filters. What it hides cannot be called either,
//! and is not mentioned in answers to a client of that profile. Typos in a profile are reported by
//! `catalog/filter`, which sees all tools at once.

use crate::config::{ProfileConfig, ProfileConversations};
use crate::names::ServerName;

/// Whether something shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visible {
    /// Listed and callable.
    Yes,
    /// Neither.
    No,
}

/// How the tools of a profile are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// `mcp_<server>_<tool>`
    Prefixed,
    /// As the server calls them.
    Raw,
}

/// What a conversation tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationTool {
    /// Only reads.
    Reads,
    /// Sends or decides something.
    Changes,
}

impl Visible {
    fn when(shown: bool) -> Self {
        if shown { Self::Yes } else { Self::No }
    }

    /// Whether it shows.
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// Whether `profile` shows anything of `server`. `servers:` names configured servers only; the
/// conversation tools have their own key ([`conversation`]).
pub fn server(profile: &ProfileConfig, server: &ServerName) -> Visible {
    Visible::when(profile.servers.as_ref().is_none_or(|list| list.iter().any(|name| name == server.as_str())))
}

/// Whether `profile` shows a tool, by its raw and its exposed name.
pub fn tool(profile: &ProfileConfig, of: &ServerName, raw: &str, exposed: &str) -> Visible {
    let named = |list: &[String]| list.iter().any(|entry| entry == raw || entry == exposed);
    let shown = match &profile.tools.include {
        Some(include) => named(include),
        None => !named(&profile.tools.exclude),
    };
    Visible::when(shown && server(profile, of).is_yes())
}

/// Whether `profile` shows a conversation tool.
pub fn conversation(profile: &ProfileConfig, name: &str, does: ConversationTool) -> Visible {
    let offered = match profile.conversations {
        ProfileConversations::On => true,
        ProfileConversations::Read => does == ConversationTool::Reads,
        ProfileConversations::Off => false,
    };
    let named = |list: &[String]| list.iter().any(|entry| entry == name);
    // An include list picks among the servers' tools; it hides these only by naming others of them.
    Visible::when(offered && !named(&profile.tools.exclude))
}

/// How tools are called under `profile`: raw names only where it shows exactly one of `servers`.
pub fn naming<'a>(profile: &ProfileConfig, servers: impl IntoIterator<Item = &'a ServerName>) -> Naming {
    let shown = servers.into_iter().filter(|name| server(profile, name).is_yes()).take(2).count();
    if profile.raw_names && shown == 1 { Naming::Raw } else { Naming::Prefixed }
}

/// Names in `servers:` of a profile that no configured server has.
pub fn unknown_servers<'p>(profile: &'p ProfileConfig, configured: &[ServerName]) -> Vec<&'p str> {
    let list = profile.servers.as_deref().unwrap_or_default();
    list.iter()
        .map(String::as_str)
        .filter(|name| configured.iter().all(|server| server.as_str() != *name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ToolsConfig;

    fn profile(servers: Option<&[&str]>, include: Option<&[&str]>, exclude: &[&str]) -> ProfileConfig {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        ProfileConfig {
            servers: servers.map(own),
            tools: ToolsConfig { include: include.map(own), exclude: own(exclude), ..ToolsConfig::default() },
            ..ProfileConfig::default()
        }
    }

    #[test]
    fn the_default_profile_shows_everything() {
        let all = ProfileConfig::default();
        assert!(tool(&all, &ServerName::new("s"), "t", "mcp_s_t").is_yes());
        assert!(conversation(&all, "messages_send", ConversationTool::Changes).is_yes());
    }

    #[test]
    fn servers_and_tools_are_filtered_and_include_beats_exclude() {
        let one = profile(Some(&["a"]), Some(&["x", "mcp_a_y"]), &["x"]);
        let (a, b) = (ServerName::new("a"), ServerName::new("b"));
        assert!(tool(&one, &a, "x", "mcp_a_x").is_yes());
        assert!(tool(&one, &a, "y", "mcp_a_y").is_yes());
        assert_eq!(tool(&one, &a, "z", "mcp_a_z"), Visible::No);
        assert_eq!(tool(&one, &b, "x", "mcp_b_x"), Visible::No);
        assert_eq!(tool(&profile(None, None, &["x"]), &b, "x", "mcp_b_x"), Visible::No);
        assert_eq!(tool(&profile(None, Some(&[]), &[]), &b, "x", "mcp_b_x"), Visible::No);
        assert_eq!(tool(&profile(Some(&[]), None, &[]), &b, "x", "mcp_b_x"), Visible::No);
    }

    #[test]
    fn conversations_are_shown_read_only_or_not_at_all() {
        let read = ProfileConfig { conversations: ProfileConversations::Read, ..ProfileConfig::default() };
        assert!(conversation(&read, "messages_read", ConversationTool::Reads).is_yes());
        assert_eq!(conversation(&read, "messages_send", ConversationTool::Changes), Visible::No);
        let off = ProfileConfig { conversations: ProfileConversations::Off, ..ProfileConfig::default() };
        assert_eq!(conversation(&off, "messages_read", ConversationTool::Reads), Visible::No);
        assert!(
            conversation(&profile(Some(&["a"]), None, &[]), "messages_read", ConversationTool::Reads)
                .is_yes()
        );
    }

    #[test]
    fn raw_names_need_a_single_server() {
        let servers = [ServerName::new("a"), ServerName::new("b")];
        let raw = |list: Option<&[&str]>| ProfileConfig { raw_names: true, ..profile(list, None, &[]) };
        assert_eq!(naming(&raw(Some(&["a"])), &servers), Naming::Raw);
        assert_eq!(naming(&raw(None), &servers), Naming::Prefixed);
        assert_eq!(naming(&profile(Some(&["a"]), None, &[]), &servers), Naming::Prefixed);
        assert_eq!(unknown_servers(&raw(Some(&["a", "c"])), &servers), ["c"]);
    }
}
