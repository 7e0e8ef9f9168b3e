//! A receiver of OpenTelemetry traces that keeps what it gets, over gRPC or over HTTP.

use hermes_tests::{SOON, wait_some};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Any, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span as Raw;
use prost::Message;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One span as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty: it is a root.
    pub(crate) parent: String,
    /// 1 internal, 2 server, 3 client.
    pub(crate) kind: i32,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// 2: error.
    pub(crate) status: i32,
}

/// How the receiver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Grpc,
    Http,
}

type Requests = Arc<Mutex<Vec<ExportTraceServiceRequest>>>;

/// The receiver; it listens as long as the test process lives.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    requests: Requests,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    pub(crate) fn start(protocol: Protocol) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), protocol)
    }

    pub(crate) fn on(listener: TcpListener, protocol: Protocol) -> Self {
        let receiver =
            Self { address: listener.local_addr().unwrap(), requests: Arc::default(), heads: Arc::default() };
        let (requests, heads) = (receiver.requests.clone(), receiver.heads.clone());
        std::thread::spawn(move || match protocol {
            Protocol::Grpc => serve_grpc(listener, requests),
            Protocol::Http => {
                for stream in listener.incoming().flatten() {
                    let (requests, heads) = (requests.clone(), heads.clone());
                    std::thread::spawn(move || serve_http(stream, &requests, &heads));
                }
            }
        });
        receiver
    }

    /// Every span so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().unwrap();
        let scopes = requests.iter().flat_map(|r| &r.resource_spans).flat_map(|r| &r.scope_spans);
        scopes.flat_map(|scope| &scope.spans).map(span).collect()
    }

    /// The spans of the trace whose request is called `name`; that span is over, and sent, last.
    #[track_caller]
    pub(crate) fn trace_of(&self, name: &str) -> Vec<Span> {
        wait_some(&format!("the trace of {name}"), SOON, || {
            let all = self.spans();
            let trace = all.iter().find(|span| span.name == name)?.trace.clone();
            Some(all.into_iter().filter(|span| span.trace == trace).collect())
        })
    }

    /// What the spans say about the process they come from.
    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        let requests = self.requests.lock().unwrap();
        attributes(&requests[0].resource_spans[0].resource.as_ref().unwrap().attributes)
    }

    /// Everything that arrived, as bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.requests.lock().unwrap().iter().flat_map(Message::encode_to_vec).collect()
    }

    /// Heads of the HTTP requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// The one span called `name`.
#[track_caller]
pub(crate) fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(found.len(), 1, "{name} among {names:?}");
    found[0]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn span(raw: &Raw) -> Span {
    Span {
        name: raw.name.clone(),
        trace: hex(&raw.trace_id),
        id: hex(&raw.span_id),
        parent: hex(&raw.parent_span_id),
        kind: raw.kind,
        attributes: attributes(&raw.attributes),
        start: raw.start_time_unix_nano,
        end: raw.end_time_unix_nano,
        status: raw.status.as_ref().map_or(0, |status| status.code),
    }
}

fn attributes(of: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<Any>| match value.as_ref().and_then(|any| any.value.clone()) {
        Some(AnyValue::StringValue(text)) => text,
        Some(AnyValue::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    of.iter().map(|pair| (pair.key.clone(), text(&pair.value))).collect()
}

struct Kept(Requests);

#[tonic::async_trait]
impl TraceService for Kept {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

fn serve_grpc(listener: TcpListener, requests: Requests) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        listener.set_nonblocking(true).unwrap();
        let incoming = tokio::net::TcpListener::from_std(listener).unwrap();
        let incoming = tonic::transport::server::TcpIncoming::from(incoming);
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(Kept(requests)));
        server.serve_with_incoming(incoming).await.unwrap();
    });
}

/// Answers requests on one connection until the other side closes it.
fn serve_http(stream: TcpStream, requests: &Requests, heads: &Mutex<Vec<String>>) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length =
            head.to_lowercase().lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.expect("the body has a length")];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        heads.lock().unwrap().push(head);
        requests.lock().unwrap().push(ExportTraceServiceRequest::decode(&*body).unwrap());
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
        if writer.write_all(answer).is_err() {
            return;
        }
    }
}
