//! The operations of a document, in a form from which both versions of OpenAPI are written.

use super::{
    names::{self, META, capital},
    parameters::{self, Parameter},
};
use freehold_machinery::{GroupVersionKind, ResourceType, resource::Subresource};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A path with its operations by method.
#[derive(Default)]
pub(super) struct Path {
    /// Those that all of its operations have.
    pub(super) parameters: Vec<Arc<Parameter>>,
    pub(super) operations: BTreeMap<&'static str, Operation>,
}

/// One operation.
pub(super) struct Operation {
    pub(super) id: String,
    /// Empty for what is no resource's.
    pub(super) action: &'static str,
    pub(super) description: String,
    pub(super) tag: String,
    /// `None` for what is no resource's.
    pub(super) kind: Option<GroupVersionKind>,
    pub(super) parameters: Vec<Arc<Parameter>>,
    /// The definition of the body, and whether there must be one.
    pub(super) body: Option<(String, bool)>,
    pub(super) consumes: &'static [&'static str],
    pub(super) produces: &'static [&'static str],
    /// The definition of the answer, which is text without one, with its status codes.
    pub(super) answer: Option<String>,
    pub(super) codes: &'static [(&'static str, &'static str)],
}

const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager@patch", "fieldValidation", "force"];
const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const DELETE_ALL: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];
/// Custom types' options of deletions of all objects are those of lists.
const CUSTOM_DELETE_ALL: &[&str] = LIST;
const LOG: &[&str] = &[
    "container@log",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
];

const ANY: &[&str] = &["*/*"];
const JSON: &[&str] = &["application/json"];
const TEXTS: &[&str] = &["application/json", "application/yaml"];
const ALL: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAM: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PLAIN: &[&str] =
    &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
/// Custom types have no strategic merge patch.
const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

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
    parameters: &'static [&'static str],
    codes: &'static [(&'static str, &'static str)],
}

const fn verb(
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    id: &'static str,
    parameters: &'static [&'static str],
    codes: &'static [(&'static str, &'static str)],
) -> Verb {
    Verb { verb, method, action, id, parameters, codes }
}

/// Operations on all objects of a type, in a namespace or not.
const COLLECTION: &[Verb] = &[
    verb("list", "get", "list", "list", LIST, &[OK]),
    verb("create", "post", "post", "create", WRITE, &[OK, CREATED, ACCEPTED]),
    verb("deletecollection", "delete", "deletecollection", "deleteCollection", DELETE_ALL, &[OK]),
];
/// Operations on one object or subresource.
const ITEM: &[Verb] = &[
    verb("get", "get", "get", "read", &[], &[OK]),
    verb("update", "put", "put", "replace", WRITE, &[OK, CREATED]),
    verb("patch", "patch", "patch", "patch", PATCH, &[OK, CREATED]),
    verb("delete", "delete", "delete", "delete", DELETE, &[OK, ACCEPTED]),
    verb("create", "post", "post", "create", WRITE, &[OK, CREATED, ACCEPTED]),
];
/// Watches by a path of their own.
const WATCH: Verb = verb("watch", "get", "watch", "watch", LIST, &[OK]);
const WATCH_LIST: Verb = verb("watch", "get", "watchlist", "watch", LIST, &[OK]);
/// What goes through a proxy beyond the verbs.
const PROXIED: &[Verb] = &[
    verb("", "head", "connect", "connect", &[], &[OK]),
    verb("", "options", "connect", "connect", &[], &[OK]),
];

/// Which objects a path is about.
#[derive(Clone, Copy)]
enum Scope {
    /// All there are, whatever their namespaces.
    All,
    /// The objects of a namespace, or of a cluster-scoped type.
    Some,
    One,
}

/// All paths of a document: those of its types, and of what is told of their groups and versions.
pub(super) fn of(types: &[Arc<ResourceType>]) -> BTreeMap<String, Path> {
    let mut paths = BTreeMap::new();
    types.iter().for_each(|ty| of_type(ty, &mut paths));
    let builtin = types.iter().filter(|ty| !ty.custom);
    for base in builtin.map(|ty| names::base_path(&ty.group, &ty.version)).collect::<BTreeSet<_>>() {
        discovery(&base[1..], &mut paths);
    }
    paths.values_mut().for_each(hoist);
    paths
}

/// The path of what is told of a group and version, of a group, of all of them, or of the server: `apis/apps/v1`,
/// `apis/apps`, `apis`, `version`.
pub(super) fn of_discovery(path: &str) -> BTreeMap<String, Path> {
    let mut paths = BTreeMap::new();
    discovery(path, &mut paths);
    paths
}

fn of_type(ty: &ResourceType, paths: &mut BTreeMap<String, Path>) {
    let base = names::base_path(&ty.group, &ty.version);
    let namespace = if ty.namespaced { "/namespaces/{namespace}" } else { "" };
    let has = |verb: &Verb| ty.verbs.contains(&verb.verb);
    let collection = format!("{base}{namespace}/{}", ty.plural);
    let item = format!("{collection}/{{name}}");
    for verb in COLLECTION.iter().filter(|verb| has(verb)) {
        add(paths, &collection, verb, operation(ty, verb, Scope::Some, None));
    }
    let everywhere = format!("{base}/{}", ty.plural);
    if ty.namespaced && has(&COLLECTION[0]) {
        add(paths, &everywhere, &COLLECTION[0], operation(ty, &COLLECTION[0], Scope::All, None));
    }
    for verb in ITEM.iter().filter(|verb| has(verb) && verb.verb != "create") {
        add(paths, &item, verb, operation(ty, verb, Scope::One, None));
    }
    if has(&WATCH) && !ty.custom {
        let watched = |path: &str| path.replacen(&base, &format!("{base}/watch"), 1);
        add(paths, &watched(&collection), &WATCH_LIST, operation(ty, &WATCH_LIST, Scope::Some, None));
        add(paths, &watched(&item), &WATCH, operation(ty, &WATCH, Scope::One, None));
        if ty.namespaced {
            add(paths, &watched(&everywhere), &WATCH_LIST, operation(ty, &WATCH_LIST, Scope::All, None));
        }
    }
    for sub in &ty.subresources {
        let path = format!("{item}/{}", sub.name);
        let proxied = if sub.name == "proxy" { PROXIED } else { &[] };
        for verb in ITEM.iter().filter(|verb| sub.verbs.contains(&verb.verb)).chain(proxied) {
            add(paths, &path, verb, operation(ty, verb, Scope::One, Some(sub)));
            if sub.name == "proxy" {
                let mut rest = operation(ty, verb, Scope::One, Some(sub));
                rest.id.push_str("WithPath");
                rest.parameters.extend(parameters::all(&["path@rest"]));
                add(paths, &format!("{path}/{{path}}"), verb, rest);
            }
        }
    }
}

fn add(paths: &mut BTreeMap<String, Path>, name: &str, verb: &Verb, operation: Operation) {
    paths.entry(name.to_owned()).or_default().operations.insert(verb.method, operation);
}

/// Moves to the path what all of its operations have, and sorts what is left by name, as kube-openapi does.
fn hoist(path: &mut Path) {
    let Some(first) = path.operations.values().next() else { return };
    let is_common =
        |parameter: &Arc<Parameter>| path.operations.values().all(|op| op.parameters.contains(parameter));
    path.parameters = first.parameters.iter().filter(|parameter| is_common(parameter)).cloned().collect();
    for operation in path.operations.values_mut() {
        operation.parameters.retain(|parameter| !path.parameters.contains(parameter));
        operation.parameters.sort_by(|a, b| a.name().cmp(b.name()));
    }
    // Of two with one name, that in the path comes first.
    path.parameters.sort_by(|a, b| a.name().cmp(b.name()).then(a.place.cmp(&b.place)));
}

fn operation(ty: &ResourceType, verb: &Verb, scope: Scope, sub: Option<&Subresource>) -> Operation {
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
        "watch" | "watchlist" => format!("{META}WatchEvent"),
        "delete" if is_answered(ty) => own,
        "delete" | "deletecollection" => status(),
        _ => own,
    };
    Operation {
        id: id(ty, verb, scope, sub),
        action: if connects { "connect" } else { verb.action },
        description: describe(ty, verb, sub),
        tag: names::tag(ty),
        parameters: parameters_of(ty, verb, scope, sub),
        // The body of a deletion of all custom objects is not told.
        body: body.filter(|_| !(ty.custom && verb.action == "deletecollection")),
        consumes: match verb.method {
            _ if connects => ANY,
            "patch" if ty.custom => CUSTOM_PATCHES,
            "patch" => PATCHES,
            _ if ty.custom => TEXTS,
            _ => ANY,
        },
        produces: match verb.action {
            _ if connects => ANY,
            _ if ty.custom => TEXTS,
            "list" | "watch" | "watchlist" => STREAM,
            _ if is_log => PLAIN,
            _ => ALL,
        },
        answer: (!is_log && !connects).then_some(answer),
        codes: match verb.method {
            _ if connects => &[OK],
            "patch" if ty.custom => &[OK],
            _ => verb.codes,
        },
        // What a custom type's scale speaks is told by its body alone.
        kind: Some(if ty.custom { ty.gvk() } else { kind }),
    }
}

/// Kinds of which a deletion answers with the object.
const ANSWERED: [(&str, &[&str]); 3] = [
    (
        "",
        &[
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ResourceQuota",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("resource.k8s.io", &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"]),
    (
        "storage.k8s.io",
        &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"],
    ),
];

fn is_answered(ty: &ResourceType) -> bool {
    !ty.custom
        && ANSWERED.iter().any(|(group, kinds)| *group == ty.group && kinds.contains(&ty.kind.as_str()))
}

fn parameters_of(
    ty: &ResourceType,
    verb: &Verb,
    scope: Scope,
    sub: Option<&Subresource>,
) -> Vec<Arc<Parameter>> {
    let connects = sub.is_some_and(connects);
    let own = match (verb.action, sub) {
        (_, Some(sub)) if connects => connected(&sub.kind.kind),
        (_, Some(sub)) if sub.name == "log" => LOG,
        ("deletecollection", _) if ty.custom => CUSTOM_DELETE_ALL,
        ("get", _) if ty.custom => &["resourceVersion"],
        _ => verb.parameters,
    };
    let mut all = parameters::all(own);
    if !connects {
        all.extend(parameters::all(&["pretty"]));
    }
    if ty.namespaced && !matches!(scope, Scope::All) {
        all.extend(parameters::all(&["namespace"]));
    }
    if matches!(scope, Scope::One) {
        let kind = sub.map_or(&ty.kind, |sub| &sub.kind.kind);
        all.push(parameters::object_name(if ty.custom { &ty.kind } else { kind }));
    }
    all
}

/// The parameters of a connection by the kind of its options.
fn connected(kind: &str) -> &'static [&'static str] {
    match kind {
        "PodExecOptions" => {
            &["command", "container@exec", "stderr@exec", "stdin@exec", "stdout@exec", "tty@exec"]
        }
        "PodAttachOptions" => {
            &["container@attach", "stderr@attach", "stdin@attach", "stdout@attach", "tty@attach"]
        }
        "PodPortForwardOptions" => &["ports"],
        "PodProxyOptions" => &["path@pod"],
        "ServiceProxyOptions" => &["path@service"],
        "NodeProxyOptions" => &["path@node"],
        _ => &[],
    }
}

/// Whether a subresource connects with something that is not kept here.
fn connects(sub: &Subresource) -> bool {
    sub.kind.kind.ends_with("Options")
}

/// `readCoreV1NamespacedPodStatus`, `connectCoreV1GetNamespacedPodExec`.
fn id(ty: &ResourceType, verb: &Verb, scope: Scope, sub: Option<&Subresource>) -> String {
    let namespaced = if ty.namespaced && !matches!(scope, Scope::All) { "Namespaced" } else { "" };
    let title = names::title(ty);
    if let Some(sub) = sub.filter(|sub| connects(sub)) {
        return format!(
            "connect{title}{}{namespaced}{}{}",
            capital(verb.method),
            ty.kind,
            capital(&sub.name)
        );
    }
    let (start, collection) = match verb.id {
        "deleteCollection" => ("delete", "Collection"),
        id => (id, ""),
    };
    let sub = sub.map(|sub| capital(&sub.name)).unwrap_or_default();
    let list = if verb.action == "watchlist" { "List" } else { "" };
    let everywhere = if matches!(scope, Scope::All) { "ForAllNamespaces" } else { "" };
    format!("{start}{title}{collection}{namespaced}{}{sub}{list}{everywhere}", ty.kind)
}

fn describe(ty: &ResourceType, verb: &Verb, sub: Option<&Subresource>) -> String {
    let kind = &ty.kind;
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    let of = sub.map(|sub| format!("{} of ", sub.name)).unwrap_or_default();
    if let Some(sub) = sub.filter(|sub| connects(sub)) {
        return format!("connect {} requests to {} of {kind}", verb.method.to_uppercase(), sub.name);
    }
    match verb.action {
        "list" if ty.custom => format!("list objects of kind {kind}"),
        "list" => format!("list or watch objects of kind {kind}"),
        "post" => format!("create {of}{article} {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        "get" => format!("read {of}the specified {kind}"),
        "put" => format!("replace {of}the specified {kind}"),
        "patch" => format!("partially update {of}the specified {kind}"),
        "watch" => format!(
            "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list operation \
             instead, filtered to a single item with the 'fieldSelector' parameter."
        ),
        "watchlist" => format!(
            "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a list operation \
             instead."
        ),
        _ => format!("delete {article} {kind}"),
    }
}

/// What is told of the server, at these paths: the identifier of the operation, its tag, its description, what it
/// answers (text where nothing), and as what.
const SERVER: [(&str, [&str; 4], &[&str]); 3] = [
    (
        "version",
        ["getCodeVersion", "version", "get the version information for this server", "version.Info"],
        JSON,
    ),
    (
        ".well-known/openid-configuration",
        [
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            "",
        ],
        JSON,
    ),
    (
        "openid/v1/jwks",
        [
            "getServiceAccountIssuerOpenIDKeyset",
            "openid",
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            "",
        ],
        &["application/jwk-set+json"],
    ),
];

/// The paths at which something is told of the server.
pub(super) fn server_paths() -> impl Iterator<Item = &'static str> {
    SERVER.iter().map(|(path, ..)| *path)
}

fn discovery(path: &str, paths: &mut BTreeMap<String, Path>) {
    let segments: Vec<&str> = path.split('/').collect();
    let told = |id: String, tag: String, description: &str, answer: &str, types: &'static [&'static str]| {
        Operation {
            id,
            action: "",
            description: description.to_owned(),
            tag,
            kind: None,
            parameters: Vec::new(),
            body: None,
            consumes: if answer.is_empty() { &[] } else { types },
            produces: types,
            answer: (!answer.is_empty()).then(|| {
                let meta = META.strip_prefix("io.k8s.apimachinery.pkg.").filter(|_| !answer.contains('.'));
                format!("io.k8s.apimachinery.pkg.{}{answer}", meta.unwrap_or_default())
            }),
            codes: &[OK],
        }
    };
    let operation = match segments[..] {
        ["api"] => {
            told("getCoreAPIVersions".into(), "core".into(), "get available API versions", "APIVersions", ALL)
        }
        ["apis"] => {
            told("getAPIVersions".into(), "apis".into(), "get available API versions", "APIGroupList", ALL)
        }
        ["apis", group] => {
            let title = names::group_title(group);
            let id = format!("get{title}APIGroup");
            told(id, names::uncapital(&title), "get information of a group", "APIGroup", ALL)
        }
        ["api", version] => resources("", version, told),
        ["apis", group, version] => resources(group, version, told),
        _ => {
            let Some((_, [id, tag, description, answer], types)) =
                SERVER.iter().find(|(known, ..)| *known == path)
            else {
                return;
            };
            told((*id).to_owned(), (*tag).to_owned(), description, answer, types)
        }
    };
    let path = paths.entry(format!("/{path}/")).or_default();
    path.operations.insert("get", operation);
}

fn resources(
    group: &str,
    version: &str,
    told: impl Fn(String, String, &str, &str, &'static [&'static str]) -> Operation,
) -> Operation {
    let title = names::group_title(group);
    let id = format!("get{title}{}APIResources", capital(version));
    let tag = format!("{}_{version}", names::uncapital(&title));
    told(id, tag, "get available resources", "APIResourceList", ALL)
}
