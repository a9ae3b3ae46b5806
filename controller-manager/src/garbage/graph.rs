//! Who depends on whom.
//!
//! Only objects with owner references are kept; owners are known by their uid alone. Whether an owner is there is
//! asked of the server when it matters, so an object that nobody depends on and that depends on nobody costs nothing.

use freehold_client::Resource;
use freehold_controllers_context::object::items;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{QueueKey, Seen};
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

    /// Whether another one is in the same place, whatever version it is read in.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        let place = |item: &Self| (item.resource.group.clone(), item.resource.plural.clone());
        self.plane == other.plane
            && self.name == other.name
            && self.namespace == other.namespace
            && place(self) == place(other)
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
    answers: HashMap<Uid, Answer>,
}

/// What is known of an owner: of the object of this uid that is, or was, in this place. A reference that has the uid and
/// names another place is to nothing.
struct Answer {
    owner: Item,
    state: OwnerState,
    at: Instant,
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
            self.answer(item.clone(), uid.1, OwnerState::Absent);
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

    /// What depends on an object, as far as `bond` says that it can.
    pub(super) fn dependents_of(
        &self,
        plane: &PlaneId,
        uid: &str,
        bond: impl Fn(&Item) -> Bond,
    ) -> Dependents {
        let mut found = Dependents::default();
        for item in self.members(&(plane.clone(), uid.to_owned())) {
            let (Some(node), bond) = (self.nodes.get(item), bond(item)) else { continue };
            if bond == Bond::None {
                continue;
            }
            let blocks = bond == Bond::Holds && node.owners.iter().any(|o| o.uid == uid && o.blocks);
            found.blocking += usize::from(blocks);
            found.all.push(item.clone());
            if !node.deleting {
                found.staying.push(item.clone());
            }
        }
        found
    }

    /// What is known of an owner by its place and uid, if that is recent.
    pub(super) fn known(&self, owner: &Item, uid: &str) -> Option<OwnerState> {
        let answer = self.answers.get(&(owner.plane.clone(), uid.to_owned()))?;
        // A uid never comes back.
        let is_recent = answer.state == OwnerState::Absent || answer.at.elapsed() < BELIEF;
        (is_recent && answer.owner.is_at(owner)).then_some(answer.state)
    }

    /// Notes what a read of an owner found, and gives what holds. What an event has told since the read was sent is newer:
    /// an owner that waits or is gone is never just there again.
    pub(super) fn learn(&mut self, owner: &Item, uid: String, read: OwnerState) -> OwnerState {
        let told = self.known(owner, &uid).filter(|told| *told != OwnerState::Present);
        let holds = match (told, read) {
            (Some(OwnerState::Absent), _) | (_, OwnerState::Absent) => OwnerState::Absent,
            (Some(told), _) => told,
            (None, read) => read,
        };
        let elsewhere = |answer: &Answer| !answer.owner.is_at(owner);
        let other = self.answers.get(&(owner.plane.clone(), uid.clone())).is_some_and(elsewhere);
        // That nothing of a uid is in one place says nothing of another place.
        if !other || holds != OwnerState::Absent {
            self.answer(owner.clone(), uid, holds);
        }
        holds
    }

    /// Notes how an owner is.
    pub(super) fn answer(&mut self, owner: Item, uid: String, state: OwnerState) {
        if self.answers.len() >= MAX_ANSWERS {
            self.answers.clear();
        }
        let at = Instant::now();
        self.answers.insert((owner.plane.clone(), uid), Answer { owner, state, at });
    }

    /// Every object with owners, those of an owner one after the other.
    pub(super) fn items(&self) -> Vec<Item> {
        self.dependents.values().flat_map(|family| &family.members).cloned().collect()
    }
}

/// How an object can depend on another one that it names as its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bond {
    /// Not at all.
    None,
    /// It goes with it.
    Follows,
    /// It goes with it, and can hold its deletion back.
    Holds,
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
        let (owner, mut graph) = (item("o"), Graph::default());
        let learn = |graph: &mut Graph, read| graph.learn(&owner, "o".into(), read);
        assert_eq!(learn(&mut graph, OwnerState::Present), OwnerState::Present);
        // The owner begins to wait, which its dependents are told; one of them had asked for it before.
        graph.answer(owner.clone(), "o".into(), OwnerState::Waiting);
        assert_eq!(learn(&mut graph, OwnerState::Present), OwnerState::Waiting);
        assert_eq!(graph.known(&owner, "o"), Some(OwnerState::Waiting));
        graph.observe(&item("p"), &object("p", &["o"]), Seen::There);
        graph.observe(&item("o"), &object("o", &[]), Seen::Gone);
        for late in [OwnerState::Present, OwnerState::Waiting] {
            assert_eq!(learn(&mut graph, late), OwnerState::Absent);
            assert_eq!(graph.known(&owner, "o"), Some(OwnerState::Absent));
        }
    }

    #[test]
    fn dependents_are_looked_at_when_they_come_and_when_their_owner_goes() {
        let mut graph = Graph::default();
        assert_eq!(graph.observe(&item("a"), &object("1", &["0"]), Seen::There), [item("a")]);
        assert!(graph.observe(&item("a"), &object("1", &["0"]), Seen::There).is_empty(), "nothing changed");
        assert!(graph.observe(&item("lonely"), &object("2", &[]), Seen::There).is_empty());
        assert_eq!(graph.observe(&item("owner"), &object("0", &[]), Seen::Gone), [item("a")]);
        assert_eq!(graph.known(&item("owner"), "0"), Some(OwnerState::Absent));
    }

    #[test]
    fn an_owner_that_waits_is_looked_at_when_a_dependent_goes() {
        let mut graph = Graph::default();
        graph.observe(&item("a"), &object("1", &["0"]), Seen::There);
        assert_eq!(graph.observe(&item("owner"), &waiting("0"), Seen::There), [item("owner")]);
        assert!(graph.finalizes(&item("owner")));
        assert_eq!(graph.dependents_of(&PlaneId::core(), "0", |_| Bond::Holds).blocking, 1);
        assert_eq!(graph.observe(&item("a"), &object("1", &["0"]), Seen::Gone), [item("owner")]);
        assert_eq!(graph.dependents_of(&PlaneId::core(), "0", |_| Bond::Holds).all, []);
    }

    #[test]
    fn an_owner_that_waits_is_looked_at_when_a_read_misses_a_dependent_before_the_watch_does() {
        let mut graph = Graph::default();
        graph.observe(&item("a"), &object("1", &["0"]), Seen::There);
        graph.observe(&item("owner"), &waiting("0"), Seen::There);
        let before = graph.uid_of(&item("a"));
        assert_eq!(graph.missed(&item("a"), before.clone()), [item("owner")]);
        assert_eq!(graph.dependents_of(&PlaneId::core(), "0", |_| Bond::Holds).all, []);
        assert!(graph.missed(&item("a"), graph.uid_of(&item("a"))).is_empty(), "it was told once");
        // Another one of its name that came while the read was under way stays known.
        graph.observe(&item("a"), &object("2", &["0"]), Seen::There);
        assert!(graph.missed(&item("a"), before).is_empty());
        assert_eq!(graph.dependents_of(&PlaneId::core(), "0", |_| Bond::Holds).all, [item("a")]);
    }

    #[test]
    fn a_reference_with_a_uid_and_another_place_says_nothing_of_the_object() {
        let (owner, guess, mut graph) = (item("o"), item("guess"), Graph::default());
        graph.observe(&item("a"), &object("1", &["0"]), Seen::There);
        assert_eq!(graph.learn(&guess, "0".into(), OwnerState::Absent), OwnerState::Absent);
        assert_eq!(graph.known(&owner, "0"), None, "it is asked for");
        assert_eq!(graph.learn(&owner, "0".into(), OwnerState::Present), OwnerState::Present);
        assert_eq!(graph.learn(&guess, "0".into(), OwnerState::Absent), OwnerState::Absent);
        assert_eq!(graph.known(&owner, "0"), Some(OwnerState::Present));
        assert_eq!(graph.known(&guess, "0"), None);
    }

    #[test]
    fn dependents_without_a_bond_are_neither_waited_for_nor_taken_along() {
        let mut graph = Graph::default();
        graph.observe(&item("a"), &object("1", &["0"]), Seen::There);
        for (bond, expected) in [(Bond::None, (0, 0)), (Bond::Follows, (1, 0)), (Bond::Holds, (1, 1))] {
            let found = graph.dependents_of(&PlaneId::core(), "0", |_| bond);
            assert_eq!((found.all.len(), found.blocking), expected, "{bond:?}");
        }
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
