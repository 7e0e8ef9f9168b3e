//! What each key does.
//!
//! Pure. Whatever changes something at the daemon is asked about first, and the question names what
//! it is about: the answer goes to that, whatever the list shows by then.

use super::state::{Action, Decision, Effect, Panel, Popup, View};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Lines of one page.
const PAGE: usize = 10;

impl View {
    /// Takes a key; answers what must be done besides drawing.
    pub fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(Effect::Quit);
        }
        self.notice = None;
        match self.popup.take() {
            Some(Popup::Confirm(action)) => match key.code {
                KeyCode::Char('y' | 'Y') | KeyCode::Enter => Some(Effect::Do(action)),
                _ => None,
            },
            Some(Popup::Approval(id)) => {
                let asked = decision(key.code).map(|decision| Action::Respond(id, decision));
                self.popup = asked.map(Popup::Confirm);
                None
            }
            Some(Popup::Server(name)) => {
                self.popup = about_server(key.code, name).map(Popup::Confirm);
                None
            }
            Some(Popup::Help) => (key.code == KeyCode::Char('q')).then_some(Effect::Quit),
            None => self.bare(key.code),
        }
    }

    fn bare(&mut self, code: KeyCode) -> Option<Effect> {
        match code {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.popup = Some(Popup::Help),
            KeyCode::Char(digit @ '1'..='4') => {
                let number = digit.to_digit(10).expect("a digit") as usize;
                self.show(Panel::ALL[number - 1]);
            }
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(Panel::ALL.len() - 1),
            KeyCode::Esc => {
                self.in_panel = false;
                self.scrolled = 0;
            }
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('o') => self.resort(),
            KeyCode::Up | KeyCode::Char('k') => self.step(Step::Up(1)),
            KeyCode::Down | KeyCode::Char('j') => self.step(Step::Down(1)),
            KeyCode::PageUp => self.step(Step::Up(PAGE)),
            KeyCode::PageDown => self.step(Step::Down(PAGE)),
            KeyCode::Home => self.step(Step::Up(usize::MAX)),
            KeyCode::End => self.step(Step::Down(usize::MAX)),
            KeyCode::Enter => self.open(),
            KeyCode::Char('l') if !self.server.is_empty() => {
                self.show(Panel::Log);
                return Some(Effect::Follow(self.server.clone()));
            }
            KeyCode::Char('L') => {
                self.show(Panel::Log);
                return Some(Effect::Follow(String::new()));
            }
            other if self.in_panel && self.panel == Panel::Approvals => {
                let decision = decision(other)?;
                let known = self.waiting().iter().any(|one| one.id == self.approval);
                let action = Action::Respond(self.approval.clone(), decision);
                self.popup = known.then_some(Popup::Confirm(action));
            }
            other if !self.server.is_empty() => {
                self.popup = about_server(other, self.server.clone()).map(Popup::Confirm);
            }
            _ => {}
        }
        None
    }

    /// Shows a list; calls that wait can be chosen at once, and the others can be scrolled.
    fn show(&mut self, panel: Panel) {
        self.panel = panel;
        self.scrolled = 0;
        self.in_panel = panel != Panel::Clients;
    }

    fn turn(&mut self, by: usize) {
        let at = Panel::ALL.iter().position(|panel| *panel == self.panel).unwrap_or(0);
        self.show(Panel::ALL[(at + by) % Panel::ALL.len()]);
    }

    fn open(&mut self) {
        self.popup = match (self.in_panel, self.panel) {
            (true, Panel::Approvals) if !self.waiting().is_empty() => {
                Some(Popup::Approval(self.approval.clone()))
            }
            (true, _) => None,
            (false, _) if self.server.is_empty() => None,
            (false, _) => Some(Popup::Server(self.server.clone())),
        };
    }

    fn step(&mut self, step: Step) {
        match (self.in_panel, self.panel) {
            (true, Panel::Events) => self.scrolled = step.back(self.scrolled, self.events.len()),
            (true, Panel::Log) => self.scrolled = step.back(self.scrolled, self.log.len()),
            (true, Panel::Approvals) => {
                let ids: Vec<String> = self.waiting().iter().map(|one| one.id.clone()).collect();
                step.choose(&ids, &mut self.approval);
            }
            (true, Panel::Clients) | (false, _) => {
                let names: Vec<String> = self.servers().iter().map(|server| server.name.clone()).collect();
                step.choose(&names, &mut self.server);
            }
        }
    }
}

/// A move in a list.
#[derive(Debug, Clone, Copy)]
enum Step {
    Up(usize),
    Down(usize),
}

impl Step {
    fn choose(self, names: &[String], chosen: &mut String) {
        let Some(last) = names.len().checked_sub(1) else { return };
        let at = names.iter().position(|name| name == chosen).unwrap_or(0);
        let to = match self {
            Self::Up(by) => at.saturating_sub(by),
            Self::Down(by) => at.saturating_add(by).min(last),
        };
        chosen.clone_from(&names[to]);
    }

    /// How far back from the end a tail of `len` lines is shown.
    fn back(self, scrolled: usize, len: usize) -> usize {
        match self {
            Self::Up(by) => scrolled.saturating_add(by).min(len.saturating_sub(1)),
            Self::Down(by) => scrolled.saturating_sub(by),
        }
    }
}

fn decision(code: KeyCode) -> Option<Decision> {
    match code {
        KeyCode::Char('a') => Some(Decision::AllowOnce),
        KeyCode::Char('A') => Some(Decision::AllowAlways),
        KeyCode::Char('d') => Some(Decision::Deny),
        _ => None,
    }
}

fn about_server(code: KeyCode, name: String) -> Option<Action> {
    match code {
        KeyCode::Char('s') => Some(Action::Start(name)),
        KeyCode::Char('x') => Some(Action::Stop(name)),
        KeyCode::Char('r') => Some(Action::Restart(name)),
        KeyCode::Char('b') => Some(Action::ResetBreaker(name)),
        _ => None,
    }
}
