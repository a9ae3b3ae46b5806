//! Who may do what on the platform, kept current by the feed: what authorization needs of roles, bindings, memberships,
//! deactivations and suspensions. Their objects need not be in memory for it.

use crate::Directory;
use freehold_api::keys;
use freehold_apiserver_authz::{
    Attributes,
    access::Place,
    iam::{Iam, Kind, RESOURCES_GROUP, Scope, organization_of},
    reserved,
};
use freehold_apiserver_cache::{Cache, CacheEvent, EventKind, ListRequest};
use freehold_machinery::{PlaneId, Result, Value};
use parking_lot::{Mutex, RwLock};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::sync::watch;

const IAM: &str = freehold_apiserver_authz::iam::GROUP;
const RESOURCES: &str = RESOURCES_GROUP;

/// What is followed.
const FOLLOWED: [(&str, &str, Kind); 9] = [
    (IAM, "roles", Kind::Role),
    (IAM, "policybindings", Kind::Binding),
    (RESOURCES, "organizationmemberships", Kind::Membership),
    (IAM, "groupmemberships", Kind::GroupMembership),
    (IAM, "userdeactivations", Kind::Deactivation),
    (IAM, "users", Kind::User),
    (IAM, "serviceaccounts", Kind::Account),
    (IAM, "serviceaccountkeys", Kind::Key),
    (RESOURCES, "organizations", Kind::Organization),
];

/// Something that the feed told while everything is being read.
type Told = (Kind, Value, bool);

/// Who may do what on the platform.
pub struct People {
    cache: Arc<Cache>,
    iam: Arc<RwLock<Iam>>,
    /// What was told since the reading began; `None` once all is read.
    waiting: Mutex<Option<Vec<Told>>>,
    filled: watch::Sender<bool>,
    changed: watch::Sender<u64>,
}

impl People {
    /// Starts to follow the core plane, where this server has it.
    pub(crate) fn start(cache: Arc<Cache>, has_core: bool) -> Arc<Self> {
        let people = Arc::new(Self {
            cache: cache.clone(),
            iam: Arc::default(),
            waiting: Mutex::new(Some(Vec::new())),
            filled: watch::Sender::new(!has_core),
            changed: watch::Sender::new(0),
        });
        if has_core {
            let mut since = 0;
            for (group, resource, kind) in FOLLOWED {
                let weak = Arc::downgrade(&people);
                let observer = move |event: Option<&CacheEvent>| observe(&weak, kind, event);
                since = cache.observe(PlaneId::core(), group, resource, observer);
            }
            tokio::spawn(fill(Arc::downgrade(&people), since));
        }
        people
    }

    /// All that the platform's objects say, once it is known.
    pub async fn iam(&self) -> &Arc<RwLock<Iam>> {
        if !*self.filled.borrow() {
            // The sender lives as long as this.
            let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
        }
        &self.iam
    }

    /// Tells of each change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self, kind: Kind, object: Value, gone: bool) {
        if let Some(waiting) = &mut *self.waiting.lock() {
            waiting.push((kind, object, gone));
            return;
        }
        self.iam.write().put(kind, &object, gone);
        self.changed.send_modify(|count| *count += 1);
    }

    async fn read_all(&self, since: u64) -> Result<()> {
        let at = self.cache.catch_up().await?.max(since);
        // One object after the other: all of them decoded at once would take several times what is kept.
        let mut read = Iam::default();
        for (group, resource, kind) in FOLLOWED {
            let request = ListRequest { plane: &PlaneId::core(), group, resource, namespace: None };
            self.cache.scan(request, at, |entry| read.put(kind, &entry.value(), false)).await?;
        }
        let mut waiting = self.waiting.lock();
        // What was told meanwhile comes last, in its order: then all is as it is told.
        for (kind, object, gone) in waiting.take().unwrap_or_default() {
            read.put(kind, &object, gone);
        }
        *self.iam.write() = read;
        self.filled.send_replace(true);
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }
}

/// Takes in what the feed tells; without an event, everything has to be read again.
fn observe(people: &Weak<People>, kind: Kind, event: Option<&CacheEvent>) {
    let Some(people) = people.upgrade() else { return };
    let Some(event) = event else {
        // Each kind is told of it: one of them begins anew.
        if kind == FOLLOWED[0].2 {
            *people.waiting.lock() = Some(Vec::new());
            people.filled.send_replace(false);
            tokio::spawn(fill(Arc::downgrade(&people), 0));
        }
        return;
    };
    if let Some(change) = event.change() {
        people.tell(kind, change.entry.value(), change.kind == EventKind::Deleted);
    }
}

async fn fill(people: Weak<People>, since: u64) {
    loop {
        let Some(strong) = people.upgrade() else { return };
        match strong.read_all(since).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "who may do what can't be read yet"),
        }
        drop(strong);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What it takes besides to reach the kubeconfigs of projects, which are Secrets of their organization's namespace: whoever
/// has one is a master of the project. Without a name a request reaches all Secrets, but for one that makes a new one.
pub(crate) fn credentials_in_core<'a>(asked: &Attributes<'a>) -> Option<Attributes<'a>> {
    let within = asked.namespace.is_empty() || organization_of(asked.namespace).is_some();
    let reached = match asked.name {
        "" => asked.verb != "create",
        name => name.ends_with(keys::KUBECONFIG_SUFFIX),
    };
    let secrets = asked.group.is_empty() && asked.resource == "secrets";
    (secrets && within && reached).then(|| Attributes {
        group: RESOURCES,
        resource: "projects",
        subresource: "credentials",
        name: "",
        ..asked.clone()
    })
}

/// [`credentials_in_core`] in an organization's view, where a request for no namespace is about its projects' planes.
pub(crate) fn credentials_in_view<'a>(asked: &Attributes<'a>) -> Option<Attributes<'a>> {
    credentials_in_core(asked).filter(|_| !asked.namespace.is_empty())
}

/// Where in the platform a question about the core plane is asked: what belongs to an organization, or is one of its
/// projects, is its own; everything else is the platform's. `within` is the organization whose view is asked, to which
/// all belongs that nothing else is said of.
pub(crate) fn place_in_core(directory: Arc<Directory>, within: Option<Arc<str>>) -> Place {
    Arc::new(move |asked: &Attributes<'_>| {
        let rest = || within.clone().map_or(Scope::Platform, Scope::Organization);
        let is = |resource| asked.group == RESOURCES && asked.resource == resource && !asked.name.is_empty();
        let named: Scope = match () {
            () if reserved::is_for_platform(asked) => match within {
                Some(_) => Scope::Nowhere,
                None => Scope::Platform,
            },
            () if is("organizations") => Scope::Organization(asked.name.into()),
            () if is("projects") => match directory.named(asked.name) {
                Some(info) => {
                    Scope::Project { organization: info.organization.clone(), project: info.name.clone() }
                }
                None => rest(),
            },
            // An organization's namespace is not its own.
            () if asked.group.is_empty() && asked.resource == "namespaces" => rest(),
            () => match organization_of(asked.namespace) {
                Some(organization) => Scope::Organization(organization.into()),
                None => rest(),
            },
        };
        match &within {
            Some(organization) if named.organization() != Some(organization) => Scope::Nowhere,
            _ => named,
        }
    })
}
