//! The operations of a type, in a form from which both versions of OpenAPI are written.

use super::names::{self, META, capital};
use freehold_machinery::{GroupVersionKind, ResourceType, resource::Subresource};
use std::collections::BTreeMap;

/// A path with its operations by method.
#[derive(Default)]
pub(super) struct Path {
    pub(super) parameters: Vec<&'static Parameter>,
    pub(super) operations: BTreeMap<&'static str, Operation>,
}

/// One operation.
pub(super) struct Operation {
    pub(super) id: String,
    pub(super) action: &'static str,
    pub(super) description: String,
    pub(super) tag: String,
    pub(super) kind: GroupVersionKind,
    pub(super) parameters: Vec<&'static Parameter>,
    /// The definition of the body, and whether there must be one.
    pub(super) body: Option<(String, bool)>,
    pub(super) consumes: &'static [&'static str],
    pub(super) produces: &'static [&'static str],
    /// The definition of the answer with its status codes.
    pub(super) answer: Option<String>,
    pub(super) codes: &'static [(&'static str, &'static str)],
}

/// A parameter of a path or in the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: &'static str,
    pub(super) kind: &'static str,
    pub(super) description: &'static str,
}

const fn query(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: "query", kind, description }
}

const PRETTY: Parameter = query("pretty", "string", "If 'true', then the output is pretty printed.");
const NAME: Parameter =
    Parameter { name: "name", place: "path", kind: "string", description: "name of the object" };
const NAMESPACE: Parameter = Parameter {
    name: "namespace",
    place: "path",
    kind: "string",
    description: "object name and auth scope, such as for teams and projects",
};

const READ: &[Parameter] = &[
    query("labelSelector", "string", "Restricts the objects by their labels."),
    query("fieldSelector", "string", "Restricts the objects by their fields."),
    query("limit", "integer", "The most objects in one answer; `continue` gives the next ones."),
    query("continue", "string", "Where a former answer with a limit left off."),
    query("resourceVersion", "string", "From which resource version to read or watch."),
    query("resourceVersionMatch", "string", "How resourceVersion applies: Exact or NotOlderThan."),
    query("timeoutSeconds", "integer", "When the call ends, whether there was anything or not."),
    query("sendInitialEvents", "boolean", "Starts a watch with the objects that are there, and a bookmark."),
];
const WATCH: &[Parameter] = &[
    query("watch", "boolean", "Streams changes as add, update and remove notifications."),
    query("allowWatchBookmarks", "boolean", "Allows events of type BOOKMARK."),
];
const DRY_RUN: Parameter = query("dryRun", "string", "With 'All', nothing is persisted.");
const WRITE: &[Parameter] = &[
    DRY_RUN,
    query("fieldManager", "string", "Who makes the change, for the tracking of fields."),
    query(
        "fieldValidation",
        "string",
        "What happens to unknown and duplicate fields: Ignore, Warn or Strict.",
    ),
];
const FORCE: Parameter = query("force", "boolean", "Takes fields from other managers, in apply patches.");
const DELETE: &[Parameter] = &[
    DRY_RUN,
    query("gracePeriodSeconds", "integer", "Seconds before the object is deleted."),
    query("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    query("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
];
const LOG: &[Parameter] = &[
    query("container", "string", "The container whose log is wanted."),
    query("follow", "boolean", "Goes on while the container does."),
    query("limitBytes", "integer", "The most bytes."),
    query("previous", "boolean", "The log of the container's former run."),
    query("sinceSeconds", "integer", "Only what is younger."),
    query("tailLines", "integer", "Only so many lines, from the end."),
    query("timestamps", "boolean", "Adds a timestamp to each line."),
];

const ANY: &[&str] = &["*/*"];
const JSON: &[&str] = &["application/json", "application/yaml"];
const STREAM: &[&str] = &["application/json", "application/yaml", "application/json;stream=watch"];
const PLAIN: &[&str] = &["text/plain"];
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// Custom types have no strategic merge patch.
const CUSTOM_PATCHES: &[&str] =
    &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

const OK: (&str, &str) = ("200", "OK");
const CREATED: (&str, &str) = ("201", "Created");
const ACCEPTED: (&str, &str) = ("202", "Accepted");

/// What an operation of a verb is.
struct Verb {
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    /// What its identifier starts with.
    id: &'static str,
    parameters: &'static [&'static [Parameter]],
    codes: &'static [(&'static str, &'static str)],
}

const fn verb(
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    id: &'static str,
    parameters: &'static [&'static [Parameter]],
    codes: &'static [(&'static str, &'static str)],
) -> Verb {
    Verb { verb, method, action, id, parameters, codes }
}

/// Operations on all objects of a type, in a namespace or not.
const COLLECTION: &[Verb] = &[
    verb("list", "get", "list", "list", &[READ, WATCH], &[OK]),
    verb("create", "post", "post", "create", &[WRITE], &[OK, CREATED, ACCEPTED]),
    verb("deletecollection", "delete", "deletecollection", "deleteCollection", &[READ, DELETE], &[OK]),
];
/// Operations on one object or subresource.
const ITEM: &[Verb] = &[
    verb("get", "get", "get", "read", &[], &[OK]),
    verb("update", "put", "put", "replace", &[WRITE], &[OK, CREATED]),
    verb("patch", "patch", "patch", "patch", &[WRITE, &[FORCE]], &[OK, CREATED]),
    verb("delete", "delete", "delete", "delete", &[DELETE], &[OK, ACCEPTED]),
    verb("create", "post", "post", "create", &[WRITE], &[OK, CREATED, ACCEPTED]),
];

/// The paths of a type by their names.
pub(super) fn paths(ty: &ResourceType, paths: &mut BTreeMap<String, Path>) {
    let base = names::base_path(&ty.group, &ty.version);
    let scope = if ty.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{base}{scope}/{}", ty.plural);
    let is = |verb: &Verb, among: &[&str]| among.contains(&verb.verb);
    for verb in COLLECTION.iter().filter(|verb| is(verb, &ty.verbs)) {
        let scoped = if ty.namespaced { &[&NAMESPACE, &PRETTY][..] } else { &[&PRETTY] };
        add(paths, &collection, scoped, verb, operation(ty, verb, None));
    }
    if ty.namespaced && ty.verbs.contains(&"list") {
        let mut all = operation(ty, &COLLECTION[0], None);
        all.id = format!("list{}{}ForAllNamespaces", names::title(ty), ty.kind);
        add(paths, &format!("{base}/{}", ty.plural), &[&PRETTY], &COLLECTION[0], all);
    }
    let item = format!("{collection}/{{name}}");
    let named = if ty.namespaced { &[&NAME, &NAMESPACE, &PRETTY][..] } else { &[&NAME, &PRETTY] };
    for verb in ITEM.iter().filter(|verb| is(verb, &ty.verbs) && verb.verb != "create") {
        add(paths, &item, named, verb, operation(ty, verb, None));
    }
    for sub in &ty.subresources {
        for verb in ITEM.iter().filter(|verb| is(verb, &sub.verbs)) {
            add(paths, &format!("{item}/{}", sub.name), named, verb, operation(ty, verb, Some(sub)));
        }
    }
}

fn add(
    paths: &mut BTreeMap<String, Path>,
    name: &str,
    parameters: &[&'static Parameter],
    verb: &Verb,
    operation: Operation,
) {
    let path = paths.entry(name.to_owned()).or_default();
    path.parameters = parameters.to_vec();
    path.operations.insert(verb.method, operation);
}

fn operation(ty: &ResourceType, verb: &Verb, sub: Option<&Subresource>) -> Operation {
    let kind = sub.map_or_else(|| ty.gvk(), |sub| sub.kind.clone());
    let own = names::kind_definition(ty, &kind);
    let is_log = sub.is_some_and(|sub| sub.name == "log");
    let connects = sub.is_some_and(connects);
    let status = || format!("{META}Status");
    let body = match verb.method {
        _ if connects => None,
        "post" | "put" => Some((own.clone(), true)),
        "patch" => Some((format!("{META}Patch"), true)),
        "delete" => Some((format!("{META}DeleteOptions"), false)),
        _ => None,
    };
    let answer = match verb.action {
        "list" => names::list_definition(ty),
        "delete" | "deletecollection" => status(),
        _ => own,
    };
    let mut parameters: Vec<_> = verb.parameters.iter().flat_map(|list| list.iter()).collect();
    if connects {
        parameters.clear();
    }
    if is_log {
        parameters.extend(LOG);
    }
    Operation {
        id: id(ty, verb, sub),
        action: if connects { "connect" } else { verb.action },
        description: describe(ty, verb, sub),
        tag: names::tag(ty),
        kind,
        parameters,
        body,
        consumes: match verb.method {
            _ if connects => ANY,
            "patch" if ty.custom => CUSTOM_PATCHES,
            "patch" => PATCHES,
            _ => ANY,
        },
        produces: match verb.action {
            _ if connects => ANY,
            "list" => STREAM,
            _ if is_log => PLAIN,
            _ => JSON,
        },
        answer: (!is_log && !connects).then_some(answer),
        codes: if connects { &[OK] } else { verb.codes },
    }
}

/// Whether a subresource connects with something that is not kept here.
fn connects(sub: &Subresource) -> bool {
    sub.kind.kind.ends_with("Options")
}

/// `readCoreV1NamespacedPodStatus`, `connectCoreV1GetNamespacedPodExec`.
fn id(ty: &ResourceType, verb: &Verb, sub: Option<&Subresource>) -> String {
    if let Some(sub) = sub.filter(|sub| connects(sub)) {
        let (scope, method) = (if ty.namespaced { "Namespaced" } else { "" }, capital(verb.method));
        return format!("connect{}{method}{scope}{}{}", names::title(ty), ty.kind, capital(&sub.name));
    }
    let (verb, collection) = match verb.id {
        "deleteCollection" => ("delete", "Collection"),
        id => (id, ""),
    };
    let scope = if ty.namespaced { "Namespaced" } else { "" };
    let sub = sub.map(|sub| capital(&sub.name)).unwrap_or_default();
    format!("{verb}{}{collection}{scope}{}{sub}", names::title(ty), ty.kind)
}

fn describe(ty: &ResourceType, verb: &Verb, sub: Option<&Subresource>) -> String {
    let kind = &ty.kind;
    let of = sub.map(|sub| format!("{} of ", sub.name)).unwrap_or_default();
    if let Some(sub) = sub.filter(|sub| connects(sub)) {
        return format!("connect {} requests to {} of {kind}", verb.method.to_uppercase(), sub.name);
    }
    match verb.action {
        "list" => format!("list or watch objects of kind {kind}"),
        "post" => format!("create {of}a {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        "get" => format!("read {of}the specified {kind}"),
        "put" => format!("replace {of}the specified {kind}"),
        "patch" => format!("partially update {of}the specified {kind}"),
        _ => format!("delete a {kind}"),
    }
}
