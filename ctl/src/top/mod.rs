//! `top`: everything at a glance, live, with the few actions that are needed in a hurry.
//!
//! [`state`], [`keys`], [`draw`], [`history`] and [`mod@line`] are pure; [`feed`] hears the daemon, [`screen`]
//! owns the terminal, and the loop here only waits, hands on and draws.

pub mod draw;
mod feed;
pub mod history;
mod keys;
#[cfg(test)]
mod keys_tests;
pub mod line;
#[cfg(test)]
mod samples;
mod screen;
#[cfg(test)]
mod screen_tests;
pub mod state;

use crate::failure::{Done, Failure};
use crate::render::json;
use crate::render::table::{Colour, Style};
use hermes_proto::endpoint::Home;
use history::Glyphs;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use screen::{Input, Screen};
use serde_json::{Value, json};
use state::{Effect, View};
use std::io::{IsTerminal, stdin};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Shortest time between two drawings that no key asked for.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Updates that wait to be taken; full: the feeds wait.
const UPDATES: usize = 64;

/// One look as JSON.
///
/// # Errors
/// As [`crate::client::Client::status`].
pub async fn snapshot(home: &Home) -> Result<Value, Failure> {
    let snapshot = feed::look(home, &mut None).await?;
    Ok(json!({
        "status": json::of(&snapshot.status),
        "stats": json::of(&snapshot.stats),
        "approvals": json::of(&snapshot.approvals),
    }))
}

/// Shows the screen until a key or a signal ends it.
///
/// # Errors
/// [`Failure::Usage`] where there is no terminal that can show it; [`Failure::Unreachable`] when
/// there is no daemon to begin with.
pub async fn run(home: &Home, style: Style) -> Result<Done, Failure> {
    let Style::Drawn { colour } = style else { return Err(no_terminal("stdout is no terminal")) };
    if !stdin().is_terminal() {
        return Err(no_terminal("stdin is no terminal"));
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(no_terminal("this terminal (TERM) cannot show a full screen"));
    }
    // A daemon that is missing is said on the plain terminal; one that goes later, on the screen.
    let first = feed::look(home, &mut None).await?;
    let mut top = Top::begin(home, colour)?;
    top.view.update(state::Update::Looked(Box::new(first)));
    top.run().await
}

fn no_terminal(why: &str) -> Failure {
    Failure::Usage {
        message: format!("top needs a terminal: {why}"),
        hint: "`hermesctl status` and `hermesctl stats` print the same once; `hermesctl top --json` as JSON"
            .to_owned(),
    }
}

/// Blocks and dashes, unless the locale says that the terminal knows no Unicode.
fn glyphs() -> Glyphs {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    if locale.contains("utf-8") || locale.contains("utf8") { Glyphs::Unicode } else { Glyphs::Ascii }
}

struct Top {
    home: Home,
    view: View,
    screen: Screen,
    inputs: mpsc::Receiver<Input>,
    updates: mpsc::Receiver<state::Update>,
    sender: feed::Updates,
    log_of: watch::Sender<String>,
    tasks: JoinSet<()>,
}

impl Top {
    fn begin(home: &Home, colour: Colour) -> Result<Self, Failure> {
        let (sender, updates) = mpsc::channel(UPDATES);
        let (log_of, of) = watch::channel(String::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(feed::looks(home.clone(), sender.clone()));
        tasks.spawn(feed::all_events(home.clone(), sender.clone()));
        tasks.spawn(feed::log(home.clone(), sender.clone(), of));
        let screen = Screen::take()?;
        let inputs = screen::inputs()?;
        let view = View::new(colour, glyphs());
        Ok(Self { home: home.clone(), view, screen, inputs, updates, sender, log_of, tasks })
    }

    /// Waits, hands on, draws; ends with a key, a signal or the terminal.
    async fn run(mut self) -> Result<Done, Failure> {
        self.draw()?;
        let mut drawn = Instant::now();
        let mut due = false;
        loop {
            tokio::select! {
                biased; // keys first: a flood of lines must not make them wait
                input = self.inputs.recv() => {
                    if let Some(done) = self.input(input)? {
                        return Ok(done);
                    }
                    self.draw()?;
                    (drawn, due) = (Instant::now(), false);
                }
                () = tokio::time::sleep_until(drawn + DRAW_EVERY), if due => {
                    self.draw()?;
                    (drawn, due) = (Instant::now(), false);
                }
                Some(update) = self.updates.recv() => {
                    self.view.update(update);
                    due = true;
                }
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
            }
        }
    }

    /// `Some` when it ends.
    fn input(&mut self, input: Option<Input>) -> Result<Option<Done>, Failure> {
        match input {
            Some(Input::Event(Event::Key(key))) if key.kind == KeyEventKind::Release => Ok(None),
            Some(Input::Event(Event::Key(KeyEvent { code: KeyCode::Char('z'), modifiers, .. })))
                if modifiers.contains(KeyModifiers::CONTROL) =>
            {
                self.screen.suspend()?;
                Ok(None)
            }
            Some(Input::Event(Event::Key(key))) => {
                match self.view.key(key) {
                    Some(Effect::Quit) => return Ok(Some(Done::Well)),
                    Some(Effect::Do(action)) => {
                        self.tasks.spawn(feed::act(self.home.clone(), self.sender.clone(), action));
                    }
                    Some(Effect::Follow(server)) => {
                        self.log_of.send_if_modified(|of| std::mem::replace(of, server.clone()) != server);
                    }
                    None => {}
                }
                Ok(None)
            }
            Some(Input::Event(_)) => Ok(None),
            // As a shell reports a program that a signal ended.
            Some(Input::Signal(signal)) => Ok(Some(Done::Code(u8::try_from(128 + signal).unwrap_or(1)))),
            Some(Input::Gone) | None => Ok(Some(Done::Badly)),
        }
    }

    fn draw(&mut self) -> Result<(), Failure> {
        self.screen.terminal.draw(|frame| draw::draw(&self.view, frame))?;
        Ok(())
    }
}
