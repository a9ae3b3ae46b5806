//! Taking in events of the store: changes of objects, and planes that are put above other layers.
//!
//! A plane's record lies in the plane's own range, so the feed learns of a switch in its place among the plane's other
//! changes, and it is by the record's revision that the plane's own keys from before are buried. The plane is dropped from
//! memory then, its watches end, and no watch begins from before: clients list again. Watches over all planes get events
//! that make the difference between what was and what is, for what they look at.

use crate::{
    Cache, CacheEvent, Entry, Stack, Switch,
    event::{self, Own},
    hub::Hub,
    layer::{collection, object_name},
    objects::Objects,
};
use freehold_apiserver_storage::{Event, Key, KeyRange, ObjectPath, Range, StoreError};
use freehold_machinery::PlaneId;
use std::{collections::HashMap, sync::Arc};

/// Keys that one read of what a plane had asks for.
const CHUNK: usize = 2_000;

/// A plane that was put above other layers.
struct Moved {
    plane: PlaneId,
    old: Arc<Stack>,
    new: Arc<Stack>,
    /// What it had of its own and of its snapshot, of the collections that somebody watches over all planes.
    before: HashMap<Box<str>, Objects>,
}

impl Cache {
    /// Takes in events of one or several revisions.
    pub(crate) async fn take_in(&self, events: Vec<Event>) -> Result<(), StoreError> {
        if !events.iter().any(|event| event.key.is_record()) {
            return self.take_objects(events).await;
        }
        let mut plain = Vec::new();
        for group in by_revision(events) {
            if group.iter().any(|event| event.key.is_record()) {
                self.take_objects(std::mem::take(&mut plain)).await?;
                self.switch(group).await?;
            } else {
                plain.extend(group);
            }
        }
        self.take_objects(plain).await
    }

    async fn take_objects(&self, events: Vec<Event>) -> Result<(), StoreError> {
        let Some(revision) = events.last().map(|event| event.revision) else { return Ok(()) };
        // What lies below planes that nobody reads here may have to be loaded, to tell what their events mean.
        let mut loaded: HashMap<PlaneId, Arc<Stack>> = HashMap::new();
        for event in &events {
            let Some((plane, _)) = event.key.split_plane() else { continue };
            if self.layers.known(&plane).is_none() && !loaded.contains_key(&plane) {
                loaded.insert(plane.clone(), self.layers.following(&plane).await?);
            }
        }
        let mut hub = self.hub.lock();
        for raw in events {
            self.publish(&mut hub, raw, |plane| {
                self.layers.known(plane).or_else(|| loaded.get(plane).cloned())
            });
        }
        self.advance(&mut hub, revision);
        Ok(())
    }

    fn publish(&self, hub: &mut Hub, raw: Event, stack: impl FnOnce(&PlaneId) -> Option<Arc<Stack>>) {
        let Some(event) = CacheEvent::new(raw, stack) else { return };
        let event = Arc::new(event);
        let slot = self.planes.read().get(&event.plane).cloned();
        if let Some(slot) = slot {
            slot.0.apply(&event);
        }
        self.census.lock().apply(&event);
        hub.publish(event);
    }

    /// Takes in the events of one revision, records among them.
    async fn switch(&self, events: Vec<Event>) -> Result<(), StoreError> {
        let Some(revision) = events.first().map(|event| event.revision) else { return Ok(()) };
        let (records, objects): (Vec<_>, Vec<_>) =
            events.into_iter().partition(|event| event.key.is_record());
        let (mut moved, mut classes) = (Vec::new(), Vec::new());
        for record in &records {
            let plane = record.key.split_plane().map(|(plane, _)| plane);
            let old = match plane.filter(|_| record.key.class_name().is_none()) {
                Some(plane) => Some(self.layers.following(&plane).await?),
                None => None,
            };
            match (self.layers.follow(record), old) {
                (Some(Switch::Plane(plane)), Some(old)) => {
                    let new = self.layers.following(&plane).await?;
                    moved.push(Moved { plane, old, new, before: HashMap::new() });
                }
                (Some(Switch::Class(class)), _) => classes.push(class),
                _ => {}
            }
        }
        let of_moved = |event: &Event| {
            let plane = event.key.split_plane().map(|(plane, _)| plane);
            plane.is_some_and(|plane| moved.iter().any(|moved| moved.plane == plane))
        };
        let (own, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(of_moved);
        let mut hub = loop {
            let watched = match moved.is_empty() {
                true => Vec::new(),
                false => self.hub.lock().watched_everywhere(),
            };
            for moved in &mut moved {
                self.read_before(moved, &watched, revision).await?;
            }
            let hub = self.hub.lock();
            let known = |wanted: Box<str>| moved.iter().all(|moved| moved.before.contains_key(&wanted));
            if hub.watched_everywhere().into_iter().all(known) {
                break hub;
            }
        };
        for moved in &mut moved {
            self.planes.write().remove(&moved.plane);
            hub.end(&moved.plane);
            tell(&mut hub, moved, &own, revision);
        }
        for raw in own {
            let moved = |plane: &PlaneId| moved.iter().find(|moved| moved.plane == *plane);
            if let Some(event) = CacheEvent::new(raw, |plane| Some(moved(plane)?.new.clone())) {
                self.census.lock().apply(&event);
            }
        }
        for class in &classes {
            self.planes.write().retain(|plane, _| {
                let stays = !self.layers.is_of_class(plane, class);
                if !stays {
                    hub.end(plane);
                }
                stays
            });
        }
        for raw in others {
            self.publish(&mut hub, raw, |plane| self.layers.known(plane));
        }
        self.advance(&mut hub, revision);
        Ok(())
    }
}

impl Cache {
    /// Reads what a plane had of some collections just before a revision.
    async fn read_before(
        &self,
        moved: &mut Moved,
        wanted: &[Box<str>],
        revision: u64,
    ) -> Result<(), StoreError> {
        for wanted in wanted {
            if moved.before.contains_key(wanted) {
                continue;
            }
            let mut before = moved.old.snapshot(&moved.plane, wanted);
            let (group, resource) = wanted.split_once('/').unwrap_or_default();
            let mut keys = KeyRange::resource(&moved.plane, group, resource, None);
            let prefix = keys.start.len();
            loop {
                let at = Some(revision.saturating_sub(1));
                let range = Range { keys: keys.clone(), at, limit: CHUNK, keys_only: false };
                let page = self.stores.of(&moved.plane).range(range).await?;
                for item in &page.items {
                    let name = String::from_utf8_lossy(&item.key.as_bytes()[prefix..]);
                    match event::read_own(item, moved.old.record()) {
                        Own::Object(entry) => drop(before.insert(entry)),
                        Own::Whiteout => drop(before.remove(&name)),
                        Own::Absent | Own::Buried => {}
                    }
                }
                match page.items.last() {
                    Some(last) if page.more => keys = keys.from_key(KeyRange::one(&last.key).end),
                    _ => break,
                }
            }
            moved.before.insert(wanted.clone(), before);
        }
        Ok(())
    }
}

/// Tells watches over all planes what a switch changed.
fn tell(hub: &mut Hub, moved: &mut Moved, own: &[Event], revision: u64) {
    hub.restart_everywhere(revision);
    for wanted in hub.watched_everywhere() {
        for (key, before, after) in difference(moved, own, &wanted) {
            if let Some(event) = CacheEvent::switched(key, revision, moved.new.clone(), before, after) {
                hub.send_everywhere(&Arc::new(event));
            }
        }
    }
}

type Difference = (Key, Option<Arc<Entry>>, Option<Arc<Entry>>);

/// What a plane had in a collection of its own and of its snapshot, and what it has now: its snapshot, and what the commit
/// that put it there wrote.
fn difference(moved: &mut Moved, own: &[Event], wanted: &str) -> Vec<Difference> {
    let mut before = moved.before.remove(wanted).unwrap_or_default();
    let Moved { plane, new, .. } = moved;
    let mut after = new.snapshot(plane, wanted);
    for event in own {
        let Some((_, path)) = event.key.object_path() else { continue };
        if collection(&path.group, &path.resource) != wanted {
            continue;
        }
        let name = object_name(path.namespace.as_deref(), &path.name);
        match event::read(&event.key, event.value.as_ref(), event.created, event.revision) {
            Own::Object(entry) => drop(after.insert(entry)),
            Own::Whiteout => drop(after.remove(&name)),
            Own::Absent | Own::Buried => {}
        }
    }
    let places = before.range(None).chain(after.range(None)).map(|entry| entry.place().into());
    let mut names: Vec<Box<str>> = places.collect();
    names.sort_unstable();
    names.dedup();
    let (group, resource) = wanted.split_once('/').unwrap_or_default();
    let key = |entry: &Entry| {
        let namespace = Some(entry.namespace().to_owned()).filter(|n| !n.is_empty());
        let group = if group == "core" { "" } else { group };
        let (group, resource) = (group.to_owned(), resource.to_owned());
        Key::object(plane, &ObjectPath { group, resource, namespace, name: entry.name().to_owned() })
    };
    names
        .into_iter()
        .filter_map(|name| {
            let (before, after) = (before.remove(&name), after.remove(&name));
            let key = key(after.as_ref().or(before.as_ref())?);
            Some((key, before, after))
        })
        .collect()
}

fn by_revision(events: Vec<Event>) -> Vec<Vec<Event>> {
    let mut groups: Vec<Vec<Event>> = Vec::new();
    for event in events {
        match groups.last_mut() {
            Some(group) if group.first().is_some_and(|first| first.revision == event.revision) => {
                group.push(event);
            }
            _ => groups.push(vec![event]),
        }
    }
    groups
}
