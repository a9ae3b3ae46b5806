//! The node authorizer of projects: graphs of planes whose nodes ask, kept up to date by the events of all planes.
//!
//! A plane without nodes has none: its events end at one lookup. A graph is made when a node first asks, and goes when
//! others are wanted or events were missed.

use crate::rights;
use freehold_apiserver_authz::{
    Attributes, Decision,
    node::{self, NodeGraph},
};
use freehold_apiserver_cache::{Cache, CacheEvent, EventKind, ListRequest};
use freehold_apiserver_planes::{Planes, Target};
use freehold_machinery::{PlaneId, Result, Value, meta};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use tokio::sync::OnceCell;

/// Graphs that are kept.
const KEPT: usize = 256;

/// Decides for nodes.
pub(crate) struct Nodes {
    cache: Arc<Cache>,
    graphs: RwLock<HashMap<PlaneId, Arc<PlaneNodes>>>,
    begun: Instant,
}

struct PlaneNodes {
    state: Mutex<State>,
    filled: OnceCell<()>,
    /// When it was asked last, in milliseconds.
    used: AtomicU64,
}

/// A graph, and while it is filled the changes that come in between.
#[derive(Default)]
struct State {
    graph: NodeGraph,
    pending: Option<Vec<Pending>>,
}

struct Pending {
    resource: &'static str,
    object: Value,
    is_gone: bool,
}

impl Nodes {
    /// Follows the events of all planes.
    pub(crate) fn start(cache: &Arc<Cache>) -> Arc<Self> {
        let nodes = Arc::new(Self { cache: cache.clone(), graphs: RwLock::default(), begun: Instant::now() });
        for (group, resource) in node::COLLECTIONS {
            let (seen, switched) = (Arc::downgrade(&nodes), Arc::downgrade(&nodes));
            cache.observe_everywhere(group, resource, move |event| observe(&seen, resource, event));
            cache.observe_switches(group, resource, move |event| observe(&switched, resource, event));
        }
        nodes
    }

    /// What the server itself allows: to nodes of a project what they need, and to all what its rules say.
    ///
    /// # Errors
    /// 503 where objects can't be read.
    pub(crate) async fn authorize(
        &self,
        planes: &Planes,
        target: &Target,
        attributes: &Attributes<'_>,
    ) -> Result<Decision> {
        let of_node = match target {
            Target::Local(plane) if !plane.is_core() => self.decide(plane, attributes).await?,
            _ => None,
        };
        let Some(of_node) = of_node else { return rights::decide(planes, target, attributes).await };
        if of_node.allowed {
            return Ok(of_node);
        }
        let decision = rights::decide(planes, target, attributes).await?;
        if decision.allowed {
            return Ok(decision);
        }
        let reasons = [of_node.reason, decision.reason].into_iter().filter(|reason| !reason.is_empty());
        Ok(Decision { reason: reasons.collect::<Vec<_>>().join("\n"), ..Decision::default() })
    }

    /// What the user may do in a plane as one of its nodes; `None` for who is none.
    ///
    /// # Errors
    /// 503 where the plane's objects can't be read.
    async fn decide(&self, plane: &PlaneId, asked: &Attributes<'_>) -> Result<Option<Decision>> {
        let Some(name) = node::node_of(asked.user) else { return Ok(None) };
        // Who is asked about in a review is of the plane that is asked. Others of that name are the platform's.
        if asked.user.plane.as_ref() != Some(plane) && !asked.user.is_subject {
            return Ok(None);
        }
        if !node::needs_graph(asked) {
            return Ok(Some(node::authorize(name, asked, &NodeGraph::default())));
        }
        let nodes = self.of(plane);
        if let Err(status) = nodes.filled.get_or_try_init(|| self.fill(plane, &nodes)).await {
            // What waits for the graph would wait for nothing.
            self.graphs.write().remove(plane);
            return Err(status);
        }
        nodes.used.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(0), Ordering::Relaxed);
        let state = nodes.state.lock();
        Ok(Some(node::authorize(name, asked, &state.graph)))
    }

    fn of(&self, plane: &PlaneId) -> Arc<PlaneNodes> {
        if let Some(nodes) = self.graphs.read().get(plane) {
            return nodes.clone();
        }
        let mut graphs = self.graphs.write();
        if graphs.len() >= KEPT
            && let Some(oldest) = graphs.iter().min_by_key(|(_, nodes)| nodes.used.load(Ordering::Relaxed))
        {
            let oldest = oldest.0.clone();
            graphs.remove(&oldest);
        }
        let new = || {
            let state = State { pending: Some(Vec::new()), ..State::default() };
            Arc::new(PlaneNodes {
                state: Mutex::new(state),
                filled: OnceCell::new(),
                used: AtomicU64::new(u64::MAX),
            })
        };
        graphs.entry(plane.clone()).or_insert_with(new).clone()
    }

    /// Reads the objects of a plane. What changes meanwhile waits, and comes after.
    async fn fill(&self, plane: &PlaneId, nodes: &PlaneNodes) -> Result<()> {
        let mut graph = NodeGraph::default();
        for (group, resource) in node::COLLECTIONS {
            let listed = self.cache.list(ListRequest { plane, group, resource, namespace: None }).await?;
            listed.objects.iter().for_each(|entry| put(&mut graph, resource, &entry.value(), false));
        }
        let mut state = nodes.state.lock();
        for change in state.pending.take().into_iter().flatten() {
            put(&mut graph, change.resource, &change.object, change.is_gone);
        }
        state.graph = graph;
        Ok(())
    }
}

fn put(graph: &mut NodeGraph, resource: &str, object: &Value, is_gone: bool) {
    if let Some((kind, said)) = node::said(resource, object) {
        graph.put((kind, meta::namespace(object), meta::name(object)), (!is_gone).then_some(&said));
    }
}

/// Keeps graphs up to date; where events were missed, all are made anew when they are asked for.
fn observe(nodes: &Weak<Nodes>, resource: &'static str, event: Option<&CacheEvent>) {
    let Some(nodes) = nodes.upgrade() else { return };
    let Some(event) = event else { return nodes.graphs.write().clear() };
    let Some(of_plane) = nodes.graphs.read().get(&event.plane).cloned() else { return };
    let Some(change) = event.change() else { return };
    let is_gone = change.kind == EventKind::Deleted;
    let object = change.entry.value();
    let mut state = of_plane.state.lock();
    match &mut state.pending {
        Some(pending) => pending.push(Pending { resource, object, is_gone }),
        None => put(&mut state.graph, resource, &object, is_gone),
    }
}
