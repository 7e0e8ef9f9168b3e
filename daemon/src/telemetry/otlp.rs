//! The way to an OpenTelemetry receiver: OTLP over gRPC or over HTTP.
//!
//! Port 4317 without a path is gRPC, everything else is HTTP with protobuf bodies, at `/v1/traces` unless
//! the endpoint has a path of its own. Promise: each attempt ends within [`TIMEOUT`]; redirects are not
//! followed; what the environment says in `OTEL_EXPORTER_OTLP_HEADERS` is sent along. May not touch: the
//! queue of spans.

use super::export::{Connected, Export, Sink};
use super::ids;
use super::traces::{Finished, Kind, Tracer, Value};
use crate::config::{Config, OtlpConfig};
use crate::secret::{KnownSecrets, Secret, value_is_secret};
use crate::tasks::TaskGroup;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use url::{Host, Url};

/// Longest wait for the receiver, repeats included.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Variables whose values the exporter sends as headers: `name=value,name=value`.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// Starts the export; it follows `config` until `tasks` is told to stop.
pub fn start(tracer: Tracer, config: watch::Receiver<Arc<Config>>, tasks: &TaskGroup) {
    let export = Export::new(tracer, config, Arc::new(connect));
    tasks.spawn(export.run(tasks.stop_signal()));
}

/// Notes what the environment has the exporter send as headers, which are mostly keys.
pub fn note_secrets(known: &mut KnownSecrets, env: &dyn Fn(&str) -> Option<String>) {
    for list in HEADERS.iter().filter_map(|name| env(name)) {
        for value in list.split(',').filter_map(|header| Some(header.split_once('=')?.1.trim().to_owned())) {
            // Behind a scheme, as in `Bearer …`, which may be written `Bearer%20…`.
            let bare = value.rsplit([' ', '+']).next().unwrap_or_default();
            let bare = bare.rsplit_once("%20").map_or(bare, |(_, bare)| bare).to_owned();
            for secret in [value, bare].into_iter().filter(|secret| value_is_secret(secret)) {
                known.insert(Secret::new(secret));
            }
        }
    }
}

/// What an endpoint means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// OTLP over gRPC.
    Grpc(Url),
    /// OTLP over HTTP, with the whole address.
    Http(Url),
}

impl Target {
    /// Reads `endpoint`; `None`: it is no http or https URL.
    pub fn of(endpoint: &str) -> Option<Self> {
        let mut url = Url::parse(endpoint).ok()?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return None;
        }
        match (url.path(), url.port()) {
            ("" | "/", Some(4317)) => return Some(Self::Grpc(url)),
            ("" | "/", _) => url.set_path("/v1/traces"),
            _ => {}
        }
        Some(Self::Http(url))
    }
}

/// A connection to one receiver.
#[derive(Debug)]
pub struct Otlp {
    exporter: SpanExporter,
}

impl Sink for Otlp {
    async fn send(&self, batch: Vec<Finished>) -> Result<(), String> {
        let scope = InstrumentationScope::builder("hermesd").with_version(env!("CARGO_PKG_VERSION")).build();
        let batch = batch.into_iter().map(|span| data(span, &scope)).collect();
        self.exporter.export(batch).await.map_err(|error| error.to_string())
    }
}

/// Sets a connection up; nothing is sent yet. Reads the system's certificates, so it blocks. Needs a
/// runtime around it.
///
/// # Errors
/// What cannot be used about the endpoint or the environment.
pub fn connect(config: &OtlpConfig) -> Result<Connected<Otlp>, String> {
    let target = Target::of(&config.endpoint).ok_or("`hermesd.otlp.endpoint` is no http or https URL")?;
    let (built, protocol) = match target {
        Target::Grpc(url) => {
            let mut builder =
                SpanExporter::builder().with_tonic().with_endpoint(url.as_str()).with_timeout(TIMEOUT);
            if url.scheme() == "https" {
                builder = builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
            }
            (builder.build(), "grpc")
        }
        Target::Http(url) => {
            let builder = SpanExporter::builder().with_http().with_http_client(client(&url)?);
            (builder.with_endpoint(url.as_str()).with_timeout(TIMEOUT).build(), "http/protobuf")
        }
    };
    let mut exporter = built.map_err(|error| error.to_string())?;
    exporter.set_resource(&resource());
    Ok(Connected { sink: Otlp { exporter }, protocol })
}

fn client(url: &Url) -> Result<reqwest::Client, String> {
    // Another part of the daemon may have installed it already; both install the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("hermesd/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT);
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if is_local {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|_| "no HTTP client can be set up".to_owned())
}

/// Who exports; the same as long as the daemon runs.
fn resource() -> Resource {
    static INSTANCE: OnceLock<String> = OnceLock::new();
    let instance = INSTANCE.get_or_init(|| format!("{:016x}{:016x}", ids::next(), ids::next()));
    Resource::builder()
        .with_service_name("hermesd")
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance.clone()),
            KeyValue::new("process.pid", i64::from(std::process::id())),
        ])
        .build()
}

fn data(span: Finished, scope: &InstrumentationScope) -> SpanData {
    let trace = TraceId::from(span.trace);
    let mut attributes: Vec<KeyValue> = span.attributes.into_iter().map(attribute).collect();
    if let Some(error) = &span.error {
        attributes.push(KeyValue::new("error.type", error.clone()));
    }
    SpanData {
        span_context: SpanContext::new(
            trace,
            SpanId::from(span.id),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        ),
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: span.parent_is_remote,
        span_kind: match span.kind {
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
            Kind::Internal => SpanKind::Internal,
        },
        name: span.name,
        start_time: span.start,
        end_time: span.end,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}

fn attribute((key, value): (&'static str, Value)) -> KeyValue {
    match value {
        Value::Text(text) => KeyValue::new(key, text),
        Value::Number(number) => KeyValue::new(key, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_and_the_path_say_what_is_spoken() {
        let http = |url: &str| Some(Target::Http(Url::parse(url).unwrap()));
        let grpc = |url: &str| Some(Target::Grpc(Url::parse(url).unwrap()));
        for (endpoint, target) in [
            ("http://h:4317", grpc("http://h:4317")),
            ("https://h:4317/", grpc("https://h:4317")),
            ("http://h:4318", http("http://h:4318/v1/traces")),
            ("http://h:4317/v1/traces", http("http://h:4317/v1/traces")),
            ("https://h", http("https://h/v1/traces")),
            ("https://h/otlp/v1/traces", http("https://h/otlp/v1/traces")),
            ("ftp://h:4317", None),
            ("h:4317", None),
        ] {
            assert_eq!(Target::of(endpoint), target, "{endpoint}");
        }
    }

    #[test]
    fn headers_of_the_environment_are_secrets() {
        let mut known = KnownSecrets::default();
        let env = |name: &str| {
            (name == HEADERS[0])
                .then(|| "authorization=Bearer%20abcdefgh1, x-team = key-12345678 ,n=1".to_owned())
        };
        note_secrets(&mut known, &env);
        let known: Vec<String> = known.longest_first().iter().map(|s| s.expose().to_owned()).collect();
        assert_eq!(known, ["Bearer%20abcdefgh1", "key-12345678", "abcdefgh1"]);
    }
}
