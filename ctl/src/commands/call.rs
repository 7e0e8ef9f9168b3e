//! `call`: one tool call, printed as text or as the raw result.

use super::{Context, Format, arguments, put, save};
use crate::cli::CallArgs;
use crate::failure::{Done, Failure};
use crate::render::text;
use hermes_proto::control as pb;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the line of a call that takes long changes.
const TICK: Duration = Duration::from_secs(1);

/// Calls the tool; exit code 1 when the result says that it failed.
pub(super) async fn run(cx: &Context, args: CallArgs) -> Result<Done, Failure> {
    let Words { server, tool, mut arguments } = parse(args.words)?;
    // A file first, so that single words may change it.
    arguments.splice(0..0, args.file.iter().map(|file| format!("@{}", file.display())));
    let profile = args.profile.unwrap_or_default();
    let mut client = cx.client().await?;
    let schema = match arguments::needs_schema(&arguments) {
        true => schema(client.tools(&server, &profile).await?, &server, &tool),
        false => Value::Null,
    };
    let request = pb::CallToolRequest {
        arguments_json: arguments::build(&arguments, &schema, &read)?,
        timeout_ms: u64::from(args.timeout.unwrap_or(0)) * 1000,
        server,
        tool,
        profile,
        ..Default::default()
    };
    let named = request.tool.clone();
    let answer = waiting(&named, client.call(request)).await?;
    if !answer.error_json.is_empty() {
        return Err(rpc_error(&answer.error_json));
    }
    let saved = match &args.save {
        Some(folder) => {
            let result: Value = serde_json::from_str(&answer.result_json).unwrap_or(Value::Null);
            save::all(&result, &named, folder)
        }
        None => Ok(BTreeMap::new()),
    };
    // The tool has run: its answer is shown whatever became of the files.
    let (saved, unsaved) = match saved {
        Ok(saved) => (saved, None),
        Err(error) => (BTreeMap::new(), Some(error)),
    };
    match cx.format {
        // As it came: key order, big numbers and unknown members survive.
        Format::Json => put(&format!("{}\n", answer.result_json))?,
        Format::Text => put(&page(&answer.result_json, &saved))?,
    }
    if let Some(error) = unsaved {
        return Err(Failure::refused(format!("the tool has run, but what it sent was not saved: {error}")));
    }
    Ok(if answer.is_error { Done::Badly } else { Done::Well })
}

/// Waits for the answer; on a terminal with a line that counts the seconds and is gone afterwards.
async fn waiting<T>(tool: &str, answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    if !stderr().is_terminal() {
        return answer.await;
    }
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.tick().await;
    let mut shown = false;
    loop {
        tokio::select! {
            done = &mut answer => {
                if shown {
                    let _ = stderr().write_all(b"\r\x1b[K");
                }
                return done;
            }
            _ = ticks.tick() => {
                shown = true;
                let passed = begun.elapsed().as_secs();
                let bar = ".".repeat(usize::try_from(passed % 10).unwrap_or(0) + 1);
                let line = format!("\r\x1b[K{}: {passed} s {bar}", text::summary(tool, 60));
                // Nobody is left to tell when the terminal is gone.
                let _ = stderr().write_all(line.as_bytes());
            }
        }
    }
}

/// A file, or stdin.
pub(super) fn read(file: &str) -> io::Result<String> {
    match file {
        "-" => io::read_to_string(io::stdin()),
        file => std::fs::read_to_string(file),
    }
}

fn schema(tools: Vec<pb::Tool>, server: &str, tool: &str) -> Value {
    let named = |one: &&pb::Tool| one.name == tool || (one.server == server && one.raw_name == tool);
    let found = tools.iter().find(named).map(|tool| tool.input_schema_json.as_str());
    found.and_then(|schema| serde_json::from_str(schema).ok()).unwrap_or(Value::Null)
}

/// What is to be called.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    server: String,
    tool: String,
    arguments: Vec<String>,
}

/// One or two names, then what can only be arguments.
fn parse(words: Vec<String>) -> Result<Words, Failure> {
    let names = words.iter().take_while(|word| !arguments::is_argument(word)).count();
    let mut words = words.into_iter();
    let mut next = || words.next().unwrap_or_default();
    let (server, tool) = match names {
        1 => (String::new(), next()),
        2 => (next(), next()),
        0 => return Err(usage("name a tool first".to_owned())),
        _ => {
            let (_, _, third) = (next(), next(), next());
            return Err(usage(format!("`{third}` is no argument")));
        }
    };
    Ok(Words { server, tool, arguments: words.collect() })
}

fn usage(message: String) -> Failure {
    let hint =
        "write e.g. hermesctl call files read_file path=/tmp/x, or '{\"path\": \"/tmp/x\"}'".to_owned();
    Failure::Usage { message, hint }
}

fn rpc_error(error: &str) -> Failure {
    let value: Value = serde_json::from_str(error).unwrap_or(Value::Null);
    let message = match (value["message"].as_str(), value["code"].as_i64()) {
        (Some(message), Some(code)) => format!("{} (code {code})", text::plain(message)),
        _ => text::plain(error),
    };
    Failure::Refused { message, hint: "`hermesctl tools` lists what can be called".to_owned() }
}

/// The content of a result for a person: text as text, everything else named.
fn page(result: &str, saved: &BTreeMap<usize, PathBuf>) -> String {
    let value: Value = serde_json::from_str(result).unwrap_or(Value::Null);
    let Some(blocks) = value["content"].as_array() else { return format!("{}\n", text::block(result)) };
    let mut out = String::new();
    for (at, block) in blocks.iter().enumerate() {
        let shown = match block["type"].as_str() {
            Some("text") => text::block(block["text"].as_str().unwrap_or_default()),
            Some(kind) if saved.contains_key(&at) => {
                format!("[{kind}, saved as {}]", text::plain(&saved[&at].display().to_string()))
            }
            Some(kind @ ("image" | "audio")) => {
                let data = block["data"].as_str().unwrap_or_default().len();
                let mime = text::plain(block["mimeType"].as_str().unwrap_or("unknown type"));
                format!("[{kind}, {mime}, {data} characters of base64; --save DIR saves it]")
            }
            Some("resource_link") => {
                format!("[resource {}]", text::plain(block["uri"].as_str().unwrap_or_default()))
            }
            Some("resource") => {
                let resource = &block["resource"];
                let uri = text::plain(resource["uri"].as_str().unwrap_or_default());
                match resource["text"].as_str() {
                    Some(body) => format!("[resource {uri}]\n{}", text::block(body)),
                    None => format!("[resource {uri}]"),
                }
            }
            _ => text::plain(&block.to_string()),
        };
        out.push_str(shown.trim_end_matches('\n'));
        out.push('\n');
    }
    if blocks.is_empty() && !value["structuredContent"].is_null() {
        out.push_str(&text::block(&format!("{:#}\n", value["structuredContent"])));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<(String, String, usize), Failure> {
        let words = parse(words.iter().map(|word| (*word).to_owned()).collect())?;
        Ok((words.server, words.tool, words.arguments.len()))
    }

    #[test]
    fn names_come_first_and_arguments_are_told_by_their_look() {
        let is = |s: &str, t: &str, a| (s.to_owned(), t.to_owned(), a);
        assert_eq!(parsed(&["x"]).unwrap(), is("", "x", 0));
        assert_eq!(parsed(&["fs", "read"]).unwrap(), is("fs", "read", 0));
        assert_eq!(parsed(&["mcp_fs_read", " {}"]).unwrap(), is("", "mcp_fs_read", 1));
        assert_eq!(parsed(&["mcp_fs_read", "-"]).unwrap(), is("", "mcp_fs_read", 1));
        assert_eq!(parsed(&["fs", "read", "{}", "a=1", "@x"]).unwrap(), is("fs", "read", 3));
        assert_eq!(parsed(&["fs", "read", "what"]).unwrap_err().code(), 2);
        assert_eq!(parsed(&["{}"]).unwrap_err().code(), 2);
    }

    #[test]
    fn a_result_is_shown_as_text_and_cannot_act_on_the_terminal() {
        let result = r#"{"content":[{"type":"text","text":"a\nb\u001b[2J"},{"type":"image","data":"AAAA","mimeType":"image/png"}]}"#;
        assert_eq!(
            page(result, &BTreeMap::new()),
            "a\nb\\u{1b}[2J\n[image, image/png, 4 characters of base64; --save DIR saves it]\n"
        );
    }
}
