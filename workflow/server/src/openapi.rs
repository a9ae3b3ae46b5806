//! The OpenAPI 3.1 description of the routes.

use freehold_machinery::Value;
use serde_json::{Map, json};

/// A route: method, path, identifier, what it does, its query parameters, the schema of its body, and of its answer.
type Route = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
);

const NS: &str = "/api/v1/namespaces/{namespace}";

/// All routes but Kontroler's. Paths that begin with `NS` are of a namespace.
pub(crate) const ROUTES: [Route; 32] = [
    ("get", "/healthz", "health", "Tells that the server answers.", &[], "", ""),
    ("get", "/openapi.json", "openapi", "Returns this document.", &[], "", ""),
    (
        "get",
        "/api/v1/dags",
        "listAllDags",
        "Lists DAGs of all namespaces.",
        &["limit", "after", "labelSelector"],
        "",
        "ObjectPage",
    ),
    ("get", "NS/dags", "listDags", "Lists DAGs.", &["limit", "after", "labelSelector"], "", "ObjectPage"),
    ("get", "NS/dags/{name}", "getDag", "Reads a DAG.", &[], "", "Object"),
    ("post", "NS/dags/{name}/run", "runDag", "Creates a run.", &[], "NewRun", "Object"),
    ("post", "NS/dags/{name}/suspend", "suspendDag", "Stops the schedule of a DAG.", &[], "", "Object"),
    ("post", "NS/dags/{name}/resume", "resumeDag", "Lets the schedule of a DAG go on.", &[], "", "Object"),
    (
        "get",
        "/api/v1/runs",
        "listAllRuns",
        "Lists runs of all namespaces.",
        &["limit", "after", "labelSelector"],
        "",
        "ObjectPage",
    ),
    ("get", "NS/runs", "listRuns", "Lists runs.", &["limit", "after", "labelSelector"], "", "ObjectPage"),
    ("get", "NS/runs/{name}", "getRun", "Reads a run.", &[], "", "Object"),
    ("delete", "NS/runs/{name}", "deleteRun", "Deletes a run.", &[], "", "Object"),
    (
        "post",
        "NS/runs/{name}/actions/{action}",
        "actOnRun",
        "Suspends, resumes, stops, terminates or retries a run, or starts another like it (resubmit).",
        &[],
        "",
        "Object",
    ),
    (
        "post",
        "NS/runs/{name}/tasks/{task}/decision",
        "decide",
        "Approves or rejects a task that waits.",
        &[],
        "NewDecision",
        "Object",
    ),
    (
        "get",
        "NS/pods/{pod}/log",
        "getLiveLog",
        "Streams the log of a Pod.",
        &["container", "follow", "tailLines", "timestamps"],
        "",
        "text",
    ),
    (
        "get",
        "/api/v1/watch/runs",
        "watchAllRuns",
        "Streams changes of runs of all namespaces.",
        &["resourceVersion", "labelSelector"],
        "",
        "events",
    ),
    (
        "get",
        "NS/watch/runs",
        "watchRuns",
        "Streams changes of runs.",
        &["resourceVersion", "labelSelector"],
        "",
        "events",
    ),
    (
        "get",
        "/api/v1/history/runs",
        "listHistory",
        "Lists recorded runs, newest first.",
        &["namespace", "dag", "name", "phase", "from", "to", "after", "limit"],
        "",
        "RunPage",
    ),
    ("get", "NS/history/runs/{uid}", "getHistory", "Reads a recorded run.", &[], "", "RunRecord"),
    (
        "get",
        "NS/history/runs/{uid}/tasks",
        "listAttempts",
        "Lists attempts of a run's tasks.",
        &["after", "limit"],
        "",
        "TaskPage",
    ),
    ("get", "NS/history/runs/{uid}/logs", "listLogs", "Lists kept logs of a run.", &["task"], "", "LogPage"),
    (
        "get",
        "NS/history/logs/{pod_uid}/{container}",
        "getLog",
        "Reads a kept log, or a range of it.",
        &[],
        "",
        "text",
    ),
    (
        "get",
        "NS/history/logs/{pod_uid}/{container}/search",
        "searchLog",
        "Finds lines of a kept log.",
        &["text", "from", "limit"],
        "",
        "MatchPage",
    ),
    (
        "get",
        "/api/v1/statistics/days",
        "listDays",
        "Returns statistics per day.",
        &["namespace", "dag", "from", "to"],
        "",
        "DayPage",
    ),
    (
        "post",
        "/api/v1/auth/login",
        "login",
        "Issues a token for a name and a password.",
        &[],
        "Login",
        "Token",
    ),
    ("post", "/api/v1/auth/logout", "logout", "Ends the caller's token.", &[], "", ""),
    (
        "post",
        "/api/v1/auth/rotate",
        "rotateToken",
        "Issues another token in place of the caller's.",
        &[],
        "",
        "Token",
    ),
    ("get", "/api/v1/auth/self", "getSelf", "Tells who the caller is.", &[], "", "Account"),
    (
        "post",
        "/api/v1/auth/password",
        "changePassword",
        "Sets the caller's password and ends all their tokens.",
        &[],
        "NewPassword",
        "",
    ),
    ("get", "/api/v1/accounts", "listAccounts", "Lists local accounts.", &["after"], "", "AccountPage"),
    ("post", "/api/v1/accounts", "createAccount", "Creates a local account.", &[], "NewAccount", "Account"),
    ("delete", "/api/v1/accounts/{name}", "deleteAccount", "Deletes a local account.", &[], "", ""),
];

/// A route's path, written out.
pub(crate) fn path_of(route: &Route) -> String {
    route.1.replacen("NS", NS, usize::from(route.1.starts_with("NS")))
}

/// Returns the OpenAPI document of all routes.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in &ROUTES {
        let item = paths.entry(path_of(route)).or_insert_with(|| json!({}));
        item[route.0] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Freehold Workflow", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": crate::caller::COOKIE_NAME},
            },
            "schemas": schemas(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let (_, _, id, summary, query, body, answer) = *route;
    let path = path_of(route);
    let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    parameters.extend(query.iter().map(|name| {
        let schema = match *name {
            "limit" | "tailLines" => json!({"type": "integer", "minimum": 0}),
            "follow" | "timestamps" => json!({"type": "boolean"}),
            _ => json!({"type": "string"}),
        };
        json!({"name": name, "in": "query", "schema": schema})
    }));
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let content = match answer {
        "" => Value::Null,
        "text" => json!({"text/plain": {"schema": {"type": "string"}}}),
        "events" => json!({"text/event-stream": {"schema": {"type": "string"}}}),
        name => json!({"application/json": {"schema": reference(name)}}),
    };
    let mut done = json!({"description": "It was done."});
    if !content.is_null() {
        done["content"] = content;
    }
    let status = json!({"description": "It was not.", "content": {"application/json": {"schema": reference("Status")}}});
    let mut operation = json!({
        "operationId": id, "summary": summary, "parameters": parameters, "responses": {"2XX": done, "default": status},
    });
    if !body.is_empty() {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": reference(body)}}});
    }
    operation
}

/// An object's schema from lines of `name: type`, with `?` behind what may be absent.
fn object(fields: &[(&str, &str)]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, type_) in fields {
        let (type_, optional) = type_.strip_suffix('?').map_or((*type_, false), |type_| (type_, true));
        let schema = match type_ {
            "string" | "integer" | "boolean" | "number" | "object" => json!({"type": type_}),
            reference => json!({"$ref": format!("#/components/schemas/{reference}")}),
        };
        properties.insert((*name).to_owned(), schema);
        if !optional {
            required.push(*name);
        }
    }
    json!({"type": "object", "properties": properties, "required": required})
}

fn page(item: &str) -> Value {
    json!({"type": "object", "required": ["items"], "properties": {
        "items": {"type": "array", "items": {"$ref": format!("#/components/schemas/{item}")}}, "next": {"type": ["string", "null"]},
    }})
}

fn schemas() -> Value {
    let quantiles = [("p50", "integer"), ("p95", "integer"), ("p99", "integer")];
    let of_run = [("plane", "string"), ("namespace", "string")];
    let attempt = [
        ("run", "string"),
        ("runCreatedAt", "integer"),
        ("task", "string"),
        ("restart", "integer"),
        ("attempt", "integer"),
        ("phase", "Phase"),
        ("reason", "string"),
        ("message", "string"),
        ("pod", "string"),
        ("podUid", "string"),
        ("node", "string"),
        ("exitCode", "integer?"),
        ("queuedAt", "integer?"),
        ("startedAt", "integer?"),
        ("endedAt", "integer?"),
    ];
    let run = [
        ("uid", "string"),
        ("name", "string"),
        ("dag", "string"),
        ("phase", "Phase"),
        ("reason", "string"),
        ("message", "string"),
        ("trigger", "string"),
        ("restart", "integer"),
        ("revision", "integer"),
        ("createdAt", "integer"),
        ("startedAt", "integer?"),
        ("endedAt", "integer?"),
        ("counts", "Counts"),
        ("parameters", "string"),
    ];
    let log = [
        ("run", "string"),
        ("task", "string"),
        ("attempt", "integer"),
        ("restart", "integer"),
        ("pod", "string"),
        ("podUid", "string"),
        ("container", "string"),
        ("location", "string"),
        ("bytes", "integer"),
        ("lines", "integer"),
        ("complete", "boolean"),
    ];
    let phases: Vec<&str> = freehold_workflow_store::Phase::ALL.iter().map(|phase| phase.as_str()).collect();
    json!({
        "Status": object(&[("status", "string"), ("message", "string?"), ("reason", "string?"), ("code", "integer")]),
        "Object": {"type": "object", "description": "A Kubernetes object: see the kinds of workflow.freehold.dev/v1alpha1."},
        "ObjectPage": page("Object"),
        "Phase": {"type": "string", "enum": phases},
        "Role": {"type": "string", "enum": ["viewer", "editor", "admin"]},
        "Counts": object(&[("total", "integer"), ("succeeded", "integer"), ("failed", "integer"), ("skipped", "integer")]),
        "RunRecord": object(&[&of_run[..], &run[..]].concat()), "RunPage": page("RunRecord"),
        "TaskRecord": object(&[&of_run[..], &attempt[..]].concat()), "TaskPage": page("TaskRecord"),
        "LogRecord": object(&[&of_run[..], &log[..]].concat()), "LogPage": page("LogRecord"),
        "Match": object(&[("line", "integer"), ("offset", "integer"), ("text", "string")]), "MatchPage": page("Match"),
        "Quantiles": object(&quantiles),
        "Day": object(&[
            ("day", "string"), ("succeeded", "integer"), ("failed", "integer"), ("stopped", "integer"), ("successRate", "number?"),
            ("meanDurationMillis", "integer"), ("meanQueueMillis", "integer"), ("duration", "Quantiles"), ("queue", "Quantiles"),
        ]),
        "DayPage": page("Day"),
        "NewRun": object(&[("name", "string?"), ("parameters", "object?"), ("priority", "integer?")]),
        "NewDecision": object(&[("approved", "boolean"), ("message", "string?")]),
        "Login": object(&[("name", "string"), ("password", "string")]),
        "Token": object(&[("token", "string"), ("expiresInSeconds", "integer"), ("name", "string?"), ("role", "Role?")]),
        "NewPassword": object(&[("oldPassword", "string"), ("password", "string")]),
        "NewAccount": object(&[("name", "string"), ("password", "string"), ("role", "Role")]),
        "Account": object(&[("name", "string"), ("role", "Role")]), "AccountPage": page("Account"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_document_leads_somewhere() {
        let document = document();
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
        assert_eq!(
            document["paths"]["/api/v1/namespaces/{namespace}/runs/{name}"].as_object().unwrap().len(),
            2
        );
    }

    #[test]
    fn the_document_has_every_route_of_the_router() {
        // Routes as the source registers them.
        let source = include_str!("routes/mod.rs");
        let routes: Vec<&str> =
            source.split(".route(").skip(1).map(|rest| rest.split('"').nth(1).unwrap()).collect();
        let documented: std::collections::BTreeSet<String> = ROUTES.iter().map(path_of).collect();
        assert_eq!(
            routes.iter().map(|r| (*r).to_owned()).collect::<std::collections::BTreeSet<_>>(),
            documented
        );
    }
}
