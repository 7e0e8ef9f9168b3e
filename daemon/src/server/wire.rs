//! One generation's live connection: pending calls, ids, progress, cancellation.
