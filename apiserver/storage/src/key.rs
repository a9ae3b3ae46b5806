//! Keys. One can only be made for a plane, a layer or the system, never from a bare string of a client.
//!
//! ```text
//! planes/<plane>/<group>/<resource>/[<namespace>/]<name>     one object ("core" stands for the empty group)
//! planes/<plane>/.stack                                      what the plane stands on; absent: what its class says
//! planes/<plane>/.class                                      the layer of its class, where a pair serves it
//! planes/core/.classes/<class>                               the layer of a class
//! layers/<layer>/<group>/<resource>/[<namespace>/]<name>     one object of a layer
//! layers/<layer>/.layer                                      what the layer is, and whether it is sealed
//! layers/<layer>/.planes/<plane>                             a plane that stands on the layer
//! system/...
//! ```
//! Groups begin with a letter or digit, so records (which begin with `.`) lie before all objects.
//!
//! Engines put their own prefix (`/freehold/`) in front.

use bytes::Bytes;
use freehold_machinery::PlaneId;
use std::{fmt, str::FromStr};

/// Bytes that a group, resource or namespace has at most: a DNS subdomain.
const MAX_PART: usize = 253;

/// A key of the store, without the engine's prefix.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Bytes);

/// The identifier of a layer: at most 128 lowercase letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(String);

/// A string that can't be a layer's identifier.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no identifier of a layer")]
pub struct InvalidLayerId(String);

impl FromStr for LayerId {
    type Err = InvalidLayerId;

    fn from_str(text: &str) -> Result<Self, InvalidLayerId> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > 128 || !text.bytes().all(fits) {
            return Err(InvalidLayerId(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl LayerId {
    /// As it stands in keys.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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

impl ObjectPath {
    /// Whether an object can be there: for paths that were read back from a key that others made.
    pub fn is_well_formed(&self) -> bool {
        let word = |part: &str| {
            part.len() <= MAX_PART
                && part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c))
        };
        let is_name = |name: &str| {
            !["", ".", ".."].contains(&name) && !name.chars().any(|c| c == '%' || c.is_control())
        };
        (self.group.is_empty() || word(&self.group))
            && word(&self.resource)
            && self.namespace.as_deref().is_none_or(word)
            && is_name(&self.name)
    }
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

    /// What a plane uses of what its class allows.
    pub fn usage(plane: &PlaneId) -> Self {
        Self::system(&format!("usage/{plane}"))
    }

    /// A record that changes with each Service of a plane that takes an address or a port: so of two that take the same
    /// at a time one is refused.
    pub fn allocations(plane: &PlaneId) -> Self {
        Self::system(&format!("allocations/{plane}"))
    }

    /// What a plane stands on.
    pub fn stack(plane: &PlaneId) -> Self {
        Self(Bytes::from(format!("planes/{plane}/.stack")))
    }

    /// Which layer the class of a plane has, for a pair that sees this plane's keys alone.
    pub fn plane_class(plane: &PlaneId) -> Self {
        Self(Bytes::from(format!("planes/{plane}/.class")))
    }

    /// Which layer a class has. The name is validated by the caller to be a path segment.
    pub fn class(class: &str) -> Self {
        Self(Bytes::from(format!("planes/core/.classes/{class}")))
    }

    /// An object of a layer.
    pub fn layer_object(layer: &LayerId, path: &ObjectPath) -> Self {
        let ObjectPath { group, resource, namespace, name } = path;
        let group = group_segment(group);
        Self(Bytes::from(match namespace {
            Some(namespace) => format!("layers/{layer}/{group}/{resource}/{namespace}/{name}"),
            None => format!("layers/{layer}/{group}/{resource}/{name}"),
        }))
    }

    /// What a layer is.
    pub fn layer(layer: &LayerId) -> Self {
        Self(Bytes::from(format!("layers/{layer}/.layer")))
    }

    /// That a plane stands on a layer.
    pub fn layer_plane(layer: &LayerId, plane: &PlaneId) -> Self {
        Self(Bytes::from(format!("layers/{layer}/.planes/{plane}")))
    }

    /// A key that an engine read back from its own files.
    pub fn from_store(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The bytes of the key, without an engine's prefix.
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

    /// Whether it is a record of a plane or class and no object.
    pub fn is_record(&self) -> bool {
        let Some(rest) = self.0.strip_prefix(b"planes/") else { return false };
        let plane = rest.iter().position(|byte| *byte == b'/');
        plane.is_some_and(|at| rest.get(at + 1) == Some(&b'.'))
    }

    /// The class of a key that says which layer it has.
    pub fn class_name(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()?.strip_prefix("planes/core/.classes/")
    }

    /// The plane and path of an object's key. Both forms of path have their own number of segments.
    pub fn object_path(&self) -> Option<(PlaneId, ObjectPath)> {
        let (plane, rest) = self.split_plane()?;
        Some((plane, path_of(rest)?))
    }

    /// The path of an object of a layer.
    pub fn layer_path(&self) -> Option<ObjectPath> {
        let text = std::str::from_utf8(&self.0).ok()?;
        path_of(text.strip_prefix("layers/")?.split_once('/')?.1)
    }
}

fn path_of(rest: &str) -> Option<ObjectPath> {
    let mut segments = rest.split('/');
    let (group, resource) = (segments.next()?, segments.next()?);
    let (namespace, name) = match (segments.next()?, segments.next(), segments.next()) {
        (name, None, None) => (None, name),
        (namespace, Some(name), None) => (Some(namespace.to_owned()), name),
        _ => return None,
    };
    if group.starts_with('.') {
        return None;
    }
    let group = if group == "core" { "" } else { group };
    Some(ObjectPath { group: group.into(), resource: resource.into(), namespace, name: name.into() })
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

    /// The range of one key.
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

    /// The range of all keys whatsoever.
    pub fn everything() -> Self {
        Self { start: Bytes::from_static(b"\0"), end: Bytes::from_static(b"\xff") }
    }

    /// The system's own keys below `name`.
    pub fn system(name: &str) -> Self {
        Self::prefix(format!("system/{name}/"))
    }

    /// The range of one plane: its records and objects.
    pub fn plane(plane: &PlaneId) -> Self {
        Self::prefix(format!("planes/{plane}/"))
    }

    /// Every object of a plane's own, its record aside.
    pub fn plane_objects(plane: &PlaneId) -> Self {
        Self::objects(format!("planes/{plane}/"))
    }

    /// The layers of classes.
    pub fn classes() -> Self {
        Self::prefix("planes/core/.classes/".into())
    }

    /// One layer with its records.
    pub fn layer(layer: &LayerId) -> Self {
        Self::prefix(format!("layers/{layer}/"))
    }

    /// Every object of a layer.
    pub fn layer_objects(layer: &LayerId) -> Self {
        Self::objects(format!("layers/{layer}/"))
    }

    /// The planes that stand on a layer.
    pub fn layer_planes(layer: &LayerId) -> Self {
        Self::prefix(format!("layers/{layer}/.planes/"))
    }

    /// What lies behind the records: '0' is the first character that a group can begin with.
    fn objects(prefix: String) -> Self {
        let all = Self::prefix(prefix);
        Self { start: [&all.start[..], b"0"].concat().into(), end: all.end }
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
    fn only_paths_that_objects_can_have_are_well_formed() {
        let rows = [
            ("core/secrets/default/a", true),
            ("rbac.authorization.k8s.io/clusterroles/system:node:A", true),
            ("a.example/things/x", true),
            (".stack", false),
            (".classes/a", false),
            (".x/secrets/a", false),
            ("core/.x/a", false),
            ("core/secrets/.x/a", false),
            ("core/secrets/a/..", false),
            ("core/secrets//a", false),
            ("core//a", false),
            ("core/secrets/a/", false),
            ("core/secrets", false),
            ("core/secrets/a/b/c", false),
            ("core/secrets/a/\0", false),
            ("CORE/secrets/a", false),
        ];
        for (rest, expected) in rows {
            let key = Key::from_store(format!("planes/p/{rest}").into());
            let found = key.object_path().is_some_and(|(_, path)| path.is_well_formed());
            assert_eq!(found, expected, "{rest:?}");
        }
    }

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
    fn records_of_planes_and_layers_are_no_objects() {
        let (plane, layer) = (PlaneId::core(), LayerId::from_str("s-1").unwrap());
        let path =
            ObjectPath { group: "0.io".into(), resource: "pods".into(), namespace: None, name: "x".into() };
        let object = Key::object(&plane, &path);
        for record in [
            Key::stack(&plane),
            Key::plane_class(&plane),
            Key::class("a"),
            Key::layer(&layer),
            Key::layer_plane(&layer, &plane),
        ] {
            assert_eq!((record.object_path(), record.layer_path()), (None, None), "{record:?}");
            assert_eq!(record.is_record(), record.as_bytes().starts_with(b"planes/"), "{record:?}");
            assert!(!KeyRange::plane_objects(&plane).contains(&record), "{record:?}");
            assert!(!KeyRange::layer_objects(&layer).contains(&record), "{record:?}");
        }
        assert!(KeyRange::plane_objects(&plane).contains(&object) && !object.is_record());
        assert_eq!(Key::layer_object(&layer, &path).layer_path(), Some(path.clone()));
        assert!(KeyRange::layer_objects(&layer).contains(&Key::layer_object(&layer, &path)));
        assert!(KeyRange::plane(&plane).contains(&Key::stack(&plane)));
        assert!("../x".parse::<LayerId>().is_err() && "".parse::<LayerId>().is_err());
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
