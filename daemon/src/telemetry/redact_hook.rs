//! The place where the redactor is plugged into every log.
//!
//! Owner: `boot` makes one before the config is read and sets a better redactor when secrets become
//! known. Promise: no line is written that the current redactor has not seen; a redactor that panics
//! costs that line and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

/// Masks secrets in one line.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// A redactor that can be exchanged while logs are written. Clones share it.
#[derive(Clone)]
pub struct RedactHook {
    current: Arc<RwLock<Redact>>,
}

impl std::fmt::Debug for RedactHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedactHook")
    }
}

impl RedactHook {
    /// A hook with `redact` in it.
    pub fn new(redact: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { current: Arc::new(RwLock::new(Arc::new(redact))) }
    }

    /// Uses `redact` from the next line on.
    pub fn set(&self, redact: impl Fn(&str) -> String + Send + Sync + 'static) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(redact);
    }

    /// `text` with its secrets masked.
    pub fn apply(&self, text: &str) -> String {
        let redact = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        // Rather no line than one with a secret, and rather one line less than no log any more.
        catch_unwind(AssertUnwindSafe(|| redact(text)))
            .unwrap_or_else(|_| "[line withheld: masking its secrets failed]".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_redactor_counts_and_a_panicking_one_withholds_the_line() {
        let hook = RedactHook::new(|text| text.replace("abc", "***"));
        let clone = hook.clone();
        assert_eq!(clone.apply("x abc"), "x ***");
        hook.set(|_| panic!("broken"));
        assert!(clone.apply("x abc").contains("withheld"));
    }
}
