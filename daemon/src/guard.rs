//! The guard process between the daemon and one stdio server; the only file with unsafe code.
