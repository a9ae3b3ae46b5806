//! Who depends on whom.
//!
//! Only objects with owner references are kept; owners are known by their uid alone. Whether an owner is there is
//! asked of the server when it matters, so an object that nobody depends on and that depends on nobody costs nothing.

use crate::object::items;
use freehold_client::Resource;
use freehold_controller_manager_runtime::{QueueKey, Seen};
use freehold_machinery::{PlaneId, Value, meta};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Finalizer of an object whose dependents go first.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object whose dependents stay.
pub(super) const ORPHAN: &str = "orphan";
/// How long an answer about an owner is believed without an event.
const BELIEF: Duration = Duration::from_secs(60);
/// Answers kept at once.
const MAX_ANSWERS: usize = 20_000;

/// An object of any type: one allocation, however many hold it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Item(Arc<Place>);

/// Where an object is.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) plane: PlaneId,
    pub(super) resource: Arc<Resource>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl std::ops::Deref for Item {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} {}/{}", self.plane, self.resource, self.namespace, self.name)
    }
}

impl QueueKey for Item {
    fn plane(&self) -> &PlaneId {
        &self.plane
    }
}

impl Item {
    pub(super) fn new(plane: PlaneId, resource: Arc<Resource>, namespace: Box<str>, name: Box<str>) -> Self {
        Self(Arc::new(Place { plane, resource, namespace, name }))
    }

    /// The namespace as a request wants it.
    pub(super) fn ns(&self) -> Option<&str> {
        Some(&*self.namespace).filter(|n| !n.is_empty())
    }
}

/// An owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) blocks: bool,
}

/// How an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// It is there, or it can't be told that it is not.
    Present,
    /// It is there and waits for its dependents to go.
    Waiting,
    /// It is not there.
    Absent,
}

type Uid = (PlaneId, String);

#[derive(Debug)]
struct Node {
    uid: Box<str>,
    owners: Arc<[Owner]>,
    deleting: bool,
}

/// What depends on an owner.
struct Family {
    members: HashSet<Item>,
    /// The owners as one of them has them: most have the same, and share it.
    owners: Arc<[Owner]>,
}

/// Objects that are being deleted and hold one of this controller's finalizers, by their uids and by where they are.
#[derive(Default)]
struct Finalizing {
    by_uid: HashMap<Uid, Item>,
    uids: HashMap<Item, String>,
}

impl Finalizing {
    fn insert(&mut self, uid: Uid, item: Item) {
        if let Some(before) = self.uids.insert(item.clone(), uid.1.clone())
            && before != uid.1
        {
            self.by_uid.remove(&(uid.0.clone(), before));
        }
        self.by_uid.insert(uid, item);
    }

    fn remove(&mut self, uid: &Uid) {
        if let Some(item) = self.by_uid.remove(uid) {
            self.uids.remove(&item);
        }
    }
}

/// Who depends on whom, over all planes.
#[derive(Default)]
pub(super) struct Graph {
    nodes: HashMap<Item, Box<Node>>,
    dependents: HashMap<Uid, Family>,
    finalizing: Finalizing,
    answers: HashMap<Uid, (OwnerState, Instant)>,
}

/// The owners of an object.
pub(super) fn owners(object: &Value) -> Vec<Owner> {
    let field = |reference: &Value, name: &str| reference[name].as_str().unwrap_or_default().to_owned();
    let one = |reference: &Value| Owner {
        api_version: field(reference, "apiVersion"),
        kind: field(reference, "kind"),
        name: field(reference, "name"),
        uid: field(reference, "uid"),
        blocks: reference["blockOwnerDeletion"] == true,
    };
    items(object, "/metadata/ownerReferences").iter().map(one).filter(|owner| !owner.uid.is_empty()).collect()
}

/// Whether an object waits for this controller.
pub(super) fn is_finalizing(object: &Value) -> bool {
    meta::is_deleting(object) && meta::finalizers(object).iter().any(|f| matches!(*f, FOREGROUND | ORPHAN))
}

impl Graph {
    /// Takes in what the server said of an object and gives the objects to be looked at for it.
    pub(super) fn observe(&mut self, item: &Item, object: &Value, seen: Seen) -> Vec<Item> {
        let uid = (item.plane.clone(), meta::uid(object).to_owned());
        match seen {
            Seen::There => self.observe_presence(item, object, uid),
            Seen::Gone => self.observe_absence(item, uid),
        }
    }

    fn observe_presence(&mut self, item: &Item, object: &Value, uid: Uid) -> Vec<Item> {
        let owners = owners(object);
        let changed =
            self.nodes.get(item).map_or(!owners.is_empty(), |n| *n.owners != *owners || *n.uid != *uid.1);
        let mut affected = Vec::new();
        if changed {
            // Owners that wait may wait for one less.
            let waiting =
                |owner: Owner| self.finalizing.by_uid.get(&(item.plane.clone(), owner.uid)).cloned();
            affected.extend(self.owners_of(item).into_iter().filter_map(waiting));
            self.unlink(item);
            if !owners.is_empty() {
                self.link(item, uid.1.clone(), owners);
            }
        }
        if let Some(node) = self.nodes.get_mut(item) {
            node.deleting = meta::is_deleting(object);
        }
        let finalizing = is_finalizing(object);
        if finalizing {
            self.answers.remove(&uid);
            self.finalizing.insert(uid, item.clone());
        } else {
            self.finalizing.remove(&uid);
        }
        affected.extend((changed || finalizing).then(|| item.clone()));
        affected
    }

    /// Takes in that a read did not find what an object was when it was sent, and gives the objects to be looked at for it:
    /// the event that says so comes later, when nothing of the object is known any more.
    pub(super) fn missed(&mut self, item: &Item, uid: Option<String>) -> Vec<Item> {
        match self.uid_of(item) == uid {
            true => uid.map_or_else(Vec::new, |uid| self.observe_absence(item, (item.plane.clone(), uid))),
            // Another one of its name came meanwhile.
            false => Vec::new(),
        }
    }

    fn observe_absence(&mut self, item: &Item, uid: Uid) -> Vec<Item> {
        let mut affected: Vec<Item> = self.members(&uid).cloned().collect();
        for owner in self.unlink(item).iter() {
            affected.extend(self.finalizing.by_uid.get(&(item.plane.clone(), owner.uid.clone())).cloned());
        }
        self.finalizing.remove(&uid);
        if !affected.is_empty() {
            self.answer(uid.0, uid.1, OwnerState::Absent);
        }
        affected
    }

    fn link(&mut self, item: &Item, uid: String, owners: Vec<Owner>) {
        let family = owners.first().and_then(|o| self.dependents.get(&(item.plane.clone(), o.uid.clone())));
        let owners = match family {
            Some(family) if *family.owners == *owners => family.owners.clone(),
            _ => owners.into(),
        };
        for owner in owners.iter() {
            let uid = (item.plane.clone(), owner.uid.clone());
            let new = || Family { members: HashSet::new(), owners: owners.clone() };
            self.dependents.entry(uid).or_insert_with(new).members.insert(item.clone());
        }
        let node = Node { uid: uid.into(), owners, deleting: false };
        self.nodes.insert(item.clone(), Box::new(node));
    }

    /// What depends on the owner of a uid.
    fn members(&self, uid: &Uid) -> impl Iterator<Item = &Item> {
        self.dependents.get(uid).into_iter().flat_map(|family| &family.members)
    }

    /// Forgets an object and gives the owners that it had.
    pub(super) fn unlink(&mut self, item: &Item) -> Arc<[Owner]> {
        let Some(node) = self.nodes.remove(item) else { return Arc::default() };
        for owner in node.owners.iter() {
            let uid = (item.plane.clone(), owner.uid.clone());
            if let Some(family) = self.dependents.get_mut(&uid) {
                family.members.remove(item);
                if family.members.is_empty() {
                    self.dependents.remove(&uid);
                    self.answers.remove(&uid);
                }
            }
        }
        node.owners
    }

    /// The uid of an object with owners, as last seen.
    pub(super) fn uid_of(&self, item: &Item) -> Option<String> {
        self.nodes.get(item).map(|node| node.uid.to_string())
    }

    /// The owners of an object, as last seen.
    pub(super) fn owners_of(&self, item: &Item) -> Vec<Owner> {
        self.nodes.get(item).map(|node| node.owners.to_vec()).unwrap_or_default()
    }

    /// Whether an object was last seen waiting for this controller.
    pub(super) fn finalizes(&self, item: &Item) -> bool {
        self.finalizing.uids.contains_key(item)
    }

    /// What depends on an object, those that block its deletion first, and how many of them that are.
    pub(super) fn dependents_of(&self, plane: &PlaneId, uid: &str) -> Dependents {
        let mut found = Dependents::default();
        for item in self.members(&(plane.clone(), uid.to_owned())) {
            let Some(node) = self.nodes.get(item) else { continue };
            found.blocking += usize::from(node.owners.iter().any(|o| o.uid == uid && o.blocks));
            found.all.push(item.clone());
            if !node.deleting {
                found.staying.push(item.clone());
            }
        }
        found
    }

    /// What is known of an owner, if that is recent.
    pub(super) fn known(&self, plane: &PlaneId, uid: &str) -> Option<OwnerState> {
        let (state, at) = self.answers.get(&(plane.clone(), uid.to_owned()))?;
        // A uid never comes back.
        (*state == OwnerState::Absent || at.elapsed() < BELIEF).then_some(*state)
    }

    /// Notes what a read of an owner found, and gives what holds. What an event has told since the read was sent is newer:
    /// an owner that waits or is gone is never just there again.
    pub(super) fn learn(&mut self, plane: PlaneId, uid: String, read: OwnerState) -> OwnerState {
        let told = self.known(&plane, &uid).filter(|told| *told != OwnerState::Present);
        let holds = match (told, read) {
            (Some(OwnerState::Absent), _) | (_, OwnerState::Absent) => OwnerState::Absent,
            (Some(told), _) => told,
            (None, read) => read,
        };
        self.answer(plane, uid, holds);
        holds
    }

    /// Notes how an owner is.
    pub(super) fn answer(&mut self, plane: PlaneId, uid: String, state: OwnerState) {
        if self.answers.len() >= MAX_ANSWERS {
            self.answers.clear();
        }
        self.answers.insert((plane, uid), (state, Instant::now()));
    }

    /// Every object with owners, those of an owner one after the other.
    pub(super) fn items(&self) -> Vec<Item> {
        self.dependents.values().flat_map(|family| &family.members).cloned().collect()
    }
}

/// What depends on an object.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    /// All of them.
    pub(super) all: Vec<Item>,
    /// Those that are not being deleted.
    pub(super) staying: Vec<Item>,
    /// How many of all hold the object back.
    pub(super) blocking: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(name: &str) -> Item {
        let resource = Arc::new(Resource::namespaced("", "v1", "pods"));
        Item::new(PlaneId::core(), resource, "n".into(), name.into())
    }

    fn object(uid: &str, owners: &[&str]) -> Value {
        let references: Vec<Value> = owners
            .iter()
            .map(|o| json!({"uid": o, "blockOwnerDeletion": true, "kind": "K", "name": o}))
            .collect();
        json!({"metadata": {"uid": uid, "ownerReferences": references}})
    }

    /// An owner that waits for its dependents to go.
    fn waiting(uid: &str) -> Value {
        let mut owner = object(uid, &[]);
        owner["metadata"]["deletionTimestamp"] = "x".into();
        owner["metadata"]["finalizers"] = json!([FOREGROUND]);
        owner
    }

    #[test]
    fn a_read_from_before_an_event_does_not_hide_what_it_told() {
        let (plane, mut graph) = (PlaneId::core(), Graph::default());
        let learn = |graph: &mut Graph, read| graph.learn(plane.clone(), "o".into(), read);
        assert_eq!(learn(&mut graph, OwnerState::Present), OwnerState::Present);
        // The owner begins to wait, which its dependents are told; one of them had asked for it before.
        graph.answer(plane.clone(), "o".into(), OwnerState::Waiting);
        assert_eq!(learn(&mut graph, OwnerState::Present), OwnerState::Waiting);
        assert_eq!(graph.known(&plane, "o"), Some(OwnerState::Waiting));
        graph.observe(&item("p"), &object("p", &["o"]), Seen::There);
        graph.observe(&item("o"), &object("o", &[]), Seen::Gone);
        for late in [OwnerState::Present, OwnerState::Waiting] {
            assert_eq!(learn(&mut graph, late), OwnerState::Absent);
            assert_eq!(graph.known(&plane, "o"), Some(OwnerState::Absent));
        }
    }

    #[test]
    fn dependents_are_looked_at_when_they_come_and_when_their_owner_goes() {
        let mut graph = Graph::default();
        assert_eq!(graph.observe(&item("a"), &object("1", &["0"]), Seen::There), [item("a")]);
        assert!(graph.observe(&item("a"), &object("1", &["0"]), Seen::There).is_empty(), "nothing changed");
        assert!(graph.observe(&item("lonely"), &object("2", &[]), Seen::There).is_empty());
        assert_eq!(graph.observe(&item("owner"), &object("0", &[]), Seen::Gone), [item("a")]);
        assert_eq!(graph.known(&PlaneId::core(), "0"), Some(OwnerState::Absent));
    }

    #[test]
    fn an_owner_that_waits_is_looked_at_when_a_dependent_goes() {
        let mut graph = Graph::default();
        graph.observe(&item("a"), &object("1", &["0"]), Seen::There);
        assert_eq!(graph.observe(&item("owner"), &waiting("0"), Seen::There), [item("owner")]);
        assert!(graph.finalizes(&item("owner")));
        assert_eq!(graph.dependents_of(&PlaneId::core(), "0").blocking, 1);
        assert_eq!(graph.observe(&item("a"), &object("1", &["0"]), Seen::Gone), [item("owner")]);
        assert_eq!(graph.dependents_of(&PlaneId::core(), "0").all, []);
    }

    #[test]
    fn an_owner_that_waits_is_looked_at_when_a_read_misses_a_dependent_before_the_watch_does() {
        let mut graph = Graph::default();
        graph.observe(&item("a"), &object("1", &["0"]), Seen::There);
        graph.observe(&item("owner"), &waiting("0"), Seen::There);
        let before = graph.uid_of(&item("a"));
        assert_eq!(graph.missed(&item("a"), before.clone()), [item("owner")]);
        assert_eq!(graph.dependents_of(&PlaneId::core(), "0").all, []);
        assert!(graph.missed(&item("a"), graph.uid_of(&item("a"))).is_empty(), "it was told once");
        // Another one of its name that came while the read was under way stays known.
        graph.observe(&item("a"), &object("2", &["0"]), Seen::There);
        assert!(graph.missed(&item("a"), before).is_empty());
        assert_eq!(graph.dependents_of(&PlaneId::core(), "0").all, [item("a")]);
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let mut graph = Graph::default();
        for name in ["a", "b"] {
            graph.observe(&item(name), &object(name, &["0", "1"]), Seen::There);
            graph.observe(&item(name), &object(name, &["1"]), Seen::There);
            graph.observe(&item(name), &object(name, &["1"]), Seen::Gone);
        }
        graph.observe(&item("owner"), &waiting("0"), Seen::There);
        graph.observe(&item("owner"), &waiting("2"), Seen::There);
        assert_eq!(graph.finalizing.by_uid.len(), 1, "another one of its name");
        graph.observe(&item("owner"), &waiting("2"), Seen::Gone);
        assert!(graph.finalizing.by_uid.is_empty() && !graph.finalizes(&item("owner")));
        assert!(graph.nodes.is_empty() && graph.dependents.is_empty());
    }

    #[test]
    fn the_same_uid_in_another_plane_is_another_owner() {
        let mut graph = Graph::default();
        let resource = Arc::new(Resource::namespaced("", "v1", "pods"));
        let elsewhere = Item::new("p".parse().unwrap(), resource, "n".into(), "a".into());
        graph.observe(&elsewhere, &object("1", &["0"]), Seen::There);
        assert!(graph.observe(&item("owner"), &object("0", &[]), Seen::Gone).is_empty());
    }
}
