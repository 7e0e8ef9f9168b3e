//! The admin commands as a person or script meets them, against a scripted control server.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use hermes_proto::control as pb;
use hermes_proto::control::control_server::{Control, ControlServer};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

/// Answers each rpc with what the test needs; `home` must be right everywhere.
struct Scripted {
    home: String,
}

impl Scripted {
    fn checked(&self, home: &str) -> Result<(), Status> {
        if home == self.home {
            return Ok(());
        }
        let text = format!("this hermesd serves {}, not {home}\nhint: pass --home", self.home);
        Err(Status::failed_precondition(text))
    }

    fn server(&self, request: Request<pb::ServerRequest>, phase: pb::Phase) -> Answer<pb::ServerResponse> {
        let request = request.into_inner();
        self.checked(&request.home)?;
        if request.server == "broken" {
            let text = "server `broken` is parked: exit code 127\nhint: `hermesctl servers show broken`";
            return Err(Status::unavailable(text));
        }
        if request.server != "fs" {
            let text = format!("no server `{}`\nhint: `hermesctl servers` lists them", request.server);
            return Err(Status::not_found(text));
        }
        Ok(Response::new(pb::ServerResponse { server: Some(server(phase)) }))
    }
}

fn server(phase: pb::Phase) -> pb::ServerStatus {
    pb::ServerStatus {
        name: "fs".into(),
        phase: phase.into(),
        reason: if phase == pb::Phase::Parked { "exit code 127" } else { "" }.into(),
        tools: 3,
        uptime_ms: 65_000,
        transport: "stdio".into(),
        ..Default::default()
    }
}

#[tonic::async_trait]
impl Control for Scripted {
    async fn get_status(&self, request: Request<pb::GetStatusRequest>) -> Answer<pb::GetStatusResponse> {
        self.checked(&request.get_ref().home)?;
        Ok(Response::new(pb::GetStatusResponse {
            version: "0.1.0".into(),
            pid: 7,
            home: self.home.clone(),
            config_state: "ok".into(),
            servers: vec![server(pb::Phase::Parked)],
            ..Default::default()
        }))
    }
    async fn show_server(&self, request: Request<pb::ShowServerRequest>) -> Answer<pb::ShowServerResponse> {
        self.checked(&request.get_ref().home)?;
        let detail =
            pb::ServerDetail { command: "/bin/fs".into(), exit_code: Some(127), ..Default::default() };
        Ok(Response::new(pb::ShowServerResponse {
            server: Some(server(pb::Phase::Parked)),
            detail: Some(detail),
        }))
    }
    async fn list_tools(&self, request: Request<pb::ListToolsRequest>) -> Answer<pb::ListToolsResponse> {
        self.checked(&request.get_ref().home)?;
        let tool = pb::Tool {
            name: "mcp_fs_read".into(),
            server: request.into_inner().server,
            description: "Reads.\u{1b}[2J".into(),
            input_schema_json: r#"{"type":"object"}"#.into(),
            ..Default::default()
        };
        Ok(Response::new(pb::ListToolsResponse { tools: vec![tool] }))
    }
    async fn call_tool(&self, request: Request<pb::CallToolRequest>) -> Answer<pb::CallToolResponse> {
        let call = request.into_inner();
        self.checked(&call.home)?;
        let heard = format!("{}/{} {}", call.server, call.tool, call.arguments_json);
        let text = serde_json::json!({ "content": [{ "type": "text", "text": heard }], "big": 1e30 });
        Ok(Response::new(pb::CallToolResponse {
            result_json: text.to_string(),
            is_error: call.tool == "fails",
            error_json: if call.tool == "missing" { r#"{"code":-32602,"message":"no tool"}"# } else { "" }
                .into(),
            micros: 5,
        }))
    }
    async fn start_server(&self, request: Request<pb::ServerRequest>) -> Answer<pb::ServerResponse> {
        self.server(request, pb::Phase::Parked)
    }
    async fn stop_server(&self, request: Request<pb::ServerRequest>) -> Answer<pb::ServerResponse> {
        self.server(request, pb::Phase::Stopped)
    }
    async fn restart_server(&self, request: Request<pb::ServerRequest>) -> Answer<pb::ServerResponse> {
        self.server(request, pb::Phase::Ready)
    }
    async fn reset_breaker(&self, request: Request<pb::ServerRequest>) -> Answer<pb::ServerResponse> {
        self.server(request, pb::Phase::Ready)
    }
    async fn test_server(&self, request: Request<pb::TestServerRequest>) -> Answer<pb::TestServerResponse> {
        self.checked(&request.get_ref().home)?;
        let message = "ended before `initialize`".to_owned();
        Ok(Response::new(pb::TestServerResponse { ok: false, message, ..Default::default() }))
    }
    async fn try_server(&self, request: Request<pb::TryServerRequest>) -> Answer<pb::TestServerResponse> {
        self.checked(&request.get_ref().home)?;
        Ok(Response::new(pb::TestServerResponse::default()))
    }
    type TailLogsStream = tokio_stream::Iter<std::vec::IntoIter<Result<pb::LogChunk, Status>>>;
    async fn tail_logs(&self, request: Request<pb::TailLogsRequest>) -> Answer<Self::TailLogsStream> {
        self.checked(&request.get_ref().home)?;
        let lines = (0..request.get_ref().lines).map(|n| format!("line {n}\u{7}")).collect();
        Ok(Response::new(tokio_stream::iter(vec![Ok(pb::LogChunk { lines })])))
    }
    async fn reload(&self, request: Request<pb::ReloadRequest>) -> Answer<pb::ReloadResponse> {
        self.checked(&request.get_ref().home)?;
        Ok(Response::new(pb::ReloadResponse { applied: false, ..Default::default() }))
    }
    async fn doctor(&self, request: Request<pb::DoctorRequest>) -> Answer<pb::DoctorResponse> {
        self.checked(&request.get_ref().home)?;
        Ok(Response::new(pb::DoctorResponse { findings: Vec::new() }))
    }
    type EventsStream = tokio_stream::Iter<std::vec::IntoIter<Result<pb::EventsChunk, Status>>>;
    async fn events(&self, request: Request<pb::EventsRequest>) -> Answer<Self::EventsStream> {
        self.checked(&request.get_ref().home)?;
        let event = |cursor| pb::Event {
            cursor,
            at_ms: 1,
            kind: "message".into(),
            session_key: "k".into(),
            body_json: r#"{"type":"message","session_key":"k","role":"user","content":"hi\u001b[2J"}"#.into(),
        };
        let after = request.into_inner().after_cursor;
        let chunk =
            pb::EventsChunk { events: vec![event(8), event(9)], gap: after.is_some(), ..Default::default() };
        Ok(Response::new(tokio_stream::iter(vec![Ok(chunk)])))
    }
    type AuditStream = tokio_stream::Iter<std::vec::IntoIter<Result<pb::AuditChunk, Status>>>;

    async fn audit(&self, _request: Request<pb::AuditRequest>) -> Answer<Self::AuditStream> {
        Err(Status::unimplemented("audit"))
    }
    async fn stats(&self, _request: Request<pb::StatsRequest>) -> Answer<pb::StatsResponse> {
        Err(Status::unimplemented("stats"))
    }
    async fn metrics(&self, _request: Request<pb::MetricsRequest>) -> Answer<pb::MetricsResponse> {
        Err(Status::unimplemented("metrics"))
    }
    async fn list_pins(&self, _request: Request<pb::ListPinsRequest>) -> Answer<pb::ListPinsResponse> {
        Err(Status::unimplemented("pins"))
    }
    async fn approve_pins(
        &self,
        _request: Request<pb::ApprovePinsRequest>,
    ) -> Answer<pb::ApprovePinsResponse> {
        Err(Status::unimplemented("pins"))
    }
    async fn list_approvals(
        &self,
        _request: Request<pb::ListApprovalsRequest>,
    ) -> Answer<pb::ListApprovalsResponse> {
        Err(Status::unimplemented("approvals"))
    }
    async fn respond_approval(
        &self,
        _request: Request<pb::RespondApprovalRequest>,
    ) -> Answer<pb::RespondApprovalResponse> {
        Err(Status::unimplemented("approvals"))
    }
    async fn revoke_approval(
        &self,
        _request: Request<pb::RevokeApprovalRequest>,
    ) -> Answer<pb::RevokeApprovalResponse> {
        Err(Status::unimplemented("approvals"))
    }
    type LoginStream = tokio_stream::Empty<Result<pb::LoginEvent, Status>>;
    async fn login(&self, _request: Request<pb::LoginRequest>) -> Answer<Self::LoginStream> {
        Err(Status::unimplemented("logins"))
    }
    async fn finish_login(
        &self,
        _request: Request<pb::FinishLoginRequest>,
    ) -> Answer<pb::FinishLoginResponse> {
        Err(Status::unimplemented("logins"))
    }
    async fn logout(&self, _request: Request<pb::LogoutRequest>) -> Answer<pb::LogoutResponse> {
        Err(Status::unimplemented("logins"))
    }
    async fn shutdown(&self, _request: Request<pb::ShutdownRequest>) -> Answer<pb::ShutdownResponse> {
        Err(Status::unimplemented("not in this script"))
    }
}

struct Daemon {
    dir: tempfile::TempDir,
}

impl Daemon {
    /// A control server of its own home, until the test process ends.
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Self { dir };
        fs::DirBuilder::new().mode(0o700).create(daemon.run_dir()).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(daemon.run_dir().join("control.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let home = daemon.dir.path().canonicalize().unwrap().join("home").to_str().unwrap().to_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming = UnixListenerStream::new(tokio::net::UnixListener::from_std(listener).unwrap());
                let service = ControlServer::new(Scripted { home });
                tonic::transport::Server::builder()
                    .add_service(service)
                    .serve_with_incoming(incoming)
                    .await
                    .unwrap();
            });
        });
        daemon
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    fn ctl(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermesctl"));
        command.args(args).arg("--home").arg(self.dir.path().join("home"));
        command.env("HERMESD_RUNTIME_DIR", self.run_dir());
        command.output().unwrap()
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn status_names_what_is_wrong_and_check_fails_on_it() {
    let daemon = Daemon::start();
    let shown = daemon.ctl(&["status"]);
    assert_eq!(shown.status.code(), Some(0), "{}", err(&shown));
    assert!(out(&shown).contains("parked") && out(&shown).contains("exit code 127"), "{}", out(&shown));
    let checked = daemon.ctl(&["status", "--check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert_eq!(out(&checked), "server `fs` is parked (exit code 127)\n");
    let json: serde_json::Value = serde_json::from_str(&out(&daemon.ctl(&["status", "--json"]))).unwrap();
    assert_eq!(json["servers"][0]["phase"], "parked");
}

#[test]
fn a_refusal_has_the_daemons_words_and_hint_and_code_one() {
    let daemon = Daemon::start();
    let refused = daemon.ctl(&["servers", "stop", "nope"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(err(&refused), "error: no server `nope`\nhint: `hermesctl servers` lists them\n");
    assert_eq!(out(&refused), "");
}

/// Whatever code the daemon chose for it: a server that fails is no daemon that is away.
#[test]
fn a_server_that_cannot_start_is_not_a_missing_daemon() {
    let daemon = Daemon::start();
    let failed = daemon.ctl(&["servers", "start", "broken"]);
    assert_eq!(failed.status.code(), Some(1));
    let said = "error: server `broken` is parked: exit code 127\nhint: `hermesctl servers show broken`\n";
    assert_eq!(err(&failed), said);
}

/// A daemon that stands still is named with its pid, and nobody waits for the end of its work.
#[test]
fn a_frozen_daemon_is_given_up_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap().join("home");
    let run = dir.path().canonicalize().unwrap().join("run");
    fs::DirBuilder::new().mode(0o700).create(&run).unwrap();
    fs::create_dir_all(home.join("hermesd")).unwrap();
    let said = serde_json::json!({ "dir": run, "pid": 4_000_123, "started": 1, "version": "0" });
    fs::write(home.join("hermesd/endpoint.json"), said.to_string()).unwrap();
    // The kernel accepts for it; nobody ever reads.
    let _frozen = std::os::unix::net::UnixListener::bind(run.join("control.sock")).unwrap();
    let ctl = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermesctl"));
        command.args(args).arg("--home").arg(&home).env("HERMESD_RUNTIME_DIR", &run);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let verbs: [&[&str]; 4] =
        [&["status"], &["mcp", "test", "fs"], &["servers", "restart", "fs"], &["call", "fs", "read"]];
    for child in verbs.map(ctl) {
        let output = child.wait_with_output().unwrap();
        let text = err(&output);
        assert!(
            text.starts_with("error: hermesd (pid 4000123) accepts connections but does not answer"),
            "{text}"
        );
        assert!(text.contains("`kill -9 4000123`"), "{text}");
        assert_eq!(output.status.code(), Some(3));
    }
}

#[test]
fn the_exit_code_says_whether_a_server_is_where_it_should_be() {
    let daemon = Daemon::start();
    assert_eq!(daemon.ctl(&["servers", "start", "fs"]).status.code(), Some(1));
    assert_eq!(daemon.ctl(&["servers", "stop", "fs"]).status.code(), Some(0));
    assert_eq!(daemon.ctl(&["servers", "restart", "fs"]).status.code(), Some(0));
    assert_eq!(daemon.ctl(&["breaker", "reset", "fs"]).status.code(), Some(0));
    assert_eq!(daemon.ctl(&["mcp", "test", "fs"]).status.code(), Some(1));
    assert_eq!(daemon.ctl(&["reload"]).status.code(), Some(1));
    assert_eq!(daemon.ctl(&["doctor"]).status.code(), Some(0));
}

#[test]
fn a_call_prints_its_text_or_the_whole_result() {
    let daemon = Daemon::start();
    let called = daemon.ctl(&["call", "fs", "read", r#"{"a":1}"#]);
    assert_eq!(out(&called), "fs/read {\"a\":1}\n", "{}", err(&called));
    assert_eq!(out(&daemon.ctl(&["call", "mcp_fs_read"])), "/mcp_fs_read \n");
    assert_eq!(daemon.ctl(&["call", "fs", "fails"]).status.code(), Some(1));
    let missing = daemon.ctl(&["call", "missing"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).starts_with("error: no tool (code -32602)\nhint: "), "{}", err(&missing));
    assert_eq!(daemon.ctl(&["call", "fs", "read", "{"]).status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_str(&out(&daemon.ctl(&["call", "x", "--json"]))).unwrap();
    assert_eq!(json["big"].to_string(), "1e+30");
}

#[test]
fn lists_and_logs_are_plain_when_piped_and_escape_what_servers_wrote() {
    let daemon = Daemon::start();
    let tools = out(&daemon.ctl(&["tools", "--server", "fs"]));
    assert!(tools.starts_with("TOOL") && tools.contains("Reads.\\u{1b}[2J"), "{tools}");
    assert_eq!(out(&daemon.ctl(&["logs", "fs", "-n", "2"])), "line 0\\u{7}\nline 1\\u{7}\n");
    let shown = out(&daemon.ctl(&["servers", "show", "fs"]));
    assert!(shown.contains("last exit    code 127"), "{shown}");
    let listed = out(&daemon.ctl(&["mcp"]));
    assert!(listed.starts_with("SERVER"), "{listed}");
}

#[test]
fn a_daemon_of_another_home_refuses_and_both_are_named() {
    let daemon = Daemon::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hermesctl"));
    command.args(["status", "--home", "/nonexistent/other"]).env("HERMESD_RUNTIME_DIR", daemon.run_dir());
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("not /nonexistent/other\nhint: pass --home"), "{}", err(&refused));
}

#[test]
fn without_a_daemon_the_code_is_three_and_the_hint_says_how_to_start_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hermesctl"));
    command.arg("status").env("HERMESD_RUNTIME_DIR", dir.path()).env("HERMES_HOME", dir.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = err(&output);
    assert!(text.starts_with("error: cannot reach hermesd at "), "{text}");
    assert!(text.ends_with("hint: start it with `hermesctl daemon start`\n"), "{text}");
}

#[test]
fn events_are_lines_for_people_and_objects_for_programs() {
    let daemon = Daemon::start();
    let text = out(&daemon.ctl(&["events"]));
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("  8  message  k  user: hi") && !text.contains('\u{1b}'), "{text}");
    let json = out(&daemon.ctl(&["events", "--since", "3", "--json"]));
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["gap"], true, "what is not kept any more is said first");
    assert_eq!((&lines[2]["cursor"], &lines[2]["role"]), (&9.into(), &"user".into()));
}
