//! Roles, bindings, memberships, deactivations and suspensions of the platform, as authorization needs them, updated by
//! the feed. Their objects need not be in memory for it.

use crate::{Directory, owner_index::OwnerIndex};
use freehold_api::keys;
use freehold_apiserver_authz::{
    Attributes,
    access::Place,
    iam::{Iam, Kind, RESOURCES_GROUP, Scope, organization_of, service_account},
    reserved,
};
use freehold_apiserver_cache::{Cache, CacheEvent, Entry, EventKind, ListRequest};
use freehold_machinery::{PlaneId, Result, Value, meta};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::sync::watch;

const IAM: &str = freehold_apiserver_authz::iam::GROUP;
const RESOURCES: &str = RESOURCES_GROUP;

/// Finds those whom an object belongs to.
type Owners = fn(&Value) -> Vec<String>;

/// A kind that is followed.
#[derive(Clone, Copy)]
struct Followed {
    group: &'static str,
    resource: &'static str,
    /// What authorization reads it as.
    kind: Option<Kind>,
    /// By whom its objects are found.
    owners: Option<Owners>,
}

const fn row(
    group: &'static str,
    resource: &'static str,
    kind: Option<Kind>,
    owners: Option<Owners>,
) -> Followed {
    Followed { group, resource, kind, owners }
}

const FOLLOWED: [Followed; 10] = [
    row(IAM, "roles", Some(Kind::Role), None),
    row(IAM, "policybindings", Some(Kind::Binding), Some(subjects)),
    row(RESOURCES, "organizationmemberships", Some(Kind::Membership), Some(user)),
    row(IAM, "groupmemberships", Some(Kind::GroupMembership), Some(user)),
    row(IAM, "userdeactivations", Some(Kind::Deactivation), None),
    row(IAM, "users", Some(Kind::User), Some(username)),
    row(IAM, "serviceaccounts", Some(Kind::Account), None),
    row(IAM, "serviceaccountkeys", Some(Kind::Key), None),
    row(RESOURCES, "organizations", Some(Kind::Organization), None),
    row(IAM, "userinvitations", None, Some(invited)),
];

/// The texts that are not empty.
fn given<const N: usize>(texts: [&Value; N]) -> Vec<String> {
    let texts = texts.into_iter().filter_map(Value::as_str);
    texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

fn user(object: &Value) -> Vec<String> {
    given([&object["spec"]["userRef"]["name"]])
}

fn invited(object: &Value) -> Vec<String> {
    given([&object["spec"]["userRef"]["name"], &object["spec"]["email"]])
}

fn username(object: &Value) -> Vec<String> {
    let given = given([&object["spec"]["username"]]);
    if given.is_empty() { vec![meta::name(object).to_owned()] } else { given }
}

/// The users of a binding, and its groups as `namespace/name`.
fn subjects(object: &Value) -> Vec<String> {
    let subjects = object["spec"]["subjects"].as_array().into_iter().flatten();
    let named = subjects.map(|subject| {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        let home = Some(text("namespace")).filter(|home| !home.is_empty());
        let home = home.unwrap_or_else(|| meta::namespace(object));
        match text("kind") {
            "User" => text("name").to_owned(),
            "ServiceAccount" => service_account(home, text("name")),
            _ => format!("{home}/{}", text("name")),
        }
    });
    named.collect()
}

/// What the feed told of an object of a followed kind.
struct ObservedChange {
    followed: Followed,
    object: Value,
    gone: bool,
    revision: u64,
}

/// The objects of followed kinds by those whom they belong to, by resource.
type Owned = HashMap<&'static str, OwnerIndex>;

fn owned_from(revision: u64) -> Owned {
    let rows = FOLLOWED.iter().filter(|row| row.owners.is_some());
    rows.map(|row| (row.resource, OwnerIndex::from(revision))).collect()
}

/// Takes in what was told of an object.
fn take_in(iam: &mut Iam, owned: &mut Owned, told: &ObservedChange) {
    let ObservedChange { followed, object, gone, revision } = told;
    if let Some(kind) = followed.kind {
        iam.put(kind, object, *gone);
    }
    if let (Some(owners), Some(places)) = (followed.owners, owned.get_mut(followed.resource)) {
        let owners = if *gone { Vec::new() } else { owners(object) };
        let (namespace, name) = (meta::namespace(object), meta::name(object));
        let place = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        places.put(*revision, &place, &owners);
    }
}

/// Who may do what on the platform.
pub struct People {
    cache: Arc<Cache>,
    iam: Arc<RwLock<Iam>>,
    owned: RwLock<Owned>,
    /// What was told since the reading began; `None` once all is read.
    waiting: Mutex<Option<Vec<ObservedChange>>>,
    filled: watch::Sender<bool>,
    changed: watch::Sender<u64>,
}

impl People {
    /// Starts to follow the core plane, where this server has it.
    pub(crate) fn start(cache: Arc<Cache>, has_core: bool) -> Arc<Self> {
        let people = Arc::new(Self {
            cache: cache.clone(),
            iam: Arc::default(),
            owned: RwLock::default(),
            waiting: Mutex::new(Some(Vec::new())),
            filled: watch::Sender::new(!has_core),
            changed: watch::Sender::new(0),
        });
        if has_core {
            let mut since = 0;
            for followed in FOLLOWED {
                let weak = Arc::downgrade(&people);
                let observer = move |event: Option<&CacheEvent>| observe(&weak, followed, event);
                since = cache.observe(PlaneId::core(), followed.group, followed.resource, observer);
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

    /// Adds the places of the objects of a followed resource that belong to a user or group as of a revision, perhaps of some
    /// that came later. False where that is not known.
    pub fn add_places(&self, resource: &str, owner: &str, at: u64, to: &mut BTreeSet<Arc<str>>) -> bool {
        self.owned.read().get(resource).is_some_and(|places| places.add(at, owner, to))
    }

    /// The organizations that a user is a member of, as authorization has it now, among those that name the user as of a
    /// revision. `None` where that is not known.
    pub fn organizations_of(&self, user: &str, at: u64) -> Option<BTreeSet<Arc<str>>> {
        let iam = self.iam.read();
        let mut places = BTreeSet::new();
        let mut is_known = self.add_places("organizationmemberships", user, at, &mut places);
        for subject in std::iter::once(user).chain(iam.groups_of(user)) {
            is_known &= self.add_places("policybindings", subject, at, &mut places);
        }
        let homes: BTreeSet<&str> =
            places.iter().filter_map(|place| Some(place.split_once('/')?.0)).collect();
        let organizations = homes.into_iter().filter_map(organization_of);
        let found = organizations.filter(|organization| iam.is_member(organization, user));
        is_known.then(|| found.map(Arc::from).collect())
    }

    /// The last revision at which anything changed that says what a user is a member of, or the first from which on that is
    /// known.
    pub fn changed_for(&self, user: &str) -> u64 {
        let (iam, owned) = (self.iam.read(), self.owned.read());
        let of = |resource, owner: &str| {
            owned.get(resource).map_or(u64::MAX, |places: &OwnerIndex| places.changed_for(owner))
        };
        let own = ["organizationmemberships", "groupmemberships", "users"].map(|resource| of(resource, user));
        let bound = std::iter::once(user).chain(iam.groups_of(user)).map(|name| of("policybindings", name));
        own.into_iter().chain(bound).max().unwrap_or_default()
    }

    fn tell(&self, told: ObservedChange) {
        if let Some(waiting) = &mut *self.waiting.lock() {
            waiting.push(told);
            return;
        }
        take_in(&mut self.iam.write(), &mut self.owned.write(), &told);
        self.changed.send_modify(|count| *count += 1);
    }

    async fn read_all(&self, since: u64) -> Result<()> {
        let at = self.cache.catch_up().await?.max(since);
        // One object after the other: all of them decoded at once would take several times what is kept.
        let (mut iam, mut owned) = (Iam::default(), owned_from(at));
        for followed in FOLLOWED {
            let Followed { group, resource, .. } = followed;
            let request = ListRequest { plane: &PlaneId::core(), group, resource, namespace: None };
            let read = |entry: Arc<Entry>| {
                let told = ObservedChange { followed, object: entry.value(), gone: false, revision: at };
                take_in(&mut iam, &mut owned, &told);
            };
            self.cache.scan(request, at, read).await?;
        }
        let mut waiting = self.waiting.lock();
        // What was told meanwhile comes last, in its order: then all is as it is told.
        for told in waiting.take().into_iter().flatten() {
            take_in(&mut iam, &mut owned, &told);
        }
        (*self.iam.write(), *self.owned.write()) = (iam, owned);
        self.filled.send_replace(true);
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }
}

/// Takes in what the feed tells; without an event, everything has to be read again.
fn observe(people: &Weak<People>, followed: Followed, event: Option<&CacheEvent>) {
    let Some(people) = people.upgrade() else { return };
    let Some(event) = event else {
        // Each kind is told of it: one of them begins anew.
        if followed.resource == FOLLOWED[0].resource {
            *people.waiting.lock() = Some(Vec::new());
            // Until then nothing is known to belong to anybody, and all is looked through.
            people.owned.write().clear();
            people.filled.send_replace(false);
            tokio::spawn(fill(Arc::downgrade(&people), 0));
        }
        return;
    };
    if let Some(change) = event.change() {
        let gone = change.kind == EventKind::Deleted;
        people.tell(ObservedChange {
            followed,
            object: change.entry.value(),
            gone,
            revision: event.revision,
        });
    }
}

async fn fill(people: Weak<People>, since: u64) {
    loop {
        let Some(strong) = people.upgrade() else { return };
        match strong.read_all(since).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "failed to read roles and bindings; will retry"),
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
    (secrets && within && reached).then_some(Attributes {
        group: RESOURCES,
        resource: "projects",
        subresource: "credentials",
        name: "",
        ..*asked
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
                // In a view another's project is as one that is not there: the view does not find it.
                Some(info) if within.as_ref().is_none_or(|own| info.organization == *own) => {
                    Scope::Project { organization: info.organization.clone(), project: info.name.clone() }
                }
                _ => rest(),
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
