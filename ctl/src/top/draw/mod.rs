//! The screen of `top`: state in, cells out.
//!
//! Pure. Promise: whatever the size, nothing panics, and 80 columns by 24 lines show everything that
//! a person acts on. Colour only repeats what the words say.

mod lists;
mod popup;
mod servers;
mod short;

use super::history::Glyphs;
use super::state::View;
use crate::render::table::{Colour, Tone};
use crate::render::text;
use hermes_proto::control as pb;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// The smallest screen on which a table still says something.
const LEAST: (u16, u16) = (40, 10);
/// Characters of the curve of all calls.
const CURVE: usize = 20;

/// Draws the whole screen.
pub fn draw(view: &View, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let words = format!("top needs {} columns and {} lines; q ends it", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(words), area);
        return;
    }
    let rows = u16::try_from(view.servers().len()).unwrap_or(u16::MAX).saturating_add(1);
    // The servers get what they need, up to half of what the other lines leave.
    let table = rows.clamp(2, (area.height - 5) / 2);
    let [head, alert, servers, why, tabs, list, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(table),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    self::head(view, frame, head);
    self::alert(view, frame, alert);
    servers::table(view, frame, servers);
    servers::why(view, frame, why);
    lists::tabs(view, frame, tabs);
    lists::list(view, frame, list);
    self::keys(view, frame, keys);
    popup::draw(view, frame, area);
}

/// How a tone looks.
fn style(view: &View, tone: Tone) -> Style {
    match (tone, view.colour) {
        (Tone::Plain, _) | (Tone::Good, Colour::Off) => Style::new(),
        (Tone::Good, Colour::On) => Style::new().fg(Color::Green),
        (Tone::Wary, Colour::On) => Style::new().fg(Color::Yellow),
        (Tone::Bad, Colour::On) => Style::new().fg(Color::Red),
        (Tone::Wary | Tone::Bad, Colour::Off) => Style::new().add_modifier(Modifier::BOLD),
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn chosen() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// A mark between facts.
fn dash(view: &View) -> &'static str {
    match view.glyphs {
        Glyphs::Unicode => "─",
        Glyphs::Ascii => "-",
    }
}

fn head(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let Some(snapshot) = &view.snapshot else {
        frame.render_widget(Paragraph::new(Span::styled("hermesd", bold())), area);
        return;
    };
    let status = &snapshot.status;
    let ready = status.servers.iter().filter(|server| server.phase == i32::from(pb::Phase::Ready)).count();
    let clients = status.clients.len();
    let facts = [
        format!("pid {}", status.pid),
        format!("up {}", text::span(std::time::Duration::from_millis(status.uptime_ms))),
        text::size(status.rss_bytes),
        format!("{ready}/{} ready", status.servers.len()),
        if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") },
    ];
    let name = Span::styled(format!("hermesd {}", text::plain(&status.version)), bold());
    let line = Line::from(vec![name, Span::raw(format!("  {}", facts.join("  ")))]);
    let left = line.width();
    frame.render_widget(Paragraph::new(line), area);
    let rate = format!("{:.1} calls/s", view.history.rate());
    let room = usize::from(area.width).saturating_sub(left + 2);
    if let Some(curve) = room.checked_sub(rate.len() + 1) {
        let curve = view.history.curve(curve.min(CURVE), view.glyphs);
        let line = Line::from(format!("{curve} {rate}"));
        frame.render_widget(Paragraph::new(line).alignment(Alignment::Right), area);
    }
}

/// The one thing that a person should know first.
fn alert(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let (words, tone) = if let Some(why) = &view.lost {
        (format!("! {why}; trying again"), Tone::Bad)
    } else if let Some((said, tone)) = &view.notice {
        (said.clone(), *tone)
    } else if view.paused {
        ("paused: space goes on".to_owned(), Tone::Wary)
    } else if !view.waiting().is_empty() {
        let calls = view.waiting().len();
        let waits = if calls == 1 { "1 call waits".to_owned() } else { format!("{calls} calls wait") };
        (format!("! {waits} for an answer: press 2"), Tone::Wary)
    } else {
        view.snapshot
            .as_ref()
            .map_or(("looking for the daemon".to_owned(), Tone::Plain), |snapshot| troubles(&snapshot.status))
    };
    let line = Span::styled(text::plain(&words), style(view, tone));
    frame.render_widget(Paragraph::new(line), area);
}

fn troubles(status: &pb::GetStatusResponse) -> (String, Tone) {
    if status.config_state != "ok" {
        return (format!("! configuration: {}", status.config_state), Tone::Bad);
    }
    let errors = status.findings.iter().filter(|found| found.severity == i32::from(pb::Severity::Error));
    match errors.count() {
        0 => (String::new(), Tone::Plain),
        1 => ("! 1 error: `hermesctl doctor` says what to do".to_owned(), Tone::Bad),
        many => (format!("! {many} errors: `hermesctl doctor` says what to do"), Tone::Bad),
    }
}

fn keys(view: &View, frame: &mut Frame<'_>, area: Rect) {
    use super::state::Panel;
    let keys = match (view.in_panel, view.panel) {
        (true, Panel::Approvals) => "q quit  ? keys  enter details  a allow once  A always  d deny  esc back",
        (true, Panel::Events | Panel::Log) => {
            "q quit  ? keys  pgup/pgdn scroll  end follow  tab next  esc back"
        }
        (true, Panel::Clients) | (false, _) => {
            "q quit  ? keys  enter details  o order  r restart  l log  tab next  space pause"
        }
    };
    frame.render_widget(Paragraph::new(Span::styled(keys, chosen())).style(chosen()), area);
}

/// The screen as text, without trailing blanks; what is reversed stands in brackets of its line's ends.
#[cfg(test)]
pub(super) fn text(view: &View, width: u16, height: u16) -> String {
    let backend = ratatui::backend::TestBackend::new(width, height);
    let mut terminal = ratatui::Terminal::new(backend).expect("a screen in memory");
    terminal.draw(|frame| draw(view, frame)).expect("a screen in memory");
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(width)).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}
