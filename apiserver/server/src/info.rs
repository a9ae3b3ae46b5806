//! What a request asks for: verb, group, version, resource, namespace, name, subresource.
//!
//! The same reading as kube-apiserver's request info, because authorization rules are written against it.

use crate::query::Query;
use freehold_apiserver_authz::{Attributes, Selector, Selectors};
use freehold_machinery::User;
use http::Method;

/// The path of a plane's archive, within its context.
pub(crate) const ARCHIVE: &str = "/archive";

/// A request, read. For paths that are no resource's, `resource` is `None` and the verb is the method's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or a method in lower case.
    pub(crate) verb: String,
    /// The path within the context.
    pub(crate) path: String,
    /// Whether other servers could read that path differently, so that none is asked.
    pub(crate) odd: bool,
    /// What it is about, where it is a resource.
    pub(crate) resource: Option<ResourcePath>,
    /// Its field selector and its label selector, where they narrow it.
    pub(crate) selectors: [String; 2],
}

/// The verbs that selectors narrow.
const SELECTING: [&str; 3] = ["list", "watch", "deletecollection"];

/// The parts of a resource's path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ResourcePath {
    /// Empty for core.
    pub(crate) group: String,
    /// The version within the group.
    pub(crate) version: String,
    /// The namespace in the path, where it has a name. For the `namespaces` resource itself it is the object's name too, as in Kubernetes.
    pub(crate) namespace: Option<String>,
    /// Whether a namespace without a name stood in the path.
    pub(crate) nameless: bool,
    /// The plural resource.
    pub(crate) resource: String,
    /// The name in the path, or that a list or watch is confined to by its field selector.
    pub(crate) name: Option<String>,
    /// Whether `name` stood in the path.
    pub(crate) named: bool,
    /// The subresource.
    pub(crate) subresource: Option<String>,
    /// Whether more segments follow: nothing is served there.
    pub(crate) deeper: bool,
    /// Whether it came through the deprecated `/watch/` prefix.
    pub(crate) watch_prefix: bool,
}

const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];
const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

impl RequestInfo {
    /// Reads a decoded path. `None` for a `/watch/` or `/proxy/` prefix with nothing behind it.
    pub(crate) fn read(method: &Method, path: &str, query: &Query) -> Option<Self> {
        let mut info =
            Self { verb: method.as_str().to_ascii_lowercase(), path: path.to_owned(), ..Self::default() };
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, parts) = match parts[..] {
            ["api", version, ref rest @ ..] if !rest.is_empty() => ("", version, rest),
            ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (group, version, rest),
            _ => return Some(info),
        };
        let (parts, watch_prefix) = match parts {
            ["watch" | "proxy"] => return None,
            ["watch", rest @ ..] => (rest, true),
            _ => (parts, false),
        };
        let mut found = resource_path(parts);
        found.group = group.to_owned();
        found.version = version.to_owned();
        found.watch_prefix = watch_prefix;
        let asked = verb(method, &mut found, query);
        // What is not read there has no route.
        let watched = watch_prefix && matches!(asked, "get" | "list" | "watch");
        info.verb = if watched { "watch" } else { asked }.to_owned();
        // Watches of the deprecated prefix are of one object or of all.
        if !watch_prefix && SELECTING.contains(&info.verb.as_str()) {
            info.selectors = ["fieldSelector", "labelSelector"].map(|name| query.text(name).to_owned());
        }
        info.resource = Some(found);
        Some(info)
    }

    /// What authorization is asked about it.
    pub(crate) fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        let none = || Attributes { path: &self.path, ..Attributes::resource(user, &self.verb, "", "") };
        self.resource.as_ref().map_or_else(none, |resource| Attributes {
            user,
            verb: &self.verb,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.resource,
            subresource: resource.subresource.as_deref().unwrap_or(""),
            namespace: resource.namespace.as_deref().unwrap_or(""),
            name: resource.name.as_deref().unwrap_or(""),
            path: "",
            selectors: Selectors {
                fields: Selector::Text(&self.selectors[0]),
                labels: Selector::Text(&self.selectors[1]),
            },
        })
    }

    /// Whether it may go on for as long as the client wants.
    pub(crate) fn is_long_running(&self) -> bool {
        let sub = self.resource.as_ref().and_then(|r| r.subresource.as_deref());
        self.verb == "watch"
            || self.path == crate::info::ARCHIVE
            || sub.is_some_and(|s| LONG_RUNNING_SUBRESOURCES.contains(&s))
    }

    /// Whether it changes nothing, so that it counts against the read-only limit.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch" | "head" | "options")
    }
}

fn resource_path(parts: &[&str]) -> ResourcePath {
    let (namespace, parts) = match parts {
        ["namespaces", namespace, next, ..] if !NAMESPACE_SUBRESOURCES.contains(next) => {
            (Some((*namespace).to_owned()), &parts[2..])
        }
        ["namespaces", namespace, ..] => (Some((*namespace).to_owned()), parts),
        _ => (None, parts),
    };
    let part = |index: usize| parts.get(index).map(|p| (*p).to_owned());
    ResourcePath {
        nameless: namespace.as_deref() == Some(""),
        namespace: namespace.filter(|name| !name.is_empty()),
        resource: part(0).unwrap_or_default(),
        name: part(1),
        named: parts.len() > 1,
        subresource: part(2),
        deeper: parts.len() > 3 && parts[2] != "proxy",
        ..ResourcePath::default()
    }
}

fn verb(method: &Method, found: &mut ResourcePath, query: &Query) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if found.named => "delete",
        Method::DELETE => "deletecollection",
        Method::GET | Method::HEAD if found.named => "get",
        Method::GET | Method::HEAD => {
            found.name = exact_name(query.text("fieldSelector"));
            if query.flag("watch") == Some(true) { "watch" } else { "list" }
        }
        _ => "",
    }
}

/// The name that a field selector confines a list to.
fn exact_name(selector: &str) -> Option<String> {
    let term = |term: &str| {
        let rest = term.trim().strip_prefix("metadata.name=")?;
        let name = rest.strip_prefix('=').unwrap_or(rest);
        let usable = !name.is_empty() && !name.contains(['/', '%', '\\']) && name != "." && name != "..";
        usable.then(|| name.to_owned())
    };
    selector.split(',').find_map(term)
}

/// Paths of checks, as `kubernetes_healthcheck` names them.
pub(crate) const HEALTH: [&str; 3] = ["livez", "readyz", "healthz"];

/// Whether a path is one of health's.
pub(crate) fn is_health(path: &str) -> bool {
    path.split('/').nth(1).is_some_and(|root| HEALTH.contains(&root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_kube_apiserver_reads_it() {
        // method, path, query -> verb group/version namespace resource name subresource
        let rows = [
            ("GET", "/api/v1/namespaces", "", "list /v1 - namespaces - -"),
            ("GET", "/api/v1/namespaces/a", "", "get /v1 a namespaces a -"),
            ("PUT", "/api/v1/namespaces/a/finalize", "", "update /v1 a namespaces a finalize"),
            ("PATCH", "/api/v1/namespaces/a/status", "", "patch /v1 a namespaces a status"),
            ("GET", "/api/v1/namespaces/a/pods", "", "list /v1 a pods - -"),
            ("GET", "/api/v1/pods", "watch=1", "watch /v1 - pods - -"),
            ("GET", "/api/v1/pods", "watch=false", "list /v1 - pods - -"),
            (
                "GET",
                "/api/v1/namespaces/a/pods",
                "watch=true&fieldSelector=metadata.name%3Dx",
                "watch /v1 a pods x -",
            ),
            ("GET", "/api/v1/namespaces/a/pods", "fieldSelector=metadata.name=a/b", "list /v1 a pods - -"),
            ("GET", "/api/v1/namespaces/a/pods/x", "watch=1", "get /v1 a pods x -"),
            ("GET", "/api/v1/namespaces/a/pods/x/log", "", "get /v1 a pods x log"),
            ("POST", "/api/v1/namespaces/a/pods", "", "create /v1 a pods - -"),
            ("POST", "/api/v1/namespaces/a/pods/x/binding", "", "create /v1 a pods x binding"),
            ("DELETE", "/api/v1/namespaces/a/pods", "", "deletecollection /v1 a pods - -"),
            ("DELETE", "/api/v1/namespaces/a/pods/x", "", "delete /v1 a pods x -"),
            (
                "GET",
                "/apis/apps/v1/namespaces/a/deployments/x/scale",
                "",
                "get apps/v1 a deployments x scale",
            ),
            ("GET", "/apis/g.io/v1/widgets/x", "", "get g.io/v1 - widgets x -"),
            ("GET", "/api/v1/watch/namespaces/a/pods/x", "", "watch /v1 a pods x -"),
            ("HEAD", "/api/v1/pods", "", "list /v1 - pods - -"),
            ("GET", "/apis/apps/v1", "", "get /apis/apps/v1"),
            ("GET", "/api/v1", "", "get /api/v1"),
            ("GET", "/", "", "get /"),
            ("GET", "//api/v1/pods", "", "list /v1 - pods - -"),
            ("GET", "/api/v1/pods//", "", "list /v1 - pods - -"),
            ("GET", "/api/v1/namespaces//pods/x", "", "get /v1 - pods x -"),
            ("GET", "/api/v1/namespaces/a/pods//log", "", "get /v1 a pods  log"),
            ("GET", "/api/v1/namespaces/../pods/.", "", "get /v1 .. pods . -"),
            ("GET", "/apis//v1/pods", "", "list /v1 - pods - -"),
            ("POST", "/livez", "", "post /livez"),
        ];
        for (method, path, query, expected) in rows {
            let info = RequestInfo::read(&method.parse().unwrap(), path, &Query::parse(Some(query)).unwrap())
                .unwrap();
            let text = match &info.resource {
                None => format!("{} {}", info.verb, info.path),
                Some(r) => {
                    let or = |o: &Option<String>| o.clone().unwrap_or("-".into());
                    let (namespace, name, sub) = (or(&r.namespace), or(&r.name), or(&r.subresource));
                    format!("{} {}/{} {namespace} {} {name} {sub}", info.verb, r.group, r.version, r.resource)
                }
            };
            assert_eq!(text, expected, "{method} {path}?{query}");
        }
        for path in ["/api/v1/watch", "/apis/apps/v1/proxy/"] {
            assert_eq!(RequestInfo::read(&Method::GET, path, &Query::default()), None, "{path}");
        }
    }
}
