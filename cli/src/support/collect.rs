//! What is asked of servers, and what becomes of the answers.

use super::redact;
use freehold_client::{Client, ListOptions, RawRequest, Resource};
use freehold_machinery::{Value, meta};
use serde_json::json;
use std::{collections::BTreeMap, fmt::Display, path::Path};

const PODS: Resource = Resource::namespaced("", "v1", "pods");
/// What is collected of a cluster that pairs run on, besides Secrets' names.
const INFRA: [(&str, Resource); 7] = [
    ("namespaces", Resource::cluster("", "v1", "namespaces")),
    ("pods", PODS),
    ("services", Resource::namespaced("", "v1", "services")),
    ("deployments", Resource::namespaced("apps", "v1", "deployments")),
    ("networkpolicies", Resource::namespaced("networking.k8s.io", "v1", "networkpolicies")),
    ("poddisruptionbudgets", Resource::namespaced("policy", "v1", "poddisruptionbudgets")),
    (
        "projectcontrolplanes",
        Resource::cluster("infrastructure.freehold.dev", "v1alpha1", "projectcontrolplanes"),
    ),
];
const EVENTS: Resource = Resource::namespaced("events.k8s.io", "v1", "events");
/// How names of groups end whose kinds are Freehold's.
const GROUPS: &str = ".freehold.dev";
/// How the names of namespaces of pairs begin.
const PAIRS: &str = "project-";
/// Lines of the log of a container.
const LINES: u32 = 2000;

/// Files that are collected, and what could not be.
#[derive(Default)]
pub(super) struct Bundle {
    files: BTreeMap<String, String>,
    errors: Vec<String>,
}

/// A cluster that pairs run on.
pub(super) struct Cluster<'a> {
    pub(super) client: Client,
    /// The namespace of the chart's release, where it is on that cluster.
    pub(super) release: Option<&'a str>,
    pub(super) limit: u64,
}

impl Cluster<'_> {
    fn is_ours(&self, namespace: &str) -> bool {
        namespace.starts_with(PAIRS) || self.release == Some(namespace)
    }
}

impl Bundle {
    /// Adds a text, without credentials.
    pub(super) fn add(&mut self, name: &str, text: &str) {
        self.files.insert(name.to_owned(), redact::text(text));
    }

    fn add_json(&mut self, name: &str, mut value: Value) {
        redact::object(&mut value);
        self.files.insert(name.to_owned(), format!("{value:#}\n"));
    }

    fn failed(&mut self, what: &str, error: impl Display) {
        self.errors.push(redact::text(&format!("{what}: {error}")));
    }

    pub(super) async fn versions(&mut self, core: &Client) {
        let server =
            core.get_path("/version").await.unwrap_or_else(|error| json!({"error": error.to_string()}));
        let client = crate::version::client();
        self.add_json("versions.json", json!({"clientVersion": client, "serverVersion": server}));
    }

    /// The server's health and metrics.
    pub(super) async fn server(&mut self, core: &Client) {
        let paths = [
            ("health/livez.txt", "/livez?verbose"),
            ("health/readyz.txt", "/readyz?verbose"),
            ("metrics.txt", "/metrics"),
        ];
        for (name, path) in paths {
            self.page(name, core, path).await;
        }
    }

    async fn page(&mut self, name: &str, client: &Client, path: &str) {
        match client.once(&RawRequest::get(path)).await {
            Ok(answer) => self.add(name, &String::from_utf8_lossy(&answer.body)),
            Err(error) => self.failed(path, error),
        }
    }

    /// The objects of Freehold's own kinds, by what the server says that it serves.
    pub(super) async fn freehold_kinds(&mut self, core: &Client, limit: u64) {
        let groups = match core.get_path("/apis").await {
            Ok(groups) => groups,
            Err(error) => return self.failed("/apis", error),
        };
        let versions = groups["groups"].as_array().into_iter().flatten();
        let versions = versions.filter_map(|group| group["preferredVersion"]["groupVersion"].as_str());
        let ours =
            versions.filter(|version| version.split('/').next().is_some_and(|group| group.ends_with(GROUPS)));
        for version in ours {
            let path = format!("/apis/{version}");
            match core.get_path(&path).await {
                Ok(list) => self.kinds_of(core, &path, &list, limit).await,
                Err(error) => self.failed(&path, error),
            }
        }
    }

    async fn kinds_of(&mut self, core: &Client, path: &str, list: &Value, limit: u64) {
        let can_list = |resource: &&Value| {
            resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"))
        };
        let group = path.split('/').nth(2).unwrap_or_default();
        for resource in list["resources"].as_array().into_iter().flatten().filter(can_list) {
            let Some(name) = resource["name"].as_str().filter(|name| !name.contains('/')) else { continue };
            match core.get_path(&format!("{path}/{name}?limit={limit}")).await {
                Ok(found) => self.list(&format!("objects/{group}/{name}.json"), found),
                Err(error) => self.failed(&format!("{path}/{name}"), error),
            }
        }
    }

    fn list(&mut self, name: &str, mut list: Value) {
        for item in list["items"].as_array_mut().into_iter().flatten() {
            redact::object(item);
        }
        self.add_json(name, list);
    }

    pub(super) async fn events(&mut self, name: &str, client: &Client, limit: u64) {
        match client.get_path(&format!("{}?limit={limit}", EVENTS.collection_path(None))).await {
            Ok(found) => self.list(name, found),
            Err(error) => self.failed(name, error),
        }
    }

    /// Objects of pairs and of the chart's release, their events, and logs of their Pods.
    pub(super) async fn cluster(&mut self, cluster: &Cluster<'_>) {
        for (name, resource) in INFRA {
            match cluster.client.list_all(&resource, None, &ListOptions::default()).await {
                Ok(list) => {
                    let kept = list.items.into_iter().filter(|item| match resource.namespaced {
                        true => cluster.is_ours(meta::namespace(item)),
                        false => name != "namespaces" || cluster.is_ours(meta::name(item)),
                    });
                    let kept: Vec<Value> =
                        kept.take(usize::try_from(cluster.limit).unwrap_or(usize::MAX)).collect();
                    if name == "pods" {
                        self.logs(cluster, &kept).await;
                    }
                    self.list(&format!("infra/{name}.json"), json!({"items": kept}));
                }
                Err(error) => self.failed(&format!("infra/{name}"), error),
            }
        }
        self.events("infra/events.json", &cluster.client, cluster.limit).await;
    }

    async fn logs(&mut self, cluster: &Cluster<'_>, pods: &[Value]) {
        for pod in pods {
            let (namespace, name) = (meta::namespace(pod), meta::name(pod));
            for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
                let container = container["name"].as_str().unwrap_or_default();
                let path = PODS.object_path(Some(namespace), name, Some("log"));
                let path = format!("{path}?container={container}&tailLines={LINES}");
                self.page(&format!("logs/{namespace}/{name}-{container}.log"), &cluster.client, &path).await;
            }
        }
    }

    /// All files by name, with what could not be collected.
    pub(super) fn finish(mut self) -> BTreeMap<String, String> {
        if !self.errors.is_empty() {
            self.files.insert("errors.txt".to_owned(), self.errors.join("\n") + "\n");
        }
        self.files
    }
}

/// The command lines of this program's processes on this machine, as far as the caller may see them.
pub(super) fn command_lines(proc: &Path) -> String {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let words: Vec<&str> = line.split('\0').filter(|word| !word.is_empty()).collect();
        let is_ours = Path::new(words.first()?).file_name().is_some_and(|name| name == "freehold");
        is_ours.then(|| format!("{pid}\t{}\n", words.join(" ")))
    });
    lines.collect()
}
