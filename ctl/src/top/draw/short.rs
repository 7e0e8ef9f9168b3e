//! Figures in few characters.
//!
//! Pure.

/// A span in at most five characters: `850us`, `12ms`, `1.2s`, `48s`, `3m`, `2h`.
pub(super) fn span(micros: u64) -> String {
    match micros {
        0 => "-".to_owned(),
        1..=999 => format!("{micros}us"),
        1_000..=999_999 => format!("{}ms", micros / 1_000),
        1_000_000..=9_999_999 => format!("{}.{}s", micros / 1_000_000, micros / 100_000 % 10),
        10_000_000..=99_999_999 => format!("{}s", micros / 1_000_000),
        100_000_000..=5_999_999_999 => format!("{}m", micros / 60_000_000),
        _ => format!("{}h", micros / 3_600_000_000),
    }
}

/// Bytes in at most five characters: `812K`, `48M`, `1.2G`.
pub(super) fn bytes(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    match bytes {
        0 => "-".to_owned(),
        _ if bytes < MIB => format!("{}K", bytes.div_ceil(1024)),
        _ if bytes < 1024 * MIB => format!("{}M", bytes / MIB),
        _ => {
            let tenths = bytes / (1024 * MIB / 10);
            format!("{}.{}G", tenths / 10, tenths % 10)
        }
    }
}

/// A count in at most five characters: `9999`, `31k`, `4.2M`.
pub(super) fn count(count: u64) -> String {
    match count {
        0..=9_999 => count.to_string(),
        10_000..=999_999 => format!("{}k", count / 1_000),
        _ => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let spans = [0, 999, 1_000, 1_250_000, 48_000_000, 180_000_000, 7_200_000_000].map(span);
        assert_eq!(spans, ["-", "999us", "1ms", "1.2s", "48s", "3m", "2h"]);
        assert_eq!([0, 1, 50_331_648, 1_288_490_189].map(bytes), ["-", "1K", "48M", "1.2G"]);
        assert_eq!([12, 31_337, 4_200_000].map(count), ["12", "31k", "4.2M"]);
    }
}
