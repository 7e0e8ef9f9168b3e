//! Pure: findings as text for a terminal.
//!
//! Promise: one finding a line in the form that editors and `grep` know, its hint below it.
//! May not touch: colours.

use super::{Finding, Severity};
use std::fmt::Write;

/// One per line: `file:line: error: key: message`, the hint indented below it.
pub fn render_findings(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        if let Some(file) = &finding.file {
            let _ = write!(out, "{}:", file.display());
            if finding.line > 0 {
                let _ = write!(out, "{}:", finding.line);
            }
            out.push(' ');
        }
        out.push_str(match finding.severity {
            Severity::Error => "error: ",
            Severity::Warning => "warning: ",
            Severity::Info => "info: ",
        });
        if !finding.key.is_empty() {
            let _ = write!(out, "{}: ", finding.key);
        }
        out.push_str(&finding.message);
        out.push('\n');
        if !finding.hint.is_empty() {
            let _ = writeln!(out, "  hint: {}", finding.hint);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_finding_is_one_line_that_editors_can_jump_to() {
        let mut finding = Finding {
            severity: Severity::Error,
            server: None,
            file: Some(PathBuf::from("/h/config.yaml")),
            line: 3,
            key: "mcp_servers.a.timeout".to_owned(),
            message: "not a duration".to_owned(),
            hint: "write `90s`".to_owned(),
        };
        let first = render_findings(std::slice::from_ref(&finding));
        assert_eq!(
            first,
            "/h/config.yaml:3: error: mcp_servers.a.timeout: not a duration\n  hint: write `90s`\n"
        );
        finding = Finding {
            severity: Severity::Warning,
            file: None,
            line: 0,
            key: String::new(),
            hint: String::new(),
            ..finding
        };
        assert_eq!(render_findings(&[finding.clone(), finding]), "warning: not a duration\n".repeat(2));
        assert_eq!(render_findings(&[]), "");
    }
}
