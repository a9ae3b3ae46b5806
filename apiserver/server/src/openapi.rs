//! `/openapi/v2` and `/openapi/v3`.
//!
//! Documents are made on demand from what a plane serves, a few at a time and off the request threads, and small ones
//! are kept for a while by the hash of their content, which planes with equal types share.

use crate::{
    aggregated,
    call::Call,
    documents::tagged,
    negotiate::{self, Accepted, Format},
    payload::Payload,
    respond::{self, Reply},
};
use bytes::Bytes;
use freehold_apiserver_catalog::{TypeSet, openapi};
use freehold_machinery::{Status, Value};
use http::{HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use tokio::sync::Semaphore;

/// How many documents are made at a time.
const MAKERS: usize = 2;
/// Bytes of documents that are kept, and of the largest that is.
const KEPT: (usize, usize) = (4 * 1024 * 1024, 1024 * 1024);

/// The media type of OpenAPI v2 as protobuf, as it is asked for (two spellings) and as it is answered.
const PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];
/// For documents whose URL names their content.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, immutable, max-age=31536000");

/// Documents that were made lately.
pub(crate) struct Documents {
    makers: Semaphore,
    kept: Mutex<(usize, HashMap<String, Bytes>)>,
}

impl Documents {
    pub(crate) fn new() -> Self {
        Self { makers: Semaphore::new(MAKERS), kept: Mutex::default() }
    }

    /// The document of a key, made where it is not at hand.
    async fn get(
        &self,
        key: String,
        make: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Result<Bytes, Status> {
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        let _maker = self.makers.acquire().await.map_err(Status::internal)?;
        // Another request may have made it meanwhile.
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        let made = Bytes::from(tokio::task::spawn_blocking(make).await.map_err(Status::internal)?);
        self.keep(key, made.clone());
        Ok(made)
    }

    fn find(&self, key: &str) -> Option<Bytes> {
        self.kept.lock().1.get(key).cloned()
    }

    fn keep(&self, key: String, document: Bytes) {
        let (all, each) = KEPT;
        if document.len() > each {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.0 + document.len() > all {
            *kept = Default::default();
        }
        kept.0 += document.len();
        kept.1.insert(key, document);
    }
}

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
            let accepted = negotiate::document(&call.parts.headers, call.query)?;
            respond::value(accepted, 200, &openapi::v3_index(&types, &call.prefix))
        }
        ["v3", "api", version] => v3(call, types, "", version).await,
        ["v3", "apis", group, version] => v3(call, types, group, version).await,
        _ => Ok(respond::no_page()),
    }
}

async fn v2(call: &Call<'_>, types: Arc<TypeSet>) -> Result<Reply, Status> {
    let clauses = negotiate::clauses(&call.parts.headers);
    let protobuf = clauses.iter().find_map(|c| match c.media_type {
        m if PROTOBUF.contains(&m) => Some(true),
        "application/json" | "application/*" | "*/*" => Some(false),
        _ => None,
    });
    if protobuf.is_none() && !clauses.is_empty() {
        return Err(Status::not_acceptable(&format!("application/json, {}", PROTOBUF[1])));
    }
    let protobuf = protobuf.unwrap_or(false);
    let hash = openapi::v2_hash(&types);
    let version = call.edge.version.clone();
    let others = call.edge.backend.aggregated_openapi(&call.target).await;
    let key = format!("v2 {protobuf} {hash} {}", others.len());
    let make = move || {
        let mut document = openapi::v2(&types, &version);
        for other in others.iter().filter_map(|other| serde_json::from_slice(other).ok()) {
            openapi::merge(&mut document, other);
        }
        if protobuf { openapi::to_protobuf(&document) } else { bytes(&document) }
    };
    let made = call.edge.documents.get(key, make).await?;
    let media_type = if protobuf { PROTOBUF[1] } else { "application/json" };
    let tag = format!("\"{hash}-{}\"", if protobuf { "pb" } else { "json" });
    tagged(call, &tag, || Ok(respond::reply(200, HeaderValue::from_static(media_type), Payload::Full(made))))
}

async fn v3(call: &Call<'_>, types: Arc<TypeSet>, group: &str, version: &str) -> Result<Reply, Status> {
    let accepted = negotiate::document(&call.parts.headers, call.query)?;
    let hash = openapi::v3_hash(&types, group, version).ok_or_else(Status::no_such_resource)?;
    let asked = call.query.text("hash");
    if !asked.is_empty() && asked != hash {
        return moved(call, &hash);
    }
    let (group, version, server) = (group.to_owned(), version.to_owned(), call.edge.version.clone());
    let make = move || openapi::v3(&types, &group, &version, &server).map(|v| bytes(&v)).unwrap_or_default();
    let made = call.edge.documents.get(format!("v3 {hash}"), make).await?;
    let mut reply = tagged(call, &format!("\"{hash}\""), || written(accepted, made))?;
    if asked == hash {
        reply.headers_mut().insert(header::CACHE_CONTROL, IMMUTABLE);
    }
    Ok(reply)
}

fn bytes(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

fn written(accepted: Accepted, json: Bytes) -> Result<Reply, Status> {
    if accepted.format == Format::Json && !accepted.pretty {
        return Ok(respond::json(200, json));
    }
    let value: Value = serde_json::from_slice(&json).map_err(Status::internal)?;
    respond::value(accepted, 200, &value)
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
