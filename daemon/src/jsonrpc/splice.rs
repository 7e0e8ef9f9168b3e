//! Rewrites one member of an object from its raw members, in their order.
