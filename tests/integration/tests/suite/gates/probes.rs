//! The writes that a server shows: each verb of each resource and subresource, as a request that changes nothing.

use crate::{items, text};
use freehold_tests_integration::{Answer, Http};
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Verbs that write, and how they are asked.
const VERBS: [(&str, Method, &str); 5] = [
    ("create", Method::POST, "application/json"),
    ("update", Method::PUT, "application/json"),
    ("patch", Method::PATCH, "application/merge-patch+json"),
    ("delete", Method::DELETE, "application/json"),
    ("deletecollection", Method::DELETE, "application/json"),
];
/// Subresources that connect, whatever the verb.
const CONNECTS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
/// What is written at no resource: the router's own paths.
pub(super) const PATHS: [(&str, Method, &str); 10] = [
    ("/archive", Method::POST, "create"),
    ("/archive", Method::GET, "get"),
    ("/layers/gate", Method::PUT, "update"),
    ("/layers/gate", Method::DELETE, "delete"),
    ("/stack", Method::PUT, "update"),
    ("/classes/gate", Method::PUT, "update"),
    ("/encryption/rotate", Method::POST, "create"),
    ("/backup", Method::GET, "get"),
    ("/pair", Method::GET, "get"),
    ("/", Method::DELETE, "delete"),
];
/// The group and version that an APIService of the objects leads elsewhere.
pub(super) const AGGREGATED: &str = "gate.example.com/v1";

/// A write that is tried.
#[derive(Clone)]
pub(super) struct Probe {
    /// `group/version/resource[/subresource]`, or a path.
    route: String,
    verb: &'static str,
    method: Method,
    content_type: &'static str,
    path: String,
    body: Value,
    /// The key of a ResourceQuota that counts it.
    counted: Option<String>,
    /// The version and kind of what it makes, which can claim allowances.
    claims: Option<(String, String)>,
    /// Whether an extension server answers it, which admits what it keeps.
    is_remote: bool,
}

impl Probe {
    /// What names it.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.route, self.verb)
    }

    /// Whether it is tried at a gate: what belongs to no resource is not let through, as there is no trying it.
    pub(super) fn is_tried_at(&self, gate: &str) -> bool {
        match gate {
            "authorization" | "suspension" => true,
            "quota" => self.counted.is_some(),
            "allowances" => self.claims.is_some(),
            _ => !self.route.starts_with('/') && !self.is_remote,
        }
    }

    /// Sends it, marked for the audit log.
    pub(super) fn send(&self, http: &Http, way: &str) -> Answer {
        let start = if self.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{start}dryRun=All&probe={}", self.path, mark(way, &self.label()));
        let send = |body: &Value| http.send(self.method.clone(), &path, self.content_type, body.to_string());
        let answer = send(&self.body);
        if answer.code != 409 || self.verb != "update" || !self.route.starts_with("core/v1/nodes") {
            return answer;
        }
        // A controller has tainted the Node, which nobody keeps alive, since it was read.
        send(&http.get(&self.path).body)
    }
}

/// By what a request is found in the audit log.
pub(super) fn mark(way: &str, label: &str) -> String {
    format!("{way}.{label}").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '.' }).collect()
}

/// Labels as lines: each route once, with its verbs.
pub(super) fn joined(labels: Vec<String>) -> Vec<String> {
    let mut routes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for label in labels {
        let (route, verb) = label.split_once(' ').unwrap_or((&label, ""));
        routes.entry(route.to_owned()).or_default().push(verb.to_owned());
    }
    routes.into_iter().map(|(route, verbs)| format!("{route} {}", verbs.join(" "))).collect()
}

/// The keys of a ResourceQuota that counts whatever can be made.
pub(super) fn counted(probes: &[Probe]) -> impl Iterator<Item = String> {
    probes.iter().filter_map(|probe| probe.counted.clone())
}

/// The versions and kinds of all that can be made, each once.
pub(super) fn claiming(probes: &[Probe]) -> BTreeSet<(String, String)> {
    probes.iter().filter_map(|probe| probe.claims.clone()).collect()
}

/// Writes of what an extension server keeps.
fn aggregated(namespace: &str) -> impl Iterator<Item = Probe> {
    let place = format!("/apis/{AGGREGATED}/namespaces/{namespace}/things");
    let gets = [("get", Method::GET, "application/json")];
    VERBS.into_iter().chain(gets).map(move |(verb, method, content_type)| Probe {
        route: format!("{AGGREGATED}/things"),
        verb,
        method,
        content_type,
        path: if matches!(verb, "create" | "deletecollection") {
            place.clone()
        } else {
            format!("{place}/gate")
        },
        body: json!({}),
        counted: None,
        claims: None,
        is_remote: true,
    })
}

/// Finds the writes that are shown somewhere.
pub(super) struct Probes<'a> {
    /// Asked for what is served, and for objects.
    pub(super) inside: &'a Http,
    /// The namespace of objects.
    pub(super) namespace: &'a str,
    /// Whether it is an organization's view: of what is its projects', nothing can be written.
    pub(super) is_view: bool,
}

impl Probes<'_> {
    /// All of them.
    pub(super) fn all(&self) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (group, version, list) in self.documents() {
            let resources: Vec<&Value> = list["resources"].as_array().into_iter().flatten().collect();
            for resource in &resources {
                let name = text(resource, "/name");
                let parent = name.split('/').next().unwrap_or_default();
                let Some(main) = resources.iter().find(|main| text(main, "/name") == parent) else {
                    continue;
                };
                let at = At {
                    group: &group,
                    version: &version,
                    namespaced: main["namespaced"] == true,
                    plural: parent,
                };
                if !self.is_view || self.is_of_core(&at) {
                    self.of(&at, resource, &mut probes);
                }
            }
        }
        // An organization's view has none of them.
        let paths = if self.is_view { &PATHS[..0] } else { &PATHS[..] };
        if !self.is_view && !self.namespace.starts_with("organization-") {
            probes.extend(aggregated(self.namespace));
        }
        probes.extend(paths.iter().map(|(path, method, verb)| Probe {
            route: (*path).to_owned(),
            verb,
            method: method.clone(),
            content_type: "application/json",
            path: (*path).to_owned(),
            body: json!({}),
            counted: None,
            claims: None,
            is_remote: false,
        }));
        probes
    }

    fn documents(&self) -> Vec<(String, String, Value)> {
        let mut found = vec![(String::new(), "v1".to_owned(), self.inside.get("/api/v1").body)];
        for group in self.inside.get("/apis").body["groups"].as_array().into_iter().flatten() {
            // Shared control planes alone have objects of shared APIs that a write could be about.
            let shared = "/apis/apis.freehold.dev/v1alpha1/apibindings/gate";
            if group["name"] == "apis.freehold.dev" && self.inside.get(shared).code != 200 {
                continue;
            }
            for version in group["versions"].as_array().into_iter().flatten() {
                let at = text(version, "/groupVersion");
                let list = self.inside.get(&format!("/apis/{at}")).body;
                let (group, version) = at.split_once('/').unwrap_or_default();
                found.push((group.to_owned(), version.to_owned(), list));
            }
        }
        found
    }

    fn is_of_core(&self, at: &At<'_>) -> bool {
        at.namespaced || matches!(at.plural, "organizations" | "projects")
    }

    fn of(&self, at: &At<'_>, resource: &Value, probes: &mut Vec<Probe>) {
        let name = text(resource, "/name");
        let subresource = name.split_once('/').map(|(_, sub)| sub);
        let connects = subresource.is_some_and(|sub| CONNECTS.contains(&sub));
        let has =
            |verb: &str| resource["verbs"].as_array().is_some_and(|all| all.iter().any(|own| own == verb));
        let live = self.live(at);
        for (verb, method, content_type) in VERBS {
            if !has(verb) {
                continue;
            }
            let collection = matches!(verb, "create" | "deletecollection") && subresource.is_none();
            let own = text(&live, "/metadata/name");
            assert!(
                collection && verb == "create" || !own.is_empty(),
                "no object of {}/{}: tests/integration/gate-objects.yaml needs one",
                at.group,
                at.plural
            );
            let place = at.collection(self.namespace);
            let path = match (collection, subresource) {
                (true, _) if verb == "create" => place,
                (true, _) => format!("{place}?fieldSelector=metadata.name%3D{own}"),
                (false, None) => format!("{place}/{own}"),
                (false, Some(sub)) => format!("{place}/{own}/{sub}"),
            };
            let body = match verb {
                _ if connects => json!({}),
                "create" if subresource.is_some() => posted(resource, own),
                "create" => at.created(resource, &live),
                "update" if has("get") => self.inside.get(&path).body,
                "update" => live.clone(),
                "patch" => json!({"metadata": {"annotations": {"gate": "tried"}}}),
                _ => json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}),
            };
            let is_counted = verb == "create" && subresource.is_none() && at.namespaced && has("list");
            let key = if at.group.is_empty() {
                format!("count/{}", at.plural)
            } else {
                format!("count/{}.{}", at.plural, at.group)
            };
            probes.push(Probe {
                route: format!(
                    "{}/{}/{name}",
                    if at.group.is_empty() { "core" } else { at.group },
                    at.version
                ),
                verb,
                method,
                content_type: if connects { "application/json" } else { content_type },
                path,
                body,
                counted: is_counted.then_some(key),
                claims: (verb == "create" && subresource.is_none() && has("list")).then(|| at.kind(resource)),
                is_remote: false,
            });
        }
        if connects && has("get") {
            let place = at.collection(self.namespace);
            probes.push(Probe {
                route: format!("core/{}/{name}", at.version),
                verb: "get",
                method: Method::GET,
                content_type: "application/json",
                path: format!(
                    "{place}/{}/{}",
                    text(&live, "/metadata/name"),
                    subresource.unwrap_or_default()
                ),
                body: Value::Null,
                counted: None,
                claims: None,
                is_remote: false,
            });
        }
    }

    /// An object that is there.
    fn live(&self, at: &At<'_>) -> Value {
        let list = self.inside.get(&at.collection(self.namespace)).body;
        let named = |part: &'static str| move |item: &&Value| text(item, "/metadata/name").contains(part);
        let found =
            ["gate", "walls", "192.0.2.1", ""].into_iter().find_map(|part| items(&list).find(named(part)));
        let mut found = found.cloned().unwrap_or_default();
        if found.is_object() {
            found["kind"] = text(&list, "/kind").trim_end_matches("List").into();
            found["apiVersion"] = list["apiVersion"].clone();
        }
        found
    }
}

/// Where a resource is served.
struct At<'a> {
    group: &'a str,
    version: &'a str,
    namespaced: bool,
    plural: &'a str,
}

impl At<'_> {
    fn collection(&self, namespace: &str) -> String {
        let Self { group, version, plural, .. } = self;
        let start =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match self.namespaced {
            true => format!("{start}/namespaces/{namespace}/{plural}"),
            false => format!("{start}/{plural}"),
        }
    }

    /// The version and kind of its objects.
    fn kind(&self, resource: &Value) -> (String, String) {
        let Self { group, version, .. } = self;
        let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
        (api_version, text(resource, "/kind").to_owned())
    }

    /// An object that could be made: another one like that which is there, or a question.
    fn created(&self, resource: &Value, live: &Value) -> Value {
        if live.is_null() {
            let mut asked = posted(resource, "gate");
            asked["spec"] = json!({"namespace": "walls", "user": "u", "token": "t",
                "nonResourceAttributes": {"verb": "get", "path": "/"}});
            return asked;
        }
        let (name, namespace) = (text(live, "/metadata/name"), live["metadata"].get("namespace").cloned());
        let mut other: Value =
            serde_json::from_str(&live.to_string().replace("gate", "door").replace("192.0.2.1", "192.0.2.9"))
                .expect("JSON");
        let renamed = text(&other, "/metadata/name").to_owned();
        let renamed = if renamed == name { format!("{name}-door") } else { renamed };
        other["metadata"] = json!({"name": renamed});
        if let Some(namespace) = namespace {
            other["metadata"]["namespace"] = namespace;
        }
        other.as_object_mut().expect("an object").remove("status");
        if let Some(spec) = other["spec"].as_object_mut() {
            for field in ["clusterIP", "clusterIPs", "volumeName", "tokenHash"] {
                spec.remove(field);
            }
            if self.plural == "jobs" {
                spec.remove("selector");
                spec["template"]["metadata"] = json!({});
            }
        }
        other
    }
}

/// What is posted to a subresource, or asked by a review.
fn posted(resource: &Value, name: &str) -> Value {
    let kind = text(resource, "/kind");
    let api_version = match (text(resource, "/group"), text(resource, "/version")) {
        (_, "") => None,
        ("", version) => Some(version.to_owned()),
        (group, version) => Some(format!("{group}/{version}")),
    };
    let mut object = json!({"kind": kind, "metadata": {"name": name}});
    if let Some(version) = api_version {
        object["apiVersion"] = version.into();
    }
    match kind {
        "Binding" => object["target"] = json!({"apiVersion": "v1", "kind": "Node", "name": "gate"}),
        "TokenRequest" => object["spec"] = json!({}),
        _ => {}
    }
    object
}
