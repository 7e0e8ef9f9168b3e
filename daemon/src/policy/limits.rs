//! Pure: token buckets and quotas.
