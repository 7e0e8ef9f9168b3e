//! `tools`: the exposed catalogue.

use super::Context;
use crate::cli::ToolsArgs;
use crate::failure::{Done, Failure};
use crate::render::json;
use crate::render::table::{Style, Table, Tone};
use crate::render::text;
use hermes_proto::control as pb;

/// Longest description in the list; `--json` has the whole.
const DESCRIPTION: usize = 100;

/// Lists the tools as clients see them.
pub(super) async fn run(cx: &Context, args: &ToolsArgs) -> Result<Done, Failure> {
    let server = args.server.as_deref().unwrap_or("");
    let profile = args.profile.as_deref().unwrap_or("");
    let mut tools = cx.client().await?.tools(server, profile).await?;
    search(&mut tools, &args.query);
    cx.print(|| json::of(&tools), || list(&tools, cx.style))?;
    Ok(Done::Well)
}

/// Keeps the tools that have every word somewhere; those with all of them in the name come first.
fn search(tools: &mut Vec<pb::Tool>, query: &[String]) {
    let words: Vec<String> =
        query.iter().flat_map(|words| words.split_whitespace()).map(str::to_lowercase).collect();
    let has = |text: &str| words.iter().all(|word| text.contains(word.as_str()));
    let name = |tool: &pb::Tool| format!("{} {}", tool.name, tool.raw_name).to_lowercase();
    tools.retain(|tool| {
        has(&format!("{} {} {}", name(tool), tool.title.to_lowercase(), tool.description.to_lowercase()))
    });
    // Stable: the order of the catalogue stays among equals.
    tools.sort_by_key(|tool| !has(&name(tool)));
}

/// All tools as a table, or one line that says that there is none.
pub(super) fn list(tools: &[pb::Tool], style: Style) -> String {
    if tools.is_empty() {
        return "no tools\n".to_owned();
    }
    let mut table = Table::new(&["tool", "server", "reads only", "description"]);
    for tool in tools {
        let cells = [
            tool.name.clone(),
            tool.server.clone(),
            if tool.read_only { "yes" } else { "" }.to_owned(),
            text::summary(&tool.description, DESCRIPTION),
        ];
        table.row(cells.map(|cell| (cell, Tone::Plain)));
    }
    table.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_all_words_and_puts_names_first() {
        let tool = |name: &str, description: &str| pb::Tool {
            name: name.into(),
            description: description.into(),
            ..Default::default()
        };
        let all = || vec![tool("list", "Reads a FILE list"), tool("read_file", ""), tool("other", "nothing")];
        let names = |query: &[&str]| {
            let mut tools = all();
            search(&mut tools, &query.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
            tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["list", "read_file", "other"]);
        assert_eq!(names(&["Read", "file"]), ["read_file", "list"]);
        assert_eq!(names(&["read list"]), ["list"]);
        assert_eq!(names(&["absent"]), Vec::<String>::new());
    }
}
