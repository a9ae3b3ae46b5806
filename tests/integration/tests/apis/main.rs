//! APIs that one project publishes and others consume, with the real `kubectl`, on both engines.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod attacks_bundle;
mod attacks_conversion;
mod attacks_hostile;
mod attacks_races;
mod attacks_view;
mod changing;
mod classes;
mod consent;
mod consuming;
mod conversion;
mod limits;
mod page;
mod providing;
mod references;
mod rollout;
mod subsystems;

use freehold_tests_integration::{Answer, Http, Kubectl, World};
use serde_json::{Value, json};

/// How long a condition may take to come true, on a machine that does other things too.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);
const GROUP: &str = "/apis/apis.freehold.dev/v1alpha1";
const DATABASES: &str = "/apis/db.example.com/v1/databases";
const IN_DEFAULT: &str = "/apis/db.example.com/v1/namespaces/default/databases";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A provider and two consumers, in two organizations, that no other test uses.
struct Parties {
    provider: Kubectl,
    consumer: Kubectl,
    other: Kubectl,
    /// The names of their projects.
    names: [String; 3],
    url: String,
}

impl Parties {
    /// Makes them, with a published export `pg` that the consumers' organization may bind.
    fn new(world: &World, tag: &str) -> Self {
        let names = ["provider", "consumer", "other"].map(|role| format!("{role}-{tag}"));
        world.organization(&format!("providers-{tag}"), &[&names[0]]);
        world.organization(&format!("consumers-{tag}"), &[&names[1], &names[2]]);
        let [provider, consumer, other] =
            [&names[0], &names[1], &names[2]].map(|name| world.server().project(name));
        let parties = Self { provider, consumer, other, names, url: world.server().url().to_owned() };
        parties.provider.apply(&schema("v1.databases.db.example.com", &widely()).to_string());
        let claims = json!([
            {"resource": "secrets", "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"], "labels": {"db": "yes"}},
            {"resource": "configmaps", "verbs": ["get", "list"]},
        ]);
        parties.provider.apply(&export("pg", &format!("consumers-{tag}"), &claims).to_string());
        parties
    }

    /// The path of the provider's view, of all consumers or of one.
    fn view(&self, consumer: Option<usize>) -> String {
        let base = format!("/services/apiexports/{}/pg", self.names[0]);
        consumer.map_or(base.clone(), |nth| format!("{base}/clusters/{}", self.names[nth]))
    }

    /// The provider, in its view.
    fn in_view(&self, consumer: Option<usize>) -> Http {
        Http::of_elsewhere(&self.provider, &format!("{}{}", self.url, self.view(consumer)))
    }

    /// A binding of the export, with these claims accepted.
    fn binding(&self, accepted: &Value) -> Value {
        json!({
            "apiVersion": "apis.freehold.dev/v1alpha1", "kind": "APIBinding", "metadata": {"name": "pg"},
            "spec": {"export": {"project": self.names[0], "name": "pg"}, "acceptedClaims": accepted},
        })
    }

    /// Binds the export in a project, with nothing beside the kinds.
    fn bind(&self, kubectl: &Kubectl) {
        kubectl.apply(&self.binding(&json!([])).to_string());
    }
}

/// The schema of a database, with a size and an engine.
fn widely() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1},
            "engine": {"type": "string", "enum": ["postgres", "mysql"], "default": "postgres"},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }})
}

fn schema(name: &str, schema: &Value) -> Value {
    json!({
        "apiVersion": "apis.freehold.dev/v1alpha1", "kind": "APIResourceSchema", "metadata": {"name": name},
        "spec": {
            "group": "db.example.com", "scope": "Namespaced", "names": {"plural": "databases", "kind": "Database"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn export(name: &str, organization: &str, claims: &Value) -> Value {
    json!({
        "apiVersion": "apis.freehold.dev/v1alpha1", "kind": "APIExport", "metadata": {"name": name},
        "spec": {
            "schemas": ["v1.databases.db.example.com"], "claims": claims, "consumers": {"organizations": [organization]},
        },
    })
}

fn database(name: &str, size: i64) -> Value {
    json!({
        "apiVersion": "db.example.com/v1", "kind": "Database", "metadata": {"name": name, "namespace": "default"},
        "spec": {"size": size},
    })
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

/// The status and reason of a condition.
fn condition(object: &Value, kind: &str) -> (String, String) {
    let found =
        object["status"]["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == kind);
    let text = |key: &str| found.and_then(|found| found[key].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

/// Whether a provider is refused, with the reason.
fn is_refused(answer: &Answer) -> bool {
    let why = answer.body["message"].as_str().unwrap_or_default();
    answer.code == 403 && (why.contains("accepted a claim of APIExport") || why.contains("does not claim it"))
}

/// A quota of one count in the namespace `default` that counts from here on.
fn limit(kubectl: &Kubectl, name: &str, count: &str) {
    kubectl.ok(&["create", "quota", name, &format!("--hard={count}")]);
    kubectl.ok(&["wait", &format!("quota/{name}"), "--for=jsonpath={.status.hard}", "--timeout=60s"]);
}
