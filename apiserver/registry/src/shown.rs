//! What a view shows of a plane: part of a resource's objects, found without looking at the others.
//!
//! Lists, watches and deletions of a collection that are given a [`Shown`] know nothing of what it hides: pages are made
//! of shown objects, and their tokens name shown objects alone.

use crate::{Operation, Registry, list::Entries, registry::path_of, select::Selection};
use freehold_apiserver_cache::Entry;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::Result;
use futures_util::future::try_join_all;
use std::{
    collections::BTreeSet,
    fmt,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
};

/// Objects that are read at a time.
const AT_ONCE: usize = 16;

/// Places (`namespace/name` or `name`) of objects.
pub type Places = BTreeSet<Arc<str>>;

type Shows = dyn Fn(&Entry) -> bool + Send + Sync;
type Find = dyn Fn(u64) -> Option<Places> + Send + Sync;

/// What a view shows of one resource.
pub struct Shown {
    /// The name of the view: continue tokens are sealed for it.
    pub(crate) name: String,
    only: Option<Only>,
}

struct Only {
    shows: Box<Shows>,
    find: Box<Find>,
}

impl Shown {
    /// Shows every object of the namespace or plane that is asked for.
    pub fn all(name: String) -> Self {
        Self { name, only: None }
    }

    /// Shows the objects that `shows` says yes to. `find` gives the places of those that are shown as of a revision, others
    /// perhaps among them; `None` where it does not know, so that all objects have to be looked at.
    pub fn only(
        name: String,
        shows: impl Fn(&Entry) -> bool + Send + Sync + 'static,
        find: impl Fn(u64) -> Option<Places> + Send + Sync + 'static,
    ) -> Self {
        Self { name, only: Some(Only { shows: Box::new(shows), find: Box::new(find) }) }
    }

    /// Whether nothing is hidden.
    pub(crate) fn is_all(&self) -> bool {
        self.only.is_none()
    }

    pub(crate) fn shows(&self, entry: &Entry) -> bool {
        self.only.as_ref().is_none_or(|only| (only.shows)(entry))
    }

    fn find(&self, at: u64) -> Option<Places> {
        (self.only.as_ref()?.find)(at)
    }
}

/// The path of an object of an operation's resource.
pub(crate) fn path(op: &Operation, place: &str) -> ObjectPath {
    let (namespace, name) = place.split_once('/').unzip();
    path_of(&op.ty, namespace, name.unwrap_or(place))
}

impl Registry {
    /// A page of what a selector or a view names, as of a revision, behind a place; `None` where neither knows where its objects
    /// are. There is a further page only where a further object is shown.
    pub(crate) async fn shown(
        &self,
        op: &Operation,
        selection: &Selection,
        at: u64,
        after: &str,
        limit: usize,
    ) -> Result<Option<Entries>> {
        let named = selection.place().map(|place| Places::from([place.into()]));
        let places = named.or_else(|| selection.shown().and_then(|shown| shown.find(at)));
        let Some(places) = places else { return Ok(None) };
        let mut entries = Entries { items: Vec::new(), revision: at, more: false, remaining: None };
        let paths: Vec<_> =
            places.range::<str, _>((Excluded(after), Unbounded)).map(|p| path(op, p)).collect();
        // One behind the page tells whether there is a further one.
        let most = if limit == 0 { usize::MAX } else { limit.saturating_add(1) };
        for some in paths.chunks(AT_ONCE.min(most)) {
            let mut reads = Vec::with_capacity(some.len());
            for path in some {
                reads.push(self.cache.get_at(&op.plane, path, at));
            }
            let found = try_join_all(reads).await?;
            entries.items.extend(found.into_iter().flatten().filter(|entry| selection.matches(entry)));
            if entries.items.len() >= most {
                entries.items.truncate(limit);
                entries.more = true;
                break;
            }
        }
        Ok(Some(entries))
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.name).finish()
    }
}
