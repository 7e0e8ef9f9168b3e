//! One message on its way: part after part, then its files.
//!
//! Owner: the task that runs [`Delivery::run`]. Promise: no part is sent twice unless the platform takes it
//! once; a call that is cancelled lets the request in flight end and sends no further one; waiting for a
//! platform that limits is bounded. May not touch: the configuration, the database.

use super::http::Http;
use super::media::Attachment;
use super::problem::{Failure, Reached, Stopped};
use super::route::{Repeat, Route};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Tries of one request.
const TRIES: u32 = 3;
/// Longest time that one message waits because its platform limits; clients give up after about 60 s.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest time for a whole message; no part is begun after it.
const WHOLE: Duration = Duration::from_secs(150);
/// Wait before a request whose outcome is unknown is made again.
const AGAIN: Duration = Duration::from_secs(1);
/// Characters of a missing part that are shown.
const SHOWN: usize = 80;

/// A message ready to go.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) route: Route,
    pub(super) http: Http,
    /// The parts as they are sent.
    pub(super) parts: Vec<String>,
    pub(super) files: Vec<Attachment>,
    /// The first part to send; those before it arrived earlier.
    pub(super) first: usize,
    /// Random, the same for all tries of this message.
    pub(super) mark: String,
    /// Cancelled when nobody waits for the outcome any more, or the daemon ends.
    pub(super) stop: CancellationToken,
    /// `platform:chat`, for people.
    pub(super) target: String,
}

/// A message that arrived.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// The platform's ids, in order, where it gives any.
    pub(super) ids: Vec<String>,
    /// What went less than well.
    pub(super) warnings: Vec<String>,
}

/// One request of a delivery.
#[derive(Debug, Clone, Copy)]
enum Step {
    Open,
    Text(usize),
    File(usize),
}

impl Delivery {
    /// Sends everything.
    ///
    /// # Errors
    /// [`Stopped`] with how far it came.
    /// # Cancel safety
    /// Not cancel safe: dropped, a request may have been executed. Cancel `stop` in its place.
    pub(super) async fn run(&mut self) -> Result<Arrived, Box<Stopped>> {
        let mut arrived = Arrived::default();
        let (begun, mut patience) = (Instant::now(), PATIENCE);
        if let Err(failure) = self.tried(Step::Open, &mut patience).await {
            return Err(self.stopped(self.first, failure));
        }
        for at in self.first..self.parts.len() {
            if let Some(failure) = self.over(begun) {
                return Err(self.stopped(at, failure));
            }
            match self.tried(Step::Text(at), &mut patience).await {
                Ok(receipt) => {
                    arrived.ids.extend(receipt.id);
                    arrived.warnings.extend(receipt.warning);
                }
                Err(failure) => return Err(self.stopped(at, failure)),
            }
        }
        self.send_files(begun, &mut patience, &mut arrived).await?;
        Ok(arrived)
    }

    /// Sends the files. One that fails is a warning, unless the message is nothing else.
    async fn send_files(
        &mut self,
        begun: Instant,
        patience: &mut Duration,
        arrived: &mut Arrived,
    ) -> Result<(), Box<Stopped>> {
        let mut failed = None;
        let mut reached = 0;
        for at in 0..self.files.len() {
            let outcome = match self.over(begun) {
                Some(failure) => Err(failure),
                None => self.tried(Step::File(at), patience).await,
            };
            match outcome {
                Ok(receipt) => {
                    reached += 1;
                    arrived.ids.extend(receipt.id);
                    arrived.warnings.extend(receipt.warning);
                }
                Err(failure) => {
                    let name = &self.files[at].name;
                    arrived.warnings.push(match &failure {
                        Failure::Unknown { why } => format!("it is not known whether {name} arrived: {why}"),
                        other => format!("{name} was not sent: {other}"),
                    });
                    // An unknown outcome outweighs a refusal: it forbids another try.
                    if !matches!(failed, Some(Failure::Unknown { .. })) {
                        failed = Some(failure);
                    }
                }
            }
        }
        match failed {
            Some(failure) if self.parts.is_empty() && reached == 0 => Err(self.stopped(0, failure)),
            _ => Ok(()),
        }
    }

    /// Why no further request may be begun.
    fn over(&self, begun: Instant) -> Option<Failure> {
        let why = if self.stop.is_cancelled() {
            "the call was cancelled"
        } else if begun.elapsed() > WHOLE {
            "it took too long"
        } else {
            return None;
        };
        Some(Failure::NotSent { why: why.to_owned() })
    }

    /// Makes a request, and once more where that cannot send anything twice.
    async fn tried(&mut self, step: Step, patience: &mut Duration) -> Result<super::route::Receipt, Failure> {
        let mut unknown: Option<Failure> = None;
        for attempt in 1..=TRIES {
            if self.stop.is_cancelled() {
                let cancelled = Failure::NotSent { why: "the call was cancelled".to_owned() };
                return Err(unknown.unwrap_or(cancelled));
            }
            let failure = match self.attempt(step).await {
                Ok(receipt) => return Ok(receipt),
                Err(failure) => failure,
            };
            let wait = match &failure {
                Failure::Limited { retry_after, .. } => {
                    retry_after.unwrap_or(Duration::from_secs(1 << attempt))
                }
                Failure::Unknown { .. }
                    if matches!(step, Step::Text(_)) && self.route.repeat() == Repeat::Safe =>
                {
                    unknown = Some(failure.clone());
                    AGAIN
                }
                // What an earlier try left open stays open, whatever a later one says.
                Failure::NotSent { .. } | Failure::Unknown { .. } => return Err(unknown.unwrap_or(failure)),
            };
            if attempt == TRIES || wait > *patience {
                return Err(unknown.unwrap_or(failure));
            }
            *patience -= wait;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(unknown.unwrap_or(failure)),
                () = tokio::time::sleep(wait) => {}
            }
        }
        unreachable!("the last try returns")
    }

    async fn attempt(&mut self, step: Step) -> Result<super::route::Receipt, Failure> {
        match step {
            Step::Open => self.route.open(&self.http).await.map(|()| super::route::Receipt::default()),
            Step::Text(at) => {
                let mark = format!("{}{at:02}", self.mark);
                self.route.text(&self.http, &self.parts[at], &mark).await
            }
            Step::File(at) => {
                let mark = format!("{}f{at:02}", self.mark);
                self.route.file(&self.http, &self.files[at], &mark).await
            }
        }
    }

    fn stopped(&self, at: usize, failure: Failure) -> Box<Stopped> {
        let retry_after = match &failure {
            Failure::Limited { retry_after, .. } => *retry_after,
            Failure::NotSent { .. } | Failure::Unknown { .. } => None,
        };
        let reached = match failure {
            Failure::Unknown { .. } => Reached::Unknown,
            Failure::NotSent { .. } | Failure::Limited { .. } if at == 0 => Reached::Nothing,
            Failure::NotSent { .. } | Failure::Limited { .. } => Reached::Partly,
        };
        let missing = self.parts.get(at).filter(|_| at > 0);
        Box::new(Stopped {
            target: self.target.clone(),
            reached,
            sent: at,
            of: self.parts.len().max(1),
            why: failure.to_string(),
            retry_after,
            missing_from: missing.map(|part| {
                let text: String = part.trim().chars().take(SHOWN).collect();
                text.split_whitespace().collect::<Vec<_>>().join(" ")
            }),
        })
    }
}
