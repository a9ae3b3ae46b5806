//! Taking in events of the store: changes of objects, and planes that are put above other layers.
//!
//! A plane's record lies in the plane's own range, so the feed learns of a switch in its place among the plane's other
//! changes, and in one piece with the removal of the plane's own objects. The plane is dropped from memory then, its
//! watches end, and no watch begins from before: clients list again. Watches over all planes get events that make the
//! difference between what was and what is, for what they look at.

use crate::{
    Cache, CacheEvent, Entry, Stack, Switch,
    event::{self, Own},
    hub::Hub,
    layer::{collection, object_name},
};
use freehold_apiserver_storage::{Event, Key, ObjectPath, StoreError};
use freehold_machinery::PlaneId;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A plane that was put above other layers.
struct Moved {
    plane: PlaneId,
    old: Arc<Stack>,
    new: Arc<Stack>,
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
                    moved.push(Moved { plane, old, new });
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
        let mut hub = self.hub.lock();
        for moved in &moved {
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

/// Tells watches over all planes what a switch changed.
fn tell(hub: &mut Hub, moved: &Moved, own: &[Event], revision: u64) {
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

/// What a plane's own objects and snapshot had in a collection, and what they have now. All own objects that were there
/// are among the events, because a switch takes them away.
fn difference(moved: &Moved, own: &[Event], wanted: &str) -> Vec<Difference> {
    let Moved { plane, old, new } = moved;
    let mut before = old.snapshot(plane, wanted);
    let mut after = new.snapshot(plane, wanted);
    for event in own {
        let Some((_, path)) = event.key.object_path() else { continue };
        if collection(&path.group, &path.resource) != wanted {
            continue;
        }
        let name: Box<str> = object_name(path.namespace.as_deref(), &path.name).into();
        let previous = event.previous.as_ref();
        let read = |value: Option<Own>, objects: &mut BTreeMap<Box<str>, Arc<Entry>>| match value {
            Some(Own::Object(entry)) => drop(objects.insert(name.clone(), entry)),
            Some(Own::Whiteout) => drop(objects.remove(&name)),
            Some(Own::Absent) | None => {}
        };
        read(previous.map(|p| event::read(&p.key, Some(&p.value), p.created, p.modified)), &mut before);
        let now = event.value.as_ref();
        read(now.map(|v| event::read(&event.key, Some(v), event.created, event.revision)), &mut after);
    }
    let mut names: Vec<Box<str>> = before.keys().chain(after.keys()).cloned().collect();
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
