//! What lies over the screen: keys, one server, one waiting call, a question.
//!
//! Pure.

use super::super::history::Glyphs;
use super::super::state::{Action, Decision, Popup, View};
use super::{bold, short};
use crate::render::{json, text};
use hermes_proto::control as pb;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use std::time::Duration;

/// Widest and highest, without the frame.
const WIDEST: u16 = 74;
const HIGHEST: u16 = 20;

const HELP: &str = "\
1 2 3 4, tab       clients, approvals, events, log
up down, j k       choose a server, or a waiting call
pgup pgdn home end scroll, or choose faster
enter              everything about what is chosen
o                  order: name, calls, memory, errors
r  s  x  b         restart, start, stop a server, close its breaker
a  A  d            allow a waiting call once, always, or deny it
l  L               log of the chosen server, of hermesd
space              hold the figures still, and go on
esc                back to the servers
q, ctrl-c          quit

GEN starts  RST restarts  FLY calls at the server + waiting
P50 P95 of all calls since hermesd started  ERR outcomes but ok
MEM resident memory of all processes below the server's guard";

/// Draws what lies over the screen, if anything does.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let (title, lines) = match &view.popup {
        None => return,
        Some(Popup::Help) => ("keys".to_owned(), HELP.lines().map(str::to_owned).collect()),
        Some(Popup::Server(name)) => (name.clone(), server(view, name)),
        Some(Popup::Approval(id)) => (format!("call {id} waits"), approval(view, id)),
        Some(Popup::Confirm(action)) => ("really?".to_owned(), question(view, action)),
    };
    let width = area.width.saturating_sub(4).min(WIDEST);
    let room = usize::from(width).max(1);
    // Long words are broken by the paragraph, so each line takes at least this many.
    let needed: usize = lines.iter().map(|line| line.chars().count().div_ceil(room).max(1)).sum();
    let height = u16::try_from(needed + 1).unwrap_or(HIGHEST).min(HIGHEST).min(area.height.saturating_sub(2));
    let over = Rect {
        x: area.x + (area.width - width - 2) / 2,
        y: area.y + area.height.saturating_sub(height + 2) / 2,
        width: width + 2,
        height: height + 2,
    }
    .intersection(area);
    let set = match view.glyphs {
        Glyphs::Unicode => border::PLAIN,
        Glyphs::Ascii => ASCII,
    };
    let title = Span::styled(format!(" {} ", text::summary(&title, room.saturating_sub(4))), bold());
    let block = Block::bordered().border_set(set).title(title);
    let lines: Vec<Line<'_>> = lines.iter().map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Clear, over);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), over);
}

const ASCII: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

fn server(view: &View, name: &str) -> Vec<String> {
    let Some(server) = view.servers().into_iter().find(|server| server.name == name) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{name:<10}{}", text::plain(&value)));
        }
    };
    fact("state", crate::commands::servers::state(server));
    fact("why", server.reason.clone());
    fact("next step", server.next_step_ms.map_or(String::new(), span));
    fact("program", format!("{} {}", server.server_name, server.server_version).trim().to_owned());
    fact("transport", format!("{} {}", server.transport, server.protocol_version).trim().to_owned());
    fact(
        "pid",
        server.pid.map_or(String::new(), |pid| format!("{pid} (guard {})", server.guard_pid.unwrap_or(0))),
    );
    let memory = format!("{} in {} processes", text::size(server.memory_bytes), server.processes);
    fact("memory", if server.processes > 0 { memory } else { String::new() });
    fact("up", if server.uptime_ms > 0 { span(server.uptime_ms) } else { String::new() });
    fact("tools", format!("{} visible, {} hidden", server.tools, server.hidden_tools));
    if let Some(figures) = view.figures(name) {
        fact("calls", calls(figures));
    }
    for note in &server.notes {
        fact("note", note.clone());
    }
    lines.extend([
        String::new(),
        "r restart  s start  x stop  b close the breaker  other keys: back".to_owned(),
    ]);
    lines
}

fn span(ms: u64) -> String {
    text::span(Duration::from_millis(ms))
}

fn calls(figures: &pb::Figures) -> String {
    let mut kinds: Vec<(&String, &u64)> = figures.outcomes.iter().filter(|(kind, _)| *kind != "ok").collect();
    kinds.sort();
    let kinds: Vec<String> = kinds.iter().map(|(kind, calls)| format!("{kind} {calls}")).collect();
    let times =
        [figures.p50_micros, figures.p95_micros, figures.p99_micros, figures.max_micros].map(short::span);
    let [p50, p95, p99, max] = times;
    let calls = figures.calls;
    format!(
        "{calls}; p50 {p50}, p95 {p95}, p99 {p99}, max {max}; {} errors {}",
        figures.errors,
        kinds.join(", ")
    )
}

fn approval(view: &View, id: &str) -> Vec<String> {
    let Some(one) = view.waiting().iter().find(|one| one.id == id) else { return Vec::new() };
    let mut lines = vec![
        format!("server    {}", text::plain(&one.server)),
        format!("tool      {}", text::plain(&one.tool)),
        format!("client    {}", text::plain(&one.client)),
        format!("profile   {}", text::plain(&one.profile)),
        format!("left      {}", span(one.expires_in_ms)),
        String::new(),
    ];
    lines.extend(text::block(&one.arguments).lines().map(str::to_owned));
    lines.extend([String::new(), "a allow once  A allow always  d deny  other keys: back".to_owned()]);
    lines
}

fn question(view: &View, action: &Action) -> Vec<String> {
    let phase = |name: &str| {
        let found = view.servers().into_iter().find(|server| server.name == name);
        found.map_or(String::new(), |server| json::phase_word(server.phase).replace('_', " "))
    };
    let on_server = |verb: &str, name: &str| {
        vec![format!("{verb} server {}? It is {} now.", text::plain(name), phase(name))]
    };
    let mut lines = match action {
        Action::Start(name) => on_server("Start", name),
        Action::Stop(name) => on_server("Stop", name),
        Action::Restart(name) => on_server("Restart", name),
        Action::ResetBreaker(name) => on_server("Close the breaker of", name),
        Action::Respond(id, decision) => {
            let mut lines = vec![
                match decision {
                    Decision::AllowOnce => "Allow this call, once?",
                    Decision::AllowAlways => "Allow this call, and all later ones of this tool?",
                    Decision::Deny => "Deny this call?",
                }
                .to_owned(),
            ];
            if let Some(one) = view.waiting().iter().find(|one| one.id == *id) {
                lines.push(format!("{} {} for {}", one.server, one.tool, one.client));
                lines.push(one.arguments.clone());
            }
            lines.iter().map(|line| text::plain(line)).collect()
        }
    };
    lines.extend([String::new(), "y yes  other keys: no".to_owned()]);
    lines
}
