//! What a `WWW-Authenticate` header asks for.
//!
//! Pure. Promise: reads every header that RFC 9110 allows, in any order and case, and the bent ones
//! that are seen in the field (no scheme, unquoted URLs, `;` between parameters); never fails.

use std::fmt::Write as _;

/// One challenge of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// In lower case; empty when the header names none.
    pub scheme: String,
    /// Names in lower case, values without their quotes.
    pub params: Vec<(String, String)>,
}

impl Challenge {
    fn get(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What all headers of one answer ask for together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Where the resource is described; absolute or relative to the server's URL.
    pub resource_metadata: Option<String>,
    /// Scopes that the request needed.
    pub scopes: Vec<String>,
    /// `invalid_token`, `insufficient_scope` and the like.
    pub error: Option<String>,
}

impl Demand {
    /// What the headers of one answer ask for. Bearer challenges come first; one that says where the
    /// metadata is goes before one that does not.
    pub fn of(headers: &[String]) -> Self {
        let mut all: Vec<Challenge> = headers.iter().flat_map(|header| parse(header)).collect();
        all.sort_by_key(|challenge| {
            (challenge.scheme != "bearer", challenge.get("resource_metadata").is_none())
        });
        let first = |name| all.iter().find_map(|challenge| challenge.get(name)).map(str::to_owned);
        Self {
            resource_metadata: first("resource_metadata").filter(|url| !url.is_empty()),
            scopes: first("scope").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            error: first("error"),
        }
    }

    /// Whether the login is good but allows too little.
    pub fn wants_more(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// The same as one header that nobody can misread: the scope comes first and is always there, so
    /// that a reader that looks for `scope=` does not find it inside a URL.
    pub fn canonical(&self) -> String {
        let mut header = "Bearer scope=".to_owned();
        quote(&mut header, &self.scopes.join(" "));
        if let Some(url) = &self.resource_metadata {
            header.push_str(", resource_metadata=");
            quote(&mut header, url);
        }
        header
    }
}

fn quote(out: &mut String, value: &str) {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    write!(out, "\"{escaped}\"").expect("writing to a string cannot fail");
}

/// All challenges of one header.
pub fn parse(header: &str) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == ';');
        if rest.is_empty() {
            return found;
        }
        let (word, after) = split_word(rest);
        let behind = after.trim_start();
        match behind.strip_prefix('=') {
            // `==` is the end of a token68, as in `Negotiate abc==`.
            Some(value) if !word.is_empty() && !value.starts_with('=') => {
                let (value, after) = read_value(value.trim_start());
                if found.is_empty() {
                    found.push(Challenge { scheme: String::new(), params: Vec::new() });
                }
                let params = &mut found.last_mut().expect("pushed above").params;
                params.push((word.to_ascii_lowercase(), value));
                rest = after;
            }
            Some(value) => rest = value,
            None if word.is_empty() => {
                // Nothing that belongs here: skipped, so that the loop moves on.
                let mut chars = rest.chars();
                chars.next();
                rest = chars.as_str();
            }
            None => {
                found.push(Challenge { scheme: word.to_ascii_lowercase(), params: Vec::new() });
                rest = after;
            }
        }
    }
}

/// A word up to a separator.
fn split_word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '=' | '"'));
    text.split_at(end.unwrap_or(text.len()))
}

/// A quoted string, or everything up to a separator; `=` may be part of it.
fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c.is_whitespace() || matches!(c, ',' | ';')).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
    (value, chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demand(headers: &[&str]) -> Demand {
        Demand::of(&headers.iter().map(|header| (*header).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_metadata_url_is_found_in_every_spelling_seen_in_the_field() {
        let url = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
        for header in [
            format!("Bearer resource_metadata=\"{url}\""),
            format!("bearer RESOURCE_METADATA={url}"),
            format!("Bearer realm=\"a, b=c\", error=\"invalid_token\", resource_metadata=\"{url}\""),
            format!("Basic realm=\"x\", Bearer error=\"invalid_token\" , resource_metadata = \"{url}\""),
            format!("Negotiate abc==, Bearer resource_metadata=\"{url}\""),
            format!("resource_metadata=\"{url}\""),
            format!("Bearer realm=x; resource_metadata=\"{url}\"; scope=\"a\""),
            format!("Bearer resource_metadata=\"{url}"),
            format!("Digest qop=\"auth\", nonce=\"n\",Bearer scope=\"a b\",resource_metadata=\"{url}\""),
        ] {
            assert_eq!(demand(&[&header]).resource_metadata.as_deref(), Some(url), "{header}");
        }
    }

    #[test]
    fn the_bearer_challenge_counts_in_whichever_header_it_is() {
        let found =
            demand(&["Basic realm=\"r\"", "DPoP algs=\"ES256\", scope=\"d\"", "Bearer scope=\"a  b\""]);
        assert_eq!(found.scopes, ["a", "b"]);
        let two = demand(&["Bearer realm=\"r\"", "Bearer resource_metadata=\"/meta\", scope=\"s\""]);
        assert_eq!(two.resource_metadata.as_deref(), Some("/meta"));
    }

    #[test]
    fn words_inside_other_values_are_no_parameters() {
        let found =
            demand(&["Bearer error=\"insufficient_scope\", error_description=\"needs scope=evil, x\", \
             resource_metadata=\"https://h/m?scope=url&error=url\", scope=\"files:write\""]);
        assert_eq!(found.scopes, ["files:write"]);
        assert!(found.wants_more());
        assert_eq!(
            found.canonical(),
            "Bearer scope=\"files:write\", resource_metadata=\"https://h/m?scope=url&error=url\""
        );
    }

    #[test]
    fn no_header_asks_for_nothing() {
        assert_eq!(demand(&[]), Demand::default());
        assert_eq!(demand(&["", ",,;", "Basic"]).canonical(), "Bearer scope=\"\"");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_to_its_end(header in "\\PC{0,80}") {
            let _ = parse(&header);
        }

        #[test]
        fn the_canonical_form_says_the_same(
            scopes in proptest::collection::vec("[!#-\\[\\]-~]{1,8}", 0..4),
            url in proptest::option::of("https://[a-z\"\\\\,;=]{1,20}"),
        ) {
            let demand = Demand { resource_metadata: url, scopes, error: None };
            prop_assert_eq!(&Demand::of(&[demand.canonical()]), &demand);
        }
    }
}
