//! Labels of the metrics.
//!
//! Pure. May not touch: what is counted.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use std::fmt::{self, Write};
use std::sync::Arc;

/// A label's value; escaped when it is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Label(Arc<str>);

impl Label {
    pub(super) fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> fmt::Result {
        encoder.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByServer {
    pub(super) server: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByTool {
    pub(super) server: Label,
    pub(super) tool: Label,
    pub(super) outcome: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByPhase {
    pub(super) server: Label,
    pub(super) phase: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByOutcome {
    pub(super) server: Label,
    pub(super) outcome: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByDirection {
    pub(super) server: Label,
    pub(super) direction: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByKind {
    pub(super) kind: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByVersion {
    pub(super) version: Label,
}
