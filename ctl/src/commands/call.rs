//! `call`: one tool call, printed as text or as the raw result.

use super::{Context, Format, put};
use crate::cli::CallArgs;
use crate::failure::{Done, Failure};
use crate::render::text;
use hermes_proto::control as pb;
use serde_json::Value;
use std::io::Read;

/// Calls the tool; exit code 1 when the result says that it failed.
pub(super) async fn run(cx: &Context, args: CallArgs) -> Result<Done, Failure> {
    let mut request = parse(&args.words)?;
    if request.arguments_json == "-" {
        request.arguments_json.clear();
        std::io::stdin().read_to_string(&mut request.arguments_json)?;
    }
    check_arguments(&request.arguments_json)?;
    request.timeout_ms = u64::from(args.timeout.unwrap_or(0)) * 1000;
    request.profile = args.profile.unwrap_or_default();
    let answer = cx.client().await?.call(request).await?;
    if !answer.error_json.is_empty() {
        return Err(rpc_error(&answer.error_json));
    }
    match cx.format {
        // As it came: key order, big numbers and unknown members survive.
        Format::Json => put(&format!("{}\n", answer.result_json))?,
        Format::Text => put(&page(&answer.result_json))?,
    }
    Ok(if answer.is_error { Done::Badly } else { Done::Well })
}

/// Two words are SERVER TOOL, unless the second can only be arguments.
fn parse(words: &[String]) -> Result<pb::CallToolRequest, Failure> {
    let is_arguments = |word: &str| word == "-" || word.trim_start().starts_with(['{', '[', '"']);
    let (server, tool, arguments) = match words {
        [tool] => ("", tool.as_str(), ""),
        [tool, arguments] if is_arguments(arguments) => ("", tool.as_str(), arguments.as_str()),
        [server, tool] => (server.as_str(), tool.as_str(), ""),
        [server, tool, arguments] => (server.as_str(), tool.as_str(), arguments.as_str()),
        _ => return Err(usage("name a tool".to_owned())),
    };
    Ok(pb::CallToolRequest {
        server: server.to_owned(),
        tool: tool.to_owned(),
        arguments_json: arguments.to_owned(),
        ..Default::default()
    })
}

fn check_arguments(arguments: &str) -> Result<(), Failure> {
    if arguments.trim().is_empty() {
        return Ok(());
    }
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(_)) => Ok(()),
        Ok(_) => Err(usage("arguments are not a JSON object".to_owned())),
        Err(error) => Err(usage(format!("arguments are not JSON: {error}"))),
    }
}

fn usage(message: String) -> Failure {
    Failure::Usage { message, hint: "hermesctl call SERVER TOOL '{\"key\": \"value\"}'".to_owned() }
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
fn page(result: &str) -> String {
    let value: Value = serde_json::from_str(result).unwrap_or(Value::Null);
    let Some(blocks) = value["content"].as_array() else { return format!("{}\n", text::block(result)) };
    let mut out = String::new();
    for block in blocks {
        let shown = match block["type"].as_str() {
            Some("text") => text::block(block["text"].as_str().unwrap_or_default()),
            Some(kind @ ("image" | "audio")) => {
                let data = block["data"].as_str().unwrap_or_default().len();
                let mime = text::plain(block["mimeType"].as_str().unwrap_or("unknown type"));
                format!("[{kind}, {mime}, {data} characters of base64; --json shows it]")
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

    fn parsed(words: &[&str]) -> (String, String, String) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let request = parse(&words).unwrap();
        (request.server, request.tool, request.arguments_json)
    }

    #[test]
    fn two_words_are_server_and_tool_unless_the_second_is_json() {
        let is = |s: &str, t: &str, a: &str| (s.to_owned(), t.to_owned(), a.to_owned());
        assert_eq!(parsed(&["x"]), is("", "x", ""));
        assert_eq!(parsed(&["fs", "read"]), is("fs", "read", ""));
        assert_eq!(parsed(&["mcp_fs_read", " {}"]), is("", "mcp_fs_read", " {}"));
        assert_eq!(parsed(&["mcp_fs_read", "-"]), is("", "mcp_fs_read", "-"));
        assert_eq!(parsed(&["fs", "read", "{}"]), is("fs", "read", "{}"));
    }

    #[test]
    fn arguments_that_are_no_object_are_a_usage_error() {
        assert_eq!(check_arguments("[1]").unwrap_err().code(), 2);
        assert_eq!(check_arguments("{bad").unwrap_err().code(), 2);
        assert!(check_arguments(" {\"a\": 1} ").is_ok());
    }

    #[test]
    fn a_result_is_shown_as_text_and_cannot_act_on_the_terminal() {
        let result = r#"{"content":[{"type":"text","text":"a\nb\u001b[2J"},{"type":"image","data":"AAAA","mimeType":"image/png"}]}"#;
        assert_eq!(
            page(result),
            "a\nb\\u{1b}[2J\n[image, image/png, 4 characters of base64; --json shows it]\n"
        );
    }
}
