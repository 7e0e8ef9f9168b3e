//! What `top` hears from the daemon: a look each second, events and a log as they come.
//!
//! Three loops, each with a connection of its own, so that a slow answer holds up nothing else; they
//! end when nobody listens any more. A daemon that is gone is looked for each second.

use super::line::Line;
use super::state::{Action, Decision, Snapshot, Update};
use crate::client::{Client, Follow};
use crate::commands::events;
use crate::failure::Failure;
use crate::render::table::Tone;
use hermes_proto::control as pb;
use hermes_proto::endpoint::Home;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Lines of a tail that come first.
const FIRST: u32 = 200;

/// Where updates go; full: the daemon waits, and with it only this view.
pub(super) type Updates = mpsc::Sender<Update>;

/// Looks each second until nobody listens.
///
/// # Cancel safety
/// May be dropped at any point.
pub(super) async fn looks(home: Home, updates: Updates) {
    let mut client = None;
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let update = match look(&home, &mut client).await {
            Ok(snapshot) => Update::Looked(Box::new(snapshot)),
            Err(failure) => {
                client = None;
                Update::Lost(failure.to_string())
            }
        };
        if updates.send(update).await.is_err() {
            return;
        }
    }
}

/// One look, over the connection of the last one where there is one.
///
/// # Errors
/// As [`Client::status`].
pub(super) async fn look(home: &Home, client: &mut Option<Client>) -> Result<Snapshot, Failure> {
    let mut open = match client.take() {
        Some(open) => open,
        None => Client::connect(home).await?,
    };
    let snapshot = Snapshot {
        status: open.measured_status().await?,
        stats: open.stats().await?,
        approvals: open.approvals().await?,
    };
    *client = Some(open);
    Ok(snapshot)
}

/// Events until nobody listens.
///
/// # Cancel safety
/// May be dropped at any point.
pub(super) async fn all_events(home: Home, updates: Updates) {
    let mut after = None;
    loop {
        let again = Instant::now() + EVERY;
        // Whatever ends the stream, the look of the next second says it.
        let _ = some_events(&home, &updates, &mut after).await;
        if updates.is_closed() {
            return;
        }
        tokio::time::sleep_until(again).await;
    }
}

async fn some_events(home: &Home, updates: &Updates, after: &mut Option<u64>) -> Result<(), Failure> {
    let mut client = Client::connect(home).await?;
    let wanted = pb::EventsRequest { after_cursor: *after, limit: FIRST, ..Default::default() };
    let mut stream = client.events(wanted, Follow::Yes).await?;
    while let Some(chunk) = stream.next().await? {
        let lines: Vec<Line> =
            chunk.events.iter().map(|event| Line::of(&events::line(event), Tone::Plain)).collect();
        *after = Some(chunk.events.last().map_or(after.unwrap_or(chunk.latest_cursor), |event| event.cursor));
        if !lines.is_empty() && updates.send(Update::Events(lines)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The log that `of` names, until nobody listens.
///
/// # Cancel safety
/// May be dropped at any point.
pub(super) async fn log(home: Home, updates: Updates, mut of: watch::Receiver<String>) {
    loop {
        let again = Instant::now() + EVERY;
        let server = of.borrow_and_update().clone();
        tokio::select! {
            // The name is gone with the screen.
            changed = of.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            ended = some_lines(&home, &updates, &server) => {
                if let Err(failure @ Failure::Refused { .. }) = ended {
                    let line = Line::of(&failure.to_string(), Tone::Bad);
                    let _ = updates.send(Update::Log(vec![line])).await;
                }
            }
        }
        if updates.is_closed() {
            return;
        }
        tokio::select! {
            changed = of.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(again) => {}
        }
    }
}

async fn some_lines(home: &Home, updates: &Updates, server: &str) -> Result<(), Failure> {
    let mut client = Client::connect(home).await?;
    let mut stream = client.logs(server, FIRST, Follow::Yes).await?;
    if updates.send(Update::LogOf(server.to_owned())).await.is_err() {
        return Ok(());
    }
    while let Some(lines) = stream.next().await? {
        let lines = lines.iter().map(|line| Line::of_log(line)).collect();
        if updates.send(Update::Log(lines)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Does one action and says what came of it.
///
/// # Cancel safety
/// Dropped, the daemon may or may not have done it.
pub(super) async fn act(home: Home, updates: Updates, action: Action) {
    let done = done(&home, action).await.map_err(|failure| match failure.hint() {
        "" => failure.to_string(),
        hint => format!("{failure}; {hint}"),
    });
    // The screen may be gone.
    let _ = updates.send(Update::Done(done)).await;
}

async fn done(home: &Home, action: Action) -> Result<String, Failure> {
    use crate::commands::servers::state;
    let mut client = Client::connect(home).await?;
    let is = |server: &pb::ServerStatus| format!("{} is {}", server.name, state(server));
    Ok(match action {
        Action::Start(name) => is(&client.start(&name).await?),
        Action::Stop(name) => is(&client.stop(&name).await?),
        Action::Restart(name) => is(&client.restart(&name).await?),
        Action::ResetBreaker(name) => is(&client.reset_breaker(&name).await?),
        Action::Respond(id, decision) => {
            let word = match decision {
                Decision::AllowOnce => "allow-once",
                Decision::AllowAlways => "allow-always",
                Decision::Deny => "deny",
            };
            format!("call {id}: {}", client.respond(&id, word).await?)
        }
    })
}
