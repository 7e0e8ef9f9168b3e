//! One connected client: lines in, calls out, answers in order.

pub mod listener;
pub mod methods;
pub mod outbox;
pub mod resume;
pub mod subscriptions;
pub mod task;
