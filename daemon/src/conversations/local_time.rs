//! Epoch seconds as the local ISO text that Hermes Agent writes.
//!
//! Pure: the zone is a parameter. Promise: the same text as Python's `datetime.isoformat()` of a
//! naive local time, six decimals only where the fraction is not zero.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Local time of `epoch` (seconds since 1970, any fraction) in `zone`; `None` where no such time exists.
pub(super) fn iso(epoch: f64, zone: &TimeZone) -> Option<String> {
    let micros = (epoch * 1e6).round_ties_even();
    // The cast saturates, and the range check of jiff refuses what saturated; NaN would become 1970.
    if !micros.is_finite() {
        return None;
    }
    let at = Timestamp::from_microsecond(micros as i64).ok()?;
    let local = zone.to_datetime(at);
    let seconds = local.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    match local.subsec_nanosecond() / 1000 {
        0 => Some(seconds),
        fraction => Some(format!("{seconds}.{fraction:06}")),
    }
}

/// Epoch seconds of an ISO text: with an offset as it says, else as the wall clock of `zone` shows it.
/// A date alone is its first moment. `None` if it is no such text.
pub(super) fn epoch(text: &str, zone: &TimeZone) -> Option<f64> {
    let seconds = |at: Timestamp| at.as_microsecond() as f64 / 1e6;
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(seconds(at));
    }
    let local: DateTime = text.parse().ok()?;
    zone.to_timestamp(local).ok().map(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_seconds_have_no_fraction_and_others_six_digits() {
        assert_eq!(iso(1_779_000_149.0, &TimeZone::UTC).as_deref(), Some("2026-05-17T06:42:29"));
        assert_eq!(iso(1_779_000_083.75, &TimeZone::UTC).as_deref(), Some("2026-05-17T06:41:23.750000"));
    }

    #[test]
    fn the_zone_decides_the_wall_clock_also_across_a_change_of_summer_time() {
        let berlin = TimeZone::get("Europe/Berlin").expect("bundled zone data");
        assert_eq!(iso(1_774_745_999.0, &berlin).as_deref(), Some("2026-03-29T01:59:59"));
        assert_eq!(iso(1_774_746_000.0, &berlin).as_deref(), Some("2026-03-29T03:00:00"));
    }

    #[test]
    fn times_out_of_range_have_no_text() {
        for epoch in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300] {
            assert_eq!(iso(epoch, &TimeZone::UTC), None);
        }
    }

    #[test]
    fn texts_with_and_without_an_offset_are_read_and_others_are_not() {
        let berlin = TimeZone::get("Europe/Berlin").expect("bundled zone data");
        assert_eq!(epoch("2026-05-17T06:42:29Z", &berlin), Some(1_779_000_149.0));
        assert_eq!(epoch("2026-05-17T08:42:29", &berlin), Some(1_779_000_149.0));
        assert_eq!(epoch("2026-05-17 08:42:29.5+02:00", &TimeZone::UTC), Some(1_779_000_149.5));
        assert_eq!(epoch("2026-05-17", &TimeZone::UTC), Some(1_778_976_000.0));
        for odd in ["", "soon", "2026-13-01", "12:00"] {
            assert_eq!(epoch(odd, &TimeZone::UTC), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn a_text_reads_back_as_the_time_it_was_made_from(at in 0i64..4_000_000_000) {
            let text = iso(at as f64, &TimeZone::UTC).unwrap();
            prop_assert_eq!(epoch(&text, &TimeZone::UTC), Some(at as f64));
        }

        #[test]
        fn later_times_sort_later(a in 0i64..4_000_000_000, b in 0i64..4_000_000_000) {
            let (first, second) = (iso(a as f64, &TimeZone::UTC), iso(b as f64, &TimeZone::UTC));
            prop_assert_eq!(a.cmp(&b), first.cmp(&second));
        }
    }
}
