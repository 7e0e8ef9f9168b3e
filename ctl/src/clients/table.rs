//! The MCP clients that hermesctl knows: where their files are on this system and what an entry looks like.
//!
//! Pure: paths are computed, never looked at. May not touch: files, the environment (a [`Places`] is handed in).

use clap::ValueEnum;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// An MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Client {
    /// Claude Desktop
    ClaudeDesktop,
    /// Claude Code
    ClaudeCode,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    #[value(name = "vscode")]
    VsCode,
    /// Codex
    Codex,
    /// Windsurf
    Windsurf,
    /// Zed
    Zed,
    /// Gemini CLI
    Gemini,
    /// Hermes Agent, which shares config.yaml with hermesd
    Hermes,
}

/// How a client's file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, read with comments, trailing commas and a byte order mark.
    Json,
    /// TOML.
    Toml,
    /// The config.yaml of the home.
    Yaml,
}

/// Folders from which the paths of clients are built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The user's home folder.
    pub user: PathBuf,
    /// `XDG_CONFIG_HOME`, else `~/.config`.
    pub config: PathBuf,
    /// Where desktop programs keep their settings: `~/Library/Application Support` on macOS, else `config`.
    pub desktop: PathBuf,
    /// Folder of Codex: `CODEX_HOME`, else `~/.codex`.
    pub codex: PathBuf,
    /// Folder with `.claude.json`: `CLAUDE_CONFIG_DIR`, else the home folder.
    pub claude: PathBuf,
}

/// Which servers of a client a file holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Those of the user, for all projects.
    User,
    /// Those of the project in this folder.
    Project(PathBuf),
}

impl Places {
    /// Builds them from the environment; `None` without a home folder.
    pub fn find(env: &dyn Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user = set("HOME")?;
        // A relative XDG folder does not count, says its specification.
        let config =
            set("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute()).unwrap_or_else(|| user.join(".config"));
        let desktop = match cfg!(target_os = "macos") {
            true => user.join("Library/Application Support"),
            false => config.clone(),
        };
        let codex = set("CODEX_HOME").unwrap_or_else(|| user.join(".codex"));
        let claude = set("CLAUDE_CONFIG_DIR").unwrap_or_else(|| user.clone());
        Some(Self { user, config, desktop, codex, claude })
    }
}

impl Client {
    /// All clients with a file of their own: everything but Hermes Agent.
    pub const FOREIGN: [Self; 8] = [
        Self::ClaudeDesktop,
        Self::ClaudeCode,
        Self::Cursor,
        Self::VsCode,
        Self::Codex,
        Self::Windsurf,
        Self::Zed,
        Self::Gemini,
    ];

    /// The client as it calls itself.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Codex => "Codex",
            Self::Windsurf => "Windsurf",
            Self::Zed => "Zed",
            Self::Gemini => "Gemini CLI",
            Self::Hermes => "Hermes Agent",
        }
    }

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Codex => "codex",
            Self::Windsurf => "windsurf",
            Self::Zed => "zed",
            Self::Gemini => "gemini",
            Self::Hermes => "hermes",
        }
    }

    /// How its files are written.
    pub fn format(self) -> Format {
        match self {
            Self::Codex => Format::Toml,
            Self::Hermes => Format::Yaml,
            Self::ClaudeDesktop
            | Self::ClaudeCode
            | Self::Cursor
            | Self::VsCode
            | Self::Windsurf
            | Self::Zed
            | Self::Gemini => Format::Json,
        }
    }

    /// The key under which its files keep the servers.
    pub fn key(self) -> &'static str {
        match self {
            Self::VsCode => "servers",
            Self::Codex | Self::Hermes => "mcp_servers",
            Self::Zed => "context_servers",
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor | Self::Windsurf | Self::Gemini => {
                "mcpServers"
            }
        }
    }

    /// Whether an entry says `type: stdio`, as the client itself writes it.
    pub fn says_type(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::VsCode)
    }

    /// What the person has to do before a changed file counts.
    pub fn after_change(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "quit and start Claude Desktop again",
            Self::ClaudeCode => "start a new session of Claude Code",
            Self::Cursor => "switch the server on in Cursor's settings if it asks",
            Self::VsCode => "start the server from VS Code's MCP list if it asks",
            Self::Codex => "start Codex again",
            Self::Windsurf => "refresh the MCP list in Windsurf",
            Self::Zed => "Zed takes it up by itself",
            Self::Gemini => "start Gemini CLI again",
            Self::Hermes => "`/reload-mcp` in Hermes Agent, or start it again",
        }
    }

    /// The file of this scope; `None` where the client has none (or shares the home, as Hermes Agent does).
    pub fn file(self, scope: &Scope, places: &Places) -> Option<PathBuf> {
        match scope {
            Scope::User => self.user_file(places),
            Scope::Project(dir) => self.project_file().map(|file| dir.join(file)),
        }
    }

    fn user_file(self, places: &Places) -> Option<PathBuf> {
        Some(match self {
            Self::ClaudeDesktop => places.desktop.join("Claude/claude_desktop_config.json"),
            Self::ClaudeCode => places.claude.join(".claude.json"),
            Self::Cursor => places.user.join(".cursor/mcp.json"),
            Self::VsCode => places.desktop.join("Code/User/mcp.json"),
            Self::Codex => places.codex.join("config.toml"),
            Self::Windsurf => places.user.join(".codeium/windsurf/mcp_config.json"),
            Self::Zed => places.config.join("zed/settings.json"),
            Self::Gemini => places.user.join(".gemini/settings.json"),
            Self::Hermes => return None,
        })
    }

    /// Where a project keeps servers for this client, relative to the project.
    pub fn project_file(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => Some(".mcp.json"),
            Self::Cursor => Some(".cursor/mcp.json"),
            Self::VsCode => Some(".vscode/mcp.json"),
            Self::Codex => Some(".codex/config.toml"),
            Self::Zed => Some(".zed/settings.json"),
            Self::Gemini => Some(".gemini/settings.json"),
            Self::ClaudeDesktop | Self::Windsurf | Self::Hermes => None,
        }
    }

    /// A folder or file that is there when the client is in use.
    pub fn trace(self, places: &Places) -> Option<PathBuf> {
        match self {
            // Its file is the only trace that is its own.
            Self::ClaudeCode => self.user_file(places),
            Self::ClaudeDesktop
            | Self::Cursor
            | Self::VsCode
            | Self::Codex
            | Self::Windsurf
            | Self::Zed
            | Self::Gemini => self.user_file(places).and_then(|file| file.parent().map(Path::to_owned)),
            Self::Hermes => None,
        }
    }

    /// The client whose project file this path looks like, with the folder of the project.
    pub fn of_project_file(path: &Path) -> Option<(Self, PathBuf)> {
        Self::FOREIGN.into_iter().find_map(|client| Some((client, client.project_of(path)?)))
    }

    /// The project whose file for this client this is.
    pub fn project_of(self, path: &Path) -> Option<PathBuf> {
        strip_end(path, Path::new(self.project_file()?))
    }
}

fn strip_end(path: &Path, end: &Path) -> Option<PathBuf> {
    path.ends_with(end).then(|| path.ancestors().nth(end.components().count()))?.map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(pairs: &[(&str, &str)]) -> Places {
        let pairs: Vec<(String, OsString)> =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), OsString::from(v))).collect();
        Places::find(&|name| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()))
            .unwrap()
    }

    #[test]
    fn every_client_has_a_word_that_the_command_line_takes() {
        for client in Client::value_variants() {
            assert_eq!(client.to_possible_value().unwrap().get_name(), client.word());
        }
    }

    #[test]
    fn files_are_where_the_clients_look_for_them() {
        let here = places(&[("HOME", "/u")]);
        let file = |client: Client| client.file(&Scope::User, &here).map(|path| path.display().to_string());
        let desktop = if cfg!(target_os = "macos") { "/u/Library/Application Support" } else { "/u/.config" };
        assert_eq!(
            file(Client::ClaudeDesktop).unwrap(),
            format!("{desktop}/Claude/claude_desktop_config.json")
        );
        assert_eq!(file(Client::VsCode).unwrap(), format!("{desktop}/Code/User/mcp.json"));
        assert_eq!(file(Client::ClaudeCode).unwrap(), "/u/.claude.json");
        assert_eq!(file(Client::Zed).unwrap(), "/u/.config/zed/settings.json");
        assert_eq!(file(Client::Hermes), None);
    }

    #[test]
    fn variables_of_the_clients_move_their_files() {
        let moved = places(&[
            ("HOME", "/u"),
            ("CODEX_HOME", "/c"),
            ("CLAUDE_CONFIG_DIR", "/d"),
            ("XDG_CONFIG_HOME", "/x"),
        ]);
        assert_eq!(Client::Codex.file(&Scope::User, &moved).unwrap(), Path::new("/c/config.toml"));
        assert_eq!(Client::ClaudeCode.file(&Scope::User, &moved).unwrap(), Path::new("/d/.claude.json"));
        assert_eq!(Client::Zed.file(&Scope::User, &moved).unwrap(), Path::new("/x/zed/settings.json"));
        let relative = places(&[("HOME", "/u"), ("XDG_CONFIG_HOME", "x")]);
        assert_eq!(relative.config, Path::new("/u/.config"));
    }

    #[test]
    fn a_project_file_tells_its_client_and_its_project() {
        let of = |path: &str| Client::of_project_file(Path::new(path));
        assert_eq!(of("/p/.cursor/mcp.json"), Some((Client::Cursor, "/p".into())));
        assert_eq!(of("/p/q/.mcp.json"), Some((Client::ClaudeCode, "/p/q".into())));
        assert_eq!(of("/p/mcp.json"), None);
    }
}
