//! Tests of `lifecycle`: the promises as properties, the ladder of delays as examples.

use super::*;
use proptest::prelude::*;

fn policy() -> Policy {
    Policy::with_start_budget(Duration::from_secs(60))
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn oops() -> Failure {
    Failure::transient("exited with code 1")
}

/// Drives a life and plays a supervisor that ends generations at once.
struct Drive {
    life: Life,
    now: Instant,
    spawned: Vec<(Generation, Duration, Instant)>,
}

impl Drive {
    fn new() -> Self {
        Self { life: Life::new(Starts::Allowed), now: Instant::now(), spawned: Vec::new() }
    }

    fn feed(&mut self, event: Event) {
        let (life, actions) = self.life.clone().step(event, self.now, 0.0, &policy());
        self.life = life;
        for action in actions {
            match action {
                Action::Spawn { generation, budget } => self.spawned.push((generation, budget, self.now)),
                Action::End(_) => self.feed(Event::Ended),
            }
        }
    }

    /// Fails the start and returns the time until the next step.
    fn fail_start(&mut self) -> Option<Duration> {
        self.feed(Event::StartFailed(oops()));
        self.life.next_step(&policy()).map(|at| at - self.now)
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.feed(Event::TimerDue);
    }
}

#[test]
fn calls_cannot_hammer_a_server_that_needs_a_login_and_a_person_can_start_it() {
    let mut d = Drive::new();
    d.feed(Event::StartAsked);
    d.feed(Event::StartFailed(Failure::needs_auth("log in")));
    assert!(matches!(d.life.phase, Phase::NeedsAuth { until: None, .. }));
    for _ in 0..29 {
        d.wait(secs(1));
        d.feed(Event::Used);
    }
    assert_eq!(d.spawned.len(), 1);
    d.wait(secs(1));
    d.feed(Event::Used);
    assert_eq!(d.spawned.len(), 2, "somebody may have set things right elsewhere");
    d.feed(Event::StartFailed(Failure::needs_auth("log in")));
    d.feed(Event::StartAsked);
    assert_eq!(d.spawned.len(), 3);
}

#[test]
fn what_a_server_asks_for_delays_the_next_start_for_calls_too() {
    let mut d = Drive::new();
    d.feed(Event::StartAsked);
    d.feed(Event::StartFailed(oops().after(Some(secs(90)))));
    assert_eq!(d.life.next_step(&policy()).map(|at| at - d.now), Some(secs(90)));
    d.wait(secs(89));
    d.feed(Event::Used);
    assert_eq!(d.spawned.len(), 1);
    d.wait(secs(1));
    assert_eq!(d.spawned.len(), 2);
}

#[test]
fn delays_double_then_the_server_parks_and_is_tried_every_ten_minutes() {
    let mut d = Drive::new();
    d.feed(Event::StartAsked);
    for delay in [1, 2, 4, 8] {
        assert_eq!(d.fail_start(), Some(secs(delay)));
        assert!(matches!(d.life.phase, Phase::BackingOff { .. }));
        d.wait(secs(delay));
    }
    for _ in 0..3 {
        assert_eq!(d.fail_start(), Some(secs(600)));
        assert!(matches!(d.life.phase, Phase::Parked { .. }));
        d.wait(secs(600));
    }
    assert_eq!(d.spawned.len(), 8);
}

#[test]
fn each_attempt_gets_a_longer_budget_up_to_the_cap() {
    let mut d = Drive::new();
    d.feed(Event::StartAsked);
    for _ in 0..14 {
        let wait = d.fail_start().unwrap();
        d.wait(wait);
    }
    let budgets: Vec<u64> = d.spawned.iter().map(|(_, budget, _)| budget.as_secs()).collect();
    assert_eq!(budgets[..4], [60, 120, 180, 240]);
    assert_eq!(*budgets.last().unwrap(), 600);
}

#[test]
fn backoff_restarts_only_after_sixty_healthy_seconds() {
    let mut d = Drive::new();
    d.feed(Event::StartAsked);
    for (up, delay) in [(10, 1), (10, 2), (59, 4), (60, 1), (3, 2)] {
        d.feed(Event::Started);
        d.now += secs(up);
        d.feed(Event::Lost(oops()));
        assert_eq!(d.life.next_step(&policy()).map(|at| at - d.now), Some(secs(delay)), "after {up} s");
        d.wait(secs(delay));
    }
}

#[test]
fn what_a_retry_cannot_mend_parks_at_once_and_use_or_command_brings_it_back() {
    let mut d = Drive::new();
    d.feed(Event::StartAsked);
    d.feed(Event::StartFailed(Failure::permanent("command not found")));
    assert!(matches!(d.life.phase, Phase::Parked { until: None, .. }));
    d.wait(secs(3600));
    assert_eq!(d.spawned.len(), 1);
    d.feed(Event::Used);
    assert_eq!(d.spawned.len(), 2);
    d.feed(Event::StartFailed(Failure::permanent("command not found")));
    d.feed(Event::RestartAsked(StopReason::ConfigChanged, Drain::Calls));
    assert_eq!(d.spawned.len(), 3);
}

#[test]
fn a_call_does_not_wait_for_the_backoff_but_causes_no_storm() {
    let mut d = Drive::new();
    d.feed(Event::StartAsked);
    for _ in 0..4 {
        let wait = d.fail_start().unwrap();
        d.wait(wait);
    }
    d.now += secs(1);
    d.fail_start();
    d.feed(Event::Used);
    assert_eq!(d.spawned.len(), 6, "the call starts it at once, although it was parked");
    d.fail_start();
    d.feed(Event::Used);
    assert_eq!(d.spawned.len(), 6, "but not twice within a second");
    assert_eq!(d.life.next_step(&policy()), Some(d.now + secs(1)));
    d.wait(secs(1));
    assert_eq!(d.spawned.len(), 7);
}

#[test]
fn a_stop_while_starting_ends_in_stopped_and_late_news_changes_nothing() {
    let (life, _) = Life::new(Starts::Allowed).step(Event::StartAsked, Instant::now(), 0.0, &policy());
    let (life, actions) = life.step(Event::StopAsked(StopReason::Operator), Instant::now(), 0.0, &policy());
    assert_eq!(actions, [Action::End(Drain::Now)]);
    let (life, _) = life.step(Event::Started, Instant::now(), 0.0, &policy());
    assert!(matches!(life.phase, Phase::Stopping { .. }));
    let (life, actions) = life.step(Event::Ended, Instant::now(), 0.0, &policy());
    assert_eq!(life.phase, Phase::Stopped { reason: StopReason::Operator });
    assert_eq!(actions, []);
}

#[test]
fn safe_mode_starts_nothing_whoever_asks() {
    let safe = Policy { starts: Starts::SafeMode, ..policy() };
    let mut life = Life::new(Starts::SafeMode);
    for event in [Event::Used, Event::StartAsked, Event::RestartAsked(StopReason::Restart, Drain::Now)] {
        let (next, actions) = life.step(event, Instant::now(), 0.0, &safe);
        assert_eq!(actions, []);
        assert_eq!(next.phase, Phase::Stopped { reason: StopReason::SafeMode });
        life = next;
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Used),
        1 => Just(Event::StartAsked),
        1 => Just(Event::StopAsked(StopReason::Operator)),
        1 => Just(Event::StopAsked(StopReason::Idle)),
        1 => Just(Event::RestartAsked(StopReason::Restart, Drain::Now)),
        3 => Just(Event::Started),
        3 => Just(Event::StartFailed(oops())),
        1 => Just(Event::StartFailed(Failure::permanent("no"))),
        3 => Just(Event::Lost(oops())),
        6 => Just(Event::TimerDue),
    ]
}

proptest! {
    /// However events fall, a spawn is asked for only when the last generation is proven dead.
    #[test]
    fn at_most_one_generation_lives(
        script in proptest::collection::vec((event(), 0u64..90_000, any::<bool>()), 1..200),
        jitter in 0.0f64..=1.0,
    ) {
        let policy = policy();
        let mut life = Life::new(Starts::Allowed);
        let mut now = Instant::now();
        let mut alive = false;
        let mut ending = false;
        let mut last = Generation::NONE;
        for (event, wait_ms, prove) in script {
            now += Duration::from_millis(wait_ms);
            let mut events = vec![event];
            if prove && ending {
                events.insert(0, Event::Ended);
            }
            for event in events {
                if event == Event::Ended {
                    alive = false;
                    ending = false;
                }
                let (next, actions) = life.step(event, now, jitter, &policy);
                life = next;
                for action in actions {
                    match action {
                        Action::Spawn { generation, budget } => {
                            prop_assert!(!alive, "spawned over a living generation");
                            prop_assert!(generation > last);
                            prop_assert!(budget >= policy.start_budget && budget <= policy.start_budget_cap);
                            last = generation;
                            alive = true;
                        }
                        Action::End(_) => {
                            prop_assert!(alive, "ended what is dead");
                            ending = true;
                        }
                    }
                }
                prop_assert_eq!(life.is_proven_dead(), !alive);
                if let Some(at) = life.next_step(&policy) {
                    prop_assert!(at <= now + secs(661), "a next step is never far away");
                }
            }
        }
    }

    /// A server that always dies at once is spawned a bounded number of times, whatever calls do.
    #[test]
    fn spawns_are_bounded(calls_per_second in 0usize..20, minutes in 1u64..4) {
        let mut d = Drive::new();
        d.feed(Event::StartAsked);
        for _ in 0..minutes * 60 {
            if matches!(d.life.phase, Phase::Starting { .. }) {
                d.feed(Event::StartFailed(oops()));
            }
            for _ in 0..calls_per_second {
                d.feed(Event::Used);
                if matches!(d.life.phase, Phase::Starting { .. }) {
                    d.feed(Event::StartFailed(oops()));
                }
            }
            d.wait(secs(1));
        }
        let bound = if calls_per_second == 0 { 5 } else { minutes as usize * 60 + 1 };
        prop_assert!(d.spawned.len() <= bound, "{} spawns", d.spawned.len());
    }
}
