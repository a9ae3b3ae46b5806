//! The built-in types: Kubernetes' stable groups, as data.
//!
//! [`table`] lists the kinds in the order in which kube-apiserver shows their groups, [`columns`] how `kubectl get`
//! prints them; schemas come from [`definitions`](crate::definitions) when they are first asked for.

mod columns;
mod kind;
mod printed;
mod table;

use crate::{
    definitions::{HASH, schema_of_definition},
    set::{Group, ServedVersion, TypeSet},
};
use freehold_machinery::{
    GroupVersionKind, ResourceType,
    resource::{Conversion, Documentation, LazySchema, ScalePaths, StorageAs, Subresource},
};
use kind::{GroupData, KindData, Scale, Sub};
use sha2::{Digest, Sha256};
use std::sync::{Arc, LazyLock};
pub(crate) use table::PACKAGES;

/// What every plane serves.
#[derive(Debug)]
pub struct BuiltIn {
    types: Arc<TypeSet>,
}

impl BuiltIn {
    /// The types as a set.
    pub fn types(&self) -> &Arc<TypeSet> {
        &self.types
    }
}

/// The built-in types, made on first use and kept.
pub fn builtin() -> &'static BuiltIn {
    static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(build);
    &BUILT_IN
}

fn build() -> BuiltIn {
    let mut groups: Vec<Group> = Vec::new();
    let mut digest = Sha256::new_with_prefix(HASH.as_bytes());
    let printed = printed::Printed::unpack();
    for data in table::GROUPS {
        let mut types: Vec<_> =
            data.kinds.iter().map(|kind| Arc::new(resource_type(data, kind, &printed))).collect();
        types.sort_by(|a, b| a.plural.cmp(&b.plural));
        types.iter().for_each(|ty| digest.update(&ty.hash));
        let version = ServedVersion {
            version: data.version.to_owned(),
            priority: data.version_priority,
            types,
            remote: None,
        };
        match groups.last_mut().filter(|group| group.name == data.group) {
            Some(group) => group.versions.push(version),
            None => groups.push(Group {
                name: data.group.to_owned(),
                priority: data.priority,
                versions: vec![version],
            }),
        }
    }
    let hash = hex::encode(&digest.finalize()[..16]);
    BuiltIn { types: Arc::new(TypeSet::of_groups(groups, hash)) }
}

fn resource_type(group: &GroupData, data: &KindData, printed: &printed::Printed) -> ResourceType {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<String>>();
    let definition = format!("{}.{}.{}", group.package(), group.version, data.kind);
    let mut ty = ResourceType {
        group: group.group.to_owned(),
        version: group.version.to_owned(),
        kind: data.kind.to_owned(),
        list_kind: format!("{}List", data.kind),
        plural: data.plural.to_owned(),
        singular: data.kind.to_lowercase(),
        short_names: owned(data.short_names),
        categories: owned(data.categories),
        namespaced: data.namespaced,
        verbs: data.verbs.to_vec(),
        subresources: data.subresources.iter().map(|sub| subresource(group, data, sub)).collect(),
        storage: storage(group, data),
        schema: lazy_schema(definition.clone()),
        stored_schema: None,
        openapi: Documentation::BuiltIn(definition),
        columns: data
            .columns
            .iter()
            .map(|column| column.column(|name| printed.description(group, data, name)))
            .collect(),
        selectable_fields: owned(data.selectable_fields),
        generation: data.generation,
        custom: false,
        deprecation: data.deprecation.map(str::to_owned),
        terminating: false,
        contexts: Vec::new(),
        since: 0,
        hash: String::new(),
    };
    ty.hash = hex::encode(&Sha256::digest(format!("{}{ty:?}", *HASH))[..16]);
    ty
}

fn lazy_schema(definition: String) -> LazySchema {
    LazySchema::new(move || schema_of_definition(&definition).cloned())
}

fn subresource(group: &GroupData, data: &KindData, sub: &Sub) -> Subresource {
    let (kind_group, version, kind) = sub.kind.unwrap_or((group.group, group.version, data.kind));
    Subresource {
        name: sub.name.to_owned(),
        kind: GroupVersionKind {
            group: kind_group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        },
        verbs: sub.verbs.to_vec(),
        scale: sub.scale.as_ref().map(scale_paths),
    }
}

fn scale_paths(scale: &Scale) -> ScalePaths {
    ScalePaths {
        spec_replicas: ".spec.replicas".to_owned(),
        status_replicas: ".status.replicas".to_owned(),
        label_selector: Some(scale.selector.to_owned()),
    }
}

/// Where the kind is kept: in its own group, unless it shares another's place.
fn storage(group: &GroupData, data: &KindData) -> StorageAs {
    let own = GroupVersionKind {
        group: group.group.to_owned(),
        version: group.version.to_owned(),
        kind: data.kind.to_owned(),
    };
    let (at, conversion) = match data.stored_as {
        None => (own, Conversion::None),
        Some((group, version, conversion)) => {
            let kept = GroupVersionKind { group: group.to_owned(), version: version.to_owned(), ..own };
            (kept, Conversion::BuiltIn(conversion))
        }
    };
    let api_version = if at.group.is_empty() { at.version } else { format!("{}/{}", at.group, at.version) };
    StorageAs { group: at.group, resource: data.plural.to_owned(), api_version, conversion }
}
