//! Which types a plane serves.

use freehold_client::{Client, Resource, Result};
use freehold_machinery::{GroupVersion, Value};

/// A type, as discovery tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovered {
    /// Where its objects are.
    pub resource: Resource,
    /// The kind of its objects.
    pub kind: String,
    verbs: Vec<String>,
}

impl Discovered {
    /// Whether its objects can be found and removed.
    pub fn is_deletable(&self) -> bool {
        ["list", "delete"].iter().all(|verb| self.has(verb))
    }

    /// Returns a type that has all verbs, of an unnamed kind.
    pub fn with_all_verbs(resource: Resource) -> Self {
        let verbs = ["list", "delete", "deletecollection", "watch"].map(str::to_owned).to_vec();
        Self { resource, kind: "Test".to_owned(), verbs }
    }

    /// Whether it has a verb.
    pub fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// Every type of a plane in its group's preferred version, and the groups whose types could not be read.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The types that were read.
    pub types: Vec<Discovered>,
    /// Groups and versions whose types could not be read.
    pub failed: Vec<String>,
}

/// Asks a plane what it serves.
///
/// # Errors
/// Fails only if the list of groups cannot be read.
pub async fn discover(client: &Client) -> Result<Discovery> {
    let groups = client.get_path("/apis").await?;
    let mut found = Discovery::default();
    let mut versions = vec!["v1".to_owned()];
    for group in crate::object::items(&groups, "/groups") {
        versions.extend(group["preferredVersion"]["groupVersion"].as_str().map(str::to_owned));
    }
    let lists = versions.iter().map(|version| async move { (version, group_version(client, version).await) });
    for (version, types) in futures_util::future::join_all(lists).await {
        match types {
            Ok(types) => found.types.extend(types),
            Err(error) => {
                tracing::debug!(version, %error, "types not read");
                found.failed.push(version.clone());
            }
        }
    }
    Ok(found)
}

/// Returns the types of one group and version.
///
/// # Errors
/// Fails if the server does not answer with a list of them.
pub async fn group_version(client: &Client, version: &str) -> Result<Vec<Discovered>> {
    let prefix = if version.contains('/') { "/apis" } else { "/api" };
    Ok(parse(version, &client.get_path(&format!("{prefix}/{version}")).await?))
}

fn parse(version: &str, list: &Value) -> Vec<Discovered> {
    let Some(GroupVersion { group, version }) = GroupVersion::parse(version) else { return Vec::new() };
    let one = |resource: &Value| {
        let name = resource["name"].as_str().filter(|name| !name.contains('/'))?;
        let namespaced = resource["namespaced"].as_bool().unwrap_or(false);
        let verbs =
            crate::object::items(resource, "/verbs").iter().filter_map(|v| v.as_str().map(str::to_owned));
        Some(Discovered {
            resource: Resource::dynamic(group.clone(), version.clone(), name, namespaced),
            kind: resource["kind"].as_str().unwrap_or_default().to_owned(),
            verbs: verbs.collect(),
        })
    };
    crate::object::items(list, "/resources").iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subresources_are_no_types() {
        let list = json!({"resources": [
            {"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["list", "delete"]},
            {"name": "pods/status", "kind": "Pod", "namespaced": true, "verbs": ["get"]},
            {"name": "bindings", "kind": "Binding", "namespaced": true, "verbs": ["create"]},
        ]});
        let types = parse("v1", &list);
        assert_eq!(types.len(), 2);
        assert!(types[0].is_deletable() && !types[1].is_deletable());
        assert_eq!(types[0].resource, Resource::dynamic("", "v1", "pods", true));
    }
}
