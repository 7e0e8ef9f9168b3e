//! One method an rpc, no logic.
