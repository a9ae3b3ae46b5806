//! The verbs: an authorized request on a resource becomes a call of the backend, and its outcome an answer.

use crate::bodies::object_body;
use crate::options;
use crate::respond;
use crate::{
    aggregated, call::Call, connect, documents, info::ResourcePath, logs, negotiate, options::Write,
    output::Output, planes, read, read_api, respond::Reply, reviews, together, trail, watch,
};
use freehold_apiserver_authz::forbidden;
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::{DeleteOptions, Operation, Patch, Written, heavy};
use freehold_apiserver_resource_metrics as resource_metrics;
use freehold_machinery::{GroupResource, ResourceType, Status, Value, go};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use std::sync::Arc;

/// The media type of server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
/// Most operations of a JSON patch (kube-apiserver's number).
const JSON_PATCH_OPERATIONS: usize = 10_000;

/// Serves a request.
pub(crate) async fn dispatch(
    call: &mut Call<'_>,
    body: Incoming,
    upgrade: Option<OnUpgrade>,
) -> Result<Reply, Status> {
    let info = call.info;
    // What is authorized as a resource of the core group, and has no route.
    if info.path.starts_with("//") || info.path.starts_with("/apis//") {
        return Ok(respond::no_page());
    }
    let Some(path) = &info.resource else {
        if let Some(at) = aggregated::version_of(&info.path)
            && aggregated::is_remote(&*call.types().await?, at)
        {
            return match call.target {
                Target::Organization(_) => together::resources(call, at).await,
                _ => aggregated::serve(call, at, upgrade, body).await,
            };
        }
        return match planes::serve(call, body).await? {
            Some(reply) => Ok(reply),
            None => documents::serve(call).await,
        };
    };
    if trail::is_asked(call) {
        return trail::serve(call).await;
    }
    if let Some((api, plane)) = read_api::find(call) {
        // Whoever answers does not know that it is to show a part.
        if call.narrowed {
            return Err(forbidden(&info.attributes(&call.user), ""));
        }
        return read_api::serve(call, api, plane).await;
    }
    let types = call.types().await?;
    check_withheld(call, &types, path)?;
    if types.group(&path.group).is_none() {
        return Ok(respond::no_page());
    }
    let at = (path.group.as_str(), path.version.as_str());
    if aggregated::is_remote(&types, at) {
        // Another server does not know that it is to show a part.
        if call.narrowed {
            return Err(forbidden(&info.attributes(&call.user), ""));
        }
        return match call.target {
            Target::Organization(_) => together::serve(call, at).await,
            _ => aggregated::serve(call, at, upgrade, body).await,
        };
    }
    // What is served of a custom group, its definitions say.
    if find(&types, path).is_err() && TypeSet::builtin().group(&path.group).is_none() {
        return Ok(respond::no_page());
    }
    let ty = find(&types, path)?.clone();
    *call.known = true;
    let op = call.operation(&types, &ty, path);
    if call.parts.method == http::Method::HEAD {
        return Err(Status::no_such_method());
    }
    check(&op, path, &call.info.verb)?;
    if resource_metrics::is_served(&ty) {
        // Kubelets answer, and may take their time.
        call.passed_on();
    }
    let outcome = match (op.subresource.as_deref(), reviews::find(&ty)) {
        (Some(sub), _) if connect::CONNECT.contains(&sub) => {
            return connect::serve(call, &op, body, upgrade).await;
        }
        (Some("log"), _) if !ty.custom => logs::serve(call, op).await,
        (None, Some(review)) => reviews::serve(call, review, &op, body).await,
        _ if call.info.verb == "watch" => watch::serve(call, op, upgrade).await,
        _ => verb(call, op, body).await,
    };
    let Some(deprecation) = &ty.deprecation else { return outcome };
    let mut reply =
        outcome.unwrap_or_else(|status| respond::failure(&call.parts.headers, call.query, &status));
    respond::warn_first(&mut reply, deprecation);
    Ok(reply)
}

/// 403 with its reason for a resource that is kept from who asks.
fn check_withheld(call: &Call<'_>, types: &TypeSet, path: &ResourcePath) -> Result<(), Status> {
    if find(types, path).is_ok() {
        return Ok(());
    }
    let resource = GroupResource::new(&path.group, &path.resource);
    call.edge.backend.withheld(&call.target, &resource, &call.info.verb).map_or(Ok(()), Err)
}

fn find<'a>(types: &'a TypeSet, path: &ResourcePath) -> Result<&'a Arc<ResourceType>, Status> {
    types.find(&path.group, &path.version, &path.resource).ok_or_else(Status::no_such_resource)
}

/// 404 for a path at which nothing is served, 405 for a verb that it does not have.
fn check(op: &Operation, path: &ResourcePath, verb: &str) -> Result<(), Status> {
    let ty = &op.ty;
    let own_name = ty.group.is_empty() && ty.plural == "namespaces";
    let misplaced = match path.namespace.is_some() || path.nameless {
        true => !ty.namespaced && !own_name,
        false => ty.namespaced && path.named,
    };
    if path.deeper || misplaced {
        return Err(Status::no_such_resource());
    }
    let verbs = match op.subresource.as_deref() {
        None => &ty.verbs,
        Some(name) => &ty.subresource(name).ok_or_else(Status::no_such_resource)?.verbs,
    };
    let needs_namespace =
        ty.namespaced && path.namespace.is_none() && matches!(verb, "create" | "deletecollection");
    // Creating at a name, or updating without one, has no route.
    let needs_name = op.subresource.is_none()
        && (verb == "create") == path.named
        && matches!(verb, "create" | "update" | "patch");
    // At the old paths of watches there is nothing else.
    let only_watched = path.watch_prefix && verb != "watch";
    if needs_namespace && !path.nameless || needs_name || only_watched || !verbs.contains(&verb) {
        return Err(Status::no_such_method());
    }
    check_names(op, path, needs_namespace)
}

/// 400 for names that no object has.
fn check_names(op: &Operation, path: &ResourcePath, needs_namespace: bool) -> Result<(), Status> {
    let name = path.name.as_deref().filter(|_| path.named);
    let wrong = match name.unwrap_or_default() {
        "" if path.named => return Err(Status::bad_request("name must be provided")),
        _ if path.nameless && op.ty.namespaced && (path.named || needs_namespace) => {
            return Err(Status::bad_request("Namespace parameter required."));
        }
        "." => "may not be '.'",
        ".." => "may not be '..'",
        name if name.contains('%') => "may not contain '%'",
        _ => return Ok(()),
    };
    let name = go::quote(name.unwrap_or_default());
    Err(Status::bad_request(format!("Name parameter invalid: {name}: {wrong}")))
}

async fn verb(call: &Call<'_>, op: Operation, body: Incoming) -> Result<Reply, Status> {
    match call.info.verb.as_str() {
        "get" => get(call, op).await,
        "list" => list(call, op).await,
        "create" => create(call, op, body).await,
        "update" => update(call, op, body).await,
        "patch" => patch(call, op, body).await,
        "delete" => delete(call, op, body).await,
        "deletecollection" => delete_collection(call, op, body).await,
        _ => Err(Status::no_such_method()),
    }
}

async fn get(call: &Call<'_>, op: Operation) -> Result<Reply, Status> {
    let output = Output::of(call, &op)?;
    let object = call.edge.backend.get(&call.target, op, call.query.text("resourceVersion")).await?;
    output.object(200, &object)
}

async fn list(call: &Call<'_>, op: Operation) -> Result<Reply, Status> {
    let output = Output::of(call, &op)?;
    let stored = op.as_stored().filter(|_| output.shows_metadata_alone());
    let op = stored.unwrap_or(op);
    let list = call.edge.backend.list(&call.target, op, options::list(call.query)?).await?;
    output.list(list)
}

async fn create(call: &Call<'_>, op: Operation, body: Incoming) -> Result<Reply, Status> {
    let output = Output::of(call, &op)?;
    let options = options::write(Write::Create, call.query, &call.parts.headers)?;
    let body = object_body(call, &op, body).await?;
    let bytes = body.bytes;
    let written = call.edge.backend.create(&call.target, op, body, options).await?;
    heavy(bytes, || output.written(written))
}

async fn update(call: &Call<'_>, op: Operation, body: Incoming) -> Result<Reply, Status> {
    let output = Output::of(call, &op)?;
    let options = options::write(Write::Update, call.query, &call.parts.headers)?;
    let body = object_body(call, &op, body).await?;
    let bytes = body.bytes;
    let written = call.edge.backend.update(&call.target, op, body, options).await?;
    heavy(bytes, || output.written(written))
}

async fn patch(call: &Call<'_>, op: Operation, body: Incoming) -> Result<Reply, Status> {
    let output = Output::of(call, &op)?;
    let media_type = negotiate::patch_type(&call.parts.headers);
    check_patch_type(&op, media_type)?;
    let write = if media_type == APPLY { Write::Apply } else { Write::Patch };
    let options = options::write(write, call.query, &call.parts.headers)?;
    let bytes = read::whole(body, call.edge.limits.body).await?;
    let patch = heavy(bytes.len(), || read_patch(media_type, &bytes))?;
    call.recording.patch(&patch, bytes.len());
    let written = call.edge.backend.patch(&call.target, op, patch, options).await?;
    output.written(written)
}

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    APPLY,
];

/// 415 with the types that there are. Custom resources have no strategic merge.
fn check_patch_type(op: &Operation, media_type: &str) -> Result<(), Status> {
    let served = |t: &&&str| !(op.ty.custom && **t == PATCHES[2]);
    let types: Vec<&str> = PATCHES.iter().filter(served).copied().collect();
    match types.contains(&media_type) {
        true => Ok(()),
        false if !op.ty.custom => Err(Status::no_such_media_type()),
        false => Err(Status::unsupported_media_type(media_type, &types.join(", "))),
    }
}

fn read_patch(media_type: &str, bytes: &[u8]) -> Result<Patch, Status> {
    if media_type == APPLY {
        let body = read::decode(bytes, negotiate::Format::Yaml);
        let body = body.map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))?;
        if !body.value.is_object() && !body.value.is_null() {
            return Err(Status::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go \
                 value of type map[string]interface {{}}",
                go::word(&body.value)
            )));
        }
        return Ok(Patch::Apply(body));
    }
    let undecodable = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let strategic = media_type == "application/strategic-merge-patch+json";
    let body = read::decode(bytes, negotiate::Format::Json)
        .map_err(|why| if strategic { Status::bad_request(why) } else { undecodable(why) })?;
    let into = |value: &Value, target: &str| {
        format!("json: cannot unmarshal {} into Go value of type {target}", go::word(value))
    };
    const MAP: &str = "map[string]interface {}";
    match (media_type, &body.value) {
        ("application/json-patch+json", Value::Array(operations)) => {
            if let Some(other) =
                operations.iter().find(|operation| !operation.is_object() && !operation.is_null())
            {
                return Err(undecodable(into(other, "handlers.jsonPatchOp")));
            }
        }
        ("application/json-patch+json", Value::Null) => {}
        ("application/json-patch+json", other) => {
            return Err(undecodable(into(other, "[]handlers.jsonPatchOp")));
        }
        (_, Value::Object(_)) => {}
        ("application/merge-patch+json", Value::Null) => {
            return Err(Status::bad_request("Invalid JSON Patch"));
        }
        ("application/merge-patch+json", other) => return Err(undecodable(into(other, MAP))),
        (_, other) => return Err(Status::bad_request(into(other, MAP))),
    }
    match media_type {
        "application/json-patch+json" => {
            let operations = body.value.as_array().map_or(0, Vec::len);
            if operations > JSON_PATCH_OPERATIONS {
                let text = format!(
                    "The allowed maximum operations in a JSON patch is {JSON_PATCH_OPERATIONS}, got {operations}"
                );
                return Err(Status::new(
                    413,
                    "RequestEntityTooLarge",
                    format!("Request entity too large: {text}"),
                ));
            }
            Ok(Patch::Json(body))
        }
        "application/merge-patch+json" => Ok(Patch::Merge(body)),
        _ => Ok(Patch::Strategic(body)),
    }
}

async fn delete(call: &Call<'_>, op: Operation, body: Incoming) -> Result<Reply, Status> {
    let output = Output::of(call, &op)?;
    let options = delete_options(call, body).await?;
    let Written { object, warnings, .. } = call.edge.backend.delete(&call.target, op, options).await?;
    output.written(Written { object, created: false, pending: false, warnings })
}

async fn delete_collection(call: &Call<'_>, op: Operation, body: Incoming) -> Result<Reply, Status> {
    let output = Output::of(call, &op)?;
    let list = options::list(call.query)?;
    let options = delete_options(call, body).await?;
    output.list(call.edge.backend.delete_collection(&call.target, op, list, options).await?)
}

/// Options from the body, or from the query where there is none.
async fn delete_options(call: &Call<'_>, body: Incoming) -> Result<DeleteOptions, Status> {
    let bytes = read::whole(body, call.edge.limits.body).await?;
    if bytes.is_empty() {
        return options::delete_from_query(call.query);
    }
    let format = negotiate::body_format(&call.parts.headers)?;
    let body = read::object(&bytes, format).map_err(Status::bad_request)?;
    call.recording.patch_value(&body.value, bytes.len());
    options::delete_from_body(&body.value)
}
