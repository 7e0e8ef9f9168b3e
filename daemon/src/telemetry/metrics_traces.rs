//! Metrics of the trace export, read from its counters when somebody looks.
//!
//! May not touch: the queue of spans.

use super::traces::Tracer;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;

/// Reads [`Tracer::counts`].
#[derive(Debug)]
pub(super) struct TraceCollector(pub(super) Tracer);

impl Collector for TraceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        for (name, help, count) in [
            ("hermes_trace_spans_exported", "Spans that the receiver took", counts.exported),
            ("hermes_trace_spans_dropped", "Spans lost because too many waited", counts.dropped),
            ("hermes_trace_spans_lost", "Spans lost because the receiver did not take them", counts.lost),
        ] {
            write(&mut encoder, name, help, ConstCounter::new(count))?;
        }
        let waiting = i64::try_from(counts.waiting).unwrap_or(i64::MAX);
        write(
            &mut encoder,
            "hermes_trace_spans_waiting",
            "Spans that wait to be sent",
            ConstGauge::new(waiting),
        )
    }
}

fn write(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}
