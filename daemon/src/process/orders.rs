//! The frames between the daemon and a guard.
//!
//! Pure. A frame is its length (u32, little endian), a kind byte and a body; both ends are the
//! same executable, so there is no version. A command with its secrets travels here and not in
//! the guard's arguments, which everybody can read.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Largest frame in bytes. The kernel takes at most 2 MiB of arguments and environment by default.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;

/// What to start, as the guard gets it.
#[derive(Clone, PartialEq, Eq)]
pub struct LaunchOrder {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments after the program's name.
    pub args: Vec<OsString>,
    /// The whole environment of the server.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// What happens to processes that left the session.
    pub leavers: Leavers,
    /// Soft limit of open descriptors; `None` leaves the inherited one.
    pub descriptors: Option<u64>,
    /// Set when the program is a container client.
    pub container: Option<ContainerOrder>,
}

impl std::fmt::Debug for LaunchOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments and environment may hold secrets.
        f.debug_struct("LaunchOrder").field("program", &self.program).finish_non_exhaustive()
    }
}

/// What happens to processes that left the server's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leavers {
    /// They end with the server.
    End,
    /// They stay.
    Keep,
}

/// How to find and end the container behind a client program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerOrder {
    /// Value of the label `hermesd.instance`.
    pub label: String,
    /// Where the client writes the container's id; `None` when only the label can be used.
    pub cidfile: Option<PathBuf>,
    /// What to do with a stopped container.
    pub after: AfterStop,
    /// The client's options before `run` (which host, which context); every further call needs them.
    pub globals: Vec<OsString>,
}

/// What to do with a stopped container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterStop {
    /// The user wrote `--rm`: remove it.
    Remove,
    /// Leave it stopped.
    Leave,
}

/// From the daemon to the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Start the server; the first frame, once.
    Launch(Box<LaunchOrder>),
    /// End everything within so many milliseconds.
    Stop {
        /// The guard's budget.
        budget_ms: u32,
    },
    /// Be the nursery: first and only frame, answered by [`Report::Spawned`]; from then on each
    /// message brings the descriptors of one new guard.
    Nurse,
}

/// Which step of a start went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Creating the process.
    Fork,
    /// Entering the working directory.
    Cwd,
    /// Running the program.
    Exec,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A process that the guard ended besides the server itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Process id.
    pub pid: u32,
    /// Short name, at most 16 bytes, as the process chose it.
    pub name: String,
    /// Whether it had left the server's session.
    pub left_session: bool,
}

/// From the guard to the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The program runs under this pid.
    Spawned {
        /// Leader of the server's process group.
        pid: u32,
    },
    /// The program could not be started; nothing is left.
    Refused {
        /// Where it went wrong.
        step: Step,
        /// The system's error number.
        errno: i32,
    },
    /// The server ended; its tree may still be there.
    Exited(Status),
    /// What was ended besides the server; at most [`MAX_LISTED`] of them.
    Ended(Vec<Ended>),
    /// These outlived KILL within the budget; at most [`MAX_LISTED`] of them.
    Survivors(Vec<u32>),
    /// Nothing of the server is left. Last frame.
    Empty,
}

/// Most processes named in one report, so that a report always fits the socket's buffer.
pub const MAX_LISTED: usize = 64;

/// A frame that makes no sense; the other end is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// Longer than [`MAX_FRAME`].
    #[error("frame of {len} bytes, limit {MAX_FRAME}")]
    TooLong {
        /// Announced length in bytes.
        len: usize,
    },
    /// Kind or body unknown.
    #[error("frame of kind {kind} cannot be read")]
    Unreadable {
        /// The kind byte.
        kind: u8,
    },
}

/// Cuts a byte stream into frames; any chunking gives the same frames.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame as kind and body, `None` until more is pushed.
    ///
    /// # Errors
    /// [`BadFrame::TooLong`]; the stream cannot be read on.
    fn next_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, BadFrame> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > MAX_FRAME {
            return Err(BadFrame::TooLong { len });
        }
        if rest.len() < len {
            return Ok(None);
        }
        let Some((kind, body)) = rest[..len].split_first() else {
            return Err(BadFrame::Unreadable { kind: 0 });
        };
        let frame = (*kind, body.to_vec());
        self.buffer.drain(..4 + len);
        Ok(Some(frame))
    }

    /// The next order.
    ///
    /// # Errors
    /// [`BadFrame`]; the stream cannot be read on.
    pub fn next_order(&mut self) -> Result<Option<Order>, BadFrame> {
        let Some((kind, body)) = self.next_frame()? else { return Ok(None) };
        parse_order(kind, &body).map(Some).ok_or(BadFrame::Unreadable { kind })
    }

    /// The next report.
    ///
    /// # Errors
    /// [`BadFrame`]; the stream cannot be read on.
    pub fn next_report(&mut self) -> Result<Option<Report>, BadFrame> {
        let Some((kind, body)) = self.next_frame()? else { return Ok(None) };
        parse_report(kind, &body).map(Some).ok_or(BadFrame::Unreadable { kind })
    }
}

impl Order {
    /// The frame of this order.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        match self {
            Self::Launch(launch) => {
                out.byte(1);
                out.text(launch.program.as_os_str());
                out.count(launch.args.len());
                launch.args.iter().for_each(|arg| out.text(arg));
                out.count(launch.env.len());
                for (name, value) in &launch.env {
                    out.text(name);
                    out.text(value);
                }
                out.text(launch.cwd.as_os_str());
                out.byte(u8::from(launch.leavers == Leavers::Keep));
                out.wide(launch.descriptors.unwrap_or(0));
                match &launch.container {
                    None => out.byte(0),
                    Some(container) => {
                        out.byte(1);
                        out.text(OsStr::new(&container.label));
                        out.text(container.cidfile.as_ref().map_or(OsStr::new(""), |path| path.as_os_str()));
                        out.byte(u8::from(container.after == AfterStop::Remove));
                        out.count(container.globals.len());
                        container.globals.iter().for_each(|option| out.text(option));
                    }
                }
            }
            Self::Stop { budget_ms } => {
                out.byte(2);
                out.number(*budget_ms);
            }
            Self::Nurse => out.byte(3),
        }
        out.frame()
    }
}

impl Report {
    /// The frame of this report; longer lists are cut to [`MAX_LISTED`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        match self {
            Self::Spawned { pid } => {
                out.byte(1);
                out.number(*pid);
            }
            Self::Refused { step, errno } => {
                out.byte(2);
                out.byte(match step {
                    Step::Fork => 0,
                    Step::Cwd => 1,
                    Step::Exec => 2,
                });
                out.number(errno.cast_unsigned());
            }
            Self::Exited(status) => {
                out.byte(3);
                let (kind, number) = match status {
                    Status::Code(code) => (0, *code),
                    Status::Signal(signal) => (1, *signal),
                };
                out.byte(kind);
                out.number(number.cast_unsigned());
            }
            Self::Ended(list) => {
                out.byte(4);
                let list = &list[..list.len().min(MAX_LISTED)];
                out.count(list.len());
                for ended in list {
                    out.number(ended.pid);
                    out.text(OsStr::new(&ended.name));
                    out.byte(u8::from(ended.left_session));
                }
            }
            Self::Survivors(pids) => {
                out.byte(5);
                let pids = &pids[..pids.len().min(MAX_LISTED)];
                out.count(pids.len());
                pids.iter().for_each(|pid| out.number(*pid));
            }
            Self::Empty => out.byte(6),
        }
        out.frame()
    }
}

fn parse_order(kind: u8, body: &[u8]) -> Option<Order> {
    let mut from = Reader(body);
    let order = match kind {
        1 => {
            let program = from.text()?.into();
            let args = (0..from.number()?).map(|_| from.text()).collect::<Option<_>>()?;
            let env =
                (0..from.number()?).map(|_| Some((from.text()?, from.text()?))).collect::<Option<_>>()?;
            let cwd = from.text()?.into();
            let leavers = if from.flag()? { Leavers::Keep } else { Leavers::End };
            let descriptors = Some(from.wide()?).filter(|limit| *limit != 0);
            let container = if from.flag()? {
                let label = from.text()?.into_string().ok()?;
                let cidfile = Some(from.text()?).filter(|path| !path.is_empty()).map(PathBuf::from);
                let after = if from.flag()? { AfterStop::Remove } else { AfterStop::Leave };
                let globals = (0..from.number()?).map(|_| from.text()).collect::<Option<_>>()?;
                Some(ContainerOrder { label, cidfile, after, globals })
            } else {
                None
            };
            Order::Launch(Box::new(LaunchOrder { program, args, env, cwd, leavers, descriptors, container }))
        }
        2 => Order::Stop { budget_ms: from.number()? },
        3 => Order::Nurse,
        _ => return None,
    };
    from.0.is_empty().then_some(order)
}

fn parse_report(kind: u8, body: &[u8]) -> Option<Report> {
    let mut from = Reader(body);
    let report = match kind {
        1 => Report::Spawned { pid: from.number()? },
        2 => {
            let step = match from.byte()? {
                0 => Step::Fork,
                1 => Step::Cwd,
                2 => Step::Exec,
                _ => return None,
            };
            Report::Refused { step, errno: from.number()?.cast_signed() }
        }
        3 => {
            let signalled = from.flag()?;
            let number = from.number()?.cast_signed();
            Report::Exited(if signalled { Status::Signal(number) } else { Status::Code(number) })
        }
        4 => {
            let count = from.number()?;
            let mut one = || {
                Some(Ended {
                    pid: from.number()?,
                    name: from.text()?.into_string().ok()?,
                    left_session: from.flag()?,
                })
            };
            let list = (0..count).map(|_| one()).collect::<Option<_>>()?;
            Report::Ended(list)
        }
        5 => {
            let count = from.number()?;
            Report::Survivors((0..count).map(|_| from.number()).collect::<Option<_>>()?)
        }
        6 => Report::Empty,
        _ => return None,
    };
    from.0.is_empty().then_some(report)
}

struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Self {
        Self(vec![0; 4])
    }

    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn wide(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.number(u32::try_from(count).expect("lists come from config and from capped reports"));
    }

    fn text(&mut self, text: &OsStr) {
        self.count(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn frame(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len() - 4).expect("the kernel refuses far smaller commands");
        self.0[..4].copy_from_slice(&len.to_le_bytes());
        self.0
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    fn wide(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    fn text(&mut self) -> Option<OsString> {
        let len = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(OsString::from_vec(text.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = OsString> {
        prop::collection::vec(any::<u8>(), 0..12).prop_map(OsString::from_vec)
    }

    fn container() -> impl Strategy<Value = Option<ContainerOrder>> {
        prop::option::of(
            (
                "[a-z0-9]{1,9}",
                prop::option::of("/[a-z]{1,9}"),
                any::<bool>(),
                prop::collection::vec(text(), 0..3),
            )
                .prop_map(|(label, cid, rm, globals)| {
                    let after = if rm { AfterStop::Remove } else { AfterStop::Leave };
                    ContainerOrder { label, cidfile: cid.map(PathBuf::from), after, globals }
                }),
        )
    }

    fn order() -> impl Strategy<Value = Order> {
        let launch = (
            text(),
            prop::collection::vec(text(), 0..4),
            prop::collection::vec((text(), text()), 0..4),
            text(),
            any::<bool>(),
            prop::option::of(1u64..),
            container(),
        )
            .prop_map(|(program, args, env, cwd, keep, descriptors, container)| {
                let leavers = if keep { Leavers::Keep } else { Leavers::End };
                Order::Launch(Box::new(LaunchOrder {
                    program: program.into(),
                    args,
                    env,
                    cwd: cwd.into(),
                    leavers,
                    descriptors,
                    container,
                }))
            });
        prop_oneof![launch, any::<u32>().prop_map(|budget_ms| Order::Stop { budget_ms }), Just(Order::Nurse)]
    }

    fn report() -> impl Strategy<Value = Report> {
        let ended = (any::<u32>(), ".{0,9}", any::<bool>()).prop_map(|(pid, name, left_session)| Ended {
            pid,
            name,
            left_session,
        });
        prop_oneof![
            any::<u32>().prop_map(|pid| Report::Spawned { pid }),
            (prop_oneof![Just(Step::Fork), Just(Step::Cwd), Just(Step::Exec)], any::<i32>())
                .prop_map(|(step, errno)| Report::Refused { step, errno }),
            any::<i32>().prop_map(|code| Report::Exited(Status::Code(code))),
            any::<i32>().prop_map(|signal| Report::Exited(Status::Signal(signal))),
            prop::collection::vec(ended, 0..4).prop_map(Report::Ended),
            prop::collection::vec(any::<u32>(), 0..4).prop_map(Report::Survivors),
            Just(Report::Empty),
        ]
    }

    proptest! {
        #[test]
        fn orders_come_back_whole_whatever_the_chunks(orders in prop::collection::vec(order(), 0..4), chunk in 1usize..40) {
            let bytes: Vec<u8> = orders.iter().flat_map(Order::encode).collect();
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(chunk) {
                frames.push(piece);
                while let Some(order) = frames.next_order().unwrap() { seen.push(order); }
            }
            prop_assert!(seen == orders);
        }

        #[test]
        fn reports_come_back_whole_whatever_the_chunks(reports in prop::collection::vec(report(), 0..4), chunk in 1usize..40) {
            let bytes: Vec<u8> = reports.iter().flat_map(Report::encode).collect();
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(chunk) {
                frames.push(piece);
                while let Some(report) = frames.next_report().unwrap() { seen.push(report); }
            }
            prop_assert_eq!(seen, reports);
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.push(&bytes);
            while let Ok(Some(_)) = frames.next_report() {}
            let mut frames = Frames::default();
            frames.push(&bytes);
            while let Ok(Some(_)) = frames.next_order() {}
        }
    }

    #[test]
    fn a_list_of_any_length_stays_below_the_socket_buffer() {
        let many = (0..10_000)
            .map(|pid| Ended { pid, name: "sixteen bytes ok".to_owned(), left_session: true })
            .collect();
        assert!(Report::Ended(many).encode().len() < 8 * 1024);
    }
}
