//! Pure: include and exclude.
