//! Answers with an `ETag`.

use crate::{call::Call, respond::Reply};
use freehold_apiserver_transport::payload::Payload;
use freehold_machinery::Status;
use http::{HeaderValue, header};

/// An answer with an `ETag`; 304 for who has it already.
pub(crate) async fn tagged(
    call: &Call<'_>,
    tag: &str,
    made: impl Future<Output = Result<Reply, Status>>,
) -> Result<Reply, Status> {
    let known = call.parts.headers.get_all(header::IF_NONE_MATCH).into_iter().filter_map(|v| v.to_str().ok());
    let has = known
        .flat_map(|v| v.split(','))
        .any(|t| matches!(t.trim().trim_start_matches("W/"), t if t == tag || t == "*"));
    let mut reply = if has { http::Response::new(Payload::empty()) } else { made.await? };
    if has {
        *reply.status_mut() = http::StatusCode::NOT_MODIFIED;
    }
    let tag = HeaderValue::from_str(tag).map_err(Status::internal)?;
    reply.headers_mut().insert(header::ETAG, tag);
    reply.headers_mut().append(header::VARY, HeaderValue::from_static("Accept"));
    Ok(reply)
}
