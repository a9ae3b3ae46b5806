//! The identifier of a control plane.

use std::{fmt, str::FromStr, sync::Arc};

/// One isolated Kubernetes API: its own objects, RBAC, CRDs and discovery.
///
/// Cheap to clone. Only lower-case letters, digits and `-` are in it, 1 to 63 of them, so it is one path segment of a
/// store key and one DNS label. A project's plane is named by the project's uid: a project that is deleted and made
/// again under the same name never meets the keys of its predecessor.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaneId(Arc<str>);

/// A string that can't name a plane.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a plane: a lower-case DNS label of 1 to 63 characters is")]
pub struct InvalidPlaneId(String);

impl PlaneId {
    /// The plane of organizations, users, projects and provider objects.
    pub fn core() -> Self {
        Self(Arc::from("core"))
    }

    /// The plane on which dedicated pairs run, when Freehold itself serves it.
    pub fn infra() -> Self {
        Self(Arc::from("infra"))
    }

    /// The identifier as it stands in keys and metrics.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the core plane.
    pub fn is_core(&self) -> bool {
        &*self.0 == "core"
    }
}

impl FromStr for PlaneId {
    type Err = InvalidPlaneId;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let edge = |c: Option<&u8>| c.is_some_and(|c| *c != b'-');
        let bytes = s.as_bytes();
        let valid =
            bytes.len() <= 63 && bytes.iter().all(|c| inner(*c)) && edge(bytes.first()) && edge(bytes.last());
        if valid { Ok(Self(Arc::from(s))) } else { Err(InvalidPlaneId(s.to_owned())) }
    }
}

impl fmt::Display for PlaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PlaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plane {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_is_one_dns_label() {
        for good in ["core", "a", "0d3c9a62-5b0c-4d65-9f3f-1f3c1c1f6f7e"] {
            assert_eq!(good.parse::<PlaneId>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a/b", "a.b", "..", &"x".repeat(64)] {
            assert!(bad.parse::<PlaneId>().is_err(), "{bad:?} must be refused");
        }
    }
}
