//! `breaker`: closing an open one by hand.

use super::{Context, servers};
use crate::cli::BreakerAction;
use crate::failure::{Done, Failure};
use crate::render::{json, text};

/// Does one action.
pub(super) async fn run(cx: &Context, action: BreakerAction) -> Result<Done, Failure> {
    match action {
        BreakerAction::Reset(server) => {
            let status = cx.client().await?.reset_breaker(&server.name).await?;
            cx.print(
                || json::of(&status),
                || {
                    let line =
                        format!("breaker of {} closed; it is {}", status.name, servers::state(&status));
                    format!("{}\n", text::plain(&line))
                },
            )?;
            Ok(Done::Well)
        }
    }
}
