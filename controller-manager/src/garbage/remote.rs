//! Types that other servers serve in a plane (`APIService`): each is watched in its own plane, as long as its server
//! answers, so that owners and dependents may be there too.

use super::graph::{Graph, Item};
use super::types::{nothing_kept, watch_into};
use freehold_client::{Client, Resource};
use freehold_controllers_context::Context;
use freehold_controllers_context::discovery::group_version;
use freehold_controllers_context::kinds::API_SERVICES;
use freehold_controllers_context::object::{int, text};
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::{Informer, Interest, Planes, Queue, Store, conditions};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long to wait before a server's types are asked for again after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// Groups that are watched at once, over all planes.
const MAX_GROUPS: usize = 4_096;

/// A version of a group that a server answers for.
#[derive(Clone, Debug, PartialEq)]
struct Remote {
    group: String,
    version: String,
    priority: i64,
}

impl Remote {
    /// From an `APIService`; `None` where no server stands behind it that answers.
    fn of(object: Value) -> Option<Self> {
        let answers = conditions::is_true(&object["status"]["conditions"], "Available");
        (answers && object["spec"]["service"].is_object()).then(|| Self {
            group: text(&object, "/spec/group").to_owned(),
            version: text(&object, "/spec/version").to_owned(),
            priority: int(&object, "/spec/versionPriority").unwrap_or(0),
        })
    }
}

/// The version to watch of each group of each plane: the one of the highest priority.
fn chosen(
    found: impl IntoIterator<Item = (PlaneId, Arc<Remote>)>,
) -> BTreeMap<(PlaneId, String), Arc<Remote>> {
    let mut chosen: BTreeMap<(PlaneId, String), Arc<Remote>> = BTreeMap::new();
    for (plane, remote) in found {
        let best = chosen.entry((plane, remote.group.clone())).or_insert_with(|| remote.clone());
        if (remote.priority, &remote.version) > (best.priority, &best.version) {
            *best = remote;
        }
    }
    chosen
}

/// A group that is watched in a plane: in which version, and what ends it.
struct Running {
    version: String,
    token: CancellationToken,
}

/// Watches types of other servers as these come and go.
pub(super) struct Remotes {
    planes: Planes,
    graph: Arc<Mutex<Graph>>,
    queue: Arc<Queue<Item>>,
    token: CancellationToken,
    tasks: TaskTracker,
    services: Store<Remote>,
    changed: Arc<Notify>,
    running: HashMap<(PlaneId, String), Running>,
}

impl Remotes {
    /// Begins to watch.
    pub(super) fn start(context: &Context, graph: Arc<Mutex<Graph>>, queue: Arc<Queue<Item>>) {
        let mut informer = Informer::new(&context.planes, Interest::projected(API_SERVICES, Remote::of));
        let changed = Arc::new(Notify::new());
        let on_services = changed.clone();
        informer.on_change(move |_| on_services.notify_one());
        let remotes = Self {
            planes: context.planes.clone(),
            graph,
            queue,
            token: context.token.clone(),
            tasks: context.tasks.clone(),
            services: context.run_informer(informer),
            changed,
            running: HashMap::new(),
        };
        context.tasks.spawn(remotes.run());
    }

    async fn run(mut self) {
        let token = self.token.clone();
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                () = self.changed.notified() => self.follow(),
            }
        }
    }

    /// Starts and stops watches so that they are those wanted.
    fn follow(&mut self) {
        let found = self.services.keys().into_iter().filter_map(|key| {
            let remote = self.services.get(&key)?;
            Some((key.plane, remote))
        });
        let wanted = chosen(found);
        self.running.retain(|at, running| {
            let stays = wanted.get(at).is_some_and(|remote| remote.version == running.version);
            if !stays {
                running.token.cancel();
            }
            stays
        });
        for ((plane, group), remote) in wanted {
            if self.running.len() >= MAX_GROUPS {
                tracing::warn!(MAX_GROUPS, "too many groups of other servers are there to watch all of them");
                return;
            }
            let at = (plane.clone(), group);
            if self.running.contains_key(&at) {
                continue;
            }
            let token = self.token.child_token();
            let version = remote.version.clone();
            self.running.insert(at, Running { version, token: token.clone() });
            let watch =
                watch_group(self.planes.within(&plane), remote, self.graph.clone(), self.queue.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = watch => {}
                }
            });
        }
    }
}

/// Watches each type of a group, until it is dropped.
async fn watch_group(planes: Planes, remote: Arc<Remote>, graph: Arc<Mutex<Graph>>, queue: Arc<Queue<Item>>) {
    let types = types(&planes.everywhere(), &remote).await;
    let watches = types.into_iter().map(|resource| {
        let interest = nothing_kept(&resource);
        let (informer, _) = watch_into(&planes, resource, interest, &graph, &queue);
        // It ends when it is dropped.
        informer.run(CancellationToken::new())
    });
    futures_util::future::join_all(watches).await;
}

/// The types of a group whose objects can be found, followed and removed.
async fn types(client: &Client, remote: &Remote) -> Vec<Resource> {
    let version = format!("{}/{}", remote.group, remote.version);
    loop {
        match group_version(client, &version).await {
            Ok(types) => {
                let usable = types.into_iter().filter(|ty| ty.is_deletable() && ty.has("watch"));
                return usable.map(|ty| ty.resource).collect();
            }
            Err(error) => tracing::debug!(version, %error, "types not read yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(group: &str, version: &str, priority: i64, available: &str) -> Value {
        json!({
            "spec": {"group": group, "version": version, "versionPriority": priority, "service": {"name": "a"}},
            "status": {"conditions": [{"type": "Available", "status": available}]},
        })
    }

    #[test]
    fn a_group_is_watched_in_its_first_version_that_a_server_answers_for() {
        let plane = PlaneId::core();
        let of = |version, priority, available| {
            Remote::of(service("g.io", version, priority, available)).map(|r| (plane.clone(), Arc::new(r)))
        };
        let found = [of("v1", 10, "True"), of("v2", 20, "True"), of("v3", 30, "False")];
        let chosen = chosen(found.into_iter().flatten());
        assert_eq!(chosen.len(), 1);
        assert_eq!(chosen[&(plane, "g.io".to_owned())].version, "v2");
        let mut local = service("g.io", "v1", 1, "True");
        local["spec"]["service"] = Value::Null;
        assert_eq!(Remote::of(local), None, "this server answers for it");
    }
}
