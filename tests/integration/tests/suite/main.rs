//! What must work, fact by fact, with the real `kubectl`, on both engines.

mod access;
mod access_contexts;
mod access_creation;
mod access_dedicated;
mod access_matrix;
mod access_page;
mod access_people;
mod access_webhook;
mod admission_flags;
mod aggregated_contents;
mod aggregated_servers;
mod aggregation;
mod attacks;
mod attacks_audit;
mod attacks_classes;
mod attacks_credentials;
mod attacks_gates;
mod attacks_imports;
mod attacks_names;
mod attacks_objects;
mod attacks_paging;
mod attacks_pairs;
mod attacks_references;
mod attacks_rights;
mod attacks_roles;
mod attacks_suspension;
mod attacks_wire;
mod attacks_workflow;
mod audit;
mod authentication;
mod backup;
mod backup_s3;
mod bad_input;
mod controllers;
mod controllers_bad;
mod crds;
mod credentials;
mod dedicated;
mod definitions;
mod deletion;
mod division;
mod durability;
mod encryption;
mod endpoints;
mod etcd_access;
mod extending;
mod first_project;
mod forks;
mod gates;
mod health;
mod host;
mod isolation;
mod keycloak;
mod kubectl_more;
mod kubectl_verbs;
mod limits;
mod login;
mod model;
mod organizations;
mod project_hosts;
mod quota;
mod quota_engines;
mod readme;
mod resource_metrics;
mod revocation;
mod revocation_webhooks;
mod semantics;
mod servers;
mod storm;
mod streams;
mod support;
mod traces;
mod versions;
mod watchers;
mod webhooks;
mod webhooks_conversion;

use serde_json::Value;

/// How long a condition may take to come true, on a machine that does other things too.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// The string at a JSON pointer; empty where there is none.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// The names of a list's items.
fn names(list: &Value) -> Vec<&str> {
    items(list).map(|item| text(item, "/metadata/name")).collect()
}

/// The words of a table's row that begins with `first`.
fn row<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(first));
    line.unwrap_or_else(|| panic!("no row {first:?} in\n{table}")).split_whitespace().collect()
}

/// Text in which nothing repeats: it can't be compressed away. Equal for equal seeds.
fn noise(seed: u64, length: usize) -> String {
    let mut random = freehold_tests_integration::Random::new(seed);
    (0..length).map(|_| char::from(b'#' + u8::try_from(random.below(64)).unwrap_or(0))).collect()
}

/// Panics, showing the text, where a part is missing.
fn contains_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

/// A file with this content in a new directory, which is removed with the second.
struct Scratch(std::path::PathBuf);

impl Scratch {
    /// In the directory of a server: it goes with it.
    fn new(world: &freehold_tests_integration::World, name: &str, content: &str) -> Self {
        let path = world.server().folder().join(name);
        std::fs::write(&path, content).expect("the test's folder can be written");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path of text")
    }
}
