//! Lists and watches of what their user may read of a project, for those who may not list all of it
//! ([`freehold_apiserver_authz::visible`]).
//!
//! A watch follows the plane's roles and bindings: what becomes visible is announced as added, and where something is
//! hidden from now on the watch ends with 410, so that no object is shown after its right has gone. A watch that goes on
//! from a revision begins only where its user is known to have seen the same then; otherwise with 410, too.

use crate::backend::LocalBackend;
use arc_swap::ArcSwap;
use freehold_apiserver_authz::{Attributes, Reach, forbidden, visible::Names};
use freehold_apiserver_cache::Entry;
use freehold_apiserver_planes::Planes;
use freehold_apiserver_registry::{
    Changed, EventKind, List, ListOptions, Operation, Places, Registry, Shown, WatchEvent, WatchOptions,
};
use freehold_machinery::{PlaneId, Result, Status};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque, hash_map::RandomState},
    hash::BuildHasher,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::sleep};

/// How long changes of roles and bindings are collected.
const TOGETHER: Duration = Duration::from_millis(50);
/// Most names that are read one by one; for more all objects are looked at.
const MAX_LOOKUPS: usize = 256;
/// Most objects that a watch announces at a time; for more it ends, and its client lists again.
const MAX_ANNOUNCED: usize = 1_000;
/// Most views of a plane that are remembered, and most states of each.
const MAX_VIEWS: usize = 2_048;
const MAX_STATES: usize = 16;
/// Most planes whose views are remembered.
const MAX_PLANES: usize = 2_048;

/// How often a list is read again because what is visible changed meanwhile.
const ATTEMPTS: usize = 3;

/// What a view showed at a revision, as a hash.
type State = (u64, u64);

/// The hash of a state between two others: no watch goes on behind it.
const MIXED: u64 = 0;

/// What users were shown lately, as hashes: a watch may go on behind a list that showed the same.
#[derive(Default)]
pub(crate) struct ShownLately {
    planes: Mutex<HashMap<PlaneId, HashMap<u64, VecDeque<State>>>>,
    hasher: RandomState,
}

impl ShownLately {
    /// Remembers that a view showed these names at a revision.
    fn remember(&self, plane: &PlaneId, view: u64, revision: u64, names: u64) {
        let mut planes = self.planes.lock();
        if planes.len() >= MAX_PLANES && !planes.contains_key(plane) {
            planes.clear();
        }
        let views = planes.entry(plane.clone()).or_default();
        if views.len() >= MAX_VIEWS && !views.contains_key(&view) {
            views.clear();
        }
        let states = views.entry(view).or_default();
        let at = states.partition_point(|(known, _)| *known <= revision);
        let before = at.checked_sub(1).map(|before| states[before]);
        match before {
            Some((_, last)) if last == names => return,
            // A page of a list whose first pages showed something else.
            Some((known, _)) if known == revision => states[at - 1].1 = MIXED,
            _ if at < states.len() => states.insert(at, (revision, MIXED)),
            _ => states.push_back((revision, names)),
        }
        if states.len() > MAX_STATES {
            states.pop_front();
        }
    }

    /// What a view showed last at or before a revision, as far as that is remembered.
    fn last(&self, plane: &PlaneId, view: u64, revision: u64) -> Option<State> {
        let planes = self.planes.lock();
        let states = planes.get(plane)?.get(&view)?;
        states.iter().rev().find(|(at, _)| *at <= revision).copied()
    }

    /// Whether a view showed at a revision what it shows now. `changed` is when roles and bindings changed last.
    fn showed(&self, (plane, view): (&PlaneId, u64), revision: u64, changed: u64, now: u64) -> bool {
        match self.last(plane, view, revision) {
            Some((at, state)) if at >= changed || state == now => state == now,
            _ => revision >= changed,
        }
    }
}

/// A user's view of a resource.
#[derive(Clone)]
struct View {
    planes: Arc<Planes>,
    registry: Arc<Registry>,
    lately: Arc<ShownLately>,
    op: Operation,
    verb: &'static str,
}

impl View {
    fn new(backend: &LocalBackend, op: &Operation, verb: &'static str) -> Self {
        let op = Operation { narrowed: false, ..op.clone() };
        let (planes, registry) = (backend.planes.clone(), backend.registry.clone());
        Self { planes, registry, lately: backend.shown_lately.clone(), op, verb }
    }

    fn asked(&self) -> Attributes<'_> {
        let Operation { user, ty, .. } = &self.op;
        Attributes { version: &ty.version, ..Attributes::resource(user, self.verb, &ty.group, &ty.plural) }
    }

    /// What is visible now.
    async fn names(&self) -> Result<Arc<Names>> {
        let reach = if self.op.ty.namespaced { Reach::Namespaces } else { Reach::Objects };
        let access = self.planes.access(&self.op.plane).await?;
        Ok(Arc::new(access.visible(&self.asked(), reach)))
    }

    /// What is visible now; 403 where that is nothing.
    async fn some_names(&self) -> Result<Arc<Names>> {
        let names = self.names().await?;
        if names.is_empty() { Err(forbidden(&self.asked(), "")) } else { Ok(names) }
    }

    /// Shows objects whose namespace or name is among what `names` holds at the time.
    fn shown(&self, names: &Arc<ArcSwap<Names>>) -> Arc<Shown> {
        let namespaced = self.op.ty.namespaced;
        let (now, later) = (names.clone(), names.clone());
        let shows = move |entry: &Entry| {
            now.load().contains(if namespaced { entry.namespace() } else { entry.name() })
        };
        let find = move |_| {
            let names = later.load();
            let is_few = !namespaced && names.len() <= MAX_LOOKUPS;
            is_few.then(|| Places::clone(&names))
        };
        Arc::new(Shown::only(format!("visible to {}", self.op.user.name), shows, find))
    }

    /// The key of the view among those of its plane.
    fn key(&self) -> u64 {
        let Operation { user, ty, .. } = &self.op;
        self.lately.hasher.hash_one((&user.name, &user.groups, &ty.storage.group, &ty.storage.resource))
    }

    fn state(&self, names: &Names) -> u64 {
        self.lately.hasher.hash_one(names)
    }

    fn remember(&self, revision: u64, state: u64) {
        self.lately.remember(&self.op.plane, self.key(), revision, state);
    }

    /// Checks that a watch can go on behind a revision.
    ///
    /// # Errors
    /// 410 where the view may have shown something else then: of that there is no event.
    async fn check_since(&self, since: &str, names: &Names) -> Result<()> {
        let Some(since) = since.parse::<u64>().ok().filter(|since| *since > 0) else { return Ok(()) };
        let changed = self.planes.policy_changed(&self.op.plane).await?;
        let view = (&self.op.plane, self.key());
        if self.lately.showed(view, since, changed, self.state(names)) {
            return Ok(());
        }
        Err(Status::expired(format!("what is yours has changed since {since}; list again")))
    }

    /// Events that announce what has become visible.
    async fn announced(&self, options: &ListOptions, names: Names) -> Result<Vec<WatchEvent>> {
        let shown = self.shown(&Arc::new(ArcSwap::from_pointee(names)));
        let options = ListOptions {
            resource_version: String::new(),
            resource_version_match: String::new(),
            continue_token: String::new(),
            limit: MAX_ANNOUNCED,
            shown: Some(shown),
            ..options.clone()
        };
        let list = self.registry.list(&self.op, &options).await?;
        if !list.continue_token.is_empty() {
            return Err(changed());
        }
        let added = |object| WatchEvent::Changed(Changed::new(EventKind::Added, object));
        Ok(list.items.into_iter().map(added).collect())
    }
}

fn changed() -> Status {
    Status::expired("what is yours has changed; list again")
}

/// Lists what is visible to a user.
///
/// # Errors
/// 403 where that is nothing, and those of lists.
pub(crate) async fn list(backend: &LocalBackend, op: &Operation, options: ListOptions) -> Result<List> {
    let view = View::new(backend, op, "list");
    let mut names = view.some_names().await?;
    for attempt in 1.. {
        let shown = Some(view.shown(&Arc::new(ArcSwap::new(names.clone()))));
        let list = view.registry.list(&view.op, &ListOptions { shown, ..options.clone() }).await?;
        // The list may be as of a revision behind a change of what is visible, which a watch from there would miss.
        let now = view.some_names().await?;
        if now == names || attempt == ATTEMPTS {
            view.remember(list.revision, if now == names { view.state(&names) } else { MIXED });
            return Ok(list);
        }
        names = now;
    }
    Err(Status::internal("a list was never read"))
}

/// A watch of what is visible to a user.
struct Watching {
    view: View,
    options: ListOptions,
    names: Arc<ArcSwap<Names>>,
    events: BoxStream<'static, WatchEvent>,
    changes: watch::Receiver<u64>,
    /// Keeps the sender of changes.
    _sender: Arc<watch::Sender<u64>>,
    ready: VecDeque<WatchEvent>,
}

/// Watches what is visible to a user.
///
/// # Errors
/// 403 where that is nothing, and those of watches.
pub(crate) async fn watch(
    backend: &LocalBackend,
    op: &Operation,
    mut options: WatchOptions,
) -> Result<BoxStream<'static, WatchEvent>> {
    let view = View::new(backend, op, "watch");
    let sender = view.planes.changes_of(&view.op.plane);
    let changes = sender.subscribe();
    let names = view.some_names().await?;
    view.check_since(&options.list.resource_version, &names).await?;
    view.remember(view.registry.cache().applied(), view.state(&names));
    let names = Arc::new(ArcSwap::new(names));
    options.list.shown = Some(view.shown(&names));
    let events = view.registry.watch(&view.op, &options).await?.boxed();
    let ready = VecDeque::new();
    let watching = Watching { view, options: options.list, names, events, changes, _sender: sender, ready };
    let steps = stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        match watching.next().await {
            Ok(event) => event.map(|event| (event, Some(watching))),
            Err(status) => Some((WatchEvent::Error(status), None)),
        }
    });
    Ok(steps.boxed())
}

impl Watching {
    /// The next event; `None` where the watch is over.
    async fn next(&mut self) -> Result<Option<WatchEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            tokio::select! {
                biased;
                _ = self.changes.changed() => self.follow().await?,
                event = self.events.next() => return Ok(event),
            }
        }
    }

    /// Takes in what the plane's roles and bindings say now.
    async fn follow(&mut self) -> Result<()> {
        sleep(TOGETHER).await;
        self.changes.mark_unchanged();
        let (before, now) = (self.names.load_full(), self.view.names().await?);
        if before == now {
            return Ok(());
        }
        if now.is_empty() || !before.is_subset(&now) {
            return Err(changed());
        }
        let added = now.difference(&before).cloned().collect();
        self.view.remember(self.view.registry.cache().applied(), self.view.state(&now));
        self.names.store(now);
        self.ready.extend(self.view.announced(&self.options, added).await?);
        Ok(())
    }
}

/// The refusal of what a narrowed request cannot do.
pub(crate) fn refused(op: &Operation, verb: &str) -> Status {
    forbidden(&Attributes::resource(&op.user, verb, &op.ty.group, &op.ty.plural), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_goes_on_only_behind_a_list_that_showed_the_same() {
        let (lately, plane) = (ShownLately::default(), PlaneId::core());
        // Nothing is remembered: what has not changed since was the same.
        let showed = |revision, changed, now| lately.showed((&plane, 1), revision, changed, now);
        assert!(!showed(9, 10, 70) && showed(10, 10, 70));
        for (revision, names) in [(5, 70), (6, 70), (8, 71), (9, 70)] {
            lately.remember(&plane, 1, revision, names);
        }
        assert_eq!([4, 5, 7, 8, 9, 99].map(|at| showed(at, 100, 70)), [false, true, true, false, true, true]);
        // A page that comes later than others' lists, of something else than the first.
        lately.remember(&plane, 1, 7, 72);
        assert!(!showed(7, 100, 72) && !showed(7, 100, 70) && showed(6, 100, 70));
        // A list that was read while it changed is followed by no watch.
        lately.remember(&plane, 1, 120, MIXED);
        assert!(!showed(120, 110, 72) && showed(130, 130, 72));
        for revision in 0..200 {
            lately.remember(&plane, 1, 200 + revision, revision);
        }
        assert!(lately.planes.lock()[&plane][&1].len() <= MAX_STATES);
        for view in 0..2 * MAX_VIEWS as u64 {
            lately.remember(&plane, view, 1, 1);
        }
        assert!(lately.planes.lock()[&plane].len() <= MAX_VIEWS);
    }
}
