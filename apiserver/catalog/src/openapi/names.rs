//! How Kubernetes names definitions, operations and paths.

use crate::definitions::definition_name;
use freehold_machinery::{GroupVersionKind, ResourceType, Value, resource::Documentation};

/// The definition of meta/v1 kinds.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Where a group and version is served.
pub(super) fn base_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// The definition of a type: Kubernetes' own name, or the CRD's group backwards with version and kind
/// (`com.example.stable.v1.CronTab`).
pub(super) fn definition(ty: &ResourceType) -> String {
    match &ty.openapi {
        Documentation::BuiltIn(name) => name.clone(),
        _ => format!("{}.{}.{}", backwards(&ty.group), ty.version, ty.kind),
    }
}

/// The definition of a list of a type.
pub(super) fn list_definition(ty: &ResourceType) -> String {
    let own = definition(ty);
    let package = own.strip_suffix(&ty.kind).unwrap_or(&own);
    format!("{package}{}", ty.list_kind)
}

fn backwards(group: &str) -> String {
    group.rsplit('.').collect::<Vec<_>>().join(".")
}

/// The definition of the kind that a subresource speaks.
pub(super) fn kind_definition(ty: &ResourceType, kind: &GroupVersionKind) -> String {
    if *kind == ty.gvk() { definition(ty) } else { definition_name(kind).unwrap_or_else(|| definition(ty)) }
}

/// `Core`, `Apps`, `RbacAuthorization`, `StableExampleCom`: the group in operations' identifiers.
pub(super) fn group_title(group: &str) -> String {
    let group = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
    group.split(['.', '-']).map(capital).collect()
}

/// The group and version in operations' identifiers: `CoreV1`.
pub(super) fn title(ty: &ResourceType) -> String {
    format!("{}{}", group_title(&ty.group), capital(&ty.version))
}

/// The group and version as a tag: `rbacAuthorization_v1`.
pub(super) fn tag(ty: &ResourceType) -> String {
    format!("{}_{}", uncapital(&group_title(&ty.group)), ty.version)
}

/// A word with a small letter in front.
pub(super) fn uncapital(word: &str) -> String {
    let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}", first.to_lowercase())
}

/// A word with a capital letter in front.
pub(super) fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Replaces references in place.
pub(super) fn rename(value: &mut Value, names: &[(String, String)]) {
    match value {
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| match value {
            Value::String(reference) if key == "$ref" => {
                if let Some((_, to)) = names.iter().find(|(from, _)| from == reference) {
                    *reference = to.clone();
                }
            }
            other => rename(other, names),
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        _ => {}
    }
}
