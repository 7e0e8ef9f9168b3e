//! Arguments against the tool's schema.
