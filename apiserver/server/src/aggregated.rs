//! Passing a request on to an aggregated server, as kube-aggregator does.
//!
//! The server knows the user from identity headers, and them from the certificate that they come with, which is for the
//! plane alone. The user's own credentials never reach it. In extra keys it is told plane, project and organization.
//!
//! A request that waits for such a server takes one of the server's places and none of those that all requests share.

use crate::backend::Aggregated;
use crate::{
    call::Call,
    identity, proxy,
    respond::{self, Reply},
};
use bytes::Bytes;
use freehold_api::keys::{ORGANIZATION, PLANE_ANNOTATION, PROJECT};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_transport::payload::{BoxError, Payload};
use freehold_machinery::{PlaneId, Status, User, user::MASTERS};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use tokio::sync::OwnedSemaphorePermit;

/// Who downloads documents.
const AGGREGATOR: &str = "system:kube-aggregator";

/// Whether another server answers for a version of a group here.
pub(crate) fn is_remote(types: &TypeSet, (group, version): (&str, &str)) -> bool {
    types.version(group, version).is_some_and(|served| served.remote.is_some())
}

/// The group and version whose own document a path is.
pub(crate) fn version_of(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (group, version) = match path.strip_prefix("/apis/") {
        Some(rest) => rest.split_once('/')?,
        None => ("", path.strip_prefix("/api/")?),
    };
    (!version.contains('/')).then_some((group, version))
}

/// Passes the call on to the server of a group and version. `upgrade` is the client's end of the connection.
pub(crate) async fn serve(
    call: &mut Call<'_>,
    (group, version): (&str, &str),
    upgrade: Option<OnUpgrade>,
    body: Incoming,
) -> Result<Reply, Status> {
    let Some(server) = call.edge.backend.aggregated(&call.target, group, version).await? else {
        return Err(Status::no_such_resource());
    };
    if !server.available {
        return Ok(respond::text(503, "service unavailable\n"));
    }
    let place = place(&server)?;
    call.passed_on();
    let headers = &call.parts.headers;
    let upgrade = upgrade.filter(|_| proxy::wants_upgrade(headers));
    let payload = match http_body::Body::is_end_stream(&body) {
        true => Payload::empty(),
        false => Payload::Boxed(body.map_err(Into::into).boxed_unsync()),
    };
    let user = told(&call.user, &server);
    let path = proxy::path_and_query(call.info, call.parts.uri.query())?;
    let request = request(&server, (&call.parts.method, &path, headers), &user, payload, upgrade.is_some())?;
    let mut response = match server.outbound.send(&server.destination, request).await {
        Ok(response) => response,
        Err(error) => return Ok(respond::text(503, format!("{error}\n"))),
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if let Some(client) = upgrade {
            let held = call.edge.metrics.long_running_of(call.info);
            proxy::join(call.edge, client, hyper::upgrade::on(&mut response), call.revoked(), (held, place));
        }
        proxy::forget_browser(response.headers_mut());
        return Ok(response.map(|_| Payload::empty()));
    }
    Ok(answer(call, response, place))
}

/// A document of a server, asked for by the aggregator itself.
pub(crate) async fn document(
    call: &mut Call<'_>,
    (group, version): (&str, &str),
    path: &str,
) -> Result<Reply, Status> {
    let Some(server) = call.edge.backend.aggregated(&call.target, group, version).await? else {
        return Err(Status::no_such_resource());
    };
    if !server.available {
        return Ok(respond::text(503, "service unavailable\n"));
    }
    let place = place(&server)?;
    call.passed_on();
    let user = User { name: AGGREGATOR.into(), groups: vec![MASTERS.into()], ..User::default() };
    let mut headers = HeaderMap::new();
    for name in [header::ACCEPT, header::ACCEPT_ENCODING, header::IF_NONE_MATCH, header::USER_AGENT] {
        if let Some(value) = call.parts.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let request = request(&server, (&Method::GET, path, &headers), &user, Payload::empty(), false)?;
    match server.outbound.send(&server.destination, request).await {
        Ok(response) => Ok(answer(call, response, place)),
        Err(error) => Ok(respond::text(503, format!("{error}\n"))),
    }
}

/// A place for a request to a server; 429 where it has none left.
pub(crate) fn place(server: &Aggregated) -> Result<OwnedSemaphorePermit, Status> {
    let taken = server.places.clone().try_acquire_owned();
    taken.map_err(|_| Status::too_many_requests("Too many requests, please try again later.", 1))
}

/// The user as the server is told of: with plane, project and organization, whatever such keys said before.
pub(crate) fn told(user: &User, server: &Aggregated) -> User {
    let mut user = User { plane: None, ..user.clone() };
    let plane: &PlaneId = &server.destination.plane;
    for (key, value) in [
        (PLANE_ANNOTATION, plane.as_str()),
        (PROJECT, &*server.project),
        (ORGANIZATION, &*server.organization),
    ] {
        user.extra.remove(key);
        if !value.is_empty() {
            user.extra.insert(key.to_owned(), vec![value.to_owned()]);
        }
    }
    user
}

/// A request as a server gets it, of a user.
pub(crate) fn request(
    server: &Aggregated,
    (method, path, headers): (&Method, &str, &HeaderMap),
    user: &User,
    payload: Payload,
    upgrade: bool,
) -> Result<Request<freehold_apiserver_outbound::Body>, Status> {
    let mut request = Request::new(payload.boxed_bytes());
    *request.method_mut() = method.clone();
    *request.uri_mut() = path.parse().map_err(Status::internal)?;
    let sent = request.headers_mut();
    *sent = headers.clone();
    proxy::clean(sent, upgrade);
    identity::forget_impersonation(sent);
    proxy::identify(sent, user);
    let host = HeaderValue::from_str(&server.destination.host.authority()).map_err(Status::internal)?;
    sent.insert(header::HOST, host);
    Ok(request)
}

/// A server's answer as one of ours. Redirects are not for clients, who do not reach where they lead.
fn answer(call: &Call<'_>, mut response: http::Response<Incoming>, place: OwnedSemaphorePermit) -> Reply {
    if response.status().is_redirection() && response.headers().contains_key(header::LOCATION) {
        return respond::text(502, "the backend attempted to redirect this request, which is not permitted");
    }
    proxy::clean_answer(response.headers_mut());
    let stop = call.edge.stop.clone().cancelled_owned();
    let long = call.info.is_long_running();
    let held = long.then(|| call.edge.metrics.long_running_of(call.info));
    // What is not meant to go on has a time for all of it, so that a slow server keeps no place for good.
    let time = if long { None } else { Some(call.edge.limits.request) };
    let revoked = long.then(|| call.revoked());
    let until = async move {
        match (time, revoked) {
            (Some(time), _) => tokio::time::sleep(time).await,
            (None, Some(revoked)) => drop(futures_util::future::select(Box::pin(stop), revoked).await),
            (None, None) => stop.await,
        }
    };
    response.map(|body| match http_body::Body::size_hint(&body).exact() {
        Some(0) => Payload::empty(),
        _ => limited(body, until.boxed(), time.is_some(), (place, held)),
    })
}

/// A body that ends at a time: torn, so that nobody takes it for complete, or as if it were. It keeps something for as
/// long as it goes on.
fn limited(body: Incoming, until: BoxFuture<'static, ()>, torn: bool, kept: impl Send + 'static) -> Payload {
    let begun = Some((BodyStream::new(body), until, kept));
    let frames = futures_util::stream::unfold(begun, move |state| async move {
        let (mut body, mut until, kept) = state?;
        tokio::select! {
            frame = body.next() => {
                let frame: Result<Frame<Bytes>, BoxError> = frame?.map_err(BoxError::from);
                Some((frame, Some((body, until, kept))))
            }
            () = &mut until => torn.then(|| (Err("the aggregated server took too long".into()), None)),
        }
    });
    Payload::Boxed(StreamBody::new(frames).boxed_unsync())
}
