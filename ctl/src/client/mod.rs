//! The only user of the gRPC stub: verbs in, answers or a [`Failure`] out.
//!
//! Promise: each request names the home; a refusal arrives with the daemon's own words and hint; a
//! daemon that is not there is told from one that refuses, and from one that is there and silent:
//! however long a verb may take, a daemon that does not react for 15 s is given up.

mod evidence;
mod login;

pub use evidence::{Audit, Which};
pub use login::Login;

use crate::config_edit::dotenv::Variable;
use crate::failure::Failure;
use hermes_proto::control as pb;
use hermes_proto::control::control_client::ControlClient;
use hermes_proto::endpoint::{self, Endpoint as Sockets, EndpointFile, Home};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

/// Largest answer: a result may be as long as the longest MCP line, and JSON text may grow.
const MAX_MESSAGE: usize = 128 * 1024 * 1024;
/// How long an answer may take that the daemon has at hand.
const AT_HAND: Duration = Duration::from_secs(10);
/// How long an answer may take that starts, stops or connects something: above every budget of the daemon.
const WORK: Duration = Duration::from_secs(15 * 60);
/// How often a daemon that is at work is asked for a sign of life, and how long that may take.
/// Answered by its connection, not by the work, so that only a daemon that stands still misses it.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(5);
const SIGN_OF_LIFE_WITHIN: Duration = Duration::from_secs(10);

/// The daemon at the other end, as far as it said in `endpoint.json` who it is.
#[derive(Debug, Clone, Copy)]
struct Peer {
    pid: Option<u32>,
}

impl Peer {
    /// The kernel's word would name the service manager where that made the socket.
    fn at(sockets: &Sockets, home: &Home) -> Self {
        let file = EndpointFile::read(home).filter(|file| file.dir == sockets.dir);
        Self { pid: file.map(|file| file.pid) }
    }
}

/// A connection to the daemon of one home.
#[derive(Debug)]
pub struct Client {
    stub: ControlClient<Channel>,
    home: String,
    peer: Peer,
}

fn timed<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

impl Client {
    /// Connects to the daemon of `home`.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] when nobody listens, naming the first place that was tried;
    /// [`Failure::Refused`] when no place for the sockets can be used.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(home: &Home) -> Result<Self, Failure> {
        let candidates = endpoint::candidates(home, &|name| std::env::var_os(name))
            .map_err(|error| Failure::refused(error.to_string()))?;
        let mut first = None;
        for candidate in candidates {
            let path = candidate.control_socket();
            let tried = match UnixStream::connect(&path).await {
                Ok(stream) => match endpoint::private(&candidate.dir) {
                    Ok(()) => {
                        return Self::over(stream, home.path(), &path, Peer::at(&candidate, home)).await;
                    }
                    Err(error) => return Err(Failure::refused(error.to_string())),
                },
                Err(error) => unreachable(&path, &error.to_string()),
            };
            first = first.or(Some(tried));
        }
        Err(first.expect("candidates are never empty"))
    }

    async fn over(stream: UnixStream, home: &Path, path: &Path, peer: Peer) -> Result<Self, Failure> {
        let mut stream = Some(stream);
        let connector = tower::service_fn(move |_| {
            // One connection for one command: tonic asks again only after it was lost.
            let stream = stream.take().map(TokioIo::new);
            async { stream.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected)) }
        });
        let channel = Endpoint::from_static("http://hermesd")
            .http2_keep_alive_interval(SIGN_OF_LIFE_EVERY)
            .keep_alive_timeout(SIGN_OF_LIFE_WITHIN)
            .connect_with_connector(connector)
            .await
            .map_err(|error| unreachable(path, &error.to_string()))?;
        let stub = ControlClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        Ok(Self { stub, home: home.to_string_lossy().into_owned(), peer })
    }

    /// The daemon and every server at a glance.
    ///
    /// # Errors
    /// As all verbs here: [`Failure::Refused`] in the daemon's words, [`Failure::Unreachable`]
    /// when the connection broke.
    pub async fn status(&mut self) -> Result<pb::GetStatusResponse, Failure> {
        let request = pb::GetStatusRequest { home: self.home.clone(), ..Default::default() };
        answer(self.peer, self.stub.get_status(timed(request, AT_HAND)).await)
    }

    /// As [`status`](Self::status), with the memory of each server's processes.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn measured_status(&mut self) -> Result<pb::GetStatusResponse, Failure> {
        let request = pb::GetStatusRequest { home: self.home.clone(), measure: true };
        answer(self.peer, self.stub.get_status(timed(request, AT_HAND)).await)
    }

    /// One server in full.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn show(&mut self, server: &str) -> Result<pb::ShowServerResponse, Failure> {
        let request = pb::ShowServerRequest { home: self.home.clone(), server: server.to_owned() };
        answer(self.peer, self.stub.show_server(timed(request, AT_HAND)).await)
    }

    /// Starts a server and waits for the outcome.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn start(&mut self, server: &str) -> Result<pb::ServerStatus, Failure> {
        let request = self.server(server);
        server_status(answer(self.peer, self.stub.start_server(request).await))
    }

    /// Stops a server and waits until it is gone.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn stop(&mut self, server: &str) -> Result<pb::ServerStatus, Failure> {
        let request = self.server(server);
        server_status(answer(self.peer, self.stub.stop_server(request).await))
    }

    /// Stops and starts a server.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn restart(&mut self, server: &str) -> Result<pb::ServerStatus, Failure> {
        let request = self.server(server);
        server_status(answer(self.peer, self.stub.restart_server(request).await))
    }

    /// Closes the breaker of a server.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn reset_breaker(&mut self, server: &str) -> Result<pb::ServerStatus, Failure> {
        let request = self.server(server);
        server_status(answer(self.peer, self.stub.reset_breaker(request).await))
    }

    /// Connects to a server and reports each step.
    ///
    /// # Errors
    /// As [`status`](Self::status). A server that cannot be reached is an answer, not an error.
    pub async fn test(&mut self, server: &str) -> Result<pb::TestServerResponse, Failure> {
        let request = pb::TestServerRequest { home: self.home.clone(), server: server.to_owned() };
        answer(self.peer, self.stub.test_server(timed(request, WORK)).await)
    }

    /// Connects to a server that is in no file yet: `entry` is its YAML, `variables` what .env would have.
    ///
    /// # Errors
    /// As [`status`](Self::status). A server that cannot be reached is an answer, not an error.
    pub async fn try_server(
        &mut self,
        server: &str,
        entry: &str,
        variables: &[Variable],
    ) -> Result<pb::TestServerResponse, Failure> {
        let request = pb::TryServerRequest {
            home: self.home.clone(),
            server: server.to_owned(),
            entry_yaml: entry.to_owned(),
            variables: variables.iter().map(|v| (v.name.clone(), v.value.clone())).collect(),
        };
        answer(self.peer, self.stub.try_server(timed(request, WORK)).await)
    }

    /// The exposed tools; empty strings mean no filter and the default profile.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn tools(&mut self, server: &str, profile: &str) -> Result<Vec<pb::Tool>, Failure> {
        let request = pb::ListToolsRequest {
            home: self.home.clone(),
            server: server.to_owned(),
            profile: profile.to_owned(),
        };
        Ok(answer(self.peer, self.stub.list_tools(timed(request, AT_HAND)).await)?.tools)
    }

    /// Calls a tool; `call.home` is filled in here.
    ///
    /// # Errors
    /// As [`status`](Self::status). A failed call is an answer, not an error.
    ///
    /// # Cancel safety
    /// Dropping it cancels the call; whether it ran is then unknown.
    pub async fn call(&mut self, call: pb::CallToolRequest) -> Result<pb::CallToolResponse, Failure> {
        let request = pb::CallToolRequest { home: self.home.clone(), ..call };
        // No limit of ours: the daemon ends every call within the server's own.
        answer(self.peer, self.stub.call_tool(Request::new(request)).await)
    }

    /// Log lines, the last `lines` first; with `follow` until the caller goes.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn logs(&mut self, server: &str, lines: u32, follow: Follow) -> Result<Logs, Failure> {
        let request = pb::TailLogsRequest {
            home: self.home.clone(),
            server: server.to_owned(),
            lines,
            follow: follow == Follow::Yes,
        };
        let peer = self.peer;
        Ok(Logs { peer, stream: answer(self.peer, self.stub.tail_logs(Request::new(request)).await)? })
    }

    /// Reads the configuration again.
    ///
    /// # Errors
    /// As [`status`](Self::status). An unusable file is an answer, not an error.
    pub async fn reload(&mut self) -> Result<pb::ReloadResponse, Failure> {
        let request = pb::ReloadRequest { home: self.home.clone() };
        answer(self.peer, self.stub.reload(timed(request, WORK)).await)
    }

    /// Findings about the commonest troubles.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn doctor(&mut self) -> Result<Vec<pb::Finding>, Failure> {
        let request = pb::DoctorRequest { home: self.home.clone() };
        Ok(answer(self.peer, self.stub.doctor(timed(request, WORK)).await)?.findings)
    }

    /// Asks the daemon to end in order; returns before it did.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn shutdown(&mut self) -> Result<(), Failure> {
        let request = pb::ShutdownRequest { home: self.home.clone() };
        answer(self.peer, self.stub.shutdown(timed(request, AT_HAND)).await).map(|_| ())
    }

    fn server(&self, server: &str) -> Request<pb::ServerRequest> {
        timed(pb::ServerRequest { home: self.home.clone(), server: server.to_owned() }, WORK)
    }
}

/// Whether log lines go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Until the caller goes.
    Yes,
    /// What is there now.
    No,
}

/// Log lines as they come.
#[derive(Debug)]
pub struct Logs {
    peer: Peer,
    stream: Streaming<pb::LogChunk>,
}

impl Logs {
    /// The next lines; `None` at the end.
    ///
    /// # Errors
    /// As [`Client::status`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Vec<String>>, Failure> {
        Ok(self
            .stream
            .message()
            .await
            .map_err(|status| failure(self.peer, &status))?
            .map(|chunk| chunk.lines))
    }
}

fn unreachable(path: &Path, why: &str) -> Failure {
    Failure::Unreachable { message: format!("cannot reach hermesd at {}: {why}", path.display()) }
}

fn answer<T>(peer: Peer, answer: Result<tonic::Response<T>, Status>) -> Result<T, Failure> {
    answer.map(tonic::Response::into_inner).map_err(|status| failure(peer, &status))
}

fn server_status(answer: Result<pb::ServerResponse, Failure>) -> Result<pb::ServerStatus, Failure> {
    answer?.server.ok_or_else(|| Failure::refused("hermesd sent no status; is it another version?"))
}

fn failure(peer: Peer, status: &Status) -> Failure {
    match lost(status) {
        Some(Lost::Silent) => silent(peer),
        Some(Lost::Broken(why)) => Failure::Unreachable { message: format!("hermesd went away: {why}") },
        None => refusal(status),
    }
}

/// How a connection failed.
enum Lost {
    /// No sign of life in time.
    Silent,
    /// It broke; in the system's words.
    Broken(String),
}

/// What became of the connection; `None` when the status is an answer of the daemon. Only what
/// was made on this side has a cause: whatever its code, a status from the daemon has none.
fn lost(status: &Status) -> Option<Lost> {
    let mut cause = status.source()?;
    let mut silent = cause.is::<tonic::TimeoutExpired>();
    while let Some(deeper) = cause.source() {
        cause = deeper;
        silent |= cause.is::<tonic::TimeoutExpired>();
    }
    // The type behind it is private to the HTTP library.
    let why = cause.to_string();
    Some(if silent || why.contains("timed out") { Lost::Silent } else { Lost::Broken(why) })
}

fn silent(Peer { pid }: Peer) -> Failure {
    match pid {
        Some(pid) => Failure::Silent {
            message: format!("hermesd (pid {pid}) accepts connections but does not answer"),
            hint: format!(
                "it is stopped (`kill -CONT {pid}`) or stuck: end it with `kill -9 {pid}`, then `hermesctl daemon start`"
            ),
        },
        None => Failure::Silent {
            message: "something accepts connections at the socket of hermesd but does not answer".to_owned(),
            hint: "end that process with `kill -9 PID`, then `hermesctl daemon start`".to_owned(),
        },
    }
}

/// The daemon puts `hint: ...` on a line of its own.
fn refusal(status: &Status) -> Failure {
    let (message, hint) = match status.message().split_once("\nhint: ") {
        Some((message, hint)) => (message, hint),
        None => (status.message(), ""),
    };
    match status.code() {
        Code::DeadlineExceeded | Code::Cancelled if message.is_empty() || message == "Timeout expired" => {
            Failure::Refused {
                message: "hermesd did not answer in time".to_owned(),
                hint: "see `hermesctl logs`".to_owned(),
            }
        }
        Code::Unimplemented => Failure::Refused {
            message: format!("this hermesd does not know the command: {message}"),
            hint: "restart it: hermesd and hermesctl should have the same version".to_owned(),
        },
        code => Failure::Refused {
            message: if message.is_empty() { code.to_string() } else { message.to_owned() },
            hint: hint.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { pid: Some(7) };

    #[test]
    fn the_daemons_words_and_hint_arrive_apart_whatever_the_code() {
        for code in [Code::FailedPrecondition, Code::Unavailable, Code::Internal, Code::Unknown] {
            let status = Status::new(code, "no server `x`\nhint: see `hermesctl servers`");
            let failure = failure(PEER, &status);
            assert_eq!(
                (failure.to_string().as_str(), failure.hint(), failure.code()),
                ("no server `x`", "see `hermesctl servers`", 1)
            );
        }
    }

    #[test]
    fn a_broken_connection_is_told_from_a_refusal_and_from_silence() {
        let broken = failure(PEER, &Status::from_error(Box::new(std::io::Error::other("broken pipe"))));
        assert_eq!((broken.to_string().as_str(), broken.code()), ("hermesd went away: broken pipe", 3));
        let silent = failure(PEER, &Status::from_error(Box::new(tonic::TimeoutExpired(()))));
        assert!(silent.to_string().contains("pid 7") && silent.hint().contains("`kill -9 7`"), "{silent}");
        assert_eq!(silent.code(), 3);
    }
}
