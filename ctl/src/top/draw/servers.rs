//! The table of servers, and the line below it that says why the chosen one is as it is.
//!
//! Pure.

use super::super::state::View;
use super::{bold, chosen, short, style};
use crate::commands::servers::{breaker, tone};
use crate::render::{json, text};
use hermes_proto::control as pb;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use std::time::Duration;

/// From this width on there is room for two more columns.
const WIDE: u16 = 104;
/// Characters of a server's curve.
const CURVE: u16 = 8;

/// One row for each server.
pub(super) fn table(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let servers = view.servers();
    if servers.is_empty() {
        let words = match &view.snapshot {
            Some(_) => "no servers: add them under mcp_servers in config.yaml",
            None => "",
        };
        frame.render_widget(Paragraph::new(words), area);
        return;
    }
    let wide = area.width >= WIDE;
    let mut widths = vec![Constraint::Fill(1), Constraint::Length(12)];
    let mut header = vec![Line::from(format!("SERVER by {}", view.sort.word())), Line::from("STATE")];
    let mut column = |name: &'static str, width: u16| {
        widths.push(Constraint::Length(width));
        header.push(Line::from(name).alignment(Alignment::Right));
    };
    column("GEN", 3);
    column("RST", 3);
    column("FLY", 5);
    column("P50", 5);
    column("P95", 5);
    column("ERR", 5);
    column("MEM", 5);
    if wide {
        column("CALLS", 6);
        column("UP", 8);
    }
    column("CALLS/S", CURVE);
    let rows = servers.iter().map(|server| row(view, server, wide));
    let at = servers.iter().position(|server| server.name == view.server);
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(bold()))
        .column_spacing(1)
        .row_highlight_style(if view.in_panel { bold() } else { chosen() });
    let mut state = TableState::new().with_selected(at);
    frame.render_stateful_widget(table, area, &mut state);
}

fn row<'a>(view: &'a View, server: &'a pb::ServerStatus, wide: bool) -> Row<'a> {
    let figures = view.figures(&server.name);
    let right = |words: String| Cell::from(Line::from(words).alignment(Alignment::Right));
    let in_flight = match server.waiting {
        0 => server.in_flight.to_string(),
        waiting => format!("{}+{waiting}", server.in_flight),
    };
    let span =
        |of: fn(&pb::Figures) -> u64| figures.map_or("-".to_owned(), |figures| short::span(of(figures)));
    let errors = figures.map_or(0, |figures| figures.errors);
    let mut cells = vec![
        Cell::from(text::plain(&server.name)),
        Cell::from(Span::styled(state(server), style(view, tone(server)))),
        right(server.generation.to_string()),
        right(server.restarts.to_string()),
        right(in_flight),
        right(span(|figures| figures.p50_micros)),
        right(span(|figures| figures.p95_micros)),
        right(short::count(errors)),
        right(short::bytes(server.memory_bytes)),
    ];
    if wide {
        cells.push(right(short::count(figures.map_or(0, |figures| figures.calls))));
        let up = Duration::from_millis(server.uptime_ms);
        cells.push(right(if up.is_zero() { "-".to_owned() } else { text::span(up) }));
    }
    cells.push(right(view.history.curve_of(&server.name, usize::from(CURVE), view.glyphs)));
    Row::new(cells)
}

/// The state in at most twelve characters; an open breaker is what matters most.
fn state(server: &pb::ServerStatus) -> String {
    let Some(breaker) = &server.breaker else { return phase(server) };
    match pb::BreakerState::try_from(breaker.state) {
        Ok(pb::BreakerState::Open) => {
            format!("open {}", text::span(Duration::from_millis(breaker.retry_in_ms)))
        }
        Ok(pb::BreakerState::HalfOpen) => "half open".to_owned(),
        Ok(pb::BreakerState::Closed | pb::BreakerState::Unspecified) | Err(_) => phase(server),
    }
}

fn phase(server: &pb::ServerStatus) -> String {
    json::phase_word(server.phase).replace('_', " ")
}

/// Why the chosen server is as it is, and what comes next.
pub(super) fn why(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let Some(server) = view.servers().into_iter().find(|server| server.name == view.server) else { return };
    let mut words = vec![phase(server)];
    words.extend(breaker(server));
    words.extend(Some(server.reason.clone()).filter(|reason| !reason.is_empty()));
    if let Some(ms) = server.next_step_ms {
        words.push(format!("next step in {}", text::span(Duration::from_millis(ms))));
    }
    if server.processes > 1 {
        words.push(format!("{} processes", server.processes));
    }
    let line = format!("{}: {}", server.name, words.join("; "));
    frame.render_widget(Paragraph::new(text::summary(&line, usize::from(area.width))), area);
}
