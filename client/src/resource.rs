//! Which type a request is about.

use std::borrow::Cow;
use std::fmt;

/// A type as URLs name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// API group, empty for core.
    pub group: Cow<'static, str>,
    /// Version within the group.
    pub version: Cow<'static, str>,
    /// Plural, lower-case.
    pub plural: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// A type whose objects live in namespaces.
    pub const fn namespaced(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Self::of(group, version, plural, true)
    }

    /// A type whose objects don't.
    pub const fn cluster(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Self::of(group, version, plural, false)
    }

    const fn of(group: &'static str, version: &'static str, plural: &'static str, namespaced: bool) -> Self {
        let (group, version) = (Cow::Borrowed(group), Cow::Borrowed(version));
        Self { group, version, plural: Cow::Borrowed(plural), namespaced }
    }

    /// A type that is known at run time only.
    pub fn dynamic(
        group: impl Into<String>,
        version: impl Into<String>,
        plural: impl Into<String>,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Owned(group.into()),
            version: Cow::Owned(version.into()),
            plural: Cow::Owned(plural.into()),
            namespaced,
        }
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of the collection, in one namespace or (`None`) in all.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let Some(namespace) = namespace.filter(|n| self.namespaced && !n.is_empty()) {
            path.push_str("/namespaces/");
            push_segment(&mut path, namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        path
    }

    /// The path of one object or of a subresource of it.
    pub fn object_path(&self, namespace: Option<&str>, name: &str, subresource: Option<&str>) -> String {
        let mut path = self.collection_path(namespace);
        path.push('/');
        push_segment(&mut path, name);
        if let Some(subresource) = subresource {
            path.push('/');
            path.push_str(subresource);
        }
        path
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// Appends a path segment, with everything escaped that is not plain in one.
pub(crate) fn push_segment(path: &mut String, segment: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(byte as char);
        } else {
            path.push('%');
            path.push(HEX[usize::from(byte >> 4)] as char);
            path.push(HEX[usize::from(byte & 15)] as char);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_scope_and_subresource() {
        let pods = Resource::namespaced("", "v1", "pods");
        let roles = Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles");
        let rows = [
            (pods.collection_path(None), "/api/v1/pods"),
            (pods.collection_path(Some("a")), "/api/v1/namespaces/a/pods"),
            (pods.object_path(Some("a"), "b", Some("status")), "/api/v1/namespaces/a/pods/b/status"),
            (
                roles.object_path(Some("ignored"), "system:x y", None),
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Ax%20y",
            ),
        ];
        for (path, expected) in rows {
            assert_eq!(path, expected);
        }
    }
}
