//! Which types a plane serves, asked when somebody needs to know.

use freehold_client::{Client, Error, Resource};
use freehold_machinery::Value;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the types of a group and version are believed.
const FRESH: Duration = Duration::from_secs(30);

/// A type of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedType {
    /// What requests call it.
    pub(crate) resource: Resource,
    /// What its objects call it.
    pub(crate) kind: String,
}

/// Types that a plane serves in one group and version.
type Served = Arc<Vec<ServedType>>;

/// The types of one plane by group and version, each with the time at which it was read.
#[derive(Default)]
pub(crate) struct Discovery {
    types: Mutex<HashMap<String, (Instant, Served)>>,
}

impl Discovery {
    /// The types of a group and version; none where the plane does not serve it.
    pub(crate) async fn types(&self, client: &Client, api_version: &str) -> Result<Served, Error> {
        if let Some((read, types)) = self.types.lock().get(api_version)
            && read.elapsed() < FRESH
        {
            return Ok(types.clone());
        }
        let prefix = if api_version.contains('/') { "/apis" } else { "/api" };
        let types = match client.get_path(&format!("{prefix}/{api_version}")).await {
            Ok(list) => parse(api_version, &list),
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error),
        };
        let types = Arc::new(types);
        self.types.lock().insert(api_version.to_owned(), (Instant::now(), types.clone()));
        Ok(types)
    }

    /// The type of objects with an `apiVersion` and a `kind`.
    pub(crate) async fn of_kind(
        &self,
        client: &Client,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<ServedType>, Error> {
        Ok(self.types(client, api_version).await?.iter().find(|served| served.kind == kind).cloned())
    }

    /// Whether a plane serves a plural of a group and version.
    pub(crate) async fn serves(
        &self,
        client: &Client,
        api_version: &str,
        plural: &str,
    ) -> Result<bool, Error> {
        Ok(self.types(client, api_version).await?.iter().any(|served| served.resource.plural == plural))
    }
}

fn parse(api_version: &str, list: &Value) -> Vec<ServedType> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let one = |resource: &Value| {
        let name = resource["name"].as_str().filter(|name| !name.contains('/'))?;
        let namespaced = resource["namespaced"].as_bool().unwrap_or(false);
        Some(ServedType {
            resource: Resource::dynamic(group, version, name, namespaced),
            kind: resource["kind"].as_str().unwrap_or_default().to_owned(),
        })
    };
    list["resources"].as_array().into_iter().flatten().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_are_read_without_their_subresources() {
        let list = json!({"resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": true},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": true},
        ]});
        let types = parse("apps/v1", &list);
        assert_eq!(types.len(), 1);
        assert_eq!(types[0].resource.collection_path(Some("a")), "/apis/apps/v1/namespaces/a/deployments");
    }
}
