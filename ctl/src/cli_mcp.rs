//! The command line of the verbs that write config.yaml: what can be typed. Decides nothing.

use clap::{ArgGroup, Args, ValueEnum};

/// Options of `mcp add`.
#[derive(Debug, Args)]
#[command(
    override_usage = "hermesctl mcp add NAME [OPTIONS] -- PROGRAM [ARG]...
       hermesctl mcp add NAME [OPTIONS] --command PROGRAM [--args ARG...]
       hermesctl mcp add NAME [OPTIONS] --url URL
       hermesctl mcp add NAME [OPTIONS] --preset PRESET",
    group = ArgGroup::new("reached").required(true).args(["url", "command", "preset", "program"]),
    after_help = "Examples:
  hermesctl mcp add files --command npx --args -y @modelcontextprotocol/server-filesystem ~/notes
  hermesctl mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  hermesctl mcp add github --env GITHUB_TOKEN -- docker run -i -e GITHUB_TOKEN ghcr.io/github/...
  hermesctl mcp add linear --url https://mcp.linear.app/mcp --auth oauth
  hermesctl mcp add search --url https://api.example.com/mcp --auth header --tools find,read

hermesd connects first, with the code that will run the server, and nothing is written if that fails
(unless --save-disabled). Secrets go to .env (only you can read it), config.yaml refers to them as ${NAME}."
)]
pub struct AddArgs {
    /// Name of the new server
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Address of a remote server
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Program that is the server
    #[arg(long, value_name = "PROGRAM")]
    pub command: Option<String>,
    /// Arguments of the program; takes all that follows, so it comes last
    #[arg(long, num_args = 0.., allow_hyphen_values = true, value_name = "ARG", requires = "command")]
    pub args: Vec<String>,
    /// A server that hermesctl knows
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// Program and arguments, instead of --command and --args
    #[arg(last = true, value_name = "PROGRAM ARG")]
    pub program: Vec<String>,
    /// Variable for the program; without =VALUE it is asked for, or read from stdin
    #[arg(long, value_name = "NAME[=VALUE]", conflicts_with = "url")]
    pub env: Vec<String>,
    /// Header for each request to the remote server
    #[arg(long, value_name = "NAME: VALUE", conflicts_with_all = ["command", "preset", "program"])]
    pub header: Vec<String>,
    /// How the remote server knows you: a login in the browser, or a token that is asked for or read from stdin
    #[arg(long, value_enum, conflicts_with_all = ["command", "preset", "program"])]
    pub auth: Option<Auth>,
    /// How to speak to the remote server; found out without it
    #[arg(long, value_enum, conflicts_with_all = ["command", "preset", "program"])]
    pub transport: Option<Transport>,
    /// Which tools clients see: `all`, `none`, or names with commas between
    #[arg(long, value_name = "NAMES")]
    pub tools: Option<Tools>,
    /// Save a server that cannot be reached, disabled
    #[arg(long)]
    pub save_disabled: bool,
    /// Replace an entry with this name
    #[arg(long)]
    pub overwrite: bool,
}

/// Options of `mcp remove`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Name of the server in config.yaml
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// Options of `mcp configure`.
#[derive(Debug, Args)]
pub struct ConfigureArgs {
    /// Name of the server in config.yaml
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Which tools clients see: `all`, `none`, or names with commas between; asked for without it
    #[arg(long, value_name = "NAMES")]
    pub tools: Option<Tools>,
}

/// A server whose command is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// OpenAI Codex: `codex mcp-server`
    Codex,
}

impl Preset {
    /// The command and its arguments.
    pub fn command(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Codex => ("codex", &["mcp-server"]),
        }
    }
}

/// How a remote server knows its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// A login in the browser
    Oauth,
    /// A token in the Authorization header
    Header,
}

/// How to speak to a remote server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Streamable HTTP
    Http,
    /// HTTP+SSE, as servers of 2024 speak it
    Sse,
}

/// Which tools of a server are visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tools {
    /// Also those that it may get later.
    All,
    /// None.
    None,
    /// These and no others, by the server's own names.
    Only(Vec<String>),
}

impl std::str::FromStr for Tools {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
        match (text.trim(), names.collect::<Vec<_>>()) {
            ("all", _) => Ok(Self::All),
            ("none", _) => Ok(Self::None),
            (_, names) if names.is_empty() => Err("write `all`, `none`, or names with commas between"),
            (_, names) => Ok(Self::Only(names)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use crate::testing::golden;
    use clap::CommandFactory;

    #[test]
    fn the_help_reads_as_it_was_approved() {
        for verb in ["add", "remove", "configure", "list", "enable"] {
            let mut command = Cli::command();
            command.build();
            let mcp = command.find_subcommand_mut("mcp").unwrap();
            let found = mcp.find_subcommand_mut(verb).unwrap().clone();
            let help = found.term_width(100).render_long_help().to_string();
            let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
            golden(&format!("help/mcp_{verb}.txt"), &help);
        }
    }
}
