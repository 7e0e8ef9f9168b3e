//! What a tool says about its own effects.
//!
//! Pure. Hints of a server are claims; who believes them decides elsewhere (`trust_annotations`).

use crate::jsonrpc::splice::Members;
use serde_json::value::RawValue;

/// `annotations` of a tool. `None`: not said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations {
    /// `title`.
    pub title: Option<String>,
    /// `readOnlyHint`.
    pub read_only: Option<bool>,
    /// `destructiveHint`.
    pub destructive: Option<bool>,
    /// `idempotentHint`.
    pub idempotent: Option<bool>,
    /// `openWorldHint`.
    pub open_world: Option<bool>,
}

impl Annotations {
    /// Reads a raw `annotations`; what is of the wrong type counts as not said.
    pub fn read(raw: &RawValue) -> Self {
        let Ok(members) = Members::parse(raw) else { return Self::default() };
        let flag = |key| members.get(key).and_then(|raw| serde_json::from_str::<bool>(raw.get()).ok());
        Self {
            title: members.text("title").map(std::borrow::Cow::into_owned),
            read_only: flag("readOnlyHint"),
            destructive: flag("destructiveHint"),
            idempotent: flag("idempotentHint"),
            open_world: flag("openWorldHint"),
        }
    }
}
