//! One Pod: its address, its directory, its containers, and telling the API how they are.

use crate::container::{Container, Restart};
use crate::environment::Downward;
use crate::shared::Shared;
use crate::sources::{References, Sources, list, text};
use crate::status::{self, ContainerState, Now, Observed, Termination};
use crate::volumes::MountedVolumes;
use freehold_client::{DeleteOptions, Patch, PatchOptions, Resource};
use freehold_machinery::{Value, meta};
use freehold_runtime::EventType;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");

/// How often Secrets, ConfigMaps and tokens of a running Pod are read again.
const REFRESH: Duration = Duration::from_secs(60);
/// How long to wait before what failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// The longest a stop of the whole node waits for a process.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

/// News of a Pod.
#[derive(Debug)]
pub(crate) enum News {
    /// It changed.
    Changed(Value),
    /// The API does not know it any more.
    Gone,
}

/// A Pod's sources, and where its volumes are.
#[derive(Clone, Default)]
pub(crate) struct Materials {
    pub(crate) sources: Arc<Sources>,
    pub(crate) placed: Arc<MountedVolumes>,
}

/// A running Pod, as its containers see it.
pub(crate) struct PodRun {
    pub(crate) node: Arc<Shared>,
    /// As it was when it was first seen; what containers read of it can't change.
    pub(crate) pod: Value,
    pub(crate) home: PathBuf,
    pub(crate) address: Ipv4Addr,
    materials: Mutex<Materials>,
    /// Init containers, then containers.
    states: Mutex<Vec<ContainerState>>,
    changed: Notify,
    /// The grace of the stop that was asked for.
    stop: watch::Sender<Option<Duration>>,
}

impl PodRun {
    fn new(node: Arc<Shared>, pod: Value, address: Ipv4Addr) -> Self {
        let home = node.pod_directory(meta::uid(&pod));
        let states = Mutex::new(first_states(&pod));
        let (stop, _) = watch::channel(None);
        Self { node, pod, home, address, materials: Mutex::default(), states, changed: Notify::new(), stop }
    }

    /// Writes an event about the Pod, which nothing waits for.
    pub(crate) fn record(&self, kind: EventType, reason: &str, message: String) {
        let (node, pod, reason) = (self.node.clone(), self.pod.clone(), reason.to_owned());
        tokio::spawn(async move { node.recorder.event(&node.client, &pod, kind, &reason, &message).await });
    }

    /// The state of a container.
    pub(crate) fn state(&self, index: usize) -> ContainerState {
        self.states.lock()[index].clone()
    }

    /// Changes the state of a container, which the API will be told of.
    pub(crate) fn update(&self, index: usize, change: impl FnOnce(&mut ContainerState)) {
        change(&mut self.states.lock()[index]);
        self.changed.notify_one();
    }

    pub(crate) fn materials(&self) -> Materials {
        self.materials.lock().clone()
    }

    /// Whether the Pod was asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Waits until the Pod is asked to stop; gives how long its processes may take.
    pub(crate) async fn stopping(&self) -> Duration {
        let mut stop = self.stop.subscribe();
        let grace = stop.wait_for(Option::is_some).await.ok().and_then(|grace| *grace);
        match grace {
            Some(grace) => grace,
            None => std::future::pending().await,
        }
    }

    fn ask_to_stop(&self, grace: Duration) {
        self.stop.send_if_modified(|asked| asked.is_none() && asked.replace(grace).is_none());
    }

    /// Reads Secrets, ConfigMaps and tokens (again) and places the volumes. The error says what is missing.
    async fn gather(&self) -> Result<(), String> {
        let sources =
            References::of(&self.pod).read(&self.node.client, &self.pod).await.map_err(|e| e.to_string())?;
        let (address, host) = (self.address.to_string(), self.node.host_ip.to_string());
        let downward = Downward { pod: &self.pod, pod_ip: &address, node: &self.node.name, host_ip: &host };
        let placed = MountedVolumes::place(&self.home.join("volumes"), &self.pod, &downward, &sources)?;
        *self.materials.lock() = Materials { sources: Arc::new(sources), placed: Arc::new(placed) };
        Ok(())
    }

    /// Gathers again, where the old is good enough if that fails.
    pub(crate) async fn refresh(&self) {
        if let Err(reason) = self.gather().await {
            tracing::debug!(pod = %status::key(&self.pod), reason, "volumes were not refreshed");
        }
    }

    /// Gathers until everything is there, then runs all containers to their end.
    async fn run(self: Arc<Self>) {
        let mut told = String::new();
        while let Err(reason) = self.gather().await {
            if reason != told {
                self.record(EventType::Warning, "FailedMount", format!("MountVolume.SetUp failed: {reason}"));
                told = reason;
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                _ = self.stopping() => return,
            }
        }
        let init: Vec<Value> = list(&self.pod["spec"]["initContainers"]).cloned().collect();
        let main: Vec<Value> = list(&self.pod["spec"]["containers"]).cloned().collect();
        let first = init.len();
        for (index, spec) in init.into_iter().enumerate() {
            let restart = Restart::of_init(&self.pod);
            Container { run: self.clone(), index, spec, restart }.run().await;
            let done = matches!(self.state(index).now, Now::Terminated(end) if end.exit_code == 0);
            if !done || self.is_stopping() {
                return;
            }
        }
        let all = main.into_iter().enumerate().map(|(i, spec)| {
            let restart = Restart::of(&self.pod);
            Container { run: self.clone(), index: first + i, spec, restart }.run()
        });
        futures_util::future::join_all(all).await;
    }
}

/// The states from which a Pod starts here, with what its status remembers of an earlier life of this node.
fn first_states(pod: &Value) -> Vec<ContainerState> {
    let mut states = Vec::new();
    for (field, statuses, waiting) in [
        ("initContainers", "initContainerStatuses", "PodInitializing"),
        ("containers", "containerStatuses", "ContainerCreating"),
    ] {
        for container in list(&pod["spec"][field]) {
            let name = text(&container["name"]).unwrap_or_default();
            states.push(ContainerState::new(container, status::remembered(pod, statuses, &name), waiting));
        }
    }
    states
}

/// A Pod that may not run twice, and did run in an earlier life of this node: its processes ended with that.
fn was_lost(pod: &Value) -> bool {
    let ran = list(&pod["status"]["containerStatuses"]).any(|status| text(&status["containerID"]).is_some());
    ran && Restart::of(pod) == Restart::Never
}

fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Sees a Pod through: from when the node has it until the API and this machine are rid of it.
pub(crate) struct Worker {
    run: Arc<PodRun>,
    /// As it was seen last.
    pod: Value,
    started: Timestamp,
    /// The status that the API has from here.
    published: Option<Value>,
    gone: bool,
}

impl Worker {
    /// Runs until the Pod is gone or the node stops.
    pub(crate) async fn run(node: Arc<Shared>, pod: Value, news: mpsc::UnboundedReceiver<News>) {
        let uid = meta::uid(&pod).to_owned();
        let wanted = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok());
        let Some(address) = node.addresses.lock().take(&uid, wanted) else {
            return tracing::error!(pod = %status::key(&pod), "no free address for a Pod");
        };
        let started = pod["status"]["startTime"].as_str().and_then(|time| time.parse().ok());
        let run = Arc::new(PodRun::new(node.clone(), pod.clone(), address));
        let mut worker =
            Self { run, pod, started: started.unwrap_or_else(Timestamp::now), published: None, gone: false };
        worker.see_through(news).await;
        node.addresses.lock().release(&uid);
        if worker.gone {
            node.logs.forget(&uid);
            // What can't be removed now is removed at the next start.
            let _ = std::fs::remove_dir_all(&worker.run.home);
        }
    }

    async fn see_through(&mut self, mut news: mpsc::UnboundedReceiver<News>) {
        let mut containers = self.start();
        let mut running = true;
        let mut refresh = tokio::time::interval_at(Instant::now() + REFRESH, REFRESH);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let node = self.run.node.clone();
        self.heed_deletion();
        while !self.gone {
            let late = self.published.is_none();
            tokio::select! {
                told = news.recv() => match told {
                    Some(News::Changed(pod)) => self.changed(pod),
                    Some(News::Gone) => self.vanished(),
                    None => {
                        self.run.ask_to_stop(SHUTDOWN_GRACE);
                        break;
                    }
                },
                () = self.run.changed.notified() => self.publish().await,
                () = tokio::time::sleep(RETRY), if late => self.publish().await,
                _ = &mut containers, if running => {
                    running = false;
                    self.publish().await;
                }
                _ = refresh.tick(), if running => self.run.refresh().await,
                () = node.stop.cancelled() => {
                    self.run.ask_to_stop(SHUTDOWN_GRACE);
                    break;
                }
                () = tokio::time::sleep(RETRY), if !running && meta::is_deleting(&self.pod) => {}
            }
            if !running && meta::is_deleting(&self.pod) && !self.gone {
                self.finish().await;
            }
        }
        if running {
            let _ = containers.await;
        }
    }

    /// Starts the containers, unless they had their turn.
    fn start(&mut self) -> tokio::task::JoinHandle<()> {
        if is_over(&self.pod) {
            self.published = Some(self.pod["status"].clone());
            return tokio::spawn(async {});
        }
        if was_lost(&self.pod) {
            let count = self.run.states.lock().len();
            (0..count).for_each(|index| {
                self.run.update(index, |state| state.now = Now::Terminated(lost(self.started)))
            });
            return tokio::spawn(async {});
        }
        self.run.changed.notify_one();
        tokio::spawn(self.run.clone().run())
    }

    fn changed(&mut self, pod: Value) {
        self.pod = pod;
        self.heed_deletion();
    }

    fn heed_deletion(&self) {
        if meta::is_deleting(&self.pod) {
            let grace = self.pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(30);
            self.run.ask_to_stop(Duration::from_secs(grace));
        }
    }

    /// The API has forgotten the Pod: nothing is waited for.
    fn vanished(&mut self) {
        self.run.ask_to_stop(Duration::ZERO);
        self.gone = true;
    }

    /// Tells the API the status, if it does not have it.
    async fn publish(&mut self) {
        if is_over(&self.pod) {
            return;
        }
        let status = self.status();
        if self.published.as_ref() == Some(&status) {
            return;
        }
        let patch = Patch::Merge(json!({"metadata": {"uid": meta::uid(&self.pod)}, "status": status}));
        let (namespace, name) = (meta::namespace(&self.pod), meta::name(&self.pod));
        let client = &self.run.node.client;
        let told = client.patch(&PODS, Some(namespace), name, &patch, &PatchOptions::status()).await;
        self.published = match told {
            Ok(_) => Some(status),
            // It is gone, or another has its name: the watch will say so.
            Err(error) if error.is_not_found() || error.is_conflict() => Some(status),
            Err(error) => {
                tracing::warn!(pod = %status::key(&self.pod), %error, "failed to update Pod status; will retry");
                None
            }
        };
    }

    fn status(&self) -> Value {
        let states = self.run.states.lock();
        let (init, main) = states.split_at(list(&self.run.pod["spec"]["initContainers"]).count());
        let seen = Observed {
            init,
            main,
            pod_ip: &self.run.address.to_string(),
            host_ip: &self.run.node.host_ip.to_string(),
            started: self.started,
            now: Timestamp::now(),
        };
        // Times of conditions go on from what was told last.
        let mut pod = self.pod.clone();
        if let Some(published) = &self.published {
            pod["status"] = published.clone();
        }
        status::pod_status(&pod, &seen)
    }

    /// Nothing runs any more and the API wants the Pod gone: tells it that it may.
    async fn finish(&mut self) {
        self.publish().await;
        let options = DeleteOptions {
            uid: meta::uid(&self.pod).to_owned(),
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let (namespace, name) = (meta::namespace(&self.pod), meta::name(&self.pod));
        match self.run.node.client.delete(&PODS, Some(namespace), name, &options).await {
            Ok(_) => self.gone = true,
            Err(error) if error.is_not_found() || error.is_conflict() => self.gone = true,
            Err(error) => {
                tracing::warn!(pod = %status::key(&self.pod), %error, "failed to remove a Pod; will retry")
            }
        }
    }
}

fn lost(started: Timestamp) -> Termination {
    Termination {
        exit_code: 137,
        signal: 9,
        reason: "ContainerStatusUnknown".into(),
        message: "The node was started again while the container ran".into(),
        started,
        finished: Timestamp::now(),
    }
}
