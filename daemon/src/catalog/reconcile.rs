//! The task that turns listings into the published catalogue.
//!
//! Owner of the catalogue and of the pins: the only place that makes one and writes the others.
//! Wakes when the set of servers, one of their listings, the configuration, or the pins change; works
//! on the blocking pool. A panic here ends the daemon (ARCHITECTURE.md).

use super::build::{self, Builtin, Offer};
use super::look;
use super::snapshot::Catalog;
use super::vet::{self, Said, Stored, TextKind};
use crate::config::Config;
use crate::guard::heap;
use crate::names::ServerName;
use crate::policy::scan::{self, Foreign};
use crate::server::Servers;
use crate::server::handle::ServerHandle;
use crate::server::listing::{Item, ListKind, Listing};
use crate::store::{PinKey, Pins, Store, UnixMs};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a catalogue waits for the pins; then they count as unreadable until the next try.
const PINS_LIMIT: Duration = Duration::from_secs(2);
/// When unreadable pins are tried again.
const PINS_AGAIN: Duration = Duration::from_secs(10);

/// How long the phrases of the scan stay in memory after a text was looked through: servers that start together
/// need them once, and to compile them anew costs less than to keep them.
const PHRASES_STAY: Duration = Duration::from_millis(500);

/// Makes and publishes the catalogue.
#[derive(Debug)]
pub struct Reconcile {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// The servers that are to be run.
    pub servers: watch::Receiver<Arc<Servers>>,
    /// The conversation tools on offer; empty where they are off.
    pub builtins: watch::Receiver<Arc<Vec<Builtin>>>,
    /// Questions whether this task still works; each is answered at once.
    pub beats: mpsc::Receiver<oneshot::Sender<()>>,
    /// Where the catalogue goes.
    pub publish: watch::Sender<Arc<Catalog>>,
    /// Where pins are kept.
    pub store: Store,
    /// Grows when a person approved pins.
    pub approved: watch::Receiver<u64>,
}

/// What was worked out from a listing, kept as long as the listing is.
struct Known {
    listing: Arc<Listing>,
    said: Said,
    /// What the scan finds in its own texts.
    phrases: Vec<String>,
    /// The names that are foreign to it, and where it uses them; looked for again when they change.
    foreign: Foreign,
    names: Vec<String>,
}

impl Reconcile {
    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut revision = 0;
        let mut known: HashMap<ServerName, Known> = HashMap::new();
        let mut pins = None;
        let mut phrases = None;
        let mut told = BTreeSet::new();
        loop {
            let servers = self.servers.borrow_and_update().clone();
            let config = self.config.borrow_and_update().clone();
            let builtins = self.builtins.borrow_and_update().clone();
            if self.approved.has_changed().unwrap_or(false) {
                self.approved.mark_unchanged();
                pins = None;
            }
            if pins.is_none() {
                pins = self.load_pins().await;
            }
            let mut listings = FuturesUnordered::new();
            let mut offers = Vec::with_capacity(servers.len());
            let mut current = Vec::with_capacity(servers.len());
            for handle in servers.values() {
                let mut listing = handle.listing();
                if let Some((offer, listing)) = offer(handle, &mut listing) {
                    offers.push(offer);
                    current.push(listing);
                }
                listings.push(async move {
                    // An error means that its supervisor is gone; the set of servers changes then too.
                    if listing.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                });
            }
            let work = Work { config, offers, current, builtins, pins, known, phrases, revision };
            let built = tokio::task::spawn_blocking(move || work.run()).await;
            let done = built.expect("building a catalogue does not panic");
            (pins, known, revision) = (done.pins, done.known, done.revision);
            phrases = done.phrases;
            warn_once(&done.catalog, &mut told);
            self.publish.send_replace(Arc::new(done.catalog));
            if !self.keep(done.put, done.forget).await {
                pins = None;
            }
            let retry = pins.is_none();
            let since = Instant::now();
            // A beat is no reason to build anything.
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = self.servers.changed() => if changed.is_err() { return },
                    changed = self.config.changed() => if changed.is_err() { return },
                    changed = self.builtins.changed() => if changed.is_err() { return },
                    changed = self.approved.changed() => match changed {
                        Ok(()) => pins = None,
                        Err(_) => return,
                    },
                    Some(()) = listings.next(), if !listings.is_empty() => {}
                    () = tokio::time::sleep_until(since + PINS_AGAIN), if retry => {}
                    () = tokio::time::sleep_until(since + PHRASES_STAY), if phrases.is_some() => {
                        let kept = phrases.take();
                        let freed = tokio::task::spawn_blocking(move || {
                            drop(kept);
                            heap::give_back();
                        });
                        freed.await.expect("freeing does not panic");
                        continue;
                    }
                    Some(asked) = self.beats.recv() => {
                        // Whoever asked may be gone.
                        let _ = asked.send(());
                        continue;
                    }
                }
                break;
            }
        }
    }

    async fn load_pins(&self) -> Option<Pins> {
        match tokio::time::timeout(PINS_LIMIT, self.store.load_pins()).await {
            Ok(Ok(pins)) => Some(pins),
            Ok(Err(error)) => {
                tracing::warn!(%error, "pins cannot be read");
                None
            }
            Err(_) => {
                tracing::warn!("pins are not there in time");
                None
            }
        }
    }

    /// Stores what changed; `false`: the store does not have it.
    async fn keep(&self, put: Vec<(PinKey, crate::store::Pin)>, forget: Vec<PinKey>) -> bool {
        let mut kept = true;
        if !put.is_empty()
            && let Err(error) = self.store.put_pins(put).await
        {
            tracing::warn!(%error, "pins are not kept");
            kept = false;
        }
        if !forget.is_empty()
            && let Err(error) = self.store.forget_pins(forget).await
        {
            tracing::warn!(%error, "pins of renamed and vanished items stay");
        }
        kept
    }
}

/// A finding is news once, not each time somebody's list changes.
fn warn_once(catalog: &Catalog, told: &mut BTreeSet<(ServerName, String)>) {
    let mut now = BTreeSet::new();
    for (server, about) in catalog.notes() {
        for warning in &about.warnings {
            let key = (server.clone(), warning.clone());
            if !told.contains(&key) {
                tracing::warn!(%server, warning, "a text of a server is not what it should be");
            }
            now.insert(key);
        }
    }
    *told = now;
}

/// One run on the blocking pool.
struct Work {
    config: Arc<Config>,
    offers: Vec<Offer>,
    current: Vec<Arc<Listing>>,
    builtins: Arc<Vec<Builtin>>,
    pins: Option<Pins>,
    known: HashMap<ServerName, Known>,
    phrases: Option<scan::Kept>,
    revision: u64,
}

struct Done {
    catalog: Catalog,
    pins: Option<Pins>,
    known: HashMap<ServerName, Known>,
    phrases: Option<scan::Kept>,
    revision: u64,
    put: Vec<(PinKey, crate::store::Pin)>,
    forget: Vec<PinKey>,
}

impl Work {
    fn run(mut self) -> Done {
        self.learn();
        let now = UnixMs::at(SystemTime::now());
        let (mut put, mut forget) = (Vec::new(), Vec::new());
        for offer in &mut self.offers {
            let name = &offer.config.name;
            let stored = self.pins.as_ref().map_or(Stored::Unreadable, Stored::Readable);
            let known = &self.known[name];
            let mut verdict = vet::vet(offer, &known.said, stored, now);
            verdict.warnings.extend(known.phrases.iter().chain(&known.names).cloned());
            put.append(&mut verdict.put);
            forget.append(&mut verdict.forget);
            offer.verdict = verdict;
        }
        if let Some(pins) = &mut self.pins {
            pins.by_key.retain(|key, _| !forget.contains(key));
            pins.by_key.extend(put.iter().cloned());
        }
        let revision = self.revision + 1;
        let catalog = build::build(&self.config, &self.offers, &self.builtins).numbered(revision);
        Done { catalog, pins: self.pins, known: self.known, phrases: self.phrases, revision, put, forget }
    }

    /// Works out what is new since the last run; a text that did not change is not read again.
    fn learn(&mut self) {
        let same = |(offer, listing): (&Offer, &Arc<Listing>)| {
            self.known.get(&offer.config.name).is_some_and(|known| Arc::ptr_eq(&known.listing, listing))
        };
        if self.known.len() == self.offers.len() && self.offers.iter().zip(&self.current).all(same) {
            return;
        }
        let mut known = HashMap::with_capacity(self.offers.len());
        for (offer, listing) in self.offers.iter().zip(&self.current) {
            let name = offer.config.name.clone();
            let foreign = look::foreign(&name, &self.offers);
            let mut about = match self.known.remove(&name) {
                Some(old) if Arc::ptr_eq(&old.listing, listing) && old.foreign == foreign => {
                    known.insert(name, old);
                    continue;
                }
                Some(old) if Arc::ptr_eq(&old.listing, listing) => old,
                _ => {
                    self.phrases.get_or_insert_with(scan::keep);
                    Known {
                        listing: listing.clone(),
                        said: vet::said(offer),
                        phrases: look::phrases(offer),
                        foreign: Foreign::default(),
                        names: Vec::new(),
                    }
                }
            };
            about.names = look::names(offer, &foreign);
            about.foreign = foreign;
            known.insert(name, about);
        }
        self.known = known;
    }
}

fn kind(list: ListKind) -> TextKind {
    match list {
        ListKind::Tools => TextKind::Tool,
        ListKind::Resources => TextKind::Resource,
        ListKind::Templates => TextKind::Template,
        ListKind::Prompts => TextKind::Prompt,
    }
}

fn offer(
    handle: &ServerHandle,
    listing: &mut watch::Receiver<Option<Arc<Listing>>>,
) -> Option<(Offer, Arc<Listing>)> {
    let listing = listing.borrow_and_update().clone()?;
    let tools = listing.tools.iter().map(|tool| (tool.name.to_string(), tool.raw.clone())).collect();
    let notes = listing.notes.iter().map(ToString::to_string).collect();
    let dropped = listing.notes.iter().filter(|note| note.problem.drops_item()).count();
    let dropped = u32::try_from(dropped).unwrap_or(u32::MAX);
    let items = |items: &[Item]| items.iter().map(|item| (item.key.clone(), item.raw.clone())).collect();
    let offer = Offer {
        resources: items(&listing.resources),
        templates: items(&listing.templates),
        prompts: items(&listing.prompts),
        instructions: listing.instructions.clone(),
        unread: ListKind::ALL.into_iter().filter(|list| !listing.read.contains(list)).map(kind).collect(),
        capabilities: listing.capabilities.clone(),
        notes,
        dropped,
        ..Offer::of_tools(handle.config(), tools)
    };
    Some((offer, listing))
}
