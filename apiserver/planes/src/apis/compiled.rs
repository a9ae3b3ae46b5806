//! Types that schemas compile to, once for all planes that serve them.

use freehold_api::apis;
use freehold_machinery::{
    GroupVersionKind, ResourceType, Value, crd,
    crd::{Exporter, references::Reference},
    resource::Subresource,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Fields that name objects, by group, resource and version.
pub(super) type ReferenceFields = HashMap<(Box<str>, Box<str>, Box<str>), Arc<[Reference]>>;

/// A schema as it is named in an export.
pub(super) struct Schema {
    pub(super) spec: Value,
    pub(super) modified: u64,
}

/// Types of a set of schemas.
#[derive(Clone)]
pub(super) struct Types {
    /// As consumers' planes serve them.
    pub(super) served: Arc<[Arc<ResourceType>]>,
    /// As readers of all planes find them, beside types of other exports with the same group and resource: under the
    /// resource that objects are stored as, `<resource>:<identity>`.
    pub(super) everywhere: Arc<[Arc<ResourceType>]>,
    /// Fields that name objects.
    pub(super) references: Arc<ReferenceFields>,
}

/// Types that were compiled, and the generation that they are of.
#[derive(Default)]
pub(super) struct TypeCache(Mutex<Option<(u64, Types)>>);

impl TypeCache {
    /// The types that an export serves of schemas, as of a generation: those of before where they are equal, so that planes'
    /// sets stay the same values.
    pub(super) fn get(
        &self,
        generation: u64,
        schemas: impl FnOnce() -> Vec<Arc<Schema>>,
        by: Exporter<'_>,
    ) -> Types {
        let mut known = self.0.lock();
        if let Some((at, types)) = &*known
            && *at == generation
        {
            return types.clone();
        }
        let schemas = schemas();
        let references = references_of(&schemas);
        let compiled = || compile(&schemas, &references, by);
        let served = compiled();
        let is_equal =
            |before: &Types| before.served.iter().map(|ty| &ty.hash).eq(served.iter().map(|ty| &ty.hash));
        let types = match &*known {
            Some((_, before)) if is_equal(before) => before.clone(),
            _ => {
                let everywhere = compiled().into_iter().filter_map(everywhere).collect();
                Types { served: served.into(), everywhere, references: references.into() }
            }
        };
        *known = Some((generation, types.clone()));
        types
    }

    /// Forgets the types, so that the next ones are other values.
    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }
}

/// The types that an export serves of schemas.
fn compile(
    schemas: &[Arc<Schema>],
    references: &ReferenceFields,
    by: Exporter<'_>,
) -> Vec<Arc<ResourceType>> {
    let mut types: Vec<Arc<ResourceType>> = Vec::new();
    for schema in schemas {
        // What can't be compiled was refused when it was written.
        let compiled = crd::exported(&schema.spec, Exporter { since: by.since.max(schema.modified), ..by });
        let compiled = compiled.unwrap_or_default();
        let is_taken = |ty: &Arc<ResourceType>| {
            types.iter().any(|other| other.group == ty.group && other.plural == ty.plural)
        };
        if !compiled.iter().any(is_taken) {
            types.extend(compiled.into_iter().map(|ty| with_referrers(ty, references)));
        }
    }
    types
}

/// The fields of schemas that name objects. A schema with wrong ones was refused when it was written.
fn references_of(schemas: &[Arc<Schema>]) -> ReferenceFields {
    let mut found = ReferenceFields::new();
    for Schema { spec, .. } in schemas.iter().map(|schema| &**schema) {
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        for version in spec["versions"].as_array().into_iter().flatten() {
            let fields =
                crd::references::references(&version["schema"]["openAPIV3Schema"]).unwrap_or_default();
            if !fields.is_empty() {
                let key = (group.into(), plural.into(), text(&version["name"]).into());
                found.insert(key, fields.into());
            }
        }
    }
    found
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a reference of a kind of some group names objects of a type.
pub(super) fn is_about(reference: &Reference, group: &str, ty: &ResourceType) -> bool {
    let of = if reference.group.is_empty() { group } else { &reference.group };
    *of == *ty.group && reference.resource == ty.plural
}

/// A type that objects of the export name has a subresource that tells which.
fn with_referrers(mut ty: Arc<ResourceType>, references: &ReferenceFields) -> Arc<ResourceType> {
    let mut all =
        references.iter().flat_map(|((group, ..), fields)| fields.iter().map(move |one| (group, one)));
    let is_named = all.any(|(group, one)| is_about(one, group, &ty));
    // It was just compiled, so nobody else has it.
    if let Some(ty) = Arc::get_mut(&mut ty).filter(|_| is_named) {
        ty.subresources.push(Subresource {
            name: apis::REFERRERS.into(),
            kind: GroupVersionKind {
                group: apis::GROUP.into(),
                version: apis::VERSION.into(),
                kind: "ObjectReferrers".into(),
            },
            verbs: vec!["get"],
            scale: None,
        });
        ty.hash.push_str(":referrers");
    }
    ty
}

/// A type under the resource that its objects are stored as.
fn everywhere(ty: Arc<ResourceType>) -> Option<Arc<ResourceType>> {
    let mut ty = Arc::into_inner(ty)?;
    ty.plural.clone_from(&ty.storage.resource);
    ty.hash.push_str(":everywhere");
    Some(Arc::new(ty))
}
