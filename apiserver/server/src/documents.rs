//! Paths that are no resource's: discovery, health, version, metrics, keys, and the list of what there is.

use crate::{
    backend::OpenIdDocument,
    call::Call,
    health,
    info::is_health,
    metrics::OwnPlane,
    negotiate::{self, Accepted, Clause, Format, Shape},
    openapi, planes,
    respond::{self, Reply},
    tags::tagged,
    version::version,
};
use bytes::Bytes;
use freehold_apiserver_catalog::{TypeSet, discovery};
use freehold_apiserver_planes::{Target, context::Context};
use freehold_apiserver_transport::payload::{BoxError, Payload};
use freehold_machinery::{Status, Value};
use futures_util::{StreamExt, TryStreamExt};
use http::{HeaderValue, Method, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;

/// The media types of aggregated discovery (KEP-3352).
const AGGREGATED: HeaderValue =
    HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
const AGGREGATED_PROTOBUF: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
);
/// What caches may do with aggregated discovery, whose `ETag` says whether it is current.
const PUBLIC: HeaderValue = HeaderValue::from_static("public");
/// The media type of metrics.
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Serves a path. 404 where there is nothing. As in kube-apiserver, most of them take any method and answer as to GET; 405
/// where there is GET alone.
pub(crate) async fn serve(call: &mut Call<'_>) -> Result<Reply, Status> {
    let info = call.info;
    let path = info.path.as_str();
    if let (&Method::DELETE, "/", Context::Plane(plane)) = (&call.parts.method, path, &call.context) {
        return planes::delete_plane(call, plane).await;
    }
    if let (&Method::POST, "/encryption/rotate", Context::Platform) =
        (&call.parts.method, path, &call.context)
    {
        return document(call, &call.edge.backend.encryption(true).await?);
    }
    if is_health(path) {
        return health::serve(call, path).await;
    }
    let segments: Vec<&str> = untrailed(path)[1..].split('/').collect();
    match segments[..] {
        // Who deletes a control plane by its path must not believe that it is gone.
        [""] if call.parts.method == Method::DELETE => Err(Status::no_such_method()),
        [""] => paths(call).await,
        ["version"] => {
            only_got(call)?;
            document(call, &version(&call.edge.version))
        }
        // Nothing is reset here.
        ["metrics"] if call.parts.method == Method::DELETE => Err(Status::no_such_method()),
        // They are the whole server's, so they are no business of those who may do anything in a project.
        ["metrics"] if call.context == Context::Platform => {
            Ok(respond::reply(200, OPEN_METRICS, Payload::Full(call.edge.metrics.text().into())))
        }
        ["metrics"] => own_metrics(call).await,
        ["encryption"] if call.context == Context::Platform => {
            only_got(call)?;
            document(call, &call.edge.backend.encryption(false).await?)
        }
        ["debug", what] if call.context == Context::Platform => debug(call, what),
        ["backup"] if call.context == Context::Platform => backup(call).await,
        ["api"] => {
            only_got(call)?;
            root(call, true).await
        }
        ["apis"] => root(call, false).await,
        ["api", version] => resources(call, "", version).await,
        ["apis", group] => match discovery::group(&*call.types().await?, group) {
            Some(found) => plain_document(call, &found),
            None => Ok(respond::no_page()),
        },
        ["apis", group, version] => resources(call, group, version).await,
        ["openapi", ..] => openapi::serve(call, &segments[1..]).await,
        [".well-known", "openid-configuration"] => openid(call, OpenIdDocument::Configuration).await,
        ["openid", "v1", "jwks"] => openid(call, OpenIdDocument::Keys).await,
        ["version", ..] => Err(Status::no_such_resource()),
        _ => Ok(respond::no_page()),
    }
}

/// The path without slashes at its end, where kube-apiserver has routes: these do without them.
fn untrailed(path: &str) -> &str {
    const ROUTED: [&str; 5] = ["/api/", "/apis/", "/version/", "/.well-known/", "/openid/"];
    match ROUTED.iter().any(|route| path.starts_with(route)) {
        true => path.trim_end_matches('/'),
        false => path,
    }
}

/// What administrators see of this process beside its metrics. As with those, a project's own context has none of it.
fn debug(call: &Call<'_>, what: &str) -> Result<Reply, Status> {
    only_got(call)?;
    let edge = call.edge;
    let found = match what {
        "slow-requests" => Some(edge.slow.document(|plane| edge.backend.project_of(plane))),
        _ => edge.debug.as_ref().and_then(|documents| documents(what)),
    };
    match found {
        Some(found) => document(call, &found),
        None => Ok(respond::no_page()),
    }
}

/// 405 for any method but GET.
fn only_got(call: &Call<'_>) -> Result<(), Status> {
    if call.parts.method == Method::GET { Ok(()) } else { Err(Status::no_such_method()) }
}

/// What a plane uses of the server, for its owner.
async fn own_metrics(call: &Call<'_>) -> Result<Reply, Status> {
    let Target::Local(plane) = &call.target else { return Ok(respond::no_page()) };
    let holdings = call.edge.backend.holdings(plane).await?;
    let own = OwnPlane { usage: call.edge.fairness.usage(plane), holdings };
    Ok(respond::reply(200, OPEN_METRICS, Payload::Full(own.text().into())))
}

/// A document that is negotiated without a route's media types.
fn plain_document(call: &Call<'_>, value: &Value) -> Result<Reply, Status> {
    respond::discovery(negotiate::plain(&call.parts.headers, call.query)?, 200, value)
}

fn document(call: &Call<'_>, value: &Value) -> Result<Reply, Status> {
    respond::discovery(negotiate::document(&call.parts.headers, call.query)?, 200, value)
}

/// `/api` or `/apis`: all of discovery in one document for who asks so, else the versions or groups alone.
async fn root(call: &Call<'_>, core: bool) -> Result<Reply, Status> {
    let types = call.types().await?;
    let clauses = negotiate::clauses(&call.parts.headers);
    if let Some(Some(format)) = clauses.iter().find_map(aggregated) {
        let binary = format == Format::Protobuf;
        let of = if core { "api" } else { "apis" };
        let tag = format!("\"{}-{of}{}\"", types.hash(), if binary { "-pb" } else { "" });
        let mut reply = tagged(call, &tag, async {
            let accepted = Accepted { format, shape: Shape::Whole, pretty: false };
            let mut reply = respond::discovery(accepted, 200, &discovery::aggregated(&types, core))?;
            let media_type = if binary { AGGREGATED_PROTOBUF } else { AGGREGATED };
            reply.headers_mut().insert(header::CONTENT_TYPE, media_type);
            Ok(reply)
        })
        .await?;
        reply.headers_mut().insert(header::CACHE_CONTROL, PUBLIC);
        return Ok(reply);
    }
    match core {
        true => document(call, &discovery::api_versions(&types, &server_address(call))),
        false => plain_document(call, &discovery::group_list(&types)),
    }
}

/// What a clause asks of `/api` and `/apis`: aggregated discovery in a format, or the versions or groups alone. `None`
/// for what is not served.
fn aggregated(clause: &Clause<'_>) -> Option<Option<Format>> {
    const BINARY: &str = freehold_machinery_protobuf::MEDIA_TYPE;
    let format = match clause.media_type {
        "application/json" | "application/*" | "*/*" => Format::Json,
        "application/yaml" => Format::Yaml,
        BINARY => Format::Protobuf,
        _ => return None,
    };
    match (clause.param("as"), clause.param("g"), clause.param("v")) {
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if format != Format::Yaml => {
            Some(Some(format))
        }
        ("", "", "") => Some(None),
        _ => None,
    }
}

/// Where the client reached the server.
fn server_address(call: &Call<'_>) -> String {
    let authority = call.parts.uri.authority().map(|a| a.as_str().to_owned());
    let host = call.parts.headers.get(header::HOST).and_then(|h| h.to_str().ok()).map(str::to_owned);
    authority.or(host).unwrap_or_default()
}

async fn resources(call: &Call<'_>, group: &str, version: &str) -> Result<Reply, Status> {
    let types = call.types().await?;
    match discovery::resource_list(&types, group, version) {
        Some(list) => {
            only_got(call)?;
            document(call, &list)
        }
        None if types.group(group).is_none() => Ok(respond::no_page()),
        None => Err(Status::no_such_resource()),
    }
}

/// The whole store, as a stream that ends with the server, or torn when the store fails: an archive tells both from one
/// that is complete.
async fn backup(call: &Call<'_>) -> Result<Reply, Status> {
    only_got(call)?;
    let pieces = call.edge.backend.backup().await?.take_until(call.edge.stop.clone().cancelled_owned());
    let frames = pieces.map_ok(Frame::data).map_err(|status| BoxError::from(status.message));
    let body = Payload::Boxed(StreamBody::new(frames).boxed_unsync());
    Ok(respond::reply(200, HeaderValue::from_static("application/octet-stream"), body))
}

async fn openid(call: &Call<'_>, which: OpenIdDocument) -> Result<Reply, Status> {
    only_got(call)?;
    let media_type = match which {
        OpenIdDocument::Configuration => "application/json",
        OpenIdDocument::Keys => "application/jwk-set+json",
    };
    negotiate::only(&call.parts.headers, media_type)?;
    let document = call.edge.backend.openid(&call.target, which).await?;
    let mut reply = respond::json(200, Bytes::from(document.to_string()));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(reply)
}

/// `/`: the paths that are served.
async fn paths(call: &Call<'_>) -> Result<Reply, Status> {
    let types = call.types().await?;
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    paths.extend(group_paths(&types));
    paths.sort();
    document(call, &json!({"paths": paths}))
}

/// The paths of groups and of their versions.
fn group_paths(types: &TypeSet) -> Vec<String> {
    let mut paths = Vec::new();
    for group in types.groups() {
        let base = if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
        paths.extend(group.versions.iter().map(|v| format!("{base}/{}", v.version)));
        if !group.name.is_empty() {
            paths.push(base);
        }
    }
    paths
}
