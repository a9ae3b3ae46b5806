//! Resource metrics of planes (`metrics.k8s.io`): asks the kubelets of a plane when a client asks, and not before.
//!
//! What a kubelet answers is limited in time and bytes, and in what it may speak of (`resource-metrics`). One that hangs costs
//! the metrics of its own node: the others are asked beside it, and it is left alone for a while. There is nothing for a plane
//! that nobody asks.

use crate::{kubelets::Kubelets, looks::Looks};
use bytes::Bytes;
use freehold_apiserver_cache::{Cache, Entry, ListRequest, Listed};
use freehold_apiserver_registry::{List, ListOptions, Object, Operation, heavy};
use freehold_apiserver_resource_metrics::{
    NodePods, NodeUsage, PATH, PlacedPods, PodUsage, Selection, Usage, node_metrics, pod_metrics, read,
};
use freehold_apiserver_server::{Kubelet, kubelet_address};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use jiff::Timestamp;
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{error::Elapsed, timeout, timeout_at},
};

/// Kubelets of one plane that are asked at a time.
const AT_ONCE: usize = 16;
/// How long one has to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long all of them have.
const ALL: Duration = Duration::from_secs(10);
/// For how long one that did not answer in time is not asked again.
const SILENCE: Duration = Duration::from_secs(60);
/// Most bytes of an answer: with CPU and memory alone, those of some thousand Pods.
const LARGEST: usize = 2 << 20;
/// Most bytes of answers of one plane, and of all planes, that are read at a time.
const AT_ONCE_BYTES: (usize, usize) = (8 << 20, 64 << 20);

/// Answers requests for what nodes and Pods use.
pub(crate) struct ResourceMetrics {
    cache: Arc<Cache>,
    /// How nodes are reached; `None` where this server has no authority that they know it by.
    pub(crate) kubelets: Option<Kubelets>,
    looks: Arc<Looks<PlaneUsage>>,
    bytes: Arc<Semaphore>,
}

/// What the nodes and Pods of a plane used at a time.
#[derive(Default)]
struct PlaneUsage {
    nodes: HashMap<String, Usage>,
    pods: HashMap<(String, String), PodUsage>,
    /// Nodes that did not answer in time, and when that was.
    silent: HashMap<String, Instant>,
}

/// What bounds the bytes that are read at a time: the plane's share, and the one of all.
#[derive(Clone)]
struct Room([Arc<Semaphore>; 2]);

/// What a kubelet says of its node, or why it says nothing; [`Elapsed`] where it does not answer in time.
type Answer = std::result::Result<std::result::Result<NodeUsage, String>, Elapsed>;

impl ResourceMetrics {
    /// Asks with `kubelets`; without, this server reaches no nodes.
    pub(crate) fn new(cache: Arc<Cache>, kubelets: Option<Kubelets>) -> Arc<Self> {
        let bytes = Arc::new(Semaphore::new(AT_ONCE_BYTES.1));
        Arc::new(Self { cache, kubelets, looks: Arc::default(), bytes })
    }

    /// The metrics of one node or Pod of a plane.
    ///
    /// # Errors
    /// 404 where there is no such node or Pod, or nothing is known of it.
    pub(crate) async fn get(self: &Arc<Self>, op: &Operation) -> Result<Object> {
        let path = ObjectPath {
            group: String::new(),
            resource: op.ty.plural.clone(),
            namespace: op.namespace.clone(),
            name: op.name.clone().unwrap_or_default(),
        };
        let Some(entry) = self.cache.get(&op.plane, &path).await? else {
            return Err(Status::not_found(&GroupResource::new("", &path.resource), &path.name));
        };
        let usage = self.usage(&op.plane).await?;
        let found = usage.object(&entry, op.ty.namespaced, Timestamp::now());
        let value = found.ok_or_else(|| Status::not_found(&op.ty.group_resource(), entry.place()))?;
        Ok(Object::Value(Arc::new(value)))
    }

    /// The metrics of those nodes or Pods of a plane that are selected, as far as they are known.
    ///
    /// # Errors
    /// 400 for a selector that can't be read, 429 or 503 where kubelets can't be asked.
    pub(crate) async fn list(self: &Arc<Self>, op: &Operation, options: &ListOptions) -> Result<List> {
        let selection = Selection::parse(&options.label_selector, &options.field_selector)?;
        let usage = self.usage(&op.plane).await?;
        let listed = self.listed(&op.plane, &op.ty.plural, op.namespace.as_deref()).await?;
        let is_selected =
            |entry: &&Arc<Entry>| selection.matches(entry.namespace(), entry.name(), |key| entry.label(key));
        let now = Timestamp::now();
        let objects = listed.objects.iter().filter(is_selected);
        let found = objects.filter_map(|entry| usage.object(entry, op.ty.namespaced, now));
        let items =
            heavy(size(&listed.objects), || found.map(|value| Object::Value(Arc::new(value))).collect());
        Ok(List { items, revision: listed.revision, continue_token: String::new(), remaining: None })
    }

    async fn usage(self: &Arc<Self>, plane: &PlaneId) -> Result<Arc<PlaneUsage>> {
        let (this, asked) = (self.clone(), plane.clone());
        self.looks.of(plane, |before| async move { this.look(&asked, before).await }.boxed()).await
    }

    async fn listed(&self, plane: &PlaneId, resource: &str, namespace: Option<&str>) -> Result<Listed> {
        Box::pin(self.cache.list(ListRequest { plane, group: "", resource, namespace })).await
    }

    /// Asks all kubelets of a plane.
    async fn look(self: &Arc<Self>, plane: &PlaneId, before: Option<Arc<PlaneUsage>>) -> Result<PlaneUsage> {
        let nodes = self.listed(plane, "nodes", None).await?.objects;
        let pods = self.listed(plane, "pods", None).await?.objects;
        let mut placed = PlacedPods::default();
        heavy(size(&pods), || pods.iter().for_each(|pod| placed.add(&pod.json())));
        drop(pods);
        let mut usage = PlaneUsage::default();
        let silent = before.iter().flat_map(|before| &before.silent);
        let silent = silent.filter(|(_, since)| since.elapsed() < SILENCE);
        usage.silent.extend(silent.map(|(node, since)| (node.clone(), *since)));
        let asked: Vec<_> = nodes.iter().filter(|node| !usage.silent.contains_key(node.name())).collect();
        let room = Room([Arc::new(Semaphore::new(AT_ONCE_BYTES.0)), self.bytes.clone()]);
        let questions: Vec<_> = asked
            .into_iter()
            .map(|node| self.question(plane, node.clone(), placed.take(node.name()), room.clone()))
            .collect();
        let mut answers = stream::iter(questions).buffer_unordered(AT_ONCE);
        let deadline = tokio::time::Instant::now() + ALL;
        while let Ok(Some((node, answer))) = timeout_at(deadline, answers.next()).await {
            match answer {
                Ok(Ok(found)) => usage.add(node.name(), found),
                Ok(Err(error)) => {
                    tracing::debug!(%plane, node = node.name(), error, "a kubelet gives no metrics")
                }
                Err(_) => drop(usage.silent.insert(node.name().to_owned(), Instant::now())),
            }
        }
        Ok(usage)
    }

    /// Asks the kubelet of a node, for as long as it has to answer.
    fn question(
        self: &Arc<Self>,
        plane: &PlaneId,
        node: Arc<Entry>,
        pods: NodePods,
        room: Room,
    ) -> BoxFuture<'static, (Arc<Entry>, Answer)> {
        let (this, plane) = (self.clone(), plane.clone());
        async move {
            let answer = timeout(ANSWER, this.ask(&plane, &node, pods, &room)).await;
            (node, answer)
        }
        .boxed()
    }

    /// Asks the kubelet of a node.
    async fn ask(
        &self,
        plane: &PlaneId,
        node: &Entry,
        pods: NodePods,
        room: &Room,
    ) -> std::result::Result<NodeUsage, String> {
        let kubelets = self.kubelets.as_ref().ok_or("this server reaches no nodes")?;
        let (host, port) = kubelet_address(&node.value()).map_err(|status| status.message)?;
        let ip = host.parse().map_err(|_| "its address is none")?;
        let address = SocketAddr::new(ip, u16::try_from(port).map_err(|_| "its port is none")?);
        let kubelet = kubelets.reach(plane, address).map_err(|status| status.message)?;
        let (bytes, held) = fetch(kubelet, room).await?;
        let usage = heavy(bytes.len(), || read(&bytes, pods, Timestamp::now()));
        drop(held);
        usage.map_err(|error| error.to_string())
    }
}

/// The body of a kubelet's summary, with what it takes of the room for bodies.
async fn fetch(
    kubelet: Kubelet,
    room: &Room,
) -> std::result::Result<(Vec<u8>, Vec<OwnedSemaphorePermit>), String> {
    let Kubelet { outbound, destination, prefix, permit } = kubelet;
    let request = Request::get(format!("{prefix}{PATH}")).header(header::HOST, destination.host.authority());
    let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
    let request = request.body(body).map_err(|error| error.to_string())?;
    let response = outbound.send(&destination, request).await.map_err(|error| error.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("it answers with {}", response.status()));
    }
    let (mut bytes, mut held) = (Vec::new(), Vec::new());
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        if bytes.len() + data.len() > LARGEST {
            return Err(format!("its answer has more than {LARGEST} bytes"));
        }
        room.take(data.len(), &mut held)?;
        bytes.extend_from_slice(&data);
    }
    drop(permit);
    Ok((bytes, held))
}

impl Room {
    /// Takes room for so many bytes, which is held with what is held already.
    fn take(&self, bytes: usize, held: &mut Vec<OwnedSemaphorePermit>) -> std::result::Result<(), String> {
        let bytes = u32::try_from(bytes).map_err(|_| "too much at once")?;
        for (at, room) in self.0.iter().enumerate() {
            let more = room.clone().try_acquire_many_owned(bytes);
            let more = more.map_err(|_| "too many bytes of kubelets are being read")?;
            match held.get_mut(at) {
                Some(held) => held.merge(more),
                None => held.push(more),
            }
        }
        Ok(())
    }
}

impl PlaneUsage {
    fn add(&mut self, node: &str, found: NodeUsage) {
        self.nodes.extend(found.node.map(|usage| (node.to_owned(), usage)));
        self.pods.extend(found.pods);
    }

    /// The metrics of a node or Pod; `None` where they are not known.
    fn object(&self, entry: &Entry, is_pod: bool, now: Timestamp) -> Option<Value> {
        if !is_pod {
            return Some(node_metrics(&entry.json(), self.nodes.get(entry.name())?, now));
        }
        let known = self.pods.get(&(entry.namespace().to_owned(), entry.name().to_owned()))?;
        // Another one of the same name may have come in between.
        (known.uid == entry.uid()).then(|| pod_metrics(&entry.json(), &known.containers, now))
    }
}

fn size(entries: &[Arc<Entry>]) -> usize {
    entries.iter().map(|entry| entry.cost()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_share_the_room_of_their_plane_and_of_all() {
        let all = Arc::new(Semaphore::new(100));
        let room = |own| Room([Arc::new(Semaphore::new(own)), all.clone()]);
        let (a, b, mut held) = (room(80), room(80), Vec::new());
        a.take(50, &mut held).unwrap();
        a.take(30, &mut held).unwrap();
        assert!(a.take(1, &mut held).is_err(), "the plane's share is taken");
        assert!(b.take(21, &mut Vec::new()).is_err(), "that of all is taken");
        b.take(20, &mut Vec::new()).unwrap();
        drop(held);
        b.take(80, &mut Vec::new()).unwrap();
    }
}
