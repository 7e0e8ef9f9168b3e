//! Exposed names: how a tool of a server is called in front of clients.
//!
//! Pure. Promise: a name depends on three things only: the names of all *configured* servers, the
//! raw tool names of the tool's own server, and the tool. What runs, what started first and how a
//! list is ordered never matter, so a client's cached names stay right. Names are unique, at most
//! `limit` characters of `[A-Za-z0-9_]`, and are resolved by table, never by parsing.
//!
//! The plain form is `mcp_<server>_<tool>` with each part sanitised. It belongs to
//! * the configured server with the longest sanitised name that the form could start with (tool
//!   `x_y` of server `a` gives way to server `a_x`); among servers that sanitise alike, to the one
//!   that needed no change, else to none of them;
//! * inside a server, among raw names that sanitise alike, to the one that needed no change, else
//!   to none of them; a utility tool gives way to any tool of the server's own.
//!
//! Whoever does not own its plain form, or is too long, gets a suffix: `__` and eight characters
//! of a digest of (server, tool). Plain forms that happen to look like that get one as well, so the
//! two kinds never meet.

use crate::names::{ExposedName, ServerName};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Smallest accepted limit: prefix, suffix, and a few characters of both parts.
pub const MIN_LIMIT: usize = 24;

const PREFIX: &str = "mcp_";
const SUFFIX_MARK: &str = "__";
const SUFFIX_CHARS: usize = 8;
const SUFFIX_LEN: usize = SUFFIX_MARK.len() + SUFFIX_CHARS;
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A tool that the daemon adds to a server with resources or prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Utility {
    /// `list_resources`
    ListResources,
    /// `read_resource`
    ReadResource,
    /// `list_prompts`
    ListPrompts,
    /// `get_prompt`
    GetPrompt,
}

impl Utility {
    /// All four, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::ListResources, Self::ReadResource, Self::ListPrompts, Self::GetPrompt];

    /// Its name without prefix.
    pub fn raw(self) -> &'static str {
        match self {
            Self::ListResources => "list_resources",
            Self::ReadResource => "read_resource",
            Self::ListPrompts => "list_prompts",
            Self::GetPrompt => "get_prompt",
        }
    }
}

/// What one raw name came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// What clients call it; `None` only for [`NameNote::Duplicate`].
    pub exposed: Option<ExposedName>,
    /// Why the name is not the plain form of the raw name.
    pub note: Option<NameNote>,
}

/// Why a name differs from the plain form; for status and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameNote {
    /// The same raw name came before; the first one is kept.
    Duplicate,
    /// Another configured server owns the plain form.
    OtherServer {
        /// Sanitised name of that server.
        sanitised: String,
    },
    /// Another tool of the same server has the same plain form.
    SameServer {
        /// Raw name of one of them, the smallest.
        other: String,
    },
    /// The plain form looks like a suffixed one.
    LooksSuffixed,
    /// The plain form is longer than the limit.
    TooLong {
        /// Its length in characters.
        length: usize,
    },
}

impl std::fmt::Display for NameNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Duplicate => f.write_str("the server lists this name twice; the first one is kept"),
            Self::OtherServer { sanitised } => {
                write!(
                    f,
                    "the plain name could be read as a tool of server `{sanitised}`, so it got a suffix"
                )
            }
            Self::SameServer { other } => {
                write!(f, "tool `{other}` of the same server has the same plain name, so it got a suffix")
            }
            Self::LooksSuffixed => {
                f.write_str("the plain name looks like one with a suffix, so it got a suffix")
            }
            Self::TooLong { length } => write!(f, "the plain name has {length} characters, so it was cut"),
        }
    }
}

/// Replaces every character outside `[A-Za-z0-9_]` by `_`.
pub fn sanitise(part: &str) -> String {
    part.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// Names every tool of `server`; the answer has one entry for each of `raw`, in the same order.
///
/// `configured` holds the names of all servers in the configuration, disabled and refused ones
/// too; `server` counts as one of them. `raw` is the whole list, before any filter: a filter must
/// not rename what it leaves. A `limit` under [`MIN_LIMIT`] counts as [`MIN_LIMIT`].
pub fn expose(
    server: &ServerName,
    configured: &BTreeSet<ServerName>,
    raw: &[&str],
    limit: usize,
) -> Vec<Named> {
    let namer = Namer::new(server, configured, raw, limit);
    let mut seen = BTreeSet::new();
    let mut taken = BTreeSet::new();
    let mut named: Vec<(usize, Named)> = Vec::with_capacity(raw.len());
    let mut order: Vec<usize> = (0..raw.len()).collect();
    // By raw name, so that the tie between two equal digests does not depend on the list's order.
    order.sort_by_key(|&i| (raw[i], i));
    for i in order {
        let one = if seen.insert(raw[i]) {
            namer.name(raw[i], Kind::Own, &mut taken)
        } else {
            Named { exposed: None, note: Some(NameNote::Duplicate) }
        };
        named.push((i, one));
    }
    named.sort_by_key(|(i, _)| *i);
    named.into_iter().map(|(_, one)| one).collect()
}

/// Names a utility tool of `server`; same parameters as [`expose`].
pub fn expose_utility(
    server: &ServerName,
    configured: &BTreeSet<ServerName>,
    raw: &[&str],
    utility: Utility,
    limit: usize,
) -> Named {
    let mut taken: BTreeSet<ExposedName> =
        expose(server, configured, raw, limit).into_iter().filter_map(|named| named.exposed).collect();
    Namer::new(server, configured, raw, limit).name(utility.raw(), Kind::Utility, &mut taken)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Own,
    Utility,
}

struct Namer<'a> {
    server: &'a ServerName,
    sanitised: String,
    /// Sanitised names of all configured servers, with the raw names behind each.
    servers: BTreeMap<String, BTreeSet<&'a str>>,
    /// Sanitised tool names, with the raw names behind each.
    tools: BTreeMap<String, BTreeSet<&'a str>>,
    limit: usize,
}

impl<'a> Namer<'a> {
    fn new(
        server: &'a ServerName,
        configured: &'a BTreeSet<ServerName>,
        raw: &[&'a str],
        limit: usize,
    ) -> Self {
        let mut servers: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for name in configured.iter().chain([server]) {
            servers.entry(sanitise(name.as_str())).or_default().insert(name.as_str());
        }
        let mut tools: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for name in raw {
            tools.entry(sanitise(name)).or_default().insert(name);
        }
        let limit = limit.max(MIN_LIMIT);
        Self { server, sanitised: sanitise(server.as_str()), servers, tools, limit }
    }

    fn name(&self, raw: &str, kind: Kind, taken: &mut BTreeSet<ExposedName>) -> Named {
        let tool = sanitise(raw);
        let body = format!("{}_{tool}", self.sanitised);
        let note = self.rival_server(&body).or_else(|| self.rival_tool(raw, &tool, kind)).or_else(|| {
            let length = PREFIX.len() + body.len();
            if length > self.limit {
                Some(NameNote::TooLong { length })
            } else {
                looks_suffixed(&body).then_some(NameNote::LooksSuffixed)
            }
        });
        let exposed = match note {
            None => ExposedName::new(format!("{PREFIX}{body}")),
            // Two digests of 40 bits can be made equal on purpose; the round then settles it.
            Some(_) => (0..u32::MAX)
                .map(|round| ExposedName::new(self.suffixed(raw, &tool, kind, round)))
                .find(|name| !taken.contains(name))
                .expect("fewer tools than rounds"),
        };
        taken.insert(exposed.clone());
        Named { exposed: Some(exposed), note }
    }

    /// The server that owns this plain form, if it is not ours.
    fn rival_server(&self, body: &str) -> Option<NameNote> {
        let owner = self
            .servers
            .keys()
            .filter(|name| body.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('_')))
            .max_by_key(|name| name.len())?;
        let alike = &self.servers[owner];
        let ours = *owner == self.sanitised && (alike.len() == 1 || self.server.as_str() == self.sanitised);
        (!ours).then(|| NameNote::OtherServer { sanitised: owner.clone() })
    }

    /// The tool that owns this plain form, if it is not this one.
    fn rival_tool(&self, raw: &str, tool: &str, kind: Kind) -> Option<NameNote> {
        let alike = self.tools.get(tool)?;
        let ours = kind == Kind::Own && (alike.len() == 1 || raw == tool);
        if ours {
            return None;
        }
        let other = alike.iter().find(|name| kind == Kind::Utility || **name != raw)?;
        Some(NameNote::SameServer { other: (*other).to_owned() })
    }

    fn suffixed(&self, raw: &str, tool: &str, kind: Kind, round: u32) -> String {
        let room = self.limit - PREFIX.len() - 1 - SUFFIX_LEN;
        // A long server name must not eat the tool's: it is cut to what the tool leaves, but may
        // always keep a third.
        let server = cut(&self.sanitised, room.saturating_sub(tool.len()).max(room / 3));
        let tool = cut(tool, room - server.len());
        let mut digest = Sha256::new();
        for part in [self.server.as_str(), raw] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.update([u8::from(kind == Kind::Utility)]);
        digest.update(round.to_be_bytes());
        format!("{PREFIX}{server}_{tool}{SUFFIX_MARK}{}", base32(&digest.finalize()))
    }
}

fn cut(text: &str, length: usize) -> &str {
    // Sanitised text is ASCII, so every index is a border.
    &text[..length.min(text.len())]
}

fn looks_suffixed(body: &str) -> bool {
    body.len() >= SUFFIX_LEN
        && body[body.len() - SUFFIX_LEN..]
            .strip_prefix(SUFFIX_MARK)
            .is_some_and(|tail| tail.bytes().all(|b| BASE32.contains(&b)))
}

fn base32(digest: &[u8]) -> String {
    let bits = digest[..5].iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    (0..SUFFIX_CHARS).map(|i| BASE32[(bits >> (35 - 5 * i) & 31) as usize] as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(names: &[&str]) -> BTreeSet<ServerName> {
        names.iter().map(|name| ServerName::new(*name)).collect()
    }

    fn names(server: &str, configured: &[&str], raw: &[&str]) -> Vec<String> {
        expose(&ServerName::new(server), &set(configured), raw, 50)
            .into_iter()
            .map(|named| named.exposed.map_or_else(|| "-".to_owned(), |name| name.as_str().to_owned()))
            .collect()
    }

    #[test]
    fn an_unambiguous_tool_has_the_plain_name() {
        assert_eq!(names("git-hub", &["git-hub", "fs"], &["create.issue"]), ["mcp_git_hub_create_issue"]);
        assert_eq!(names("中文", &["中文"], &["读"]), ["mcp_____"]);
    }

    #[test]
    fn of_tools_that_sanitise_alike_the_unchanged_one_is_plain() {
        let got = names("fs", &["fs"], &["read-file", "read_file", "read.file"]);
        assert_eq!(got[1], "mcp_fs_read_file");
        for other in [&got[0], &got[2]] {
            assert!(other.starts_with("mcp_fs_read_file__"), "{other}");
        }
        assert_ne!(got[0], got[2]);
    }

    #[test]
    fn servers_that_sanitise_alike_never_meet() {
        let both = ["foo-bar", "foo_bar"];
        assert_eq!(names("foo_bar", &both, &["t"]), ["mcp_foo_bar_t"]);
        assert!(names("foo-bar", &both, &["t"])[0].starts_with("mcp_foo_bar_t__"));
        let neither = ["foo-bar", "foo.bar"];
        for server in neither {
            assert!(names(server, &neither, &["t"])[0].starts_with("mcp_foo_bar_t__"));
        }
    }

    #[test]
    fn a_tool_that_could_belong_to_another_server_gives_way() {
        let both = ["a", "a_b"];
        assert_eq!(names("a_b", &both, &["c"]), ["mcp_a_b_c"]);
        let got = expose(&ServerName::new("a"), &set(&both), &["b_c", "z"], 50);
        assert!(got[0].exposed.as_ref().unwrap().as_str().starts_with("mcp_a_b_c__"));
        assert_eq!(got[0].note, Some(NameNote::OtherServer { sanitised: "a_b".to_owned() }));
        assert_eq!(got[1].exposed.as_ref().unwrap().as_str(), "mcp_a_z");
    }

    #[test]
    fn a_repeated_raw_name_is_kept_once() {
        let got = expose(&ServerName::new("s"), &set(&["s"]), &["t", "t"], 50);
        assert_eq!(got[0].note, None);
        assert_eq!(got[1], Named { exposed: None, note: Some(NameNote::Duplicate) });
    }

    #[test]
    fn long_parts_are_cut_and_both_stay_readable() {
        let server = "s".repeat(40);
        let tool = "t".repeat(30);
        let got = &names(&server, &[&server], &[&tool])[0];
        assert_eq!(got.len(), 50);
        assert!(got.contains("sssssssssss") && got.contains("ttttttttttt"), "{got}");
    }

    #[test]
    fn a_utility_gives_way_to_a_tool_of_the_servers_own() {
        let server = ServerName::new("s");
        let free = expose_utility(&server, &set(&["s"]), &["x"], Utility::ListPrompts, 50);
        assert_eq!(free.exposed.unwrap().as_str(), "mcp_s_list_prompts");
        let raw = ["list-prompts"];
        assert_eq!(names("s", &["s"], &raw), ["mcp_s_list_prompts"]);
        let moved = expose_utility(&server, &set(&["s"]), &raw, Utility::ListPrompts, 50);
        assert!(moved.exposed.unwrap().as_str().starts_with("mcp_s_list_prompts__"));
        assert_eq!(moved.note, Some(NameNote::SameServer { other: "list-prompts".to_owned() }));
    }

    #[test]
    fn a_plain_name_that_imitates_a_suffixed_one_gets_a_suffix() {
        let both = ["a", "a_b"];
        let victim = names("a", &both, &["b_c"])[0].clone();
        let imitation = victim.strip_prefix("mcp_a_b_").unwrap();
        assert_ne!(names("a_b", &both, &[imitation])[0], victim);
    }

    /// Parts that collide often.
    fn part() -> impl Strategy<Value = String> {
        prop_oneof![
            proptest::collection::vec(
                prop_oneof![Just('a'), Just('b'), Just('_'), Just('-'), Just('é')],
                0..5
            )
            .prop_map(|chars| chars.into_iter().collect()),
            ".{0,40}",
            "[a-z]{30,60}",
        ]
    }

    proptest! {
        #[test]
        fn names_are_unique_bounded_and_clean(
            servers in proptest::collection::btree_map(part(), proptest::collection::vec(part(), 0..6), 1..6),
            limit in 0usize..140,
        ) {
            let configured: BTreeSet<ServerName> = servers.keys().map(|s| ServerName::new(s.as_str())).collect();
            let mut all = BTreeSet::new();
            for (server, tools) in &servers {
                let server = ServerName::new(server.as_str());
                let raw: Vec<&str> = tools.iter().map(String::as_str).collect();
                let own = expose(&server, &configured, &raw, limit);
                prop_assert_eq!(own.len(), raw.len());
                let utilities = Utility::ALL.map(|u| expose_utility(&server, &configured, &raw, u, limit));
                for named in own.iter().chain(&utilities) {
                    let Some(name) = &named.exposed else { continue };
                    let text = name.as_str();
                    prop_assert!(text.len() <= limit.max(MIN_LIMIT), "{}", text);
                    prop_assert!(text.starts_with("mcp_"));
                    prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
                    prop_assert!(all.insert(name.clone()), "{} twice", text);
                }
                let distinct: BTreeSet<&str> = raw.iter().copied().collect();
                prop_assert_eq!(own.iter().filter(|n| n.exposed.is_some()).count(), distinct.len());
            }
        }

        #[test]
        fn the_order_of_a_list_does_not_matter(tools in proptest::collection::btree_set(part(), 1..8), turn in 0usize..8) {
            let raw: Vec<&str> = tools.iter().map(String::as_str).collect();
            let mut turned = raw.clone();
            turned.rotate_left(turn % raw.len());
            let server = ServerName::new("s");
            let configured = set(&["s", "s_a", "s-a"]);
            let by_name = |list: &[&str]| -> BTreeMap<String, Option<ExposedName>> {
                let named = expose(&server, &configured, list, 40);
                list.iter().map(|raw| (*raw).to_owned()).zip(named.into_iter().map(|n| n.exposed)).collect()
            };
            prop_assert_eq!(by_name(&raw), by_name(&turned));
        }
    }
}
