//! Extensions: the objects by which other systems know a tenant, kept in step with its namespaces.

mod config;
mod objects;

use crate::running::{Reconcile, control};
use freehold_client::{Patch, PatchOptions, Resource};
use freehold_machinery::{Map, PlaneId, Value, meta};
use freehold_runtime::{
    Change, Error, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Scope, Store, conditions,
};
use freehold_tenancy_api::integration::{
    EXTENSION_FINALIZER, EXTENSION_LABEL, ExtensionSpec, IntegrationConfigSpec, SecretRef,
};
use freehold_tenancy_api::{GROUP, TENANT_LABEL, VERSION};
use freehold_tenancy_decide::integration::{Input, Integration, Refusal, integration};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXTENSIONS: Resource = Resource::cluster(GROUP, VERSION, "extensions");
const CONFIGS: Resource = Resource::cluster(GROUP, VERSION, "integrationconfigs");
const TENANTS: Resource = Resource::cluster(GROUP, VERSION, "tenants");
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
/// How often an Extension is looked at without a cause: credentials of tenants are read then.
const RESYNC: Duration = Duration::from_secs(60);

/// An Extension as the store keeps it.
#[derive(Clone, Debug)]
struct ExtensionView {
    generation: i64,
    deleting: bool,
    finalizers: Vec<String>,
    spec: ExtensionSpec,
    status: Value,
}

impl ExtensionView {
    fn of(object: Value) -> Option<Self> {
        Some(Self {
            generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
            deleting: meta::is_deleting(&object),
            finalizers: meta::finalizers(&object).into_iter().map(str::to_owned).collect(),
            spec: serde_json::from_value(object["spec"].clone()).ok()?,
            status: object["status"].clone(),
        })
    }

    fn index(&self) -> Vec<String> {
        vec![format!("t/{}", self.spec.tenant), format!("i/{}", self.spec.integration)]
    }
}

/// What is watched in a plane with Extensions.
struct World {
    token: CancellationToken,
    namespaces: Store<String>,
    tenants: Store<Value>,
    kept: Mutex<HashMap<(String, String), Store<String>>>,
    planes: Planes,
}

struct Extending {
    scope: Scope,
    extensions: Store<ExtensionView>,
    configs: Store<IntegrationConfigSpec>,
    queue: Arc<Queue<Key>>,
    worlds: Mutex<HashMap<PlaneId, Arc<World>>>,
}

/// Starts those of the controllers of integrations that are named.
pub(crate) fn start_some(scope: &Scope, names: &BTreeSet<&str>) {
    if names.contains("extension") {
        start_extensions(scope);
    }
    if names.contains("integration-config") {
        config::start(scope);
    }
}

/// Starts the controllers of Extensions and IntegrationConfigs.
pub fn start_integrations(scope: &Scope) {
    start_some(scope, &["extension", "integration-config"].into());
}

fn start_extensions(scope: &Scope) {
    let queue = Queue::<Key>::new();
    let interest =
        Interest::projected(EXTENSIONS, ExtensionView::of).index(|_, view: &ExtensionView| view.index());
    let mut extensions = Informer::new(&scope.planes, interest);
    extensions.enqueue_into(&queue);
    let of_config = |object: Value| serde_json::from_value(object["spec"].clone()).ok();
    let mut configs = Informer::new(&scope.planes, Interest::projected(CONFIGS, of_config));
    let (store, on_config) = (extensions.store(), queue.clone());
    configs.on_change(move |change: &Change<IntegrationConfigSpec>| {
        for (key, _) in store.by_index(&change.key.plane, &format!("i/{}", change.key.name)) {
            on_config.add(key);
        }
    });
    let (extension_store, config_store, token) = (extensions.store(), configs.store(), scope.token.clone());
    let controller = Arc::new(Extending {
        scope: scope.clone(),
        extensions: extension_store.clone(),
        configs: config_store.clone(),
        queue: queue.clone(),
        worlds: Mutex::default(),
    });
    scope.tasks.spawn(extensions.run(scope.token.clone()));
    scope.tasks.spawn(configs.run(scope.token.clone()));
    let ready =
        Box::pin(async move { extension_store.synced(&token).await && config_store.synced(&token).await });
    control(scope, "tenancy-extension", 4, &queue, ready, controller);
}

impl Extending {
    fn world(&self, plane: &PlaneId) -> Arc<World> {
        let mut worlds = self.worlds.lock();
        worlds.entry(plane.clone()).or_insert_with(|| Arc::new(self.begin(plane))).clone()
    }

    fn begin(&self, plane: &PlaneId) -> World {
        let planes = self.scope.planes.within(plane);
        let token = self.scope.token.child_token();
        let project = |object: Value| {
            meta::label(&object, TENANT_LABEL).filter(|_| !meta::is_deleting(&object)).map(str::to_owned)
        };
        let interest = Interest::projected(NAMESPACES, project)
            .labels(TENANT_LABEL)
            .index(|_, tenant: &String| vec![tenant.clone()]);
        let mut namespaces = Informer::new(&planes, interest);
        let follow = self.follow(plane);
        namespaces.on_change(move |change: &Change<String>| {
            // One that moves concerns both tenants.
            [&change.old, &change.new].into_iter().flatten().for_each(|tenant| follow(tenant));
        });
        let mut tenants = Informer::new(&planes, Interest::objects(TENANTS));
        let follow = self.follow(plane);
        tenants.on_change(move |change: &Change<Value>| follow(&change.key.name));
        let (namespace_store, tenant_store) = (namespaces.store(), tenants.store());
        self.scope.tasks.spawn(namespaces.run(token.clone()));
        self.scope.tasks.spawn(tenants.run(token.clone()));
        World { token, namespaces: namespace_store, tenants: tenant_store, kept: Mutex::default(), planes }
    }

    /// Queues the Extensions of a tenant.
    fn follow(&self, plane: &PlaneId) -> impl Fn(&str) + Send + Sync + 'static {
        let (extensions, queue, plane) = (self.extensions.clone(), self.queue.clone(), plane.clone());
        move |tenant| {
            for (key, _) in extensions.by_index(&plane, &format!("t/{tenant}")) {
                queue.add(key);
            }
        }
    }

    /// Watches the objects that Extensions keep, to repair them.
    fn watch_kept(&self, plane: &PlaneId, world: &World, integration: &dyn Integration) {
        for kind in integration.kinds() {
            let id = (kind.api_version.to_owned(), kind.plural.to_owned());
            if world.kept.lock().contains_key(&id) {
                continue;
            }
            let owner = |object: Value| meta::label(&object, EXTENSION_LABEL).map(str::to_owned);
            let interest = Interest::projected(objects::resource(kind), owner).labels(EXTENSION_LABEL);
            let mut informer = Informer::new(&world.planes, interest);
            let (queue, plane) = (self.queue.clone(), plane.clone());
            informer.on_change(move |change: &Change<String>| {
                if let (Some(owner), false) = (change.new.as_ref().or(change.old.as_ref()), change.initial) {
                    queue.add(Key::new(plane.clone(), "", owner));
                }
            });
            world.kept.lock().insert(id, informer.store());
            self.scope.tasks.spawn(informer.run(world.token.clone()));
        }
    }

    /// What the integration is to know of the tenant; `None` where there is no such tenant.
    async fn input(
        &self,
        key: &Key,
        view: &ExtensionView,
        world: &World,
        integration: &dyn Integration,
    ) -> Result<Option<Input>, Error> {
        let tenant = &view.spec.tenant;
        let namespaces = world.namespaces.by_index(&key.plane, tenant);
        let mut namespaces: Vec<String> =
            namespaces.into_iter().map(|(key, _)| key.name.to_string()).collect();
        namespaces.sort();
        let Some(tenant_object) = world.tenants.get(&Key::new(key.plane.clone(), "", tenant)) else {
            return Ok(None);
        };
        let client = world.planes.client(&key.plane);
        let mut secrets = BTreeMap::<SecretRef, Map>::new();
        for wanted in integration.secrets(&view.spec) {
            // Others are refused by the integration, without being read.
            if !namespaces.contains(&wanted.namespace) {
                continue;
            }
            if let Some(secret) = client.get_opt(&SECRETS, Some(&wanted.namespace), &wanted.name).await? {
                secrets.insert(wanted, secret["data"].as_object().cloned().unwrap_or_default());
            }
        }
        let groups = groups_of(&tenant_object);
        Ok(Some(Input { tenant: tenant.clone(), groups, namespaces, secrets }))
    }

    async fn report(
        &self,
        key: &Key,
        view: &ExtensionView,
        counts: (usize, usize),
        refusal: Option<&Refusal>,
    ) -> Result<(), Error> {
        let (status, reason, message) = match refusal {
            None => ("True", "Applied", ""),
            Some(refusal) => ("False", refusal.reason, refusal.message.as_str()),
        };
        let mut new = json!({
            "objects": counts.0, "namespaces": counts.1, "observedGeneration": view.generation,
            "conditions": view.status["conditions"].clone(),
        });
        let set =
            conditions::Set { type_: "Ready", status, reason, message, generation: Some(view.generation) };
        conditions::set(&mut new["conditions"], set, Timestamp::now());
        if new == view.status {
            return Ok(());
        }
        let client = self.scope.planes.client(&key.plane);
        let patch = Patch::Merge(json!({"status": new}));
        match client.patch(&EXTENSIONS, None, &key.name, &patch, &PatchOptions::status()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn set_finalizer(&self, key: &Key, view: &ExtensionView, wanted: bool) -> Result<(), Error> {
        if view.finalizers.iter().any(|name| name == EXTENSION_FINALIZER) == wanted {
            return Ok(());
        }
        let mut finalizers: Vec<String> =
            view.finalizers.iter().filter(|name| *name != EXTENSION_FINALIZER).cloned().collect();
        finalizers.extend(wanted.then(|| EXTENSION_FINALIZER.to_owned()));
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        let client = self.scope.planes.client(&key.plane);
        match client.patch(&EXTENSIONS, None, &key.name, &patch, &PatchOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Groups among a Tenant's members, by role.
fn groups_of(tenant: &Value) -> BTreeMap<String, Vec<String>> {
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    for member in tenant["spec"]["members"].as_array().into_iter().flatten() {
        let role = member["role"].as_str().unwrap_or_default();
        let subjects = member["subjects"].as_array().into_iter().flatten();
        let names = subjects
            .filter(|subject| subject["kind"] == "Group")
            .filter_map(|subject| subject["name"].as_str());
        groups.entry(role.to_owned()).or_default().extend(names.map(str::to_owned));
    }
    groups
}

impl Reconcile for Extending {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(view) = self.extensions.get(&key) else {
            if self.extensions.in_plane(&key.plane).is_empty()
                && let Some(world) = self.worlds.lock().remove(&key.plane)
            {
                world.token.cancel();
            }
            return Ok(Outcome::Done);
        };
        let client = self.scope.planes.client(&key.plane);
        let config = self.configs.get(&Key::new(key.plane.clone(), "", &view.spec.integration));
        let Some(config) = config else {
            if view.deleting {
                // Nobody knows where its objects were.
                self.set_finalizer(&key, &view, false).await?;
                return Ok(Outcome::Done);
            }
            let message = format!("there is no IntegrationConfig {}", view.spec.integration);
            self.report(&key, &view, (0, 0), Some(&Refusal::new("IntegrationNotFound", message))).await?;
            return Ok(Outcome::Done);
        };
        let integration = integration(config.type_);
        let keeping = objects::Keeping {
            client: &client,
            extension: &key.name,
            namespace: integration.namespace(&config),
        };
        if view.deleting {
            if !view.spec.keep_on_deletion {
                keeping.delete_others(integration.kinds(), &[]).await?;
            }
            self.set_finalizer(&key, &view, false).await?;
            return Ok(Outcome::Done);
        }
        let world = self.world(&key.plane);
        if !world.namespaces.synced(&world.token).await || !world.tenants.synced(&world.token).await {
            return Ok(Outcome::Done);
        }
        let input = self.input(&key, &view, &world, integration).await?;
        let wanted = match &input {
            Some(input) => integration.objects(&config, &view.spec, input),
            None => Err(Refusal::new("TenantNotFound", format!("there is no Tenant {}", view.spec.tenant))),
        };
        let namespaces = input.map(|input| input.namespaces).unwrap_or_default();
        let result = match wanted {
            Ok(wanted) => {
                self.set_finalizer(&key, &view, true).await?;
                keeping.keep(integration.kinds(), &wanted).await?.map(|()| wanted.len())
            }
            Err(refusal) => {
                let narrowed =
                    |object: &Value| integration.narrowed(&config, &view.spec, object, &namespaces);
                keeping.narrow(integration.kinds(), narrowed).await?;
                Err(refusal)
            }
        };
        self.watch_kept(&key.plane, &world, integration);
        let objects = result.as_ref().copied().unwrap_or_default();
        self.report(&key, &view, (objects, namespaces.len()), result.as_ref().err()).await?;
        Ok(Outcome::After(RESYNC))
    }
}
