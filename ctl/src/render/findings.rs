//! Findings: one line each, what to do about it on the next.

use super::json::severity_word;
use super::text;
use hermes_proto::control as pb;
use std::fmt::Write;

/// All findings, errors first, in the order the daemon gave them.
pub fn render(findings: &[pb::Finding]) -> String {
    let mut sorted: Vec<&pb::Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| if finding.severity == 0 { i32::MAX } else { finding.severity });
    let mut out = String::new();
    for finding in sorted {
        let mut at = Vec::new();
        match (finding.file.is_empty(), finding.line) {
            (true, _) => {}
            (false, 0) => at.push(finding.file.clone()),
            (false, line) => at.push(format!("{}:{line}", finding.file)),
        }
        if !finding.server.is_empty() {
            at.push(format!("server `{}`", finding.server));
        }
        if !finding.key.is_empty() {
            at.push(finding.key.clone());
        }
        at.push(finding.message.clone());
        let line = text::plain(&at.join(": "));
        writeln!(out, "{}: {line}", severity_word(finding.severity))
            .expect("writing to a string cannot fail");
        if !finding.hint.is_empty() {
            writeln!(out, "  hint: {}", text::plain(&finding.hint)).expect("writing to a string cannot fail");
        }
    }
    out
}

/// Whether someone must act.
pub fn has_errors(findings: &[pb::Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == i32::from(pb::Severity::Error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_first_with_place_and_hint() {
        let warning = pb::Finding {
            severity: pb::Severity::Warning.into(),
            message: "unknown key".into(),
            ..Default::default()
        };
        let error = pb::Finding {
            severity: pb::Severity::Error.into(),
            server: "fs".into(),
            file: "config.yaml".into(),
            line: 7,
            key: "command".into(),
            message: "is empty".into(),
            hint: "name a program".into(),
            ..Default::default()
        };
        assert_eq!(
            render(&[warning, error]),
            "error: config.yaml:7: server `fs`: command: is empty\n  hint: name a program\nwarning: unknown key\n"
        );
    }
}
