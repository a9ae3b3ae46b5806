//! Bodies of requests that are objects.

use crate::{call::Call, negotiate, read};
use freehold_apiserver_registry::{Body, Operation, heavy};
use freehold_machinery::Status;
use hyper::body::Incoming;

/// Reads a body that is an object of the kind that the resource, or subresource, speaks.
pub(crate) async fn object_body(call: &Call<'_>, op: &Operation, body: Incoming) -> Result<Body, Status> {
    let format = negotiate::body_format(&call.parts.headers)?;
    let bytes = read::whole(body, call.edge.limits.body).await?;
    let kind = match op.subresource.as_deref().and_then(|name| op.ty.subresource(name)) {
        Some(sub) => &sub.kind.kind,
        None => &op.ty.kind,
    };
    let unrecognized = |why: String| Status::bad_request(read::unrecognized(kind, &why, &bytes));
    let mut body = heavy(bytes.len(), || read::object(&bytes, format)).map_err(unrecognized)?;
    if format == negotiate::Format::Json {
        body.written = bytes.clone();
    }
    if call.info.verb == "create" {
        call.recording.made(&call.asked(), &body.value).await;
    }
    call.recording.request(&body.value, bytes.len());
    if op.ty.custom && op.subresource.as_deref() != Some("scale") {
        for (field, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
            if body.value[field].as_str().unwrap_or_default().is_empty() {
                return Err(unrecognized(format!(
                    "Object '{name}' is missing in '{}'",
                    String::from_utf8_lossy(&bytes)
                )));
            }
        }
    }
    Ok(body)
}
