//! `mcp login` and `mcp logout`: the person's end of a login that the daemon owns.
//!
//! Promise: the address is printed before anything is opened; only http and https are opened, by no
//! shell; it works without a browser on this machine; nothing that a server said can act on the
//! terminal. A command that is interrupted leaves the login waiting in the daemon.

use super::{Context, Format, put, servers};
use crate::cli::LoginArgs;
use crate::failure::{Done, Failure};
use crate::render::{json, text};
use hermes_proto::control as pb;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;
use tokio::sync::mpsc;

/// Lines that a person may paste ahead.
const LINES: usize = 8;
/// Longest address that is read.
const LONGEST: u64 = 64 << 10;

/// Where the address will be opened.
#[derive(Debug, PartialEq, Eq)]
enum Browser {
    /// By this command.
    Here,
    /// By the person, because of this.
    Elsewhere(&'static str),
}

/// Runs a login to its end.
pub(super) async fn login(cx: &Context, args: &LoginArgs) -> Result<Done, Failure> {
    let mut client = cx.client().await?;
    if let Some(url) = &args.redirect_url {
        client.finish_login(&args.name, url).await?;
        cx.print(
            || serde_json::json!({"finished": true}),
            || format!("logged in at {}\n", text::plain(&args.name)),
        )?;
        return Ok(Done::Well);
    }
    let mut events = client.login(&args.name).await?;
    let mut pasted = None;
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            Some(line) = next_line(&mut pasted) => {
                if let Err(failure) = client.finish_login(&args.name, &line).await {
                    say(cx, &refusal(&failure))?;
                }
                continue;
            }
        };
        let Some(event) = event else {
            return Err(Failure::refused("hermesd ended while the login was under way"));
        };
        if cx.format == Format::Json {
            put(&format!("{}\n", json::of(&event)))?;
        }
        match pb::LoginStep::try_from(event.step) {
            Ok(pb::LoginStep::Waiting) => {
                if args.paste || io::stdin().is_terminal() {
                    pasted = Some(lines()?);
                }
                waiting(cx, args, &event, pasted.is_some())?;
            }
            Ok(pb::LoginStep::Done) => return done(cx, &args.name, &event),
            Ok(pb::LoginStep::Failed) => {
                return Err(Failure::Refused {
                    message: format!("login at {} failed: {}", args.name, event.message),
                    hint: event.hint,
                });
            }
            Ok(pb::LoginStep::Preparing | pb::LoginStep::Unspecified) | Err(_) => {}
        }
    }
}

fn refusal(failure: &Failure) -> String {
    let hint = if failure.hint().is_empty() { String::new() } else { format!(" ({})", failure.hint()) };
    format!("not taken: {failure}{hint}\n")
}

/// Says what the person has to do, and opens the browser where there is one.
fn waiting(cx: &Context, args: &LoginArgs, event: &pb::LoginEvent, reads: bool) -> Result<(), Failure> {
    let browser = if args.no_browser {
        Browser::Elsewhere("as asked")
    } else {
        browser(&|name| std::env::var_os(name))
    };
    let limit = text::span(Duration::from_millis(event.limit_ms));
    say(
        cx,
        &format!("To log in at {}, open this address within {limit}:\n\n  {}\n\n", args.name, event.url),
    )?;
    match browser {
        Browser::Here if is_web_address(&event.url) => match open::that_detached(&event.url) {
            Ok(()) => say(cx, "It is being opened in your browser.\n")?,
            Err(error) => say(cx, &format!("No browser could be opened ({error}).\n"))?,
        },
        Browser::Here => return Err(Failure::refused("the address is no web address; it is not opened")),
        Browser::Elsewhere(why) => say(cx, &format!("It is not opened from here ({why}).\n"))?,
    }
    let paste = if reads {
        "paste it here".to_owned()
    } else {
        format!("hand it to `hermesctl mcp login {} --redirect-url URL`", args.name)
    };
    say(
        cx,
        &format!(
            "If the browser is on another machine it ends at an address that begins with\n{} and cannot be shown: {paste}.\n",
            event.redirect_uri
        ),
    )
}

fn done(cx: &Context, name: &str, event: &pb::LoginEvent) -> Result<Done, Failure> {
    let scopes =
        if event.scopes.is_empty() { String::new() } else { format!(" ({})", event.scopes.join(" ")) };
    say(cx, &format!("logged in at {name}{scopes}\n"))?;
    let Some(server) = &event.server else {
        say(cx, &format!("{name} is disabled; it starts when it is enabled\n"))?;
        return Ok(Done::Well);
    };
    let because = if server.reason.is_empty() { String::new() } else { format!(": {}", server.reason) };
    say(cx, &format!("{name} is {}, {} tools{because}\n", servers::state(server), server.tools))?;
    let well = server.phase == i32::from(pb::Phase::Ready);
    Ok(if well { Done::Well } else { Done::Badly })
}

/// Ends a login.
pub(super) async fn logout(cx: &Context, name: &str) -> Result<Done, Failure> {
    let ended = cx.client().await?.logout(name).await?;
    cx.print(
        || json::of(&ended),
        || {
            let what = match (ended.had_login, ended.revoked) {
                (false, _) => "there was no login; files of one are gone".to_owned(),
                (true, true) => "logged out, the tokens are revoked".to_owned(),
                (true, false) => format!(
                    "logged out here; the tokens stay good at the server until they end: {}",
                    ended.not_revoked_because
                ),
            };
            format!("{}\n", text::plain(&format!("{name}: {what}")))
        },
    )?;
    Ok(Done::Well)
}

/// Text for people; programs get the events.
fn say(cx: &Context, words: &str) -> Result<(), Failure> {
    match cx.format {
        Format::Text => put(&text::block(words)),
        Format::Json => Ok(()),
    }
}

/// Whether a browser can be opened where the person sits.
fn browser(env: &dyn Fn(&str) -> Option<OsString>) -> Browser {
    let set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
    if ["SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"].into_iter().any(set) {
        return Browser::Elsewhere("this is an SSH session");
    }
    if cfg!(target_os = "linux") && !["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(set) {
        return Browser::Elsewhere("there is no display");
    }
    Browser::Here
}

/// What an opener may get: the daemon checked it too, and this is the last place before it acts.
fn is_web_address(url: &str) -> bool {
    (url.starts_with("https://") || url.starts_with("http://")) && url.bytes().all(|b| b.is_ascii_graphic())
}

/// Lines of stdin, read beside the login by a thread: a read of a terminal cannot be taken back.
fn lines() -> Result<mpsc::Receiver<String>, Failure> {
    let (sender, receiver) = mpsc::channel(LINES);
    std::thread::Builder::new().name("paste".to_owned()).spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut line = String::new();
            match io::Read::take(&mut stdin, LONGEST).read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line.trim().is_empty() => {}
                Ok(_) if sender.blocking_send(line).is_err() => return,
                Ok(_) => {}
            }
        }
    })?;
    Ok(receiver)
}

async fn next_line(lines: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match lines {
        Some(lines) => lines.recv().await,
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(names: &'static [&str]) -> Browser {
        browser(&move |name| names.contains(&name).then(|| OsString::from("x")))
    }

    #[test]
    fn no_browser_is_opened_where_nobody_would_see_it() {
        assert_eq!(with(&["SSH_TTY", "DISPLAY"]), Browser::Elsewhere("this is an SSH session"));
        if cfg!(target_os = "linux") {
            assert_eq!(with(&[]), Browser::Elsewhere("there is no display"));
            assert_eq!(with(&["WAYLAND_DISPLAY"]), Browser::Here);
        }
    }

    #[test]
    fn only_web_addresses_are_opened() {
        assert!(is_web_address("https://login.example.com/authorize?x=%22&y"));
        for bad in ["file:///etc/passwd", "-x", "javascript:alert(1)", "https://a b", "https://a\u{7}", ""] {
            assert!(!is_web_address(bad), "{bad}");
        }
    }
}
