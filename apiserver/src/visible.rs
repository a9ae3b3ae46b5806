//! Lists and watches of what their user may read of a project, for those who may not list all of it
//! ([`freehold_apiserver_authz::visible`]).
//!
//! A watch follows the plane's roles and bindings: what becomes visible is announced as added, and where something is
//! hidden from now on the watch ends with 410, so that no object is shown after its right has gone. A watch that goes on
//! from a revision begins only where its user is known to have seen the same then; otherwise with 410, too.

use crate::local::LocalBackend;
use crate::shown_lately::{MIXED, ShownLately};
use arc_swap::ArcSwap;
use freehold_apiserver_authz::{Attributes, Reach, forbidden, visible::Names};
use freehold_apiserver_cache::Entry;
use freehold_apiserver_planes::Planes;
use freehold_apiserver_registry::{
    Changed, EventKind, List, ListOptions, Operation, Places, Registry, Shown, WatchEvent, WatchOptions,
};
use freehold_machinery::{Result, Status};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use std::{collections::VecDeque, hash::BuildHasher, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};

/// How long changes of roles and bindings are collected.
const TOGETHER: Duration = Duration::from_millis(50);
/// Most names that are read one by one; for more all objects are looked at.
const MAX_LOOKUPS: usize = 256;
/// Most objects that a watch announces at a time; for more it ends, and its client lists again.
const MAX_ANNOUNCED: usize = 1_000;
/// How often a list is read again because what is visible changed meanwhile.
const ATTEMPTS: usize = 3;

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
