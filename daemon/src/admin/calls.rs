//! A call of an operator: who makes it, and its parameters.

use crate::jsonrpc::splice::{ObjectWriter, one_line};
use serde_json::value::RawValue;
use tonic::Status;

/// Admin commands are this user's own (control.sock checks it); which process asked is not kept.
pub(super) fn admin_identity(view: &crate::catalog::snapshot::View) -> crate::store::Caller {
    crate::store::Caller {
        uid: Some(rustix::process::getuid().as_raw()),
        pid: None,
        executable: None,
        profile: view.profile().clone(),
        name: Some("hermesctl".to_owned()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
    }
}

/// What `tools/call` takes; the arguments stay as they were typed, but on one line.
pub(super) fn call_params(name: &str, arguments: &str) -> Result<Box<RawValue>, Status> {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments.trim() };
    let parsed: Result<&RawValue, _> = serde_json::from_str(arguments);
    match parsed {
        Ok(raw) if raw.get().starts_with('{') => {
            let mut params = ObjectWriter::default();
            params.string("name", name).member("arguments", &one_line(raw.get()));
            Ok(params.finish())
        }
        Ok(_) => Err(Status::invalid_argument(
            "arguments must be a JSON object\nhint: e.g. '{\"path\": \"/tmp\"}'",
        )),
        Err(error) => Err(Status::invalid_argument(format!("arguments are no JSON: {error}"))),
    }
}
