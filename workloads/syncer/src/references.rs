//! Which ConfigMaps, Secrets and claims Pods refer to. Of all others of all projects nothing is kept: a watch over all
//! planes looks here whether somebody refers to what changed.

use crate::kinds::{CLAIMS, CONFIG_MAPS, Kind, NAMESPACES, SECRETS};
use crate::world::{Object, World};
use freehold_machinery::PlaneId;
use freehold_runtime::{Informer, Interest, Key, Seen};
use freehold_workloads_decide::pod::Referent;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Who refers to what.
#[derive(Default)]
pub(crate) struct References {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_pod: HashMap<Key, Vec<Object>>,
    by_object: HashMap<Object, HashSet<Key>>,
}

pub(crate) fn kind_of(referent: Referent) -> Kind {
    match referent {
        Referent::ConfigMap => Kind::ConfigMap,
        Referent::Secret => Kind::Secret,
        Referent::Claim => Kind::Claim,
    }
}

impl References {
    /// Replaces what a Pod refers to, and gives what nobody refers to any more.
    pub(crate) fn replace(&self, pod: &Key, references: &BTreeSet<(Referent, String)>) -> Vec<Object> {
        let objects = references.iter().map(|(referent, name)| Object {
            kind: kind_of(*referent),
            key: Key::new(pod.plane.clone(), &pod.namespace, name),
        });
        let new: Vec<Object> = objects.collect();
        let mut state = self.state.lock();
        for object in &new {
            state.by_object.entry(object.clone()).or_default().insert(pod.clone());
        }
        let old = match new.is_empty() {
            true => state.by_pod.remove(pod),
            false => state.by_pod.insert(pod.clone(), new.clone()),
        };
        let gone = old.into_iter().flatten().filter(|object| !new.contains(object));
        gone.filter(|object| state.release(object, pod)).collect()
    }

    /// Whether a Pod refers to an object.
    pub(crate) fn has(&self, object: &Object) -> bool {
        self.state.lock().by_object.contains_key(object)
    }

    /// Forgets a plane.
    pub(crate) fn forget(&self, plane: &PlaneId) {
        let mut state = self.state.lock();
        state.by_pod.retain(|key, _| key.plane != *plane);
        state.by_object.retain(|object, _| object.key.plane != *plane);
    }
}

impl State {
    /// Whether nobody else refers to an object.
    fn release(&mut self, object: &Object, pod: &Key) -> bool {
        let Some(pods) = self.by_object.get_mut(object) else { return false };
        pods.remove(pod);
        let is_free = pods.is_empty();
        if is_free {
            self.by_object.remove(object);
        }
        is_free
    }
}

/// Starts the watches over all planes of what Pods may refer to. They keep nothing: what is missed while a watch is broken,
/// the next resync of the Pods finds.
pub(crate) fn watch(world: &Arc<World>, tasks: &mut JoinSet<()>, token: &CancellationToken) {
    for (kind, resource) in [(Kind::ConfigMap, CONFIG_MAPS), (Kind::Secret, SECRETS), (Kind::Claim, CLAIMS)] {
        let interest = Interest::projected(resource, |_| None::<()>).from_now();
        let mut informer = Informer::new(&world.planes, interest);
        let world = Arc::downgrade(world);
        informer.on_object(move |key, _, _| {
            let object = Object { kind, key: key.clone() };
            if let Some(world) = world.upgrade().filter(|world| world.references.has(&object)) {
                world.queues.objects.add(object);
            }
        });
        tasks.spawn(informer.run(token.clone()));
    }
    let interest = Interest::projected(NAMESPACES, |_| None::<()>).metadata_only().from_now();
    let mut informer = Informer::new(&world.planes, interest);
    let world = Arc::downgrade(world);
    informer.on_object(move |key, _, seen| {
        if let Some(world) = world.upgrade().filter(|_| seen == Seen::Gone) {
            world.queues.objects.add(Object { kind: Kind::Namespace, key: key.clone() });
        }
    });
    tasks.spawn(informer.run(token.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_free_when_the_last_pod_lets_it_go() {
        let references = References::default();
        let pod = |name: &str| Key::new("p".parse().unwrap(), "n", name);
        let to = |names: &[&str]| names.iter().map(|n| (Referent::Secret, (*n).to_owned())).collect();
        let object = |name: &str| Object { kind: Kind::Secret, key: pod(name) };
        assert!(references.replace(&pod("a"), &to(&["x", "y"])).is_empty());
        assert!(references.replace(&pod("b"), &to(&["y"])).is_empty());
        assert_eq!(references.replace(&pod("a"), &to(&["z"])), [object("x")]);
        assert!(references.has(&object("y")) && !references.has(&object("x")));
        assert_eq!(references.replace(&pod("b"), &to(&[])), [object("y")]);
        references.forget(&"p".parse().unwrap());
        assert!(!references.has(&object("z")));
    }
}
