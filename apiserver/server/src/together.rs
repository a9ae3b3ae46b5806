//! What aggregated servers of an organization's projects have, together: each is asked, and their lists are joined.
//!
//! A list has no resource version, since each server has its own, and it is not paged or watched. Whoever may list the
//! resource in the organization sees what all of its projects have; a project whose server does not answer is left out,
//! and a warning says so.

use crate::{
    aggregated::{self, Aggregated},
    call::Call,
    respond::{self, Reply},
};
use bytes::Bytes;
use freehold_api::keys::{PLANE_ANNOTATION, PROJECT};
use freehold_machinery::{Map, Status, Value, meta, user::MASTERS};
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::{BodyExt, Limited};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Servers that are asked at a time, and how long each may take.
const AT_ONCE: usize = 16;
const TIME: Duration = Duration::from_secs(10);
/// Bytes of one server's answer.
const MAX_ANSWER: usize = 16 << 20;
/// Bytes of all answers together.
const MAX_ALL: usize = 128 << 20;
/// What is asked for in pages, which no server knows of the others.
const PAGING: [&str; 4] = ["limit", "continue", "resourceVersion", "resourceVersionMatch"];

/// The document of a group and version: its resources, which can be listed.
pub(crate) async fn resources(call: &Call<'_>, (group, version): (&str, &str)) -> Result<Reply, Status> {
    let types = call.types().await?;
    let remote = types.version(group, version).and_then(|served| served.remote.clone());
    let remote = remote.ok_or_else(Status::no_such_resource)?;
    let one = |resource: &Value| {
        json!({
            "name": resource["resource"], "singularName": resource["singularResource"],
            "namespaced": resource["scope"] == "Namespaced", "kind": resource["responseKind"]["kind"],
            "verbs": resource["verbs"],
        })
    };
    let resources: Vec<Value> = remote.resources.iter().map(one).collect();
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
        "resources": resources});
    Ok(respond::json(200, Bytes::from(list.to_string())))
}

/// Lists a resource in all projects.
pub(crate) async fn list(call: &Call<'_>, (group, version): (&str, &str)) -> Result<Reply, Status> {
    if call.info.verb != "list" {
        return Err(Status::no_such_method());
    }
    let servers = call.edge.backend.aggregated_across(&call.target, group, version).await?;
    let (path, headers) = (path(call), headers(&call.parts.headers));
    let mut asked = Vec::with_capacity(servers.len());
    for server in &servers {
        asked.push(ask(call, server, &path, &headers).boxed());
    }
    // In the order of projects, whoever answers first.
    let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
    let mut joined: Option<Value> = None;
    let (mut warnings, mut bytes) = (Vec::new(), 0);
    for (server, answer) in servers.iter().zip(answers) {
        match answer {
            Ok((list, size)) => {
                bytes += size;
                if bytes > MAX_ALL {
                    return Err(Status::too_large(MAX_ALL));
                }
                join(&mut joined, annotated(list, server));
            }
            Err(why) => warnings.push(format!("project {:?} is left out: {why}", &*server.project)),
        }
    }
    let Some(joined) = joined else {
        return Err(match warnings.is_empty() {
            true => Status::no_such_resource(),
            false => Status::unavailable(warnings.join("; ")),
        });
    };
    let mut reply = respond::json(200, Bytes::from(joined.to_string()));
    respond::warn(&mut reply, &warnings);
    Ok(reply)
}

/// The path that each server is asked for, with what selects and without what pages.
fn path(call: &Call<'_>) -> String {
    let query = call.parts.uri.query().unwrap_or_default().split('&');
    let kept: Vec<&str> =
        query.filter(|pair| !PAGING.contains(&pair.split('=').next().unwrap_or_default())).collect();
    let query = Some(kept.join("&")).filter(|query| !query.is_empty());
    crate::proxy::path_and_query(&call.info.path, query.as_deref())
}

/// What is accepted: JSON in the forms that the client takes, tables among them.
fn headers(given: &HeaderMap) -> HeaderMap {
    let clauses = given.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let clauses = clauses.flat_map(|value| value.split(',')).map(str::trim);
    let json: Vec<&str> = clauses.filter(|clause| clause.starts_with("application/json")).collect();
    let accept = if json.is_empty() { "application/json".to_owned() } else { json.join(",") };
    let accept = HeaderValue::from_str(&accept).unwrap_or(HeaderValue::from_static("application/json"));
    let mut headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
    if let Some(agent) = given.get(header::USER_AGENT) {
        headers.insert(header::USER_AGENT, agent.clone());
    }
    headers
}

/// One server's list, and how many bytes it had.
async fn ask(
    call: &Call<'_>,
    server: &Arc<Aggregated>,
    path: &str,
    headers: &HeaderMap,
) -> Result<(Value, usize), String> {
    if !server.available {
        return Err("its server does not answer".to_owned());
    }
    let _place = aggregated::place(server).map_err(|status| status.message)?;
    let mut user = aggregated::told(&call.user, server);
    // They may see what all projects of the organization have, whatever each of these says of them.
    if !user.is_in(MASTERS) {
        user.groups.push(MASTERS.to_owned());
    }
    let request = aggregated::request(
        server,
        (&Method::GET, path, headers),
        &user,
        crate::payload::Payload::empty(),
        false,
    );
    let request = request.map_err(|status| status.message)?;
    let asked = async {
        let answer = server.outbound.send(&server.destination, request).await.map_err(|e| e.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| error.to_string())?;
        let (body, code) = (body.to_bytes(), head.status.as_u16());
        let value: Value = serde_json::from_slice(&body).map_err(|error| format!("{code}: {error}"))?;
        match (code, value.is_object()) {
            (200, true) => Ok((value, body.len())),
            _ => Err(value["message"].as_str().map_or_else(|| format!("{code}"), str::to_owned)),
        }
    };
    tokio::time::timeout(TIME, asked).await.unwrap_or_else(|_| Err("its server takes too long".to_owned()))
}

/// A list whose objects say where they are from.
fn annotated(mut list: Value, server: &Aggregated) -> Value {
    let plane = server.destination.plane.as_str();
    let mark = |object: &mut Value| {
        if !object.is_object() {
            return;
        }
        let annotations = meta::metadata_mut(object).entry("annotations").or_insert(Value::Null);
        if !annotations.is_object() {
            *annotations = Value::Object(Map::new());
        }
        annotations[PLANE_ANNOTATION] = plane.into();
        annotations[PROJECT] = (*server.project).into();
    };
    if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(mark);
    }
    if let Some(rows) = list.get_mut("rows").and_then(Value::as_array_mut) {
        rows.iter_mut().filter_map(|row| row.get_mut("object")).for_each(mark);
    }
    list
}

/// Adds a server's list to those before it. What is of another form than the first is left out.
fn join(into: &mut Option<Value>, mut list: Value) {
    let Some(joined) = into else {
        list["metadata"] = json!({"resourceVersion": ""});
        *into = Some(list);
        return;
    };
    for field in ["items", "rows"] {
        let more = list.get_mut(field).and_then(Value::as_array_mut).map(std::mem::take);
        let (Some(more), true) = (more, list["kind"] == joined["kind"]) else { continue };
        match joined.get_mut(field).and_then(Value::as_array_mut) {
            Some(all) => all.extend(more),
            None => joined[field] = more.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_joined_in_their_order_and_have_no_version() {
        let list = |names: &[&str]| {
            let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
            json!({"kind": "ThingList", "metadata": {"resourceVersion": "7", "continue": "x"}, "items": items})
        };
        let mut joined = None;
        join(&mut joined, list(&["a", "b"]));
        join(&mut joined, json!({"kind": "ThingList", "metadata": {}, "items": null}));
        join(&mut joined, list(&["a"]));
        join(&mut joined, json!({"kind": "Other", "items": [{}]}));
        let joined = joined.unwrap();
        assert_eq!(joined["items"].as_array().unwrap().len(), 3);
        assert_eq!(joined["metadata"], json!({"resourceVersion": ""}));
    }

    #[test]
    fn json_is_asked_for_in_the_forms_that_the_client_takes() {
        let of = |accept: &'static str| {
            let given = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            headers(&given)[header::ACCEPT].to_str().unwrap().to_owned()
        };
        assert_eq!(
            of("application/json;as=Table;v=v1;g=meta.k8s.io, application/yaml"),
            "application/json;as=Table;v=v1;g=meta.k8s.io"
        );
        assert_eq!(of("application/vnd.kubernetes.protobuf"), "application/json");
    }
}
