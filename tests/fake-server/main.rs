//! A scripted MCP server on stdio: does exactly what its script says, good or bad.
//!
//! `t-fake-server SCRIPT.json` reads a [`Script`](hermes_tests::script::Script) (each field is
//! documented there); `t-fake-server --sleeper MARK [--setsid|--daemon]` is the grandchild that a
//! script may fork. Blocking std code on purpose: it shares nothing with the daemon it tests.
//!
//! Tools (arguments in braces):
//!
//! * `echo {text}`: the text. `unicode {}`: text in several scripts. `image {}`: a PNG block.
//! * `raw_args {…}`: the bytes of `arguments` as they came. `meta {}`: `params._meta` as received.
//! * `answer {result}`: the string `result`, verbatim, as the JSON of the result.
//! * `reply {lines}`: writes these raw lines; `$ID` becomes the request's id. No other answer.
//! * `fail {}`: an `isError` result. `rpc_error {code, message, data}`: a JSON-RPC error.
//! * `sleep {ms, text}`: answers later, or never once cancelled. `hang {}`: never answers.
//! * `crash {code}`: exits without an answer. `append_then_die {file, text}`: a side effect, then exits.
//! * `append {file, text}`: a side effect, then answers.
//! * `big {bytes, framing}`: so much text. `invalid_utf8 {}`: a bad byte inside the text.
//! * `progress {n, every_ms}`: n progress notices, then the answer. `progress_odd {kind}`: `fabricated`,
//!   `late`, `backwards` notices. `late_answer {ms}`: answers even when cancelled.
//! * `notify {method, params, times, after_ms}`: sends notifications first, or `after_ms` after its answer. `ask {method, params}`: sends a request to
//!   the client and answers with what came back.
//! * `env {}`, `cwd {}`, `fds {}`, `pid {}`, `argv {}`: what the process sees.
//! * `set {key, value}`, `get {key}`: state of this process. `secret {nonce}`: a value made from the nonce.
//! * `stderr {bytes, text}`: writes to stderr. `noise {text}`: a line on stdout that is no JSON.
//! * `endless {bytes}`: so many bytes without a newline, then a newline, then the answer.
//! * `deaf_while_writing {bytes}`: stops reading stdin until so many bytes are written.
//! * `add_tool {name, after_ms, order}`: a new tool; `order` is `notice_first` or `change_first`.
//! * `fork {kind}`: a further process. `close_stdout {}`: closes stdout, keeps running.

#![allow(clippy::disallowed_methods, clippy::exit)] // sleeping and dying are what it is for

mod catalog;
mod modern;
mod output;
mod process;
mod serve;
mod tools;

use hermes_tests::script::Script;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("--sleeper") => process::sleeper(&args[2..]),
        Some(path) => {
            let text = std::fs::read(path).expect("the test wrote the script before the start");
            let script: Script =
                serde_json::from_slice(&text).expect("scripts are serialised by the harness");
            serve::Server::new(script).run()
        }
        None => ExitCode::from(2),
    }
}
