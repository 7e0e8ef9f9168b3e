//! What a server without handshake is to tell on its own, and the stream it tells it on.
//!
//! Such a server is not asked to follow a resource or to log from a level on: the one says so in `subscriptions/listen`, the other
//! in each request (MCP 2026-07-28, Subscriptions, Logging). Promise: a changed wish opens a new stream before the old one
//! closes, so that nothing falls in between; wishes that come together open one. Owner: the wire's task.

use crate::jsonrpc::log_level::LogLevel;
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::server::transport::http::listen::Opened;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

/// What came within this time makes one new stream.
const TOGETHER: Duration = Duration::from_millis(30);
/// How often it is looked whether the new stream is open.
const LOOK: Duration = Duration::from_millis(10);

/// The member of `_meta` that asks for log lines of a request.
const LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

/// What is wanted of a server besides answers.
#[derive(Debug, Default)]
pub(in crate::server::wire) struct Wishes {
    /// What it can tell, as a filter of `subscriptions/listen`; `None`: it has no handshake-less news.
    lists: Option<Box<RawValue>>,
    /// It has log lines.
    logs: bool,
    followed: BTreeSet<Box<str>>,
    level: Option<LogLevel>,
}

/// What a request that is a wish comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server::wire) enum Wish {
    /// The stream has to say it.
    Stream,
    /// Later requests say it.
    Requests,
}

impl Wishes {
    /// By the answer to `server/discover`.
    pub(in crate::server::wire) fn discovered(&mut self, discovery: &RawValue) {
        let members = Members::parse(discovery).unwrap_or_default();
        let capabilities =
            members.get("capabilities").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let mut filter = ObjectWriter::default();
        let mut any = false;
        for (capability, wish) in [
            ("tools", "toolsListChanged"),
            ("resources", "resourcesListChanged"),
            ("prompts", "promptsListChanged"),
        ] {
            let declared =
                capabilities.get(capability).and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
            if declared.get("listChanged").is_some_and(|raw| raw.get() == "true") {
                filter.member(wish, "true");
                any = true;
            }
        }
        self.lists = any.then(|| filter.finish());
        self.logs = capabilities.get("logging").is_some_and(|raw| raw.get().starts_with('{'));
    }

    /// Takes a request of the older revisions that is a wish; `None`: it is none.
    pub(in crate::server::wire) fn take(&mut self, method: &str, params: Option<&RawValue>) -> Option<Wish> {
        let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        match method {
            "resources/subscribe" => {
                self.followed.insert(members.text("uri")?.into());
                Some(Wish::Stream)
            }
            "resources/unsubscribe" => {
                self.followed.remove(&*members.text("uri")?);
                Some(Wish::Stream)
            }
            "logging/setLevel" => {
                self.level = Some(LogLevel::parse(&members.text("level")?)?);
                Some(Wish::Requests)
            }
            _ => None,
        }
    }

    /// The params of `subscriptions/listen`; `None`: there is nothing to listen for.
    pub(in crate::server::wire) fn listen(&self) -> Option<Box<RawValue>> {
        let empty = ObjectWriter::default().finish();
        let mut filter = self.lists.as_ref().unwrap_or(&empty).clone();
        if !self.followed.is_empty() {
            let uris = crate::jsonrpc::splice::raw(&self.followed);
            filter = Members::parse(&filter).ok()?.with("resourceSubscriptions", uris.get());
        } else if self.lists.is_none() {
            return None;
        }
        let mut params = ObjectWriter::default();
        params.member("notifications", filter.get());
        Some(params.finish())
    }

    /// `params` of a request, with the level from which on its log lines are wanted. Nobody said: those that the older
    /// revisions would give.
    pub(in crate::server::wire) fn with_level(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Option<Box<RawValue>> {
        if !self.logs || !matches!(method, "tools/call" | "resources/read" | "prompts/get") {
            return None;
        }
        let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let meta = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let level = self.level.unwrap_or(LogLevel::Info).word();
        // One of its own client's choice may be more verbose, never less: others may want the rest.
        let asked = meta.text(LEVEL_KEY).and_then(|word| LogLevel::parse(&word)).map(LogLevel::word);
        let level = asked.filter(|word| LogLevel::parse(word) < LogLevel::parse(level)).unwrap_or(level);
        Some(members.with("_meta", meta.with(LEVEL_KEY, &format!("\"{level}\"")).get()))
    }
}

/// The stream of what a server says on its own, and the one that is to take its place.
#[derive(Default)]
pub(super) struct Listening {
    current: Option<(BoxFuture<'static, ()>, Opened)>,
    next: Option<(BoxFuture<'static, ()>, Opened)>,
}

impl Listening {
    /// Opens `stream` at once, in place of whatever there was.
    pub(super) fn set(&mut self, stream: Option<(BoxFuture<'static, ()>, Opened)>) {
        (self.current, self.next) = (stream, None);
    }

    /// Opens `stream` soon; the one there is goes on until that is open.
    pub(super) fn replace(&mut self, stream: Option<(BoxFuture<'static, ()>, Opened)>) {
        let Some((stream, opened)) = stream else { return self.set(None) };
        let soon = async move {
            tokio::time::sleep(TOGETHER).await;
            stream.await;
        };
        self.next = Some((Box::pin(soon), opened));
    }

    /// Whether the server could say something now.
    pub(super) fn is_open(&self) -> bool {
        [&self.current, &self.next].into_iter().flatten().any(|(_, opened)| opened.is_set())
    }

    /// Listens for as long as it is polled.
    ///
    /// # Cancel safety
    /// Cancel safe: the streams go on with the next call.
    pub(super) async fn run(&mut self) -> Infallible {
        loop {
            if self.next.as_ref().is_some_and(|(_, opened)| opened.is_set()) {
                self.current = self.next.take();
            }
            let (current, next) = (&mut self.current, &mut self.next);
            let waits = next.is_some();
            tokio::select! {
                () = poll(current) => self.current = None,
                () = poll(next) => self.next = None,
                () = tokio::time::sleep(LOOK), if waits => {}
            }
        }
    }
}

async fn poll(stream: &mut Option<(BoxFuture<'static, ()>, Opened)>) {
    match stream {
        Some((stream, _)) => stream.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn discovered(capabilities: &str) -> Wishes {
        let mut wishes = Wishes::default();
        wishes.discovered(&raw(&format!(r#"{{"capabilities":{capabilities}}}"#)));
        wishes
    }

    #[test]
    fn what_is_followed_stands_in_the_next_stream_and_nothing_else() {
        let mut wishes = discovered(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#);
        let listens = |wishes: &Wishes| wishes.listen().map(|raw| raw.get().to_owned());
        assert_eq!(listens(&wishes).unwrap(), r#"{"notifications":{"toolsListChanged":true}}"#);
        for uri in ["u:b", "u:a", "u:b"] {
            let params = raw(&format!(r#"{{"uri":"{uri}"}}"#));
            assert_eq!(wishes.take("resources/subscribe", Some(&params)), Some(Wish::Stream));
        }
        assert_eq!(
            listens(&wishes).unwrap(),
            r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["u:a","u:b"]}}"#
        );
        let mut silent = discovered("{}");
        assert_eq!(listens(&silent), None);
        let params = raw(r#"{"uri":"u"}"#);
        silent.take("resources/subscribe", Some(&params));
        assert!(listens(&silent).unwrap().contains(r#"["u"]"#));
        silent.take("resources/unsubscribe", Some(&params));
        assert_eq!(listens(&silent), None);
        assert_eq!(silent.take("tools/call", Some(&params)), None);
    }

    #[test]
    fn calls_say_from_which_level_on_log_lines_are_wanted() {
        let mut wishes = discovered(r#"{"logging":{}}"#);
        let level = |wishes: &Wishes, params: &str| {
            let params = wishes.with_level("tools/call", Some(&raw(params))).unwrap();
            let value: serde_json::Value = serde_json::from_str(params.get()).unwrap();
            (value["_meta"][LEVEL_KEY].clone(), value["name"].clone())
        };
        assert_eq!(level(&wishes, r#"{"name":"t"}"#), ("info".into(), "t".into()));
        wishes.take("logging/setLevel", Some(&raw(r#"{"level":"error"}"#)));
        assert_eq!(level(&wishes, r#"{"name":"t"}"#).0, "error");
        assert_eq!(level(&wishes, &format!(r#"{{"_meta":{{"{LEVEL_KEY}":"debug"}}}}"#)).0, "debug");
        assert!(wishes.with_level("tools/list", None).is_none());
        assert!(discovered("{}").with_level("tools/call", None).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_old_stream_goes_on_until_the_new_one_is_open() {
        use std::sync::Arc;
        let alive = Arc::new(());
        let stream = |opens: Duration, alive: &Arc<()>| {
            let (opened, alive) = (Opened::default(), alive.clone());
            let flag = opened.clone();
            let stream: BoxFuture<'static, ()> = Box::pin(async move {
                let _alive = alive;
                tokio::time::sleep(opens).await;
                flag.open();
                std::future::pending::<()>().await;
            });
            Some((stream, opened))
        };
        let mut listening = Listening::default();
        listening.set(stream(Duration::ZERO, &alive));
        let second = Duration::from_secs(1);
        let _ = tokio::time::timeout(Duration::from_millis(50), listening.run()).await;
        assert!(listening.is_open());
        for _ in 0..5 {
            listening.replace(stream(second, &alive));
        }
        let _ = tokio::time::timeout(second / 2, listening.run()).await;
        assert!(listening.is_open() && Arc::strong_count(&alive) == 3, "the old one, and one new one");
        let _ = tokio::time::timeout(second, listening.run()).await;
        assert!(listening.is_open() && Arc::strong_count(&alive) == 2, "the new one");
    }
}
