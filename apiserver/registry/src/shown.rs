//! Pages of what a view shows or a selector names, found without looking at other objects.

use crate::{Operation, Places, Registry, list::Entries, select::Selection};
use freehold_apiserver_operation::path_of;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::Result;
use futures_util::future::try_join_all;
use std::ops::Bound::{Excluded, Unbounded};

/// Objects that are read at a time.
const AT_ONCE: usize = 16;

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
