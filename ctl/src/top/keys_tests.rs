//! What keys do, and that a changed list never redirects an answer.

use super::history::Glyphs;
use super::samples::{approval, snapshot};
use super::state::{Action, Decision, Effect, Panel, Popup, Snapshot, Update, View};
use crate::render::table::Colour;
use proptest::prelude::*;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

fn view() -> View {
    let mut view = View::new(Colour::Off, Glyphs::Unicode);
    view.update(Update::Looked(Box::new(snapshot())));
    view
}

fn press(view: &mut View, code: KeyCode) -> Option<Effect> {
    view.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_in(view: &mut View, keys: &str) -> Option<Effect> {
    keys.chars().fold(None, |_, key| press(view, KeyCode::Char(key)))
}

#[test]
fn q_and_control_c_end_it() {
    assert_eq!(type_in(&mut view(), "q"), Some(Effect::Quit));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let mut busy = view();
    busy.popup = Some(Popup::Help);
    assert_eq!(busy.key(control_c), Some(Effect::Quit));
}

#[test]
fn an_answer_needs_two_keys_and_goes_to_the_call_that_was_shown() {
    let mut view = view();
    assert_eq!(type_in(&mut view, "2a"), None);
    assert_eq!(view.popup, Some(Popup::Confirm(Action::Respond("7".into(), Decision::AllowOnce))));
    // Another call comes in before the first one while the question stands.
    let mut changed = snapshot();
    changed.approvals.waiting.insert(0, approval("6", "shell", "run"));
    view.update(Update::Looked(Box::new(changed)));
    assert_eq!(type_in(&mut view, "y"), Some(Effect::Do(Action::Respond("7".into(), Decision::AllowOnce))));
}

#[test]
fn a_question_about_a_call_that_is_gone_goes_too() {
    let mut view = view();
    type_in(&mut view, "2d");
    view.update(Update::Looked(Box::new(Snapshot { approvals: Default::default(), ..snapshot() })));
    assert_eq!((view.popup.clone(), type_in(&mut view, "y")), (None, None));
}

#[test]
fn any_other_key_than_yes_means_no() {
    for key in ['n', 'q', 'a', ' '] {
        let mut view = view();
        type_in(&mut view, "r");
        assert!(matches!(view.popup, Some(Popup::Confirm(Action::Restart(_)))), "{:?}", view.popup);
        assert_eq!((type_in(&mut view, &key.to_string()), view.popup.clone()), (None, None));
    }
}

#[test]
fn the_chosen_server_stays_chosen_when_the_order_changes() {
    let mut view = view();
    press(&mut view, KeyCode::Down);
    let chosen = view.server.clone();
    assert_ne!(chosen, view.servers()[0].name);
    type_in(&mut view, "o");
    assert_eq!(view.server, chosen);
    assert_eq!(view.servers()[0].name, "filesystem", "most calls first");
}

#[test]
fn the_log_of_the_chosen_server_is_followed_on_request() {
    let mut view = view();
    assert_eq!(type_in(&mut view, "l"), Some(Effect::Follow("broken".into())));
    assert_eq!(view.panel, Panel::Log);
    assert_eq!(type_in(&mut view, "L"), Some(Effect::Follow(String::new())));
}

#[test]
fn a_pause_holds_looks_back_until_it_ends() {
    let mut view = view();
    type_in(&mut view, " ");
    view.update(Update::Looked(Box::default()));
    assert_eq!(view.servers().len(), 4);
    type_in(&mut view, " ");
    view.update(Update::Looked(Box::default()));
    assert_eq!(view.servers().len(), 0);
}

fn any_key() -> impl Strategy<Value = KeyCode> {
    prop_oneof![
        proptest::char::range(' ', '~').prop_map(KeyCode::Char),
        Just(KeyCode::Up),
        Just(KeyCode::Down),
        Just(KeyCode::PageUp),
        Just(KeyCode::End),
        Just(KeyCode::Home),
        Just(KeyCode::Tab),
        Just(KeyCode::BackTab),
        Just(KeyCode::Enter),
        Just(KeyCode::Esc),
    ]
}

proptest! {
    // Each case draws dozens of screens.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Nothing is done at the daemon but after a question, and nothing shown ever panics.
    #[test]
    fn no_key_acts_without_a_question(
        keys in proptest::collection::vec((any_key(), any::<bool>()), 0..60),
        width in 1_u16..140,
        height in 1_u16..60,
    ) {
        let mut view = view();
        for (key, empty) in keys {
            let asked = view.popup.clone();
            if let Some(Effect::Do(action)) = press(&mut view, key) {
                prop_assert_eq!(asked, Some(Popup::Confirm(action)));
            }
            if empty {
                view.update(Update::Looked(Box::default()));
            } else {
                view.update(Update::Looked(Box::new(snapshot())));
            }
            super::draw::text(&view, width, height);
        }
    }
}
