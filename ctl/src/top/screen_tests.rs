//! The screen as a person sees it, compared with files; `UPDATE_GOLDEN=1` writes them anew.

use super::draw;
use super::history::Glyphs;
use super::line::Line;
use super::samples::snapshot;
use super::state::{Action, Decision, Panel, Popup, Snapshot, Update, View};
use crate::render::table::{Colour, Tone};
use crate::testing::golden;

fn view(glyphs: Glyphs) -> View {
    let mut view = View::new(Colour::Off, glyphs);
    view.update(Update::Looked(Box::new(snapshot())));
    let mut later = snapshot();
    later.stats.since_ms += 1000;
    later.stats.servers[0].all.as_mut().unwrap().calls += 40;
    view.update(Update::Looked(Box::new(later)));
    view
}

#[test]
fn a_terminal_of_eighty_columns_shows_it_all() {
    golden("top/80x24.txt", &draw::text(&view(Glyphs::Unicode), 80, 24));
}

#[test]
fn a_wide_terminal_shows_two_columns_more() {
    golden("top/120x30.txt", &draw::text(&view(Glyphs::Unicode), 120, 30));
}

#[test]
fn a_terminal_without_unicode_gets_plain_signs() {
    let mut view = view(Glyphs::Ascii);
    view.popup = Some(Popup::Help);
    let text = draw::text(&view, 80, 24);
    assert!(text.is_ascii(), "{text}");
    golden("top/ascii_help.txt", &text);
}

#[test]
fn a_waiting_call_is_shown_with_its_arguments_before_it_is_answered() {
    let mut view = view(Glyphs::Unicode);
    view.panel = Panel::Approvals;
    view.in_panel = true;
    golden("top/approvals.txt", &draw::text(&view, 80, 24));
    view.popup = Some(Popup::Confirm(Action::Respond("7".into(), Decision::AllowAlways)));
    golden("top/question.txt", &draw::text(&view, 80, 24));
}

#[test]
fn one_server_is_shown_in_full() {
    let mut view = view(Glyphs::Unicode);
    view.popup = Some(Popup::Server("github".into()));
    golden("top/server.txt", &draw::text(&view, 80, 24));
}

#[test]
fn a_tail_stays_where_it_was_scrolled_to() {
    let lines =
        |from: u32, to: u32| (from..to).map(|n| Line::of(&format!("line {n}"), Tone::Plain)).collect();
    let mut view = view(Glyphs::Unicode);
    view.panel = Panel::Log;
    view.in_panel = true;
    view.update(Update::Log(lines(0, 50)));
    assert!(draw::text(&view, 80, 24).contains("line 49"));
    view.scrolled = 20;
    let before = draw::text(&view, 80, 24);
    view.update(Update::Log(lines(50, 60)));
    let after = draw::text(&view, 80, 24);
    assert!(before.contains("line 29\n") && after.contains("line 29\n") && !after.contains("line 30\n"));
}

#[test]
fn a_lost_daemon_is_said_over_the_last_figures() {
    let mut view = view(Glyphs::Unicode);
    view.update(Update::Lost("cannot reach hermesd".into()));
    let text = draw::text(&view, 80, 24);
    assert!(text.contains("! cannot reach hermesd; trying again") && text.contains("filesystem"), "{text}");
}

#[test]
fn nothing_a_server_says_can_act_on_the_terminal() {
    let mut hostile = snapshot();
    for server in &mut hostile.status.servers {
        server.name.push_str("\x1b[2J");
        server.reason.push_str("\x07\u{202e}");
        server.notes.push("\x1b]0;owned\x07".into());
    }
    hostile.approvals.waiting[0].arguments = "\x1b[2J\r".into();
    let mut view = View::new(Colour::On, Glyphs::Unicode);
    view.update(Update::Looked(Box::new(hostile.clone())));
    view.update(Update::Log(vec![Line::of_log("\x1b[2J")]));
    let popups = [
        None,
        Some(Popup::Server(hostile.status.servers[0].name.clone())),
        Some(Popup::Approval("7".into())),
        Some(Popup::Confirm(Action::Respond("7".into(), Decision::Deny))),
    ];
    for popup in popups {
        view.popup = popup;
        for panel in Panel::ALL {
            view.panel = panel;
            let text = draw::text(&view, 100, 40);
            assert!(!text.contains(['\x1b', '\x07', '\r', '\u{202e}']), "{text}");
        }
    }
}

#[test]
fn tones_are_colours_only_where_colour_is_wanted() {
    use ratatui::style::Color;
    let colours = |colour| {
        let mut view = View::new(colour, Glyphs::Unicode);
        view.update(Update::Looked(Box::new(Snapshot { ..snapshot() })));
        let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw::draw(&view, frame)).unwrap();
        terminal.backend().buffer().content().iter().filter(|cell| cell.fg != Color::Reset).count()
    };
    assert_eq!(colours(Colour::Off), 0);
    assert!(colours(Colour::On) > 10);
}
