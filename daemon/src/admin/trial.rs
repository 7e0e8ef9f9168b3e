//! Tests of a server: one that is configured, or an entry that is in no file yet.
//!
//! Promise: the code that runs servers does it; secrets of the entry are masked, also in logs, before
//! anything is started; nothing is left of it. A process below one of our servers may test none of its
//! own making. May not touch: the configuration in force.

use super::convert;
use super::service::Inner;
use crate::call::permissions::is_below_daemon;
use crate::catalog::look;
use crate::config::{self, Config, ServerConfig, ServerEntry, Sources};
use crate::names::ServerName;
use crate::policy::scan::{self, Foreign};
use crate::server::diagnose::{Diagnosis, diagnose};
use crate::server::listing::Listing;
use hermes_proto::control as pb;
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::Status;

/// Largest entry in bytes.
const MAX_ENTRY: usize = 256 << 10;

/// Tests a server of the file, enabled or not.
pub(super) async fn configured(inner: &Inner, name: &str) -> Result<pb::TestServerResponse, Status> {
    let config = inner.config.borrow().clone();
    match config.servers.get(name) {
        Some(ServerEntry::Enabled(server) | ServerEntry::Disabled(server)) => Ok(run(inner, server).await),
        Some(ServerEntry::Refused { .. }) | None => {
            Err(inner.handle(name).err().unwrap_or_else(|| Status::not_found("gone")))
        }
    }
}

/// Tests an entry that is in no file.
pub(super) async fn unsaved(
    inner: &Inner,
    request: pb::TryServerRequest,
    pid: Option<u32>,
) -> Result<pb::TestServerResponse, Status> {
    if let Some(pid) = pid
        && is_below_daemon(pid).await
    {
        return Err(Status::permission_denied("a process below an MCP server cannot have others started"));
    }
    if request.server.is_empty() || request.entry_yaml.len() > MAX_ENTRY {
        return Err(Status::invalid_argument(format!("an entry needs a name and at most {MAX_ENTRY} bytes")));
    }
    let name = ServerName::new(request.server.as_str());
    let home = inner.home.clone();
    let read = tokio::task::spawn_blocking(move || {
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let env: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        let user_home = env.get("HOME").map(Into::into);
        let user_home: Option<std::path::PathBuf> = user_home;
        let sources = Sources { home: &home, env: &env, user_home: user_home.as_deref() };
        let variables = request.variables.into_iter().collect();
        config::load_entry(&sources, &request.server, &request.entry_yaml, &variables)
    });
    let config = read.await.map_err(|_| Status::internal("reading the entry failed"))?;
    inner.masking.login(&name, &config.secrets.longest_first());
    let findings = findings(inner, &config);
    let mut answer = match config.servers.get(name.as_str()) {
        Some(ServerEntry::Enabled(server) | ServerEntry::Disabled(server)) => run(inner, server).await,
        Some(ServerEntry::Refused { reason }) => refused(inner.mask()(reason)),
        None => refused("the entry is not readable".to_owned()),
    };
    answer.detail.get_or_insert_default().findings = findings;
    Ok(answer)
}

fn refused(message: String) -> pb::TestServerResponse {
    pb::TestServerResponse { message, ..pb::TestServerResponse::default() }
}

fn findings(inner: &Inner, config: &Config) -> Vec<pb::Finding> {
    config.findings.iter().map(|finding| convert::finding(finding, inner.mask())).collect()
}

async fn run(inner: &Inner, server: &Arc<ServerConfig>) -> pb::TestServerResponse {
    let log_file = inner.logs.path_of(&server.name).display().to_string();
    let diagnosis = diagnose(server, &inner.test).await;
    let mut answer = convert::diagnosis(&diagnosis, log_file, inner.mask());
    look_through(inner, &diagnosis, &mut answer).await;
    answer
}

/// Puts beside each tool what the injection scan says about it. On the blocking pool: the phrases may
/// have to be compiled first, and a list of tools may be long.
async fn look_through(inner: &Inner, diagnosis: &Diagnosis, answer: &mut pb::TestServerResponse) {
    let Some(listing) = diagnosis.listing.clone() else { return };
    let name = diagnosis.status.name.clone();
    let view = inner.view("");
    let others =
        view.iter().flat_map(|view| view.tools().iter()).filter(|tool| tool.server() != name.as_str());
    let own = listing.tools.iter().map(|item| item.name.as_str());
    let foreign = Foreign::new(own, others.map(|tool| tool.name.as_str()));
    let looked = tokio::task::spawn_blocking(move || findings_of(&listing, &foreign)).await;
    let Ok((tools, others)) = looked else { return };
    let masked = |texts: Vec<String>| texts.iter().map(|text| inner.mask()(text)).collect();
    for (found, tool) in tools.into_iter().zip(&mut answer.tools) {
        tool.warnings = masked(found);
    }
    answer.warnings = masked(others);
}

/// For each tool what was found in its texts, and what was found elsewhere; not masked.
fn findings_of(listing: &Listing, foreign: &Foreign) -> (Vec<Vec<String>>, Vec<String>) {
    let _phrases = scan::keep();
    let tools = listing.tools.iter().map(|item| look::item(item.name.as_str(), &item.raw, foreign)).collect();
    let mut others = Vec::new();
    for item in listing.prompts.iter().chain(&listing.resources).chain(&listing.templates) {
        let found = look::item(&item.key, &item.raw, foreign);
        others.extend(found.iter().map(|text| format!("`{}`: {text}", item.key)));
    }
    for finding in listing.instructions.iter().flat_map(|text| scan::scan(text, foreign)) {
        let (kind, excerpt) = (finding.kind.word(), finding.excerpt);
        others.push(format!("its instructions look like an injection ({kind}): {excerpt}"));
    }
    (tools, others)
}
