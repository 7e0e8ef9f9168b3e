//! The defects of the reference's bridge, one line each, and the tests that show them gone.

use crate::boundaries::sources;

/// Number in the list of defects, what it was, and tests as `file::test`.
const DEFECTS: &[(u32, &str, &[&str])] = &[
    (1, "commits in WAL mode are not seen", &["events.rs::a_wait_ends_with_a_message_of_another_process"]),
    (
        2,
        "a changed sessions.json is not looked at",
        &["watch/tests.rs::a_session_that_is_named_late_loses_nothing"],
    ),
    (
        3,
        "history comes as events, cursors begin anew with each process",
        &[
            "watch/tests.rs::history_makes_no_events_and_a_commit_does_while_its_connection_stays_open",
            "events.rs::cursors_outlive_the_daemon_and_its_log",
        ],
    ),
    (
        4,
        "order and completeness depend on the writer's clock, rewrites come as new messages",
        &[
            "events.rs::two_thousand_messages_come_once_and_in_order",
            "events.rs::rewritten_conversations_are_told_as_such",
        ],
    ),
    (
        5,
        "a full queue drops events silently",
        &["conversations/events.rs::positions_tell_gaps_and_other_logs_apart"],
    ),
    (6, "waiting blocks everything else", &["events.rs::waiting_blocks_nothing_and_can_be_cancelled"]),
    (7, "a wait of nothing never looks", &["events_tools.rs::a_wait_of_nothing_looks_once"]),
    (
        8,
        "approvals are not real",
        &[
            "chain_lapses.rs::the_three_decisions_are_taken_by_another_client",
            "chain_lapses.rs::a_waiting_call_lapses_with_its_daemon",
        ],
    ),
    (
        9,
        "a process, a poller and cursors for each client",
        &["conversations_foreign.rs::clients_share_one_reader"],
    ),
    (
        10,
        "the whole session is loaded for its tail, no pages",
        &[
            "page.rs::a_page_costs_the_same_whatever_the_length_of_the_session",
            "reading_tests.rs::pages_are_turned_backwards_and_forwards_without_a_gap",
        ],
    ),
    (
        11,
        "null names crash a search, images and tool messages are lost",
        &[
            "index.rs::null_names_stay_null_and_do_not_disturb_a_search",
            "attachments.rs::images_are_listed_in_every_form_that_clients_store",
            "attachments.rs::an_image_without_an_address_is_left_out_whatever_its_source_is",
            "reading_tests.rs::messages_of_pictures_only_are_listed_with_whole_texts",
            "reading_tests.rs::roles_narrow_and_widen_what_is_read",
        ],
    ),
    (12, "cuts without a mark", &["reading_tests.rs::a_cut_text_says_so_and_comes_whole_on_demand"]),
    (
        13,
        "reading changes the database",
        &[
            "conversations_foreign.rs::a_writer_in_the_middle_of_a_transaction_is_neither_waited_for_nor_disturbed",
            "home_tests.rs::a_writer_can_checkpoint_everything_away_while_the_reader_stays_open",
        ],
    ),
    (
        14,
        "errors are no errors, text twice, escapes, no annotations",
        &[
            "conversations_golden.rs::every_recorded_answer_is_met",
            "golden_tests.rs::definitions_have_the_same_bytes_every_time_and_say_which_tools_only_read",
        ],
    ),
    (
        15,
        "a name that is not understood goes to the home channel",
        &[
            "send/target.rs::everything_else_is_a_name_and_never_the_home_channel",
            "send/tests/platforms.rs::no_platform_ever_writes_to_anybody_but_the_chat_that_was_named",
        ],
    ),
    (
        16,
        "sending installs packages and takes seconds at first",
        &["sending.rs::a_message_reaches_its_chat_and_its_conversation"],
    ),
    (
        17,
        "threads are dropped, errors show tokens",
        &[
            "send/tests/platforms.rs::slack_keeps_the_thread_and_opens_the_direct_messages_of_a_person",
            "send/tests/platforms.rs::matrix_writes_into_threads_and_into_the_one_direct_room_of_a_person",
            "send/tests/outcomes.rs::what_a_platform_repeats_of_a_token_is_masked",
        ],
    ),
    (
        18,
        "sessions without a chat and ended ones cannot be reached, no filter by time",
        &[
            "reading_tests.rs::single_sessions_are_listed_and_read_where_they_are_asked_for",
            "reading_tests.rs::only_conversations_used_since_a_time_are_listed",
        ],
    ),
    (
        19,
        "messages taken back are shown",
        &["home_tests.rs::messages_taken_back_summarised_or_hidden_are_not_shown"],
    ),
];

/// A defect whose test went is not gone for good.
#[test]
fn every_defect_has_its_tests() {
    let mut all = sources("daemon/src");
    all.extend(sources("tests/e2e"));
    for (number, what, tests) in DEFECTS {
        assert!(!tests.is_empty(), "{number}: {what}");
        for test in *tests {
            let (file, name) = test.split_once("::").unwrap();
            let definition = format!("fn {name}()");
            let found = all.iter().any(|(path, text)| path.ends_with(file) && text.contains(&definition));
            assert!(found, "{number} ({what}): no test {test}");
        }
    }
}
