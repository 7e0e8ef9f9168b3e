//! Pure: texts to durations, sizes, numbers and booleans.
//!
//! Promise: every reader takes what a person plausibly writes, with or without a unit, and says
//! in its error what would be right. May not touch: findings, files.

use std::time::Duration;

/// Longest duration that is accepted anywhere.
pub const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// Why a text is not the value that is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not `90s`, `2m`, `1h30m`, `250ms` or a number of seconds.
    #[error("not a duration")]
    NotADuration,
    /// Negative or over [`MAX_DURATION`].
    #[error("a duration must be between 0 and 366 days")]
    DurationRange,
    /// Not `512KB`, `4MiB` or a number of bytes.
    #[error("not a size")]
    NotASize,
    /// Not a whole number.
    #[error("not a whole number")]
    NotANumber,
    /// Not true or false in any spelling.
    #[error("neither true nor false")]
    NotABoolean,
}

impl ValueError {
    /// What would be right.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotADuration => "write seconds (`90`) or units: `250ms`, `90s`, `2m`, `1h30m`, `1d`",
            Self::DurationRange => "write a shorter, positive time, e.g. `2m`",
            Self::NotASize => "write bytes (`65536`) or a unit: `512KB`, `4MiB`",
            Self::NotANumber => "write digits only, e.g. `3`",
            Self::NotABoolean => "write `true` or `false`",
        }
    }
}

/// How a boolean was spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelled {
    /// `true yes on`, `false no off`, any case.
    Word(bool),
    /// `1` or `0`, which Hermes Agent ignores when they are not quoted.
    Digit(bool),
}

impl Spelled {
    /// The value.
    pub fn value(self) -> bool {
        match self {
            Self::Word(value) | Self::Digit(value) => value,
        }
    }
}

/// Reads true, yes, on, 1, y and their opposites, trimmed, in any case.
///
/// # Errors
/// [`ValueError::NotABoolean`].
pub fn boolean(text: &str) -> Result<Spelled, ValueError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Ok(Spelled::Word(true)),
        "false" | "no" | "off" | "n" => Ok(Spelled::Word(false)),
        "1" => Ok(Spelled::Digit(true)),
        "0" => Ok(Spelled::Digit(false)),
        _ => Err(ValueError::NotABoolean),
    }
}

/// Reads `90`, `1.5`, `90s`, `2m`, `1h30m`, `250ms`, `1d`; bare numbers are seconds.
///
/// # Errors
/// [`ValueError::NotADuration`] and [`ValueError::DurationRange`].
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let compact: String = text.trim().to_ascii_lowercase().replace([' ', '_'], "");
    if let Ok(seconds) = compact.parse::<f64>() {
        return seconds_to_duration(seconds);
    }
    let mut rest = compact.as_str();
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits =
            rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or(ValueError::NotADuration)?;
        let amount: f64 = rest[..digits].parse().map_err(|_| ValueError::NotADuration)?;
        let unit_end =
            rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |n| digits + n);
        total += amount * unit_seconds(&rest[digits..unit_end]).ok_or(ValueError::NotADuration)?;
        rest = &rest[unit_end..];
    }
    if compact.is_empty() { Err(ValueError::NotADuration) } else { seconds_to_duration(total) }
}

fn seconds_to_duration(seconds: f64) -> Result<Duration, ValueError> {
    if seconds.is_nan() {
        return Err(ValueError::NotADuration);
    }
    // Whole nanoseconds: 0.1 + 0.2 style sums must not make two spellings of one time differ.
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= MAX_DURATION => {
            let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            let rounded = micros + u64::from(duration.subsec_nanos() % 1000 >= 500);
            Ok(Duration::from_micros(rounded))
        }
        Ok(_) | Err(_) => Err(ValueError::DurationRange),
    }
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ms" | "msec" | "milliseconds" | "millisecond" => 0.001,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

/// Reads `65536`, `512KB` (1000), `4MiB` (1024), `1.5 MB`.
///
/// # Errors
/// [`ValueError::NotASize`], also over 2^53 bytes.
pub fn size(text: &str) -> Result<u64, ValueError> {
    let compact: String = text.trim().to_ascii_lowercase().replace([' ', '_'], "");
    let end = compact.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(compact.len());
    let amount: f64 = compact[..end].parse().map_err(|_| ValueError::NotASize)?;
    let factor: f64 = match &compact[end..] {
        "" | "b" | "byte" | "bytes" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1_048_576.0,
        "gi" | "gib" => 1_073_741_824.0,
        _ => return Err(ValueError::NotASize),
    };
    let bytes = (amount * factor).round();
    // 2^53: every whole number up to it is exact in f64.
    if (0.0..=9_007_199_254_740_992.0).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err(ValueError::NotASize)
    }
}

/// Reads `3`, `"3"`, `3.0`, `1_000`.
///
/// # Errors
/// [`ValueError::NotANumber`], also for negative ones.
pub fn whole(text: &str) -> Result<u64, ValueError> {
    let compact = text.trim().replace('_', "");
    let digits = compact.split_once('.').map_or(compact.as_str(), |(whole, fraction)| {
        if fraction.chars().all(|c| c == '0') { whole } else { "" }
    });
    digits.strip_prefix('+').unwrap_or(digits).parse().map_err(|_| ValueError::NotANumber)
}

/// Whether `text` holds a label that redaction puts in the place of a secret: `[REDACTED]`,
/// `[GH_TOKEN_REDACTED]`, …
pub fn is_masked(text: &str) -> bool {
    text.match_indices("REDACTED]").any(|(at, _)| {
        let kind = text[..at].trim_end_matches(|c: char| c.is_ascii_uppercase() || c == '_');
        kind.ends_with('[')
    })
}

/// The member of `known` that `word` was probably meant to be.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    // One mistake for each three letters: `comand`, `exlude`, `retires`; not `env` for `end`.
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| {
            *distance <= allowed && *distance < candidate.chars().count().max(2) - 1
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_come_with_and_without_units() {
        for (text, ms) in [
            ("90", 90_000),
            ("1.5", 1_500),
            ("90s", 90_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            (" 1 min ", 60_000),
            ("1h 30m 5s", 5_405_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("1D", 86_400_000),
            ("1e3", 1_000_000),
            ("10 seconds", 10_000),
            ("0.3", 300),
            ("1_000", 1_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "abc", "5x", "s", "m5", "1h30", "nan", "1..5s", "--1", "5 parsecs"] {
            assert_eq!(duration(text), Err(ValueError::NotADuration), "{text}");
        }
        for text in ["-1", "inf", "1e30", "400d"] {
            assert_eq!(duration(text), Err(ValueError::DurationRange), "{text}");
        }
    }

    #[test]
    fn sizes_know_decimal_and_binary_units() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("512KB", 512_000),
            ("4MiB", 4_194_304),
            ("1.5 mb", 1_500_000),
            ("1k", 1000),
            ("0", 0),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "-1", "4XB", "MiB", "1e99GB", "9999999999GB"] {
            assert_eq!(size(text), Err(ValueError::NotASize), "{text}");
        }
    }

    #[test]
    fn booleans_are_read_in_every_spelling() {
        for text in ["true", "TRUE", " Yes", "on", "y"] {
            assert_eq!(boolean(text), Ok(Spelled::Word(true)), "{text}");
        }
        for text in ["false", "No ", "OFF", "n"] {
            assert_eq!(boolean(text), Ok(Spelled::Word(false)), "{text}");
        }
        assert_eq!((boolean("1"), boolean("0")), (Ok(Spelled::Digit(true)), Ok(Spelled::Digit(false))));
        for text in ["", "2", "truee", "null", "enabled"] {
            assert_eq!(boolean(text), Err(ValueError::NotABoolean), "{text}");
        }
    }

    #[test]
    fn whole_numbers_may_be_texts_and_floats_without_a_fraction() {
        for (text, n) in [("3", 3), (" 12 ", 12), ("3.0", 3), ("1_000", 1000), ("+5", 5), ("010", 10)] {
            assert_eq!(whole(text), Ok(n), "{text}");
        }
        for text in ["", "-1", "2.5", "abc", "nan", "inf", "1e3", "99999999999999999999"] {
            assert_eq!(whole(text), Err(ValueError::NotANumber), "{text}");
        }
    }

    #[test]
    fn labels_of_masked_values_are_known() {
        for masked in
            ["[REDACTED]", "Bearer [REDACTED]", "a [x] [GH_TOKEN_REDACTED]", "https://u:[REDACTED]@h/"]
        {
            assert!(is_masked(masked), "{masked}");
        }
        for plain in ["", "REDACTED", "[redacted]", "x_REDACTED]", "[not REDACTED]", "[[REDACTED"] {
            assert!(!is_masked(plain), "{plain}");
        }
    }

    #[test]
    fn suggestions_are_close_or_absent() {
        let known = ["command", "args", "env", "exclude", "max_concurrency", "url"];
        for (typo, meant) in [("comand", "command"), ("arg", "args"), ("Env", "env"), ("exlude", "exclude")] {
            assert_eq!(closest(typo, known), Some(meant));
        }
        assert_eq!(closest("max-concurency", known), Some("max_concurrency"));
        for far in ["banana", "x", "description", "end_of_file"] {
            assert_eq!(closest(far, known), None, "{far}");
        }
    }

    proptest! {
        #[test]
        fn readers_never_panic(text in "\\PC{0,20}") {
            let _ = (duration(&text), size(&text), whole(&text), boolean(&text), closest(&text, ["a", "", "abc"]));
        }

        #[test]
        fn a_duration_is_the_sum_of_its_parts(h in 0_u64..20, m in 0_u64..60, s in 0_u64..60) {
            prop_assert_eq!(duration(&format!("{h}h{m}m{s}s")), Ok(Duration::from_secs(h * 3600 + m * 60 + s)));
        }
    }
}
