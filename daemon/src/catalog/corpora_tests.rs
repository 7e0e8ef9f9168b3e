//! The scan and the pins against what published servers really say (`tests/corpora/benign`).

use super::build::{Items, Offer};
use super::look;
use super::vet::{self, Stored, TextKind};
use crate::config::{PinPolicy, ServerConfig, StdioConfig, TransportConfig};
use crate::names::ServerName;
use crate::policy::scan;
use crate::store::{FirstUse, Pins, UnixMs};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The items of one answer, each by the member that names it.
fn items(answer: &Value, member: &str, key: &str) -> Items {
    let all = answer["result"][member].as_array().map(Vec::as_slice).unwrap_or_default();
    let item = |item: &Value| {
        (item[key].as_str().unwrap().to_owned(), RawValue::from_string(item.to_string()).unwrap())
    };
    all.iter().map(item).collect()
}

fn offer(name: &str, recorded: &str) -> Offer {
    let mut config = ServerConfig::with_transport(
        ServerName::new(name),
        TransportConfig::Stdio(StdioConfig::command("x")),
    );
    config.pin = PinPolicy::Block;
    let mut offer = Offer::of_tools(Arc::new(config), Vec::new());
    for line in recorded.lines().skip(1) {
        let (method, answer) = line.split_once(' ').unwrap();
        let answer: Value = serde_json::from_str(answer).unwrap();
        match method {
            "initialize" => {
                offer.instructions = answer["result"]["instructions"].as_str().map(str::to_owned);
            }
            "tools/list" => offer.tools.extend(items(&answer, "tools", "name")),
            "prompts/list" => offer.prompts.extend(items(&answer, "prompts", "name")),
            "resources/list" => offer.resources.extend(items(&answer, "resources", "uri")),
            "resources/templates/list" => {
                offer.templates.extend(items(&answer, "resourceTemplates", "uriTemplate"));
            }
            other => panic!("{name}: {other}"),
        }
    }
    offer
}

/// All recorded servers, as if one person ran them all.
fn recorded() -> Vec<Offer> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpora/benign");
    let mut offers = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|end| end == "jsonl") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            offers.push(offer(name, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    offers.sort_by(|a, b| a.config.name.cmp(&b.config.name));
    offers
}

fn nothing_pinned() -> Pins {
    Pins { by_key: BTreeMap::new(), first_use: FirstUse::Trusted }
}

#[test]
fn texts_of_published_servers_give_next_to_no_warnings() {
    let offers = recorded();
    let (mut texts, mut flagged) = (0_usize, Vec::new());
    for offer in &offers {
        let foreign = look::foreign(&offer.config.name, &offers);
        let mut look = |kind: &str, name: &str, place: &str, text: &str| {
            // Names and enumerated values would only make the share look better.
            texts += usize::from(text.len() >= 24 && text.contains(' '));
            for finding in scan::scan(text, &foreign) {
                let server = &offer.config.name;
                flagged.push(format!(
                    "{server} {kind} {name} {place}: {} {}",
                    finding.kind.word(),
                    finding.excerpt
                ));
            }
        };
        for (kind, list) in offer.items() {
            for (name, json) in list {
                for (place, text) in look::texts(name, json) {
                    look(kind.word(), name, &place, &text);
                }
            }
        }
        if let Some(text) = &offer.instructions {
            look(TextKind::Instructions.word(), "", "", text);
        }
    }
    println!("benign: {} of {texts} texts of {} servers flagged: {flagged:#?}", flagged.len(), offers.len());
    assert!(offers.len() >= 15 && texts > 2_000, "the corpus is there");
    assert!(flagged.len() * 50 <= texts, "{flagged:#?}");
}

#[test]
fn no_text_of_a_published_server_is_ever_blocked() {
    for offer in recorded() {
        let said = vet::said(&offer);
        let first = vet::vet(&offer, &said, Stored::Readable(&nothing_pinned()), UnixMs(1));
        assert!(first.withheld.is_empty() && first.warnings.is_empty(), "{first:?}");
        let pins = Pins { by_key: first.put.into_iter().collect(), ..nothing_pinned() };
        let again = vet::vet(&offer, &vet::said(&offer), Stored::Readable(&pins), UnixMs(2));
        assert_eq!(again, vet::Verdict::default(), "{}", offer.config.name);
    }
}
