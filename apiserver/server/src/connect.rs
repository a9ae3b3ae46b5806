//! Connections to Pods (`exec`, `attach`, `portforward`, `proxy`): admitted as kube-apiserver admits them. What they lead
//! to is not there: nodes run Pods without a way into them.

use crate::{call::Call, respond::Reply};
use freehold_apiserver_registry::Operation;
use freehold_machinery::{ResourceType, Status, Value};
use serde_json::json;

/// The kind of a connection's options; `None` for a subresource that is no connection.
pub(crate) fn options_kind(ty: &ResourceType, subresource: Option<&str>) -> Option<&'static str> {
    if !ty.group.is_empty() || ty.plural != "pods" {
        return None;
    }
    Some(match subresource? {
        "attach" => "PodAttachOptions",
        "exec" => "PodExecOptions",
        "portforward" => "PodPortForwardOptions",
        "proxy" => "PodProxyOptions",
        _ => return None,
    })
}

/// Admits a connection, and says that it leads nowhere.
pub(crate) async fn serve(call: &Call<'_>, op: Operation, kind: &str) -> Result<Reply, Status> {
    if op.namespace.is_none() {
        return Err(Status::no_such_resource());
    }
    if !matches!(call.info.verb.as_str(), "create" | "get") {
        return Err(Status::method_not_allowed(&op.ty.group_resource(), &call.info.verb));
    }
    let name = op.name.clone().unwrap_or_default();
    let whole = Operation { subresource: None, ..op.clone() };
    let pod = call.edge.backend.get(&call.target, whole, "").await?.value();
    let what = op.subresource.clone().unwrap_or_default();
    call.edge.backend.admit_connect(&call.target, op, options(call, kind)).await?;
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let why = format!("{what}: the node of pod {name} has no way into its Pods");
    Err(Status::new(501, "NotImplemented", why))
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
