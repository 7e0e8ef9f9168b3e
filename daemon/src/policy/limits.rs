//! Rate limits and quotas.
//!
//! Pure; `now` and the day come from the caller. Promise: a call takes from every limit or from
//! none; no window of any length lets through more than burst plus rate; a refusal says which limit
//! it was, its value, and the first moment at which the same call would pass.

use crate::config::RateLimitConfig;
use crate::names::{ClientId, ProfileName, ServerName};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Full buckets are forgotten when more than this many are kept.
const MAX_BUCKETS: usize = 1024;

/// The local day and how much of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Today {
    /// Days since 1970-01-01, by the local calendar.
    pub day: i64,
    /// Until the next local midnight.
    pub until_next: Duration,
}

/// One call that asks to pass.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Who calls.
    pub client: ClientId,
    /// Which server.
    pub server: &'a ServerName,
    /// Under which profile.
    pub profile: &'a ProfileName,
    /// `rate_limit` of the server.
    pub rate: Option<&'a RateLimitConfig>,
    /// `quota.per_day` of the profile.
    pub per_day: Option<NonZeroU32>,
    /// `quota.per_session` of the profile.
    pub per_session: Option<NonZeroU32>,
}

/// Which limit refused a call. `Display` is written for a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The token bucket of this client and server is empty.
    #[error(
        "rate limit of server `{server}` reached: {per_minute} calls a minute, {burst} at once; \
         next call possible in {} s",
        whole_secs(*.retry_after)
    )]
    Rate {
        /// The server.
        server: ServerName,
        /// Its limit.
        per_minute: u32,
        /// Calls at once.
        burst: u32,
        /// When the next call passes.
        retry_after: Duration,
    },
    /// The profile's calls of this day are used up.
    #[error(
        "daily quota of profile `{profile}` used up: {limit} calls a day; new calls possible in {} s (at midnight)",
        whole_secs(*.retry_after)
    )]
    Day {
        /// The profile.
        profile: ProfileName,
        /// Its quota.
        limit: u32,
        /// Until midnight.
        retry_after: Duration,
    },
    /// The session's calls are used up.
    #[error("quota of this session used up: {limit} calls with profile `{profile}`; a new session is needed")]
    Session {
        /// The profile.
        profile: ProfileName,
        /// Its quota.
        limit: u32,
    },
}

impl LimitError {
    /// Stable word for programs, logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Rate { .. } => "rate_limit",
            Self::Day { .. } => "quota_day",
            Self::Session { .. } => "quota_session",
        }
    }

    /// When the same call would pass; `None`: never in this session.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after, .. } | Self::Day { retry_after, .. } => Some(*retry_after),
            Self::Session { .. } => None,
        }
    }
}

/// Calls counted for one profile on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DayCount {
    day: i64,
    used: u64,
}

/// Every bucket and counter.
#[derive(Debug, Default)]
pub struct Limits {
    /// When each bucket will be full again. What is not here is full.
    full_at: HashMap<(ClientId, ServerName), Instant>,
    days: HashMap<ProfileName, DayCount>,
    sessions: HashMap<ClientId, u64>,
}

impl Limits {
    /// Everything full, nothing used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues the count of a day after a restart.
    pub fn restore(&mut self, profile: ProfileName, day: i64, used: u64) {
        self.days.insert(profile, DayCount { day, used });
    }

    /// Calls of `profile` counted today; for status.
    pub fn used_today(&self, profile: &ProfileName, today: Today) -> u64 {
        self.days.get(profile).filter(|count| count.is_for(today.day)).map_or(0, |count| count.used)
    }

    /// Takes one call from every limit that `ask` names. The caller records a passed call in the
    /// store, where the day's count survives a restart.
    ///
    /// # Errors
    /// [`LimitError`] for the first limit that is used up; then nothing is taken from any.
    pub fn take(&mut self, ask: &Ask<'_>, now: Instant, today: Today) -> Result<(), LimitError> {
        let used = self.used_today(ask.profile, today);
        if let Some(limit) = ask.per_day.filter(|limit| used >= u64::from(limit.get())) {
            let (profile, retry_after) = (ask.profile.clone(), today.until_next);
            return Err(LimitError::Day { profile, limit: limit.get(), retry_after });
        }
        let session = self.sessions.get(&ask.client).copied().unwrap_or(0);
        if let Some(limit) = ask.per_session.filter(|limit| session >= u64::from(limit.get())) {
            return Err(LimitError::Session { profile: ask.profile.clone(), limit: limit.get() });
        }
        if let Some(rate) = ask.rate {
            self.take_token(ask, rate, now)?;
        }
        let count = self.days.entry(ask.profile.clone()).or_insert(DayCount { day: today.day, used: 0 });
        if !count.is_for(today.day) {
            *count = DayCount { day: today.day, used: 0 };
        }
        count.used += 1;
        *self.sessions.entry(ask.client).or_default() += 1;
        Ok(())
    }

    /// Forgets a client that is gone.
    pub fn forget(&mut self, client: ClientId) {
        self.sessions.remove(&client);
        self.full_at.retain(|(owner, _), _| *owner != client);
    }

    /// One bucket is one number: each call moves the moment at which it is full by one period, and
    /// passes if that moment is at most `burst` periods away.
    fn take_token(&mut self, ask: &Ask<'_>, rate: &RateLimitConfig, now: Instant) -> Result<(), LimitError> {
        let period = Duration::from_secs(60) / rate.per_minute.get();
        let room = period * (rate.burst.get() - 1);
        let key = (ask.client, ask.server.clone());
        let missing =
            self.full_at.get(&key).map_or(Duration::ZERO, |full| full.saturating_duration_since(now));
        if missing > room {
            return Err(LimitError::Rate {
                server: ask.server.clone(),
                per_minute: rate.per_minute.get(),
                burst: rate.burst.get(),
                retry_after: missing - room,
            });
        }
        self.full_at.insert(key, now + missing + period);
        if self.full_at.len() > MAX_BUCKETS {
            self.full_at.retain(|_, full| *full > now);
        }
        Ok(())
    }
}

impl DayCount {
    /// Whether this count goes on today. A clock that goes back by a day (travel, a correction)
    /// does not hand out a second quota; one that was wrong by more is not held against the user.
    fn is_for(&self, day: i64) -> bool {
        self.day == day || self.day == day + 1
    }
}

/// Seconds, rounded up, so that a retry after them is never too early; at least 1.
fn whole_secs(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: Today = Today { day: 20_000, until_next: Duration::from_secs(3600) };

    fn n(value: u32) -> NonZeroU32 {
        NonZeroU32::new(value).unwrap()
    }

    fn rate(per_minute: u32, burst: u32) -> RateLimitConfig {
        RateLimitConfig { per_minute: n(per_minute), burst: n(burst) }
    }

    fn ask<'a>(client: u64, server: &'a ServerName, profile: &'a ProfileName) -> Ask<'a> {
        Ask { client: ClientId(client), server, profile, rate: None, per_day: None, per_session: None }
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let (server, profile, start) = (ServerName::new("s"), ProfileName::new("p"), Instant::now());
        let rate = rate(60, 3);
        let mut limits = Limits::new();
        let one = Ask { rate: Some(&rate), ..ask(1, &server, &profile) };
        for _ in 0..3 {
            limits.take(&one, start, DAY).unwrap();
        }
        let error = limits.take(&one, start, DAY).unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(
            error.to_string(),
            "rate limit of server `s` reached: 60 calls a minute, 3 at once; next call possible in 1 s"
        );
        let other = Ask { rate: Some(&rate), ..ask(2, &server, &profile) };
        limits.take(&other, start, DAY).unwrap();
    }

    #[test]
    fn a_day_quota_ends_at_midnight_and_survives_a_restart() {
        let (server, profile, now) = (ServerName::new("s"), ProfileName::new("p"), Instant::now());
        let mut limits = Limits::new();
        limits.restore(profile.clone(), DAY.day, 4);
        let one = Ask { per_day: Some(n(5)), ..ask(1, &server, &profile) };
        limits.take(&one, now, DAY).unwrap();
        let error = limits.take(&one, now, DAY).unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), ("quota_day", Some(DAY.until_next)));
        let back = Today { day: DAY.day - 1, ..DAY };
        assert!(limits.take(&one, now, back).is_err(), "a clock set back is no second quota");
        let tomorrow = Today { day: DAY.day + 1, ..DAY };
        limits.take(&one, now, tomorrow).unwrap();
        assert_eq!(limits.used_today(&profile, tomorrow), 1);
    }

    #[test]
    fn a_session_quota_ends_with_the_session() {
        let (server, profile, now) = (ServerName::new("s"), ProfileName::new("p"), Instant::now());
        let mut limits = Limits::new();
        let one = Ask { per_session: Some(n(1)), ..ask(1, &server, &profile) };
        limits.take(&one, now, DAY).unwrap();
        let error = limits.take(&one, now, DAY).unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), ("quota_session", None));
        limits.forget(ClientId(1));
        limits.take(&one, now, DAY).unwrap();
    }

    #[test]
    fn full_buckets_of_many_clients_are_forgotten() {
        let (server, profile, start) = (ServerName::new("s"), ProfileName::new("p"), Instant::now());
        let rate = rate(60, 1);
        let mut limits = Limits::new();
        for client in 0..5000u64 {
            let now = start + Duration::from_secs(client);
            limits.take(&Ask { rate: Some(&rate), ..ask(client, &server, &profile) }, now, DAY).unwrap();
        }
        assert!(limits.full_at.len() <= MAX_BUCKETS + 1);
    }

    proptest! {
        #[test]
        fn no_window_lets_through_more_than_burst_plus_rate_and_the_retry_time_is_exact(
            per_minute in 1u32..600, burst in 1u32..20, gaps in proptest::collection::vec(0u64..5_000, 1..120),
        ) {
            let (server, profile, start) = (ServerName::new("s"), ProfileName::new("p"), Instant::now());
            let rate = rate(per_minute, burst);
            let one = Ask { rate: Some(&rate), ..ask(1, &server, &profile) };
            let mut limits = Limits::new();
            let mut now = start;
            let mut passed: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                match limits.take(&one, now, DAY) {
                    Ok(()) => passed.push(now),
                    Err(error) => {
                        let wait = error.retry_after().unwrap();
                        let early = now + wait - Duration::from_nanos(1);
                        prop_assert!(limits.take(&one, early, DAY).is_err());
                        now += wait;
                        prop_assert!(limits.take(&one, now, DAY).is_ok());
                        passed.push(now);
                    }
                }
            }
            let period = Duration::from_secs(60) / per_minute;
            for (i, from) in passed.iter().enumerate() {
                for (j, to) in passed.iter().enumerate().skip(i) {
                    let allowed = u128::from(burst) + (*to - *from).as_nanos() / period.as_nanos();
                    prop_assert!(((j - i + 1) as u128) <= allowed);
                }
            }
        }

        #[test]
        fn a_refused_call_takes_nothing(
            calls in proptest::collection::vec((0u64..3, 0u64..2, 0i64..3), 1..80),
            per_day in 1u32..20, per_session in 1u32..10, per_minute in 1u32..5,
        ) {
            let (server, profile, start) = (ServerName::new("s"), ProfileName::new("p"), Instant::now());
            let rate = rate(per_minute, 2);
            let mut limits = Limits::new();
            let (mut now, mut day) = (start, DAY.day);
            let mut by_session: HashMap<u64, u32> = HashMap::new();
            let mut today_passed = 0u32;
            for (client, secs, days) in calls {
                now += Duration::from_secs(secs);
                if days == 2 {
                    day += 1;
                    today_passed = 0;
                }
                let one = Ask { rate: Some(&rate), per_day: Some(n(per_day)), per_session: Some(n(per_session)), ..ask(client, &server, &profile) };
                let passed = limits.take(&one, now, Today { day, ..DAY });
                let session = by_session.entry(client).or_default();
                match passed {
                    Ok(()) => {
                        *session += 1;
                        today_passed += 1;
                    }
                    Err(LimitError::Day { .. }) => prop_assert_eq!(today_passed, per_day),
                    Err(LimitError::Session { .. }) => prop_assert_eq!(*session, per_session),
                    Err(LimitError::Rate { .. }) => prop_assert!(today_passed < per_day && *session < per_session),
                }
                prop_assert!(today_passed <= per_day && *session <= per_session);
            }
        }
    }
}
