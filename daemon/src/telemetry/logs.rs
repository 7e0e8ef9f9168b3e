//! Own log and one per server: rotation, folding, escaping.
