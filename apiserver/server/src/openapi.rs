//! `/openapi/v2` and `/openapi/v3`.
//!
//! Documents are made on demand from what a plane serves, a few at a time and off the request threads, and are kept for
//! a while, compressed, by the hash of their content, which planes with equal types share.

use crate::{
    aggregated,
    call::Call,
    negotiate,
    respond::{self, Reply},
};
use crate::{kept::Document, tags::tagged};
use freehold_apiserver_catalog::{TypeSet, openapi};
use freehold_apiserver_transport::payload::Payload;
use freehold_machinery::{Status, Value};
use http::{HeaderValue, StatusCode, header};
use std::sync::Arc;

/// The media types of OpenAPI v2 and v3 as protobuf, as they are asked for (two spellings) and answered (the second).
const PROTOBUF: [[&str; 2]; 2] = [
    [
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    ],
    [
        "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    ],
];
/// What kube-apiserver guesses that the index is.
const GUESSED: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// For documents whose URL names their content.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, immutable, max-age=31536000");

/// Serves what is below `/openapi`.
pub(crate) async fn serve(call: &mut Call<'_>, segments: &[&str]) -> Result<Reply, Status> {
    let types = call.types().await?;
    let remote = match segments {
        ["v3", "apis", group, version] => Some((*group, *version)),
        ["v3", "api", version] => Some(("", *version)),
        _ => None,
    };
    if let Some(at) = remote.filter(|at| aggregated::is_remote(&types, *at)) {
        let path = format!("/openapi/{}", segments.join("/"));
        return aggregated::document(call, at, &path).await;
    }
    match segments {
        ["v2"] => v2(call, types).await,
        ["v3"] => {
            let index = bytes(&openapi::v3_index(&types, &call.prefix));
            Ok(respond::reply(200, GUESSED, Payload::Full(index.into())))
        }
        ["v3", "api", version] => v3(call, types, "", version).await,
        ["v3", "apis", group, version] => v3(call, types, group, version).await,
        ["v3", rest @ ..] => told(call, types, rest.join("/")).await,
        _ => Ok(respond::no_page()),
    }
}

/// The answer to a client, compressed where it takes that and the document is large.
async fn reply(document: Document, call: &Call<'_>, media_type: &'static str) -> Result<Reply, Status> {
    let media_type = HeaderValue::from_static(media_type);
    if document.length > respond::GZIP_FROM && negotiate::takes_gzip(&call.parts.headers) {
        return Ok(respond::gzipped(respond::reply(200, media_type, Payload::Full(document.packed))));
    }
    let unpacked = tokio::task::spawn_blocking(move || document.unpack()).await.map_err(Status::internal)?;
    Ok(respond::reply(200, media_type, Payload::Full(unpacked.map_err(Status::internal)?)))
}

/// Whether a client wants a document in protobuf. `None` where it takes neither that nor JSON.
fn wants_protobuf(call: &Call<'_>, names: &[&str; 2]) -> Option<bool> {
    let clauses = negotiate::clauses(&call.parts.headers);
    if clauses.is_empty() {
        return Some(false);
    }
    clauses.iter().find_map(|clause| match clause.media_type {
        name if names.contains(&name) => Some(true),
        "application/json" | "application/*" | "*/*" => Some(false),
        _ => None,
    })
}

/// An answer without a body, as kube-apiserver gives it here.
fn empty(code: StatusCode) -> Reply {
    let mut reply = http::Response::new(Payload::empty());
    *reply.status_mut() = code;
    reply
}

async fn v2(call: &Call<'_>, types: Arc<TypeSet>) -> Result<Reply, Status> {
    let mut reply = v2_document(call, types).await?;
    let vary = reply.headers_mut();
    vary.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    vary.append(header::VARY, HeaderValue::from_static("Accept"));
    Ok(reply)
}

async fn v2_document(call: &Call<'_>, types: Arc<TypeSet>) -> Result<Reply, Status> {
    let Some(protobuf) = wants_protobuf(call, &PROTOBUF[0]) else {
        return Ok(empty(StatusCode::NOT_ACCEPTABLE));
    };
    let others = call.edge.backend.aggregated_openapi(&call.target).await;
    let hash = openapi::v2_hash(&types, &others);
    let version = call.edge.version.clone();
    let key = format!("v2 {protobuf} {hash}");
    let make = move || {
        let mut document = openapi::v2(&types, &version);
        for other in others.iter().filter_map(|other| serde_json::from_slice(other).ok()) {
            openapi::merge(&mut document, other);
        }
        if protobuf { openapi::to_protobuf(&document) } else { bytes(&document) }
    };
    let media_type = if protobuf { PROTOBUF[0][1] } else { "application/json" };
    let tag = format!("\"{hash}-{}\"", if protobuf { "pb" } else { "json" });
    tagged(call, &tag, async { reply(call.edge.documents.get(key, make).await?, call, media_type).await })
        .await
}

async fn v3(call: &Call<'_>, types: Arc<TypeSet>, group: &str, version: &str) -> Result<Reply, Status> {
    let hash = openapi::v3_hash(&types, group, version);
    let (group, version, server) = (group.to_owned(), version.to_owned(), call.edge.version.clone());
    let make = move || openapi::v3(&types, &group, &version, &server).unwrap_or_default();
    hashed(call, hash, make).await
}

/// The document of what is told of the server or a group.
async fn told(call: &Call<'_>, types: Arc<TypeSet>, path: String) -> Result<Reply, Status> {
    let hash = openapi::v3_told_hash(&types, &path);
    let server = call.edge.version.clone();
    hashed(call, hash, move || openapi::v3_told(&path, &server)).await
}

/// A document that its hash names; nothing is there without one.
async fn hashed(
    call: &Call<'_>,
    hash: Option<String>,
    make: impl FnOnce() -> Value + Send + 'static,
) -> Result<Reply, Status> {
    let Some(hash) = hash else { return Ok(empty(StatusCode::NOT_FOUND)) };
    let asked = call.query.text("hash");
    if !asked.is_empty() && asked != hash {
        return moved(call, &hash);
    }
    let Some(protobuf) = wants_protobuf(call, &PROTOBUF[1]) else {
        return Ok(empty(StatusCode::NOT_ACCEPTABLE));
    };
    let make = move || if protobuf { openapi::v3_to_protobuf(&make()) } else { bytes(&make()) };
    let media_type = if protobuf { PROTOBUF[1][1] } else { "application/json" };
    let key = format!("v3 {protobuf} {hash}");
    let made = async { reply(call.edge.documents.get(key, make).await?, call, media_type).await };
    let mut reply = tagged(call, &format!("\"{hash}\""), made).await?;
    if asked == hash {
        reply.headers_mut().insert(header::CACHE_CONTROL, IMMUTABLE);
    }
    Ok(reply)
}

fn bytes(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

/// A hash of what was served before leads to what is served now.
fn moved(call: &Call<'_>, hash: &str) -> Result<Reply, Status> {
    let location = format!("{}{}?hash={hash}", call.prefix, call.info.path);
    let mut reply = respond::text(301, "");
    *reply.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = HeaderValue::from_str(&location).map_err(Status::internal)?;
    reply.headers_mut().insert(header::LOCATION, location);
    Ok(reply)
}
