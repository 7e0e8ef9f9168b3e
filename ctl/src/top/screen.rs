//! The terminal while `top` has it: raw, on its other screen, without a cursor.
//!
//! Promise: whatever ends `top` (a key, an error, a signal, a panic), the terminal is as it was.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Stdout, Write, stdout};
use std::sync::Once;
use std::thread;
use tokio::sync::mpsc;

/// What comes from the person's side.
#[derive(Debug)]
pub(super) enum Input {
    /// A key, or a new size.
    Event(Event),
    /// A signal that ends the program.
    Signal(i32),
    /// The terminal cannot be read any more.
    Gone,
}

/// The terminal, taken over.
#[derive(Debug)]
pub(super) struct Screen {
    /// Draws what changed.
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// When stdout is no terminal that can be taken over; it is as it was then.
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).inspect_err(|_| give_back())?;
        Ok(Self { terminal })
    }

    /// Gives the terminal back, stops this process as Ctrl-Z does, and takes it again afterwards.
    ///
    /// # Errors
    /// When the terminal cannot be taken again.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP)?;
        // Here it goes on after `fg`.
        enter()?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, cursor::Hide).inspect_err(|_| give_back())
}

/// Safe to call more than once.
fn give_back() {
    // Nobody is left to tell when the terminal is gone.
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = stdout().flush();
    let _ = disable_raw_mode();
}

/// Keys, sizes and signals as they come, from two threads that end with the process.
///
/// # Errors
/// When signals cannot be watched.
pub(super) fn inputs() -> io::Result<mpsc::Receiver<Input>> {
    let (sender, inputs) = mpsc::channel(64);
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let told = sender.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if told.blocking_send(Input::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    thread::Builder::new().name("keys".into()).spawn(move || {
        loop {
            let input = event::read().map_or(Input::Gone, Input::Event);
            let gone = matches!(input, Input::Gone);
            if sender.blocking_send(input).is_err() || gone {
                return;
            }
        }
    })?;
    Ok(inputs)
}
