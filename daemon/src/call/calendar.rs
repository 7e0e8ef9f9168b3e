//! The local day, for quotas.
//!
//! Owner: [`Calendar`]. Promise: asking costs two comparisons; the time zone's rules are looked at
//! once a minute and at midnight, so a clock that is set, or a change of zone, is noticed within a
//! minute. May not touch: what a day's quota is.

use crate::policy::limits::Today;
use jiff::{Timestamp, ZonedDateTime};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long an answer is believed, in milliseconds.
const BELIEVED: i64 = 60_000;

/// Knows which day it is.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    page: Mutex<Option<Page>>,
}

/// Points in time in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Page {
    day: i64,
    midnight: i64,
    looked: i64,
}

impl Calendar {
    /// The day by the local clock, and what is left of it.
    pub(super) fn today(&self) -> Today {
        let now = Timestamp::now().as_millisecond();
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match *page {
            Some(page) if now >= page.looked && now < page.midnight.min(page.looked + BELIEVED) => page,
            _ => *page.insert(look(&ZonedDateTime::now())),
        };
        let left = u64::try_from(page.midnight - now).unwrap_or(0);
        Today { day: page.day, until_next: Duration::from_millis(left) }
    }
}

fn look(now: &ZonedDateTime) -> Page {
    let looked = now.timestamp().as_millisecond();
    // Dates near the end of the calendar have no tomorrow; an hour is as good as any answer there.
    let midnight = now.tomorrow().and_then(|next| next.start_of_day());
    let midnight = midnight.map_or(looked + 3_600_000, |at| at.timestamp().as_millisecond());
    let epoch = jiff::civil::date(1970, 1, 1);
    let day = now.date().since(epoch).map_or(0, |span| i64::from(span.get_days()));
    Page { day, midnight, looked }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan as _;

    #[test]
    fn a_day_ends_at_the_local_midnight() {
        let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(2));
        let evening = ZonedDateTime::new(Timestamp::from_second(2 * 86_400 + 21 * 3600).unwrap(), zone);
        let page = look(&evening);
        assert_eq!((page.day, page.midnight - page.looked), (2, 3_600_000));
        let later = look(&evening.checked_add(90.minutes()).unwrap());
        assert_eq!(later.day, 3);
    }

    #[test]
    fn the_calendar_agrees_with_the_clock() {
        let today = Calendar::default().today();
        assert!(today.day > 20_000 && today.until_next <= Duration::from_secs(25 * 3600));
    }
}
