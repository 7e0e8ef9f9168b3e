//! Every key of config.yaml in one table, from which docs/configuration.md is made.
//!
//! Pure. Promise: a test compares the table with the keys that the reader asks for, both ways, and the
//! page with the table. May not touch: how values are read.

use std::fmt::Write as _;

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its place; `NAME` stands for a name that the file chooses.
    pub path: &'static str,
    /// What may be written.
    pub takes: &'static str,
    /// What counts when it is not written; empty: it must be, or nothing does.
    pub default: &'static str,
    /// What it does.
    pub means: &'static str,
}

const fn key(path: &'static str, takes: &'static str, default: &'static str, means: &'static str) -> Key {
    Key { path, takes, default, means }
}

/// The keys of a server, in the order of the page.
pub const SERVER: &[Key] = &[
    key("command", "a program", "", "what is started; `~/` is expanded, no shell looks at it"),
    key("args", "a list", "none", "its arguments, each as it is written"),
    key(
        "env",
        "names and values",
        "none",
        "variables of the server; one whose `${VAR}` is unset is left out",
    ),
    key(
        "env_pass",
        "a list of names",
        "none",
        "further variables taken over from `.env`, the daemon or the user manager; `desktop` and `proxy` are groups",
    ),
    key("cwd", "a folder", "your home", "working folder"),
    key("allow_shell", "boolean", "false", "a shell that downloads something may be the command"),
    key(
        "osv",
        "boolean",
        "on",
        "malware check of packages that `npx`, `bunx`, `pnpm dlx`, `uvx`, `pipx` fetch",
    ),
    key("detached", "`end`, `keep`", "`end`", "what happens to daemons that the server started on purpose"),
    key("url", "an address", "", "a server that is reached by HTTP, in place of `command`"),
    key("transport", "`http`, `sse`", "found out", "Streamable HTTP or the older HTTP+SSE"),
    key("headers", "names and values", "none", "sent with each request to the server's own origin"),
    key("auth", "`oauth`", "none", "log in with `hermesctl mcp login NAME`"),
    key("oauth.client_id", "a text", "registered", "a client that you registered with the provider"),
    key("oauth.client_secret", "a secret", "none", "its secret"),
    key(
        "oauth.client_metadata_url",
        "an https address",
        "none",
        "a document that describes the client and is its id",
    ),
    key("oauth.client_name", "a text", "`Hermes Agent`", "the name under which hermesd registers itself"),
    key("oauth.scope", "words", "what the server asks for", "rights to ask for"),
    key("oauth.redirect_port", "1 to 65535", "any free", "port on 127.0.0.1 that the browser comes back to"),
    key("oauth.timeout", "duration", "300 s", "how long a login waits for the browser"),
    key(
        "oauth.grant",
        "`authorization_code`, `client_credentials`",
        "`authorization_code`",
        "the second needs no person, but id and secret",
    ),
    key("oauth.private_network", "boolean", "false", "documents of the server may name private addresses"),
    key("ssl_verify", "boolean or a CA file", "true", "whether and by what the certificate is checked"),
    key(
        "client_cert",
        "a PEM file, or a list",
        "none",
        "certificate of this client; also `[cert, key, password]`",
    ),
    key("client_key", "a PEM file", "none", "its key"),
    key("allow_insecure", "boolean", "false", "credentials may travel over `http://` to another machine"),
    key("enabled", "boolean", "true", "false: known and can be tested, not run"),
    key(
        "timeout",
        "duration",
        "120 s",
        "a call may be silent so long; progress extends it, ten times it is the end",
    ),
    key("connect_timeout", "duration", "60 s", "first start, with handshake"),
    key("start", "`lazy`, `eager`", "`lazy`", "by the first use, or with the daemon"),
    key("idle_stop", "duration", "off", "stop after so long without a call; tools stay listed"),
    key("max_concurrency", "number", "16", "calls at the server; others wait, clients take turns"),
    key("supports_parallel_tool_calls", "boolean", "true", "false: `max_concurrency` is 1 unless written"),
    key("sharing", "`shared`, `per_client`, `per_root`, `exclusive`", "`shared`", "who shares one process"),
    key("protocol", "`auto`, `legacy`, `modern`, a revision", "`auto`", "how hermesd talks to the server"),
    key("breaker.threshold", "number", "3", "failures in a row that open the breaker"),
    key("breaker.cooldown", "duration", "60 s", "how long it stays open"),
    key("breaker.count_tool_errors", "boolean", "false", "whether `isError` results count as failures"),
    key("rate_limit.per_minute", "number", "none", "calls of each client"),
    key("rate_limit.burst", "number", "`per_minute`", "calls at once"),
    key("validate", "boolean", "on", "arguments against the tool's schema before they are sent"),
    key(
        "approval",
        "`never`, `destructive`, `always`, a list of tools",
        "`never`",
        "calls that wait for a person",
    ),
    key("approval_timeout", "duration", "300 s", "how long such a call can be decided"),
    key(
        "trust_annotations",
        "boolean",
        "false",
        "believe `readOnlyHint` and `idempotentHint` when a lost call might be repeated",
    ),
    key(
        "redact_results",
        "`known`, `patterns`, `off`",
        "`known`",
        "secrets in results: those that hermesd resolved, also by their looks, or none",
    ),
    key("result_limit", "size", "none", "bytes of one result"),
    key("pin", "`warn`, `block`, `off`", "`warn`", "what happens when a text that a model reads has changed"),
    key("tools.include", "a list", "all", "raw names of the tools that clients see; beats `exclude`"),
    key("tools.exclude", "a list", "none", "raw names of tools that clients do not see"),
    key("tools.resources", "boolean", "true", "the two utility tools for resources"),
    key("tools.prompts", "boolean", "true", "the two utility tools for prompts"),
    key("sampling.enabled", "boolean", "true", "the server may ask for a model"),
    key("sampling.prefer", "`client`, `provider`", "`client`", "who is asked first"),
    key("sampling.model", "a name", "the provider's", "the model that is used"),
    key("sampling.allowed_models", "a list", "all", "models that may be used"),
    key("sampling.max_tokens_cap", "number", "4096", "tokens of one answer"),
    key("sampling.timeout", "duration", "30 s", "how long one answer may take"),
    key("sampling.max_rpm", "number", "10", "requests a minute"),
    key("sampling.max_tool_rounds", "number", "5", "rounds with tools, one after the other"),
    key(
        "sampling.log_level",
        "`info`, `debug`, `warning`",
        "`info`",
        "at which level each request is logged",
    ),
];

/// The keys below `hermesd:`.
pub const DAEMON: &[Key] = &[
    key(
        "mcp_servers",
        "servers by name",
        "none",
        "as the top-level key, and wins over it: Hermes Agent does not read it",
    ),
    key("profiles.NAME.servers", "a list", "all", "servers of the view for `mcp serve --profile NAME`"),
    key("profiles.NAME.tools.include", "a list", "all", "exposed names in it"),
    key("profiles.NAME.tools.exclude", "a list", "none", "exposed names not in it"),
    key(
        "profiles.NAME.names",
        "`prefixed`, `raw`",
        "`prefixed`",
        "`raw` where the profile has a single server",
    ),
    key(
        "profiles.NAME.conversations",
        "`on`, `read`, `off`",
        "`on`",
        "the ten conversation tools, or those that only read",
    ),
    key("profiles.NAME.quota.per_day", "number", "none", "calls a day"),
    key("profiles.NAME.quota.per_session", "number", "none", "calls a session"),
    key(
        "conversations",
        "`auto`, `on`, `off`",
        "`auto`",
        "the conversation tools: where there are conversations, always, never",
    ),
    key("start_concurrency", "1 to 256", "4", "servers that start at one time"),
    key("name_limit", "24 to 128", "50", "longest exposed tool name"),
    key("instructions", "boolean", "on", "clients get the instructions of servers"),
    key(
        "sampling_provider.base_url",
        "an address",
        "`auxiliary.mcp`",
        "OpenAI-compatible endpoint that answers sampling",
    ),
    key("sampling_provider.api_key", "a secret", "none", "its key"),
    key("sampling_provider.model", "a name", "none", "its model"),
    key(
        "http.listen",
        "`host:port`",
        "off",
        "MCP over HTTP for clients that cannot start a program; this machine only",
    ),
    key(
        "http.token",
        "a secret, or one for each profile",
        "generated",
        "what they must send; a generated one is kept in the home",
    ),
    key("metrics.listen", "`host:port`", "off", "Prometheus metrics"),
    key("otlp.endpoint", "an address", "off", "where OpenTelemetry traces go"),
    key("otlp.sample_ratio", "0.0 to 1.0", "1.0", "share of the traces that begin here"),
    key("audit.retention_days", "1 to 36500", "30", "how long rows are kept"),
    key("audit.arguments", "`hash`, `off`, `full`", "`hash`", "what of a call's arguments is kept"),
    key("redaction.labels", "`plain`, `typed`", "`plain`", "`[REDACTED]` or `[GH_TOKEN_REDACTED]`"),
    key("builtin.approval", "as for a server", "`never`", "the same for the conversation tools"),
    key("builtin.approval_timeout", "duration", "300 s", "the same for the conversation tools"),
];

/// The page, Markdown.
pub fn page() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
        Made from the table in `daemon/src/config/reference.rs`; a test compares it with the code. How the file is found, read and\n\
        watched: [README](../README.md#configuration). `hermesctl config check` names every key that is unknown or wrong, with its line.\n\n\
        Durations are `250ms`, `90s`, `2m`, `1h30m` or seconds; sizes `65536`, `512KB`, `4MiB`; booleans `true false yes no on off`.\n\
        `${VAR}` and `${VAR:-default}` are filled in anywhere in values. Secrets belong into `.env`, and into the file as `${NAME}`.\n\n\
        ## `mcp_servers.NAME`\n\n",
    );
    table(&mut out, SERVER);
    out.push_str("\n## `hermesd`\n\n");
    table(&mut out, DAEMON);
    out.push_str(
        "\n## `platforms`\n\nHermes Agent's own section, read for `messages_send`: [README](../README.md#sending-messages).\n",
    );
    out
}

fn table(out: &mut String, keys: &[Key]) {
    out.push_str("| Key | Takes | Default | Meaning |\n|---|---|---|---|\n");
    for key in keys {
        // A String takes everything.
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", key.path, key.takes, key.default, key.means);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::checked;
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Enough of a file that every section is read.
    const WHOLE: &str = "\
mcp_servers:
  local: {command: x, tools: {}, sampling: {}, breaker: {}, rate_limit: {per_minute: 1}}
  remote: {url: 'https://h/m', auth: oauth, oauth: {client_id: a}}
hermesd:
  profiles: {p: {tools: {}, quota: {}}}
  sampling_provider: {base_url: 'https://h/v1'}
  http: {listen: '127.0.0.1:1'}
  metrics: {listen: '127.0.0.1:2'}
  otlp: {endpoint: 'http://h:4318'}
  audit: {}
  redaction: {}
  builtin: {}
";

    /// The keys that the reader asked for, without those that only hold others.
    fn asked() -> BTreeSet<String> {
        let config = checked(WHOLE, &[]);
        let all: BTreeSet<String> = config
            .asked
            .iter()
            .map(|path| {
                let path =
                    path.replace("mcp_servers.local.", "server:").replace("mcp_servers.remote.", "server:");
                path.replace("profiles.p.", "profiles.NAME.")
            })
            .filter(|path| path.starts_with("server:") || path.starts_with("hermesd."))
            .collect();
        let holds_others = |path: &String| all.iter().any(|other| other.starts_with(&format!("{path}.")));
        all.iter().filter(|path| !holds_others(path)).cloned().collect()
    }

    #[test]
    fn every_key_that_the_reader_knows_is_in_the_table_and_no_other() {
        let server = SERVER.iter().map(|key| format!("server:{}", key.path));
        let daemon = DAEMON.iter().map(|key| format!("hermesd.{}", key.path));
        let written: BTreeSet<String> = server.chain(daemon).collect();
        let read = asked();
        let missing: Vec<_> = read.difference(&written).collect();
        let invented: Vec<_> = written.difference(&read).collect();
        assert!(missing.is_empty() && invented.is_empty(), "missing {missing:?}, invented {invented:?}");
    }

    #[test]
    fn the_page_is_what_the_table_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
        if std::env::var_os("HERMESD_WRITE_DOCS").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == page(),
            "run this test with HERMESD_WRITE_DOCS=1 to write docs/configuration.md anew"
        );
    }

    #[test]
    fn defaults_in_the_table_are_those_of_the_code() {
        let config = checked("mcp_servers: {s: {command: x}}", &[]);
        let server = super::super::testing::running(&config, "s");
        let says = |path: &str| {
            let key = SERVER.iter().chain(DAEMON).find(|key| key.path == path);
            key.unwrap_or_else(|| panic!("no key {path}")).default.to_owned()
        };
        let daemon = &config.daemon;
        let seconds = |duration: std::time::Duration| format!("{} s", duration.as_secs());
        for (path, value) in [
            ("timeout", seconds(server.timeout)),
            ("connect_timeout", seconds(server.connect_timeout)),
            ("max_concurrency", server.max_concurrency.to_string()),
            ("breaker.threshold", server.breaker.threshold.to_string()),
            ("breaker.cooldown", seconds(server.breaker.cooldown)),
            ("approval_timeout", seconds(server.approval_timeout)),
            ("sampling.max_tokens_cap", server.sampling.max_tokens_cap.to_string()),
            ("sampling.timeout", seconds(server.sampling.timeout)),
            ("sampling.max_rpm", server.sampling.max_rpm.to_string()),
            ("sampling.max_tool_rounds", server.sampling.max_tool_rounds.to_string()),
            ("start_concurrency", daemon.start_concurrency.to_string()),
            ("name_limit", daemon.name_limit.to_string()),
            ("audit.retention_days", daemon.audit.retention_days.to_string()),
            ("builtin.approval_timeout", seconds(daemon.builtin.approval_timeout)),
        ] {
            assert_eq!(says(path), value, "{path}");
        }
    }
}
