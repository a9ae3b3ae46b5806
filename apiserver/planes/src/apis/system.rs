//! Exports of the platform itself: the kinds of its subsystems.
//!
//! They are no objects, and have no provider's project: whoever runs the server names them, and every project may bind them.
//! Their objects are stored as those of a definition would be, so that controllers over all planes, and projects that get the
//! kinds another way, find them in the same place.

use super::{Export, compiled::Types};
use freehold_machinery::{PlaneId, ResourceType, Value, crd};
use std::sync::{Arc, OnceLock};

/// What bindings name in place of a provider's project. No project can be called so.
pub const SYSTEM: &str = "system:freehold";

/// Kinds that the platform exports.
#[derive(Clone, Debug)]
pub struct SystemExport {
    /// The name of the export, such as `tenancy.freehold.dev`.
    pub name: String,
    /// The definitions of its kinds.
    pub definitions: Vec<Value>,
}

/// The exports of this server.
#[derive(Default)]
pub(super) struct System(OnceLock<Vec<Arc<Export>>>);

impl System {
    pub(super) fn export(&self, name: &str) -> Option<Arc<Export>> {
        self.all().iter().find(|export| *export.name == *name).cloned()
    }

    /// Sets what the platform exports, once.
    pub(super) fn offer(&self, exports: &[SystemExport]) {
        let read =
            |export: &SystemExport| Arc::new(Export::of_system(&export.name, types(&export.definitions)));
        let _ = self.0.set(exports.iter().map(read).collect());
    }

    pub(super) fn all(&self) -> &[Arc<Export>] {
        self.0.get().map(Vec::as_slice).unwrap_or_default()
    }
}

/// The types of definitions, as bindings bring them.
fn types(definitions: &[Value]) -> Types {
    let definitions = definitions.iter().map(|definition| crd::definition_of(&definition["spec"]));
    let compiled = definitions.flat_map(|definition| crd::compile(&definition).unwrap_or_default());
    let served: Vec<Arc<ResourceType>> = compiled
        .filter_map(Arc::into_inner)
        .map(|mut ty| {
            // A binding brings it, and it is as it is for as long as the server runs.
            ty.since = 1;
            ty.hash.push_str(":system");
            Arc::new(ty)
        })
        .collect();
    Types { served: served.into(), everywhere: Arc::default(), references: Arc::default() }
}

impl Export {
    fn of_system(name: &str, types: Types) -> Self {
        Self {
            plane: PlaneId::core(),
            name: name.into(),
            identity: Box::default(),
            schemas: Vec::new(),
            claims: Vec::new(),
            defaults: Vec::new(),
            terms: String::new(),
            roles: Vec::new(),
            limits: Vec::new(),
            admission: Value::Null,
            organizations: vec!["*".to_owned()],
            project_labels: Default::default(),
            created: 0,
            modified: 0,
            since: 1,
            types: Default::default(),
            fixed: Some(types),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kinds_of_the_platform_are_stored_as_those_of_a_definition() {
        let definition = json!({"spec": {
            "group": "tenancy.freehold.dev", "scope": "Cluster", "names": {"plural": "tenants", "kind": "Tenant"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        }});
        let types = types(&[definition]);
        let ty = &types.served[0];
        assert_eq!((&*ty.storage.resource, ty.since, &*ty.list_kind), ("tenants", 1, "TenantList"));
    }
}
