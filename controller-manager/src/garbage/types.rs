//! Which types are watched: everything that any plane serves, each once.

use super::exported::{Exported, is_exported, served_as};
use super::graph::{Graph, Item};
use freehold_client::{Client, Error, Resource};
use freehold_controllers_context::Context;
use freehold_controllers_context::discovery::discover;
use freehold_controllers_context::kinds::CRDS;
use freehold_controllers_context::object::{items, text};
use freehold_machinery::Value;
use freehold_runtime::{Informer, Interest, Key, Planes, Queue, Store, conditions};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long to wait before the types of the server are asked for again after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Types that are made and forgotten too often, and own nothing.
fn is_ignored(resource: &Resource) -> bool {
    resource.plural == "events" && matches!(&*resource.group, "" | "events.k8s.io")
}

/// The type that a CustomResourceDefinition adds: in the version that it stores.
pub(super) fn type_of(crd: Value) -> Option<Resource> {
    if !conditions::is_true(&crd["status"]["conditions"], "Established") {
        return None;
    }
    type_of_spec(&crd["spec"])
}

/// The type that the spec of a CustomResourceDefinition or APIResourceSchema has, in the version that it stores.
pub(super) fn type_of_spec(spec: &Value) -> Option<Resource> {
    let versions = items(spec, "/versions");
    let served = |v: &&Value| v["served"] == true;
    let version =
        versions.iter().filter(served).find(|v| v["storage"] == true).or(versions.iter().find(served))?;
    let namespaced = text(spec, "/scope") == "Namespaced";
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    Some(Resource::dynamic(group, version["name"].as_str()?, plural, namespaced))
}

/// Watches types as they come and go.
pub(super) struct Types {
    planes: Planes,
    /// Planes whose own types all planes have, or that have types of Freehold's own.
    sources: Vec<Client>,
    graph: Arc<Mutex<Graph>>,
    queue: Arc<Queue<Item>>,
    token: CancellationToken,
    tasks: TaskTracker,
    running: HashMap<Resource, CancellationToken>,
    custom: Store<Resource>,
    /// What projects export; `None` where one plane alone is served.
    exported: Option<Exported>,
    changed: Arc<Notify>,
}

impl Types {
    /// Begins to watch; what is returned becomes true when everything that was there at the start has been seen.
    pub(super) fn start(
        context: &Context,
        graph: Arc<Mutex<Graph>>,
        queue: Arc<Queue<Item>>,
    ) -> watch::Receiver<bool> {
        let mut informer = Informer::new(&context.planes, Interest::projected(CRDS, type_of));
        let changed = Arc::new(Notify::new());
        let on_types = changed.clone();
        informer.on_change(move |_| on_types.notify_one());
        let custom = context.run_informer(informer);
        let exported = context.planes.only().is_none().then(|| Exported::start(context, &changed));
        let sources = match context.planes.only() {
            Some(plane) => vec![context.planes.client(plane)],
            None => {
                vec![context.core.everywhere(), context.planes.client(&freehold_machinery::PlaneId::infra())]
            }
        };
        let types = Self {
            planes: context.planes.clone(),
            sources,
            graph,
            queue,
            token: context.token.clone(),
            tasks: context.tasks.clone(),
            running: HashMap::new(),
            custom,
            exported,
            changed,
        };
        let (ready, is_ready) = watch::channel(false);
        context.tasks.spawn(types.run(ready));
        is_ready
    }

    async fn run(mut self, ready: watch::Sender<bool>) {
        let token = self.token.clone();
        tokio::select! {
            () = token.cancelled() => {}
            () = self.follow(ready) => {}
        }
    }

    async fn follow(&mut self, ready: watch::Sender<bool>) {
        let fixed = self.fixed().await;
        let stores = self.watch(&fixed);
        for store in stores {
            store.synced(&self.token).await;
        }
        self.custom.synced(&self.token).await;
        if let Some(exported) = &self.exported {
            exported.synced(&self.token).await;
        }
        for store in self.watch(&fixed) {
            store.synced(&self.token).await;
        }
        // Nobody listens any more when the process stops.
        let _ = ready.send(true);
        loop {
            self.changed.notified().await;
            self.watch(&fixed);
        }
    }

    /// The types that do not come from CustomResourceDefinitions that come and go.
    async fn fixed(&self) -> BTreeSet<Resource> {
        loop {
            match self.discover_all().await {
                Ok(types) => return types,
                Err(error) => tracing::debug!(%error, "types not read yet"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn discover_all(&self) -> Result<BTreeSet<Resource>, Error> {
        let mut types = BTreeSet::new();
        for source in &self.sources {
            let found = discover(source).await?.types.into_iter();
            types.extend(found.filter(|ty| ty.is_deletable() && ty.has("watch")).map(|ty| ty.resource));
        }
        // What is exported comes and goes.
        let exported: BTreeSet<Resource> = types.iter().filter(|ty| is_exported(ty)).map(served_as).collect();
        types.retain(|ty| !is_ignored(ty) && !is_exported(ty) && !exported.contains(ty));
        Ok(types)
    }

    /// Starts and stops watches so that they are those wanted. Gives the stores of those started.
    fn watch(&mut self, fixed: &BTreeSet<Resource>) -> Vec<Store<()>> {
        let custom = self.custom.keys().into_iter().filter_map(|key| Some((*self.custom.get(&key)?).clone()));
        let exported = self.exported.iter().flat_map(Exported::types);
        let wanted: BTreeSet<Resource> = fixed.iter().cloned().chain(custom).chain(exported).collect();
        self.running.retain(|resource, token| {
            let stays = wanted.contains(resource);
            if !stays {
                token.cancel();
            }
            stays
        });
        let missing: Vec<Resource> = wanted.into_iter().filter(|r| !self.running.contains_key(r)).collect();
        missing.into_iter().map(|resource| self.watch_type(resource)).collect()
    }

    fn watch_type(&mut self, resource: Resource) -> Store<()> {
        let token = self.token.child_token();
        self.running.insert(resource.clone(), token.clone());
        // What has to do with no other object is not even sent.
        let interest = nothing_kept(&resource).related_only();
        let (informer, store) = watch_into(&self.planes, resource, interest, &self.graph, &self.queue);
        self.tasks.spawn(informer.run(token));
        store
    }
}

/// The metadata of a type's objects. The graph keeps what is needed, so the store keeps nothing.
pub(super) fn nothing_kept(resource: &Resource) -> Interest<()> {
    Interest::projected(resource.clone(), |_| None).metadata_only()
}

/// What watches a type for a graph, and the store that tells when it has seen everything.
pub(super) fn watch_into(
    planes: &Planes,
    resource: Resource,
    interest: Interest<()>,
    graph: &Arc<Mutex<Graph>>,
    queue: &Arc<Queue<Item>>,
) -> (Informer<()>, Store<()>) {
    let mut informer = Informer::new(planes, interest);
    let (resource, graph, queue) = (Arc::new(served_as(&resource)), graph.clone(), queue.clone());
    informer.on_object(move |key: &Key, object, seen| {
        let Key { plane, namespace, name } = key.clone();
        let item = Item::new(plane, resource.clone(), namespace, name);
        let affected = graph.lock().unwrap_or_else(PoisonError::into_inner).observe(&item, object, seen);
        for item in affected {
            queue.add(item);
        }
    });
    let store = informer.store();
    (informer, store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_established_definition_adds_its_stored_version() {
        let mut crd = json!({
            "spec": {
                "group": "x.io", "scope": "Namespaced", "names": {"plural": "things"},
                "versions": [
                    {"name": "v2", "served": false, "storage": false},
                    {"name": "v1", "served": true, "storage": true},
                    {"name": "v1beta1", "served": true, "storage": false},
                ],
            },
        });
        assert_eq!(type_of(crd.clone()), None);
        crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        assert_eq!(type_of(crd), Some(Resource::dynamic("x.io", "v1", "things", true)));
        assert_eq!(type_of(Value::Null), None);
    }

    #[test]
    fn events_are_not_watched() {
        assert!(is_ignored(&Resource::namespaced("", "v1", "events")));
        assert!(!is_ignored(&Resource::namespaced("argoproj.io", "v1", "events")));
    }
}
