//! Types that projects export. Two exports may have one group and resource, so readers of all planes find the objects of
//! each under `<resource>:<identity>`; a plane that consumes one serves it as `<resource>`.

use super::types::type_of_spec;
use freehold_client::Resource;
use freehold_controllers_context::Context;
use freehold_controllers_context::kinds::{API_EXPORTS, API_SCHEMAS};
use freehold_controllers_context::object::{items, text};
use freehold_machinery::Value;
use freehold_runtime::{Informer, Interest, Key, Store};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What an export says of its types.
#[derive(Debug, PartialEq)]
struct Export {
    identity: String,
    schemas: Vec<String>,
}

/// Exports and schemas of all planes.
pub(super) struct Exported {
    exports: Store<Export>,
    schemas: Store<Resource>,
}

impl Exported {
    /// Follows them, and notifies of changes.
    pub(super) fn start(context: &Context, changed: &Arc<Notify>) -> Self {
        let mut exports = Informer::new(&context.planes, Interest::projected(API_EXPORTS, export));
        let on_exports = changed.clone();
        exports.on_change(move |_| on_exports.notify_one());
        let mut schemas = Informer::new(&context.planes, Interest::projected(API_SCHEMAS, schema));
        let on_schemas = changed.clone();
        schemas.on_change(move |_| on_schemas.notify_one());
        Self { exports: context.run_informer(exports), schemas: context.run_informer(schemas) }
    }

    /// Waits until all have been read.
    pub(super) async fn synced(&self, token: &CancellationToken) {
        self.exports.synced(token).await;
        self.schemas.synced(token).await;
    }

    /// Each type of each export, as readers of all planes find it.
    pub(super) fn types(&self) -> Vec<Resource> {
        let of_export = |key: Key| {
            let export = self.exports.get(&key)?;
            let schema = |name: &String| {
                self.schemas.get(&Key {
                    plane: key.plane.clone(),
                    namespace: Box::default(),
                    name: name.as_str().into(),
                })
            };
            let found: Vec<_> = export.schemas.iter().filter_map(schema).collect();
            Some(found.iter().map(|ty| stored_as(ty, &export.identity)).collect::<Vec<_>>())
        };
        self.exports.keys().into_iter().filter_map(of_export).flatten().collect()
    }
}

fn export(export: Value) -> Option<Export> {
    let identity = text(&export, "/status/identity").to_owned();
    let schemas = items(&export, "/spec/schemas").iter().filter_map(|name| name.as_str().map(str::to_owned));
    (!identity.is_empty()).then(|| Export { identity, schemas: schemas.collect() })
}

fn schema(schema: Value) -> Option<Resource> {
    type_of_spec(&schema["spec"])
}

fn stored_as(ty: &Resource, identity: &str) -> Resource {
    let plural = format!("{}:{identity}", ty.plural);
    Resource::dynamic(ty.group.to_string(), ty.version.to_string(), plural, ty.namespaced)
}

/// The resource as planes serve it.
pub(super) fn served_as(ty: &Resource) -> Resource {
    let plural = ty.plural.split(':').next().unwrap_or_default().to_owned();
    Resource::dynamic(ty.group.to_string(), ty.version.to_string(), plural, ty.namespaced)
}

/// Whether it is how readers of all planes find an exported type.
pub(super) fn is_exported(ty: &Resource) -> bool {
    ty.plural.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_exported_type_is_found_by_identity_and_served_by_name() {
        let spec = json!({"group": "x.io", "scope": "Namespaced", "names": {"plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true}]});
        let ty = schema(json!({"spec": spec})).unwrap();
        let stored = stored_as(&ty, "abc");
        assert_eq!(&*stored.plural, "things:abc");
        assert!(is_exported(&stored) && !is_exported(&ty));
        assert_eq!(served_as(&stored), ty);
        assert_eq!(export(json!({"spec": {"schemas": ["a"]}})), None, "the server has not accepted it yet");
    }
}
