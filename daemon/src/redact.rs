//! The one choke point that masks secrets in every text that leaves the daemon.
