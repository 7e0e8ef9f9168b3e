//! Request ids: the client's raw form and our own numbers towards servers.
//!
//! Pure. A client's id goes back byte for byte (failures: `"1"` and `1` are two ids, large
//! integers keep their digits); as a map key it is compared by type and value. Towards a server
//! every id is a number of ours, so no peer can choose an id that means somebody else's call.

use serde_json::value::RawValue;

/// A client's id: raw for the answer, typed for lookups.
#[derive(Debug, Clone)]
pub struct RequestId {
    raw: Box<str>,
    key: IdKey,
}

/// An id as a map key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdKey {
    /// A string, unescaped.
    Text(Box<str>),
    /// A number, with its digits as they came (`1` and `1.0` are the same integer).
    Number(Box<str>),
}

/// The value of an `id` member is neither a string nor a number (MCP forbids null; JSON-RPC 2.0,
/// section 4: String, Number or Null).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request id must be a string or a number")]
pub struct NotAnId;

impl RequestId {
    /// Takes the id over as it was written.
    ///
    /// # Errors
    /// [`NotAnId`] for null, booleans, arrays and objects.
    pub fn parse(raw: &RawValue) -> Result<Self, NotAnId> {
        Ok(Self { key: IdKey::parse(raw)?, raw: raw.get().into() })
    }

    /// The JSON text to answer with.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// The key to compare by.
    pub fn key(&self) -> &IdKey {
        &self.key
    }
}

impl IdKey {
    /// Reads an id (of a request, or a `requestId` in a cancellation).
    ///
    /// # Errors
    /// [`NotAnId`] for null, booleans, arrays and objects.
    pub fn parse(raw: &RawValue) -> Result<Self, NotAnId> {
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'"') => match serde_json::from_str::<String>(text) {
                Ok(text) => Ok(Self::Text(text.into())),
                Err(_) => Err(NotAnId),
            },
            Some(b'-' | b'0'..=b'9') => {
                let digits = text.strip_suffix(".0").unwrap_or(text);
                Ok(Self::Number(digits.into()))
            }
            _ => Err(NotAnId),
        }
    }
}

/// Reads one of our own numbers back from what a server wrote; servers that turn numbers into
/// text or floats are understood.
pub fn own_number(raw: &RawValue) -> Option<u64> {
    let text = raw.get();
    let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn every_legal_id_goes_back_byte_for_byte_and_types_stay_apart() {
        let ids =
            [r#""a""#, r#""1""#, "1", "0", "-5", "9007199254740993", r#""""#, "12345678901234567890123"];
        for (i, text) in ids.iter().enumerate() {
            let id = RequestId::parse(&raw(text)).unwrap();
            assert_eq!(id.raw(), *text);
            for other in &ids[..i] {
                assert_ne!(id.key(), RequestId::parse(&raw(other)).unwrap().key(), "{text} {other}");
            }
        }
    }

    #[test]
    fn the_same_text_in_another_spelling_is_the_same_key() {
        assert_eq!(IdKey::parse(&raw(r#""\u0061""#)), IdKey::parse(&raw(r#""a""#)));
        assert_eq!(IdKey::parse(&raw("7.0")), IdKey::parse(&raw("7")));
    }

    #[test]
    fn null_bool_array_and_object_are_no_ids() {
        for text in ["null", "true", "[]", "{}"] {
            assert_eq!(RequestId::parse(&raw(text)).unwrap_err(), NotAnId);
        }
    }

    #[test]
    fn servers_that_change_the_type_of_our_number_are_understood() {
        for text in ["17", r#""17""#, "17.0"] {
            assert_eq!(own_number(&raw(text)), Some(17));
        }
        assert_eq!(own_number(&raw("-1")), None);
    }
}
