//! A program on a terminal of its own, as a person at a keyboard has it.
//!
//! The bytes that came are kept; [`Pty::screen`] plays them on a grid: moves, clearing, line ends.

use crate::wait::{SOON, wait_for, wait_some};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// A running program and the far end of its terminal.
#[derive(Debug)]
pub struct Pty {
    child: Child,
    far: File,
    near: OwnedFd,
    heard: Arc<Mutex<Vec<u8>>>,
    columns: u16,
    lines: u16,
}

impl Pty {
    /// Starts `command` on a terminal of this size. It leads a session of its own where the machine has
    /// `setsid`, so that no terminal of whoever runs the tests is in its way.
    ///
    /// # Panics
    /// When the machine gives no terminal, or the command cannot be started.
    pub fn start(command: &Command, columns: u16, lines: u16) -> Self {
        let far = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        rustix::pty::grantpt(&far).expect("a new terminal");
        rustix::pty::unlockpt(&far).expect("a new terminal");
        let name = rustix::pty::ptsname(&far, Vec::new()).expect("a new terminal");
        let near = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
            .expect("a new terminal");
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&far, size).expect("a new terminal");
        let end = || Stdio::from(near.try_clone().expect("an open file"));
        let mut led = led(command);
        let child = led.stdin(end()).stdout(end()).stderr(end()).spawn().expect("the command can be started");
        let far = File::from(far);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, kept) = (far.try_clone().expect("an open file"), heard.clone());
        std::thread::spawn(move || {
            let mut room = [0; 4096];
            // Ends with the last program on the terminal.
            while let Ok(n @ 1..) = reader.read(&mut room) {
                kept.lock().expect("no holder panics").extend_from_slice(&room[..n]);
            }
        });
        Self { child, far, near, heard, columns, lines }
    }

    /// Types.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn type_in(&mut self, keys: &str) {
        self.far.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Everything that came, orders to the terminal included.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().expect("no holder panics")).into_owned()
    }

    /// What stands on the screen, line by line.
    pub fn screen(&self) -> String {
        shown(&self.raw(), self.columns, self.lines)
    }

    /// Waits until the words show.
    #[track_caller]
    pub fn wait_words(&self, words: &str) {
        let words_shown = || self.screen().contains(words);
        wait_for(&format!("{words} on the screen, which says {}", self.screen()), SOON, words_shown);
    }

    /// Whether the terminal shows what is typed and gives it out line by line, as a shell needs it.
    pub fn is_cooked(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.near).expect("the terminal is there").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// The pid of the program.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the end of the program.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_some("the program ends", SOON, || child.try_wait().expect("a child of this process"))
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same command with a session and this terminal of its own.
fn led(command: &Command) -> Command {
    let setsid =
        ["/usr/bin/setsid", "/bin/setsid"].into_iter().find(|path| std::path::Path::new(path).exists());
    let mut led = match setsid {
        Some(setsid) => {
            let mut led = Command::new(setsid);
            led.arg("-c").arg(command.get_program());
            led
        }
        None => Command::new(command.get_program()),
    };
    led.args(command.get_args()).env_clear();
    led.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = command.get_current_dir() {
        led.current_dir(dir);
    }
    led
}

/// Plays what came on a grid. Only the orders that place or clear text count.
fn shown(raw: &str, columns: u16, lines: u16) -> String {
    let (columns, lines) = (usize::from(columns), usize::from(lines));
    let mut grid = vec![vec![' '; columns]; lines];
    let (mut row, mut column) = (0, 0);
    let mut rest = raw.chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => {
                if rest.next() != Some('[') {
                    continue;
                }
                let mut order = String::new();
                let end = rest.by_ref().find(|c| {
                    let ends = c.is_ascii_alphabetic();
                    if !ends {
                        order.push(*c);
                    }
                    ends
                });
                let number = |at: usize| order.split(';').nth(at).and_then(|n| n.parse::<usize>().ok());
                match end {
                    Some('H') => (row, column) = (number(0).unwrap_or(1) - 1, number(1).unwrap_or(1) - 1),
                    Some('J') => grid.iter_mut().for_each(|line| line.fill(' ')),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' if row + 1 < lines => row += 1,
            '\n' => grid.rotate_left(1),
            c => {
                if let Some(cell) = grid.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
            }
        }
    }
    grid.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
}
