//! Servers that are known to keep one user's state in their process, and so need one for each client.
//!
//! Pure. By the name of the package or program in the command line. `sharing:` in the file beats it.

use super::{Sharing, StdioConfig};

/// Packages and programs that drive one browser for whoever talks to them.
const PER_CLIENT: [&str; 9] = [
    "@playwright/mcp",
    "@executeautomation/playwright-mcp-server",
    "@modelcontextprotocol/server-puppeteer",
    "puppeteer-mcp-server",
    "chrome-devtools-mcp",
    "@browserbasehq/mcp-server-browserbase",
    "@browsermcp/mcp",
    "mcp-server-playwright",
    "browser-use",
];

/// What is right for this command line where the file does not say.
pub(super) fn of(stdio: &StdioConfig) -> Sharing {
    let words = std::iter::once(&stdio.command).chain(&stdio.args);
    let known = words.into_iter().any(|word| PER_CLIENT.contains(&package(word)));
    if known { Sharing::PerClient } else { Sharing::Shared }
}

/// The name without version, folders and the extras of Python.
fn package(word: &str) -> &str {
    let word = if word.starts_with('@') { word } else { word.rsplit('/').next().unwrap_or(word) };
    let end = word.char_indices().skip(1).find(|(_, c)| matches!(c, '@' | '[' | '='));
    &word[..end.map_or(word.len(), |(at, _)| at)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_known_by_its_package_whatever_starts_it() {
        for (line, sharing) in [
            ("npx -y @playwright/mcp@latest", Sharing::PerClient),
            ("npx -y @playwright/mcp", Sharing::PerClient),
            ("/usr/local/bin/mcp-server-playwright --headless", Sharing::PerClient),
            ("uvx browser-use[cli] --mcp", Sharing::PerClient),
            ("npx @playwright/mcp-tools", Sharing::Shared),
            ("node server.js playwright", Sharing::Shared),
            ("npx -y @modelcontextprotocol/server-memory", Sharing::Shared),
        ] {
            let mut words = line.split(' ').map(str::to_owned);
            let mut stdio = StdioConfig::command(words.next().unwrap());
            stdio.args = words.collect();
            assert_eq!(of(&stdio), sharing, "{line}");
        }
    }
}
