//! What a view shows of a plane: part of a resource's objects, found without looking at the others.
//!
//! Lists, watches and deletions of a collection that are given a [`Shown`] know nothing of what it hides: pages are made
//! of shown objects, and their tokens name shown objects alone.

use freehold_apiserver_cache::Entry;
use std::{collections::BTreeSet, fmt, sync::Arc};

/// Places (`namespace/name` or `name`) of objects.
pub type Places = BTreeSet<Arc<str>>;

type Shows = dyn Fn(&Entry) -> bool + Send + Sync;

type Find = dyn Fn(u64) -> Option<Places> + Send + Sync;

/// What a view shows of one resource.
pub struct Shown {
    /// The name of the view: continue tokens are sealed for it.
    pub name: String,
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
    pub fn is_all(&self) -> bool {
        self.only.is_none()
    }

    /// Reports whether an object is shown.
    pub fn shows(&self, entry: &Entry) -> bool {
        self.only.as_ref().is_none_or(|only| (only.shows)(entry))
    }

    /// Returns the places of what is shown as of a revision; `None` where all objects have to be looked at.
    pub fn find(&self, at: u64) -> Option<Places> {
        (self.only.as_ref()?.find)(at)
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.name).finish()
    }
}
