//! What is done with planes as a whole: the actions of Freehold's controllers below `/planes/<id>`, and archives.

use crate::{
    backend::{ArchiveStream, PlaneAction},
    call::Call,
    negotiate, proxy,
    respond::{self, Reply},
};
use crate::{info::ARCHIVE, output};
use bytes::Bytes;
use freehold_apiserver_planes::context::Context;
use freehold_apiserver_transport::payload::{BoxError, Payload};
use freehold_machinery::{PlaneId, Status};
use futures_util::{StreamExt, TryStreamExt};
use http::{HeaderValue, Method};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Incoming;
use serde_json::json;
use std::time::Duration;

/// The media type of archives.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/vnd.freehold.archive");

/// Bytes of a refused archive that are read all the same, and for how long.
const DRAINED: usize = 256 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(20);
/// The path at which a plane's pair is asked whether it answers (`GET /planes/<id>/pair`).
const PAIR: &str = "/pair";

/// The action that a request asks for; `None` where it is none.
fn action(call: &Call<'_>) -> Result<Option<(PlaneId, PlaneAction)>, Status> {
    let Context::Plane(plane) = &call.context else { return Ok(None) };
    let segments: Vec<&str> = call.info.path[1..].split('/').collect();
    let text = |key: &str| call.query.text(key).to_owned();
    let action = match (&call.parts.method, &segments[..]) {
        (&Method::PUT, ["layers", layer]) => {
            let revision = call.query.number("revision")?.map(u64::try_from).transpose();
            let revision = revision.map_err(|_| Status::bad_request("revision can't be negative"))?;
            PlaneAction::Snapshot((*layer).to_owned(), revision)
        }
        (&Method::DELETE, ["layers", layer]) => PlaneAction::Release((*layer).to_owned()),
        (&Method::PUT, ["stack"]) => PlaneAction::Switch {
            layer: text("layer"),
            operation: text("operation"),
            is_restore: call.query.text("restore") == "true",
        },
        (&Method::PUT, ["classes", class]) if plane.is_core() => PlaneAction::Class((*class).to_owned()),
        _ => return Ok(None),
    };
    Ok(Some((plane.clone(), action)))
}

/// Answers what is about a plane as a whole; gives the body back where the request is about something else.
pub(crate) async fn serve(call: &Call<'_>, body: Incoming) -> Result<Option<Reply>, Status> {
    let backend = &call.edge.backend;
    let answer = match (&call.parts.method, call.info.path.as_str()) {
        (&Method::GET, ARCHIVE) => {
            let pieces = backend.export(&call.target).await?;
            return Ok(Some(respond::reply(200, MEDIA_TYPE, outgoing(pieces))));
        }
        (&Method::POST, ARCHIVE) => {
            let mut archive = incoming(body);
            let imported = backend.import(&call.target, &mut archive).await;
            if imported.is_err() {
                drain(archive).await;
            }
            imported?
        }
        (&Method::GET, PAIR) if let Context::Plane(plane) = &call.context => {
            let pair = backend.pair(plane).await?;
            proxy::check(call.edge, &pair, &call.user).await?;
            json!({"endpoint": &*pair.endpoint})
        }
        _ => match action(call)? {
            Some((plane, action)) => backend.act_on_plane(&plane, action).await?,
            None => return Ok(None),
        },
    };
    let accepted = negotiate::document(&call.parts.headers, call.query)?;
    crate::output::document(accepted, 200, &answer).map(Some)
}

/// A failure in the middle breaks the answer off, and an archive without its end is refused by who reads it.
fn outgoing(pieces: ArchiveStream) -> Payload {
    let frames = pieces.map_ok(Frame::data).map_err(|status| BoxError::from(status.message));
    Payload::Boxed(StreamBody::new(frames).boxed_unsync())
}

/// Reads the rest of a refused archive for nothing, unless that is far too much or too slow: a client sends all of it before
/// it reads the answer.
async fn drain(mut archive: ArchiveStream) {
    let rest = async {
        let mut left = DRAINED;
        while let (Some(Ok(piece)), true) = (archive.next().await, left > 0) {
            left = left.saturating_sub(piece.len());
        }
    };
    drop(tokio::time::timeout(DRAIN_TIME, rest).await);
}

fn incoming(body: Incoming) -> ArchiveStream {
    let data = |frame: Result<Frame<Bytes>, hyper::Error>| match frame {
        Ok(frame) => frame.into_data().ok().map(Ok),
        Err(error) => Some(Err(Status::bad_request(format!("the body can't be read: {error}")))),
    };
    BodyStream::new(body).filter_map(move |frame| std::future::ready(data(frame))).boxed()
}

/// Deletes a plane: `DELETE` on a context that names one.
pub(crate) async fn delete_plane(
    call: &Call<'_>,
    plane: &freehold_machinery::PlaneId,
) -> Result<Reply, Status> {
    let accepted = negotiate::document(&call.parts.headers, call.query)?;
    let gone = call.edge.backend.delete_plane(plane).await?;
    output::document(accepted, 200, &gone)
}
