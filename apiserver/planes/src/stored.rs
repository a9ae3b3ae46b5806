//! Layers in the store: written in commits of bounded size, sealed by a last one, and gone when nobody needs them.
//!
//! A layer that is not sealed is nothing: a writer that finds one (its predecessor was killed) goes on with it, or takes it
//! away and begins again. A sealed one never changes. One that was released goes with the last plane that stands on it.

use bytes::Bytes;
use freehold_apiserver_cache::codec::{self, Stored};
use freehold_apiserver_storage::{
    CLEAR_STEP, Change, Commit, Committed, Expect, Key, KeyRange, KeyValue, LayerId, ObjectPath, Range,
    Store, StoreError,
};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value};
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, sync::Arc};

/// Keys that one read asks for.
const CHUNK: usize = 500;
/// Objects that one commit writes.
const BATCH: usize = 100;
/// Bytes of values that one commit writes, one value aside.
const BATCH_BYTES: usize = 512 << 10;
/// Planes that an answer names.
const NAMED: usize = 20;
/// Secrets of this type hold tokens of the plane that they were made in.
const TOKEN_SECRET: &str = "kubernetes.io/service-account-token";

/// What a layer is: the value of [`Key::layer`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayerRecord {
    /// Where its objects are from: a plane, or what else.
    pub source: String,
    /// The organization whose planes can stand on it; `None` for those of classes, and of planes without a project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// As of which revision.
    pub revision: u64,
    /// How many objects it has.
    pub objects: u64,
    /// How many bytes their values take.
    pub bytes: u64,
    /// Whether it is complete.
    pub sealed: bool,
    /// Whether it goes when no plane stands on it.
    #[serde(default)]
    pub released: bool,
    /// Up to where it is written: the key of its last object, behind the layer's own part. Empty once it is sealed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cursor: String,
}

/// What became of a layer that was released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Planes that still stand on it, some of them where there are many; empty if it is gone.
    pub planes: Vec<PlaneId>,
}

pub(crate) fn resource() -> GroupResource {
    GroupResource::new("", "layers")
}

/// That a layer was released, so that one that nobody needs is found after a crash.
fn released_key(layer: &LayerId) -> Key {
    Key::system(&format!("released/{layer}"))
}

/// A layer's record and the revision that wrote it.
pub(crate) async fn record(
    store: &dyn Store,
    layer: &LayerId,
) -> Result<Option<(LayerRecord, u64)>, StoreError> {
    let Some(found) = store.get(&Key::layer(layer)).await? else { return Ok(None) };
    let record = serde_json::from_slice(&found.value)
        .map_err(|error| StoreError::Corrupt(format!("the record of layer {layer}: {error}")))?;
    Ok(Some((record, found.modified)))
}

pub(crate) async fn is_sealed(store: &dyn Store, layer: &LayerId) -> Result<bool, StoreError> {
    Ok(is_sealed_at(store, layer, None).await?.0)
}

/// Whether a layer is complete as of a revision, or of the latest; and as of which it is told.
pub(crate) async fn is_sealed_at(
    store: &dyn Store,
    layer: &LayerId,
    at: Option<u64>,
) -> Result<(bool, u64), StoreError> {
    let found = store.range(Range { at, ..Range::all(KeyRange::one(&Key::layer(layer))) }).await?;
    let record = found.items.first().and_then(|item| serde_json::from_slice::<LayerRecord>(&item.value).ok());
    Ok((record.is_some_and(|record| record.sealed), at.unwrap_or(found.revision)))
}

/// Whether a layer lists a plane among those that stand on it: now, or as of the revision of a record that is behind.
pub(crate) async fn lists(
    store: &dyn Store,
    layer: &LayerId,
    plane: &PlaneId,
    at: u64,
) -> Result<bool, StoreError> {
    let key = Key::layer_plane(layer, plane);
    if store.get(&key).await?.is_some() {
        return Ok(true);
    }
    match store.range(Range { at: Some(at), ..Range::all(KeyRange::one(&key)) }).await {
        Ok(found) => Ok(!found.items.is_empty()),
        Err(StoreError::Compacted { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes what is written of a layer, in steps, for as long as its record is the one that was seen: `false` where it is
/// not any more, and the layer somebody else's.
async fn clear(store: &dyn Store, layer: &LayerId, modified: u64) -> Result<bool, StoreError> {
    let mut keys = KeyRange::layer_objects(layer);
    loop {
        let ask = Range { limit: CLEAR_STEP, keys_only: true, ..Range::all(keys.clone()) };
        let page = store.range(ask).await?;
        let Some(last) = page.items.last() else { return Ok(true) };
        let rest = page.rest(&keys);
        let end = KeyRange::one(&last.key).end;
        let expect = vec![Expect { key: Key::layer(layer), modified }];
        let changes = vec![Change::DeleteRange(KeyRange { start: keys.start.clone(), end })];
        if let Committed::Refused(_) = store.commit(Commit { expect, changes }).await? {
            return Ok(false);
        }
        match rest {
            Some(rest) => keys = rest,
            None => return Ok(true),
        }
    }
}

fn put_record(layer: &LayerId, record: &LayerRecord) -> Change {
    let value = serde_json::to_vec(record).unwrap_or_default();
    Change::Put(Key::layer(layer), value.into())
}

/// It may be done next time, or found to be done.
fn overtaken(layer: &LayerId) -> Status {
    Status::unavailable(format!("layer {layer} is written or deleted by somebody else")).retry_after(1)
}

/// Writes a layer.
pub(crate) struct Writer {
    store: Arc<dyn Store>,
    layer: LayerId,
    record: LayerRecord,
    modified: u64,
    batch: Vec<Change>,
    batch_bytes: usize,
}

/// Where the objects of a layer are from.
pub(crate) struct Origin {
    pub(crate) source: String,
    pub(crate) organization: Option<String>,
    pub(crate) revision: u64,
}

impl Writer {
    /// Begins a layer. What another writer left unfinished goes; 409 where it is sealed.
    pub(crate) async fn begin(store: Arc<dyn Store>, layer: LayerId, origin: Origin) -> Result<Self> {
        let before = record(&*store, &layer).await?;
        if before.as_ref().is_some_and(|(record, _)| record.sealed) {
            return Err(Status::conflict(&resource(), layer.as_str(), "it is sealed"));
        }
        let modified = before.map_or(0, |(_, modified)| modified);
        let Origin { source, organization, revision } = origin;
        let record = LayerRecord { source, organization, revision, ..LayerRecord::default() };
        let mut writer = Self { store, layer, record, modified, batch: Vec::new(), batch_bytes: 0 };
        // It is not released any more, if it was.
        writer.commit(vec![Change::Delete(released_key(&writer.layer))]).await?;
        match clear(&*writer.store, &writer.layer, writer.modified).await? {
            true => Ok(writer),
            false => Err(overtaken(&writer.layer)),
        }
    }

    /// What another writer left unfinished of a layer with this source.
    pub(crate) async fn unfinished(
        store: &Arc<dyn Store>,
        layer: &LayerId,
        source: &str,
    ) -> Result<Option<Self>, StoreError> {
        let Some((record, modified)) = record(&**store, layer).await? else { return Ok(None) };
        if record.sealed || record.released || record.source != source || record.cursor.is_empty() {
            return Ok(None);
        }
        let (store, layer) = (store.clone(), layer.clone());
        Ok(Some(Self { store, layer, record, modified, batch: Vec::new(), batch_bytes: 0 }))
    }

    /// As of which revision it is written.
    pub(crate) fn revision(&self) -> u64 {
        self.record.revision
    }

    /// Up to where it is written, as [`Merged::new`] takes it.
    pub(crate) fn cursor(&self) -> &str {
        &self.record.cursor
    }

    /// Adds what is stored under a path.
    pub(crate) async fn put(&mut self, path: &ObjectPath, value: Bytes) -> Result<()> {
        if self.batch.len() >= BATCH || !self.batch.is_empty() && self.batch_bytes + value.len() > BATCH_BYTES
        {
            let batch = std::mem::take(&mut self.batch);
            self.batch_bytes = 0;
            self.commit(batch).await?;
        }
        self.record.objects += u64::from(codec::decode(&value) != Some(Stored::Whiteout));
        self.record.bytes += value.len() as u64;
        self.batch_bytes += value.len();
        let key = Key::layer_object(&self.layer, path);
        self.record.cursor = String::from_utf8_lossy(tail(&key)).into_owned();
        self.batch.push(Change::Put(key, value));
        Ok(())
    }

    /// Writes the rest, and that it is complete.
    pub(crate) async fn seal(mut self) -> Result<LayerRecord> {
        let batch = std::mem::take(&mut self.batch);
        self.commit(batch).await?;
        (self.record.sealed, self.record.cursor) = (true, String::new());
        self.commit(Vec::new()).await?;
        Ok(self.record)
    }

    /// Takes away what was written.
    pub(crate) async fn abandon(self) -> Result<()> {
        release(&self.store, &self.layer).await.map(drop)
    }

    /// Two writers of one layer notice each other by its record, which each commit writes.
    async fn commit(&mut self, mut changes: Vec<Change>) -> Result<()> {
        let expect = vec![Expect { key: Key::layer(&self.layer), modified: self.modified }];
        changes.push(put_record(&self.layer, &self.record));
        match self.store.commit(Commit { expect, changes }).await? {
            Committed::Done(revision) => self.modified = revision,
            Committed::Refused(_) => return Err(overtaken(&self.layer)),
        }
        Ok(())
    }
}

/// Lets a layer go: at once, or with the last plane that stands on it.
pub(crate) async fn release(store: &Arc<dyn Store>, layer: &LayerId) -> Result<Released> {
    let mut marked = false;
    loop {
        let Some((mut found, modified)) = record(&**store, layer).await? else {
            return Ok(Released::default());
        };
        // Somebody writes it anew.
        if marked && !found.released {
            return Ok(Released::default());
        }
        marked = found.released;
        if !found.released {
            found.released = true;
            let expect = vec![Expect { key: Key::layer(layer), modified }];
            let note = Change::Put(released_key(layer), Bytes::from_static(b"{}"));
            let changes = vec![put_record(layer, &found), note];
            drop(store.commit(Commit { expect, changes }).await?);
            continue;
        }
        let range = Range { limit: NAMED, keys_only: true, ..Range::all(KeyRange::layer_planes(layer)) };
        let above = store.range(range).await?;
        if !above.items.is_empty() {
            let plane = |item: &KeyValue| {
                let text = std::str::from_utf8(item.key.as_bytes()).ok()?;
                text.rsplit('/').next()?.parse().ok()
            };
            return Ok(Released { planes: above.items.iter().filter_map(plane).collect() });
        }
        // Nobody can be put above it any more: that expects that it was not released. Who still reads it, because it is
        // behind, finds it whole as of an earlier revision, or not at all.
        if found.sealed {
            found.sealed = false;
            let expect = vec![Expect { key: Key::layer(layer), modified }];
            drop(store.commit(Commit { expect, changes: vec![put_record(layer, &found)] }).await?);
            continue;
        }
        if !clear(&**store, layer, modified).await? {
            continue;
        }
        let expect = vec![Expect { key: Key::layer(layer), modified }];
        let changes = vec![Change::DeleteRange(KeyRange::layer(layer)), Change::Delete(released_key(layer))];
        if let Committed::Done(_) = store.commit(Commit { expect, changes }).await? {
            return Ok(Released::default());
        }
    }
}

/// Takes a layer away that was released, if nobody needs it any more.
pub(crate) async fn collect(store: &Arc<dyn Store>, layer: &LayerId) -> Result<()> {
    match record(&**store, layer).await? {
        Some((found, _)) if found.released => release(store, layer).await.map(drop),
        _ => Ok(()),
    }
}

/// Takes away all layers that were released and that nobody needs: what a server that was killed did not get to.
pub(crate) async fn collect_all(store: &Arc<dyn Store>) -> Result<()> {
    let notes = store.range(Range::all(KeyRange::system("released"))).await?;
    for note in notes.items {
        let name = std::str::from_utf8(note.key.as_bytes()).ok().and_then(|text| text.rsplit('/').next());
        if let Some(Ok(layer)) = name.map(str::parse) {
            collect(store, &layer).await?;
        }
    }
    Ok(())
}

/// The keys of a range at one revision, page by page.
struct Pages {
    store: Arc<dyn Store>,
    at: u64,
    /// Keys that were written before this revision are left out.
    since: u64,
    /// What is still to be read; `None` at the end.
    rest: Option<KeyRange>,
    items: VecDeque<KeyValue>,
}

impl Pages {
    async fn peek(&mut self) -> Result<Option<&KeyValue>, StoreError> {
        while self.items.is_empty()
            && let Some(keys) = self.rest.take()
        {
            let range = Range { at: Some(self.at), limit: CHUNK, ..Range::all(keys.clone()) };
            let page = self.store.range(range).await?;
            self.rest = page.rest(&keys);
            self.items = page.items.into_iter().filter(|item| item.modified >= self.since).collect();
        }
        Ok(self.items.front())
    }
}

/// What a plane and the snapshot that it stands on have together at one revision, in key order, whiteouts included. What
/// class and base bring is not among it.
pub(crate) struct Merged {
    own: Pages,
    below: Pages,
}

/// The part of a key behind plane or layer.
fn tail(key: &Key) -> &[u8] {
    let bytes = key.as_bytes();
    let mut slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.nth(1).map_or(&[], |(at, _)| &bytes[at + 1..])
}

impl Merged {
    /// A plane at a revision, behind an object's key without the plane's own part; empty for all of it.
    pub(crate) async fn new(
        store: &Arc<dyn Store>,
        plane: &PlaneId,
        at: u64,
        after: &str,
    ) -> Result<Self, StoreError> {
        let record = Range { at: Some(at), ..Range::all(KeyRange::one(&Key::stack(plane))) };
        let found = store.range(record).await?.items.pop();
        let since = found.as_ref().map_or(0, |record| record.modified);
        let mut layer = None;
        if let Some(record) = &found
            && let Some(named) = crate::layers::read_stack(record).and_then(|named| named.layer.parse().ok())
            && lists(&**store, &named, plane, at).await?
        {
            layer = Some(named);
        }
        let below = layer.map(|layer: LayerId| (KeyRange::layer_objects(&layer), KeyRange::layer(&layer)));
        let pages = |keys: Option<(KeyRange, KeyRange)>, since| {
            let behind = |all: KeyRange| Bytes::from([&all.start, after.as_bytes(), b"\0"].concat());
            let rest = keys.map(|(objects, all)| match after {
                "" => objects,
                _ => objects.from_key(behind(all)),
            });
            Pages { store: store.clone(), at, since, rest, items: VecDeque::new() }
        };
        let own = Some((KeyRange::plane_objects(plane), KeyRange::plane(plane)));
        Ok(Self { own: pages(own, since), below: pages(below, 0) })
    }

    /// Reads what comes next, without taking it.
    pub(crate) async fn peek(&mut self) -> Result<(), StoreError> {
        self.own.peek().await?;
        self.below.peek().await.map(drop)
    }

    /// The next object or whiteout.
    pub(crate) async fn next(&mut self) -> Result<Option<(ObjectPath, KeyValue)>, StoreError> {
        loop {
            let own = self.own.peek().await?.map(|item| tail(&item.key).to_vec());
            let below = self.below.peek().await?.map(|item| tail(&item.key).to_vec());
            let from_own = match (&own, &below) {
                (None, None) => return Ok(None),
                (Some(own), Some(below)) => own <= below,
                (own, _) => own.is_some(),
            };
            if own == below {
                self.below.items.pop_front();
            }
            let pages = if from_own { &mut self.own } else { &mut self.below };
            let Some(mut item) = pages.items.pop_front() else { continue };
            let path = item.key.object_path().map(|(_, path)| path).or_else(|| item.key.layer_path());
            let Some(path) = path else { continue };
            item.value = without_token(&path, item.value);
            return Ok(Some((path, item)));
        }
    }
}

/// Tokens stay where they were made: the Secret is kept, for whoever fills it in again.
fn without_token(path: &ObjectPath, value: Bytes) -> Bytes {
    if path.resource != "secrets" || !path.group.is_empty() {
        return value;
    }
    let Some(Stored::Json(json)) = codec::decode(&value) else { return value };
    match serde_json::from_slice::<Value>(&json) {
        Ok(Value::Object(mut secret)) if secret.get("type").is_some_and(|ty| ty == TOKEN_SECRET) => {
            secret.remove("data");
            codec::encode(&Value::Object(secret))
        }
        _ => value,
    }
}
