//! Lists: from memory as of now, from the store as of a past revision.

use crate::{
    Cache, Entry,
    event::{self, Own},
    feed::unavailable,
    layer::{Objects, collection},
};
use bytes::Bytes;
use freehold_apiserver_storage::{Key, KeyRange, ObjectPath, Range};
use freehold_machinery::{PlaneId, Result};
use std::sync::Arc;

/// Keys that one read of the store asks for.
const CHUNK: usize = 2_000;

/// Which objects a list is about.
#[derive(Clone, Copy, Debug)]
pub struct ListRequest<'a> {
    /// The plane.
    pub plane: &'a PlaneId,
    /// The group objects are stored under.
    pub group: &'a str,
    /// The resource objects are stored under.
    pub resource: &'a str,
    /// One namespace, or all.
    pub namespace: Option<&'a str>,
}

/// Objects as of one revision.
pub struct Listed {
    /// The objects with their place in the order (`namespace/name` or `name`), in that order.
    pub objects: Vec<(Box<str>, Arc<Entry>)>,
    /// The revision.
    pub revision: u64,
    /// The last revision that changed the collection: as of any revision from it to `revision` the list is the same.
    pub changed: u64,
}

/// One page of a list as of a past revision.
pub struct Page {
    /// The objects with their place in the order.
    pub objects: Vec<(Box<str>, Arc<Entry>)>,
    /// Whether there are more behind them.
    pub more: bool,
}

impl Cache {
    /// The objects as the cache has them, layer included. Call [`Cache::catch_up`] before for a linearizable list.
    pub async fn list(&self, request: ListRequest<'_>) -> Result<Listed> {
        let plane = self.plane(request.plane).await?;
        let name = collection(request.group, request.resource);
        let shot = plane.snapshot(&name, request.namespace, true, self.applied());
        Ok(Listed {
            objects: shot.objects,
            revision: shot.revision,
            changed: shot.changed.max(plane.layer.revision()),
        })
    }

    /// The objects behind `after` (a place in the order; empty for the first page), as of a past revision.
    pub async fn page(&self, request: ListRequest<'_>, at: u64, after: &str, limit: usize) -> Result<Page> {
        let keys = KeyRange::resource(request.plane, request.group, request.resource, request.namespace);
        let prefix = KeyRange::resource(request.plane, request.group, request.resource, None).start.len();
        let start = if after.is_empty() { keys.start.clone() } else { self.behind(&request, after) };
        let range = Range { keys: keys.from_key(start), at: Some(at), limit, keys_only: false };
        let read = self.store.range(range).await.map_err(|error| unavailable(&error))?;
        let last = read.items.last().filter(|_| read.more).map(|item| place(&item.key, prefix));
        let mut merged = self.layer_part(&request, after, last.as_deref());
        for item in &read.items {
            let place = place(&item.key, prefix);
            match event::read(&item.key, Some(&item.value), item.created, item.modified) {
                Own::Object(entry) => drop(merged.insert(place, entry)),
                Own::Whiteout | Own::Absent => drop(merged.remove(&place)),
            }
        }
        let mut objects: Vec<_> = merged.into_iter().collect();
        let cut = limit > 0 && objects.len() > limit;
        objects.truncate(if limit > 0 { limit } else { usize::MAX });
        Ok(Page { objects, more: read.more || cut })
    }

    fn behind(&self, request: &ListRequest<'_>, after: &str) -> Bytes {
        let (namespace, name) = match after.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, after),
        };
        let (group, resource) = (request.group.to_owned(), request.resource.to_owned());
        let path = ObjectPath { group, resource, namespace, name: name.to_owned() };
        KeyRange::one(&Key::object(request.plane, &path)).end
    }

    fn layer_part(&self, request: &ListRequest<'_>, after: &str, last: Option<&str>) -> Objects {
        let name = collection(request.group, request.resource);
        let mut below = self.layer(request.plane).range(request.plane, &name, request.namespace);
        below.retain(|place, _| **place > *after && last.is_none_or(|last| **place <= *last));
        below
    }

    /// The objects of a resource in every plane that `wanted` accepts, as of one revision, which is returned. Planes are
    /// not loaded for it. `base` adds what comes from the planes' layers, for the planes that `wanted` lists.
    pub async fn list_planes(
        &self,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
        mut visit: impl FnMut(&PlaneId, Arc<Entry>),
    ) -> Result<u64> {
        let mut keys = self.keys().clone();
        let mut at = None;
        loop {
            let range = Range { keys: keys.clone(), at, limit: CHUNK, keys_only: false };
            let page = self.store.range(range).await.map_err(|error| unavailable(&error))?;
            let revision = *at.get_or_insert(page.revision);
            for item in &page.items {
                let Some((plane, path)) = item.key.object_path() else { continue };
                let here = path.group == group && path.resource == resource;
                if !here || namespace.is_some_and(|ns| path.namespace.as_deref() != Some(ns)) {
                    continue;
                }
                if let Own::Object(entry) =
                    event::read(&item.key, Some(&item.value), item.created, item.modified)
                {
                    visit(&plane, entry);
                }
            }
            match page.items.last() {
                Some(last) if page.more => keys = keys.from_key(KeyRange::one(&last.key).end),
                _ => return Ok(revision),
            }
        }
    }

    /// What a plane's layer brings of a resource and the plane has not changed, for lists over several planes.
    pub async fn layer_objects(&self, request: ListRequest<'_>) -> Result<Vec<Arc<Entry>>> {
        let base = self.layer(request.plane).revision();
        let listed = self.list(request).await?;
        Ok(listed
            .objects
            .into_iter()
            .map(|(_, entry)| entry)
            .filter(|entry| entry.modified == base)
            .collect())
    }
}

fn place(key: &Key, prefix: usize) -> Box<str> {
    String::from_utf8_lossy(&key.as_bytes()[prefix..]).into()
}
