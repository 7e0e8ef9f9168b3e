//! The limits of sampling: examples, and the minute by property.

use super::*;
use proptest::prelude::*;

fn conversation(opening: u8) -> Conversation {
    Conversation { server: ServerName::new("s"), client: Some(ClientId(1)), opening: [opening; 32] }
}

fn wanted(conversation: &Conversation) -> Wanted<'_> {
    Wanted { conversation, hints: &[], max_tokens: None, tools: Tools::None, rounds: 0 }
}

fn allowing(models: &[&str]) -> SamplingConfig {
    SamplingConfig {
        allowed_models: models.iter().map(|&model| model.to_owned()).collect(),
        ..SamplingConfig::default()
    }
}

fn chosen(
    config: &SamplingConfig,
    fallback: Option<&str>,
    hints: &[&str],
) -> Result<Option<String>, SamplingError> {
    let hints: Vec<String> = hints.iter().map(|&hint| hint.to_owned()).collect();
    let conversation = conversation(0);
    let wanted = Wanted { hints: &hints, ..wanted(&conversation) };
    Budget::default().take(config, &wanted, fallback, Instant::now()).map(|grant| grant.model)
}

#[test]
fn the_model_is_the_users_choice_before_it_is_the_servers() {
    let some = |name: &str| Ok(Some(name.to_owned()));
    let open = SamplingConfig::default();
    assert_eq!(chosen(&open, Some("mine"), &["theirs"]), some("mine"));
    assert_eq!(chosen(&open, None, &["theirs"]), some("theirs"));
    assert_eq!(chosen(&open, None, &[]), Ok(None));
    let fixed = SamplingConfig { model: Some("fixed".to_owned()), ..SamplingConfig::default() };
    assert_eq!(chosen(&fixed, Some("mine"), &["theirs"]), some("fixed"));
    let two = allowing(&["a", "b"]);
    assert_eq!(chosen(&two, Some("a"), &["x", "b"]), some("b"));
    assert_eq!(chosen(&two, Some("a"), &["x"]), some("a"));
}

#[test]
fn allowed_models_hold_also_when_no_model_is_named() {
    let refused = |model: &str| Err(SamplingError::Model { model: model.to_owned() });
    assert_eq!(chosen(&allowing(&["a"]), None, &[]), Ok(Some("a".to_owned())));
    assert_eq!(chosen(&allowing(&["a"]), Some("default"), &[]), refused("default"));
    let outside = SamplingConfig { model: Some("z".to_owned()), ..allowing(&["a"]) };
    assert_eq!(chosen(&outside, None, &["a"]), refused("z"));
    assert_eq!(may_answer(&allowing(&["a"]), "b").err(), refused("b").err());
    assert_eq!(may_answer(&allowing(&["a"]), "a"), Ok(()));
    assert_eq!(may_answer(&SamplingConfig::default(), "b"), Ok(()));
}

#[test]
fn tokens_are_cut_to_the_cap_and_never_zero() {
    let config = SamplingConfig { max_tokens_cap: 100, max_rpm: 100, ..SamplingConfig::default() };
    let conversation = conversation(0);
    for (asked, granted) in
        [(Some(7), 7), (Some(1_000), 100), (Some(0), 1), (None, 100), (Some(u64::MAX), 100)]
    {
        let wanted = Wanted { max_tokens: asked, ..wanted(&conversation) };
        let grant = Budget::default().take(&config, &wanted, None, Instant::now()).unwrap();
        assert_eq!(grant.max_tokens, granted, "{asked:?}");
    }
}

#[test]
fn what_is_refused_costs_no_request_of_the_minute() {
    let mut budget = Budget::default();
    let now = Instant::now();
    let conversation = conversation(0);
    let one =
        SamplingConfig { max_rpm: 1, allowed_models: vec!["a".to_owned()], ..SamplingConfig::default() };
    assert!(budget.take(&one, &wanted(&conversation), Some("z"), now).is_err());
    assert!(budget.take(&one, &wanted(&conversation), Some("a"), now).is_ok());
    let refused = budget.take(&one, &wanted(&conversation), Some("a"), now + Duration::from_secs(45));
    assert_eq!(refused, Err(SamplingError::Rate { limit: 1, retry_after: Duration::from_secs(15) }));
    assert!(budget.take(&one, &wanted(&conversation), Some("a"), now + WINDOW).is_ok());
    let off = SamplingConfig { enabled: false, ..SamplingConfig::default() };
    assert_eq!(budget.take(&off, &wanted(&conversation), None, now), Err(SamplingError::Disabled));
}

#[test]
fn rounds_of_tools_are_counted_by_conversation_and_a_text_ends_them() {
    let mut budget = Budget::default();
    let now = Instant::now();
    let config = SamplingConfig { max_tool_rounds: 2, ..SamplingConfig::default() };
    let (one, other) = (conversation(1), conversation(2));
    let mut answer = |conversation: &Conversation, used| {
        let wanted = Wanted { tools: Tools::Offered, ..wanted(conversation) };
        budget.answered(&config, &wanted, used, now)
    };
    let over = Err(SamplingError::Rounds { limit: 2 });
    assert_eq!([(); 2].map(|()| answer(&one, Tools::Offered)), [Ok(()), Ok(())]);
    assert_eq!(answer(&other, Tools::Offered), Ok(()), "another conversation");
    assert_eq!(answer(&one, Tools::Offered), over);
    assert_eq!([(); 2].map(|()| answer(&one, Tools::Offered)), [Ok(()), Ok(())], "the refusal ended it");
    assert_eq!(answer(&one, Tools::None), Ok(()));
    assert_eq!([(); 2].map(|()| answer(&one, Tools::Offered)), [Ok(()), Ok(())], "a text ended it");
}

#[test]
fn rounds_that_the_messages_tell_of_count_too() {
    let config = SamplingConfig { max_tool_rounds: 2, ..SamplingConfig::default() };
    let (conversation, now) = (conversation(1), Instant::now());
    let over = SamplingError::Rounds { limit: 2 };
    for (rounds, asked, answered) in
        [(1, None, None), (2, None, Some(over.clone())), (3, Some(over.clone()), Some(over.clone()))]
    {
        let told = Wanted { tools: Tools::Offered, rounds, ..wanted(&conversation) };
        let mut budget = Budget::default();
        assert_eq!(budget.take(&config, &told, None, now).err(), asked, "{rounds}");
        assert_eq!(budget.answered(&config, &told, Tools::Offered, now).err(), answered, "{rounds}");
    }
}

#[test]
fn no_rounds_means_no_tools() {
    let config = SamplingConfig { max_tool_rounds: 0, ..SamplingConfig::default() };
    let conversation = conversation(0);
    let with = Wanted { tools: Tools::Offered, ..wanted(&conversation) };
    assert_eq!(Budget::default().take(&config, &with, None, Instant::now()), Err(SamplingError::Tools));
    assert!(Budget::default().take(&config, &wanted(&conversation), None, Instant::now()).is_ok());
}

#[test]
fn conversations_are_bounded_and_silent_ones_are_forgotten() {
    let mut budget = Budget::default();
    let now = Instant::now();
    let config = SamplingConfig::default();
    let mut answer =
        |one: &Conversation, at| budget.answered(&config, &wanted(one), Tools::Offered, at).unwrap();
    for n in 0..CONVERSATIONS as u64 + 100 {
        let mut one = conversation(0);
        one.opening[..8].copy_from_slice(&n.to_le_bytes());
        answer(&one, now + Duration::from_millis(n));
    }
    answer(&conversation(9), now + Duration::from_secs(2));
    assert_eq!(budget.rounds.len(), CONVERSATIONS);
    let late = now + SILENT + Duration::from_secs(9);
    budget.answered(&config, &wanted(&conversation(8)), Tools::Offered, late).unwrap();
    assert_eq!(budget.rounds.len(), 1);
    budget.keep(|_| false);
    assert_eq!(budget.rounds.len(), 0);
}

proptest! {
    #[test]
    fn no_minute_has_more_requests_than_the_limit(
        limit in 1u32..8,
        gaps in proptest::collection::vec(0u64..30_000, 1..80),
    ) {
        let config = SamplingConfig { max_rpm: limit, ..SamplingConfig::default() };
        let (mut budget, mut now, mut passed) = (Budget::default(), Instant::now(), Vec::new());
        let conversation = conversation(0);
        for gap in gaps {
            now += Duration::from_millis(gap);
            match budget.take(&config, &wanted(&conversation), None, now) {
                Ok(_) => passed.push(now),
                Err(SamplingError::Rate { retry_after, .. }) => {
                    // The moment it names is the first that passes.
                    let mut later = Budget { minute: budget.minute.clone(), ..Budget::default() };
                    prop_assert!(later.take(&config, &wanted(&conversation), None, now + retry_after).is_ok());
                    prop_assert!(!retry_after.is_zero());
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        for (at, first) in passed.iter().enumerate() {
            let within = passed[at..].iter().take_while(|one| **one < *first + WINDOW).count();
            prop_assert!(within <= limit as usize);
        }
    }
}
