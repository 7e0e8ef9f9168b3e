//! Pure circuit breaker: closed, open, half-open.
