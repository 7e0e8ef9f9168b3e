//! Malware check of packages before their first start.
