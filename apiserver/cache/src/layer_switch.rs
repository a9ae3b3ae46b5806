//! Layer switches for watches over all planes: the events between what a plane had and what it has above its new
//! layers. There may be as many as the plane has objects, so the feed publishes the switch alone, and each watch
//! generates the events when it reaches it, a chunk at a time.

use crate::layer_kind::key_of;
use crate::{
    CacheEvent, Entry, Stack,
    event::{self, OwnValue},
    layer::{collection, object_name},
    merge::{Found, Slot, Span, Within, over},
};
use freehold_apiserver_storage::{Event, Key, KeyRange, KeyValue, Range, Store, StoreError};
use freehold_machinery::PlaneId;
use futures_util::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use std::{collections::BTreeMap, sync::Arc};

/// Keys of a plane's previous state that are read, and events that are generated, at a time.
const CHUNK: usize = 500;

/// A plane that was put above other layers.
pub(crate) struct SwitchedPlane {
    pub(crate) plane: PlaneId,
    pub(crate) store: Arc<dyn Store>,
    /// The revision of the switch. The previous state is read from the store.
    pub(crate) revision: u64,
    pub(crate) old: Arc<Stack>,
    pub(crate) new: Arc<Stack>,
    /// The plane's own events in the commit of the switch.
    pub(crate) own: Vec<Event>,
}

/// The events of a collection that a plane's move makes; an error where what it had can't be read any more.
pub(crate) type Events = BoxStream<'static, Result<Arc<CacheEvent>, StoreError>>;

/// How far a watch on a collection is with a plane that was moved.
struct SwitchCursor {
    moved: Arc<SwitchedPlane>,
    collection: Box<str>,
    /// Behind which place it goes on.
    after: Box<str>,
}

/// A plane's own slots in the order of their places.
type OwnSlots = BTreeMap<Box<str>, Option<Arc<Entry>>>;

/// What one read found of a plane's own keys in a collection.
pub(crate) struct OwnPage {
    slots: OwnSlots,
    /// The last place that was read; `None` where all was.
    last: Option<Box<str>>,
}

impl OwnPage {
    /// `prefix` is the length of the keys up to the place, `record` the revision before which they are buried.
    pub(crate) fn new(items: &[KeyValue], more: bool, prefix: usize, record: u64) -> Self {
        let place = |key: &Key| -> Box<str> { String::from_utf8_lossy(&key.as_bytes()[prefix..]).into() };
        let slots = items.iter().filter_map(|item| {
            let slot = match event::read_own(item, record) {
                OwnValue::Object(entry) => Some(entry),
                OwnValue::Whiteout | OwnValue::Absent => None,
                OwnValue::Buried => return None,
            };
            Some((place(&item.key), slot))
        });
        let last = items.last().filter(|_| more).map(|item| place(&item.key));
        Self { slots: slots.collect(), last }
    }

    /// The last place that was read; `None` where all was.
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// The objects as far as was read, above what lies below.
    pub(crate) fn above<'a>(
        &'a self,
        below: impl Iterator<Item = Slot<'a>>,
    ) -> impl Iterator<Item = (&'a str, Found<'a>)> {
        visible(over(slots(&self.slots), below), self.last())
    }
}

fn slots(own: &OwnSlots) -> impl Iterator<Item = Slot<'_>> {
    own.iter().map(|(place, slot)| (&**place, slot.as_ref().map(Found::own)))
}

/// Objects up to a place.
fn visible<'a>(
    slots: impl Iterator<Item = Slot<'a>>,
    last: Option<&str>,
) -> impl Iterator<Item = (&'a str, Found<'a>)> {
    let slots = slots.take_while(move |(place, _)| last.is_none_or(|last| *place <= last));
    slots.filter_map(|(place, found)| Some((place, found?)))
}

impl SwitchedPlane {
    /// What its commit wrote in a collection, behind a place.
    fn written(&self, wanted: &str, after: &str) -> OwnSlots {
        let mut written = OwnSlots::new();
        for event in &self.own {
            let Some((_, path)) = event.key.object_path() else { continue };
            let name = object_name(path.namespace.as_deref(), &path.name);
            if collection(&path.group, &path.resource) != wanted || &*name <= after {
                continue;
            }
            match event::read(&event.key, event.value.as_ref(), event.created, event.revision) {
                OwnValue::Object(entry) => drop(written.insert(name.into(), Some(entry))),
                OwnValue::Whiteout => drop(written.insert(name.into(), None)),
                OwnValue::Absent | OwnValue::Buried => {}
            }
        }
        written
    }
}

impl SwitchedPlane {
    /// The events of a collection, read and made as they are asked for.
    pub(crate) fn events(self: Arc<Self>, collection: Box<str>) -> Events {
        let cursor = SwitchCursor { moved: self, collection, after: Box::default() };
        let chunks = stream::try_unfold(Some(cursor), |cursor| async {
            let Some(cursor) = cursor else { return Ok(None) };
            // What is in memory alone would never give others their turn.
            tokio::task::yield_now().await;
            let (events, rest) = cursor.chunk().await?;
            Ok::<_, StoreError>(Some((stream::iter(events.into_iter().map(Ok)), rest)))
        });
        chunks.try_flatten().boxed()
    }
}

impl SwitchCursor {
    /// The next events, perhaps none, and what there is behind them.
    async fn chunk(self) -> Result<(Vec<Arc<CacheEvent>>, Option<Self>), StoreError> {
        let Self { moved, collection, after } = &self;
        let (group, resource) = collection.split_once('/').unwrap_or_default();
        let all = KeyRange::resource(&moved.plane, group, resource, None);
        let prefix = all.start.len();
        let keys = match &**after {
            "" => all,
            after => all.from_key(KeyRange::one(&key_of(&moved.plane, collection, after)).end),
        };
        let at = Some(moved.revision.saturating_sub(1));
        let read = moved.store.range(Range { keys, at, limit: CHUNK, keys_only: false }).await?;
        let page = OwnPage::new(&read.items, read.more, prefix, moved.old.record());
        let (events, next) = self.difference(collection, &page);
        Ok((events, next.map(|after| Self { after, ..self })))
    }

    /// Events of what the plane had and has up to where its own keys from before were read, and behind which place
    /// there are more.
    fn difference(&self, collection: &str, page: &OwnPage) -> (Vec<Arc<CacheEvent>>, Option<Box<str>>) {
        let moved = &*self.moved;
        let span = Span { collection, within: Within::Everywhere, after: &self.after };
        let written = moved.written(collection, &self.after);
        let mut before = page.above(moved.old.slots(span, false)).peekable();
        let now = over(slots(&written), moved.new.slots(span, false));
        let mut now = visible(now, page.last()).peekable();
        let mut events = Vec::new();
        let mut done = None;
        loop {
            let place = match (before.peek(), now.peek()) {
                (Some((before, _)), Some((now, _))) => *before.min(now),
                (Some((place, _)), None) | (None, Some((place, _))) => *place,
                (None, None) => return (events, page.last().map(Box::from)),
            };
            if events.len() >= CHUNK {
                return (events, done.map(Box::from));
            }
            let had = before.next_if(|(at, _)| *at == place);
            let has = now.next_if(|(at, _)| *at == place);
            let had = had.map(|(_, found)| moved.old.show(&moved.plane, collection, found));
            let has = has.map(|(_, found)| moved.new.show(&moved.plane, collection, found));
            let key = key_of(&moved.plane, collection, place);
            let event = CacheEvent::switched(key, moved.revision, moved.new.clone(), had, has);
            events.extend(event.map(Arc::new));
            done = Some(place);
        }
    }
}
