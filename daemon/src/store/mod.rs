//! hermesd.db: migrations and its single writer.
