//! `pods/log`: passed on to the node that runs the pod.

use crate::{
    call::Call,
    info::ResourcePath,
    kubelet::{self, Question},
    path::percent_encode,
    proxy,
    respond::Reply,
};
use freehold_apiserver_fairness::metrics::Held;
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::Operation;
use freehold_apiserver_transport::{payload::Payload, upstream};
use freehold_machinery::{PlaneId, Status, Value, status::FieldError};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

/// Most bytes of a node's error that are read.
const LONGEST_ERROR: usize = 4 * 1024;
/// Query parameters of `PodLogOptions` that a node understands, and whether they are numbers.
const OPTIONS: [(&str, bool); 7] = [
    ("follow", false),
    ("previous", false),
    ("timestamps", false),
    ("sinceSeconds", true),
    ("sinceTime", false),
    ("tailLines", true),
    ("limitBytes", true),
];

/// Streams the log of a container. 400 where the container is not clear, 204 for a pod that no node has yet.
pub(crate) async fn serve(call: &Call<'_>, op: Operation) -> Result<Reply, Status> {
    if matches!(call.target, Target::Provider(_)) {
        let why = "no claim of an export is about logs";
        return Err(Status::forbidden(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default(), why));
    }
    let pod =
        call.edge.backend.get(&call.target, Operation { subresource: None, ..op.clone() }, "").await?.value();
    let name = op.name.as_deref().unwrap_or_default();
    check_options(call, name)?;
    let container = container(&pod, name, call.query.text("container"))?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        let mut nothing = http::Response::new(Payload::empty());
        *nothing.status_mut() = http::StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    let found = node_of(call, &op, node).await?;
    let segment = |text: &str| percent_encode(text, b"");
    let namespace = op.namespace.as_deref().unwrap_or_default();
    let path = format!(
        "/containerLogs/{}/{}/{}{}",
        segment(namespace),
        segment(name),
        segment(&container),
        query(call)?
    );
    if !is_platforms(call) {
        let (response, permit) = kubelet::send(call, &found, Question::get(path)).await?;
        return answer(call, &op, response, permit).await;
    }
    let response = from_platform(call, &found, &path).await?;
    answer(call, &op, response, ()).await
}

/// Whether the plane's nodes are the platform's own, which the server reaches as itself.
fn is_platforms(call: &Call<'_>) -> bool {
    matches!(&call.target, Target::Local(plane) if plane.is_core() || *plane == PlaneId::infra())
}

/// Asks a node of the platform for a log.
async fn from_platform(
    call: &Call<'_>,
    node: &Value,
    path: &str,
) -> Result<http::Response<Incoming>, Status> {
    let nodes =
        call.edge.nodes.as_ref().ok_or_else(|| Status::unavailable("this server reaches no nodes"))?;
    let (host, port) = address(node)?;
    let host_port = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let url = format!("https://{host_port}{path}");
    let uri = upstream::address(&host_port, &host, path).map_err(Status::internal)?;
    let request = Request::get(uri)
        .header(http::header::HOST, &host_port)
        .body(Payload::empty())
        .map_err(Status::internal)?;
    nodes.send(request).await.map_err(|e| Status::new(500, "", format!("Get {url:?}: {e}")))
}

/// A node's answer as that of the server. `kept` is kept as long as it goes on.
async fn answer(
    call: &Call<'_>,
    op: &Operation,
    response: http::Response<Incoming>,
    kept: impl Send + 'static,
) -> Result<Reply, Status> {
    if !response.status().is_success() {
        return Err(failed(response, op).await);
    }
    let held: Held = call.edge.metrics.long_running(&call.edge.metrics.labels(call.info, true, false, false));
    let mut reply = proxy::incoming(call.edge, response, call.revoked(), (held, kept));
    let headers = reply.headers_mut();
    headers.clear();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(reply)
}

/// 422 for numbers that are out of range.
fn check_options(call: &Call<'_>, name: &str) -> Result<(), Status> {
    let numbers = [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)];
    let mut errors = Vec::new();
    for (option, least) in numbers {
        if let Some(given) = call.query.number(option)?.filter(|given| *given < least) {
            let why = format!("must be greater than or equal to {least}");
            errors.push(FieldError::invalid(option, given.into(), why));
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid("", "PodLogOptions", name, &errors)),
    }
}

/// The container whose log is meant, in Kubernetes' words where it isn't clear.
pub(crate) fn container(pod: &Value, name: &str, asked: &str) -> Result<String, Status> {
    let names = |field: &str| -> Vec<String> {
        let list = pod["spec"][field].as_array().into_iter().flatten();
        list.filter_map(|c| c["name"].as_str()).map(str::to_owned).collect()
    };
    let containers = names("containers");
    let init = names("initContainers");
    if asked.is_empty() {
        let default = freehold_machinery::meta::annotation(pod, "kubectl.kubernetes.io/default-container");
        return match containers.as_slice() {
            [only] => Ok(only.clone()),
            _ if default.is_some_and(|d| containers.iter().any(|c| c == d)) => {
                Ok(default.unwrap_or_default().to_owned())
            }
            several => {
                let mut text = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    several.join(" ")
                );
                if !init.is_empty() {
                    text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
                }
                Err(Status::bad_request(text))
            }
        };
    }
    let known = [containers, init, names("ephemeralContainers")].concat().iter().any(|c| c == asked);
    if known {
        Ok(asked.to_owned())
    } else {
        Err(Status::bad_request(format!("container {asked} is not valid for pod {name}")))
    }
}

pub(crate) async fn node_of(
    call: &Call<'_>,
    op: &Operation,
    name: &str,
) -> Result<std::sync::Arc<Value>, Status> {
    let ty = op.types.find("", "v1", "nodes").ok_or_else(Status::no_such_resource)?;
    let path = ResourcePath { name: Some(name.to_owned()), named: true, ..ResourcePath::default() };
    let node = call.operation(&op.types, ty, &path);
    Ok(call.edge.backend.get(&call.target, node, "").await?.value())
}

/// What is said of a node that can't be reached.
fn no_address(node: &Value) -> String {
    let known: Vec<String> = node["status"]["addresses"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|a| {
            format!(
                "{{{} {}}}",
                a["type"].as_str().unwrap_or_default(),
                a["address"].as_str().unwrap_or_default()
            )
        })
        .collect();
    format!("no preferred addresses found; known addresses: [{}]", known.join(" "))
}

/// The address at which a Node says that its kubelet is: an IP address and a port.
///
/// # Errors
/// 500 where the Node names none.
pub fn address(node: &Value) -> Result<(String, u64), Status> {
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let internal = addresses.filter(|a| a["type"] == "InternalIP").find_map(|a| a["address"].as_str());
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .filter(|p| (1..=65535).contains(p));
    let ip = internal.filter(|ip| ip.parse::<std::net::IpAddr>().is_ok());
    match (ip, port) {
        (Some(ip), Some(port)) => Ok((ip.to_owned(), port)),
        _ => Err(Status::new(500, "", no_address(node))),
    }
}

fn query(call: &Call<'_>) -> Result<String, Status> {
    let mut text = String::new();
    for (option, number) in OPTIONS {
        if number {
            call.query.number(option)?;
        }
        if let Some(value) = call.query.get(option) {
            let joint = if text.is_empty() { '?' } else { '&' };
            text.push_str(&format!("{joint}{option}={}", percent_encode(value, b"")));
        }
    }
    Ok(text)
}

/// A node's refusal as kube-apiserver passes it on.
async fn failed(response: http::Response<Incoming>, op: &Operation) -> Status {
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), LONGEST_ERROR).collect().await;
    let text = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).trim().to_owned()).unwrap_or_default();
    match code {
        400 => Status::bad_request(text),
        404 => Status::new(404, "NotFound", text).with_details(|d| {
            d.name = op.name.clone().unwrap_or_default();
            d.kind = "pods/log".to_owned();
        }),
        _ => Status::internal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_container_is_named_or_the_only_one() {
        let one = json!({"spec": {"containers": [{"name": "a"}]}});
        let two = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        let chosen = json!({
            "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "b"}},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        });
        let several = "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]";
        let rows = [
            (&one, "", Ok("a")),
            (&two, "b", Ok("b")),
            (&two, "i", Ok("i")),
            (&two, "", Err(several)),
            (&one, "z", Err("container z is not valid for pod p")),
            (&chosen, "", Ok("b")),
        ];
        for (pod, asked, expected) in rows {
            let got = container(pod, "p", asked).map_err(|s| s.message);
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{asked}");
        }
    }

    #[test]
    fn a_node_is_reached_at_its_internal_address_only() {
        let node = |ip: &str, port: u64| {
            json!({"status": {
                "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": ip}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            }})
        };
        assert_eq!(address(&node("10.0.0.1", 10250)).unwrap(), ("10.0.0.1".to_owned(), 10250));
        assert_eq!(address(&node("evil.example.com", 10250)).unwrap_err().code, 500);
        assert_eq!(address(&node("10.0.0.1", 0)).unwrap_err().code, 500);
    }
}
