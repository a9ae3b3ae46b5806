//! What tenants use of their limits, kept current by watches of the resources that Quotas count.
//!
//! A resource is watched from the first Quota that counts it. Without Quotas nothing is watched.

use crate::observed::family;
use freehold_client::Resource;
use freehold_machinery::{GroupResource, PlaneId, Value};
use freehold_runtime::{Informer, Interest, Key, Planes, Scope, Store};
use freehold_tenancy_api::quota::Quota;
use freehold_tenancy_api::tenant::{QuotaUse, Tenant};
use freehold_tenancy_decide::limits::{Account, Amounts, Limits, NAMESPACES, ObjectId, Watched, texts};
use freehold_tenancy_decide::tenant::{Namespace, chain};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

type Listener = Box<dyn Fn(Key) + Send + Sync>;
type ObjectListener = Box<dyn Fn(&PlaneId, &ObjectId, &Value) + Send + Sync>;

/// How often a resource that the server does not have is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Accounts of all tenants with limits. Cheap to clone.
#[derive(Clone)]
pub struct Usages {
    inner: Arc<Inner>,
}

struct Inner {
    scope: Scope,
    tenants: Store<Tenant>,
    namespaces: Store<Namespace>,
    quotas: Store<Quota>,
    accounts: Mutex<HashMap<Key, Account>>,
    /// Stores of the resources that are watched; `None` while the server does not have one.
    meters: Mutex<BTreeMap<Watched, Option<Store<Value>>>>,
    listeners: Mutex<Vec<Listener>>,
    object_listeners: Mutex<Vec<ObjectListener>>,
}

impl Usages {
    /// Accounts over the objects of these informers, to which handlers are added.
    pub fn new(
        scope: &Scope,
        tenants: &mut Informer<Tenant>,
        namespaces: &mut Informer<Namespace>,
        quotas: &mut Informer<Quota>,
    ) -> Self {
        let inner = Arc::new(Inner {
            scope: scope.clone(),
            tenants: tenants.store(),
            namespaces: namespaces.store(),
            quotas: quotas.store(),
            accounts: Mutex::default(),
            meters: Mutex::default(),
            listeners: Mutex::default(),
            object_listeners: Mutex::default(),
        });
        let usages = Self { inner };
        let this = usages.clone();
        tenants.on_change(move |change| {
            let limits = |tenant: &Arc<Tenant>| {
                (tenant.spec.parent.clone(), tenant.spec.quota.clone(), tenant.spec.namespaces.max)
            };
            if change.old.as_ref().map(limits) != change.new.as_ref().map(limits) {
                this.rebuild(&change.key.plane);
            }
        });
        let this = usages.clone();
        quotas.on_change(move |change| {
            if change.old.as_ref().map(|q| &q.spec) != change.new.as_ref().map(|q| &q.spec) {
                this.rebuild(&change.key.plane);
            }
        });
        let this = usages.clone();
        namespaces.on_change(move |change| {
            let tenant = |namespace: &Arc<Namespace>| namespace.tenant().map(str::to_owned);
            let (old, new) = (change.old.as_ref().and_then(tenant), change.new.as_ref().and_then(tenant));
            if let Some(namespace) = &change.new {
                let id = namespace_id(&change.key.name);
                let object = json!({"metadata": {"uid": namespace.uid}});
                this.tell_object(&change.key.plane, &id, &object);
            }
            if old != new || change.new.is_none() {
                this.reassign(&change.key, old.as_deref(), new.as_deref());
            }
        });
        usages
    }

    /// Calls `listener` with the key of each tenant whose use changes.
    pub fn on_change(&self, listener: impl Fn(Key) + Send + Sync + 'static) {
        self.inner.listeners.lock().push(Box::new(listener));
    }

    /// Calls `listener` with each object that is counted, as it is stored.
    pub fn on_object(&self, listener: impl Fn(&PlaneId, &ObjectId, &Value) + Send + Sync + 'static) {
        self.inner.object_listeners.lock().push(Box::new(listener));
    }

    /// Use and limits of a tenant, by counter.
    pub fn of(&self, tenant: &Key) -> BTreeMap<String, QuotaUse> {
        let accounts = self.inner.accounts.lock();
        let Some(account) = accounts.get(tenant) else { return BTreeMap::new() };
        let used = texts(account.used());
        let hard = account.limits.hard().iter();
        hard.map(|(name, hard)| {
            let used = used.get(name).cloned().unwrap_or_else(|| "0".to_owned());
            (name.clone(), QuotaUse { hard: hard.to_string(), used })
        })
        .collect()
    }

    /// Reads a tenant's account; `None` where it has no limits.
    pub fn read<T>(&self, tenant: &Key, read: impl FnOnce(&Account) -> T) -> Option<T> {
        self.inner.accounts.lock().get(tenant).map(read)
    }

    /// The tenants whose limits hold in a namespace of a tenant: itself and those above.
    pub fn charged(&self, plane: &PlaneId, tenant: &str) -> Vec<Key> {
        let get = |name: &str| self.inner.tenants.get(&Key::new(plane.clone(), "", name));
        let Some(tenant) = get(tenant) else { return Vec::new() };
        let accounts = self.inner.accounts.lock();
        let keys =
            chain(tenant, get).tenants.into_iter().map(|t| Key::new(plane.clone(), "", &t.metadata.name));
        keys.filter(|key| accounts.contains_key(key)).collect()
    }

    /// Whether all resources that a tenant's limits count are read.
    pub fn is_complete(&self, tenant: &Key) -> bool {
        let watched = self.read(tenant, |account| account.limits.watched().clone()).unwrap_or_default();
        let meters = self.inner.meters.lock();
        watched.iter().all(|watched| match meters.get(watched) {
            Some(Some(store)) => store.is_synced(),
            // A resource that does not exist has no objects.
            Some(None) => true,
            None => false,
        })
    }

    /// Whether the objects of a resource are read up to a resource version.
    pub fn has_seen(&self, resource: &str, version: &str) -> bool {
        if resource == NAMESPACES {
            return self.inner.namespaces.has_seen(version);
        }
        let meters = self.inner.meters.lock();
        let mut stores = meters.iter().filter(|(watched, _)| watched.resource.to_string() == resource);
        stores.all(|(_, store)| store.as_ref().is_none_or(|store| store.has_seen(version)))
    }

    fn tell(&self, changed: Vec<Key>) {
        let listeners = self.inner.listeners.lock();
        for key in changed {
            listeners.iter().for_each(|listener| listener(key.clone()));
        }
    }

    fn tell_object(&self, plane: &PlaneId, id: &ObjectId, object: &Value) {
        self.inner.object_listeners.lock().iter().for_each(|listener| listener(plane, id, object));
    }

    /// Counts an object that changed.
    fn object(&self, watched: &Watched, key: &Key, object: Option<&Value>, last: Option<&Value>) {
        let id = ObjectId {
            resource: watched.resource.clone(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        };
        let namespace = self.inner.namespaces.get(&Key::new(key.plane.clone(), "", &key.namespace));
        if let Some(tenant) = namespace.as_ref().and_then(|namespace| namespace.tenant()) {
            self.put(&key.plane, tenant, &id, object);
        }
        if let Some(object) = object.or(last) {
            self.tell_object(&key.plane, &id, object);
        }
    }

    fn put(&self, plane: &PlaneId, tenant: &str, id: &ObjectId, object: Option<&Value>) {
        let now = Timestamp::now();
        let charged = self.charged(plane, tenant);
        let mut accounts = self.inner.accounts.lock();
        let changed = charged
            .into_iter()
            .filter(|key| accounts.get_mut(key).is_some_and(|account| account.put(id, object, now)))
            .collect();
        drop(accounts);
        self.tell(changed);
    }

    /// Moves a namespace's objects from one tenant's accounts to another's.
    fn reassign(&self, key: &Key, old: Option<&str>, new: Option<&str>) {
        let now = Timestamp::now();
        if let Some(old) = old {
            let charged = self.charged(&key.plane, old);
            let mut accounts = self.inner.accounts.lock();
            for key_of in &charged {
                if let Some(account) = accounts.get_mut(key_of) {
                    account.forget_namespace(&key.name, now);
                }
            }
            drop(accounts);
            self.tell(charged);
        }
        if let Some(new) = new {
            self.put(&key.plane, new, &namespace_id(&key.name), Some(&self.namespace_object(key)));
            for (id, object) in self.objects_of(&key.plane, &key.name) {
                self.put(&key.plane, new, &id, Some(&object));
            }
        }
    }

    fn namespace_object(&self, key: &Key) -> Value {
        let uid = self.inner.namespaces.get(key).map(|namespace| namespace.uid.clone()).unwrap_or_default();
        json!({"metadata": {"uid": uid}})
    }

    /// The counted objects of a namespace.
    fn objects_of(&self, plane: &PlaneId, namespace: &str) -> Vec<(ObjectId, Arc<Value>)> {
        let meters = self.inner.meters.lock();
        let of = |(watched, store): (&Watched, &Option<Store<Value>>)| {
            let objects =
                store.as_ref().map(|store| store.in_namespace(plane, namespace)).unwrap_or_default();
            let resource = watched.resource.clone();
            let id = move |key: &Key| ObjectId {
                resource: resource.clone(),
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
            };
            objects.into_iter().map(move |(key, object)| (id(&key), object)).collect::<Vec<_>>()
        };
        meters.iter().flat_map(of).collect()
    }

    /// Compiles all limits of a plane anew and counts everything again: limits or parents changed.
    fn rebuild(&self, plane: &PlaneId) {
        let mut accounts: HashMap<Key, Account> = HashMap::new();
        let mut wanted = BTreeSet::new();
        for (key, tenant) in self.inner.tenants.in_plane(plane) {
            let quota = self.inner.quotas.get(&Key::new(plane.clone(), "", &tenant.spec.quota));
            // A Quota that cannot be read limits nothing; the quota controller says so in its condition.
            let Ok(limits) = Limits::of(&tenant, quota.as_deref()) else { continue };
            if !limits.is_empty() {
                wanted.extend(limits.watched().iter().cloned());
                accounts.insert(key, Account::new(Arc::new(limits)));
            }
        }
        self.watch(wanted);
        let now = Timestamp::now();
        // Held over the whole count: a change that comes meanwhile is counted after it, in the new accounts.
        let mut current = self.inner.accounts.lock();
        for (key, account) in &mut accounts {
            for tenant in family(&self.inner.tenants, plane, &key.name) {
                for (namespace, _) in self.inner.namespaces.by_index(plane, &tenant) {
                    let object = self.namespace_object(&namespace);
                    account.put(&namespace_id(&namespace.name), Some(&object), now);
                    for (id, object) in self.objects_of(plane, &namespace.name) {
                        account.put(&id, Some(&object), now);
                    }
                }
            }
        }
        let gone = current.keys().filter(|key| key.plane == *plane && !accounts.contains_key(*key));
        let changed: Vec<Key> = accounts.keys().chain(gone).cloned().collect();
        current.retain(|key, _| key.plane != *plane);
        current.extend(accounts);
        drop(current);
        self.tell(changed);
    }

    /// Begins to watch resources that are not watched yet.
    fn watch(&self, wanted: BTreeSet<Watched>) {
        for watched in wanted {
            let mut meters = self.inner.meters.lock();
            if meters.contains_key(&watched) {
                continue;
            }
            meters.insert(watched.clone(), None);
            drop(meters);
            let this = self.clone();
            self.inner.scope.tasks.spawn(async move { this.follow(watched).await });
        }
    }

    /// Waits until the server has a resource, then watches it.
    async fn follow(&self, watched: Watched) {
        let token = self.inner.scope.token.clone();
        let resource = loop {
            match resource_of(&self.inner.scope.planes, &watched).await {
                Some(resource) => break resource,
                None => tokio::select! {
                    () = token.cancelled() => return,
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                },
            }
        };
        let mut informer = Informer::new(&self.inner.scope.planes, Interest::objects(resource));
        let (this, of) = (self.clone(), watched.clone());
        informer.on_change(move |change| {
            this.object(&of, &change.key, change.new.as_deref(), change.old.as_deref());
        });
        self.inner.meters.lock().insert(watched, Some(informer.store()));
        informer.run(token).await;
    }
}

/// The id of a namespace as an object that is counted.
pub fn namespace_id(name: &str) -> ObjectId {
    ObjectId { resource: GroupResource::new("", NAMESPACES), namespace: String::new(), name: name.to_owned() }
}

/// The resource in the version that the Quota names, or that the server prefers.
async fn resource_of(planes: &Planes, watched: &Watched) -> Option<Resource> {
    let GroupResource { group, resource } = &watched.resource;
    let version = match (&watched.version, group.as_str()) {
        (Some(version), _) => version.clone(),
        (None, "") => "v1".to_owned(),
        (None, group) => {
            let client = planes.everywhere();
            let found = client.get_path(&format!("/apis/{group}")).await.ok()?;
            found.pointer("/preferredVersion/version")?.as_str()?.to_owned()
        }
    };
    Some(Resource::dynamic(group.clone(), version, resource.clone(), true))
}

/// The sum of two amounts, by counter.
pub fn sum(a: &Amounts, b: &Amounts) -> Amounts {
    let mut sum = a.clone();
    for (name, amount) in b {
        let entry = sum.entry(name.clone()).or_insert(freehold_machinery::quantity::Quantity::ZERO);
        *entry = entry.plus(amount);
    }
    sum
}
