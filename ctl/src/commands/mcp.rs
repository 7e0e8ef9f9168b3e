//! `mcp`: list, test, login, logout, import, export, register, unregister, serve; the verbs that write
//! single entries of config.yaml are in `entries`.

use super::entries::{self, Switch};
use super::{Context, export, import, login, register, servers, tools};
use crate::cli::{McpAction, Part, ServeArgs, ServerAction};
use crate::failure::{Done, Failure};
use crate::render::{json, text};
use crate::shim::{self, Log, ServeOptions, Spawn};
use hermes_proto::control as pb;
use hermes_proto::shim::hello::Only;
use std::time::Duration;

/// Does one action; lists without one.
pub(super) async fn run(cx: &Context, action: Option<McpAction>) -> Result<Done, Failure> {
    match action.unwrap_or(McpAction::List) {
        McpAction::List => match servers::run(cx, Some(ServerAction::List)).await {
            Err(Failure::Unreachable { .. }) => entries::list(cx),
            done => done,
        },
        McpAction::Add(args) => entries::add(cx, *args).await,
        McpAction::Remove(args) => entries::remove(cx, &args).await,
        McpAction::Configure(args) => entries::configure(cx, &args).await,
        McpAction::Enable(server) => entries::switch(cx, &server.name, Switch::On).await,
        McpAction::Disable(server) => entries::switch(cx, &server.name, Switch::Off).await,
        McpAction::Test(server) => {
            let tested = cx.client().await?.test(&server.name).await?;
            cx.print(|| json::of(&tested), || page(cx, &server.name, &tested))?;
            if tested.ok {
                entries::offer_enable(cx, &server.name).await?;
            }
            Ok(if tested.ok { Done::Well } else { Done::Badly })
        }
        McpAction::Login(args) => login::login(cx, &args).await,
        McpAction::Logout(server) => login::logout(cx, &server.name).await,
        McpAction::Import(args) => import::run(cx, &args),
        McpAction::Export(args) => export::run(cx, &args),
        McpAction::Register(args) => register::register(cx, &args),
        McpAction::Unregister(args) => register::unregister(cx, &args),
        McpAction::Serve(args) => Ok(serve(cx, args)),
    }
}

/// The shim, when the quick way in did not apply. Blocks this thread until its client is done.
pub(super) fn serve(cx: &Context, args: ServeArgs) -> Done {
    shim::run(&options(cx, args));
    Done::Well
}

fn options(cx: &Context, args: ServeArgs) -> ServeOptions {
    ServeOptions {
        home: cx.home_flag.clone(),
        profile: args.profile,
        only: match args.only {
            None => Only::All,
            Some(Part::Conversations) => Only::Conversations,
            Some(Part::Servers) => Only::Servers,
        },
        log: if args.verbose { Log::On } else { Log::Off },
        spawn: if args.no_spawn { Spawn::Never } else { Spawn::WhenMissing },
    }
}

/// What a test found, for a person.
pub(super) fn page(cx: &Context, name: &str, tested: &pb::TestServerResponse) -> String {
    let verdict = if tested.ok { "works" } else { "does not work" };
    let took = text::span(Duration::from_millis(tested.total_ms));
    let message = if tested.message.is_empty() { String::new() } else { format!(": {}", tested.message) };
    let mut out = format!("{}\n", text::plain(&format!("{name} {verdict} ({took}){message}")));
    if let Some(detail) = &tested.detail {
        out.push_str(&servers::describe(detail));
    }
    if !tested.tools.is_empty() {
        out.push('\n');
        out.push_str(&tools::list(&tested.tools, cx.style));
    }
    let of_tools = tested.tools.iter().flat_map(|tool| tool.warnings.iter().map(move |said| (tool, said)));
    for (tool, said) in of_tools {
        out.push_str(&format!("warning: {}\n", text::plain(&format!("tool `{}`: {said}", tool.raw_name))));
    }
    for said in &tested.warnings {
        out.push_str(&format!("warning: {}\n", text::plain(said)));
    }
    out
}
