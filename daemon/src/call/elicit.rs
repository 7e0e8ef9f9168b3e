//! The question "may this call pass?" to the user of the client that made it, and the answer.
//!
//! Pure. MCP 2025-06-18 and 2025-11-25, Elicitation, forms: one field with three values. What comes back
//! is a stranger's text: only one of our three words is a decision. Arguments are shown masked.

use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::policy::approvals::{Bound, Decision, Shown};
use serde_json::value::RawValue;

/// The method.
pub(super) const METHOD: &str = "elicitation/create";

/// Bytes of the arguments in the question; more makes dialogs unreadable.
const SHOWN: usize = 1500;

/// The one field of the form.
const SCHEMA: &str = r#"{"type":"object","properties":{"decision":{"type":"string","title":"Decision","description":"allow-once: this call; allow-always: every call of this tool until it changes; deny: not at all","enum":["allow-once","allow-always","deny"]}},"required":["decision"]}"#;

/// What the user said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// One of the three words, or a plain refusal.
    Decision(Decision),
    /// Closed without a choice.
    Dismissed,
    /// Nothing that can be used; others may still decide.
    Nothing,
}

/// The params of the question.
pub(super) fn params(bound: &Bound, shown: &Shown, revision: &str) -> Box<RawValue> {
    let arguments = &shown.arguments;
    let cut = arguments.floor_char_boundary(SHOWN);
    let rest = if cut < arguments.len() { "…" } else { "" };
    let message = format!(
        "{} wants to call the tool `{}` of the MCP server `{}` with {}{rest}\nMay it?",
        named(&shown.client),
        plain(bound.tool.as_str()),
        plain(bound.server.as_str()),
        &arguments[..cut],
    );
    let mut params = ObjectWriter::with_capacity(message.len() + SCHEMA.len() + 64);
    if revision >= "2025-11-25" {
        params.string("mode", "form");
    }
    params.string("message", &message).member("requestedSchema", SCHEMA);
    params.finish()
}

/// Reads the client's answer.
pub(super) fn read(reply: &Reply) -> Said {
    let Reply::Result(result) = reply else { return Said::Nothing };
    let members = Members::parse(result).unwrap_or_default();
    match members.text("action").as_deref() {
        Some("accept") => {
            let content = members.get("content").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
            // Accepting without a choice is no permission.
            let decision = content.text("decision").and_then(|word| Decision::named(&word));
            decision.map_or(Said::Nothing, Said::Decision)
        }
        Some("decline") => Said::Decision(Decision::Deny),
        Some("cancel") => Said::Dismissed,
        Some(_) | None => Said::Nothing,
    }
}

fn named(client: &str) -> String {
    if client.is_empty() { "A client".to_owned() } else { format!("`{}`", plain(client)) }
}

/// A name from elsewhere must not draw on somebody's screen.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || c == '`' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{ClientId, ProfileName, RawTool, ServerName};
    use serde_json::Value;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn only_a_choice_of_the_form_or_a_refusal_decides() {
        for (result, said) in [
            (
                r#"{"action":"accept","content":{"decision":"allow-once"}}"#,
                Said::Decision(Decision::AllowOnce),
            ),
            (
                r#"{"action":"accept","content":{"decision":"allow-always"}}"#,
                Said::Decision(Decision::AllowAlways),
            ),
            (r#"{"action":"accept","content":{"decision":"deny"}}"#, Said::Decision(Decision::Deny)),
            (r#"{"action":"decline"}"#, Said::Decision(Decision::Deny)),
            (r#"{"action":"cancel"}"#, Said::Dismissed),
            (r#"{"action":"accept"}"#, Said::Nothing),
            (r#"{"action":"accept","content":{"decision":"yes"}}"#, Said::Nothing),
            (r#"{"action":"accept","content":{"decision":true}}"#, Said::Nothing),
            (r#"{"action":5}"#, Said::Nothing),
            ("[]", Said::Nothing),
        ] {
            assert_eq!(read(&Reply::Result(raw(result))), said, "{result}");
        }
        assert_eq!(read(&Reply::error(-32601, "no")), Said::Nothing);
    }

    #[test]
    fn the_question_names_who_and_what_and_draws_nothing() {
        let bound = Bound {
            client: ClientId(1),
            server: ServerName::new("fs"),
            tool: RawTool::new("rm\u{1b}[2J`x"),
            arguments: [0; 32],
            schema: [0; 32],
        };
        let shown = Shown {
            arguments: format!("{{\"path\":\"{}\"}}", "é".repeat(SHOWN)),
            client: "c".into(),
            profile: ProfileName::new("default"),
            created_ms: 0,
        };
        for (revision, mode) in [("2025-06-18", Value::Null), ("2025-11-25", "form".into())] {
            let params: Value = serde_json::from_str(params(&bound, &shown, revision).get()).unwrap();
            let message = params["message"].as_str().unwrap();
            assert!(
                message.starts_with("`c` wants to call the tool `rm [2J x` of the MCP server `fs` with {")
            );
            assert!(message.len() < SHOWN + 200 && message.contains("é…\n"), "{message}");
            assert_eq!(params["mode"], mode);
            let decision = &params["requestedSchema"]["properties"]["decision"];
            assert_eq!(decision["enum"], serde_json::json!(["allow-once", "allow-always", "deny"]));
        }
    }
}
