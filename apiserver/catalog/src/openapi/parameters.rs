//! The parameters of operations. What Kubernetes says of each is data (`parameters.json`; `tools/kubernetes/documents`
//! makes it).

use serde::Deserialize;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

static DATA: &str = include_str!("../../parameters.json");

/// A parameter of a path or in the query.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Parameter {
    /// Its name, with what it is of behind an `@` where several have the same.
    key: Cow<'static, str>,
    #[serde(rename = "in")]
    pub(super) place: Cow<'static, str>,
    #[serde(rename = "type")]
    pub(super) kind: Cow<'static, str>,
    /// What stands behind the name under which version 2 has those that many operations share; empty for others.
    shared: Cow<'static, str>,
    pub(super) description: Cow<'static, str>,
}

static PARAMETERS: LazyLock<BTreeMap<&'static str, Arc<Parameter>>> = LazyLock::new(|| {
    let all: Vec<Arc<Parameter>> = serde_json::from_str::<Vec<Parameter>>(DATA)
        .map(|all| all.into_iter().map(Arc::new).collect())
        .expect("a test reads it");
    let keys = DATA.lines().filter_map(|line| line.split('"').nth(3));
    keys.zip(all).collect()
});

impl Parameter {
    /// Its name in a URL.
    pub(super) fn name(&self) -> &str {
        self.key.split('@').next().unwrap_or_default()
    }

    /// The name under which version 2 has it for all operations.
    pub(super) fn shared(&self) -> Option<String> {
        (!self.shared.is_empty()).then(|| format!("{}-{}", self.name(), self.shared))
    }
}

/// Parameters by their keys; what is not known is left out.
pub(super) fn all(keys: &[&str]) -> Vec<Arc<Parameter>> {
    keys.iter().filter_map(|key| PARAMETERS.get(key).cloned()).collect()
}

/// The name in the path of an object of a kind.
pub(super) fn object_name(kind: &str) -> Arc<Parameter> {
    Arc::new(Parameter {
        key: "name".into(),
        place: "path".into(),
        kind: "string".into(),
        shared: "".into(),
        description: format!("name of the {kind}").into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_is_found_by_its_key() {
        assert!(PARAMETERS.len() > 40);
        for (key, parameter) in PARAMETERS.iter() {
            assert_eq!(parameter.key, *key);
        }
        assert_eq!(all(&["limit"])[0].shared().as_deref(), Some("limit-1NfNmdNH"));
        assert_eq!(all(&["dryRun"])[0].shared(), None);
        assert_eq!(all(&["fieldManager@patch"])[0].name(), "fieldManager");
    }
}
