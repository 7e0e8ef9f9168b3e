//! Pure: `${VAR}` and `${VAR:-default}` in values.
//!
//! Promise: one pass, so a variable's value is never looked at again; an unset variable never
//! travels as text; only `$${` is an escape, every other `$` stays, because the file is shared
//! with Hermes Agent. May not touch: the environment (the caller looks names up).

/// What one value came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpolated {
    /// The text, or the variable that it lacks.
    pub outcome: Outcome,
    /// Variables that took part, in order of appearance, with repeats.
    pub used: Vec<String>,
    /// Things that are probably not meant.
    pub warnings: Vec<Warning>,
}

/// The text, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Complete.
    Text(String),
    /// The first variable that is not set and has no default.
    Unset {
        /// As written between the braces.
        name: String,
    },
}

/// Something in a value that looks like a variable and is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The whole value is `$NAME`.
    #[error("`${name}` is not replaced")]
    Bare {
        /// The name.
        name: String,
    },
    /// `${` without `}`.
    #[error("`${{` has no closing `}}` and stays as it is")]
    Unclosed,
}

impl Warning {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Bare { name } => format!("write `${{{name}}}`"),
            Self::Unclosed => "close it with `}`, or write `$${` for the two characters".to_owned(),
        }
    }
}

/// Deepest `${A:-${B:-…}}`; deeper ones stay as text with a warning.
const MAX_NESTING: usize = 16;

/// Replaces the variables of `text` by what `lookup` says.
///
/// `${VAR:-default}` stands for the default when VAR is unset *or empty*, as in a shell; the
/// default may contain variables itself. `${}` is no variable.
pub fn interpolate(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Interpolated {
    let mut pass = Pass { lookup, used: Vec::new(), warnings: Vec::new(), unset: None };
    if let Some(name) = bare_name(text) {
        pass.warnings.push(Warning::Bare { name: name.to_owned() });
    }
    let filled = pass.fill(text, 0);
    let outcome = match pass.unset {
        Some(name) => Outcome::Unset { name },
        None => Outcome::Text(filled),
    };
    Interpolated { outcome, used: pass.used, warnings: pass.warnings }
}

/// Names between `${` and `}` or `:-` anywhere in `text`, which need not be a value.
pub fn names_in(text: &str) -> Vec<&str> {
    let starts = text.match_indices("${").map(|(at, _)| &text[at + 2..]);
    starts
        .map(|rest| &rest[..rest.find(['}', ':', '\n']).unwrap_or(0)])
        .filter(|name| is_name(name))
        .collect()
}

/// Whether `name` can name an environment variable: a letter or `_`, then letters, digits, `_`.
pub fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What to do about an unset variable whose name shows another tool's syntax.
pub fn unset_hint(name: &str) -> String {
    for prefix in ["env:", "input:", "env."] {
        if let Some(plain) = name.strip_prefix(prefix).filter(|plain| is_name(plain)) {
            return format!("`{prefix}` is another tool's syntax: write `${{{plain}}}`");
        }
    }
    match name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        Some(at) if at > 0 && name[at..].starts_with(['-', ':', '=', '?']) => {
            let default = name[at..].trim_start_matches([':', '-', '=', '?']);
            format!("for a default write `${{{}:-{default}}}`", &name[..at])
        }
        Some(_) => "variable names have letters, digits and `_` only".to_owned(),
        None => format!("set {name} in .env, or give a default: `${{{name}:-…}}`"),
    }
}

fn bare_name(text: &str) -> Option<&str> {
    text.trim().strip_prefix('$').filter(|name| is_name(name))
}

struct Pass<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    used: Vec<String>,
    warnings: Vec<Warning>,
    unset: Option<String>,
}

impl Pass<'_> {
    fn fill(&mut self, text: &str, depth: usize) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            if rest.starts_with("$${") {
                out.push_str("${");
                rest = &rest[3..];
            } else if rest.starts_with("${") {
                rest = self.variable(rest, depth, &mut out);
            } else {
                out.push('$');
                rest = &rest[1..];
            }
        }
        out.push_str(rest);
        out
    }

    /// Handles one `${…}` at the start of `text`; returns what follows it.
    fn variable<'t>(&mut self, text: &'t str, depth: usize, out: &mut String) -> &'t str {
        let Some(end) = closing_brace(text).filter(|_| depth < MAX_NESTING) else {
            self.warnings.push(Warning::Unclosed);
            out.push_str("${");
            return &text[2..];
        };
        let (inside, after) = (&text[2..end], &text[end + 1..]);
        if inside.is_empty() {
            out.push_str("${}");
            return after;
        }
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let value = (self.lookup)(name);
        if value.is_some() {
            self.used.push(name.to_owned());
        }
        match (value, default) {
            (Some(value), Some(default)) if value.is_empty() => {
                let filled = self.fill(default, depth + 1);
                out.push_str(&filled);
            }
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => {
                let filled = self.fill(default, depth + 1);
                out.push_str(&filled);
            }
            (None, None) => self.unset = Some(self.unset.take().unwrap_or_else(|| name.to_owned())),
        }
        after
    }
}

/// Where the `}` of the `${` at the start of `text` is; inner `${…}` of a default are skipped.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    let mut in_default = false;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            // `$${` in a default is text, and so is the `}` that follows it only by balance.
            b'$' if bytes.get(at + 1) == Some(&b'{') && (open == 0 || in_default) => {
                open += 1;
                at += 1;
            }
            b':' if open == 1 && bytes.get(at + 1) == Some(&b'-') => in_default = true,
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".to_owned()),
            "B" => Some("two".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${A}$${B}".to_owned()),
            _ => None,
        }
    }

    fn text(value: &str) -> String {
        match interpolate(value, &env).outcome {
            Outcome::Text(text) => text,
            Outcome::Unset { name } => panic!("{value}: {name} is unset"),
        }
    }

    fn unset(value: &str) -> String {
        match interpolate(value, &env).outcome {
            Outcome::Text(text) => panic!("{value} came to {text}"),
            Outcome::Unset { name } => name,
        }
    }

    #[test]
    fn variables_are_replaced_wherever_they_stand() {
        assert_eq!(text("${A}"), "1");
        assert_eq!(text("x${A}y${B}${A}z"), "x1ytwo1z");
        assert_eq!(interpolate("${A}${B}${A}", &env).used, ["A", "B", "A"]);
    }

    #[test]
    fn a_value_is_never_looked_at_again() {
        assert_eq!(text("${TRICK}"), "${A}$${B}");
    }

    #[test]
    fn defaults_stand_in_for_unset_and_for_empty_variables() {
        assert_eq!(text("${NO:-d e}"), "d e");
        assert_eq!(text("${NO:-}"), "");
        assert_eq!(text("${EMPTY:-d}"), "d");
        assert_eq!(text("${EMPTY}"), "");
        assert_eq!(text("${A:-d}"), "1");
        assert_eq!(text("${NO:-http://h:80/-x}"), "http://h:80/-x");
    }

    #[test]
    fn a_default_may_hold_variables_and_an_unset_one_there_is_reported() {
        assert_eq!(text("${NO:-${B}!}"), "two!");
        assert_eq!(text("${NO:-${NO2:-${A}}}-"), "1-");
        assert_eq!(unset("${NO:-${NO2}}"), "NO2");
        // The default is not needed, so what it lacks does not matter.
        assert_eq!(text("${A:-${NO2}}"), "1");
    }

    #[test]
    fn an_unset_variable_never_becomes_text() {
        assert_eq!(unset("Bearer ${NO}"), "NO");
        assert_eq!(unset("${A}${N1}${N2}"), "N1");
    }

    #[test]
    fn only_one_escape_exists_and_every_other_dollar_stays() {
        assert_eq!(text("$${A}"), "${A}");
        assert_eq!(text("$$"), "$$");
        assert_eq!(text("a$b $1 $(x) 5$ pa$$word"), "a$b $1 $(x) 5$ pa$$word");
        assert_eq!(text("${}"), "${}");
        assert_eq!(text("$A"), "$A");
    }

    #[test]
    fn a_bare_name_and_an_open_brace_warn() {
        assert_eq!(interpolate("$A", &env).warnings, [Warning::Bare { name: "A".into() }]);
        assert_eq!(interpolate("cost: $A", &env).warnings, []);
        assert_eq!(interpolate("${A", &env).warnings, [Warning::Unclosed]);
        assert_eq!(text("x${A"), "x${A");
        assert_eq!(Warning::Bare { name: "A".into() }.to_string(), "`$A` is not replaced");
    }

    #[test]
    fn hints_translate_the_syntax_of_other_tools() {
        assert!(unset_hint("env:TOKEN").contains("`${TOKEN}`"));
        assert!(unset_hint("TOKEN-x").contains("`${TOKEN:-x}`"));
        assert!(unset_hint("TOKEN:?must be set").contains("`${TOKEN:-must be set}`"));
        assert!(unset_hint("TOKEN").contains("set TOKEN in .env"));
        for odd in ["", "-", "é", "a b", ":"] {
            assert!(!unset_hint(odd).is_empty());
        }
    }

    #[test]
    fn names_are_found_in_a_whole_file() {
        assert_eq!(names_in("a: ${ONE}\nb: \"${TWO:-x}\" # ${3} ${\n${\n"), ["ONE", "TWO"]);
    }

    proptest! {
        #[test]
        fn text_without_braces_is_unchanged(text in "[^{}]{0,60}") {
            prop_assert_eq!(interpolate(&text, &env).outcome, Outcome::Text(text));
        }

        #[test]
        fn escaping_every_opening_gives_the_text_back(text in "[a-c${}:\\-é]{0,40}") {
            // A `$` before `${` would join the escape; only texts without that pair round-trip.
            prop_assume!(!text.contains("$${"));
            let escaped = text.replace("${", "$${");
            prop_assert_eq!(interpolate(&escaped, &env).outcome, Outcome::Text(text));
        }

        #[test]
        fn values_arrive_byte_for_byte(value in "[ -~é]{0,30}", before in "[a-z$]{0,5}", after in "[a-z}$]{0,5}") {
            prop_assume!(!before.ends_with('$'));
            let lookup = |name: &str| (name == "V").then(|| value.clone());
            let got = interpolate(&format!("{before}${{V}}{after}"), &lookup);
            prop_assert_eq!(got.outcome, Outcome::Text(format!("{before}{value}{after}")));
        }

        #[test]
        fn whatever_is_written_an_unset_name_is_not_in_the_result(text in "[a-c${}:\\-]{0,40}") {
            let got = interpolate(&format!("{text}${{UNSET}}"), &|_| None);
            // Unless the text before it made it an escape or part of a longer name or default.
            if !text.contains('$') {
                prop_assert_eq!(got.outcome, Outcome::Unset { name: "UNSET".to_owned() });
            }
        }
    }
}
