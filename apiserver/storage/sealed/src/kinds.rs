//! Which keys are sealed, and of which type their values are.

use freehold_apiserver_storage::Key;

/// What a key says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area<'a> {
    /// An object, of a plane or of a layer.
    Object(Type<'a>),
    /// A dictionary: it holds pieces of objects, so it is encrypted where they are, and it does not compress.
    Dictionary,
    /// A secret of the system's own, such as a key that signs.
    Secret,
}

/// The type of an object: `group/resource`, with `core` for the empty group, as keys have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Type<'a>(pub(crate) &'a str);

/// The area of a key; `None` for what is never sealed: the system's own records.
pub(crate) fn area(key: &Key) -> Option<Area<'_>> {
    let text = std::str::from_utf8(key.as_bytes()).ok()?;
    if let Some(rest) = text.strip_prefix("planes/").or_else(|| text.strip_prefix("layers/")) {
        let (_, object) = rest.split_once('/')?;
        // What planes and layers stand on, beside their objects.
        if object.starts_with('.') {
            return None;
        }
        return Some(Area::Object(Type(group_resource(object))));
    }
    match text.strip_prefix("system/")?.split_once('/')?.0 {
        "dictionaries" => Some(Area::Dictionary),
        "secrets" => Some(Area::Secret),
        _ => None,
    }
}

/// The first two segments; all there is where there are fewer.
fn group_resource(object: &str) -> &str {
    let mut slashes = object.match_indices('/').map(|(at, _)| at);
    slashes.nth(1).map_or(object, |end| &object[..end])
}

impl Type<'_> {
    /// Secrets are never trained on: a dictionary is shared by all planes, and pieces of theirs have no place in it.
    pub(crate) fn may_train(self) -> bool {
        self.0 != "core/secrets" && self.0.contains('/')
    }
}

/// Types as a configuration names them: `secrets`, `deployments.apps`, `*.apps` for a group, `*.` for the core group,
/// `*.*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kinds(Vec<(Option<String>, Option<String>)>);

impl Kinds {
    /// All types.
    pub(crate) fn all() -> Self {
        Self(vec![(None, None)])
    }

    /// Reads patterns; the error is the one that is none.
    pub(crate) fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        let named = |part: &str| (part != "*").then(|| part.to_owned());
        let read = |pattern: &'a str| {
            let (resource, group) = pattern.split_once('.').unwrap_or((pattern, "core"));
            let group = if group.is_empty() { "core" } else { group };
            let fine =
                |part: &str| !part.is_empty() && !part.contains('/') && (part == "*" || !part.contains('*'));
            // `*` alone is none, as in Kubernetes: it would not say which groups.
            let bare = pattern == "*";
            if bare || !fine(resource) || !fine(group) || group == "*" && resource != "*" {
                return Err(pattern);
            }
            Ok((named(group), named(resource)))
        };
        Ok(Self(patterns.into_iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Whether a type is among them.
    pub(crate) fn has(&self, ty: Type<'_>) -> bool {
        let (group, resource) = ty.0.split_once('/').unwrap_or((ty.0, ""));
        let is = |wanted: &Option<String>, part: &str| wanted.as_deref().is_none_or(|wanted| wanted == part);
        self.0.iter().any(|(g, r)| is(g, group) && is(r, resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_apiserver_storage::ObjectPath;
    use freehold_machinery::PlaneId;

    #[test]
    fn a_key_tells_the_type_of_its_value() {
        let path = |group: &str, namespace: Option<&str>| ObjectPath {
            group: group.into(),
            resource: "things".into(),
            namespace: namespace.map(Into::into),
            name: "a".into(),
        };
        let object = |path| area(&Key::object(&PlaneId::core(), &path)).map(|area| format!("{area:?}"));
        for namespace in [None, Some("default")] {
            assert_eq!(object(path("", namespace)).unwrap(), r#"Object(Type("core/things"))"#);
            assert_eq!(object(path("x.io", namespace)).unwrap(), r#"Object(Type("x.io/things"))"#);
        }
        let key = |text: &'static str| Key::from_store(text.into());
        let layer = key("layers/base/core/configmaps/default/a");
        assert_eq!(area(&layer), Some(Area::Object(Type("core/configmaps"))));
        assert_eq!(area(&Key::system("dictionaries/00000064/core/pods")), Some(Area::Dictionary));
        assert_eq!(area(&Key::system("secrets/service-account")), Some(Area::Secret));
        for record in ["planes/blue/.stack", "layers/base/.layer", "layers/base/.planes/blue"] {
            assert_eq!(area(&key(record)), None, "{record}");
        }
        for plain in ["layers/base", "encryption/keys/00000001", "leases/x", "encryption"] {
            assert_eq!(area(&Key::system(plain)), None, "{plain}");
        }
    }

    #[test]
    fn patterns_are_those_of_kubernetes() {
        let rows = [
            ("secrets", "core/secrets", true),
            ("secrets", "x.io/secrets", false),
            ("deployments.apps", "apps/deployments", true),
            ("roles.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/roles", true),
            ("*.apps", "apps/deployments", true),
            ("*.apps", "core/pods", false),
            ("*.", "core/pods", true),
            ("*.*", "x.io/things", true),
        ];
        for (pattern, ty, expected) in rows {
            assert_eq!(Kinds::parse([pattern]).unwrap().has(Type(ty)), expected, "{pattern} {ty}");
        }
        for wrong in ["*", "", ".apps", "pods.*", "a*.apps", "core/pods"] {
            assert_eq!(Kinds::parse([wrong]), Err(wrong));
        }
    }
}
