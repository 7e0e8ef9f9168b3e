//! The words servers use in answers that are no messages.

use super::*;
use proptest::prelude::*;

#[test]
fn content_types_are_compared_by_essence() {
    for (value, media) in [
        (Some("text/event-stream;charset=utf-8"), Media::Events),
        (Some("Text/Event-Stream"), Media::Events),
        (Some(" application/json ; charset=UTF-8"), Media::Json),
        (Some("application/problem+json"), Media::Json),
        (Some("text/html; charset=iso-8859-1"), Media::Html),
        (Some("text/plain"), Media::Other),
        (Some(""), Media::Absent),
        (None, Media::Absent),
    ] {
        assert_eq!(Media::of(value), media, "{value:?}");
    }
}

#[test]
fn answers_of_servers_that_lost_a_session_are_known() {
    for (status, body) in [
        (404, ""),
        (404, "<html>nginx</html>"),
        (
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
        ),
        (
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#,
        ),
        (400, "Invalid or expired session"),
        (410, "session expired"),
        (422, "unknown session: 1234"),
        (200, r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32001,"message":"Session not found"}}"#),
        (200, r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"Session terminated: a1b2"}}"#),
    ] {
        assert!(session_is_gone(status, body), "{status} {body}");
    }
}

#[test]
fn ordinary_errors_are_no_lost_sessions() {
    for (status, body) in [
        (400, "missing argument `session_name`"),
        (401, "session expired"),
        (500, "session not found"),
        (
            200,
            r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"Session not found"}],"isError":true}}"#,
        ),
        (
            200,
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"the tmux session not found by that name, list them first"}}"#,
        ),
        (200, r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"browser session not found"}}"#),
    ] {
        assert!(!session_is_gone(status, body), "{status} {body}");
    }
}

#[test]
fn retry_after_is_seconds_or_a_date_and_is_capped() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let secs = |text| retry_after(text, now).map(|wait| wait.as_secs());
    assert_eq!(secs("2"), Some(2));
    assert_eq!(secs("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
    assert_eq!(secs("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0), "passed");
    assert_eq!(secs("99999999"), Some(3600));
    assert_eq!(secs("soon"), None);
    assert_eq!(secs("-1"), None);
}

#[test]
fn an_excerpt_is_one_short_line_without_markup() {
    let page = "<html><head><TITLE>\n 502 Bad Gateway</TITLE></head><body>…</body></html>";
    assert_eq!(excerpt(Media::Html, page), "an HTML page, \"502 Bad Gateway\"");
    assert_eq!(excerpt(Media::Html, "<p>Sign <b>in</b></p>"), "an HTML page, \"Sign in\"");
    assert_eq!(excerpt(Media::Json, r#"{"error":{"code":1,"message":"no"},"id":null}"#), "no");
    assert_eq!(excerpt(Media::Json, r#"{"detail":"Not Found"}"#), "Not Found");
    assert_eq!(excerpt(Media::Other, "a\r\n\u{1b}[31mb"), "a [31mb");
    assert!(excerpt(Media::Other, &"x".repeat(9000)).chars().count() <= EXCERPT + 1);
}

proptest! {
    #[test]
    fn no_body_makes_these_panic(status in 100u16..600, body in ".{0,300}", value in ".{0,40}") {
        let _ = session_is_gone(status, &body);
        for media in [Media::Html, Media::Json, Media::Other] {
            prop_assert!(excerpt(media, &body).chars().count() <= EXCERPT + 20);
        }
        if let Some(wait) = retry_after(&value, SystemTime::UNIX_EPOCH) {
            prop_assert!(wait <= MAX_RETRY_AFTER);
        }
    }
}
