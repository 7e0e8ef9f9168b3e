//! What a client is told about all servers together when its session begins.
//!
//! Pure. Promise: a capability is declared when a server in view has it, or may have it because it
//! was never seen; it cannot be added to a session later.

use crate::jsonrpc::splice::Members;
use serde_json::value::RawValue;

/// What one server says about itself as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// It sends updates of resources (`resources.subscribe`).
    pub subscribe: bool,
    /// It completes arguments (`completions`).
    pub completions: bool,
}

impl Introduction {
    /// By its `capabilities`.
    pub fn of(capabilities: &RawValue) -> Self {
        let members = Members::parse(capabilities).unwrap_or_default();
        let resources = members.get("resources").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        Self {
            subscribe: resources.get("subscribe").is_some_and(|raw| raw.get() == "true"),
            completions: members.get("completions").is_some_and(|raw| raw.get().starts_with('{')),
        }
    }

    /// A server that was never seen may have everything.
    pub fn unknown() -> Self {
        Self { subscribe: true, completions: true }
    }
}

/// What a session begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Greeting {
    /// `resources.subscribe`.
    pub subscribe: bool,
    /// `completions`.
    pub completions: bool,
}

impl Greeting {
    /// For a client that sees these servers.
    pub fn of<'a>(servers: impl Iterator<Item = &'a Introduction>) -> Self {
        let mut all = Self::default();
        for server in servers {
            all.subscribe |= server.subscribe;
            all.completions |= server.completions;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_of_one_server_is_one_of_all() {
        let of = |text: &str| Introduction::of(&RawValue::from_string(text.to_owned()).unwrap());
        let (bare, full) = (
            of(r#"{"resources":{"subscribe":false}}"#),
            of(r#"{"resources":{"subscribe":true},"completions":{}}"#),
        );
        assert_eq!(Greeting::of([&bare, &of("{}")].into_iter()), Greeting::default());
        let all = Greeting { subscribe: true, completions: true };
        assert_eq!(Greeting::of([&bare, &full].into_iter()), all);
        assert_eq!(Greeting::of([&bare, &Introduction::unknown()].into_iter()), all);
    }
}
