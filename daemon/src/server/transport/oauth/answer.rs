//! Answers of a token endpoint, brought into the one shape that the standard names.
//!
//! Pure. Promise: what is understood here is a complete login in canonical JSON; nothing that a server
//! gave for rotation is lost because some other member has the wrong type.

use serde_json::{Map, Value};

/// Longest believable lifetime: ten years in seconds.
const LONGEST: u64 = 315_360_000;

/// Why an answer is no login.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// Neither JSON nor a form.
    #[error("the token endpoint answered neither JSON nor a form")]
    Unreadable,
    /// An error in an answer whose status says success.
    #[error("the token endpoint answered the error `{code}`")]
    Error {
        /// As defined by OAuth.
        code: String,
    },
    /// No usable `access_token`.
    #[error("the token endpoint answered without an access token")]
    NoToken,
}

/// The answer in canonical form: `access_token`, `token_type`, and where they make sense
/// `expires_in` (a positive whole number), `refresh_token`, `scope`.
///
/// # Errors
/// [`BadAnswer`].
pub fn canonical(body: &[u8]) -> Result<Map<String, Value>, BadAnswer> {
    let read = read(body).ok_or(BadAnswer::Unreadable)?;
    let token = |name: &str| {
        read.get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()))
            .map(str::to_owned)
    };
    let Some(access) = token("access_token") else {
        return Err(match read.get("error").and_then(Value::as_str) {
            Some(code) => BadAnswer::Error { code: code.to_owned() },
            None => BadAnswer::NoToken,
        });
    };
    let mut out = Map::new();
    out.insert("access_token".into(), access.into());
    // Some answer `token`, `user` or nothing; all of them are sent as Bearer.
    out.insert("token_type".into(), "bearer".into());
    if let Some(seconds) = read.get("expires_in").and_then(lifetime) {
        out.insert("expires_in".into(), seconds.into());
    }
    if let Some(refresh) = token("refresh_token") {
        out.insert("refresh_token".into(), refresh.into());
    }
    if let Some(scope) = read.get("scope").and_then(scope) {
        out.insert("scope".into(), scope.into());
    }
    Ok(out)
}

fn read(body: &[u8]) -> Option<Map<String, Value>> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if let Ok(Value::Object(object)) = serde_json::from_slice(body) {
        return Some(object);
    }
    let form: Map<String, Value> = url::form_urlencoded::parse(body.trim_ascii())
        .map(|(name, value)| (name.into_owned(), Value::from(value.into_owned())))
        .collect();
    (form.contains_key("access_token") || form.contains_key("error")).then_some(form)
}

/// Seconds that a token lives; `None` where the server does not say, which is also what 0 and less
/// mean in the field: a token that is dead on arrival is of no use to anybody.
pub fn lifetime(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| text.parse().ok().and_then(whole))
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    seconds.filter(|seconds| *seconds > 0).map(|seconds| seconds.min(LONGEST))
}

/// A point in time in seconds since 1970, from a number that may have a fraction; 0 is none.
pub fn moment(value: &Value) -> Option<u64> {
    let at =
        value.as_u64().or_else(|| value.as_f64().filter(|at| at.is_finite()).map(|at| at.max(0.0) as u64));
    at.filter(|at| *at > 0)
}

fn whole(seconds: f64) -> Option<u64> {
    (seconds.is_finite() && seconds >= 1.0).then(|| seconds.min(LONGEST as f64) as u64)
}

fn scope(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn of(value: &Value) -> Value {
        canonical(value.to_string().as_bytes()).map(Value::Object).unwrap()
    }

    #[test]
    fn a_lifetime_is_read_however_it_is_written() {
        for (written, meant) in [
            (json!(3600), Some(3600)),
            (json!("3600"), Some(3600)),
            (json!(3600.7), Some(3600)),
            (json!("3.6e3"), Some(3600)),
            (json!(0), None),
            (json!("0"), None),
            (json!(-5), None),
            (json!(null), None),
            (json!("soon"), None),
            (json!(1e300), Some(LONGEST)),
        ] {
            let answer = of(&json!({"access_token": "a", "expires_in": written}));
            assert_eq!(answer.get("expires_in").and_then(Value::as_u64), meant, "{written}");
        }
        assert_eq!(of(&json!({"access_token": "a"})), json!({"access_token": "a", "token_type": "bearer"}));
    }

    #[test]
    fn forms_arrays_of_scopes_and_odd_types_of_tokens_are_understood() {
        let form = canonical(b"access_token=gho_x&scope=repo%20gist&token_type=token\n").unwrap();
        assert_eq!(
            Value::Object(form),
            json!({"access_token": "gho_x", "token_type": "bearer", "scope": "repo gist"})
        );
        let odd =
            of(&json!({"access_token": "a", "token_type": 7, "scope": ["x", "y z"], "refresh_token": ""}));
        assert_eq!(odd, json!({"access_token": "a", "token_type": "bearer", "scope": "x y z"}));
    }

    #[test]
    fn an_error_with_the_status_of_success_is_an_error() {
        let error = canonical(br#"{"error":"bad_verification_code","error_description":"x"}"#);
        assert_eq!(error, Err(BadAnswer::Error { code: "bad_verification_code".into() }));
        assert_eq!(canonical(b"<html>"), Err(BadAnswer::Unreadable));
        assert_eq!(canonical(br#"{"access_token":"a\r\nX: y"}"#), Err(BadAnswer::NoToken));
    }

    proptest! {
        #[test]
        fn a_rotated_token_is_never_lost_over_another_member(
            refresh in "[a-zA-Z0-9._~-]{1,40}",
            other in prop_oneof![Just(json!(null)), Just(json!([1])), Just(json!({"a": 1})), Just(json!("x")), Just(json!(-1.5))],
        ) {
            let answer = of(&json!({
                "access_token": "a", "refresh_token": refresh, "expires_in": other, "scope": other, "token_type": other,
            }));
            prop_assert_eq!(&answer["refresh_token"], &json!(refresh));
        }
    }
}
