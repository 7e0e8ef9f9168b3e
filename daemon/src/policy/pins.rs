//! Pins: what a model-visible item said when it was first seen, and what a change means.
//!
//! Pure. Promise: the same item has the same digest however its JSON is spaced, ordered or escaped;
//! any other change has another. Under `block` a changed, renamed or new item is withheld until a
//! person approves it, the others are not touched; an unreadable store withholds everything. A
//! vanished item keeps its pin, so that going away and coming back changed is seen.

use crate::config::PinPolicy;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Whatever a server says about one item; absent parts are `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Texts<'a> {
    /// Raw name.
    pub name: &'a str,
    /// The `name` of an item that is known by another text (a resource's, which is known by its URI).
    pub label: Option<&'a str>,
    /// `title`
    pub title: Option<&'a str>,
    /// `description`, or the text of instructions.
    pub description: Option<&'a str>,
    /// `arguments` of a prompt.
    pub arguments: Option<&'a RawValue>,
    /// `inputSchema`
    pub input_schema: Option<&'a RawValue>,
    /// `outputSchema`
    pub output_schema: Option<&'a RawValue>,
    /// `annotations`
    pub annotations: Option<&'a RawValue>,
}

/// One pinned item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// SHA-256 of `text`.
    pub digest: [u8; 32],
    /// The canonical text, one line a part, for a person to compare.
    pub text: String,
}

/// What is known about a server's items.
#[derive(Debug, Clone, Copy)]
pub enum Pinned<'a> {
    /// The server was never seen: everything is taken as it is.
    Never,
    /// Pins by raw name.
    Known(&'a BTreeMap<String, Pin>),
    /// The store cannot be read, or pins were lost.
    Unreadable,
}

/// What it means that a server offers more than it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// A person wants to know: tools and prompts are what a server is.
    Notable,
    /// It is what such a server does: resources are its data, which come and go. Only `block` cares.
    Ordinary,
}

/// How an item differs from what is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Not at all.
    Same,
    /// First listing of this server.
    First,
    /// The server offers it since.
    New,
    /// These parts differ (`title`, `description`, …).
    Changed {
        /// Names of the parts.
        parts: Vec<&'static str>,
    },
    /// All but the name is that of an item that is gone.
    Renamed {
        /// Its name before.
        from: String,
    },
    /// Nobody knows what was pinned.
    Unknown,
}

/// What to do with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Show it; nothing to store.
    Show,
    /// Show it and store its pin.
    ShowAndPin,
    /// Show it, store its pin, and tell a person.
    ReportAndPin,
    /// Show it and tell a person; nothing can be stored.
    Report,
    /// Hide it until a person approves; the old pin stays.
    Withhold,
}

/// The decision about one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Raw name.
    pub name: String,
    /// What is different.
    pub change: Change,
    /// What to do.
    pub action: Action,
}

/// Pins an item as it is now.
pub fn pin(texts: &Texts<'_>) -> Pin {
    let mut text = format!("name {}\n", Value::from(texts.name));
    let proses = [("label", texts.label), ("title", texts.title), ("description", texts.description)];
    for (part, value) in proses {
        if let Some(value) = value {
            line(&mut text, part, &Value::from(value).to_string());
        }
    }
    let schemas = [
        ("arguments", texts.arguments),
        ("inputSchema", texts.input_schema),
        ("outputSchema", texts.output_schema),
        ("annotations", texts.annotations),
    ];
    for (part, raw) in schemas {
        if let Some(raw) = raw {
            line(&mut text, part, &canonical(raw));
        }
    }
    Pin { digest: Sha256::digest(text.as_bytes()).into(), text }
}

/// Decides about every item of a listing, in the order of names.
pub fn decide(
    old: Pinned<'_>,
    new: &BTreeMap<String, Pin>,
    policy: PinPolicy,
    growth: Growth,
) -> Vec<Decision> {
    let mut changes: Vec<(String, Change)> = match old {
        Pinned::Never => new.keys().map(|name| (name.clone(), Change::First)).collect(),
        Pinned::Unreadable => new.keys().map(|name| (name.clone(), Change::Unknown)).collect(),
        Pinned::Known(pins) => {
            new.iter().map(|(name, pin)| (name.clone(), compare(pins.get(name), pin))).collect()
        }
    };
    if let Pinned::Known(pins) = old {
        renames(pins, new, &mut changes);
    }
    let decision = |(name, change): (String, Change)| {
        let action = action(&change, policy, growth);
        Decision { name, change, action }
    };
    changes.into_iter().map(decision).collect()
}

fn action(change: &Change, policy: PinPolicy, growth: Growth) -> Action {
    match (policy, change) {
        (PinPolicy::Off, _) | (_, Change::Same) => Action::Show,
        (PinPolicy::Warn | PinPolicy::Block, Change::First) => Action::ShowAndPin,
        (PinPolicy::Warn, Change::New | Change::Renamed { .. }) if growth == Growth::Ordinary => {
            Action::ShowAndPin
        }
        (PinPolicy::Warn, Change::New | Change::Changed { .. } | Change::Renamed { .. }) => {
            Action::ReportAndPin
        }
        (PinPolicy::Warn, Change::Unknown) => Action::Report,
        (
            PinPolicy::Block,
            Change::New | Change::Changed { .. } | Change::Renamed { .. } | Change::Unknown,
        ) => Action::Withhold,
    }
}

fn compare(old: Option<&Pin>, new: &Pin) -> Change {
    match old {
        None => Change::New,
        Some(old) if old.digest == new.digest => Change::Same,
        // Withheld from its first sight: there is no text before.
        Some(old) if old.text.is_empty() => Change::Changed { parts: Vec::new() },
        Some(old) => Change::Changed { parts: differing(&old.text, &new.text) },
    }
}

/// Gives new items the names of vanished ones that said the same; each vanished item once, in the
/// order of names.
fn renames(old: &BTreeMap<String, Pin>, new: &BTreeMap<String, Pin>, changes: &mut [(String, Change)]) {
    let mut gone: Vec<(&String, &str)> = old
        .iter()
        .filter(|(name, _)| !new.contains_key(*name))
        .map(|(name, pin)| (name, nameless(&pin.text)))
        .collect();
    for (name, change) in changes.iter_mut().filter(|(_, change)| *change == Change::New) {
        let says = nameless(&new[name.as_str()].text);
        // Two items that say nothing are not the same item.
        if let Some(at) = gone.iter().position(|(_, said)| !says.is_empty() && *said == says) {
            *change = Change::Renamed { from: gone.remove(at).0.clone() };
        }
    }
}

/// Everything after the name's line.
fn nameless(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

/// Parts whose lines differ.
fn differing(old: &str, new: &str) -> Vec<&'static str> {
    const PARTS: [&str; 8] =
        ["name", "label", "title", "description", "arguments", "inputSchema", "outputSchema", "annotations"];
    let part = |text: &'_ str, name: &str| -> Option<String> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
    };
    PARTS.into_iter().filter(|name| part(old, name) != part(new, name)).collect()
}

fn line(text: &mut String, part: &str, value: &str) {
    // Writing to a String cannot fail. JSON has no bare line ends, so a part is one line.
    let _ = writeln!(text, "{part} {value}");
}

/// JSON with sorted names, without white space, numbers as they are written.
fn canonical(raw: &RawValue) -> String {
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(mut value) => {
            value.sort_all_objects();
            value.to_string()
        }
        // Too deep to read: the bytes themselves count, on one line.
        Err(_) => raw.get().replace(['\n', '\r'], " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn named(name: &str, description: &str) -> (String, Pin) {
        (name.to_owned(), pin(&Texts { name, description: Some(description), ..Texts::default() }))
    }

    fn listing(items: &[(&str, &str)]) -> BTreeMap<String, Pin> {
        items.iter().map(|(name, description)| named(name, description)).collect()
    }

    fn actions(old: Pinned<'_>, new: &BTreeMap<String, Pin>, policy: PinPolicy) -> Vec<Action> {
        decide(old, new, policy, Growth::Notable).into_iter().map(|decision| decision.action).collect()
    }

    #[test]
    fn spacing_order_and_escapes_do_not_change_a_pin_and_everything_else_does() {
        let (a, b) = (raw(r#"{"b":1.0,"a":["x"]}"#), raw("{ \"a\" : [\"\\u0078\"],\n \"b\" : 1.0 }"));
        let texts = Texts {
            name: "t",
            title: Some("T"),
            description: Some("d"),
            input_schema: Some(&a),
            output_schema: None,
            annotations: Some(&a),
            ..Texts::default()
        };
        let same = Texts { input_schema: Some(&b), annotations: Some(&b), ..texts };
        assert_eq!(pin(&texts), pin(&same));
        let c = raw(r#"{"b":1,"a":["x"]}"#);
        for other in [
            Texts { name: "u", ..texts },
            Texts { title: None, ..texts },
            Texts { title: Some("d"), description: Some("T"), ..texts },
            Texts { description: Some("d "), ..texts },
            Texts { input_schema: Some(&c), ..texts },
            Texts { output_schema: Some(&a), ..texts },
            Texts { annotations: None, ..texts },
            Texts { label: Some("t"), ..texts },
            Texts { arguments: Some(&a), ..texts },
        ] {
            assert_ne!(pin(&texts).digest, pin(&other).digest, "{other:?}");
        }
    }

    #[test]
    fn a_part_cannot_pose_as_another() {
        let forged = Texts { name: "t", title: Some("x\ndescription \"y\""), ..Texts::default() };
        let real = Texts { name: "t", title: Some("x"), description: Some("y"), ..Texts::default() };
        assert_ne!(pin(&forged).digest, pin(&real).digest);
        assert_eq!(pin(&forged).text.lines().count(), 2);
    }

    #[test]
    fn the_first_listing_is_taken_and_later_changes_follow_the_policy() {
        let old = listing(&[("a", "1"), ("b", "2")]);
        let new = listing(&[("a", "1"), ("b", "changed"), ("c", "3")]);
        assert_eq!(actions(Pinned::Never, &new, PinPolicy::Block), [Action::ShowAndPin; 3]);
        assert_eq!(actions(Pinned::Known(&old), &new, PinPolicy::Off), [Action::Show; 3]);
        assert_eq!(
            actions(Pinned::Known(&old), &new, PinPolicy::Warn),
            [Action::Show, Action::ReportAndPin, Action::ReportAndPin]
        );
        let block = decide(Pinned::Known(&old), &new, PinPolicy::Block, Growth::Notable);
        assert_eq!(
            block.iter().map(|one| one.action).collect::<Vec<_>>(),
            [Action::Show, Action::Withhold, Action::Withhold]
        );
        assert_eq!(block[1].change, Change::Changed { parts: vec!["description"] });
        assert_eq!(block[2].change, Change::New);
    }

    #[test]
    fn data_that_comes_and_goes_is_news_only_under_block() {
        let old = listing(&[("a", "1"), ("b", "2")]);
        let new = listing(&[("a", "changed"), ("c", "3"), ("d", "2")]);
        let actions = |policy| -> Vec<Action> {
            let all = decide(Pinned::Known(&old), &new, policy, Growth::Ordinary);
            all.into_iter().map(|decision| decision.action).collect()
        };
        assert_eq!(actions(PinPolicy::Warn), [Action::ReportAndPin, Action::ShowAndPin, Action::ShowAndPin]);
        assert_eq!(actions(PinPolicy::Block), [Action::Withhold; 3]);
    }

    #[test]
    fn a_rename_is_recognised_once_for_each_item_that_is_gone() {
        let old = listing(&[("a", "same"), ("k", "kept")]);
        let new = listing(&[("b", "same"), ("c", "same"), ("k", "kept")]);
        let got = decide(Pinned::Known(&old), &new, PinPolicy::Block, Growth::Notable);
        assert_eq!(got[0].change, Change::Renamed { from: "a".to_owned() });
        assert_eq!(
            (&got[1].change, got[0].action, got[2].action),
            (&Change::New, Action::Withhold, Action::Show)
        );
    }

    #[test]
    fn an_unreadable_store_fails_closed_under_block_only() {
        let new = listing(&[("a", "1")]);
        assert_eq!(actions(Pinned::Unreadable, &new, PinPolicy::Block), [Action::Withhold]);
        assert_eq!(actions(Pinned::Unreadable, &new, PinPolicy::Warn), [Action::Report]);
        assert_eq!(actions(Pinned::Unreadable, &new, PinPolicy::Off), [Action::Show]);
    }

    proptest! {
        #[test]
        fn under_block_only_what_was_pinned_as_it_is_shows(
            old in proptest::collection::btree_map("[a-d]", "[xyz]", 0..4),
            new in proptest::collection::btree_map("[a-d]", "[xyz]", 0..4),
        ) {
            let make = |items: &BTreeMap<String, String>| -> BTreeMap<String, Pin> {
                items.iter().map(|(name, description)| named(name, description)).collect()
            };
            for decision in decide(Pinned::Known(&make(&old)), &make(&new), PinPolicy::Block, Growth::Ordinary) {
                let unchanged = old.get(&decision.name) == new.get(&decision.name);
                prop_assert_eq!(decision.action == Action::Show, unchanged);
                prop_assert_eq!(decision.action == Action::Withhold, !unchanged);
            }
        }
    }
}
