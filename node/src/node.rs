//! The node itself: which Pods are its own, and a worker for each of them.

use crate::images::Images;
use crate::logbook::LogBook;
use crate::pod::{News, PODS, Worker};
use crate::process;
use crate::register;
use crate::running::RunningContainers;
use crate::serve::{Bound, LogServer};
use crate::shared::{Shared, known_directories};
use crate::usage::Usage;
use anyhow::Context as _;
use freehold_client::Client;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Change, EventType, Informer, Interest, Planes, Recorder};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What a node is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// A client of the API whose Pods are run.
    pub client: Client,
    /// Where that API is below the client's server: `/planes/infra`, or nothing.
    pub base_path: String,
    /// The name of the Node object.
    pub node_name: String,
    /// Whether it takes each Pod that no node has; otherwise a scheduler gives it Pods.
    pub takes_waiting: bool,
    /// Where Pods have their directories. Private to this node; made where it is absent.
    pub data_dir: PathBuf,
    /// Which program an image stands for.
    pub images: Images,
    /// How containers' logs are served.
    pub logs: LogServer,
    /// Host and port at whose root the API is for tokens of its service accounts, which Pods are told as on every cluster
    /// (`KUBERNETES_SERVICE_HOST`, `KUBERNETES_SERVICE_PORT`); nothing where it is nowhere at a root.
    pub service: Option<(String, u16)>,
}

/// Ends the processes that an earlier life of the node with this data directory left running. [`Node::run`] does so first;
/// this is for a machine whose node does not run because another leads.
pub async fn end_leftovers(data_dir: &Path) {
    let containers = known_directories(data_dir).into_iter().map(|pod| pod.join("containers"));
    let ended = process::end_leftovers(containers).await;
    if ended > 0 {
        tracing::info!(ended, "ended processes of a previous run of this node");
    }
}

/// A node that is ready to run: its log server has its port.
pub struct Node {
    shared: Arc<Shared>,
    planes: Planes,
    server: Bound,
    address: SocketAddr,
}

impl Config {
    /// Creates the directory for Pods (0700) and binds the port of the log server.
    ///
    /// # Errors
    /// A port that cannot be bound, or a directory that cannot be created.
    pub async fn build(self) -> anyhow::Result<Node> {
        let logs = Arc::new(LogBook::default());
        let containers = Arc::new(RunningContainers::default());
        let usage = Arc::new(Usage::new(&self.node_name, containers.clone()));
        let server =
            Bound::bind(&self.logs, logs.clone(), containers.clone(), usage).await.context("log server")?;
        let address = server.address()?;
        let planes = Planes::one(self.client, PlaneId::infra(), &self.base_path);
        let shared = Shared {
            client: planes.everywhere(),
            name: self.node_name,
            takes_waiting: self.takes_waiting,
            host_ip: address.ip(),
            images: self.images,
            service: self.service,
            logs,
            containers,
            recorder: Recorder::new("freehold-node"),
            addresses: Mutex::default(),
            stop: CancellationToken::new(),
            // Containers have directories of their own to run in, and have to find their volumes from there.
            data_dir: std::path::absolute(&self.data_dir)?,
        };
        let pods = shared.pods_directory();
        // Secrets are in there.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&pods)
            .with_context(|| pods.display().to_string())?;
        Ok(Node { shared: Arc::new(shared), planes, server, address })
    }
}

impl Node {
    /// Where logs are served.
    pub fn logs_at(&self) -> SocketAddr {
        self.address
    }

    /// Runs Pods until the token is cancelled, then stops their processes, within 4 s. What an earlier life of this
    /// node left running is ended first.
    pub async fn run(self, token: CancellationToken) {
        let shared = self.shared.clone();
        end_leftovers(&shared.data_dir).await;
        let serving = tokio::spawn(self.server.run(token.clone()));
        let (sender, changes) = mpsc::unbounded_channel();
        let mut informer = Informer::new(&self.planes, Interest::objects(PODS));
        let store = informer.store();
        informer.on_change(move |change: &Change<Value>| {
            // The receiver is gone only when the node stops.
            let _ = sender.send((change.old.clone(), change.new.clone()));
        });
        let watching = tokio::spawn(informer.run(token.clone()));
        let mut pods = Pods { shared: shared.clone(), workers: HashMap::new(), tasks: JoinSet::new() };
        tokio::join!(register::run(&shared, self.address, &token), pods.run(changes, &token), async {
            if store.synced(&token).await {
                let pods = store.keys().into_iter().filter_map(|key| store.get(&key));
                let uids = pods.map(|pod| meta::uid(&pod).to_owned()).collect();
                remove_strangers(&shared, &uids);
            }
        });
        shared.stop.cancel();
        while pods.tasks.join_next().await.is_some() {}
        for task in [serving, watching] {
            // Both end with the token.
            let _ = task.await;
        }
    }
}

/// Removes directories of Pods that are no more.
fn remove_strangers(shared: &Shared, uids: &HashSet<String>) {
    for directory in shared.known_directories() {
        let known =
            directory.file_name().and_then(|name| name.to_str()).is_some_and(|uid| uids.contains(uid));
        if !known && let Err(error) = std::fs::remove_dir_all(&directory) {
            tracing::warn!(path = %directory.display(), %error, "failed to remove a leftover directory");
        }
    }
}

type PodChange = (Option<Arc<Value>>, Option<Arc<Value>>);

/// The workers of all Pods of this node, by uid.
struct Pods {
    shared: Arc<Shared>,
    workers: HashMap<String, mpsc::UnboundedSender<News>>,
    tasks: JoinSet<String>,
}

impl Pods {
    async fn run(&mut self, mut changes: mpsc::UnboundedReceiver<PodChange>, token: &CancellationToken) {
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                Some((old, new)) = changes.recv() => self.changed(old.as_deref(), new.as_deref()),
                Some(ended) = self.tasks.join_next() => self.ended(ended),
            }
        }
    }

    fn ended(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(uid) => drop(self.workers.remove(&uid)),
            Err(error) => tracing::error!(%error, "a Pod's worker failed"),
        }
    }

    fn changed(&mut self, old: Option<&Value>, new: Option<&Value>) {
        let replaced = old.filter(|old| new.is_none_or(|new| meta::uid(new) != meta::uid(old)));
        if let Some(worker) = replaced.and_then(|old| self.workers.get(meta::uid(old))) {
            // A worker that has ended knows it already.
            let _ = worker.send(News::Gone);
        }
        let Some(pod) = new else { return };
        match pod["spec"]["nodeName"].as_str().unwrap_or_default() {
            "" if self.shared.takes_waiting && is_bindable(pod, &self.shared.name) => self.bind(pod),
            name if name == self.shared.name => self.give(pod),
            _ => {}
        }
    }

    fn give(&mut self, pod: &Value) {
        let uid = meta::uid(pod).to_owned();
        if let Some(worker) = self.workers.get(&uid) {
            let _ = worker.send(News::Changed(pod.clone()));
            return;
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        self.workers.insert(uid.clone(), sender);
        let (shared, pod) = (self.shared.clone(), pod.clone());
        self.tasks.spawn(async move {
            Worker::run(shared, pod, receiver).await;
            uid
        });
    }

    /// Takes a Pod that no node has, where this node is the only one.
    fn bind(&self, pod: &Value) {
        let (shared, pod) = (self.shared.clone(), pod.clone());
        tokio::spawn(async move {
            let (namespace, name) = (meta::namespace(&pod), meta::name(&pod));
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "namespace": namespace, "uid": meta::uid(&pod)},
                "target": {"apiVersion": "v1", "kind": "Node", "name": shared.name},
            });
            match shared.client.create_subresource(&PODS, Some(namespace), name, "binding", &binding).await {
                Ok(_) => {
                    let message = format!("Successfully assigned {namespace}/{name} to {}", shared.name);
                    shared
                        .recorder
                        .event(&shared.client, &pod, EventType::Normal, "Scheduled", &message)
                        .await;
                }
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(pod = %crate::status::key(&pod), %error, "failed to bind a Pod to this node; will retry")
                }
            }
        });
    }
}

/// Whether a Pod may be taken: it is not held back, not on its way out, and asks for nothing that this node is not.
fn is_bindable(pod: &Value, node: &str) -> bool {
    let labels = register::labels(node);
    let has = |key: &str, value: &Value| labels.iter().any(|(k, v)| *k == key && value == v.as_str());
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let selector = pod["spec"]["nodeSelector"].as_object();
    !meta::is_deleting(pod) && !gated && selector.into_iter().flatten().all(|(key, value)| has(key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_taken_unless_it_is_held_back_or_wants_another_node() {
        let rows = [
            (json!({"spec": {}}), true),
            (json!({"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}), true),
            (json!({"spec": {"nodeSelector": {"gpu": "yes"}}}), false),
            (json!({"spec": {"schedulingGates": [{"name": "x"}]}}), false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}), false),
        ];
        for (pod, expected) in rows {
            assert_eq!(is_bindable(&pod, "here"), expected, "{pod}");
        }
    }
}
