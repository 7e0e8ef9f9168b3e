//! Formats of the files of a login.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn map(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn tokens(expires_at: Option<u64>, lifetime: Option<u64>) -> Tokens {
    Tokens { access: Secret::new("a"), refresh: None, expires_at, lifetime, scope: None }
}

#[test]
fn a_file_of_hermes_agent_is_read_with_its_absolute_time() {
    let file = map(json!({
        "access_token": "at-1", "token_type": "Bearer", "expires_in": 3600, "scope": "a b",
        "refresh_token": "rt-1", "expires_at": 1_700_003_600.25,
    }));
    let read = Tokens::of_file(&file, 5).unwrap();
    assert_eq!(read.expires_at, Some(1_700_003_600));
    assert_eq!(read.refresh.as_ref().map(Secret::expose), Some("rt-1"));
    let old = map(json!({"access_token": "at-1", "token_type": "Bearer", "expires_in": 3600}));
    assert_eq!(Tokens::of_file(&old, 1000).unwrap().expires_at, Some(4600), "the age of the file counts");
    assert_eq!(Tokens::of_file(&map(json!({"expires_at": 5})), 0), None);
}

#[test]
fn the_refresh_token_of_before_stays_where_the_answer_has_none() {
    let before = Secret::new("rt-1");
    let answer = map(json!({"access_token": "at-2", "token_type": "bearer"}));
    assert_eq!(Tokens::of_answer(&answer, Some(&before), 0).unwrap().refresh, Some(before.clone()));
    let rotated = map(json!({"access_token": "at-2", "token_type": "bearer", "refresh_token": "rt-2"}));
    let tokens = Tokens::of_answer(&rotated, Some(&before), 0).unwrap();
    assert_eq!(tokens.refresh, Some(Secret::new("rt-2")));
}

#[test]
fn a_short_lived_token_is_not_renewed_with_every_request() {
    let ten = tokens(Some(110), Some(10));
    assert_eq!([101, 106, 110].map(|now| ten.age(now)), [Age::Fresh, Age::Ending, Age::Ended]);
    let hour = tokens(Some(4600), Some(3600));
    assert_eq!([4000, 4580, 5000].map(|now| hour.age(now)), [Age::Fresh, Age::Ending, Age::Ended]);
    assert_eq!(tokens(None, None).age(u64::MAX), Age::Fresh);
}

#[test]
fn a_registration_serves_only_the_address_and_the_time_it_was_made_for() {
    let registration = map(json!({
        "client_id": "c", "client_secret": "s3cret", "client_secret_expires_at": 100,
        "redirect_uris": ["http://127.0.0.1:1/callback"], "logo_uri": null,
    }));
    let client = Client::of_registration(&registration).unwrap();
    assert!(client.serves("http://127.0.0.1:1/callback", 99));
    assert!(!client.serves("http://127.0.0.1:1/callback", 100));
    assert!(!client.serves("http://127.0.0.1:2/callback", 0));
    let forever = map(json!({"client_id": "c", "client_secret_expires_at": 0}));
    assert_eq!(Client::of_registration(&forever).unwrap().secret_until, None);
    let file = client_file(&registration, "http://127.0.0.1:1/callback");
    assert!(!file.contains_key("logo_uri"));
    assert_eq!(file["response_types"], json!(["code"]));
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        access in "[a-zA-Z0-9._-]{1,30}",
        refresh in proptest::option::of("[a-zA-Z0-9._-]{1,30}"),
        life in proptest::option::of(1u64..1_000_000),
        scope in proptest::option::of("[a-z:]{1,6}( [a-z:]{1,6}){0,2}"),
        now in 1u64..4_000_000_000,
    ) {
        let tokens = Tokens {
            access: Secret::new(access),
            refresh: refresh.map(Secret::new),
            expires_at: life.map(|life| now + life),
            lifetime: life,
            scope,
        };
        prop_assert_eq!(Tokens::of_file(&tokens.to_file(), 0).unwrap(), tokens);
    }
}
