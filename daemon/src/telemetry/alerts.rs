//! Checks docs/alerts.yml against the metrics: a rule over a name or label that does not exist never fires.

use super::metrics::{Format, Metrics, Tokens};
use crate::names::ServerName;
use crate::server::lifecycle::{Phase, StopReason};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

const ALERTS: &str = include_str!("../../../docs/alerts.yml");

#[derive(Deserialize)]
struct File {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: String,
    expr: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// One value of every metric there is, by name: labels and their values.
fn known() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = crate::store::Store::open(&folder.path().join("hermesd.db"));
    let metrics = Metrics::new("1", UNIX_EPOCH, Some(store));
    let server = ServerName::new("s");
    metrics.tool(&server, "t").record("ok", Duration::ZERO);
    metrics.tool(&server, "t").record("tool_error", Duration::ZERO);
    metrics.server(&server).set_phase(&Phase::Stopped { reason: StopReason::Operator });
    metrics.event("message");
    metrics.sampled(&server, "ok", Some(Tokens { input: 1, output: 1 }));
    let mut known: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for line in metrics.render(Format::Plain).lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let entry = known.entry(name.to_owned()).or_default();
        for (label, value) in pairs(labels.trim_end_matches('}'), "=") {
            entry.entry(label).or_default().insert(value);
        }
    }
    known
}

/// `a="x",b="y"` or with another operator; the values here have no commas and no quotes.
fn pairs(text: &str, operator: &str) -> Vec<(String, String)> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let split = parts.map(|part| part.split_once(operator).unwrap_or_else(|| panic!("`{part}` in {text}")));
    split.map(|(label, value)| (label.trim().to_owned(), value.trim().trim_matches('"').to_owned())).collect()
}

/// What is wrong with `expr`.
fn complaints(expr: &str, known: &BTreeMap<String, BTreeMap<String, BTreeSet<String>>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut of_rule: BTreeSet<String> = BTreeSet::new();
    for (at, _) in expr.match_indices("hermes_") {
        if expr[..at].chars().next_back().is_some_and(|before| word(before) || before == '"') {
            continue;
        }
        let name: String = expr[at..].chars().take_while(|c| word(*c)).collect();
        let Some(labels) = known.get(&name) else {
            wrong.push(format!("no metric {name}"));
            continue;
        };
        of_rule.extend(labels.keys().cloned());
        let Some(selector) = expr[at + name.len()..].strip_prefix('{') else { continue };
        let selector = selector.split('}').next().unwrap();
        let operator =
            ["!~", "=~", "!=", "="].into_iter().find(|operator| selector.contains(operator)).unwrap();
        for (label, value) in pairs(selector, operator) {
            match labels.get(&label) {
                None => wrong.push(format!("{name} has no label {label}")),
                // Outcomes are the kinds of the call path; phases are all known here.
                Some(values) if label == "phase" && !values.contains(&value) => {
                    wrong.push(format!("{name} is never {label}={value}"));
                }
                Some(_) => {}
            }
        }
    }
    for by in expr.split("by (").skip(1) {
        for label in by.split(')').next().unwrap().split(',').map(str::trim) {
            if !of_rule.contains(label) {
                wrong.push(format!("no metric of the rule has the label {label}"));
            }
        }
    }
    wrong
}

#[test]
fn every_metric_and_label_of_the_alert_rules_exists() {
    let known = known();
    let file: File = serde_yaml::from_str(ALERTS).unwrap();
    let rules: Vec<Rule> = file.groups.into_iter().flat_map(|group| group.rules).collect();
    assert!(rules.len() > 5);
    let mut names = BTreeSet::new();
    for rule in rules {
        assert_eq!(complaints(&rule.expr, &known), [""; 0], "{}", rule.alert);
        assert!(rule.expr.contains("hermes_") || rule.expr.contains("up{job=\"hermesd\"}"), "{}", rule.alert);
        assert!(
            ["info", "warning", "critical"].contains(&rule.labels["severity"].as_str()),
            "{}",
            rule.alert
        );
        assert!(!rule.annotations["summary"].is_empty() && !rule.annotations["action"].is_empty());
        assert!(names.insert(rule.alert.clone()), "{} is there twice", rule.alert);
    }
}

#[test]
fn the_check_sees_names_labels_and_values_that_do_not_exist() {
    let known = known();
    for wrong in [
        "hermes_nothing == 1",
        "increase(hermes_server_restarts[5m]) > 1",
        "hermes_server_state{state=\"parked\"} == 1",
        "hermes_server_state{phase=\"gone\"} == 1",
        "sum by (tool) (hermes_queue_waiting) > 1",
    ] {
        assert_eq!(complaints(wrong, &known).len(), 1, "{wrong}: {:?}", complaints(wrong, &known));
    }
}
