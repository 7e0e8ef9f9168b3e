//! What a browser brings back from the authorization server.
//!
//! Pure. Promise: only an answer with the state of this login counts, everything else is a stray
//! request; nothing that came from outside is shown unescaped or used as more than text.

use url::{Url, form_urlencoded};

/// The path that browsers are sent back to.
pub const PATH: &str = "/callback";

/// Longest text of a server that is shown, in characters.
const LONGEST: usize = 200;

/// An answer with the right state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The user agreed.
    Code {
        /// Buys the tokens.
        code: String,
        /// Who says so.
        issuer: Option<String>,
    },
    /// The user or the authorization server refused.
    Refused {
        /// `access_denied` and the like; printable.
        error: String,
        /// In the server's words, printable and short.
        description: String,
        /// Who says so.
        issuer: Option<String>,
    },
}

/// Why a request or a pasted text is no answer to this login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stray {
    /// Not a URL, or without any of the parameters.
    #[error(
        "this is not the address that the browser was sent to: it starts with http://127.0.0.1 and contains `code=` and `state=`"
    )]
    NoAnswer,
    /// Of another login, an older one, or forged.
    #[error("this address belongs to another login (its `state` is not the one of this login)")]
    OtherLogin,
    /// A parameter twice, or neither code nor error.
    #[error("this address is damaged: `code` or `error` is missing, or a parameter is there twice")]
    Damaged,
}

/// Reads the query of a request to the listener.
///
/// # Errors
/// [`Stray`]: the login goes on waiting.
pub fn read(query: &str, state: &str) -> Result<Answer, Stray> {
    let (mut code, mut told, mut issuer) = (None, None, None);
    let (mut error, mut description) = (None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let slot = match name.as_ref() {
            "code" => &mut code,
            "state" => &mut told,
            "iss" => &mut issuer,
            "error" => &mut error,
            "error_description" => &mut description,
            _ => continue,
        };
        if slot.replace(value.into_owned()).is_some() {
            return Err(Stray::Damaged);
        }
    }
    let told = told.ok_or(Stray::NoAnswer)?;
    if !same(told.as_bytes(), state.as_bytes()) {
        return Err(Stray::OtherLogin);
    }
    match (code, error) {
        (Some(code), None) if !code.is_empty() => Ok(Answer::Code { code, issuer }),
        (None, Some(error)) => Ok(Answer::Refused {
            error: printable(&error),
            description: printable(&description.unwrap_or_default()),
            issuer,
        }),
        (Some(_) | None, _) => Err(Stray::Damaged),
    }
}

/// Reads what a person pasted: the whole address, or its query.
///
/// # Errors
/// [`Stray`].
pub fn read_pasted(text: &str, state: &str) -> Result<Answer, Stray> {
    let text = text.trim().trim_matches(['"', '\'', '<', '>']);
    if let Ok(url) = Url::parse(text) {
        return read(url.query().ok_or(Stray::NoAnswer)?, state);
    }
    read(text.trim_start_matches('?'), state)
}

/// Takes the same time wherever the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !is_invisible(*c)).take(LONGEST).collect()
}

/// Characters that turn a line around or hide in it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A page for the browser. `headline` and `text` are escaped here.
pub fn page(headline: &str, text: &str) -> String {
    let (headline, text) = (escaped(headline), escaped(text));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{headline}</title></head>\n\
         <body><h1>{headline}</h1><p>{text}</p></body></html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_right_state_counts() {
        assert_eq!(
            read("code=c&state=s&iss=https%3A%2F%2Fas", "s"),
            Ok(Answer::Code { code: "c".into(), issuer: Some("https://as".into()) })
        );
        for (query, stray) in [
            ("", Stray::NoAnswer),
            ("code=c", Stray::NoAnswer),
            ("code=c&state=t", Stray::OtherLogin),
            ("code=c&state=", Stray::OtherLogin),
            ("error=access_denied&state=t", Stray::OtherLogin),
            ("state=s", Stray::Damaged),
            ("code=&state=s", Stray::Damaged),
            ("code=a&code=b&state=s", Stray::Damaged),
            ("code=a&state=s&state=t", Stray::Damaged),
            ("code=a&error=x&state=s", Stray::Damaged),
        ] {
            assert_eq!(read(query, "s"), Err(stray), "{query}");
        }
    }

    #[test]
    fn a_pasted_address_is_taken_in_every_form_a_person_may_copy() {
        let code = Ok(Answer::Code { code: "c".into(), issuer: None });
        for text in [
            "http://127.0.0.1:4711/callback?code=c&state=s",
            "  'http://127.0.0.1:4711/callback?code=c&state=s' \n",
            "?code=c&state=s",
            "code=c&state=s",
        ] {
            assert_eq!(read_pasted(text, "s"), code, "{text}");
        }
        assert_eq!(read_pasted("c", "s"), Err(Stray::NoAnswer), "a bare code proves nothing");
        assert_eq!(read_pasted("http://127.0.0.1/callback", "s"), Err(Stray::NoAnswer));
    }

    #[test]
    fn what_a_server_says_cannot_take_over_a_terminal_or_a_page() {
        let Ok(Answer::Refused { error, description, .. }) =
            read("state=s&error=%1b%5d0;x%07denied&error_description=%3Cscript%3E%E2%80%AEalert(1)", "s")
        else {
            panic!("no refusal")
        };
        assert_eq!((error.as_str(), description.as_str()), ("]0;xdenied", "<script>alert(1)"));
        let page = page("Login failed", &description);
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"), "{page}");
    }

    proptest! {
        #[test]
        fn no_request_without_the_state_is_ever_an_answer(query in "\\PC{0,60}") {
            prop_assert!(read(&query, "0123456789abcdef").is_err());
        }
    }
}
