//! Names of types: group, version, kind and resource.

use std::fmt;

/// An API group and version, as `apiVersion` spells it (`v1`, `apps/v1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupVersion {
    /// The API group, empty for core.
    pub group: String,
    /// The version within the group.
    pub version: String,
}

impl GroupVersion {
    /// Splits an `apiVersion`. More than one `/` gives `None`.
    pub fn parse(api_version: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        (!version.is_empty() && !version.contains('/'))
            .then(|| Self { group: group.to_owned(), version: version.to_owned() })
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A kind within a group and version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupVersionKind {
    /// The API group, empty for core.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The kind, in CamelCase.
    pub kind: String,
}

impl GroupVersionKind {
    /// `apiVersion` as objects spell it.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// A resource within a group, as errors and RBAC name it (`deployments.apps`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupResource {
    /// The API group, empty for core.
    pub group: String,
    /// The plural, lower-case resource.
    pub resource: String,
}

impl GroupResource {
    /// The resource `resource` of `group`.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}
