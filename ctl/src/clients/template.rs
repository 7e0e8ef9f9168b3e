//! Placeholders of MCP clients, turned into those of hermesd and back.
//!
//! Pure. hermesd knows `${VAR}` and `${VAR:-default}`; clients also write `${env:VAR}`, `${input:id}` and names of
//! folders. Promise: a placeholder that means nothing outside its client is an error and never travels as text.

use std::path::PathBuf;

/// What the placeholders of one file stand for.
#[derive(Debug, Clone, Default)]
pub struct Around {
    /// The user's home folder.
    pub user: PathBuf,
    /// The folder of the project, for files of a project.
    pub project: Option<PathBuf>,
    /// Questions that VS Code asks.
    pub inputs: Vec<Input>,
    /// Whether `$NAME` is a placeholder too.
    pub bare: Bare,
}

/// Whether `$NAME` without braces is a placeholder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bare {
    /// It is text.
    #[default]
    Text,
    /// It is one (Gemini CLI).
    Variable,
}

/// A question that VS Code asks, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    /// Its id in `${input:id}`.
    pub id: String,
    /// What the user is asked; may be empty.
    pub description: String,
    /// The answer it suggests.
    pub default: Option<String>,
}

/// A variable that somebody must set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Its name.
    pub name: String,
    /// What it is for, in the client's words; may be empty.
    pub what: String,
}

/// Why a text cannot be used outside its client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It names the folder of a project, and none is known.
    #[error("`${{{0}}}` is the folder of a project, and this file belongs to none")]
    NoProject(String),
    /// Only the client can fill it in.
    #[error("only the client itself can fill in `${{{0}}}`")]
    Foreign(String),
}

/// `text` as hermesd would write it; variables without a default are added to `needs`.
///
/// # Errors
/// [`TemplateError`] for a placeholder that has no meaning here.
pub fn translate(text: &str, around: &Around, needs: &mut Vec<Need>) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(inside) = after.strip_prefix('{')
            && let Some(end) = inside.find('}')
        {
            out.push_str(&placeholder(&inside[..end], around, needs)?);
            rest = &inside[end + 1..];
            continue;
        }
        let name = bare_name(after).filter(|_| around.bare == Bare::Variable);
        match name {
            Some(name) => {
                need(needs, name, "");
                out.push_str(&format!("${{{name}}}"));
                rest = &after[name.len()..];
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn placeholder(inner: &str, around: &Around, needs: &mut Vec<Need>) -> Result<String, TemplateError> {
    let folder = |path: &PathBuf| path.display().to_string();
    let project =
        || around.project.as_ref().ok_or_else(|| TemplateError::NoProject(inner.to_owned())).map(folder);
    match inner.split_once(':') {
        Some(("env", name)) if is_name(name) => {
            need(needs, name, "");
            return Ok(format!("${{{name}}}"));
        }
        Some(("input", id)) => return Ok(input(id, around, needs)),
        Some((name, default)) if is_name(name) && default.starts_with('-') => {
            return Ok(format!("${{{inner}}}"));
        }
        Some(_) => return Err(TemplateError::Foreign(inner.to_owned())),
        None => {}
    }
    match inner {
        "workspaceFolder" | "workspaceRoot" | "cwd" => project(),
        "workspaceFolderBasename" => {
            let dir = project()?;
            Ok(dir.rsplit('/').next().unwrap_or_default().to_owned())
        }
        "userHome" => Ok(folder(&around.user)),
        "pathSeparator" | "/" => Ok("/".to_owned()),
        name if is_name(name) => {
            need(needs, name, "");
            Ok(format!("${{{name}}}"))
        }
        other => Err(TemplateError::Foreign(other.to_owned())),
    }
}

fn input(id: &str, around: &Around, needs: &mut Vec<Need>) -> String {
    let name = variable_name(id);
    let known = around.inputs.iter().find(|input| input.id == id);
    match known.and_then(|input| input.default.as_deref()) {
        // A closing brace would end the placeholder early.
        Some(default) if !default.is_empty() && !default.contains('}') => format!("${{{name}:-{default}}}"),
        _ => {
            need(needs, &name, known.map_or("", |input| &input.description));
            format!("${{{name}}}")
        }
    }
}

fn need(needs: &mut Vec<Need>, name: &str, what: &str) {
    if !needs.iter().any(|need| need.name == name) {
        needs.push(Need { name: name.to_owned(), what: what.to_owned() });
    }
}

fn bare_name(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    Some(&text[..end]).filter(|name| is_name(name))
}

/// Whether `text` can name a variable.
pub fn is_name(text: &str) -> bool {
    text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `text` as the name of a variable: upper case, everything else an underscore.
pub fn variable_name(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    if is_name(&name) { name } else { format!("MCP_{name}") }
}

/// Names of the variables that `text` needs, in hermesd's own notation.
pub fn variables(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let escaped = rest[..at].ends_with('$');
        let inside = &rest[at + 2..];
        let Some(end) = inside.find('}') else { break };
        let name = inside[..end].split_once(":-").map_or(&inside[..end], |(name, _)| name);
        if !escaped && is_name(name) {
            found.push(name);
        }
        rest = &inside[end + 1..];
    }
    found
}

/// `text` with the variables that `lookup` knows filled in; the others stay.
pub fn filled(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let inside = &rest[at + 2..];
        let Some(end) = inside.find('}') else { break };
        let (name, default) = match inside[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (&inside[..end], None),
        };
        let value = is_name(name).then(|| lookup(name).or(default)).flatten();
        let escaped = rest[..at].ends_with('$');
        match value.filter(|_| !escaped) {
            Some(value) => {
                out.push_str(&rest[..at]);
                out.push_str(&value);
            }
            None => out.push_str(&rest[..at + 2 + end + 1]),
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn around() -> Around {
        Around {
            user: "/u".into(),
            project: Some("/p/app".into()),
            inputs: vec![
                Input { id: "api-key".into(), description: "Key of the service".into(), default: None },
                Input { id: "region".into(), description: String::new(), default: Some("eu".into()) },
            ],
            bare: Bare::Text,
        }
    }

    fn of(text: &str) -> String {
        translate(text, &around(), &mut Vec::new()).unwrap()
    }

    #[test]
    fn every_notation_becomes_ours() {
        assert_eq!(of("Bearer ${env:TOKEN}"), "Bearer ${TOKEN}");
        assert_eq!(of("${input:api-key}/${input:region}"), "${API_KEY}/${REGION:-eu}");
        assert_eq!(of("${A:-b} ${C} $D 5$"), "${A:-b} ${C} $D 5$");
        assert_eq!(of("${workspaceFolder}${/}x ${userHome} ${workspaceFolderBasename}"), "/p/app/x /u app");
        let bare = Around { bare: Bare::Variable, ..around() };
        assert_eq!(translate("$KEY-1", &bare, &mut Vec::new()).unwrap(), "${KEY}-1");
    }

    #[test]
    fn what_must_be_set_is_listed_once_with_its_description() {
        let mut needs = Vec::new();
        translate("${input:api-key} ${env:X} ${env:X} ${Y:-1}", &around(), &mut needs).unwrap();
        let names: Vec<(&str, &str)> = needs.iter().map(|n| (n.name.as_str(), n.what.as_str())).collect();
        assert_eq!(names, [("API_KEY", "Key of the service"), ("X", "")]);
    }

    #[test]
    fn placeholders_that_only_the_client_can_fill_in_are_refused() {
        let alone = Around { project: None, ..around() };
        let error = translate("${workspaceFolder}/x", &alone, &mut Vec::new()).unwrap_err();
        assert_eq!(error, TemplateError::NoProject("workspaceFolder".into()));
        let error = translate("${command:pick}", &around(), &mut Vec::new()).unwrap_err();
        assert_eq!(error, TemplateError::Foreign("command:pick".into()));
    }

    #[test]
    fn known_variables_are_filled_in_and_others_stay() {
        let known = |name: &str| (name == "A").then(|| "1".to_owned());
        assert_eq!(filled("${A} ${B} ${B:-2} $${A}", &known), "1 ${B} 2 $${A}");
        assert_eq!(variables("${A} $${B} ${C:-d}"), ["A", "C"]);
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_stays_as_it_is(text in "[^$]*") {
            prop_assert_eq!(of(&text), text);
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = translate(&text, &around(), &mut Vec::new());
            let _ = filled(&text, &|_| None);
            prop_assert!(is_name(&variable_name(&text)));
        }
    }
}
