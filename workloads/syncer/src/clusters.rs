//! Connections to shared clusters: made and ended as their WorkloadClusters say.

use crate::cluster::Cluster;
use crate::kinds::{CLUSTERS, Kind, SECRETS};
use crate::nodes;
use crate::world::{Object, Place, World};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_client::{Client, Config, Error, Patch, PatchOptions};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Key, Outcome, Reconciled, conditions};
use jiff::Timestamp;
use serde_json::json;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often a cluster is asked whether it answers.
const LOOK: Duration = Duration::from_secs(10);
/// How often one that has not been read yet is.
const SOON: Duration = Duration::from_millis(500);
/// How long a cluster may take to say its version.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to clusters.
pub(crate) struct Clusters {
    pub(crate) world: Arc<World>,
    pub(crate) events: mpsc::Sender<(String, Value)>,
    pub(crate) token: CancellationToken,
    pub(crate) tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl Clusters {
    /// Reconciles a WorkloadCluster: connects to it, ends the connection, or looks whether it answers.
    ///
    /// # Errors
    /// The core server does not answer.
    pub(crate) async fn reconcile(&self, key: Key) -> Reconciled {
        let world = &self.world;
        let Some(object) = world.cluster_objects.get(&key) else {
            if let Some(cluster) = world.clusters.lock().remove(&*key.name) {
                cluster.token.cancel();
            }
            return Ok(Outcome::Done);
        };
        let (client, credentials) = match self.client(&object).await {
            Ok(found) => found,
            Err(why) => {
                self.report(&object, unready(&object, "NoKubeconfig", &why)).await?;
                return Ok(Outcome::After(LOOK));
            }
        };
        let known = world.clusters.lock().get(&*key.name).cloned();
        let cluster = match known.filter(|cluster| cluster.credentials == credentials) {
            Some(cluster) => cluster,
            None => self.connect(object.clone(), client, credentials).await,
        };
        *cluster.object.lock() = object.clone();
        self.look(&cluster, &object).await
    }

    async fn client(&self, object: &Value) -> Result<(Client, u64), String> {
        let text = |field: &str| object["spec"]["kubeconfig"][field].as_str().unwrap_or_default();
        let (namespace, name, key) = (text("namespace"), text("name"), text("key"));
        let secret = self.world.core.get(&SECRETS, Some(namespace), name).await;
        let secret = secret.map_err(|error| format!("Secret {namespace}/{name}: {error}"))?;
        let unreadable = || format!("Secret {namespace}/{name} has no kubeconfig under {key:?}");
        let encoded = secret["data"][key].as_str().ok_or_else(unreadable)?;
        let text = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(unreadable)?;
        let config = Config::from_kubeconfig_text(&text).map_err(|error| error.to_string())?;
        let agent = concat!("freehold-syncer/", env!("CARGO_PKG_VERSION"));
        let client = Client::new(&config.user_agent(agent)).map_err(|error| error.to_string())?;
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Ok((client, hasher.finish()))
    }

    async fn connect(&self, object: Arc<Value>, client: Client, credentials: u64) -> Arc<Cluster> {
        let token = self.token.child_token();
        let mut tasks = self.tasks.lock().await;
        let name = meta::name(&object).to_owned();
        let (queues, events) = (&self.world.queues, self.events.clone());
        let cluster =
            Arc::new(Cluster::start(object, (client, credentials), queues, (&mut tasks, token), events));
        let before = self.world.clusters.lock().insert(name, cluster.clone());
        before.iter().for_each(|before| before.token.cancel());
        cluster
    }

    async fn look(&self, cluster: &Arc<Cluster>, object: &Value) -> Reconciled {
        let version = tokio::time::timeout(PATIENCE, cluster.client.get_path("/version")).await;
        let version = version.ok().and_then(Result::ok);
        let is_ready = version.is_some() && cluster.is_synced();
        let was_ready = cluster.ready.swap(is_ready, Ordering::Relaxed);
        let known = object["status"]["version"].as_str().unwrap_or_default().to_owned();
        let version = version.and_then(|v| v["gitVersion"].as_str().map(str::to_owned)).unwrap_or(known);
        self.report(object, cluster.status(&version, is_ready)).await?;
        if is_ready != was_ready {
            tracing::info!(cluster = cluster.name, is_ready, "a cluster's state changed");
            self.again(cluster).await;
        }
        cluster.tidy();
        Ok(Outcome::After(if is_ready { LOOK } else { SOON }))
    }

    /// Makes Nodes say what has become of their cluster, and what waited for it come again.
    async fn again(&self, cluster: &Arc<Cluster>) {
        let planes: Vec<PlaneId> = self.world.nodes.lock().keys().cloned().collect();
        for plane in planes {
            if let Place::On(placed) = self.world.place(&plane)
                && placed.cluster.name == cluster.name
                && let Err(error) = nodes::ensure(&self.world, &placed, &plane).await
            {
                tracing::debug!(%plane, %error, "failed to write a Node's condition");
            }
        }
        if cluster.is_ready() {
            self.world.pods.keys().into_iter().for_each(|key| self.world.queues.pods.add_routine(key));
        }
    }

    async fn report(&self, object: &Value, status: Value) -> Result<(), Error> {
        if status == object["status"] {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"status": status}));
        let name = meta::name(object);
        self.world.core.patch(&CLUSTERS, None, name, &patch, &PatchOptions::status()).await.map(drop)
    }
}

fn unready(object: &Value, reason: &str, message: &str) -> Value {
    let mut status = object["status"].clone();
    let ready = conditions::Set { type_: "Ready", status: "False", reason, message, generation: None };
    conditions::set(&mut status["conditions"], ready, Timestamp::now());
    status
}

/// Brings host objects of all clusters into the queue, so that what nobody needs any more goes.
pub(crate) async fn sweep(world: &World) {
    let clusters: Vec<Arc<Cluster>> = world.clusters.lock().values().cloned().collect();
    for cluster in clusters.iter().filter(|cluster| cluster.is_synced()) {
        for kind in [Kind::Namespace, Kind::ConfigMap, Kind::Secret, Kind::Claim, Kind::Service] {
            for key in cluster.origins(kind) {
                world.queues.objects.add_routine(Object { kind, key });
            }
        }
        for pod in cluster.pods.keys().iter().filter_map(|key| cluster.pods.get(key)) {
            world.queues.pods.add_routine(pod.of.clone());
        }
        for (_, secret) in cluster.tokens().iter().filter(|(pod, _)| world.pods.get(pod).is_none()) {
            if let Err(error) = cluster.remove_named(Kind::Secret, secret).await {
                tracing::debug!(%secret, %error, "failed to remove tokens of a Pod that is no more");
            }
        }
    }
}
