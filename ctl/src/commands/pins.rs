//! `pins`: texts of servers that models see, as they were first seen or approved.

use super::{Context, audit};
use crate::cli::PinsAction;
use crate::client::Which;
use crate::failure::{Done, Failure};
use crate::render::table::{Table, Tone};
use crate::render::{json, text};
use hermes_proto::control as pb;
use std::fmt::Write as _;

/// Does one action; lists without one.
pub(super) async fn run(cx: &Context, action: Option<PinsAction>) -> Result<Done, Failure> {
    let mut client = cx.client().await?;
    match action.unwrap_or(PinsAction::List { server: None }) {
        PinsAction::List { server } => {
            let pins = client.pins(server.as_deref().unwrap_or(""), Which::All).await?;
            cx.print(|| json::of(&pins), || table(cx, &pins))?;
        }
        PinsAction::Diff { server } => {
            let pins = client.pins(server.as_deref().unwrap_or(""), Which::Changed).await?;
            cx.print(|| json::of(&pins), || diff(&pins.pins))?;
        }
        PinsAction::Approve { server, name, kind } => {
            let (name, kind) = (name.as_deref().unwrap_or(""), kind.as_deref().unwrap_or(""));
            let approved = client.approve_pins(&server, kind, name).await?;
            cx.print(
                || json::of(&approved),
                || match approved.len() {
                    0 => format!("nothing of {} has changed\n", text::plain(&server)),
                    _ => format!("approved: {}\n", text::plain(&approved.join(", "))),
                },
            )?;
        }
    }
    Ok(Done::Well)
}

fn table(cx: &Context, pins: &pb::ListPinsResponse) -> String {
    let mut table = Table::new(&["server", "kind", "name", "state", "since"]);
    for pin in &pins.pins {
        let (state, tone, since) = match (pin.changed_digest.is_empty(), pin.withheld) {
            (true, _) if pin.approved_ms != 0 => ("approved", Tone::Good, pin.approved_ms),
            (true, _) => ("first seen", Tone::Plain, pin.first_seen_ms),
            (false, true) => ("changed, withheld", Tone::Bad, pin.changed_ms),
            (false, false) => ("changed", Tone::Wary, pin.changed_ms),
        };
        table.row([
            (pin.server.clone(), Tone::Plain),
            (pin.kind.clone(), Tone::Plain),
            (pin.name.clone(), Tone::Plain),
            (state.to_owned(), tone),
            (audit::when(since), Tone::Plain),
        ]);
    }
    let mut out = if table.is_empty() { "nothing is pinned\n".to_owned() } else { table.render(cx.style) };
    if pins.lost_ms != 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "pins were lost at {}: what was pinned before is unknown",
            audit::when(pins.lost_ms)
        );
    }
    out
}

/// Lines that are gone with `-`, new ones with `+`; a part of an item is one line.
fn diff(pins: &[pb::Pin]) -> String {
    if pins.is_empty() {
        return "nothing has changed\n".to_owned();
    }
    let mut out = String::new();
    for pin in pins {
        let head = format!("{} {} {}", pin.server, pin.kind, pin.name);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}{}", text::plain(&head), if pin.withheld { " (withheld)" } else { "" });
        let (old, new): (Vec<&str>, Vec<&str>) =
            (pin.text.lines().collect(), pin.changed_text.lines().collect());
        for line in old.iter().filter(|line| !new.contains(line)) {
            let _ = writeln!(out, "  - {}", text::plain(line));
        }
        for line in new.iter().filter(|line| !old.contains(line)) {
            let _ = writeln!(out, "  + {}", text::plain(line));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_only_the_parts_that_changed() {
        let pin = pb::Pin {
            server: "s".into(),
            kind: "tool".into(),
            name: "t".into(),
            text: "name t\ndescription old\n".into(),
            changed_text: "name t\ndescription new\x1b[2J\n".into(),
            withheld: true,
            ..Default::default()
        };
        assert_eq!(diff(&[pin]), "s tool t (withheld)\n  - description old\n  + description new\\u{1b}[2J\n");
    }
}
