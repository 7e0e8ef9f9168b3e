//! Metrics of hermesd.db, read from its health when somebody looks.
//!
//! Promise: a scrape never asks the database. May not touch: the store's state.

use crate::store::{Keeping, Store};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;

/// Reads [`Store::health`].
#[derive(Debug)]
pub(super) struct StoreCollector(pub(super) Store);

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let health = self.0.health().borrow().clone();
        let durable = match health.keeping {
            Keeping::Wal | Keeping::Rollback => health.trouble.is_none(),
            Keeping::Memory(_) | Keeping::Waiting => false,
        };
        let waiting = i64::try_from(self.0.audit_waiting()).unwrap_or(i64::MAX);
        write(
            &mut encoder,
            "hermes_store_durable",
            "1 if hermesd.db is written to disk",
            ConstGauge::new(i64::from(durable)),
        )?;
        write(
            &mut encoder,
            "hermes_audit_waiting",
            "Audit rows that wait to be written",
            ConstGauge::new(waiting),
        )?;
        write(
            &mut encoder,
            "hermes_audit_written",
            "Audit rows written",
            ConstCounter::new(health.audit_written),
        )?;
        write(
            &mut encoder,
            "hermes_audit_dropped",
            "Audit rows lost because too many waited",
            ConstCounter::new(self.0.audit_dropped()),
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
