//! The trace id of a call: the client's `traceparent` or a new one.
//!
//! Pure but for one random seed. W3C Trace Context, level 1, section 3.2: version 00, 16 bytes of
//! trace id, 8 bytes of span id, flags, all lower-case hex; all zeros are invalid.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a call is in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    id: String,
    flags: String,
}

impl Trace {
    /// Continues the trace of a client's `_meta.traceparent`, or begins one.
    pub fn of(traceparent: Option<&str>) -> Self {
        traceparent.and_then(parse).unwrap_or_else(|| {
            let id = format!("{:016x}{:016x}", next(), next());
            Self { id, flags: "01".to_owned() }
        })
    }

    /// 32 hex digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The header for the next hop, with a span id of its own.
    pub fn child(&self) -> String {
        let mut text = String::with_capacity(55);
        let _ = write!(text, "00-{}-{:016x}-{}", self.id, next(), self.flags);
        text
    }
}

fn parse(text: &str) -> Option<Trace> {
    let mut parts = text.split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let nonzero = |part: &str| part.bytes().any(|b| b != b'0');
    let good =
        hex(version, 2) && version != "ff" && hex(id, 32) && nonzero(id) && hex(span, 16) && nonzero(span);
    (good && hex(flags, 2)).then(|| Trace { id: id.to_owned(), flags: flags.to_owned() })
}

/// A number that is unlike any before it and not guessable from outside; never 0.
fn next() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let seed = *SEED.get_or_init(|| {
        let mut bytes = [0u8; 8];
        // Without randomness ids are still unique within this daemon.
        let _ = getrandom::fill(&mut bytes);
        u64::from_ne_bytes(bytes)
    });
    // splitmix64: a bijection, so that different counts give different ids.
    let mut z = seed.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_trace_goes_on_under_a_new_span() {
        let trace = Trace::of(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"));
        assert_eq!(trace.id(), "0af7651916cd43dd8448eb211c80319c");
        let child = trace.child();
        assert!(child.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && child.ends_with("-00"));
        assert!(!child.contains("b7ad6b7169203331"));
    }

    #[test]
    fn anything_else_begins_a_trace_of_its_own() {
        for bad in [
            "",
            "nonsense",
            "00-00000000000000000000000000000000-b7ad6b7169203331-00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        ] {
            let (one, two) = (Trace::of(Some(bad)), Trace::of(None));
            assert_eq!(one.id().len(), 32, "{bad}");
            assert_ne!(one.id(), two.id());
        }
    }
}
