//! The reader thread: files and SQLite block, the runtime must not.
//!
//! Owner: the handles that hold a [`Reader`]; the thread ends when the last one is gone. Promise:
//! calls are answered one after the other, in the order in which they came; a call whose caller is
//! gone is not started. May not touch: anything but its [`Library`].

use super::reply::{self, Refusal, ToolReply};
use super::tools::{Library, Reading};
use serde_json::value::RawValue;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Calls that may wait for the reader. One more is refused.
pub(super) const WAITING: usize = 64;
/// Longest wait for an answer, the time in the queue included.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long an unused connection to state.db is kept.
const IDLE_CLOSE: Duration = Duration::from_secs(60);

/// One call on its way to the thread.
#[derive(Debug)]
pub(super) struct Job {
    tool: Reading,
    arguments: Option<Box<RawValue>>,
    reply: oneshot::Sender<ToolReply>,
}

/// The way to a running reader.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    jobs: SyncSender<Job>,
}

/// What became of a job that was handed over.
pub(super) enum Handed {
    /// It waits for its turn.
    Over(oneshot::Receiver<ToolReply>),
    /// The thread has ended; another one may be started for this call.
    ThreadEnded,
}

impl Reader {
    /// Starts the thread over `library`.
    /// # Errors
    /// When the system has no thread left.
    pub(super) fn start(library: Library) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel(WAITING);
        std::thread::Builder::new().name("conversations".to_owned()).spawn(move || run(library, &queue))?;
        Ok(Self { jobs })
    }

    /// A reader that nobody serves.
    #[cfg(test)]
    pub(super) fn stuck() -> (Self, Receiver<Job>) {
        let (jobs, queue) = sync_channel(1);
        (Self { jobs }, queue)
    }

    /// Hands a call over without waiting.
    /// # Errors
    /// [`Refusal::Crowded`] when the queue is full.
    pub(super) fn hand_over(&self, tool: Reading, arguments: Option<&RawValue>) -> Result<Handed, Refusal> {
        let (reply, answer) = oneshot::channel();
        match self.jobs.try_send(Job { tool, arguments: arguments.map(ToOwned::to_owned), reply }) {
            Ok(()) => Ok(Handed::Over(answer)),
            Err(TrySendError::Full(_)) => Err(Refusal::Crowded { waiting: WAITING }),
            Err(TrySendError::Disconnected(_)) => Ok(Handed::ThreadEnded),
        }
    }
}

fn run(mut library: Library, queue: &Receiver<Job>) {
    loop {
        let next = match queue.recv_timeout(IDLE_CLOSE) {
            Err(RecvTimeoutError::Timeout) => {
                library.close();
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
            next => next,
        };
        let Ok(job) = next else { return };
        if job.reply.is_closed() {
            continue;
        }
        let reply = reply::render(library.answer(job.tool, job.arguments.as_deref()));
        // An error means that the caller left in the meantime: nobody misses the answer.
        let _ = job.reply.send(reply);
    }
}
