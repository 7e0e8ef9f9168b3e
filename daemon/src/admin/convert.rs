//! Internal status to protobuf.
