//! The directory: what routing needs of each project, updated by the feed. The projects' objects need not be in memory
//! for it.

use crate::{changes::Changes, owner_index::Departures};
use freehold_api::keys;
use freehold_apiserver_cache::{Cache, CacheEvent, Entry, EventKind, ListRequest};
use freehold_machinery::{PlaneId, PlaneMap, Result, User, user::CREDENTIAL_ID};
use parking_lot::RwLock;
use serde::{Deserialize, de::IgnoredAny};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, LazyLock, Weak},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// The API group of organizations and projects.
pub(crate) const GROUP: &str = "resourcemanager.freehold.dev";

/// What routing needs to know of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its plane: its uid.
    pub plane: PlaneId,
    /// The organization that owns it.
    pub organization: Arc<str>,
    /// Whether a dedicated pair serves it now.
    pub dedicated: bool,
    /// Whether the project is being deleted.
    pub deleting: bool,
    /// The class that its plane starts from.
    pub class: Arc<str>,
    /// Whether it is to be a fork and is not one yet: nothing is served in it before.
    pub forking: bool,
    /// Why nothing is served in it, where it is suspended.
    pub suspended: Option<Arc<str>>,
    /// Which credentials of its plane count; `None` where all of them do.
    pub credentials: Option<Arc<Credentials>>,
    modified: u64,
}

/// Which credentials of a plane count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Certificates of an earlier generation don't.
    pub generation: u64,
    /// Single ones that don't, by their identifiers.
    pub revoked: Box<[Box<str>]>,
}

impl Credentials {
    /// Whether a user's credential counts.
    fn include(&self, user: &User) -> bool {
        let of_now =
            user.basis.as_ref().and_then(|basis| basis.generation).is_none_or(|g| g >= self.generation);
        let mut ids = user.extra.get(CREDENTIAL_ID).into_iter().flatten();
        of_now && !ids.any(|id| self.revoked.iter().any(|revoked| **revoked == **id))
    }
}

impl ProjectInfo {
    /// Whether a user's credential counts in the project's plane.
    pub fn believes(&self, user: &User) -> bool {
        self.credentials.as_ref().is_none_or(|credentials| credentials.include(user))
    }
}

/// What is read of a project's object.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
    #[serde(borrow)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    owner_ref: OwnerRef<'a>,
    #[serde(borrow)]
    control_plane: ControlPlane<'a>,
    #[serde(borrow)]
    suspension: Option<Suspension<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Suspension<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    control_plane: ControlPlane<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnerRef<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ControlPlane<'a> {
    #[serde(borrow)]
    mode: Option<Cow<'a, str>>,
    #[serde(borrow)]
    class: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    from: Option<IgnoredAny>,
    #[serde(borrow)]
    credentials: Option<CredentialFields<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CredentialFields<'a> {
    generation: i64,
    #[serde(borrow)]
    revoked: Vec<Cow<'a, str>>,
}

/// The class of most projects, once for all of them.
fn default_class() -> Arc<str> {
    static DEFAULT: LazyLock<Arc<str>> = LazyLock::new(|| keys::DEFAULT_CLASS.into());
    DEFAULT.clone()
}

impl ProjectInfo {
    fn read(entry: &Entry) -> Option<Self> {
        let json = entry.json();
        let fields: Fields<'_> = serde_json::from_slice(&json).ok()?;
        let (wanted, there) = (fields.spec.control_plane, fields.status.control_plane);
        let mode = there.mode.or(wanted.mode);
        let class = wanted.class.filter(|class| class != keys::DEFAULT_CLASS);
        Some(Self {
            name: entry.name().into(),
            plane: entry.uid().parse().ok()?,
            organization: fields.spec.owner_ref.name.into(),
            dedicated: mode.as_deref() == Some("Dedicated"),
            deleting: entry.is_deleting(),
            class: class.map_or_else(default_class, Into::into),
            forking: wanted.from.is_some() && there.id.is_none(),
            suspended: fields.spec.suspension.map(|suspension| suspension.reason.into()),
            credentials: wanted.credentials.map(|credentials| {
                let revoked = credentials.revoked.iter().map(|id| Box::from(&**id)).collect();
                Arc::new(Credentials { generation: credentials.generation.max(0).unsigned_abs(), revoked })
            }),
            modified: entry.modified,
        })
    }
}

#[derive(Default)]
struct Index {
    by_name: HashMap<Arc<str>, Arc<ProjectInfo>>,
    by_plane: PlaneMap<Arc<ProjectInfo>>,
    by_organization: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    departures: Departures,
}

impl Index {
    /// Takes in a project, unless it is known as of a later revision.
    fn put(&mut self, mut info: ProjectInfo) {
        if self.by_name.get(&info.name).is_some_and(|known| known.modified >= info.modified) {
            return;
        }
        if let Some(before) = self.take(&info.name)
            && before.organization != info.organization
        {
            self.departures.note(info.modified, &before.organization, &before.name);
        }
        if let Some((known, _)) = self.by_organization.get_key_value(&info.organization) {
            info.organization = known.clone();
        }
        let info = Arc::new(info);
        self.by_name.insert(info.name.clone(), info.clone());
        self.by_plane.insert(info.plane.clone(), info.clone());
        self.by_organization.entry(info.organization.clone()).or_default().insert(info.name.clone());
    }

    /// Forgets a project that is gone as of a revision.
    fn remove(&mut self, name: &str, revision: u64) {
        if let Some(info) = self.take(name) {
            self.departures.note(revision, &info.organization, &info.name);
        }
    }

    fn take(&mut self, name: &str) -> Option<Arc<ProjectInfo>> {
        let info = self.by_name.remove(name)?;
        self.by_plane.remove(&info.plane);
        if let Some(names) = self.by_organization.get_mut(&info.organization) {
            names.remove(name);
            if names.is_empty() {
                self.by_organization.remove(&info.organization);
            }
        }
        Some(info)
    }
}

/// Projects by name, by plane and by organization.
pub struct Directory {
    cache: Arc<Cache>,
    index: RwLock<Index>,
    /// Projects that went while the directory is being filled; `None` once it is.
    gone: RwLock<Option<HashMap<Box<str>, u64>>>,
    /// Whether all projects have been read.
    filled: watch::Sender<bool>,
    dedicated: Arc<Notify>,
    /// Counts suspensions, revocations and ends of suspensions of projects.
    restrictions: watch::Sender<u64>,
    /// Tells of organizations' projects: of those that come and go, and of what other servers serve in them.
    changes: Changes<Arc<str>>,
}

impl Directory {
    /// Starts to follow the core plane's projects, where this server has the core plane.
    /// `dedicated` is woken when there is something about projects that pairs serve.
    pub(crate) fn start(cache: Arc<Cache>, has_core: bool, dedicated: Arc<Notify>) -> Arc<Self> {
        let directory = Arc::new(Self {
            cache: cache.clone(),
            index: RwLock::default(),
            gone: RwLock::new(Some(HashMap::new())),
            filled: watch::Sender::new(!has_core),
            dedicated,
            restrictions: watch::Sender::new(0),
            changes: Changes::default(),
        });
        if has_core {
            let weak = Arc::downgrade(&directory);
            let since = cache.observe(PlaneId::core(), GROUP, "projects", move |event| observe(&weak, event));
            tokio::spawn(fill(Arc::downgrade(&directory), since));
        }
        directory
    }

    /// Waits until the directory has everything that was committed before this call, and returns the revision up to
    /// which that is.
    ///
    /// # Errors
    /// 503 where the store does not answer, 504 where the feed does not catch up in time.
    pub async fn current(&self) -> Result<u64> {
        let revision = self.cache.catch_up().await?;
        if !*self.filled.borrow() {
            // The sender lives as long as this.
            let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
        }
        Ok(revision)
    }

    /// A project by name, as far as it is known.
    pub fn named(&self, name: &str) -> Option<Arc<ProjectInfo>> {
        self.index.read().by_name.get(name).cloned()
    }

    /// Tells when a project is suspended, or is so no longer, and when other credentials of it count.
    pub fn restrictions(&self) -> watch::Receiver<u64> {
        self.restrictions.subscribe()
    }

    /// Tells when an organization's projects change, the aggregated servers in them, or who may ask those; for as long as
    /// it is kept.
    pub fn changes_of(&self, organization: &Arc<str>) -> Arc<watch::Sender<u64>> {
        self.changes.of(organization)
    }

    /// Tells who waits for the organization of a plane.
    pub fn tell(&self, plane: &PlaneId) {
        if self.changes.is_empty() {
            return;
        }
        if let Some(info) = self.by_plane(plane) {
            self.changes.tell(&info.organization);
        }
    }

    /// The project of a plane.
    pub fn by_plane(&self, plane: &PlaneId) -> Option<Arc<ProjectInfo>> {
        self.index.read().by_plane.get(plane).cloned()
    }

    /// The project of a plane, once all projects have been read.
    pub async fn known_plane(&self, plane: &PlaneId) -> Option<Arc<ProjectInfo>> {
        let known = self.by_plane(plane);
        if known.is_none() && !*self.filled.borrow() {
            // The sender lives as long as this.
            let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
            return self.by_plane(plane);
        }
        known
    }

    /// Finds the project of a plane, as of now.
    ///
    /// # Errors
    /// 503 where the store does not answer, 504 where the feed does not catch up in time.
    pub async fn find_plane(&self, plane: &PlaneId) -> Result<Option<Arc<ProjectInfo>>> {
        if let Some(info) = self.by_plane(plane) {
            return Ok(Some(info));
        }
        self.current().await?;
        Ok(self.by_plane(plane))
    }

    /// The projects of an organization, by name.
    pub fn of_organization(&self, organization: &str) -> Vec<Arc<ProjectInfo>> {
        let index = self.index.read();
        let names = index.by_organization.get(organization);
        names.into_iter().flatten().filter_map(|name| index.by_name.get(name).cloned()).collect()
    }

    /// Adds the names of an organization's projects as of a revision, perhaps of some that came later. False where that is not
    /// known.
    pub fn add_names_of(&self, organization: &str, at: u64, to: &mut BTreeSet<Arc<str>>) -> bool {
        let index = self.index.read();
        to.extend(index.by_organization.get(organization).into_iter().flatten().cloned());
        index.departures.add_since(at, organization, to)
    }

    /// The projects that pairs serve, as of now.
    pub(crate) async fn dedicated(&self) -> Result<Vec<Arc<ProjectInfo>>> {
        self.current().await?;
        Ok(self.index.read().by_plane.values().filter(|info| info.dedicated).cloned().collect())
    }

    /// The planes of some classes that no pair serves.
    pub(crate) fn of_classes(&self, classes: &HashSet<Box<str>>) -> Vec<PlaneId> {
        let index = self.index.read();
        let planes = index.by_plane.values().filter(|info| !info.dedicated && classes.contains(&*info.class));
        planes.map(|info| info.plane.clone()).collect()
    }

    /// How many projects there are.
    pub fn len(&self) -> usize {
        self.index.read().by_name.len()
    }

    /// Whether there are no projects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes in what the feed tells; without an event, everything has to be read again.
fn observe(directory: &Weak<Directory>, event: Option<&CacheEvent>) {
    let Some(directory) = directory.upgrade() else { return };
    let Some(event) = event else {
        directory.filled.send_replace(false);
        *directory.index.write() = Index::default();
        *directory.gone.write() = Some(HashMap::new());
        tokio::spawn(fill(Arc::downgrade(&directory), 0));
        return;
    };
    let Some(change) = event.change() else { return };
    match (change.kind, ProjectInfo::read(&change.entry)) {
        (EventKind::Deleted, _) | (_, None) => {
            let name = change.entry.name();
            directory.index.write().remove(name, event.revision);
            if let Some(gone) = &mut *directory.gone.write() {
                gone.insert(name.into(), event.revision);
            }
        }
        (_, Some(info)) => {
            let before = directory.by_plane(&info.plane);
            if info.dedicated || before.as_ref().is_some_and(|before| before.dedicated) {
                directory.dedicated.notify_one();
            }
            let (suspended, credentials) = before
                .map(|before| (before.suspended.clone(), before.credentials.clone()))
                .unwrap_or_default();
            let changed = info.suspended != suspended || info.credentials != credentials;
            let plane = info.plane.clone();
            directory.index.write().put(info);
            directory.tell(&plane);
            if changed {
                directory.restrictions.send_modify(|count| *count += 1);
            }
        }
    }
}

/// Reads all projects, as of a revision from which on the feed tells.
async fn fill(directory: Weak<Directory>, since: u64) {
    loop {
        let Some(strong) = directory.upgrade() else { return };
        match strong.read_all(since).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "failed to read projects; will retry"),
        }
        drop(strong);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

impl Directory {
    async fn read_all(&self, since: u64) -> Result<()> {
        let at = self.cache.catch_up().await?.max(since);
        let request =
            ListRequest { plane: &PlaneId::core(), group: GROUP, resource: "projects", namespace: None };
        self.cache
            .scan(request, at, |entry| {
                let gone = self.gone.read();
                let went = gone.as_ref().and_then(|gone| gone.get(entry.name()));
                if went.is_none_or(|revision| *revision < entry.modified)
                    && let Some(info) = ProjectInfo::read(&entry)
                {
                    self.index.write().put(info);
                }
            })
            .await?;
        let mut gone = self.gone.write();
        // What went meanwhile was not always known then.
        let last = gone.take().into_iter().flatten().map(|(_, revision)| revision).max().unwrap_or_default();
        self.index.write().departures.complete_from(last.max(at));
        drop(gone);
        self.filled.send_replace(true);
        Ok(())
    }
}
