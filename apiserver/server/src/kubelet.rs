//! Requests to the kubelets of planes: logs, streams into containers and the kubelet's own API.
//!
//! Users of a plane write what its Nodes say of their addresses, so an address alone is never believed: the backend decides
//! which networks may be dialled, and the kubelet proves with a certificate of the plane's own authority that it is one of
//! this plane's nodes before it gets a request. The user's credentials never reach it.

use crate::backend::Kubelet;
use crate::{
    call::Call,
    identity, logs, proxy,
    respond::{self, Reply},
};
use freehold_apiserver_transport::payload::Payload;
use freehold_machinery::{Status, Value};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use std::net::SocketAddr;
use tokio::sync::OwnedSemaphorePermit;

/// What a kubelet is asked: a path with a query, whether the connection is to be upgraded, and a body.
pub(crate) struct Question {
    pub(crate) path: String,
    pub(crate) is_upgrade: bool,
    pub(crate) payload: Payload,
}

impl Question {
    /// A question without a body.
    pub(crate) fn get(path: String) -> Self {
        Self { path, is_upgrade: false, payload: Payload::empty() }
    }
}

/// Sends a request to the kubelet of a node, and gives the head of its answer with the permit that its stream holds.
///
/// # Errors
/// What the backend refuses, 429 where the plane has no permit left, 500 where the kubelet does not answer.
pub(crate) async fn send(
    call: &Call<'_>,
    node: &Value,
    question: Question,
) -> Result<(Response<Incoming>, OwnedSemaphorePermit), Status> {
    let (host, port) = logs::address(node)?;
    let ip = host.parse().map_err(Status::internal)?;
    let address = SocketAddr::new(ip, u16::try_from(port).map_err(Status::internal)?);
    let Kubelet { outbound, destination, prefix, permit } =
        call.edge.backend.kubelet(&call.target, address)?;
    let mut request = Request::new(question.payload.boxed_bytes());
    *request.method_mut() = call.parts.method.clone();
    *request.uri_mut() = format!("{prefix}{}", question.path).parse().map_err(Status::internal)?;
    *request.headers_mut() = headers(&call.parts.headers, question.is_upgrade);
    let host = HeaderValue::from_str(&destination.host.authority()).map_err(Status::internal)?;
    request.headers_mut().insert(header::HOST, host);
    let answer = outbound.send(&destination, request).await;
    let failed = |error: freehold_apiserver_outbound::SendError| {
        Status::new(500, "", format!("error dialing backend: {error}"))
    };
    Ok((answer.map_err(failed)?, permit))
}

/// The client's headers without those that are the server's to judge.
fn headers(client: &HeaderMap, is_upgrade: bool) -> HeaderMap {
    let mut headers = client.clone();
    proxy::clean(&mut headers, is_upgrade);
    identity::forget_impersonation(&mut headers);
    headers
}

/// Passes a request on to a kubelet, and its answer back: an upgraded connection byte by byte. It ends with the user's
/// right to it.
pub(crate) async fn pass(
    call: &Call<'_>,
    node: &Value,
    question: Question,
    upgrade: Option<OnUpgrade>,
) -> Result<Reply, Status> {
    let (mut response, permit) = send(call, node, question).await?;
    let held = call.edge.metrics.long_running_of(call.info);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if let Some(client) = upgrade {
            proxy::join(call.edge, client, hyper::upgrade::on(&mut response), call.revoked(), (held, permit));
        }
        proxy::forget_browser(response.headers_mut());
        return Ok(response.map(|_| Payload::empty()));
    }
    if proxy::leads_away(response.status(), response.headers()) {
        return Ok(respond::text(502, "the node attempted to redirect this request, which is not permitted"));
    }
    proxy::clean_answer(response.headers_mut());
    Ok(proxy::incoming(call.edge, response, call.revoked(), (held, permit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    #[test]
    fn credentials_and_claims_never_reach_a_kubelet() {
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("impersonate-user", "jane"),
            ("impersonate-extra-a", "b"),
            ("x-remote-user", "admin"),
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ] {
            given.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let sent = headers(&given, true);
        let mut names: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["connection", "upgrade", "x-stream-protocol-version"]);
    }
}
