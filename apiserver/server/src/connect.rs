//! What connects a client with a pod, a service or a node: `exec`, `attach`, `portforward` and `proxy`.
//!
//! Streams into Pods and the API of a kubelet go through the kubelet of the Pod's node ([`crate::kubelet`]). Addresses of Pods
//! and Services are never dialled: what a project's objects call an address is whatever somebody wrote there. Clients get
//! what kube-apiserver says where it reaches nobody: of what they asked wrongly first.

use crate::{
    call::Call,
    info::ResourcePath,
    kubelet::{self, Question},
    logs,
    path::percent_encode,
    proxy,
    respond::Reply,
};
use freehold_apiserver_registry::Operation;
use freehold_apiserver_transport::payload::Payload;
use freehold_machinery::{Status, Value};
use http::header;
use http_body_util::BodyExt;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use serde_json::json;
use std::{net::IpAddr, sync::Arc};

/// The subresources that connect, whatever the verb.
pub const CONNECT: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// Connects, or refuses in kube-apiserver's words.
pub(crate) async fn serve(
    call: &Call<'_>,
    op: &Operation,
    body: Incoming,
    upgrade: Option<OnUpgrade>,
) -> Result<Reply, Status> {
    admit(call, op).await?;
    let upgrade = upgrade.filter(|_| proxy::wants_upgrade(&call.parts.headers));
    let refused = match (op.ty.plural.as_str(), op.subresource.as_deref()) {
        ("pods", Some("proxy")) => pod_proxy(call, op).await,
        ("services", Some("proxy")) => service_proxy(call, op).await,
        ("nodes", Some("proxy")) => return node_proxy(call, op, body, upgrade).await,
        ("pods", Some(what)) => return stream(call, op, what, upgrade).await,
        _ => Err(Status::no_such_resource()),
    };
    Err(refused.err().unwrap_or_else(|| Status::unavailable("nobody was reached")))
}

type Refused = Result<(), Status>;

async fn object(call: &Call<'_>, op: &Operation, name: &str) -> Result<Arc<Value>, Status> {
    let whole = Operation { subresource: None, name: Some(name.to_owned()), ..op.clone() };
    Ok(call.edge.backend.get(&call.target, whole, "").await?.value())
}

/// Asks admission about a connection, whether or not there is anything to connect to.
async fn admit(call: &Call<'_>, op: &Operation) -> Refused {
    let sub = op.subresource.as_deref().and_then(|name| op.ty.subresource(name));
    let kind = sub.map_or("", |sub| sub.kind.kind.as_str());
    call.edge.backend.admit_connect(&call.target, op.clone(), options(call, kind)).await.map(drop)
}

fn options(call: &Call<'_>, kind: &str) -> Value {
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if call.query.flag(flag) == Some(true) {
            options[flag] = true.into();
        }
    }
    for text in ["container", "path"] {
        if let Some(given) = call.query.get(text) {
            options[text] = given.into();
        }
    }
    let command: Vec<&str> = call.query.all("command").collect();
    if !command.is_empty() {
        options["command"] = command.into();
    }
    let ports: Vec<u16> = call.query.all("ports").filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        options["ports"] = ports.into();
    }
    options
}

/// A stream into a container, or to a pod's ports, by way of its node.
async fn stream(
    call: &Call<'_>,
    op: &Operation,
    what: &str,
    upgrade: Option<OnUpgrade>,
) -> Result<Reply, Status> {
    let name = op.name.as_deref().unwrap_or_default();
    let pod = object(call, op, name).await?;
    let container = match what {
        "portforward" => None,
        _ => Some(logs::container(&pod, name, call.query.text("container"))?),
    };
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let found = logs::node_of(call, op, node).await.map_err(|status| match status.code {
        404 => Status::not_found(&op.ty.group_resource(), node),
        _ => status,
    })?;
    logs::address(&found)?;
    if !call.parts.headers.contains_key(header::UPGRADE) || upgrade.is_none() {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let path = stream_path(call, what, (op.namespace.as_deref().unwrap_or_default(), name), container);
    kubelet::pass(call, &found, Question { path, is_upgrade: true, payload: Payload::empty() }, upgrade).await
}

/// The path of a stream in the API of kubelets (`pkg/registry/core/pod/strategy.go`, `streamLocation`).
fn stream_path(
    call: &Call<'_>,
    what: &str,
    (namespace, name): (&str, &str),
    container: Option<String>,
) -> String {
    let segment = |text: &str| percent_encode(text, b"");
    let mut query: Vec<String> = Vec::new();
    let kind = match container {
        None => "portForward",
        Some(_) => {
            let flags = [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")];
            let given = flags.into_iter().filter(|(flag, _)| call.query.flag(flag) == Some(true));
            query.extend(given.map(|(_, name)| format!("{name}=1")));
            query.extend(call.query.all("command").map(|word| format!("command={}", segment(word))));
            what
        }
    };
    if container.is_none() {
        let ports = call.query.all("ports").filter_map(|port| port.parse::<u16>().ok());
        query.extend(ports.map(|port| format!("port={port}")));
    }
    let container = container.map(|name| format!("/{}", segment(&name))).unwrap_or_default();
    let path = format!("/{kind}/{}/{}{container}", segment(namespace), segment(name));
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// `[scheme:]name[:port]`; `None` for anything else.
fn parts(text: &str) -> Option<(&str, &str)> {
    match text.split(':').collect::<Vec<_>>()[..] {
        [name] => Some((name, "")),
        [name, port] => Some((name, port)),
        ["" | "http" | "https", name, port] => Some((name, port)),
        _ => None,
    }
}

fn unreachable(host: &str, port: &str) -> Status {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let why = format!("error trying to reach service: dial tcp {host}:{port}: connect: no route to host");
    Status::unavailable(why)
}

/// An address that could be somebody's.
fn allowed(address: &str) -> Refused {
    let usable = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
    };
    match address.parse().is_ok_and(usable) {
        true => Ok(()),
        false => Err(Status::bad_request("address not allowed")),
    }
}

async fn pod_proxy(call: &Call<'_>, op: &Operation) -> Refused {
    let given = op.name.as_deref().unwrap_or_default();
    let Some((name, port)) = parts(given) else {
        return Err(Status::bad_request(format!("invalid pod request {given:?}")));
    };
    let pod = object(call, op, name).await?;
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    allowed(address)?;
    let first = pod["spec"]["containers"][0]["ports"][0]["containerPort"].as_u64().unwrap_or(80).to_string();
    Err(unreachable(address, if port.is_empty() { &first } else { port }))
}

async fn service_proxy(call: &Call<'_>, op: &Operation) -> Refused {
    let given = op.name.as_deref().unwrap_or_default();
    let Some((name, port)) = parts(given) else {
        return Err(Status::bad_request(format!("invalid service request {given:?}")));
    };
    let service = object(call, op, name).await?;
    let wanted = |entry: &&Value| {
        port.is_empty()
            || entry["name"] == port
            || entry["port"].as_u64().is_some_and(|n| n.to_string() == port)
    };
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !ports.iter().any(|entry| wanted(&entry)) {
        return Err(Status::unavailable(format!("no service port {port:?} found for service {name:?}")));
    }
    let ty = op.types.find("", "v1", "endpoints").ok_or_else(Status::no_such_resource)?;
    let endpoints = Operation { ty: ty.clone(), ..op.clone() };
    let found = object(call, &endpoints, name).await.map_err(|status| match status.code {
        404 => Status::not_found(&op.ty.group_resource(), name),
        _ => status,
    })?;
    for subset in found["subsets"].as_array().into_iter().flatten() {
        let port = subset["ports"][0]["port"].as_u64().unwrap_or(80).to_string();
        if let Some(address) = subset["addresses"][0]["ip"].as_str() {
            allowed(address)?;
            return Err(unreachable(address, &port));
        }
    }
    Err(Status::unavailable(format!("no endpoints available for service {name:?}")))
}

/// The API of a node's kubelet. Other ports of a node are never dialled.
async fn node_proxy(
    call: &Call<'_>,
    op: &Operation,
    body: Incoming,
    upgrade: Option<OnUpgrade>,
) -> Result<Reply, Status> {
    let given = op.name.as_deref().unwrap_or_default();
    let Some((name, asked)) = parts(given) else {
        return Err(Status::bad_request(format!("invalid node request {given:?}")));
    };
    let ty = op.types.find("", "v1", "nodes").ok_or_else(Status::no_such_resource)?;
    let path = ResourcePath { name: Some(name.to_owned()), named: true, ..ResourcePath::default() };
    let node = call.edge.backend.get(&call.target, call.operation(&op.types, ty, &path), "").await?.value();
    let (host, port) = logs::address(&node)?;
    if !asked.is_empty() && asked != port.to_string() {
        return Err(unreachable(&host, asked));
    }
    let whole = proxy::path_and_query(call.info, call.parts.uri.query())?;
    let payload = match http_body::Body::is_end_stream(&body) {
        true => Payload::empty(),
        false => Payload::Boxed(body.map_err(Into::into).boxed_unsync()),
    };
    let question = Question { path: below_proxy(&whole).to_owned(), is_upgrade: upgrade.is_some(), payload };
    kubelet::pass(call, &node, question, upgrade).await
}

/// What follows `/api/v1/nodes/NAME/proxy` in a path, with its query.
fn below_proxy(whole: &str) -> &str {
    let at = whole.match_indices('/').nth(5).map_or(whole.len(), |(at, _)| at);
    let rest = &whole[at..];
    if rest.is_empty() { "/" } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxied_name_may_have_a_scheme_and_a_port() {
        let rows = [
            ("a", Some(("a", ""))),
            ("a:80", Some(("a", "80"))),
            ("https:a:web", Some(("a", "web"))),
            ("ftp:a:80", None),
            ("a:b:c:d", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_kubelet_is_asked_what_follows_the_proxy() {
        for (whole, rest) in [
            ("/api/v1/nodes/a/proxy/pods?x=/y", "/pods?x=/y"),
            ("/api/v1/nodes/a/proxy/", "/"),
            ("/api/v1/nodes/a/proxy", "/"),
            ("/api/v1/nodes/a/proxy/stats/summary", "/stats/summary"),
        ] {
            assert_eq!(below_proxy(whole), rest, "{whole}");
        }
    }

    #[test]
    fn addresses_of_the_machine_itself_are_not_allowed() {
        for (address, good) in
            [("10.0.0.1", true), ("127.0.0.1", false), ("", false), ("169.254.1.1", false), ("::1", false)]
        {
            assert_eq!(allowed(address).is_ok(), good, "{address}");
        }
    }
}
