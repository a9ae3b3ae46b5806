//! The form in which the table states a kind.

use super::{columns::Col, table::PACKAGES};

/// Verbs of a resource that is stored, in the order of discovery.
pub(super) const ALL: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Verbs of a subresource that is a view of the object.
const VIEW: &[&str] = &["get", "patch", "update"];

/// A group and version, and its kinds.
pub(super) struct GroupData {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    /// Rank of the group among groups, and of the version within it.
    pub(super) priority: i32,
    pub(super) version_priority: i32,
    pub(super) kinds: &'static [KindData],
}

impl GroupData {
    /// What definitions of the group's kinds are named after.
    pub(super) fn package(&self) -> &'static str {
        PACKAGES
            .iter()
            .find(|(group, _)| *group == self.group)
            .map(|(_, package)| *package)
            .expect("each group of the table has a package")
    }
}

/// A kind: what differs from a cluster-scoped, stored kind without further features.
pub(super) struct KindData {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) verbs: &'static [&'static str],
    pub(super) subresources: &'static [Sub],
    /// Group and version that it is stored in, and the conversion from there.
    pub(super) stored_as: Option<(&'static str, &'static str, &'static str)>,
    pub(super) columns: &'static [Col],
    pub(super) selectable_fields: &'static [&'static str],
    pub(super) generation: bool,
    pub(super) deprecation: Option<&'static str>,
}

/// A subresource; its kind is the resource's own where none is given.
pub(super) struct Sub {
    pub(super) name: &'static str,
    pub(super) kind: Option<(&'static str, &'static str, &'static str)>,
    pub(super) verbs: &'static [&'static str],
    pub(super) scale: Option<Scale>,
}

/// Where a scale subresource finds the selector; the numbers are in the same place for all kinds.
pub(super) struct Scale {
    pub(super) selector: &'static str,
}

/// A subresource of the resource's own kind.
pub(super) const fn view(name: &'static str) -> Sub {
    Sub { name, kind: None, verbs: VIEW, scale: None }
}

/// A subresource of the resource's own kind with some verbs.
pub(super) const fn verbs(name: &'static str, verbs: &'static [&'static str]) -> Sub {
    Sub { name, kind: None, verbs, scale: None }
}

/// A subresource of another kind that is posted.
pub(super) const fn posted(
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
) -> Sub {
    Sub { name, kind: Some((group, version, kind)), verbs: &["create"], scale: None }
}

/// A subresource that connects with what runs somewhere.
pub(super) const fn connects(name: &'static str, kind: &'static str) -> Sub {
    Sub { name, kind: Some(("", "v1", kind)), verbs: &["create", "get"], scale: None }
}

/// The subresource `proxy`.
pub(super) const fn proxy(kind: &'static str) -> Sub {
    Sub { verbs: &["create", "delete", "get", "patch", "update"], ..connects("proxy", kind) }
}

/// The subresource `scale`.
pub(super) const fn scale(selector: &'static str) -> Sub {
    Sub {
        name: "scale",
        kind: Some(("autoscaling", "v1", "Scale")),
        verbs: VIEW,
        scale: Some(Scale { selector }),
    }
}

/// A kind in namespaces.
pub(super) const fn namespaced(
    kind: &'static str,
    plural: &'static str,
    columns: &'static [Col],
) -> KindData {
    KindData { namespaced: true, ..cluster(kind, plural, columns) }
}

/// A kind outside of namespaces.
pub(super) const fn cluster(kind: &'static str, plural: &'static str, columns: &'static [Col]) -> KindData {
    KindData {
        kind,
        plural,
        short_names: &[],
        categories: &[],
        namespaced: false,
        verbs: ALL,
        subresources: &[],
        stored_as: None,
        columns,
        selectable_fields: &[],
        generation: false,
        deprecation: None,
    }
}

impl KindData {
    pub(super) const fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    pub(super) const fn category(self, categories: &'static [&'static str]) -> Self {
        Self { categories, ..self }
    }

    pub(super) const fn subs(self, subresources: &'static [Sub]) -> Self {
        Self { subresources, ..self }
    }

    pub(super) const fn fields(self, selectable_fields: &'static [&'static str]) -> Self {
        Self { selectable_fields, ..self }
    }

    pub(super) const fn verbs(self, verbs: &'static [&'static str]) -> Self {
        Self { verbs, ..self }
    }

    /// Its `metadata.generation` counts.
    pub(super) const fn generation(self) -> Self {
        Self { generation: true, ..self }
    }

    pub(super) const fn stored_as(
        self,
        group: &'static str,
        version: &'static str,
        conversion: &'static str,
    ) -> Self {
        Self { stored_as: Some((group, version, conversion)), ..self }
    }

    pub(super) const fn deprecated(self, warning: &'static str) -> Self {
        Self { deprecation: Some(warning), ..self }
    }
}
