//! What may be shown of what a server says: its texts against their pins.
//!
//! Pure: listings, pins and the time come in, a verdict goes out. Covers tools, prompts, resources,
//! templates and the server's instructions. A changed text is hidden under `pin: block`, that item
//! only. The pin that counts stays until a person approves another one, so a change is reported for
//! as long as it lasts.

use super::build::Offer;
use crate::config::PinPolicy;
use crate::jsonrpc::splice::Members;
use crate::names::ServerName;
use crate::policy::pins::{self, Action, Change, Growth, Pinned, Texts};
use crate::store::{FirstUse, Pin, PinChange, PinKey, Pins, UnixMs};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Digest of nothing: the item was withheld from its first sight.
const NEVER_SHOWN: [u8; 32] = [0; 32];
/// `PinKey::name` of the mark that a kind was looked at: its first item later is a new one.
pub const LOOKED_AT: &str = "";
/// Sentences about one kind of one server; what is beyond is counted.
const MAX_SENTENCES: usize = 40;
/// Pinned items of one kind of one server; beyond, what vanished is forgotten.
const MAX_PINNED: usize = 2_000;

/// Which kind of a server's texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextKind {
    /// A tool, by its raw name.
    Tool,
    /// A prompt, by its raw name.
    Prompt,
    /// A resource, by its URI.
    Resource,
    /// A resource template, by its URI template.
    Template,
    /// The server's `instructions`; their name is `instructions`.
    Instructions,
}

impl TextKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Tool, Self::Prompt, Self::Resource, Self::Template, Self::Instructions];

    /// Stable word: `PinKey::kind`, and what sentences call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "template",
            Self::Instructions => "instructions",
        }
    }

    fn growth(self) -> Growth {
        match self {
            Self::Tool | Self::Prompt | Self::Instructions => Growth::Notable,
            Self::Resource | Self::Template => Growth::Ordinary,
        }
    }
}

/// The canonical texts of one server, by kind and name.
pub type Said = BTreeMap<TextKind, BTreeMap<String, pins::Pin>>;

/// What the store says.
#[derive(Debug, Clone, Copy)]
pub enum Stored<'a> {
    /// These pins count.
    Readable(&'a Pins),
    /// Nobody knows what was pinned.
    Unreadable,
}

/// What is to be done about one server's texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Items to hide, with why.
    pub withheld: BTreeMap<(TextKind, String), String>,
    /// Sentences for a person.
    pub warnings: Vec<String>,
    /// Pins to store.
    pub put: Vec<(PinKey, Pin)>,
    /// Pins of items that are gone or have another name now.
    pub forget: Vec<PinKey>,
}

impl Verdict {
    /// Why the item is hidden; `None`: it is shown. Instructions are called `instructions`.
    pub fn withheld(&self, kind: TextKind, name: &str) -> Option<&str> {
        if self.withheld.is_empty() {
            return None;
        }
        self.withheld.get(&(kind, name.to_owned())).map(String::as_str)
    }
}

/// The canonical text of every item; of two with the same name the first counts, as it does for
/// clients.
pub fn said(offer: &Offer) -> Said {
    let mut all = Said::new();
    for (kind, items) in offer.items() {
        let of_kind = all.entry(kind).or_default();
        for (name, json) in items {
            of_kind.entry(name.clone()).or_insert_with(|| pin(kind, name, json));
        }
    }
    if let Some(text) = &offer.instructions {
        let name = TextKind::Instructions.word();
        let texts = Texts { name, description: Some(text), ..Texts::default() };
        all.entry(TextKind::Instructions).or_default().insert(name.to_owned(), pins::pin(&texts));
    }
    all
}

fn pin(kind: TextKind, name: &str, json: &RawValue) -> pins::Pin {
    let members = Members::parse(json).unwrap_or_default();
    let (label, title) = (members.text("name"), members.text("title"));
    let description = members.text("description");
    let mut texts = Texts {
        name,
        title: title.as_deref(),
        description: description.as_deref(),
        annotations: members.get("annotations"),
        ..Texts::default()
    };
    match kind {
        TextKind::Tool => {
            texts.input_schema = members.get("inputSchema");
            texts.output_schema = members.get("outputSchema");
        }
        TextKind::Prompt => texts.arguments = members.get("arguments"),
        TextKind::Resource | TextKind::Template => texts.label = label.as_deref(),
        TextKind::Instructions => {}
    }
    pins::pin(&texts)
}

/// Decides about pins of one server.
pub fn vet(offer: &Offer, said: &Said, stored: Stored<'_>, now: UnixMs) -> Verdict {
    let mut verdict = Verdict::default();
    let policy = offer.config.pin;
    if policy == PinPolicy::Off {
        return verdict;
    }
    let server = &offer.config.name;
    let (known, lost) = match stored {
        Stored::Readable(pins) => (Some(of_server(pins, server)), pins.first_use != FirstUse::Trusted),
        Stored::Unreadable => (None, false),
    };
    let (nothing_said, nothing_known) = (BTreeMap::new(), BTreeMap::new());
    for kind in TextKind::ALL.into_iter().filter(|kind| !offer.unread.contains(kind)) {
        let known = known.as_ref().map(|known| known.get(kind.word()).unwrap_or(&nothing_known));
        let history = match known.map(BTreeMap::is_empty) {
            None => History::Unreadable,
            // After a loss the first sight is not the first; only `block` has to care.
            Some(true) if lost && policy == PinPolicy::Block => History::Unreadable,
            Some(true) => History::Never,
            Some(false) => History::Known,
        };
        let of_kind = OfKind { kind, server, known, history, now };
        of_kind.vet(said.get(&kind).unwrap_or(&nothing_said), policy, &mut verdict);
    }
    verdict
}

/// What is known of one kind of a server's texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum History {
    Never,
    Known,
    Unreadable,
}

/// One kind of texts of one server.
struct OfKind<'a> {
    kind: TextKind,
    server: &'a ServerName,
    /// `None`: the store cannot be read.
    known: Option<&'a BTreeMap<&'a str, &'a Pin>>,
    history: History,
    now: UnixMs,
}

impl OfKind<'_> {
    fn vet(&self, said: &BTreeMap<String, pins::Pin>, policy: PinPolicy, verdict: &mut Verdict) {
        let pin = |pin: &Pin| pins::Pin { digest: pin.digest, text: pin.text.clone() };
        let counted: BTreeMap<String, pins::Pin> = self
            .known
            .into_iter()
            .flatten()
            .filter(|(name, _)| **name != LOOKED_AT)
            .map(|(name, stored)| ((*name).to_owned(), pin(stored)))
            .collect();
        let old = match self.history {
            History::Never => Pinned::Never,
            History::Known => Pinned::Known(&counted),
            History::Unreadable => Pinned::Unreadable,
        };
        let mut sentences = Vec::new();
        for decision in pins::decide(old, said, policy, self.kind.growth()) {
            let new = &said[&decision.name];
            sentences.extend(self.apply(decision, new, verdict));
        }
        self.say(sentences, policy, verdict);
        if said.is_empty() && self.history == History::Never {
            let mark = pins::Pin { digest: NEVER_SHOWN, text: String::new() };
            verdict.put.push((self.key(LOOKED_AT), fresh(&mark, self.now)));
        }
        if counted.len() > MAX_PINNED {
            let gone = counted.keys().filter(|name| !said.contains_key(*name));
            verdict.forget.extend(gone.map(|name| self.key(name)));
        }
    }

    /// Tells a person, in as many sentences as a person reads.
    fn say(&self, mut sentences: Vec<String>, policy: PinPolicy, verdict: &mut Verdict) {
        let (count, kind) = (sentences.len(), self.kind.word());
        if count > 1 && self.history == History::Unreadable {
            let withheld = if policy == PinPolicy::Block { ": withheld (pin: block); " } else { "; " };
            let what = format!("nobody knows what {count} texts of kind `{kind}` said before");
            verdict.warnings.push(format!("{what}{withheld}{}", self.hint()));
            return;
        }
        sentences.truncate(MAX_SENTENCES);
        verdict.warnings.append(&mut sentences);
        if count > MAX_SENTENCES {
            let more = count - MAX_SENTENCES;
            let server = self.server;
            let text =
                format!("so do {more} more texts of kind `{kind}`; see `hermesctl pins diff {server}`");
            verdict.warnings.push(text);
        }
    }

    /// What a person can do about a withheld text.
    fn hint(&self) -> String {
        let server = self.server;
        match self.known {
            Some(_) => format!("`hermesctl pins diff {server}`, then `hermesctl pins approve {server}`"),
            None => "hermesd.db cannot be read, so nobody knows what was approved".to_owned(),
        }
    }

    /// Does what was decided about one item; a sentence where a person should know.
    fn apply(&self, decision: pins::Decision, new: &pins::Pin, verdict: &mut Verdict) -> Option<String> {
        let server = self.server;
        let key = self.key(&decision.name);
        let stored = self.known.and_then(|known| known.get(decision.name.as_str()).copied());
        let what = sentence(self.kind, &decision.name, &decision.change);
        match decision.action {
            Action::Show => {
                verdict.put.extend(unchanged(key, stored));
                None
            }
            Action::ShowAndPin => {
                self.forget_renamed(&decision.change, verdict);
                verdict.put.push((key, fresh(new, self.now)));
                None
            }
            Action::Report => Some(what),
            Action::ReportAndPin => {
                self.forget_renamed(&decision.change, verdict);
                verdict.put.extend(match stored {
                    Some(stored) => changed(key, stored, new, self.now),
                    None => Some((key, fresh(new, self.now))),
                });
                Some(format!("{what}; see `hermesctl pins diff {server}`"))
            }
            Action::Withhold => {
                if self.known.is_some() {
                    let never = Pin { digest: NEVER_SHOWN, text: String::new(), ..fresh(new, self.now) };
                    verdict.put.extend(changed(key, stored.unwrap_or(&never), new, self.now));
                }
                let sentence = format!("{what}: withheld (pin: block); {}", self.hint());
                verdict.withheld.insert((self.kind, decision.name), what);
                Some(sentence)
            }
        }
    }

    fn forget_renamed(&self, change: &Change, verdict: &mut Verdict) {
        if let Change::Renamed { from } = change {
            verdict.forget.push(self.key(from));
        }
    }

    fn key(&self, name: &str) -> PinKey {
        PinKey { server: self.server.clone(), kind: self.kind.word().to_owned(), name: name.to_owned() }
    }
}

fn of_server<'a>(pins: &'a Pins, server: &ServerName) -> BTreeMap<&'a str, BTreeMap<&'a str, &'a Pin>> {
    let mut kinds: BTreeMap<&str, BTreeMap<&str, &Pin>> = BTreeMap::new();
    for (key, pin) in pins.by_key.iter().filter(|(key, _)| key.server == *server) {
        kinds.entry(&key.kind).or_default().insert(&key.name, pin);
    }
    kinds
}

fn fresh(new: &pins::Pin, now: UnixMs) -> Pin {
    Pin { digest: new.digest, text: new.text.clone(), first_seen: now, approved: None, change: None }
}

/// The stored pin with its change, unless it has exactly this one already.
fn changed(key: PinKey, stored: &Pin, new: &pins::Pin, now: UnixMs) -> Option<(PinKey, Pin)> {
    if stored.change.as_ref().is_some_and(|change| change.digest == new.digest) {
        return None;
    }
    let change = PinChange { digest: new.digest, text: new.text.clone(), seen: now };
    Some((key, Pin { change: Some(change), ..stored.clone() }))
}

/// The stored pin without a change that was taken back.
fn unchanged(key: PinKey, stored: Option<&Pin>) -> Option<(PinKey, Pin)> {
    let stored = stored.filter(|stored| stored.change.is_some())?;
    Some((key, Pin { change: None, ..stored.clone() }))
}

fn sentence(kind: TextKind, name: &str, change: &Change) -> String {
    let what = match kind {
        // There is only one such text.
        TextKind::Instructions => "server text `instructions`".to_owned(),
        TextKind::Tool | TextKind::Prompt | TextKind::Resource | TextKind::Template => {
            format!("{} `{name}`", kind.word())
        }
    };
    match change {
        Change::Same | Change::First => format!("{what} is as it was"),
        Change::New => format!("{what} is new"),
        Change::Changed { parts } if parts.is_empty() => format!("{what} was never approved"),
        Change::Changed { parts } => {
            format!("{what} says something else than before ({})", parts.join(", "))
        }
        Change::Renamed { from } => format!("{what} was called `{from}` before"),
        Change::Unknown => format!("nobody knows what {what} said before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerConfig, StdioConfig, TransportConfig};
    use std::sync::Arc;

    fn offer(policy: PinPolicy, tools: &[(&str, &str)]) -> Offer {
        let stdio = TransportConfig::Stdio(StdioConfig::command("x"));
        let mut config = ServerConfig::with_transport(ServerName::new("s"), stdio);
        config.pin = policy;
        let item = |(name, description): &(&str, &str)| {
            let json = serde_json::json!({ "name": name, "description": description });
            ((*name).to_owned(), RawValue::from_string(json.to_string()).unwrap())
        };
        Offer::of_tools(Arc::new(config), tools.iter().map(item).collect())
    }

    fn judge(offer: &Offer, pins: &Pins) -> Verdict {
        vet(offer, &said(offer), Stored::Readable(pins), UnixMs(5))
    }

    fn nothing() -> Pins {
        Pins { by_key: BTreeMap::new(), first_use: FirstUse::Trusted }
    }

    fn seen(tools: &[(&str, &str)]) -> Pins {
        let first = judge(&offer(PinPolicy::Warn, tools), &nothing());
        assert!(first.warnings.is_empty() && first.withheld.is_empty());
        Pins { by_key: first.put.into_iter().collect(), ..nothing() }
    }

    #[test]
    fn a_change_is_reported_until_it_is_approved_and_hides_only_under_block() {
        let mut pins = seen(&[("a", "reads"), ("b", "writes")]);
        for policy in [PinPolicy::Warn, PinPolicy::Block] {
            let now = offer(policy, &[("a", "reads"), ("b", "sends")]);
            let verdict = judge(&now, &pins);
            assert_eq!(verdict.warnings.len(), 1, "{verdict:?}");
            assert!(verdict.warnings[0].contains("`b`") && verdict.warnings[0].contains("description"));
            let withheld: Vec<&str> = verdict.withheld.keys().map(|(_, name)| name.as_str()).collect();
            assert_eq!(withheld, if policy == PinPolicy::Block { vec!["b"] } else { vec![] });
            pins.by_key.extend(verdict.put);
            // The second look finds the change stored and reports it all the same.
            let again = judge(&now, &pins);
            assert!(again.put.is_empty());
            assert_eq!(again.warnings, verdict.warnings);
        }
        assert_eq!(judge(&offer(PinPolicy::Off, &[("b", "sends")]), &pins), Verdict::default());
        // The old text again: the change is forgotten.
        let back = judge(&offer(PinPolicy::Block, &[("a", "reads"), ("b", "writes")]), &pins);
        assert!(back.withheld.is_empty() && back.put.len() == 1 && back.put[0].1.change.is_none());
    }

    #[test]
    fn new_tools_of_a_known_server_wait_under_block_and_can_be_approved() {
        let mut pins = seen(&[("a", "reads")]);
        let now = offer(PinPolicy::Block, &[("a", "reads"), ("c", "new")]);
        let verdict = judge(&now, &pins);
        assert!(verdict.withheld(TextKind::Tool, "c").is_some());
        for (key, mut pin) in verdict.put {
            let change = pin.change.take().unwrap();
            (pin.digest, pin.text) = (change.digest, change.text);
            pins.by_key.insert(key, pin);
        }
        assert!(judge(&now, &pins).withheld.is_empty());
    }

    #[test]
    fn an_unreadable_store_and_lost_pins_fail_closed_under_block() {
        for (policy, hidden) in [(PinPolicy::Block, 1), (PinPolicy::Warn, 0)] {
            let now = offer(policy, &[("a", "reads")]);
            let verdict = vet(&now, &said(&now), Stored::Unreadable, UnixMs(5));
            assert_eq!((verdict.withheld.len(), verdict.warnings.len(), verdict.put.len()), (hidden, 1, 0));
            let lost = Pins { first_use: FirstUse::LostAt(UnixMs(1)), ..nothing() };
            assert_eq!(judge(&now, &lost).withheld.len(), hidden);
        }
    }

    /// An offer with one item of every kind, each saying `text`.
    fn everything(policy: PinPolicy, text: &str) -> Offer {
        let mut all = offer(policy, &[("same", text)]);
        let json = serde_json::json!({ "name": "same", "description": text });
        let item = |name: &str| (name.to_owned(), RawValue::from_string(json.to_string()).unwrap());
        (all.prompts, all.resources, all.templates) =
            (vec![item("same")], vec![item("file:///same")], vec![item("file:///{x}")]);
        all.instructions = Some(text.to_owned());
        all
    }

    #[test]
    fn texts_of_every_kind_are_pinned_each_for_itself() {
        let first = judge(&everything(PinPolicy::Warn, "a"), &nothing());
        assert_eq!(first.put.len(), TextKind::ALL.len());
        let pins = Pins { by_key: first.put.into_iter().collect(), ..nothing() };
        assert_eq!(judge(&everything(PinPolicy::Block, "a"), &pins), Verdict::default());
        let now = judge(&everything(PinPolicy::Block, "b"), &pins);
        let kinds: Vec<TextKind> = now.withheld.keys().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, TextKind::ALL);
        assert_eq!(judge(&everything(PinPolicy::Warn, "b"), &pins).warnings.len(), TextKind::ALL.len());
        // One changed text hides only itself.
        let mut one = everything(PinPolicy::Block, "a");
        one.instructions = Some("b".into());
        let now = judge(&one, &pins);
        assert_eq!(now.withheld(TextKind::Instructions, "instructions").map(str::len), Some(72));
        assert_eq!(now.withheld.len(), 1);
    }

    #[test]
    fn a_known_servers_first_prompt_is_new_and_its_new_data_is_not_news() {
        let pins = seen(&[("a", "reads")]);
        let marks = pins.by_key.keys().filter(|key| key.name == LOOKED_AT).count();
        assert_eq!(marks, TextKind::ALL.len() - 1);
        let mut now = everything(PinPolicy::Warn, "x");
        now.tools = offer(PinPolicy::Warn, &[("a", "reads")]).tools;
        let verdict = judge(&now, &pins);
        assert_eq!(verdict.warnings.len(), 2, "a prompt and instructions: {:?}", verdict.warnings);
        assert_eq!(verdict.put.len(), 4);
    }

    #[test]
    fn a_list_that_comes_later_is_seen_for_the_first_time_then() {
        let mut start = offer(PinPolicy::Block, &[("a", "reads")]);
        start.unread = [TextKind::Prompt, TextKind::Resource, TextKind::Template].into();
        let first = judge(&start, &nothing());
        let pins = Pins { by_key: first.put.into_iter().collect(), ..nothing() };
        let mut whole = everything(PinPolicy::Block, "x");
        whole.tools.clone_from(&start.tools);
        let verdict = judge(&whole, &pins);
        let withheld: Vec<TextKind> = verdict.withheld.keys().map(|(kind, _)| *kind).collect();
        assert_eq!(withheld, [TextKind::Instructions], "instructions came with the tools, the first time");
        assert_eq!(verdict.put.len(), 4);
    }

    #[test]
    fn a_person_reads_a_few_sentences_and_a_number() {
        let many: Vec<(String, String)> = (0..60).map(|at| (format!("t{at}"), "a".to_owned())).collect();
        let offer = |policy, text: &str| {
            let tools: Vec<(&str, &str)> = many.iter().map(|(name, _)| (name.as_str(), text)).collect();
            offer(policy, &tools)
        };
        let pins = Pins {
            by_key: judge(&offer(PinPolicy::Warn, "a"), &nothing()).put.into_iter().collect(),
            ..nothing()
        };
        let changed = judge(&offer(PinPolicy::Block, "b"), &pins);
        assert_eq!((changed.withheld.len(), changed.warnings.len()), (60, MAX_SENTENCES + 1));
        let lost = vet(
            &offer(PinPolicy::Block, "b"),
            &said(&offer(PinPolicy::Block, "b")),
            Stored::Unreadable,
            UnixMs(1),
        );
        assert_eq!((lost.withheld.len(), lost.warnings.len()), (60, 1), "{:?}", lost.warnings);
    }

    #[test]
    fn what_vanished_is_forgotten_only_where_there_is_very_much_of_it() {
        let with = |range: std::ops::Range<usize>| {
            let mut all = offer(PinPolicy::Warn, &[]);
            let json = RawValue::from_string("{}".to_owned()).unwrap();
            all.resources = range.map(|at| (format!("file:///{at}"), json.clone())).collect();
            all
        };
        let first = judge(&with(0..MAX_PINNED + 5), &nothing());
        let mut pins = Pins { by_key: first.put.into_iter().collect(), ..nothing() };
        let fewer = judge(&with(3..MAX_PINNED), &pins);
        assert_eq!(fewer.forget.len(), 8);
        pins.by_key.retain(|key, _| !fewer.forget.contains(key));
        assert!(judge(&with(100..200), &pins).forget.is_empty());
    }
}
