//! One method an rpc, no logic: looks things up, asks an owner, converts the answer.

use super::calls::{admin_identity, call_params};
use super::consent;
use super::convert::{self, Mask};
use super::events;
use super::evidence;
use super::login;
use super::memory;
use super::status;
use super::trial;
use crate::call::{CallPath, Caller, ToolCall};
use crate::catalog::snapshot::{Catalog, View};
use crate::config::{Config, ServerEntry};
use crate::conversations::watch::Watch;
use crate::jsonrpc::reply::Reply;
use crate::masking::Masking;
use crate::names::{ProfileName, ServerName};
use crate::reload::{Reloaded, Reloader};
use crate::server::Servers;
use crate::server::handle::{NotReady, ServerHandle};
use crate::server::lifecycle::{Drain, StopReason};
use crate::server::supervisor;
use crate::server::transport::oauth::Oauth;
use crate::session::clients::Clients;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::server_log::ServerLogs;
use crate::telemetry::stats::Stats;
use hermes_proto::control as pb;
use hermes_proto::control::control_server::Control;
use hermes_proto::shim::hello::Only;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

/// How long `start`, `restart` and `test` wait for a server at most.
const START_WAIT: Duration = Duration::from_secs(300);

/// Everything the service reads.
#[derive(Clone)]
pub struct Admin {
    /// Shared state; one allocation, cheap to clone for tonic.
    pub inner: Arc<Inner>,
}

/// The handles behind [`Admin`].
pub struct Inner {
    /// Canonical HERMES_HOME.
    pub home: PathBuf,
    /// Where the sockets are.
    pub runtime_dir: PathBuf,
    /// Files and folders.
    pub paths: crate::paths::Paths,
    /// Where environments of servers come from.
    pub base: watch::Receiver<Arc<crate::server::base_env::BaseEnv>>,
    /// Start of the daemon.
    pub started: Instant,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// The servers that are run.
    pub servers: watch::Receiver<Arc<Servers>>,
    /// What clients see.
    pub catalog: watch::Receiver<Arc<Catalog>>,
    /// Who is connected.
    pub clients: Clients,
    /// The road of a call.
    pub calls: Arc<CallPath>,
    /// hermesd.db.
    pub store: Store,
    /// The watcher of state.db.
    pub watch: Watch,
    /// Everything counted.
    pub metrics: Metrics,
    /// The HTTP listener.
    pub http: watch::Receiver<crate::http::keeper::Status>,
    /// Figures by server and tool.
    pub stats: Stats,
    /// To be raised when pins were approved.
    pub pins_approved: watch::Sender<u64>,
    /// Reads the configuration again.
    pub reloader: Reloader,
    /// Log files.
    pub logs: ServerLogs,
    /// What supervisors share, to test a server with the code that runs them.
    pub test: supervisor::Shared,
    /// Logins of remote servers.
    pub oauth: Oauth,
    /// Takes over secrets of an entry that is tried.
    pub masking: Masking,
    /// Masks secrets.
    pub mask: Arc<dyn Fn(&str) -> String + Send + Sync>,
    /// Ends the daemon.
    pub shutdown: CancellationToken,
}

type Answer<T> = Result<Response<T>, Status>;

impl Inner {
    fn check_home(&self, home: &str) -> Result<(), Status> {
        if home.is_empty() || std::path::Path::new(home) == self.home {
            return Ok(());
        }
        let text = format!(
            "this daemon serves {}, the command was for {home}\nhint: pass --home or set HERMES_HOME",
            self.home.display()
        );
        Err(Status::failed_precondition(text))
    }

    /// What `profile` shows; empty is the default one.
    pub(super) fn view(&self, profile: &str) -> Result<Arc<View>, Status> {
        let catalog = self.catalog.borrow();
        let name = ProfileName::new(if profile.is_empty() { "default" } else { profile });
        if catalog.has_profile(&name) {
            return Ok(catalog.view(&name, Only::All));
        }
        let names: Vec<&str> = catalog.profile_names().map(ProfileName::as_str).collect();
        let text = format!("no profile `{profile}` in config.yaml\nhint: there are: {}", names.join(", "));
        Err(Status::not_found(text))
    }

    pub(super) fn mask(&self) -> Mask<'_> {
        &*self.mask
    }

    pub(super) fn handle(&self, name: &str) -> Result<ServerHandle, Status> {
        if let Some(handle) = self.servers.borrow().get(name) {
            return Ok(handle.clone());
        }
        let config = self.config.borrow();
        Err(match config.servers.get(name) {
            Some(ServerEntry::Disabled(_)) => Status::failed_precondition(format!(
                "server `{name}` is disabled\nhint: set `enabled: true` in {}",
                config.file.display()
            )),
            Some(ServerEntry::Refused { reason }) => Status::failed_precondition(format!(
                "server `{name}` is refused: {}\nhint: `hermesctl config check` shows where",
                self.mask()(reason)
            )),
            Some(ServerEntry::Enabled(_)) => Status::failed_precondition(format!(
                "server `{name}` is just being set up\nhint: try again in a moment"
            )),
            None => {
                let known: Vec<&str> = config.servers.keys().map(ServerName::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Status::not_found(format!("no server `{name}`\nhint: configured are: {known}"))
            }
        })
    }

    pub(super) fn status_of(&self, handle: &ServerHandle) -> pb::ServerStatus {
        let mut status = convert::server(handle, &self.catalog.borrow(), self.mask());
        status.notes.extend(self.calls.notes(handle.name().as_str()).iter().map(|note| self.mask()(note)));
        status
    }

    pub(super) fn all_servers(&self) -> Vec<pb::ServerStatus> {
        let config = self.config.borrow().clone();
        let servers = self.servers.borrow().clone();
        let entries = config.servers.iter().map(|(name, entry)| match (servers.get(name), entry) {
            (Some(handle), _) => self.status_of(handle),
            (None, ServerEntry::Disabled(server)) => convert::not_run(
                name.as_str(),
                convert::transport(&server.transport),
                pb::Phase::Disabled,
                "enabled: false".to_owned(),
            ),
            (None, ServerEntry::Refused { reason }) => {
                convert::not_run(name.as_str(), "", pb::Phase::Refused, self.mask()(reason))
            }
            (None, ServerEntry::Enabled(server)) => convert::not_run(
                name.as_str(),
                convert::transport(&server.transport),
                pb::Phase::Stopped,
                "not set up yet".to_owned(),
            ),
        });
        entries.collect()
    }

    fn not_ready(&self, error: &NotReady) -> Status {
        let text = self.mask()(&error.to_string());
        // Not `unavailable`: that is what a client sees when the daemon itself is gone.
        let server = error.server();
        Status::failed_precondition(format!(
            "{text}\nhint: `hermesctl servers show {server}` has the details"
        ))
    }
}

fn one_server(status: pb::ServerStatus) -> Response<pb::ServerResponse> {
    Response::new(pb::ServerResponse { server: Some(status) })
}

#[tonic::async_trait]
impl Control for Admin {
    async fn get_status(&self, request: Request<pb::GetStatusRequest>) -> Answer<pb::GetStatusResponse> {
        let inner = &self.inner;
        inner.check_home(&request.get_ref().home)?;
        let mut servers = inner.all_servers();
        if request.get_ref().measure {
            memory::measure(&mut servers).await;
        }
        Ok(Response::new(status::whole(inner, servers)))
    }

    async fn show_server(&self, request: Request<pb::ShowServerRequest>) -> Answer<pb::ShowServerResponse> {
        let request = request.into_inner();
        self.inner.check_home(&request.home)?;
        let handle = self.inner.handle(&request.server)?;
        let mut status = handle.status().borrow().clone();
        if status.report.snapshot().steps.is_empty() {
            // Not started by this daemon yet: say what a start would find.
            status.report = crate::server::diagnose::preview(handle.config(), &self.inner.test).await;
        }
        let log_file = self.inner.logs.path_of(handle.name()).display().to_string();
        Ok(Response::new(pb::ShowServerResponse {
            server: Some(self.inner.status_of(&handle)),
            detail: Some(convert::detail(&status, log_file, self.inner.mask())),
        }))
    }

    async fn list_tools(&self, request: Request<pb::ListToolsRequest>) -> Answer<pb::ListToolsResponse> {
        let request = request.into_inner();
        self.inner.check_home(&request.home)?;
        let view = self.inner.view(&request.profile)?;
        let wanted = |tool: &&Arc<crate::catalog::snapshot::Tool>| {
            request.server.is_empty() || tool.server() == request.server
        };
        let tools = view.tools().iter().filter(wanted).map(|tool| convert::tool(tool)).collect();
        Ok(Response::new(pb::ListToolsResponse { tools }))
    }

    async fn call_tool(&self, request: Request<pb::CallToolRequest>) -> Answer<pb::CallToolResponse> {
        let request = request.into_inner();
        let inner = &self.inner;
        inner.check_home(&request.home)?;
        let view = inner.view(&request.profile)?;
        let name = if request.server.is_empty() {
            request.tool.clone()
        } else if let Some(tool) =
            view.tool_of(&request.server, &request.tool).or_else(|| view.tool(&request.tool))
        {
            tool.name.to_string()
        } else {
            if request.server != "hermes" {
                inner.handle(&request.server)?;
            }
            let text = format!(
                "server `{}` has no visible tool `{}`\nhint: `hermesctl tools --server {}` lists them",
                request.server, request.tool, request.server
            );
            return Err(Status::not_found(text));
        };
        let params = call_params(&name, &request.arguments_json)?;
        let timeout = (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms));
        let read = crate::call::route::read(&params);
        let request = read.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let call = ToolCall { timeout, ..ToolCall::of(request) };
        let identity = Arc::new(admin_identity(&view));
        let caller =
            Caller { client: crate::call::ADMIN, identity, view, peer: None, hearer: None, inbox: None };
        let started = Instant::now();
        let reply = crate::call::run_call(&inner.calls, &caller, call, &|_| {}).await;
        let micros = convert::micros(started.elapsed());
        Ok(Response::new(match reply {
            Reply::Result(result) => pb::CallToolResponse {
                is_error: crate::call::result::is_error(&result),
                result_json: result.get().to_owned(),
                error_json: String::new(),
                micros,
            },
            Reply::Error(error) => pb::CallToolResponse {
                is_error: true,
                result_json: String::new(),
                error_json: error.get().to_owned(),
                micros,
            },
        }))
    }

    async fn start_server(&self, request: Request<pb::ServerRequest>) -> Answer<pb::ServerResponse> {
        let request = request.into_inner();
        self.inner.check_home(&request.home)?;
        let handle = self.inner.handle(&request.server)?;
        handle.start(Instant::now() + START_WAIT).await.map_err(|error| self.inner.not_ready(&error))?;
        Ok(one_server(self.inner.status_of(&handle)))
    }

    async fn stop_server(&self, request: Request<pb::ServerRequest>) -> Answer<pb::ServerResponse> {
        let request = request.into_inner();
        self.inner.check_home(&request.home)?;
        let handle = self.inner.handle(&request.server)?;
        handle.stop(StopReason::Operator).await;
        Ok(one_server(self.inner.status_of(&handle)))
    }

    async fn restart_server(&self, request: Request<pb::ServerRequest>) -> Answer<pb::ServerResponse> {
        let request = request.into_inner();
        self.inner.check_home(&request.home)?;
        let handle = self.inner.handle(&request.server)?;
        let restarted = handle.restart(Drain::Now, Instant::now() + START_WAIT).await;
        restarted.map_err(|error| self.inner.not_ready(&error))?;
        Ok(one_server(self.inner.status_of(&handle)))
    }

    async fn test_server(&self, request: Request<pb::TestServerRequest>) -> Answer<pb::TestServerResponse> {
        let request = request.into_inner();
        self.inner.check_home(&request.home)?;
        Ok(Response::new(trial::configured(&self.inner, &request.server).await?))
    }

    async fn try_server(&self, request: Request<pb::TryServerRequest>) -> Answer<pb::TestServerResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        let pid = peer_pid(&request);
        Ok(Response::new(trial::unsaved(&self.inner, request.into_inner(), pid).await?))
    }

    async fn reset_breaker(&self, request: Request<pb::ServerRequest>) -> Answer<pb::ServerResponse> {
        let request = request.into_inner();
        self.inner.check_home(&request.home)?;
        let handle = self.inner.handle(&request.server)?;
        handle.breaker().reset();
        tracing::info!(server = %handle.name(), "breaker closed by an operator");
        Ok(one_server(self.inner.status_of(&handle)))
    }

    type TailLogsStream = Pin<Box<dyn Stream<Item = Result<pb::LogChunk, Status>> + Send>>;

    async fn tail_logs(&self, request: Request<pb::TailLogsRequest>) -> Answer<Self::TailLogsStream> {
        let request = request.into_inner();
        self.inner.check_home(&request.home)?;
        let known = self.inner.config.borrow().servers.contains_key(request.server.as_str());
        if !request.server.is_empty() && !known {
            self.inner.handle(&request.server)?;
        }
        Ok(Response::new(super::diagnose::tail(&self.inner.logs, &request, self.inner.shutdown.clone())))
    }

    async fn reload(&self, request: Request<pb::ReloadRequest>) -> Answer<pb::ReloadResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        let Reloaded { applied, added, removed, changed, unchanged, took, findings } =
            self.inner.reloader.reload().await;
        Ok(Response::new(pb::ReloadResponse {
            applied,
            added,
            removed,
            changed,
            unchanged,
            findings: findings.iter().map(|finding| convert::finding(finding, self.inner.mask())).collect(),
            micros: convert::micros(took),
        }))
    }

    async fn doctor(&self, request: Request<pb::DoctorRequest>) -> Answer<pb::DoctorResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        let findings = super::doctor::doctor(&self.inner).await;
        Ok(Response::new(pb::DoctorResponse { findings }))
    }

    type AuditStream = Pin<Box<dyn Stream<Item = Result<pb::AuditChunk, Status>> + Send>>;

    async fn audit(&self, request: Request<pb::AuditRequest>) -> Answer<Self::AuditStream> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(evidence::audit(&self.inner, request.into_inner()).await?))
    }

    type EventsStream = Pin<Box<dyn Stream<Item = Result<pb::EventsChunk, Status>> + Send>>;

    async fn events(&self, request: Request<pb::EventsRequest>) -> Answer<Self::EventsStream> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(events::stream(&self.inner, request.into_inner()).await?))
    }

    async fn stats(&self, request: Request<pb::StatsRequest>) -> Answer<pb::StatsResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(evidence::stats(&self.inner)))
    }

    async fn metrics(&self, request: Request<pb::MetricsRequest>) -> Answer<pb::MetricsResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(evidence::metrics(&self.inner)))
    }

    async fn list_pins(&self, request: Request<pb::ListPinsRequest>) -> Answer<pb::ListPinsResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(consent::pins(&self.inner, request.get_ref()).await?))
    }

    async fn approve_pins(
        &self,
        request: Request<pb::ApprovePinsRequest>,
    ) -> Answer<pb::ApprovePinsResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(consent::approve_pins(&self.inner, request.get_ref()).await?))
    }

    async fn list_approvals(
        &self,
        request: Request<pb::ListApprovalsRequest>,
    ) -> Answer<pb::ListApprovalsResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(consent::approvals(&self.inner).await))
    }

    async fn respond_approval(
        &self,
        request: Request<pb::RespondApprovalRequest>,
    ) -> Answer<pb::RespondApprovalResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        let pid = peer_pid(&request);
        Ok(Response::new(consent::respond(&self.inner, request.get_ref(), pid).await?))
    }

    async fn revoke_approval(
        &self,
        request: Request<pb::RevokeApprovalRequest>,
    ) -> Answer<pb::RevokeApprovalResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(consent::revoke(&self.inner, request.get_ref().id).await?))
    }

    type LoginStream = login::Events;

    async fn login(&self, request: Request<pb::LoginRequest>) -> Answer<Self::LoginStream> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(login::login(self.inner.clone(), &request.get_ref().server)?))
    }

    async fn finish_login(
        &self,
        request: Request<pb::FinishLoginRequest>,
    ) -> Answer<pb::FinishLoginResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(login::finish(&self.inner, request.get_ref()).await?))
    }

    async fn logout(&self, request: Request<pb::LogoutRequest>) -> Answer<pb::LogoutResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        Ok(Response::new(login::logout(&self.inner, &request.get_ref().server).await?))
    }

    async fn shutdown(&self, request: Request<pb::ShutdownRequest>) -> Answer<pb::ShutdownResponse> {
        self.inner.check_home(&request.get_ref().home)?;
        tracing::info!("shutdown asked for by an operator");
        self.inner.shutdown.cancel();
        Ok(Response::new(pb::ShutdownResponse {}))
    }
}

/// The process at the other end, where the system says.
fn peer_pid<T>(request: &Request<T>) -> Option<u32> {
    let caller = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    caller.and_then(|peer| peer.pid()).and_then(|pid| u32::try_from(pid).ok())
}
