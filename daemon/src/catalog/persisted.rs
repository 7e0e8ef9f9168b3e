//! The last known catalogues: whose still fits its configuration, who has to be asked again.
//!
//! Pure. `store` keeps the records; here they are matched with the servers of the configuration and
//! turned from and into what a server listed. Promise: a server is never without its tools only
//! because it is not running. May not touch: the database, servers.

use crate::config::{HttpConfig, RemoteKind, ServerConfig, StdioConfig, TransportConfig};
use crate::names::ServerName;
use crate::server::listing::{Item, ListKind, Listing, Reader};
use crate::store::{CatalogRecord, StoredCatalog};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What to keep of `listing`, learned with a configuration of `config_digest`.
///
/// Items are kept as they are served; what was dropped is not kept, and neither is a list that was
/// never read.
pub fn to_record(listing: &Listing, config_digest: [u8; 32]) -> CatalogRecord {
    let raw = |items: &[Item]| items.iter().map(|item| item.raw.clone()).collect();
    let items = listing.read.iter().map(|list| {
        let items = match list {
            ListKind::Tools => listing.tools.iter().map(|tool| tool.raw.clone()).collect(),
            ListKind::Resources => raw(&listing.resources),
            ListKind::Templates => raw(&listing.templates),
            ListKind::Prompts => raw(&listing.prompts),
        };
        (list.member().to_owned(), items)
    });
    CatalogRecord {
        config_digest,
        items: items.collect(),
        capabilities: listing.capabilities.clone(),
        instructions: listing.instructions.clone(),
    }
}

/// The listing in `record`, read as if the server had answered it just now.
pub fn to_listing(record: &CatalogRecord) -> Listing {
    let mut listing = Listing {
        capabilities: record.capabilities.clone(),
        instructions: record.instructions.clone(),
        ..Listing::default()
    };
    for list in ListKind::ALL {
        let Some(items) = record.items.get(list.member()) else { continue };
        let page = serde_json::value::to_raw_value(&BTreeMap::from([(list.member(), items)]))
            .expect("raw JSON under a text is JSON");
        let mut reader = Reader::new(list, 1);
        reader.page(&page);
        listing.put(reader.finish());
    }
    listing
}

/// An entry of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Can run; the digest of how.
    Usable([u8; 32]),
    /// Disabled or refused: it keeps what is known about it and is not asked.
    Unusable,
}

/// What to do with the stored catalogues.
#[derive(Debug, Default)]
pub struct Plan {
    /// Listed until the server itself answers.
    pub serve: BTreeMap<ServerName, StoredCatalog>,
    /// To be started once in the background, also where lazy: nothing is known, or it was learned
    /// with another configuration.
    pub learn: Vec<ServerName>,
    /// No longer in the configuration.
    pub forget: Vec<ServerName>,
}

/// Matches the entries of the configuration with what is stored.
///
/// A catalogue learned with another configuration is served too until the server was asked: a person
/// who changes one argument does not want the tools gone meanwhile.
pub fn plan(entries: &BTreeMap<ServerName, Entry>, stored: BTreeMap<ServerName, StoredCatalog>) -> Plan {
    let mut plan = Plan::default();
    for (server, entry) in entries {
        let known = stored.get(server).map(|catalog| catalog.record.config_digest);
        match (entry, known) {
            (Entry::Usable(digest), Some(known)) if *digest == known => {}
            (Entry::Usable(_), Some(_) | None) => plan.learn.push(server.clone()),
            (Entry::Unusable, _) => {}
        }
    }
    for (server, catalog) in stored {
        match entries.get(&server) {
            Some(Entry::Usable(_)) => {
                plan.serve.insert(server, catalog);
            }
            Some(Entry::Unusable) => {}
            None => plan.forget.push(server),
        }
    }
    plan
}

/// SHA-256 of everything in `config` that decides what a server lists. Secret values go in, and cannot
/// be read back.
pub fn config_digest(config: &ServerConfig) -> [u8; 32] {
    let mut fields = Fields(Sha256::new());
    match &config.transport {
        TransportConfig::Stdio(stdio) => fields.stdio(stdio),
        TransportConfig::Http(http) => fields.http(http),
    }
    fields.text(&format!("{:?}", config.protocol));
    fields.0.finalize().into()
}

/// Hashes texts with their lengths, so that two lists of texts never look the same when joined.
struct Fields(Sha256);

impl Fields {
    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text);
    }

    fn texts<'a>(&mut self, texts: impl ExactSizeIterator<Item = &'a str>) {
        self.0.update((texts.len() as u64).to_be_bytes());
        texts.for_each(|text| self.text(text));
    }

    fn optional(&mut self, text: Option<&str>) {
        self.texts(text.into_iter().collect::<Vec<_>>().into_iter());
    }

    fn stdio(&mut self, config: &StdioConfig) {
        // `osv`, `allow_shell` and `detached` decide whether and how it runs, not what it lists.
        let StdioConfig { command, args, env, env_pass, env_file, cwd, allow_shell: _, osv: _, detached: _ } =
            config;
        self.text("stdio");
        self.text(command);
        self.texts(args.iter().map(String::as_str));
        self.texts(env.keys().map(String::as_str));
        self.texts(env.values().map(|value| value.expose()));
        self.texts(env_pass.iter().map(String::as_str));
        self.texts(env_file.keys().map(String::as_str));
        self.texts(env_file.values().map(|value| value.expose()));
        self.optional(cwd.as_ref().map(|cwd| cwd.to_string_lossy()).as_deref());
    }

    fn http(&mut self, config: &HttpConfig) {
        let HttpConfig { url, headers, kind, oauth, tls, allow_insecure: _ } = config;
        self.text("http");
        self.text(url);
        self.texts(headers.keys().map(String::as_str));
        self.texts(headers.values().map(|value| value.expose()));
        self.text(match kind {
            RemoteKind::Auto => "auto",
            RemoteKind::Streamable => "streamable",
            RemoteKind::Sse => "sse",
        });
        self.optional(oauth.as_ref().map(|oauth| oauth.client_id.as_deref().unwrap_or("")));
        self.optional(oauth.as_ref().and_then(|oauth| oauth.scope.as_deref()));
        // A certificate says who asks; the rest of TLS only whether the server is reached.
        self.optional(tls.client_cert.as_ref().map(|cert| cert.to_string_lossy()).as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use crate::store::UnixMs;
    use proptest::prelude::*;

    fn stored(digest: u8) -> StoredCatalog {
        let record = CatalogRecord {
            config_digest: [digest; 32],
            items: BTreeMap::new(),
            capabilities: None,
            instructions: None,
        };
        StoredCatalog { record, learned_at: UnixMs(1) }
    }

    fn name(text: &str) -> ServerName {
        ServerName::new(text)
    }

    fn stdio(args: Vec<String>, env: BTreeMap<String, Secret>) -> [u8; 32] {
        let mut fields = Fields(Sha256::new());
        fields.stdio(&StdioConfig {
            command: "npx".to_owned(),
            args,
            env,
            env_pass: Vec::new(),
            env_file: BTreeMap::new(),
            cwd: None,
            allow_shell: false,
            osv: true,
            detached: crate::config::Detached::End,
        });
        fields.0.finalize().into()
    }

    #[test]
    fn known_servers_are_served_changed_and_new_ones_learned_and_removed_ones_forgotten() {
        let entries = BTreeMap::from([
            (name("same"), Entry::Usable([1; 32])),
            (name("changed"), Entry::Usable([2; 32])),
            (name("new"), Entry::Usable([3; 32])),
            (name("off"), Entry::Unusable),
            (name("off_unknown"), Entry::Unusable),
        ]);
        let known = ["same", "changed", "off", "removed"].map(|server| (name(server), stored(1)));
        let plan = plan(&entries, BTreeMap::from(known));
        assert_eq!(plan.serve.keys().map(ServerName::as_str).collect::<Vec<_>>(), ["changed", "same"]);
        assert_eq!(plan.learn, [name("changed"), name("new")]);
        assert_eq!(plan.forget, [name("removed")]);
    }

    #[test]
    fn a_listing_comes_back_from_its_record_as_it_was() {
        let pages = [
            (
                ListKind::Tools,
                r#"{"tools":[{"name":"t","x":1.0,"inputSchema":{"type":"object"}},{"name":"bare"},7]}"#,
            ),
            (ListKind::Resources, r#"{"resources":[{"uri":"file:///a",  "name":"a"}]}"#),
            (ListKind::Templates, r#"{"resourceTemplates":[{"uriTemplate":"file:///{p}","name":"p"}]}"#),
            (ListKind::Prompts, r#"{"prompts":[{"name":"ask"}]}"#),
        ];
        let mut listing = Listing { instructions: Some("be kind".to_owned()), ..Listing::default() };
        listing.capabilities = serde_json::from_str(r#"{"tools":{ }}"#).unwrap();
        for (list, page) in pages {
            let mut reader = Reader::new(list, 1);
            reader.page(&serde_json::from_str::<Box<serde_json::value::RawValue>>(page).unwrap());
            listing.put(reader.finish());
        }
        let back = to_listing(&to_record(&listing, [1; 32]));
        assert!(back.same_content(&listing));
        assert_eq!((back.tools.len(), back.prompts.len()), (2, 1));
        assert!(back.notes.is_empty(), "only what can be used was kept: {:?}", back.notes);
    }

    #[test]
    fn a_changed_secret_changes_the_digest() {
        let env = |value: &str| BTreeMap::from([("TOKEN".to_owned(), Secret::new(value))]);
        assert_ne!(stdio(vec![], env("one")), stdio(vec![], env("two")));
        assert_eq!(stdio(vec![], env("one")), stdio(vec![], env("one")));
    }

    proptest! {
        #[test]
        fn different_arguments_never_have_the_same_digest(
            a in proptest::collection::vec("[ab]{0,3}", 0..5),
            b in proptest::collection::vec("[ab]{0,3}", 0..5),
        ) {
            let same = a == b;
            prop_assert_eq!(stdio(a, BTreeMap::new()) == stdio(b, BTreeMap::new()), same);
        }
    }
}
