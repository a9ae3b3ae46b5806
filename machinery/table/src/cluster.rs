//! Cells of nodes, volumes, quotas, events, roles and the API's own objects.

use crate::{
    cells::{Arguments, Function, access_modes, condition, items, joined, or, selector, text},
    duration,
};
use freehold_machinery::{Value, meta};
use jiff::Timestamp;

pub(crate) const CELLS: &[(&str, Function)] = &[
    ("api-service", |o, _, _| api_service(o).into()),
    ("api-service-available", |o, _, _| available(o).into()),
    ("claim", |o, _, _| claim(o).into()),
    ("claim-access-modes", |o, _, _| {
        when_bound(o, |o| access_modes(o.pointer("/status/accessModes"))).into()
    }),
    ("claim-capacity", |o, _, _| when_bound(o, |o| or(o.pointer("/status/capacity/storage"), "0")).into()),
    ("claim-state", |o, _, _| claim_state(o).into()),
    ("component-error", |o, _, _| healthy(o, "/error").into()),
    ("component-message", |o, _, _| healthy(o, "/message").into()),
    ("component-status", |o, _, _| component_status(o).into()),
    ("csi-audiences", |o, _, _| audiences(o).into()),
    ("csr-condition", |o, _, _| signing_condition(o).into()),
    ("event-count", |o, _, _| event_count(o).into()),
    ("event-first-seen", |o, _, now| first_seen(o, now).into()),
    ("event-last-seen", |o, _, now| last_seen(o, now).into()),
    ("event-object", |o, a, _| event_object(o, a).into()),
    ("event-source", |o, _, _| event_source(o).into()),
    ("missing-priority-level", |o, _, _| {
        condition(o, "Dangling").map_or("?", |found| text(found, "/status")).into()
    }),
    ("node-address", |o, a, _| node_address(o, a).into()),
    ("node-roles", |o, _, _| node_roles(o).into()),
    ("node-status", |o, _, _| node_status(o).into()),
    ("param-kind", |o, _, _| param_kind(o).into()),
    ("param-ref", |o, _, _| param_ref(o).into()),
    ("phase", |o, _, _| if meta::is_deleting(o) { "Terminating" } else { text(o, "/status/phase") }.into()),
    ("quota-limits", |o, _, _| quota(o, |name| name.starts_with("limits.")).into()),
    ("quota-requests", |o, _, _| quota(o, |name| !name.starts_with("limits.")).into()),
    ("requested-duration", |o, _, _| requested_duration(o).into()),
    ("role-ref", |o, _, _| format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")).into()),
    ("class-name", |o, _, _| class_name(o).into()),
    ("storage-class", |o, _, _| storage_class(o).into()),
    ("node-kernel", |o, _, _| node_kernel(o).into()),
    ("subjects", |o, a, _| subjects(o, a.word).into()),
];

fn api_service(service: &Value) -> String {
    let Some(target) = service.pointer("/spec/service").filter(|target| !target.is_null()) else {
        return "Local".to_owned();
    };
    format!("{}/{}", text(target, "/namespace"), text(target, "/name"))
}

fn available(service: &Value) -> String {
    match condition(service, "Available") {
        None => "Unknown".to_owned(),
        Some(found) if text(found, "/status") == "True" => "True".to_owned(),
        Some(found) => format!("{} ({})", text(found, "/status"), text(found, "/reason")),
    }
}

fn claim(volume: &Value) -> String {
    match volume.pointer("/spec/claimRef") {
        Some(claim) if !claim.is_null() => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
        _ => String::new(),
    }
}

fn when_bound(claim: &Value, cell: impl Fn(&Value) -> String) -> String {
    if text(claim, "/spec/volumeName").is_empty() { String::new() } else { cell(claim) }
}

fn claim_state(claim: &Value) -> String {
    let deleting = meta::is_deleting(claim);
    let allocated = claim.pointer("/status/allocation").is_some_and(|allocation| !allocation.is_null());
    let states = [
        (deleting, "deleted"),
        (!allocated && !deleting, "pending"),
        (allocated, "allocated"),
        (allocated && !items(claim, "/status/reservedFor").is_empty(), "reserved"),
    ];
    joined(states.into_iter().filter(|(holds, _)| *holds).map(|(_, state)| state), ",")
}

fn component_status(component: &Value) -> &'static str {
    let healthy = items(component, "/conditions").iter().find(|found| text(found, "/type") == "Healthy");
    match healthy.map(|found| text(found, "/status")) {
        Some("True") => "Healthy",
        Some("False") => "Unhealthy",
        _ => "Unknown",
    }
}

fn healthy<'a>(component: &'a Value, pointer: &str) -> &'a str {
    let healthy = items(component, "/conditions").iter().find(|found| text(found, "/type") == "Healthy");
    healthy.map_or("", |found| text(found, pointer))
}

fn audiences(driver: &Value) -> String {
    let requests = items(driver, "/spec/tokenRequests");
    if requests.is_empty() {
        return "<unset>".to_owned();
    }
    requests.iter().map(|request| text(request, "/audience")).collect::<Vec<_>>().join(",")
}

fn signing_condition(request: &Value) -> String {
    let has = |kind| condition(request, kind).is_some();
    let decision = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if text(request, "/status/certificate").is_empty() { "" } else { ",Issued" };
    format!("{decision}{failed}{issued}")
}

fn requested_duration(request: &Value) -> String {
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    seconds.map_or("<none>".to_owned(), duration::human)
}

/// The first of some pointers at which there is something: the fields of core events and, under other names,
/// those of events.k8s.io.
fn either<'a>(event: &'a Value, pointers: [&str; 2]) -> &'a Value {
    pointers.into_iter().find_map(|pointer| event.pointer(pointer)).unwrap_or(&Value::Null)
}

fn first_time(event: &Value) -> &str {
    let first = either(event, ["/firstTimestamp", "/deprecatedFirstTimestamp"]).as_str();
    first.unwrap_or_else(|| text(event, "/eventTime"))
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    duration::since(Some(first_time(event)), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    let last = either(event, ["/series/lastObservedTime", "/series/lastObservedTime"]).as_str();
    let last = last.or_else(|| either(event, ["/lastTimestamp", "/deprecatedLastTimestamp"]).as_str());
    duration::since(Some(last.unwrap_or_else(|| first_time(event))), now)
}

fn event_count(event: &Value) -> i64 {
    let of_series = event.pointer("/series/count").and_then(Value::as_i64);
    let count = of_series.or_else(|| either(event, ["/count", "/deprecatedCount"]).as_i64());
    count.filter(|count| *count != 0).unwrap_or(1)
}

fn event_object(event: &Value, arguments: &Arguments) -> String {
    let object = arguments.value(event).unwrap_or(&Value::Null);
    let kind = text(object, "/kind").to_lowercase();
    match text(object, "/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn event_source(event: &Value) -> String {
    let source = either(event, ["/source", "/deprecatedSource"]);
    let (component, host) = (text(source, "/component"), text(source, "/host"));
    let (component, host) = if component.is_empty() {
        let reporter = either(event, ["/reportingComponent", "/reportingController"]).as_str().unwrap_or("");
        (reporter, text(event, "/reportingInstance"))
    } else {
        (component, host)
    };
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

fn node_address(node: &Value, arguments: &Arguments) -> String {
    let wanted = |address: &&Value| text(address, "/type") == arguments.word;
    let found = items(node, "/status/addresses").iter().find(wanted);
    or(found.and_then(|address| address.get("address")), "<none>")
}

fn node_roles(node: &Value) -> String {
    let labels = meta::metadata(node).and_then(|m| m.get("labels")).and_then(Value::as_object);
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let mut roles: Vec<_> = labels.into_iter().flatten().filter_map(role).filter(|r| !r.is_empty()).collect();
    roles.sort();
    roles.dedup();
    joined(roles, ",")
}

fn node_status(node: &Value) -> String {
    let ready = match condition(node, "Ready") {
        None => "Unknown",
        Some(found) if text(found, "/status") == "True" => "Ready",
        Some(_) => "NotReady",
    };
    let cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    format!("{ready}{}", if cordoned { ",SchedulingDisabled" } else { "" })
}

fn param_kind(policy: &Value) -> String {
    match policy.pointer("/spec/paramKind") {
        Some(kind) if !kind.is_null() => format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")),
        _ => "<unset>".to_owned(),
    }
}

fn param_ref(binding: &Value) -> String {
    let params = binding.pointer("/spec/paramRef").unwrap_or(&Value::Null);
    match (text(params, "/namespace"), text(params, "/name")) {
        (_, "") => params.get("selector").map_or("<unset>".to_owned(), |s| selector(Some(s))),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

fn quota(quota: &Value, wanted: impl Fn(&str) -> bool) -> String {
    let hard = quota.pointer("/status/hard").and_then(Value::as_object);
    let used = quota.pointer("/status/used");
    let line = |(name, hard): (&String, &Value)| {
        format!("{name}: {}/{}", or(used.and_then(|used| used.get(name)), "0"), or(Some(hard), "0"))
    };
    let wanted = hard.into_iter().flatten().filter(|(name, _)| wanted(name));
    wanted.map(line).collect::<Vec<_>>().join(", ")
}

/// The class of a volume or claim; the annotation of old overrules the field.
fn storage_class(volume: &Value) -> &str {
    let annotated = meta::annotation(volume, "volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or_else(|| text(volume, "/spec/storageClassName"))
}

fn node_kernel(node: &Value) -> String {
    let kernel = or(node.pointer("/status/nodeInfo/kernelVersion"), "<unknown>");
    match text(node, "/status/nodeInfo/architecture") {
        "" => kernel,
        architecture => format!("{kernel} ({architecture})"),
    }
}

/// The name of a storage or ingress class, and whether it is the default.
fn class_name(class: &Value) -> String {
    const DEFAULT: [&str; 3] = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
        "ingressclass.kubernetes.io/is-default-class",
    ];
    let is_default = DEFAULT.iter().any(|key| meta::annotation(class, key) == Some("true"));
    format!("{}{}", meta::name(class), if is_default { " (default)" } else { "" })
}

fn subjects(binding: &Value, kind: &str) -> String {
    let subjects = items(binding, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
    let name = |subject: &Value| match kind {
        "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
        _ => text(subject, "/name").to_owned(),
    };
    subjects.map(name).collect::<Vec<_>>().join(", ")
}
