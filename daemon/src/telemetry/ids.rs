//! Numbers that are unlike any before them: ids of traces and spans.
//!
//! Promise: different within this daemon, not guessable from outside, never 0. Costs no system call but the
//! first time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The next number.
pub fn next() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let seed = *SEED.get_or_init(|| {
        let mut bytes = [0u8; 8];
        // Without randomness ids are still unique within this daemon.
        let _ = getrandom::fill(&mut bytes);
        u64::from_ne_bytes(bytes)
    });
    // splitmix64: a bijection, so that different counts give different ids.
    let mut z = seed.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}
