//! The lists below the servers: clients, waiting calls, events, a log.
//!
//! Pure.

use super::super::line;
use super::super::state::{Panel, View};
use super::{bold, chosen, dash, short, style};
use crate::render::text;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use std::collections::VecDeque;
use std::time::Duration;

/// Lines that make an end of the log worth its title.
const LEAST_TAIL: u16 = 4;

/// The names of the lists with their keys.
pub(super) fn tabs(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let clients = view.snapshot.as_ref().map_or(0, |snapshot| snapshot.status.clients.len());
    let of = if view.log_of.is_empty() { "hermesd" } else { &view.log_of };
    let mut spans = Vec::new();
    for (number, panel) in Panel::ALL.into_iter().enumerate() {
        let name = match panel {
            Panel::Clients => format!("clients ({clients})"),
            Panel::Approvals => format!("approvals ({})", view.waiting().len()),
            Panel::Events => "events".to_owned(),
            Panel::Log => format!("log of {}", text::summary(of, 20)),
        };
        let style = if panel == view.panel { chosen() } else { bold() };
        spans.push(Span::raw(dash(view).repeat(2)));
        spans.push(Span::styled(format!(" {} {name} ", number + 1), style));
    }
    let back = match (view.scrolled, view.in_panel) {
        (0, _) | (_, false) => String::new(),
        (lines, true) => format!(" {lines} lines back "),
    };
    let width: usize = spans.iter().map(Span::width).sum();
    let rest = usize::from(area.width).saturating_sub(width + back.len());
    spans.push(Span::raw(dash(view).repeat(rest)));
    spans.push(Span::styled(back, bold()));
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

/// The list that was chosen.
pub(super) fn list(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let area = match view.panel {
        Panel::Clients => {
            with_log(view, view.snapshot.as_ref().map_or(0, |now| now.status.clients.len()), frame, area)
        }
        Panel::Approvals => with_log(view, view.waiting().len(), frame, area),
        Panel::Events | Panel::Log => area,
    };
    match view.panel {
        Panel::Clients => clients(view, frame, area),
        Panel::Approvals => approvals(view, frame, area),
        Panel::Events => tail(view, &view.events, view.scrolled, "no events yet", frame, area),
        Panel::Log => tail(view, &view.log, view.scrolled, "no lines yet", frame, area),
    }
}

/// Gives what a list of so many rows leaves free to the end of the log; answers what is the list's.
fn with_log(view: &View, rows: usize, frame: &mut Frame<'_>, area: Rect) -> Rect {
    let needed = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2).max(3);
    let Some(rest) = area.height.checked_sub(needed).filter(|rest| *rest >= LEAST_TAIL) else { return area };
    let [list, title, end] =
        Layout::vertical([Constraint::Length(needed), Constraint::Length(1), Constraint::Length(rest - 1)])
            .areas(area);
    let name = if view.log_of.is_empty() { "hermesd" } else { &view.log_of };
    let name = format!(" log of {} ", text::summary(name, 20));
    let dashes = usize::from(area.width).saturating_sub(name.chars().count() + 2);
    let dash = dash(view);
    let line = Line::from(vec![
        Span::raw(dash.repeat(2)),
        Span::styled(name, bold()),
        Span::raw(dash.repeat(dashes)),
    ]);
    frame.render_widget(Paragraph::new(line), title);
    tail(view, &view.log, 0, "no lines yet", frame, end);
    list
}

fn clients(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let clients = view.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.status.clients);
    if clients.is_empty() {
        frame.render_widget(Paragraph::new("no client is connected"), area);
        return;
    }
    let rows = clients.iter().map(|client| {
        let name = if client.name.is_empty() { "(not initialized)" } else { &client.name };
        Row::new([
            text::plain(&format!("{name} {}", client.version)),
            client.pid.to_string(),
            text::plain(&client.profile),
            text::plain(&client.protocol_version),
            short::count(client.calls),
            client.in_flight.to_string(),
            text::span(Duration::from_millis(client.connected_ms)),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(6),
        Constraint::Length(4),
        Constraint::Length(8),
    ];
    let header = Row::new(["CLIENT", "PID", "PROFILE", "PROTOCOL", "CALLS", "FLY", "SINCE"]);
    frame.render_widget(Table::new(rows, widths).header(header.style(bold())).column_spacing(1), area);
}

fn approvals(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let waiting = view.waiting();
    if waiting.is_empty() {
        frame.render_widget(Paragraph::new("no call waits for an answer"), area);
        return;
    }
    let rows = waiting.iter().map(|one| {
        Row::new([
            Cell::from(text::plain(&one.id)),
            Cell::from(text::plain(&format!("{} {}", one.server, one.tool))),
            Cell::from(text::plain(&one.client)),
            Cell::from(text::span(Duration::from_millis(one.expires_in_ms))),
            Cell::from(text::summary(&one.arguments, 200)),
        ])
    });
    let widths = [
        Constraint::Length(4),
        Constraint::Fill(2),
        Constraint::Length(14),
        Constraint::Length(8),
        Constraint::Fill(2),
    ];
    let at = waiting.iter().position(|one| one.id == view.approval).filter(|_| view.in_panel);
    let table = Table::new(rows, widths)
        .header(Row::new(["ID", "CALL", "CLIENT", "LEFT", "ARGUMENTS"]).style(bold()))
        .column_spacing(1)
        .row_highlight_style(chosen());
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(at));
}

/// The end of a tail, or as far back as was scrolled.
fn tail(
    view: &View,
    lines: &VecDeque<line::Line>,
    scrolled: usize,
    none: &str,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    if lines.is_empty() {
        frame.render_widget(Paragraph::new(none), area);
        return;
    }
    let height = usize::from(area.height);
    // Back to the first line at most, which then stands at the top.
    let back = scrolled.min(lines.len().saturating_sub(height));
    let end = lines.len() - back;
    let shown = lines.range(end.saturating_sub(height)..end);
    let shown: Vec<Line<'_>> =
        shown.map(|line| Line::from(Span::styled(line.text.as_str(), style(view, line.tone)))).collect();
    frame.render_widget(Paragraph::new(shown), area);
}
