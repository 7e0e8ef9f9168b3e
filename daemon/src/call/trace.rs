//! Where a call is in a trace: the client's `traceparent` or a new trace.
//!
//! Pure but for the ids that it draws. W3C Trace Context, level 1, section 3.2: version 00, 16 bytes
//! of trace id, 8 bytes of span id, flags, all lower-case hex; all zeros are invalid.

use crate::telemetry::ids;
use crate::telemetry::traces::{Origin, Span};

/// Bytes of a `traceparent`.
pub const HEADER: usize = 55;

/// The flag "sampled".
const SAMPLED: u8 = 1;

/// Where a call is in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// 32 hex digits.
    id: String,
    number: u128,
    /// The client's span; `None`: the trace begins here.
    parent: Option<u64>,
    flags: u8,
}

impl Trace {
    /// Continues the trace of a client's `_meta.traceparent`, or begins one.
    pub fn of(traceparent: Option<&str>) -> Self {
        traceparent.and_then(parse).unwrap_or_else(|| {
            let number = u128::from(ids::next()) << 64 | u128::from(ids::next());
            Self { id: format!("{number:032x}"), number, parent: None, flags: SAMPLED }
        })
    }

    /// 32 hex digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the client began it.
    pub fn is_continued(&self) -> bool {
        self.parent.is_some()
    }

    /// What a sampler has to know.
    pub fn origin(&self) -> Origin {
        Origin {
            trace: self.number,
            parent: self.parent,
            sampled: self.parent.map(|_| self.flags & SAMPLED != 0),
        }
    }

    /// The header for the next hop, below `span`. Without a span it names one of its own: then nobody
    /// exports, and the flags go on as they came.
    pub fn header(&self, span: &Span) -> String {
        let flags = match span.sampled() {
            Some(true) => self.flags | SAMPLED,
            Some(false) => self.flags & !SAMPLED,
            None => self.flags,
        };
        format!("00-{}-{:016x}-{flags:02x}", self.id, span.id().unwrap_or_else(ids::next))
    }
}

fn parse(text: &str) -> Option<Trace> {
    let mut parts = text.split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    // Later versions may say more behind the flags; this one does not.
    let whole = version != "00" || parts.next().is_none();
    if !(whole && hex(version, 2) && version != "ff" && hex(id, 32) && hex(span, 16) && hex(flags, 2)) {
        return None;
    }
    let number = u128::from_str_radix(id, 16).ok().filter(|number| *number != 0)?;
    let parent = u64::from_str_radix(span, 16).ok().filter(|parent| *parent != 0)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some(Trace { id: id.to_owned(), number, parent: Some(parent), flags })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::traces::{Kind, Tracer};

    const OURS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    #[test]
    fn a_clients_trace_goes_on_under_a_new_span_and_keeps_its_flags() {
        let trace = Trace::of(Some(OURS));
        assert_eq!(trace.id(), "0af7651916cd43dd8448eb211c80319c");
        let header = trace.header(&Span::none());
        assert_eq!(header.len(), HEADER);
        assert!(header.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && header.ends_with("-00"));
        assert!(!header.contains("b7ad6b7169203331"));
        assert!(Trace::of(None).header(&Span::none()).ends_with("-01"));
    }

    #[test]
    fn an_exporter_decides_the_flag_of_traces_that_begin_here() {
        let tracer = Tracer::default();
        for (ratio, flag) in [(0.0, "-00"), (1.0, "-01")] {
            tracer.sample(Some(ratio));
            let trace = Trace::of(None);
            let span = tracer.begin(trace.origin(), Kind::Server, || "x".into());
            let header = trace.header(&span);
            assert!(header.ends_with(flag), "{header}");
            assert_eq!(span.id().is_some_and(|id| header.contains(&format!("{id:016x}"))), ratio > 0.5);
        }
        // The client has decided.
        tracer.sample(Some(1.0));
        let span = tracer.begin(Trace::of(Some(OURS)).origin(), Kind::Server, || "x".into());
        assert_eq!((span.id(), span.sampled()), (None, Some(false)));
    }

    #[test]
    fn anything_else_begins_a_trace_of_its_own() {
        for bad in [
            "",
            "nonsense",
            "00-00000000000000000000000000000000-b7ad6b7169203331-00",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        ] {
            let (one, two) = (Trace::of(Some(bad)), Trace::of(None));
            assert_eq!((one.id().len(), one.is_continued()), (32, false), "{bad}");
            assert_ne!(one.id(), two.id());
        }
        assert!(Trace::of(Some(&OURS.replacen("00", "cc", 1).replace("-00", "-00-more"))).is_continued());
    }
}
