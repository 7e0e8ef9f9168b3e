//! The last known catalogues: whose still fits its configuration, who has to be asked again.
//!
//! Pure. `store` keeps the records; here they are matched with the servers of the configuration and
//! turned from and into what a server listed. Promise: a server is never without its tools only
//! because it is not running. May not touch: the database, servers.

use crate::config::{HttpConfig, ServerConfig, StdioConfig, TransportConfig};
use crate::names::ServerName;
use crate::store::{CatalogRecord, StoredCatalog};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What a server listed, as far as it can be kept.
///
/// Implemented by the listing of a live server, so that one that is not running looks the same.
pub trait Recordable: Sized {
    /// Its items as they came, in their order, by kind (`tools`, `resources`, `resourceTemplates`, `prompts`).
    fn items(&self) -> BTreeMap<String, Vec<Box<RawValue>>>;
    /// Its capabilities.
    fn capabilities(&self) -> Option<Box<RawValue>>;
    /// Its instructions.
    fn instructions(&self) -> Option<String>;
    /// The same listing from a record; items of unknown kinds and such as cannot be used are left out.
    fn from_record(record: &CatalogRecord) -> Self;

    /// The record of this listing, learned with a configuration of `config_digest`.
    fn to_record(&self, config_digest: [u8; 32]) -> CatalogRecord {
        CatalogRecord {
            config_digest,
            items: self.items(),
            capabilities: self.capabilities(),
            instructions: self.instructions(),
        }
    }
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
        let StdioConfig { command, args, env, env_pass, cwd, allow_shell: _, osv: _, detached: _ } = config;
        self.text("stdio");
        self.text(command);
        self.texts(args.iter().map(String::as_str));
        self.texts(env.keys().map(String::as_str));
        self.texts(env.values().map(|value| value.expose()));
        self.texts(env_pass.iter().map(String::as_str));
        self.optional(cwd.as_ref().map(|cwd| cwd.to_string_lossy()).as_deref());
    }

    fn http(&mut self, config: &HttpConfig) {
        let HttpConfig { url, headers, legacy_sse, oauth, tls, allow_insecure: _ } = config;
        self.text("http");
        self.text(url);
        self.texts(headers.keys().map(String::as_str));
        self.texts(headers.values().map(|value| value.expose()));
        self.text(if *legacy_sse { "sse" } else { "streamable" });
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
