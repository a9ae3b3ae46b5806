//! Passing a request on to a dedicated pair.
//!
//! The pair knows the user from identity headers, which it believes because of the client certificate they come with
//! (Kubernetes' "authenticating proxy"). Such headers of the client's own never get through, nor do its credentials.
//! Impersonation headers do: the pair holds the rules by which they are judged.

use crate::edge::Edge;
use crate::{
    backend::InUse,
    info::RequestInfo,
    path::percent_encode,
    respond::{self, Reply},
};
use freehold_apiserver_authn::forwarded_headers;
use freehold_apiserver_fairness::metrics::Held;
use freehold_apiserver_planes::DedicatedTarget;
use freehold_apiserver_transport::{payload::Payload, upstream};
use freehold_machinery::{Status, User};
use freehold_telemetry::{Kind, TRACEPARENT, child};
use futures_util::{
    StreamExt, TryStreamExt,
    future::{BoxFuture, select},
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header, request::Parts};
use http_body_util::{BodyDataStream, BodyExt};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use std::{future::ready, sync::Arc, time::Duration};
use tracing::Instrument;

/// Headers that are between neighbours only (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];
/// Prefix of all identity headers.
const IDENTITY: &str = "x-remote-";
/// How long a pair may take to answer when it is checked.
const CHECK: Duration = Duration::from_secs(10);
/// Characters of a path that are not escaped.
const PATH: &[u8] = b"/:@!$&'()*+,;=";

/// Sends a request to the pair and gives its answer. `held` is kept for as long as the answer goes on.
pub(crate) async fn forward(
    edge: &Arc<Edge>,
    target: &DedicatedTarget,
    user: &User,
    path: &str,
    parts: &mut Parts,
    body: Incoming,
    (held, revoked): ((Option<Held>, Option<InUse>), BoxFuture<'static, ()>),
) -> Result<Reply, Status> {
    let upstream =
        edge.front_proxy.as_ref().ok_or_else(|| unreachable_pair(target, "no front proxy identity"))?;
    let upgrade = parts.extensions.remove::<OnUpgrade>().filter(|_| wants_upgrade(&parts.headers));
    let mut outgoing = outgoing(target, user, path, parts, body, upgrade.is_some())?;
    // The pair believes what the front proxy says of a trace, so a client's own words go no further.
    outgoing.headers_mut().remove(TRACEPARENT);
    outgoing.headers_mut().remove("tracestate");
    let mut span = child("pair", Kind::Client);
    if let Some(span) = &mut span {
        span.attribute("server.address", target.server_name.to_string());
        outgoing.headers_mut().insert(TRACEPARENT, span.context().header());
    }
    let sent = upstream.send(outgoing).await;
    drop(span);
    let mut response = sent.map_err(|e| unreachable_pair(target, &e.to_string()))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if let Some(client) = upgrade {
            join(edge, client, hyper::upgrade::on(&mut response), revoked, held);
        }
        forget_browser(response.headers_mut());
        return Ok(response.map(|_| Payload::empty()));
    }
    if leads_away(response.status(), response.headers()) {
        return Ok(respond::text(
            502,
            "the backend attempted to redirect this request, which is not permitted",
        ));
    }
    clean_answer(response.headers_mut());
    Ok(incoming(edge, response, revoked, held))
}

/// Whether an answer sends its client to another server: many clients would show their token there, which is good for more
/// than the plane of the pair that says so.
pub(crate) fn leads_away(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_here = |location: &HeaderValue| {
        let rest = location.as_bytes().strip_prefix(b"/");
        rest.is_some_and(|rest| !rest.starts_with(b"/") && !rest.contains(&b'\\'))
    };
    status.is_redirection() && !headers.get_all(header::LOCATION).iter().all(is_here)
}

/// Asks a pair for something on the way that requests of its users take: at its address, by the name in its certificate, as
/// the front proxy. It has to be something that only who is known gets.
///
/// # Errors
/// 503 with the reason where it does not answer, or does not believe who asks.
pub(crate) async fn check(edge: &Edge, target: &DedicatedTarget, user: &User) -> Result<(), Status> {
    const QUESTION: &str = "/api";
    let failed =
        |why: String| Status::unavailable(format!("the pair at {}: {why}", target.endpoint)).retry_after(1);
    let upstream = edge.front_proxy.as_ref().ok_or_else(|| failed("no front proxy identity".into()))?;
    let uri = upstream::address(&target.endpoint, &target.server_name, QUESTION).map_err(Status::internal)?;
    let mut request = Request::new(Payload::empty());
    *request.uri_mut() = uri;
    identify(request.headers_mut(), user);
    let host = HeaderValue::from_str(&target.server_name).map_err(Status::internal)?;
    request.headers_mut().insert(header::HOST, host);
    let answer = tokio::time::timeout(CHECK, upstream.send(request)).await;
    let answer = answer.map_err(|_| failed(format!("no answer within {} s", CHECK.as_secs())))?;
    match answer.map_err(|error| failed(error.to_string()))?.status() {
        StatusCode::OK => Ok(()),
        code => Err(failed(format!("it answers {code} to the core server"))),
    }
}

fn unreachable_pair(target: &DedicatedTarget, why: &str) -> Status {
    tracing::warn!(plane = %target.plane, endpoint = %target.endpoint, error = why, "dedicated control plane not reached");
    Status::unavailable("the control plane of this project can't be reached").retry_after(1)
}

fn outgoing(
    target: &DedicatedTarget,
    user: &User,
    path: &str,
    parts: &Parts,
    body: Incoming,
    upgrade: bool,
) -> Result<Request<Payload>, Status> {
    let payload = match http_body::Body::is_end_stream(&body) {
        true => Payload::empty(),
        false => Payload::Boxed(body.map_err(Into::into).boxed_unsync()),
    };
    let mut request = Request::new(payload);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() =
        upstream::address(&target.endpoint, &target.server_name, path).map_err(Status::internal)?;
    let headers = request.headers_mut();
    *headers = parts.headers.clone();
    clean(headers, upgrade);
    identify(headers, user);
    headers.insert(header::HOST, HeaderValue::from_str(&target.server_name).map_err(Status::internal)?);
    Ok(request)
}

/// What another server is asked for: the path within the context, and a query as it came. 400 where it could read that path
/// differently.
pub(crate) fn path_and_query(info: &RequestInfo, query: Option<&str>) -> Result<String, Status> {
    match info.odd {
        true => {
            Err(Status::bad_request("another server answers here, which could read this path differently"))
        }
        false => Ok(encoded(&info.path, query)),
    }
}

/// A decoded path as a URL has it, with a query as it came.
pub(crate) fn encoded(path: &str, query: Option<&str>) -> String {
    let mut text = percent_encode(path, PATH);
    if let Some(query) = query {
        text.push('?');
        text.push_str(query);
    }
    text
}

/// Removes what must not pass: headers between neighbours, credentials and claimed identities.
pub(crate) fn clean(headers: &mut HeaderMap, upgrade: bool) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| !(upgrade && *name == header::UPGRADE))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    if upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    } else {
        headers.remove(header::UPGRADE);
    }
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::COOKIE);
    let claimed: Vec<HeaderName> =
        headers.keys().filter(|k| k.as_str().starts_with(IDENTITY)).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
}

/// What an answer would tell a browser about the whole address, where the console is, too.
const ABOUT_THE_ADDRESS: [HeaderName; 14] = [
    header::SET_COOKIE,
    header::ALT_SVC,
    header::REFRESH,
    header::STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("service-worker-allowed"),
    // Where browsers are to report what they fetched there: addresses with codes of sign-ins, too.
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    // What they are to say of themselves from then on, and how they are to keep pages apart.
    HeaderName::from_static("accept-ch"),
    HeaderName::from_static("critical-ch"),
    HeaderName::from_static("origin-agent-cluster"),
    HeaderName::from_static("origin-trial"),
    // A browser would ask for a password in the name of the address.
    header::WWW_AUTHENTICATE,
];

/// What a browser may do with an answer that somebody else's server gave: show it, as a page of no address.
const SANDBOX: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// Removes from an answer what changes what a browser keeps of this address.
pub(crate) fn forget_browser(headers: &mut HeaderMap) {
    ABOUT_THE_ADDRESS.iter().for_each(|name| drop(headers.remove(name)));
}

/// Makes an answer of a server that is not ours fit to be given at this address: without headers between neighbours, and so
/// that a browser runs nothing of it. A page with a policy of its own could act as whoever opens it, since the console is here.
pub(crate) fn clean_answer(headers: &mut HeaderMap) {
    clean(headers, false);
    forget_browser(headers);
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
}

/// Says who asks. What can't stand in a header is left out: such a user has fewer rights, never others.
pub(crate) fn identify(headers: &mut HeaderMap, user: &User) {
    for (name, value) in forwarded_headers(user) {
        let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()));
        if let (Ok(name), Ok(value)) = pair {
            headers.append(name, value);
        }
    }
}

pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    let tokens = headers.get_all(header::CONNECTION).into_iter().filter_map(|v| v.to_str().ok());
    headers.contains_key(header::UPGRADE)
        && tokens.flat_map(|v| v.split(',')).any(|t| t.trim().eq_ignore_ascii_case("upgrade"))
}

/// An answer from another server as one of ours. One of unknown length may be a watch: it ends when the server stops, or
/// its author's rights end. `kept` is kept as long.
pub(crate) fn incoming(
    edge: &Arc<Edge>,
    response: http::Response<Incoming>,
    revoked: BoxFuture<'static, ()>,
    kept: impl Send + 'static,
) -> Reply {
    response.map(|body| match http_body::Body::size_hint(&body).exact() {
        Some(_) => Payload::Boxed(body.map_err(Into::into).boxed_unsync()),
        None => {
            let stop = select(Box::pin(edge.stop.clone().cancelled_owned()), revoked);
            let frames = BodyDataStream::new(body).into_stream().take_while(|f| ready(f.is_ok()));
            let frames = frames.filter_map(|f| ready(f.ok())).take_until(stop);
            Payload::stream(frames.inspect(move |_| {
                let _ = &kept;
            }))
        }
    })
}

/// Joins both ends of an upgraded connection until one closes, the server stops or its author's rights end. `kept` is kept as long.
pub(crate) fn join(
    edge: &Arc<Edge>,
    client: OnUpgrade,
    server: OnUpgrade,
    revoked: BoxFuture<'static, ()>,
    kept: impl Send + 'static,
) {
    let stop = edge.stop.clone();
    let copy = async move {
        let _kept = kept;
        let (client, server) = match futures_util::try_join!(client, server) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "upgrade failed"),
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            () = stop.cancelled() => {}
            () = revoked => {}
        }
    };
    tokio::spawn(copy.instrument(tracing::debug_span!("upgraded")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_on_the_server_that_was_asked() {
        let rows = [
            (301, "/openapi/v3/api/v1?hash=A", false),
            (302, "https://elsewhere.example/", true),
            (307, "http://elsewhere.example/", true),
            (308, "//elsewhere.example/", true),
            (302, "/\\elsewhere.example/", true),
            (302, "elsewhere", true),
            (200, "https://elsewhere.example/", false),
        ];
        for (code, location, expected) in rows {
            let headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(leads_away(status, &headers), expected, "{code} {location}");
        }
        assert!(!leads_away(StatusCode::NOT_MODIFIED, &HeaderMap::new()));
    }

    #[test]
    fn another_servers_page_runs_nothing_here_and_leaves_nothing_behind() {
        let rows = [
            ("content-security-policy", "script-src 'unsafe-inline'; connect-src *"),
            ("content-type", "text/html"),
            ("set-cookie", "session=theirs"),
            ("clear-site-data", "*"),
            ("nel", "{}"),
            ("report-to", "{}"),
            ("www-authenticate", "Basic realm=\"console\""),
            ("x-frame-options", "ALLOWALL"),
        ];
        let mut headers: HeaderMap =
            rows.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("script-src *"));
        clean_answer(&mut headers);
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            [
                ("content-security-policy", SANDBOX),
                ("content-type", "text/html"),
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
            ]
        );
    }

    #[test]
    fn claimed_identities_and_credentials_do_not_pass() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "admin"),
            ("X-Remote-Group", "system:masters"),
            ("x-remote-extra-a", "b"),
            ("x-remote-uid", "0"),
            ("authorization", "Bearer x"),
            ("cookie", "session=x"),
            ("connection", "close, x-secret"),
            ("x-secret", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("accept", "application/json"),
            ("impersonate-user", "jane"),
        ] {
            headers.append(
                HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        clean(&mut headers, false);
        let user = User {
            name: "jane".into(),
            groups: vec!["a".into(), "b".into()],
            extra: [("freehold.dev/org unit".to_owned(), vec!["x".to_owned(), "y".to_owned()])].into(),
            ..User::default()
        };
        identify(&mut headers, &user);
        let mut left: Vec<String> =
            headers.iter().map(|(k, v)| format!("{k}={}", v.to_str().unwrap())).collect();
        left.sort();
        assert_eq!(
            left,
            [
                "accept=application/json",
                "impersonate-user=jane",
                "x-remote-extra-freehold.dev%2forg%20unit=x",
                "x-remote-extra-freehold.dev%2forg%20unit=y",
                "x-remote-group=a",
                "x-remote-group=b",
                "x-remote-user=jane",
            ]
        );
    }
}
