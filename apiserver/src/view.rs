//! How objects of several planes are shown together: each tells where it is from.

use freehold_api::keys;
use freehold_apiserver_planes::{Directory, OrganizationScope};
use freehold_apiserver_registry::{Across, Object, View};
use freehold_machinery::{Map, Value, meta};
use std::sync::Arc;

/// Adds annotations, without decoding where the bytes are at hand.
fn annotate(object: Object, annotations: &[(&str, &str)]) -> Object {
    match object {
        Object::Cached(entry) => Object::Bytes(entry.with_annotations(annotations)),
        other => {
            let mut value: Value = (*other.value()).clone();
            let map = meta::metadata_mut(&mut value)
                .entry("annotations")
                .or_insert_with(|| Value::Object(Map::new()));
            for (key, text) in annotations {
                map[*key] = (*text).into();
            }
            Object::Value(Arc::new(value))
        }
    }
}

/// Every plane that is served here: core, infra and shared projects. What a dedicated pair serves is its own.
pub(crate) fn all_planes(directory: Arc<Directory>) -> Across {
    let view = move |plane: &freehold_machinery::PlaneId, object| {
        let dedicated = directory.by_plane(plane).is_some_and(|info| info.dedicated);
        (!dedicated).then(|| annotate(object, &[(keys::PLANE_ANNOTATION, plane.as_str())]))
    };
    Across { planes: None, view: View::new("planes", view) }
}

/// The planes of an organization's projects.
pub(crate) fn organization(directory: Arc<Directory>, scope: &OrganizationScope) -> Across {
    let planes = directory.of_organization(&scope.name).iter().map(|info| info.plane.clone()).collect();
    let name = scope.name.clone();
    let view = move |plane: &freehold_machinery::PlaneId, object| {
        let info = directory.by_plane(plane).filter(|info| info.organization == name)?;
        let annotations = [(keys::PLANE_ANNOTATION, plane.as_str()), (keys::PROJECT, &*info.name)];
        Some(annotate(object, &annotations))
    };
    Across { planes: Some(planes), view: View::new(&format!("organization {}", scope.name), view) }
}
