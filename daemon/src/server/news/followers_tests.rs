//! Who follows what, and what a server hears of it.

use super::super::hearer::LogLine;
use super::super::listeners::LINES;
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Debug, Default)]
struct Heard {
    updates: Mutex<Vec<String>>,
    lines: Mutex<Vec<String>>,
    count: AtomicUsize,
}

impl Hearer for Heard {
    fn updated(&self, uri: &str, _params: &RawValue) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.updates.lock().unwrap().push(uri.to_owned());
    }

    fn logged(&self, line: &LogLine) {
        self.lines.lock().unwrap().push(line.masked(ToOwned::to_owned).get().to_owned());
    }
}

impl Heard {
    fn updates(&self) -> Vec<String> {
        std::mem::take(&mut self.updates.lock().unwrap())
    }

    fn lines(&self) -> usize {
        std::mem::take(&mut *self.lines.lock().unwrap()).len()
    }
}

const ALL: Can = Can { subscribe: true, log: true };
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn ears() -> (Arc<Heard>, Arc<dyn Hearer>) {
    let heard = Arc::new(Heard::default());
    (heard.clone(), heard)
}

fn uri(text: &str) -> Arc<str> {
    Arc::from(text)
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn update(text: &str) -> Box<RawValue> {
    only_uri(text)
}

/// Does what the server has to be told, as long as there is something; the server agrees.
fn agree(followers: &Followers) -> Vec<Step> {
    let steps: Vec<Step> = std::iter::from_fn(|| {
        let step = followers.next(ALL)?;
        followers.done(&step, Ok(()));
        Some(step)
    })
    .collect();
    assert!(steps.len() < 100);
    steps
}

#[test]
fn the_server_hears_of_the_first_follower_and_of_the_loss_of_the_last() {
    let (followers, (_, ears)) = (Followers::default(), ears());
    let u = uri("u");
    assert_eq!(followers.follow(A, &u, "u", &ears, Since::Now), Followed::New);
    assert_eq!(followers.follow(A, &u, "u", &ears, Since::Now), Followed::Already);
    assert_eq!(agree(&followers), [Step::Subscribe(u.clone())]);
    followers.follow(B, &u, "u", &ears, Since::Now);
    followers.unfollow(A, "u");
    assert_eq!(agree(&followers), []);
    followers.leave(B);
    assert_eq!(agree(&followers), [Step::Unsubscribe(u)]);
    assert!(!followers.any() && followers.lock().resources.is_empty());
}

#[test]
fn requests_about_one_resource_never_overtake_each_other() {
    let (followers, (_, ears)) = (Followers::default(), ears());
    let u = uri("u");
    followers.follow(A, &u, "u", &ears, Since::Now);
    let first = followers.next(ALL).unwrap();
    followers.unfollow(A, "u");
    followers.follow(B, &u, "u", &ears, Since::Now);
    followers.leave(B);
    assert_eq!(followers.next(ALL), None, "the first request has no answer yet");
    followers.done(&first, Ok(()));
    let second = followers.next(ALL).unwrap();
    assert_eq!(second, Step::Unsubscribe(u.clone()));
    followers.follow(A, &u, "u", &ears, Since::Now);
    assert_eq!(followers.next(ALL), None);
    followers.done(&second, Ok(()));
    assert_eq!(agree(&followers), [Step::Subscribe(u)]);
}

#[test]
fn a_new_generation_is_told_everything_and_followers_hear_that_they_may_have_missed_something() {
    let (followers, (heard, ears)) = (Followers::default(), ears());
    followers.follow(A, &uri("u"), "mine", &ears, Since::Now);
    followers.listen(A, Some(Verbosity::From(LogLevel::Debug)), &ears);
    assert_eq!(agree(&followers), [Step::Level(LogLevel::Debug), Step::Subscribe(uri("u"))]);
    assert!(heard.updates().is_empty());
    followers.connected();
    assert_eq!(agree(&followers), [Step::Level(LogLevel::Debug), Step::Subscribe(uri("u"))]);
    assert_eq!(heard.updates(), ["mine"]);
    // Who comes back to a server that sends updates all the time hears it at once.
    let (late, late_ears) = self::ears();
    followers.follow(B, &uri("u"), "u", &late_ears, Since::Earlier);
    assert_eq!(late.updates(), ["u"]);
}

#[tokio::test]
async fn a_refusal_reaches_those_who_wait_and_is_not_asked_again_by_itself() {
    let (followers, (_, ears)) = (Followers::default(), ears());
    followers.follow(A, &uri("u"), "u", &ears, Since::Now);
    let step = followers.next(ALL).unwrap();
    let waits = followers.told("u");
    tokio::pin!(waits);
    assert!(futures_util::poll!(waits.as_mut()).is_pending());
    followers.done(&step, Err(Refusal::Server(Arc::from(raw(r#"{"code":1,"message":"no"}"#)))));
    assert!(matches!(waits.await, Err(Refusal::Server(_))));
    assert_eq!(agree(&followers), []);
    assert!(matches!(followers.told("u").await, Err(Refusal::Server(_))));
    // Somebody else may try, and so may the next generation.
    followers.follow(B, &uri("u"), "u", &ears, Since::Now);
    assert_eq!(agree(&followers), [Step::Subscribe(uri("u"))]);
    assert!(followers.told("u").await.is_ok());
    assert!(matches!(followers.told("nobody's").await, Err(Refusal::Wire(WireError::Gone { .. }))));
}

#[test]
fn updates_reach_exactly_the_followers_under_their_own_names_and_parts_keep_their_place() {
    let (followers, (a, a_ears), (b, b_ears)) = (Followers::default(), ears(), ears());
    let now = Instant::now();
    followers.follow(A, &uri("n://one"), "hermes://s/n://one", &a_ears, Since::Now);
    followers.follow(B, &uri("n://two"), "n://two", &b_ears, Since::Now);
    agree(&followers);
    followers.updated(&update("n://one"), now);
    followers.updated(&update("n://one/part"), now);
    followers.updated(&update("n://onetwo"), now);
    followers.updated(&raw(r#"{"uri":7}"#), now);
    assert_eq!(a.updates(), ["hermes://s/n://one", "hermes://s/n://one/part"]);
    assert!(b.updates().is_empty());
}

#[test]
fn a_flood_of_updates_is_thinned_and_the_last_one_arrives() {
    let (followers, (heard, ears)) = (Followers::default(), ears());
    let mut now = Instant::now();
    let start = now;
    followers.follow(A, &uri("u"), "u", &ears, Since::Now);
    agree(&followers);
    for _ in 0..1100 {
        followers.updated(&update("u"), now);
        now += Duration::from_millis(1);
        followers.flush(now);
    }
    let due = followers.due().expect("the last one waits");
    followers.flush(due);
    assert_eq!(followers.due(), None);
    let count = heard.updates().len() as u128;
    assert!((8..=8 + (due - start).as_millis() / 250).contains(&count), "{count}");
    // Several parts that have to wait become one notice of the whole.
    now = due + Duration::from_secs(60);
    for part in 0..20 {
        followers.updated(&update(&format!("u/{part}")), now);
    }
    followers.flush(followers.due().unwrap());
    let told = heard.updates();
    assert_eq!((told.len(), told.last().map(String::as_str)), (9, Some("u")));
}

fn line(level: &str) -> Box<RawValue> {
    raw(&format!(r#"{{"level":"{level}","data":"x"}}"#))
}

#[test]
fn log_lines_go_by_level_and_audience() {
    let (followers, (a, a_ears), (b, b_ears)) = (Followers::default(), ears(), ears());
    let (server, now) = (ServerName::new("s"), Instant::now());
    followers.listen(A, Some(Verbosity::From(LogLevel::Info)), &a_ears);
    followers.listen(B, Some(Verbosity::From(LogLevel::Error)), &b_ears);
    let log = |level: &str, audience| followers.logged(&server, &line(level), audience, now);
    for (level, audience, heard) in [
        ("debug", Audience::Everyone, (0, 0)),
        ("info", Audience::Everyone, (1, 0)),
        ("error", Audience::Everyone, (1, 1)),
        ("error", Audience::Only(B), (0, 1)),
        ("info", Audience::Only(B), (0, 0)),
        ("emergency", Audience::Nobody, (0, 0)),
    ] {
        log(level, audience);
        assert_eq!((a.lines(), b.lines()), heard, "{level} {audience:?}");
    }
}

#[test]
fn a_client_without_a_level_hears_of_its_own_calls_and_changes_nothing() {
    let (followers, (heard, ears)) = (Followers::default(), ears());
    let (server, now) = (ServerName::new("s"), Instant::now());
    followers.listen(A, Some(Verbosity::OwnCalls), &ears);
    assert_eq!(agree(&followers), [], "the server keeps its own level");
    for (level, audience, lines) in [
        ("error", Audience::Everyone, 0),
        ("error", Audience::Only(B), 0),
        ("error", Audience::Nobody, 0),
        ("debug", Audience::Only(A), 0),
        ("info", Audience::Only(A), 1),
    ] {
        followers.logged(&server, &line(level), audience, now);
        assert_eq!(heard.lines(), lines, "{level} {audience:?}");
    }
}

#[test]
fn the_server_gets_the_most_verbose_level_and_is_calmed_down_afterwards() {
    let (followers, (_, ears)) = (Followers::default(), ears());
    followers.listen(A, Some(Verbosity::From(LogLevel::Error)), &ears);
    assert_eq!(agree(&followers), [Step::Level(LogLevel::Error)]);
    followers.listen(B, Some(Verbosity::From(LogLevel::Debug)), &ears);
    assert_eq!(agree(&followers), [Step::Level(LogLevel::Debug)]);
    followers.listen(B, None, &ears);
    assert_eq!(agree(&followers), [Step::Level(LogLevel::Error)]);
    followers.listen(A, Some(Verbosity::From(LogLevel::Debug)), &ears);
    agree(&followers);
    followers.leave(A);
    assert_eq!(agree(&followers), [Step::Level(LogLevel::Info)]);
    assert_eq!(followers.next(Can::default()), None);
}

#[test]
fn a_flood_of_log_lines_is_cut_and_the_client_is_told() {
    let (followers, (heard, ears)) = (Followers::default(), ears());
    let (server, now) = (ServerName::new("s"), Instant::now());
    followers.listen(A, Some(Verbosity::From(LogLevel::Info)), &ears);
    for _ in 0..1000 {
        followers.logged(&server, &line("info"), Audience::Everyone, now);
    }
    assert_eq!(heard.lines(), LINES.0 as usize);
    followers.logged(&server, &line("info"), Audience::Everyone, now + Duration::from_secs(9));
    let lines = std::mem::take(&mut *heard.lines.lock().unwrap());
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains(r#""count":800"#), "{}", lines[0]);
}

#[tokio::test]
async fn what_hermesd_offers_itself_needs_nobodys_consent() {
    let (followers, (heard, ears)) = (Followers::builtin(), ears());
    followers.follow(A, &uri("u"), "u", &ears, Since::Now);
    assert!(followers.told("u").await.is_ok());
    followers.updated(&update("u"), Instant::now());
    assert_eq!(heard.updates(), ["u"]);
}
