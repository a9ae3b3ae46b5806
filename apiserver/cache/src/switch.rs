//! Taking in events of the store: changes of objects, and planes that are put above other layers.
//!
//! A plane's record lies in the plane's own range, so the feed learns of a switch in its place among the plane's other
//! changes, and it is by the record's revision that the plane's own keys from before are buried. The plane is dropped from
//! memory then, its watches end, and no watch begins from before: clients list again. Watches over all planes are told
//! that it moved, and make of it the events that are the difference for what they look at.

use crate::{
    Cache, CacheEvent, Stack, Switch,
    feed::{Slot, let_go},
    hub::{Hub, Observer},
    layer_switch::SwitchedPlane,
};
use freehold_apiserver_storage::{Event, Key, KeyValue, StoreError};
use freehold_machinery::PlaneId;
use futures_util::TryStreamExt;
use std::{collections::HashMap, iter::Peekable, sync::Arc, vec::IntoIter};

/// Events that are taken in before others get their turn and their look at the hub, give or take one revision.
const AT_ONCE: usize = 128;

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
        // What lies below planes that nobody reads here may have to be loaded, to tell what their events mean.
        let mut loaded: HashMap<PlaneId, Arc<Stack>> = HashMap::new();
        for event in &events {
            let Some((plane, _)) = event.key.split_plane() else { continue };
            if self.layers.known(&plane).is_none() && !loaded.contains_key(&plane) {
                loaded.insert(plane.clone(), self.layers.following(&plane, event.revision).await?);
            }
        }
        let mut events = events.into_iter().peekable();
        // Events of one plane mostly come together, and nothing but another plane's can change what lies below it.
        let mut last: Option<(PlaneId, Arc<Stack>)> = None;
        let mut stack = |plane: &PlaneId| {
            if last.as_ref().is_none_or(|(known, _)| known != plane) {
                let stack = self.layers.known(plane).or_else(|| loaded.get(plane).cloned());
                last = stack.map(|stack| (plane.clone(), stack));
            }
            last.as_ref().map(|(_, stack)| stack.clone())
        };
        while self.take_some(&mut events, &mut stack) {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Takes in the events of a few revisions; whether there are more.
    fn take_some(
        &self,
        events: &mut Peekable<IntoIter<Event>>,
        mut stack: impl FnMut(&PlaneId) -> Option<Arc<Stack>>,
    ) -> bool {
        let (mut revision, mut taken) = (0, 0);
        let mut hub = self.hub.lock();
        while let Some(first) = events.next_if(|_| taken < AT_ONCE) {
            revision = first.revision;
            let more = std::iter::from_fn(|| events.next_if(|raw| raw.revision == revision));
            taken += self.publish(&mut hub, std::iter::once(first).chain(more), &mut stack);
        }
        self.advance(&mut hub, revision);
        events.peek().is_some()
    }

    /// Takes in the events of one revision; gives how many they are.
    fn publish(
        &self,
        hub: &mut Hub,
        events: impl Iterator<Item = Event>,
        mut stack: impl FnMut(&PlaneId) -> Option<Arc<Stack>>,
    ) -> usize {
        let events = events.filter_map(|raw| CacheEvent::new(raw, &mut stack));
        let mut events: Vec<_> = events.map(Arc::new).collect();
        events.sort_by(|a, b| a.plane.cmp(&b.plane));
        for of_plane in events.chunk_by(|a, b| a.plane == b.plane) {
            let slot = of_plane.first().and_then(|event| self.planes.read().get(&event.plane).cloned());
            slot.iter().for_each(|slot| slot.0.apply(of_plane));
        }
        let taken = events.len();
        for event in events {
            self.census.lock().apply(&event);
            hub.publish(event);
        }
        taken
    }

    /// What a plane stands on from the event of its record on, its layers loaded; `None` where they can't be read at all.
    async fn announced(&self, record: &Event) -> Result<Option<Arc<Stack>>, StoreError> {
        let Some((plane, _)) = record.key.split_plane().filter(|(plane, _)| record.key == Key::stack(plane))
        else {
            return Ok(None);
        };
        let (key, created, modified) = (record.key.clone(), record.created, record.revision);
        let value = record.value.clone().map(|value| KeyValue { key, value, created, modified });
        match self.layers.stack(&plane, value.as_ref()).await {
            Err(StoreError::Corrupt(_)) => Ok(None),
            found => found.map(Some),
        }
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
                Some(plane) => Some(self.layers.following(&plane, revision.saturating_sub(1)).await?),
                None => None,
            };
            // Read before it counts: where the store fails here, all of this is done again.
            let _ready = self.announced(record).await?;
            match (self.layers.follow(record).await?, old) {
                (Some(Switch::Plane(plane)), Some(old)) => {
                    let new = self.layers.following(&plane, revision).await?;
                    moved.push((plane, old, new));
                }
                (Some(Switch::Class(class)), _) => classes.push(class),
                _ => {}
            }
        }
        let plane_of = |event: &Event| event.key.split_plane().map(|(plane, _)| plane);
        let mut own: HashMap<PlaneId, Vec<Event>> = HashMap::new();
        let mut others = Vec::new();
        for event in objects {
            match plane_of(&event).filter(|plane| moved.iter().any(|(moved, ..)| moved == plane)) {
                Some(plane) => own.entry(plane).or_default().push(event),
                None => others.push(event),
            }
        }
        let moved = moved.into_iter().map(|(plane, old, new)| {
            let (own, store) = (own.remove(&plane).unwrap_or_default(), self.stores.of(&plane).clone());
            Arc::new(SwitchedPlane { plane, store, revision, old, new, own })
        });
        let moved: Vec<_> = moved.collect();
        let differences = self.differences(&moved).await;
        let mut left: Vec<Slot> = Vec::new();
        let mut hub = self.hub.lock();
        for moved in &moved {
            left.extend(self.planes.write().remove(&moved.plane));
            hub.end(&moved.plane);
            let own = moved.own.iter().cloned();
            for event in own.filter_map(|raw| CacheEvent::new(raw, |_| Some(moved.new.clone()))) {
                self.census.lock().apply(&event);
            }
            hub.moved(moved);
        }
        differences.iter().for_each(Difference::tell);
        for class in &classes {
            let of_class = |plane: &PlaneId, _: &mut Slot| self.layers.is_of_class(plane, class);
            for (plane, slot) in self.planes.write().extract_if(of_class) {
                hub.end(&plane);
                left.push(slot);
            }
        }
        self.publish(&mut hub, others.into_iter(), |plane| self.layers.known(plane));
        self.advance(&mut hub, revision);
        drop(hub);
        let_go(left);
        Ok(())
    }

    /// What switches change for their observers, read before the switches count.
    async fn differences(&self, moved: &[Arc<SwitchedPlane>]) -> Vec<Difference> {
        let observers = if moved.is_empty() { Vec::new() } else { self.hub.lock().switch_observers() };
        let mut differences = Vec::new();
        for moved in moved {
            for (collection, observer) in &observers {
                let events = moved.clone().events(collection.clone()).try_collect().await.ok();
                differences.push(Difference { observer: observer.clone(), events });
            }
        }
        differences
    }
}

/// What a switch changes in a collection; without events where what was there before can't be read.
struct Difference {
    observer: Observer,
    events: Option<Vec<Arc<CacheEvent>>>,
}

impl Difference {
    fn tell(&self) {
        match &self.events {
            Some(events) => events.iter().for_each(|event| (self.observer)(Some(event))),
            None => (self.observer)(None),
        }
    }
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
