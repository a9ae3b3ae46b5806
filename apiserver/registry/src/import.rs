//! Objects that come in an archive: nobody's request has validated them, so each is checked as one that is created.

use crate::predicates::is_definition;
use crate::strategy;
use crate::{Annotations, Operation, Registry, validate};
use freehold_apiserver_cache::{Entry, Layer};
use freehold_apiserver_catalog::{TypeSet, custom_types, share};
use freehold_apiserver_operation::heavy;
use freehold_machinery::{PlaneId, ResourceType, Result, Status, User, Value, user::MASTERS};
use std::sync::Arc;

/// Objects that are checked before others get their turn.
const AT_ONCE: usize = 32;
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// Names the object in what is said of it.
fn refused(resource: &str, entry: &Entry, status: Status) -> Status {
    let message = format!("the archive is refused: {resource} {:?}: {}", entry.place(), status.message);
    Status { message, ..status }
}

/// The type of a stored object; `None` for a resource that nobody serves, as one whose definition is not in the archive.
fn type_of(
    types: &TypeSet,
    (group, resource): (&str, &str),
    object: &Value,
) -> Result<Option<Arc<ResourceType>>> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (own_group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_stored_there =
        |ty: &Arc<ResourceType>| ty.storage.group == group && ty.storage.resource == resource;
    match types.by_kind(own_group, version, kind) {
        Some(ty) if is_stored_there(ty) => Ok(Some(ty.clone())),
        None if !types.iter().any(is_stored_there) => Ok(None),
        _ => Err(Status::bad_request(format!("{kind:?} in {api_version:?} is not a kind of this resource"))),
    }
}

impl Registry {
    /// Checks the objects of a layer that an archive was read into: their kinds, metadata, schemas and rules, definitions
    /// first. `types` is what the plane serves without them. Objects of resources that nobody serves are not looked at.
    ///
    /// # Errors
    /// 400 or 422, naming the first object that a create would not accept.
    pub async fn check_imported(&self, plane: &PlaneId, types: &Arc<TypeSet>, layer: &Layer) -> Result<()> {
        let mut custom: Vec<_> = types.iter().filter(|ty| ty.custom).cloned().collect();
        for (collection, entries) in layer.collections().filter(|(collection, _)| *collection == DEFINITIONS)
        {
            for entry in entries {
                self.check_object(plane, types, collection, entry).await?;
                custom.extend(custom_types(&entry.value()).unwrap_or_default());
            }
        }
        let types = share(custom, Vec::new());
        let mut checked = 0;
        for (collection, entries) in layer.collections().filter(|(collection, _)| *collection != DEFINITIONS)
        {
            for entry in entries {
                self.check_object(plane, &types, collection, entry).await?;
                checked += 1;
                if checked % AT_ONCE == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(())
    }

    async fn check_object(
        &self,
        plane: &PlaneId,
        types: &Arc<TypeSet>,
        (group, resource): (&str, &str),
        entry: &Entry,
    ) -> Result<()> {
        let refused = |status| refused(resource, entry, status);
        let stored = heavy(entry.cost(), || entry.value());
        let Some(ty) = type_of(types, (group, resource), &stored).map_err(refused)? else { return Ok(()) };
        if entry.namespace().is_empty() == ty.namespaced {
            let what = if ty.namespaced { "needs a namespace" } else { "has no namespace" };
            return Err(refused(Status::bad_request(format!("a {} {what}", ty.kind))));
        }
        let op = operation(plane, types, &ty, entry);
        let mut object = self.converter.to_served(plane, &ty, stored).await.map_err(refused)?;
        freehold_machinery::meta::remove(&mut object, "resourceVersion");
        (strategy::of(&ty).import)(&mut object);
        heavy(entry.cost(), || match validate::unreadable(&ty, &object) {
            Some(why) if !is_definition(&ty) => Err(Status::bad_request(why)),
            _ => validate::object(&op, &object, None).map(drop),
        })
        .map_err(refused)
    }
}

fn operation(plane: &PlaneId, types: &Arc<TypeSet>, ty: &Arc<ResourceType>, entry: &Entry) -> Operation {
    Operation {
        plane: plane.clone(),
        types: types.clone(),
        user: Arc::new(User { groups: vec![MASTERS.to_owned()], ..User::default() }),
        ty: ty.clone(),
        namespace: Some(entry.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
        name: Some(entry.name().to_owned()),
        subresource: None,
        seen: 0,
        narrowed: false,
        annotations: Annotations::default(),
    }
}
