//! Listens on control.sock: the control service and grpc.health.v1.

use super::peer;
use super::service::Admin;
use hermes_proto::control::control_server::ControlServer;
use tokio::net::UnixListener;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;

/// Largest message either way; a tool result may have 32 MiB.
pub const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// Serves until `stop`, then lets the rpcs under way end.
///
/// # Errors
/// When the transport fails for good.
pub async fn serve(
    listener: UnixListener,
    admin: Admin,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ControlServer<Admin>>().await;
    let control = ControlServer::new(admin)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    tonic::transport::Server::builder()
        .add_service(health_service)
        .add_service(control)
        .serve_with_incoming_shutdown(incoming(listener), stop.cancelled_owned())
        .await
}

fn incoming(listener: UnixListener) -> impl Stream<Item = std::io::Result<tokio::net::UnixStream>> {
    futures_util::stream::unfold(listener, |listener| async move {
        let accepted = peer::accept(&listener).await;
        if accepted.is_err() {
            // Out of descriptors: give the others time to end.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        Some((accepted, listener))
    })
}
