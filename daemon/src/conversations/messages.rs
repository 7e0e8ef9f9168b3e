//! Messages of a conversation as clients see them.
