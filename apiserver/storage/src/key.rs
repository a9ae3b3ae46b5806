//! Keys. One can only be made for a plane, a layer or the system, never from a bare string of a client.
//!
//! ```text
//! planes/<plane>/<group>/<resource>/[<namespace>/]<name>     one object ("core" stands for the empty group)
//! layers/<layer>/...
//! system/...
//! ```
//! Engines put their own prefix (`/freehold/`) in front.

use bytes::Bytes;
use freehold_machinery::PlaneId;
use std::fmt;

/// A key of the store, without the engine's prefix.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Bytes);

/// The identifier of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LayerId(pub String);

/// Where an object is within its plane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectPath {
    /// API group, empty for core.
    pub group: String,
    /// Plural resource.
    pub resource: String,
    /// Namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

fn group_segment(group: &str) -> &str {
    if group.is_empty() { "core" } else { group }
}

impl Key {
    /// The key of an object. Names are validated by the caller to be path segments (no `/`, not empty).
    pub fn object(plane: &PlaneId, path: &ObjectPath) -> Self {
        let ObjectPath { group, resource, namespace, name } = path;
        let group = group_segment(group);
        Self(Bytes::from(match namespace {
            Some(namespace) => format!("planes/{plane}/{group}/{resource}/{namespace}/{name}"),
            None => format!("planes/{plane}/{group}/{resource}/{name}"),
        }))
    }

    /// A key of the system's own.
    pub fn system(name: &str) -> Self {
        Self(Bytes::from(format!("system/{name}")))
    }

    /// A key in a layer.
    pub fn layer(layer: &LayerId, name: &str) -> Self {
        Self(Bytes::from(format!("layers/{}/{name}", layer.0)))
    }

    /// A key that an engine read back from its own files.
    pub fn from_store(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The key's bytes, for good.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The plane and the rest of the key, for an object's key.
    pub fn split_plane(&self) -> Option<(PlaneId, &str)> {
        let text = std::str::from_utf8(&self.0).ok()?;
        let (plane, rest) = text.strip_prefix("planes/")?.split_once('/')?;
        Some((plane.parse().ok()?, rest))
    }

    /// The plane and path of an object's key. Both forms of path have their own number of segments.
    pub fn object_path(&self) -> Option<(PlaneId, ObjectPath)> {
        let (plane, rest) = self.split_plane()?;
        let segments: Vec<&str> = rest.split('/').collect();
        let (group, resource, namespace, name) = match segments[..] {
            [group, resource, name] => (group, resource, None, name),
            [group, resource, namespace, name] => (group, resource, Some(namespace.to_owned()), name),
            _ => return None,
        };
        let group = if group == "core" { "" } else { group };
        Some((
            plane,
            ObjectPath { group: group.into(), resource: resource.into(), namespace, name: name.into() },
        ))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// A half-open range of keys.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub start: Bytes,
    /// The first key behind it.
    pub end: Bytes,
}

impl KeyRange {
    /// All keys that begin with `prefix`, which must end in `/`.
    fn prefix(prefix: String) -> Self {
        debug_assert!(prefix.ends_with('/'));
        let mut end = prefix.clone().into_bytes();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Self { start: Bytes::from(prefix), end: Bytes::from(end) }
    }

    /// One key.
    pub fn one(key: &Key) -> Self {
        let mut end = key.0.to_vec();
        end.push(0);
        Self { start: key.0.clone(), end: Bytes::from(end) }
    }

    /// Every object of every plane.
    pub fn all_planes() -> Self {
        Self::prefix("planes/".into())
    }

    /// Everything of every layer.
    pub fn all_layers() -> Self {
        Self::prefix("layers/".into())
    }

    /// All keys whatsoever.
    pub fn everything() -> Self {
        Self { start: Bytes::from_static(b"\0"), end: Bytes::from_static(b"\xff") }
    }

    /// The system's own keys below `name`.
    pub fn system(name: &str) -> Self {
        Self::prefix(format!("system/{name}/"))
    }

    /// One plane.
    pub fn plane(plane: &PlaneId) -> Self {
        Self::prefix(format!("planes/{plane}/"))
    }

    /// One resource of a plane, in one namespace or in all.
    pub fn resource(plane: &PlaneId, group: &str, resource: &str, namespace: Option<&str>) -> Self {
        let group = group_segment(group);
        Self::prefix(match namespace {
            Some(namespace) => format!("planes/{plane}/{group}/{resource}/{namespace}/"),
            None => format!("planes/{plane}/{group}/{resource}/"),
        })
    }

    /// The part of this range from `start` on.
    pub fn from_key(&self, start: Bytes) -> Self {
        Self { start: start.max(self.start.clone()), end: self.end.clone() }
    }

    /// Whether at most one key can be in it.
    pub fn is_one(&self) -> bool {
        self.end.strip_suffix(b"\0").is_some_and(|start| start == self.start)
    }

    /// Whether each key of `other` is in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Whether a key is in it.
    pub fn contains(&self, key: &Key) -> bool {
        self.start <= key.0 && key.0 < self.end
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", String::from_utf8_lossy(&self.start), String::from_utf8_lossy(&self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_key_reads_back_as_its_plane_and_path() {
        let plane = PlaneId::core();
        for namespace in [None, Some("default".to_owned())] {
            let path = ObjectPath {
                group: String::new(),
                resource: "secrets".into(),
                namespace,
                name: "a.b".into(),
            };
            assert_eq!(Key::object(&plane, &path).object_path(), Some((plane.clone(), path)));
        }
    }

    #[test]
    fn a_plane_range_holds_no_key_of_a_plane_with_a_longer_name() {
        let path =
            ObjectPath { group: String::new(), resource: "pods".into(), namespace: None, name: "x".into() };
        let longer: PlaneId = "core-2".parse().unwrap();
        assert!(KeyRange::plane(&PlaneId::core()).contains(&Key::object(&PlaneId::core(), &path)));
        assert!(!KeyRange::plane(&PlaneId::core()).contains(&Key::object(&longer, &path)));
    }
}
