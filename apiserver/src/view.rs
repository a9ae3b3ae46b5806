//! How objects of several planes are shown together: each tells where it is from.

use async_trait::async_trait;
use freehold_api::keys;
use freehold_apiserver_cache::Annotations;
use freehold_apiserver_planes::{Directory, OrganizationScope, Planes};
use freehold_apiserver_registry::{Across, Object, OwnTypes, ShowObject, Versions, View};
use freehold_machinery::{Map, PlaneId, ResourceType, Result, Value, meta};
use std::sync::Arc;

/// Adds annotations to each object of a plane, without decoding where the bytes are at hand.
pub(crate) fn annotating(
    annotations: Annotations,
    selects: impl Fn(&Object) -> bool + Send + Sync + 'static,
) -> ShowObject {
    Box::new(move |object| selects(&object).then(|| annotate(object, &annotations)))
}

fn annotate(object: Object, annotations: &Annotations) -> Object {
    match object {
        Object::Cached(entry) => Object::Item(entry.item_with(annotations)),
        other => {
            let mut value: Value = (*other.value()).clone();
            let map = meta::metadata_mut(&mut value)
                .entry("annotations")
                .or_insert_with(|| Value::Object(Map::new()));
            for (key, text) in annotations.iter() {
                map[key] = text.into();
            }
            Object::Value(Arc::new(value))
        }
    }
}

/// Every plane that is served here: core, infra and shared projects. What a dedicated pair serves is its own.
pub(crate) fn all_planes(directory: Arc<Directory>) -> Across {
    let view = move |plane: &PlaneId| {
        let dedicated = directory.by_plane(plane).is_some_and(|info| info.dedicated);
        let annotations = || Annotations::new(&[(keys::PLANE_ANNOTATION, plane.as_str())]);
        (!dedicated).then(|| annotating(annotations(), |_| true))
    };
    Across { planes: None, view: View::new("planes", view), versions: Versions::AsStored }
}

/// What each project serves.
struct Own(Arc<Planes>);

#[async_trait]
impl OwnTypes for Own {
    async fn own(&self, plane: &PlaneId, like: &ResourceType) -> Result<Option<Arc<ResourceType>>> {
        Ok(self.0.types_of(plane).await?.find(&like.group, &like.version, &like.plural).cloned())
    }

    fn called(&self, plane: &PlaneId) -> String {
        let project = self.0.directory().by_plane(plane);
        project.map_or_else(|| format!("plane {plane}"), |info| format!("project {:?}", &*info.name))
    }
}

/// The planes of an organization's projects. Those that are suspended show nothing.
pub(crate) fn organization(all: &Arc<Planes>, scope: &OrganizationScope) -> Across {
    let directory = all.directory().clone();
    let planes = directory.of_organization(&scope.name).iter().map(|info| info.plane.clone()).collect();
    let name = scope.name.clone();
    let view = move |plane: &PlaneId| {
        let info = directory.by_plane(plane).filter(|info| info.organization == name)?;
        if info.suspended.is_some() {
            return None;
        }
        let annotations = [(keys::PLANE_ANNOTATION, plane.as_str()), (keys::PROJECT, &*info.name)];
        Some(annotating(Annotations::new(&annotations), |_| true))
    };
    let view = View::new(&format!("organization {}", scope.name), view);
    Across { planes: Some(planes), view, versions: Versions::OfPlanes(Arc::new(Own(all.clone()))) }
}
