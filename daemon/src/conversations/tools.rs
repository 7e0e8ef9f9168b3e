//! The ten tools: definitions and dispatch.
