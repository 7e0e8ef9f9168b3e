//! Composition root: the only file that knows everybody; start order and wiring.
