//! URIs that two servers offer: each server's gets a name of its own.
//!
//! Pure. Promise: a URI that one server alone offers is never changed; two different things never
//! have one name; a name says whose it is and the original stays readable in it. Names depend on
//! what servers offer and never on their order.

use super::build::Offer;
use super::template;
use crate::names::ServerName;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// URIs with this beginning are hermesd's own.
pub const OWN: &str = "hermes://conversations/";

/// The other names of one server's URIs.
#[derive(Debug, Default)]
pub struct Renamed {
    host: String,
    uris: HashMap<String, String>,
    /// Templates that another server has too.
    templates: Vec<String>,
    /// Its other URIs, which keep their names although one of `templates` fits.
    kept: HashSet<String>,
}

impl Renamed {
    /// What clients call this server's `uri`; `None`: as the server does.
    pub fn name(&self, uri: &str) -> Option<Cow<'_, str>> {
        if let Some(name) = self.uris.get(uri) {
            return Some(Cow::Borrowed(name));
        }
        let fits = !self.kept.contains(uri)
            && self.templates.iter().any(|template| template::fits(template, uri).is_some());
        fits.then(|| Cow::Owned(own_uri(&self.host, uri)))
    }

    /// What clients call this server's URI template.
    pub fn template(&self, template: &str) -> Option<String> {
        self.templates.iter().any(|own| own == template).then(|| own_uri(&self.host, template))
    }
}

/// The other names of all servers' URIs; empty in nearly every catalogue.
#[derive(Debug, Default)]
pub struct Renames {
    by_server: BTreeMap<ServerName, Arc<Renamed>>,
}

impl Renames {
    /// Of one server, if it has any.
    pub fn of(&self, server: &str) -> Option<&Arc<Renamed>> {
        self.by_server.get(server)
    }

    /// By what all servers offer.
    pub fn among(offers: &[Offer]) -> Self {
        let uris =
            |offer: &Offer| offer.resources.iter().map(|(uri, _)| uri.clone()).collect::<BTreeSet<_>>();
        let templates =
            |offer: &Offer| offer.templates.iter().map(|(uri, _)| uri.clone()).collect::<BTreeSet<_>>();
        let (uris, templates) = (taken(offers, uris), taken(offers, templates));
        let mut by_server = BTreeMap::new();
        for offer in offers {
            let name = &offer.config.name;
            let own = |all: &BTreeSet<(ServerName, String)>| -> Vec<String> {
                let own = all.iter().filter(|(server, _)| server == name);
                own.map(|(_, uri)| uri.clone()).collect()
            };
            let (uris, templates) = (own(&uris), own(&templates));
            if uris.is_empty() && templates.is_empty() {
                continue;
            }
            let host = host(name);
            let uris: HashMap<String, String> =
                uris.into_iter().map(|uri| (uri.clone(), own_uri(&host, &uri))).collect();
            let kept = match templates.is_empty() {
                true => HashSet::new(),
                false => offer.resources.iter().map(|(uri, _)| uri.clone()).collect(),
            };
            by_server.insert(name.clone(), Arc::new(Renamed { host, uris, templates, kept }));
        }
        Self { by_server }
    }
}

/// Whose URIs cannot keep their names: those that several servers offer, that look like hermesd's own,
/// or like a name that was given.
fn taken(offers: &[Offer], uris: impl Fn(&Offer) -> BTreeSet<String>) -> BTreeSet<(ServerName, String)> {
    let mut owners: BTreeMap<String, Vec<&ServerName>> = BTreeMap::new();
    for offer in offers {
        for uri in uris(offer) {
            owners.entry(uri).or_default().push(&offer.config.name);
        }
    }
    let mut taken: BTreeSet<(ServerName, String)> = BTreeSet::new();
    let mut look: Vec<String> = owners
        .iter()
        .filter(|(uri, servers)| servers.len() > 1 || uri.starts_with(OWN))
        .map(|(uri, _)| uri.clone())
        .collect();
    // A name that is given may be another one's URI, which has to give way then.
    while let Some(uri) = look.pop() {
        for server in owners.get(&uri).into_iter().flatten() {
            if taken.insert(((*server).clone(), uri.clone())) {
                look.push(own_uri(&host(server), &uri));
            }
        }
    }
    taken
}

/// A URI that names its server; the original stays readable in it.
fn own_uri(host: &str, uri: &str) -> String {
    match uri.strip_prefix("ui://") {
        Some(rest) => format!("ui://{host}/{rest}"),
        None => format!("hermes://{host}/{uri}"),
    }
}

/// A server's name as the host of a URI; different names are different hosts.
fn host(server: &ServerName) -> String {
    use std::fmt::Write as _;
    let mut host = String::with_capacity(server.as_str().len());
    for byte in server.as_str().bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                host.push(char::from(byte))
            }
            other => write!(host, "%{other:02X}").expect("writing to a string succeeds"),
        }
    }
    host
}

/// The server's own URI for `uri`, which comes from the template that it calls `raw` and clients `name`.
pub fn original(name: &str, raw: &str, uri: &str) -> String {
    if name == raw {
        return uri.to_owned();
    }
    let (cut, head) = match name.strip_suffix(raw) {
        Some(before) => (before.len(), ""),
        None => (name.len() + "ui://".len() - raw.len(), "ui://"),
    };
    format!("{head}{}", uri.get(cut..).unwrap_or_default())
}

/// What clients call `uri`, which comes from the template that the server calls `raw` and clients `name`;
/// `None`: the same.
pub fn renamed(name: &str, raw: &str, uri: &str) -> Option<String> {
    if name == raw {
        return None;
    }
    match name.strip_suffix(raw) {
        Some(before) => Some(format!("{before}{uri}")),
        None => {
            Some(format!("{}{}", &name[..name.len() + "ui://".len() - raw.len()], uri.strip_prefix("ui://")?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerConfig, StdioConfig, TransportConfig};
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    fn offer(server: &str, uris: &[&str], templates: &[&str]) -> Offer {
        let stdio = TransportConfig::Stdio(StdioConfig::command("x"));
        let config = ServerConfig::with_transport(ServerName::new(server), stdio);
        let items = |uris: &[&str]| {
            let json = || RawValue::from_string("{}".to_owned()).unwrap();
            uris.iter().map(|uri| ((*uri).to_owned(), json())).collect()
        };
        Offer {
            resources: items(uris),
            templates: items(templates),
            ..Offer::of_tools(Arc::new(config), vec![])
        }
    }

    fn name(renames: &Renames, server: &str, uri: &str) -> String {
        renames.of(server).and_then(|own| own.name(uri)).map_or_else(|| uri.to_owned(), Cow::into_owned)
    }

    #[test]
    fn only_what_two_servers_offer_is_renamed() {
        let all = Renames::among(&[
            offer("a", &["n://1", "n://2", "ui://x/y"], &["row://{id}"]),
            offer("b-b", &["n://1", "ui://x/y"], &["row://{id}", "other://{id}"]),
            offer("c", &["n://3"], &[]),
        ]);
        assert_eq!(name(&all, "a", "n://1"), "hermes://a/n://1");
        assert_eq!(name(&all, "b-b", "n://1"), "hermes://b-b/n://1");
        assert_eq!(name(&all, "a", "n://2"), "n://2");
        assert_eq!(name(&all, "b-b", "ui://x/y"), "ui://b-b/x/y");
        assert!(all.of("c").is_none());
        // What a shared template stands for is somebody's too.
        assert_eq!(name(&all, "a", "row://7"), "hermes://a/row://7");
        assert_eq!(name(&all, "b-b", "other://7"), "other://7");
        let own = all.of("b-b").unwrap();
        assert_eq!(own.template("row://{id}").as_deref(), Some("hermes://b-b/row://{id}"));
        assert_eq!(own.template("other://{id}"), None);
    }

    #[test]
    fn a_listed_uri_keeps_its_name_although_a_shared_template_fits() {
        let all =
            Renames::among(&[offer("a", &["row://1"], &["row://{id}"]), offer("b", &[], &["row://{id}"])]);
        assert_eq!(name(&all, "a", "row://1"), "row://1");
        assert_eq!(name(&all, "b", "row://1"), "hermes://b/row://1");
    }

    #[test]
    fn names_that_were_given_and_hermesds_own_make_others_give_way() {
        let all = Renames::among(&[
            offer("a", &["n://1"], &[]),
            offer("b", &["n://1"], &[]),
            offer("c", &["hermes://a/n://1", "hermes://conversations/x"], &[]),
            offer("d", &["hermes://c/hermes://a/n://1"], &[]),
        ]);
        assert_eq!(name(&all, "c", "hermes://a/n://1"), "hermes://c/hermes://a/n://1");
        assert_eq!(name(&all, "c", "hermes://conversations/x"), "hermes://c/hermes://conversations/x");
        assert!(name(&all, "d", "hermes://c/hermes://a/n://1").starts_with("hermes://d/"));
    }

    #[test]
    fn the_servers_own_uri_is_found_again() {
        let (name, raw) = ("hermes://a/row://{id}", "row://{id}");
        assert_eq!(original(name, raw, "hermes://a/row://7"), "row://7");
        assert_eq!(original("ui://a/p/{x}", "ui://p/{x}", "ui://a/p/7"), "ui://p/7");
        assert_eq!(original(raw, raw, "row://7"), "row://7");
        assert_eq!(renamed(name, raw, "row://7").as_deref(), Some("hermes://a/row://7"));
        assert_eq!(renamed("ui://a/p/{x}", "ui://p/{x}", "ui://p/7").as_deref(), Some("ui://a/p/7"));
        assert_eq!(renamed(raw, raw, "row://7"), None);
    }

    proptest! {
        #[test]
        fn names_are_unique_whatever_servers_offer(
            offers in proptest::collection::btree_map(
                "[ab]|a b|A-b",
                proptest::collection::btree_set("(n|ui|hermes)://(a|b|conversations)(/(n|ui)://[ab])?", 0..5), 1..4),
        ) {
            let offers: Vec<Offer> = offers.iter()
                .map(|(server, uris)| offer(server, &uris.iter().map(String::as_str).collect::<Vec<_>>(), &[]))
                .collect();
            let all = Renames::among(&offers);
            let mut seen = BTreeSet::new();
            for offer in &offers {
                for (uri, _) in &offer.resources {
                    let name = name(&all, offer.config.name.as_str(), uri);
                    prop_assert!(!name.starts_with(OWN), "{name}");
                    prop_assert!(seen.insert(name.clone()), "{name} twice");
                }
            }
            let mut turned = offers;
            turned.reverse();
            let again = Renames::among(&turned);
            for offer in &turned {
                for (uri, _) in &offer.resources {
                    let server = offer.config.name.as_str();
                    prop_assert_eq!(name(&all, server, uri), name(&again, server, uri));
                }
            }
        }
    }
}
