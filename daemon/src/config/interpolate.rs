//! Pure: `${VAR}` and `${VAR:-default}` in values.
