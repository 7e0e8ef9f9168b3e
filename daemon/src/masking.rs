//! Everything that must be masked, from wherever it is known, and the redactor made of it.
//!
//! Owner: [`Masking`], made by `boot`. Promise: a secret is masked in logs and results before whoever
//! told of it can use it; what a login had before its renewals stays masked for a while.
//! May not touch: what is masked.

use crate::config::{Config, RedactionLabels};
use crate::names::ServerName;
use crate::redact::Redactor;
use crate::secret::{KnownSecrets, Secret};
use crate::server::base_env::BaseEnv;
use crate::telemetry::redact_hook::RedactHook;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Secrets that are remembered for one server; the oldest are void by then.
const REMEMBERED: usize = 24;
/// Shorter ones would mask half of every line.
const SHORTEST: usize = 8;

/// See the module documentation. Clones share it.
#[derive(Clone)]
pub struct Masking {
    redact: RedactHook,
    base: watch::Receiver<Arc<BaseEnv>>,
    secrets: watch::Sender<Arc<KnownSecrets>>,
    results: watch::Sender<Arc<Redactor>>,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Default)]
struct Parts {
    configured: KnownSecrets,
    labels: RedactionLabels,
    logins: BTreeMap<ServerName, VecDeque<Secret>>,
    /// The token that hermesd made for its own listener.
    listener: Option<Secret>,
}

impl Masking {
    /// Nothing is known yet. Every change goes to the three others.
    pub fn new(
        redact: RedactHook,
        base: watch::Receiver<Arc<BaseEnv>>,
        secrets: watch::Sender<Arc<KnownSecrets>>,
        results: watch::Sender<Arc<Redactor>>,
    ) -> Self {
        Self { redact, base, secrets, results, parts: Arc::default() }
    }

    /// Takes over what a configuration knows.
    pub fn configured(&self, config: &Config) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.configured = config.secrets.clone();
        parts.labels = config.daemon.redaction_labels;
        self.publish(&parts);
    }

    /// Takes over what the login of `server` consists of now.
    pub fn login(&self, server: &ServerName, secrets: &[Secret]) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = parts.logins.entry(server.clone()).or_default();
        let before = known.len();
        for secret in secrets.iter().filter(|secret| secret.expose().len() >= SHORTEST) {
            if !known.contains(secret) {
                known.push_back(secret.clone());
            }
        }
        if known.len() == before {
            return;
        }
        let excess = known.len().saturating_sub(REMEMBERED);
        known.drain(..excess);
        self.publish(&parts);
    }

    /// Takes over the generated token of the HTTP listener.
    pub fn listener(&self, token: Secret) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.listener.as_ref() != Some(&token) {
            parts.listener = Some(token);
            self.publish(&parts);
        }
    }

    fn publish(&self, parts: &Parts) {
        let mut known = parts.configured.clone();
        // `env_pass` hands these to servers, which may print them.
        self.base.borrow().note_secrets(&mut known);
        #[cfg(feature = "otlp")]
        crate::telemetry::otlp::note_secrets(&mut known, &|name| std::env::var(name).ok());
        for secret in parts.logins.values().flatten().chain(&parts.listener) {
            known.insert(secret.clone());
        }
        let redactor = Arc::new(Redactor::new(&known, parts.labels));
        self.secrets.send_replace(Arc::new(known));
        self.results.send_replace(redactor.clone());
        self.redact.set(move |text| redactor.redact(text).into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_masked_at_once_and_after_their_renewal_too() {
        let redact = RedactHook::new(str::to_owned);
        let (_keep, base) = watch::channel(Arc::new(BaseEnv::default()));
        let (secrets, _) = watch::channel(Arc::default());
        let none = Redactor::new(&KnownSecrets::default(), RedactionLabels::Plain);
        let (results, _) = watch::channel(Arc::new(none));
        let masking = Masking::new(redact.clone(), base, secrets, results);
        let name = ServerName::new("s");
        masking.login(&name, &[Secret::new("access-0001"), Secret::new("tiny")]);
        masking.login(&name, &[Secret::new("access-0002")]);
        masking.listener(Secret::new("token-of-the-listener"));
        masking.configured(&Config::default());
        assert!(!redact.apply("token-of-the-listener").contains("listener"));
        let shown = redact.apply("access-0001 tiny access-0002");
        assert!(!shown.contains("access-000") && shown.contains("tiny"), "{shown}");
        for n in 0..100 {
            masking.login(&name, &[Secret::new(format!("renewed-{n:04}"))]);
        }
        assert!(redact.apply("access-0001").contains("access-0001"), "the oldest are forgotten");
        assert!(!redact.apply("renewed-0099").contains("renewed"));
    }
}
