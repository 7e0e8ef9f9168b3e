//! What was typed, to an entry of config.yaml and the secrets that go beside it.
//!
//! Pure: secrets that must be asked for come from a function. Promise: a value that is a secret by its
//! name, or was typed at a prompt, is in no entry; the entry refers to it. May not touch: files.

use crate::cli_mcp::{AddArgs, Auth, Transport};
use crate::config_edit::Value;
use crate::config_edit::dotenv::{self, Variable};
use crate::failure::Failure;
use hermes_proto::secrets::{is_known_key, name_says_secret, value_is_secret};

/// An entry that is not written yet.
pub(super) struct Draft {
    /// Name of the server.
    pub name: String,
    /// Its keys in order.
    pub entry: Vec<(String, Value)>,
    /// Variables for `.env`.
    pub variables: Vec<Variable>,
    /// Names that `.env` has already, whose values belong to others.
    taken: Vec<String>,
    /// All names of `.env` when this was begun.
    pub seen: Vec<String>,
}

/// Where secrets come from that were not typed on the command line; gets what to ask for.
pub(super) type Ask<'a> = &'a mut dyn FnMut(&str) -> Result<String, Failure>;

impl Draft {
    /// The entry that `args` describe.
    ///
    /// # Errors
    /// [`Failure::Usage`] for what cannot mean anything, and the errors of `ask`.
    pub(super) fn of(args: &AddArgs, taken: Vec<String>, ask: Ask<'_>) -> Result<Self, Failure> {
        let name = args.name.trim();
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(usage("a server needs a name", "e.g. `hermesctl mcp add files ...`"));
        }
        let mut draft =
            Self { name: name.to_owned(), entry: Vec::new(), variables: Vec::new(), taken, seen: Vec::new() };
        match &args.url {
            Some(url) => draft.remote(args, url, ask)?,
            None => draft.program(args, ask)?,
        }
        Ok(draft)
    }

    fn remote(&mut self, args: &AddArgs, url: &str, ask: Ask<'_>) -> Result<(), Failure> {
        if !(url.starts_with("https://") || url.starts_with("http://") || url.starts_with("${")) {
            return Err(usage("--url is no web address", "it begins with https:// or http://"));
        }
        self.put("url", Value::text(url));
        if let Some(Transport::Sse) = args.transport {
            self.put("transport", Value::text("sse"));
        }
        let mut headers = Vec::new();
        for header in &args.header {
            let (name, value) = header
                .split_once(':')
                .map(|(name, value)| (name.trim(), value.trim()))
                .filter(|(name, value)| is_header(name) && !value.is_empty())
                .ok_or_else(|| usage("--header is not `Name: value`", "e.g. --header 'X-Api-Key: abc'"))?;
            headers.push((name.to_owned(), Value::Text(self.header(name, value))));
        }
        match args.auth {
            Some(Auth::Oauth) => self.put("auth", Value::text("oauth")),
            Some(Auth::Header)
                if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) =>
            {
                let token = ask("token")?;
                headers.push(("Authorization".to_owned(), Value::Text(self.bearer(&token))));
            }
            Some(Auth::Header) | None => {}
        }
        if !headers.is_empty() {
            self.put("headers", Value::Map(headers));
        }
        Ok(())
    }

    fn program(&mut self, args: &AddArgs, ask: Ask<'_>) -> Result<(), Failure> {
        let preset = args.preset.map(|preset| preset.command());
        let (command, rest): (&str, Vec<&str>) = match (&args.command, args.program.split_first(), preset) {
            (Some(command), _, _) => (command, args.args.iter().map(String::as_str).collect()),
            (None, Some((command, rest)), _) => (command, rest.iter().map(String::as_str).collect()),
            (None, None, Some((command, rest))) => (command, rest.to_vec()),
            (None, None, None) => return Err(usage("no program", "--command PROGRAM, or -- PROGRAM ARG...")),
        };
        self.put("command", Value::text(command));
        if !rest.is_empty() {
            self.put("args", Value::texts(rest));
        }
        let mut env = Vec::new();
        for given in &args.env {
            let (name, value) = match given.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (given.as_str(), None),
            };
            if !dotenv::is_name(name) {
                return Err(usage(
                    &format!("`{name}` cannot be the name of a variable"),
                    "--env NAME=VALUE, or --env NAME to be asked for the value",
                ));
            }
            let text = match value {
                Some(value) if is_secret(name, value) => self.keep(name, value),
                Some(value) => value.to_owned(),
                None => {
                    let value = ask(&format!("value of {name}"))?;
                    self.keep(name, &value)
                }
            };
            env.push((name.to_owned(), Value::Text(text)));
        }
        if !env.is_empty() {
            self.put("env", Value::Map(env));
        }
        Ok(())
    }

    /// Adds a token as `Authorization: Bearer`.
    pub(super) fn set_token(&mut self, token: &str) {
        let header = Value::Text(self.bearer(token));
        let there = self.entry.iter().find(|(key, _)| key == "headers").map(|(_, value)| value.clone());
        let mut headers = if let Some(Value::Map(headers)) = there { headers } else { Vec::new() };
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        headers.push(("Authorization".to_owned(), header));
        self.put("headers", Value::Map(headers));
    }

    /// Sets a key; one that is there is replaced.
    pub(super) fn put(&mut self, key: &str, value: Value) {
        match self.entry.iter_mut().find(|(name, _)| name == key) {
            Some(entry) => entry.1 = value,
            None => self.entry.push((key.to_owned(), value)),
        }
    }

    /// The entry as it will be written.
    pub(super) fn value(&self) -> Value {
        Value::Map(self.entry.clone())
    }

    fn header(&mut self, name: &str, value: &str) -> String {
        if !is_secret(name, value) {
            return value.to_owned();
        }
        if name.eq_ignore_ascii_case("authorization") {
            return match value.split_once(' ') {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => self.bearer(token),
                Some((scheme, rest)) => format!("{scheme} {}", self.keep_as("authorization", rest.trim())),
                None => self.keep_as("authorization", value),
            };
        }
        self.keep_as(name, value)
    }

    fn bearer(&mut self, token: &str) -> String {
        let token = token.trim();
        let token = match token.split_once(' ') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => rest.trim(),
            _ => token,
        };
        format!("Bearer {}", self.keep_as("api key", token))
    }

    fn keep_as(&mut self, suffix: &str, value: &str) -> String {
        let name = dotenv::name_for(&self.name, suffix);
        // A name that holds another secret already, of this entry or of others, is not taken from it.
        let holds = |name: &String| {
            self.taken.contains(name)
                || self.variables.iter().any(|known| known.name == *name && known.value != value)
        };
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !holds(name));
        self.variable(free.unwrap_or(name), value)
    }

    /// Under its own name where that is free: people know it.
    fn keep(&mut self, name: &str, value: &str) -> String {
        if self.taken.iter().any(|taken| taken == name) {
            return self.keep_as(name, value);
        }
        self.variable(name.to_owned(), value)
    }

    fn variable(&mut self, name: String, value: &str) -> String {
        let reference = format!("${{{name}}}");
        self.variables.retain(|variable| variable.name != name);
        self.variables.push(Variable { name, value: value.to_owned() });
        reference
    }
}

fn is_header(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&b))
}

/// Whether a value belongs into `.env`; one that refers to a variable does so already.
fn is_secret(name: &str, value: &str) -> bool {
    let says = name_says_secret(name) || name.to_ascii_lowercase().contains("cookie");
    !value.contains("${") && ((says && value_is_secret(value)) || is_known_key(value))
}

fn usage(message: &str, hint: &str) -> Failure {
    Failure::Usage { message: message.to_owned(), hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, McpAction, McpArgs, Verb};
    use clap::Parser;

    fn draft(args: &[&str], taken: &[&str], typed: &str) -> Draft {
        let words = ["hermesctl", "mcp", "add"].iter().chain(args);
        let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        let Verb::Mcp(McpArgs { action: Some(McpAction::Add(args)) }) = cli.verb else { panic!("not add") };
        let taken = taken.iter().map(|name| (*name).to_owned()).collect();
        Draft::of(&args, taken, &mut |_| Ok(typed.to_owned())).unwrap_or_else(|error| panic!("{error}"))
    }

    fn of(args: &[&str], typed: &str) -> (String, Vec<(String, String)>) {
        let draft = draft(args, &["TAKEN_TOKEN"], typed);
        let variables = draft.variables.iter().map(|v| (v.name.clone(), v.value.clone())).collect();
        (draft.value().block(), variables)
    }

    #[test]
    fn arguments_may_begin_with_a_dash_and_follow_two_dashes() {
        let wanted = "command: npx\nargs: [\"-y\", pkg, \"--env\", x]\n";
        assert_eq!(of(&["s", "--command", "npx", "--args", "-y", "pkg", "--env", "x"], "").0, wanted);
        assert_eq!(of(&["s", "--", "npx", "-y", "pkg", "--env", "x"], "").0, wanted);
        assert_eq!(of(&["s", "--preset", "codex"], "").0, "command: codex\nargs: [mcp-server]\n");
    }

    #[test]
    fn secrets_are_in_env_and_not_in_the_entry() {
        let (entry, variables) = of(
            &[
                "my-s",
                "--env",
                "LEVEL=debug",
                "--env",
                "GH_TOKEN=ghp_12345678",
                "--env",
                "TAKEN_TOKEN=abcdefgh",
                "--env",
                "ASKED",
                "--",
                "x",
            ],
            "typed one",
        );
        assert_eq!(
            entry,
            "command: x\nenv:\n  LEVEL: debug\n  GH_TOKEN: \"${GH_TOKEN}\"\n  TAKEN_TOKEN: \"${MCP_MY_S_TAKEN_TOKEN}\"\n  ASKED: \"${ASKED}\"\n"
        );
        let pairs: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            pairs,
            [("GH_TOKEN", "ghp_12345678"), ("MCP_MY_S_TAKEN_TOKEN", "abcdefgh"), ("ASKED", "typed one")]
        );
    }

    #[test]
    fn tokens_lose_a_pasted_bearer_and_keep_their_scheme() {
        let url = ["a.b", "--url", "https://h/mcp"];
        let (entry, variables) = of(&[&url[..], &["--auth", "header"]].concat(), "Bearer abc123456 ");
        assert_eq!(
            entry,
            "url: \"https://h/mcp\"\nheaders:\n  Authorization: \"Bearer ${MCP_A_B_API_KEY}\"\n"
        );
        assert_eq!(variables, [("MCP_A_B_API_KEY".to_owned(), "abc123456".to_owned())]);
        let (entry, variables) = of(
            &[
                &url[..],
                &[
                    "--header",
                    "Authorization: Basic dXNlcjpwYXNz",
                    "--header",
                    "X-Api-Key: ${OWN}",
                    "--header",
                    "Accept-Language: de",
                ],
            ]
            .concat(),
            "",
        );
        assert!(entry.contains("Authorization: \"Basic ${MCP_A_B_AUTHORIZATION}\""), "{entry}");
        assert!(entry.contains("X-Api-Key: \"${OWN}\"") && entry.contains("Accept-Language: de"), "{entry}");
        assert_eq!(variables.len(), 1);
        assert_eq!(
            of(&[&url[..], &["--auth", "oauth", "--transport", "sse"]].concat(), "").0,
            "url: \"https://h/mcp\"\ntransport: sse\nauth: oauth\n"
        );
    }

    #[test]
    fn no_secret_takes_the_place_of_another() {
        let args = ["s", "--url", "https://h", "--header", "Api-Key: first-key-1", "--auth", "header"];
        let (entry, variables) = of(&args, "the-token-2");
        assert!(entry.contains("Api-Key: \"${MCP_S_API_KEY}\""), "{entry}");
        assert!(entry.contains("Bearer ${MCP_S_API_KEY_2}"), "{entry}");
        assert_eq!(variables.len(), 2);
        let other = draft(
            &["a.b", "--url", "https://h", "--auth", "header"],
            &["MCP_A_B_API_KEY"],
            "token-of-another",
        );
        assert_eq!(other.variables[0].name, "MCP_A_B_API_KEY_2");
    }

    #[test]
    fn a_token_is_added_to_the_headers_that_are_there() {
        let mut draft = draft(&["s", "--url", "https://h", "--header", "X-Org: acme"], &[], "");
        draft.set_token("abcdefgh1");
        let entry = draft.value().block();
        assert!(entry.contains("X-Org: acme") && entry.contains("Bearer ${MCP_S_API_KEY}"), "{entry}");
    }

    #[test]
    fn paths_and_settings_are_no_secrets_and_keys_are_by_their_looks() {
        assert!(!is_secret("PYTHONPATH", "src/lib/of/mine"));
        assert!(is_secret("GITHUB", "ghp_0123456789abcdef"));
        assert!(is_secret("Cookie", "session=abcdef"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in [
            &["s"][..],
            &["s", "--url", "https://h", "--command", "x"],
            &["s", "--url", "https://h", "--env", "A=1"],
            &["s", "--command", "x", "--header", "A: b"],
            &["s", "--command", "x", "--auth", "oauth"],
            &["s", "--preset", "nothing"],
            &["s", "--command", "x", "--tools", ","],
        ] {
            let words = ["hermesctl", "mcp", "add"].iter().chain(bad);
            assert!(Cli::try_parse_from(words).is_err(), "{bad:?}");
        }
    }
}
