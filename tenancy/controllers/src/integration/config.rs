//! Says of each IntegrationConfig whether its system is there, and how many Extensions use it.

use super::{CONFIGS, EXTENSIONS, ExtensionView, NAMESPACES, objects};
use crate::running::{Reconcile, control};
use freehold_client::{Client, ListOptions, Patch, PatchOptions};
use freehold_machinery::Value;
use freehold_runtime::{
    Change, Error, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Scope, Store, conditions,
};
use freehold_tenancy_api::integration::IntegrationConfigSpec;
use freehold_tenancy_decide::integration::{Refusal, integration};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How often a system is looked for.
const RESYNC: Duration = Duration::from_secs(60);

/// An IntegrationConfig as the store keeps it.
struct ConfigView {
    generation: i64,
    spec: IntegrationConfigSpec,
    status: Value,
}

impl ConfigView {
    fn of(object: Value) -> Option<Self> {
        Some(Self {
            generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
            spec: serde_json::from_value(object["spec"].clone()).ok()?,
            status: object["status"].clone(),
        })
    }
}

struct Configs {
    planes: Planes,
    configs: Store<ConfigView>,
    extensions: Store<ExtensionView>,
}

/// Starts the controller of IntegrationConfigs.
pub(super) fn start(scope: &Scope) {
    let queue = Queue::<Key>::new();
    let mut configs = Informer::new(&scope.planes, Interest::projected(CONFIGS, ConfigView::of));
    let to = queue.clone();
    configs.on_change(move |change: &Change<ConfigView>| {
        let wish = |view: &Arc<ConfigView>| (view.generation, view.status.is_null());
        if change.old.as_ref().map(wish) != change.new.as_ref().map(wish) {
            to.add(change.key.clone());
        }
    });
    let interest =
        Interest::projected(EXTENSIONS, ExtensionView::of).index(|_, view: &ExtensionView| view.index());
    let mut extensions = Informer::new(&scope.planes, interest);
    let to = queue.clone();
    extensions.on_change(move |change: &Change<ExtensionView>| {
        let name = |view: &Arc<ExtensionView>| view.spec.integration.clone();
        let (old, new) = (change.old.as_ref().map(name), change.new.as_ref().map(name));
        if old != new {
            for name in [old, new].into_iter().flatten() {
                to.add(Key::new(change.key.plane.clone(), "", &name));
            }
        }
    });
    let (config_store, extension_store) = (configs.store(), extensions.store());
    let controller = Arc::new(Configs {
        planes: scope.planes.clone(),
        configs: config_store.clone(),
        extensions: extension_store.clone(),
    });
    scope.tasks.spawn(configs.run(scope.token.clone()));
    scope.tasks.spawn(extensions.run(scope.token.clone()));
    let token = scope.token.clone();
    let ready =
        Box::pin(async move { config_store.synced(&token).await && extension_store.synced(&token).await });
    control(scope, "tenancy-integration-config", 1, &queue, ready, controller);
}

/// Whether the system of a configuration can be written to.
async fn look_for(client: &Client, spec: &IntegrationConfigSpec) -> Result<Option<Refusal>, Error> {
    let integration = integration(spec.type_);
    let namespace = integration.namespace(spec);
    if client.get_opt(&NAMESPACES, None, namespace).await?.is_none() {
        let message = format!("namespace {namespace:?} does not exist: install the system there");
        return Ok(Some(Refusal::new("NamespaceMissing", message)));
    }
    let one = ListOptions { limit: 1, ..ListOptions::default() };
    for kind in integration.kinds() {
        match client.list(&objects::resource(kind), Some(namespace), &one).await {
            Err(error) if error.is_not_found() => {
                let message = format!("the server has no kind {} of {}", kind.kind, kind.api_version);
                return Ok(Some(Refusal::new("NotInstalled", message)));
            }
            other => drop(other?),
        }
    }
    Ok(None)
}

impl Reconcile for Configs {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(view) = self.configs.get(&key) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        let refusal = look_for(&client, &view.spec).await?;
        let (status, reason, message) = match &refusal {
            None => ("True", "Available", ""),
            Some(refusal) => ("False", refusal.reason, refusal.message.as_str()),
        };
        let extensions = self.extensions.count_by_index(&key.plane, &format!("i/{}", key.name));
        let mut new = json!({
            "extensions": extensions, "observedGeneration": view.generation,
            "conditions": view.status["conditions"].clone(),
        });
        let set =
            conditions::Set { type_: "Ready", status, reason, message, generation: Some(view.generation) };
        conditions::set(&mut new["conditions"], set, Timestamp::now());
        if new != view.status {
            let patch = Patch::Merge(json!({"status": new}));
            match client.patch(&CONFIGS, None, &key.name, &patch, &PatchOptions::status()).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Outcome::After(RESYNC))
    }
}
