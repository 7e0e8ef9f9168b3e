//! The optional Streamable HTTP listener.
