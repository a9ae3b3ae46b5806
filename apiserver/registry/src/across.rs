//! Lists and watches over several planes at once, with one resource version.

use crate::{
    List, ListOptions, Object, Operation, Registry, WatchEvent, WatchOptions, convert,
    registry::parse_version, select::Selection,
};
use freehold_apiserver_cache::{Entry, ListRequest, Scope};
use freehold_machinery::{PlaneId, Result};
use futures_util::{FutureExt, Stream};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Shows an object of a plane to whoever looks at several planes; `None` leaves it out.
type Show = dyn Fn(&PlaneId, Object) -> Option<Object> + Send + Sync;

/// How objects are shown.
#[derive(Clone)]
pub struct View {
    pub(crate) show: Arc<Show>,
    /// Equal for views that show an object the same way; 0 for the one that adds nothing.
    pub(crate) key: u64,
}

impl View {
    /// A view. `name` tells it from those that show the same object otherwise.
    pub fn new(
        name: &str,
        show: impl Fn(&PlaneId, Object) -> Option<Object> + Send + Sync + 'static,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { show: Arc::new(show), key: hasher.finish() | 1 }
    }

    /// Objects as they are.
    pub(crate) fn plain() -> Self {
        Self { show: Arc::new(|_, object| Some(object)), key: 0 }
    }
}

/// Which planes, and how their objects are shown.
#[derive(Clone)]
pub struct Across {
    /// The planes; `None` stands for all. Objects of their layers are shown for named planes only.
    pub planes: Option<Vec<PlaneId>>,
    /// What is shown.
    pub view: View,
}

impl Registry {
    /// Lists a resource over several planes. It comes whole: `limit` is not used.
    pub async fn list_across(&self, op: &Operation, options: &ListOptions, across: &Across) -> Result<List> {
        let selection = Selection::new(&op.ty, op.namespace.as_deref(), options)?;
        match parse_version(&options.resource_version)? {
            Some(revision) => self.cache.wait_for(revision).await?,
            None => drop(self.cache.catch_up().await?),
        }
        let (found, revision) = self.present_across(op, across).await?;
        let mut items = Vec::new();
        for (plane, entry) in found {
            if selection.matches(&entry) {
                items.extend((across.view.show)(&plane, convert::out(&op.ty, entry)?));
            }
        }
        Ok(List { items, revision, continue_token: String::new(), remaining: None })
    }

    /// Watches a resource over several planes, those included that come later and that the view shows.
    pub async fn watch_across(
        &self,
        op: &Operation,
        options: &WatchOptions,
        across: &Across,
    ) -> Result<impl Stream<Item = WatchEvent> + Send + use<>> {
        let present = self.present_across(op, across).boxed();
        self.open(op, options, Scope::AllPlanes, across.view.clone(), Some(present)).await
    }

    async fn present_across(
        &self,
        op: &Operation,
        across: &Across,
    ) -> Result<(Vec<(PlaneId, Arc<Entry>)>, u64)> {
        let (group, resource) = (&*op.ty.storage.group, &*op.ty.storage.resource);
        let namespace = op.namespace.as_deref();
        let mut found = Vec::new();
        let Some(planes) = &across.planes else {
            let visit = |plane: &PlaneId, entry| found.push((plane.clone(), entry));
            let revision = self.cache.list_planes(group, resource, namespace, visit).await?;
            return Ok((found, revision));
        };
        // Each plane may be newer than the revision that is told: a watch from there repeats, and never misses.
        let revision = self.cache.applied();
        for plane in planes {
            let listed = self.cache.list(ListRequest { plane, group, resource, namespace }).await?;
            found.extend(listed.objects.into_iter().map(|(_, entry)| (plane.clone(), entry)));
        }
        Ok((found, revision))
    }
}
