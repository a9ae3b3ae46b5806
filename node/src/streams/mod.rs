//! Streams into Pods under kubelet's paths: `/exec` and `/attach` by WebSocket (`v5.channel.k8s.io`, `v4.channel.k8s.io`) or
//! SPDY, `/portForward` by SPDY, in a WebSocket too (`SPDY/3.1+portforward.k8s.io`), or by channels of a WebSocket.

mod channels;
mod forward;
mod port_channels;
mod remote;
mod spdy;
mod websocket;

use crate::running::RunningContainers;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use remote::{Remote, Wanted};
use std::io;
use tokio_util::sync::CancellationToken;

/// The header with which a client of SPDY names what it speaks above it.
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// What is spoken with a process above SPDY, and with processes and ports above a WebSocket.
const CHANNELS: &str = "v4.channel.k8s.io";
/// What is spoken with ports above SPDY.
const PORT_FORWARD: &str = "portforward.k8s.io";
/// Bytes between a WebSocket and the SPDY that it carries.
const TUNNEL: usize = 256 << 10;

/// A refusal: the code, and why.
pub(crate) type Refusal = (StatusCode, String);

/// What a connection becomes after it was upgraded.
pub(crate) struct Session {
    transport: Transport,
    protocol: &'static str,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    WebSocket,
    Spdy,
}

enum Purpose {
    Remote(Box<Remote>),
    /// To an address; the ports are those of the query, which clients of SPDY name later.
    Forward(std::net::IpAddr, Vec<u16>),
}

/// Whether a path is that of a stream.
pub(crate) fn is_stream(path: &str) -> bool {
    ["/exec/", "/attach/", "/portForward/"].iter().any(|prefix| path.starts_with(prefix))
}

impl Session {
    /// What a request asks for.
    ///
    /// # Errors
    /// Nothing of that name runs, or the client speaks nothing that is understood.
    pub(crate) fn of(request: &Request<Incoming>, containers: &RunningContainers) -> Result<Self, Refusal> {
        if ![Method::GET, Method::POST].contains(request.method()) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "a stream is opened by GET or POST".into()));
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let parts: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let purpose = match parts[..] {
            ["portForward", namespace, pod] => {
                let address = containers.address(namespace, pod);
                let address =
                    address.ok_or_else(|| not_found(format!("no container of pod {pod:?} runs")))?;
                Purpose::Forward(address, ports(&query)?)
            }
            [kind @ ("exec" | "attach"), namespace, pod, name] => {
                let key = (namespace.to_owned(), pod.to_owned(), name.to_owned());
                let found = containers.find(&key);
                let container = found.ok_or_else(|| not_found(format!("container not found ({name:?})")))?;
                let command = (kind == "exec").then(|| query.all("command"));
                Purpose::Remote(Box::new(Remote::new(container, command, Wanted::of(&query))?))
            }
            _ => return Err(not_found("page not found".into())),
        };
        let (transport, protocol) = negotiate(request.headers(), &purpose)?;
        Ok(Self { transport, protocol, purpose })
    }

    /// The answer that upgrades the connection.
    pub(crate) fn answer<B: Default>(&self, request: &HeaderMap) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let upgrade = if self.transport == Transport::Spdy { "SPDY/3.1" } else { "websocket" };
        let key =
            request.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
        let more = match self.transport {
            Transport::Spdy => vec![(STREAM_PROTOCOL, self.protocol.to_owned())],
            Transport::WebSocket => vec![
                ("sec-websocket-accept", websocket::accept(key)),
                ("sec-websocket-protocol", self.protocol.to_owned()),
            ],
        };
        let all =
            [("connection", "Upgrade".to_owned()), ("upgrade", upgrade.to_owned())].into_iter().chain(more);
        for (name, value) in all {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    /// Serves the connection until it ends or the token is cancelled.
    pub(crate) async fn run(self, upgrading: hyper::upgrade::OnUpgrade, token: CancellationToken) {
        let served = async {
            let connection = TokioIo::new(upgrading.await.map_err(io::Error::other)?);
            match (self.purpose, self.transport) {
                (Purpose::Remote(remote), Transport::WebSocket) => {
                    channels::serve_websocket(connection, *remote).await
                }
                (Purpose::Remote(remote), Transport::Spdy) => channels::serve_spdy(connection, *remote).await,
                (Purpose::Forward(address, _), Transport::Spdy) => forward::serve(connection, address).await,
                (Purpose::Forward(address, ports), Transport::WebSocket) if self.protocol == CHANNELS => {
                    port_channels::serve(connection, address, &ports).await
                }
                (Purpose::Forward(address, _), Transport::WebSocket) => {
                    let (outer, inner) = tokio::io::duplex(TUNNEL);
                    tokio::select! {
                        ended = websocket::tunnel(connection, outer) => ended,
                        // The tunnel ends with what it carries.
                        Err(error) = forward::serve(inner, address) => Err(error),
                    }
                }
            }
        };
        tokio::select! {
            ended = served => if let Err(error) = ended {
                tracing::debug!(%error, "a stream to a Pod failed");
            },
            () = token.cancelled() => {}
        }
    }
}

/// The ports that a query names.
fn ports(query: &Query) -> Result<Vec<u16>, Refusal> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let named = query.all("port").into_iter().chain(query.all("ports"));
    let ports = named.map(|text| text.parse().map_err(|_| bad(format!("invalid port {text:?}"))));
    let ports: Vec<u16> = ports.collect::<Result<_, _>>()?;
    match ports.len() > port_channels::MAX_PORTS {
        true => Err(bad(format!("at most {} ports are forwarded", port_channels::MAX_PORTS))),
        false => Ok(ports),
    }
}

fn not_found(message: String) -> Refusal {
    (StatusCode::NOT_FOUND, message)
}

/// What both sides speak.
fn negotiate(headers: &HeaderMap, purpose: &Purpose) -> Result<(Transport, &'static str), Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let upgrade = text("upgrade").to_ascii_lowercase();
    let (transport, named) = match upgrade.as_str() {
        "websocket" if text("sec-websocket-version") == "13" && !text("sec-websocket-key").is_empty() => {
            (Transport::WebSocket, "sec-websocket-protocol")
        }
        "spdy/3.1" => (Transport::Spdy, STREAM_PROTOCOL),
        _ => {
            return Err((
                StatusCode::BAD_REQUEST,
                "unable to upgrade: SPDY/3.1 or a WebSocket is wanted".into(),
            ));
        }
    };
    let known: &[&'static str] = match (purpose, transport) {
        (Purpose::Remote(_), Transport::WebSocket) => &["v5.channel.k8s.io", CHANNELS],
        (Purpose::Remote(_), Transport::Spdy) => &[CHANNELS],
        (Purpose::Forward(..), Transport::WebSocket) => &["SPDY/3.1+portforward.k8s.io", CHANNELS],
        (Purpose::Forward(..), Transport::Spdy) => &[PORT_FORWARD],
    };
    let values = headers.get_all(named).into_iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    let chosen = known.iter().find(|protocol| offered.contains(protocol)).copied();
    let refused = || {
        let why = format!("unable to upgrade: none of the protocols {offered:?} is among {known:?}");
        (StatusCode::FORBIDDEN, why)
    };
    Ok((transport, chosen.ok_or_else(refused)?))
}

/// The parameters of a request, decoded.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// Whether a flag is set under its name in the API of kubelets or in that of the apiserver.
    fn has(&self, names: [&str; 2]) -> bool {
        self.0.iter().any(|(key, value)| names.contains(&key.as_str()) && (value == "1" || value == "true"))
    }
}

/// A text of a query without its escapes.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let escaped = escaped.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        at += if escaped.is_some() { 3 } else { 1 };
        out.push(escaped.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let query =
            Query::parse("command=sh&command=-c&command=echo%20%2B%C3%A4+x%zz&input=1&tty=true&output=0");
        assert_eq!(query.all("command"), ["sh", "-c", "echo +ä x%zz"]);
        assert!(
            query.has(["input", "stdin"]) && query.has(["tty", "tty"]) && !query.has(["output", "stdout"])
        );
    }

    #[test]
    fn the_newest_protocol_that_both_know_is_spoken() {
        let forward = Purpose::Forward([127, 64, 0, 1].into(), Vec::new());
        type Row<'a> = (&'a [(&'a str, &'a str)], Option<Transport>);
        let rows: [Row<'_>; 5] = [
            (&[("upgrade", "SPDY/3.1"), (STREAM_PROTOCOL, PORT_FORWARD)], Some(Transport::Spdy)),
            (&[("upgrade", "SPDY/3.1"), (STREAM_PROTOCOL, "v9")], None),
            (
                &[
                    ("upgrade", "websocket"),
                    ("sec-websocket-version", "13"),
                    ("sec-websocket-key", "x"),
                    ("sec-websocket-protocol", "a, SPDY/3.1+portforward.k8s.io"),
                ],
                Some(Transport::WebSocket),
            ),
            (&[("upgrade", "websocket"), ("sec-websocket-protocol", "SPDY/3.1+portforward.k8s.io")], None),
            (&[], None),
        ];
        for (given, expected) in rows {
            let headers: HeaderMap = given
                .iter()
                .map(|(name, value)| (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap()))
                .collect();
            assert_eq!(
                negotiate(&headers, &forward).ok().map(|(transport, _)| transport),
                expected,
                "{given:?}"
            );
        }
    }
}
