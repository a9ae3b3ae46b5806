//! What a request asks of the registry, and what it answers.

use crate::Shown;
use bytes::Bytes;
use freehold_apiserver_admission::Annotations;
use freehold_apiserver_cache::{CacheEvent, Entry};
pub use freehold_apiserver_cache::{EventKind, Piece};
use freehold_apiserver_catalog::TypeSet;
use freehold_machinery::{PlaneId, ResourceType, Status, User, Value};
use std::{sync::Arc, time::Duration};

/// One operation on one resource of one plane, by someone who is already authorized.
#[derive(Clone)]
pub struct Operation {
    /// The plane that it is about.
    pub plane: PlaneId,
    /// What that plane serves.
    pub types: Arc<TypeSet>,
    /// Who asks.
    pub user: Arc<User>,
    /// The resource, in the version that was asked for.
    pub ty: Arc<ResourceType>,
    /// The namespace in the URL.
    pub namespace: Option<String>,
    /// The name in the URL.
    pub name: Option<String>,
    /// The subresource in the URL.
    pub subresource: Option<String>,
    /// The revision up to which everything is visible here, when that was asked for after the operation came: reads are as of
    /// this or later. 0: it was not asked for yet.
    pub seen: u64,
    /// Whether it is allowed for what its user may read anyway, and for nothing else: a list or a watch then shows that alone.
    pub narrowed: bool,
    /// What admission says of it to the audit log.
    pub annotations: Annotations,
}

impl Operation {
    /// The operation in the version that objects are stored in, where a provider's webhook would have to convert them and the
    /// plane serves that version. What needs no more than their metadata, or is to make them go, does not depend on the
    /// webhook so.
    pub fn as_stored(&self) -> Option<Self> {
        self.ty.storage.conversion.of_provider()?;
        let (group, version) = self.ty.storage.api_version.split_once('/')?;
        let ty = self.types.find(group, version, &self.ty.plural)?;
        let is_other = ty.version != self.ty.version && ty.storage == self.ty.storage;
        is_other.then(|| Self { ty: ty.clone(), ..self.clone() })
    }
}

/// A decoded body.
#[derive(Clone, Debug)]
pub struct Body {
    /// The object, the last of equal keys having won.
    pub value: Value,
    /// `duplicate field "..."` for each key that stood twice.
    pub duplicates: Vec<String>,
    /// The body itself where it is JSON and the order of its fields is of interest; nothing else.
    pub written: Bytes,
    /// How many bytes it was decoded from; 0 for what was not.
    pub bytes: usize,
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        Self { value, duplicates: Vec::new(), written: Bytes::new(), bytes: 0 }
    }
}

/// `fieldValidation` of a write (KEP-2885).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown and duplicate fields are dropped silently.
    Ignore,
    /// They are dropped with a warning.
    #[default]
    Warn,
    /// They fail the request.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// `dryRun=All`: everything but the commit.
    pub dry_run: bool,
    /// `fieldManager`, or what the user agent gives before its first `/`.
    pub field_manager: String,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `force` of an apply.
    pub force: bool,
    /// The write is part of a request that admission has seen, and is not asked about by itself.
    pub admitted: bool,
}

/// The four kinds of patch.
#[derive(Clone, Debug)]
pub enum Patch {
    /// `application/json-patch+json`.
    Json(Body),
    /// `application/merge-patch+json`.
    Merge(Body),
    /// `application/strategic-merge-patch+json`.
    Strategic(Body),
    /// `application/apply-patch+yaml`.
    Apply(Body),
}

/// `DeleteOptions`, from the body or the query.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// `dryRun=All`.
    pub dry_run: bool,
    /// Seconds; `None` takes the kind's default.
    pub grace_period: Option<i64>,
    /// `Background`, `Foreground` or `Orphan`; anything else is refused.
    pub propagation: Option<String>,
    /// The deprecated `orphanDependents`.
    pub orphan_dependents: Option<bool>,
    /// `preconditions.uid`.
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`.
    pub resource_version: Option<String>,
}

/// Options of list and deletecollection, and what a watch shares with them.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// `labelSelector`, as given.
    pub label_selector: String,
    /// `fieldSelector`, as given.
    pub field_selector: String,
    /// `resourceVersion`, as given.
    pub resource_version: String,
    /// `resourceVersionMatch`, as given.
    pub resource_version_match: String,
    /// `limit`; 0 for all.
    pub limit: usize,
    /// `continue`, as given.
    pub continue_token: String,
    /// The view through which the objects are seen; `None` shows all of the plane.
    pub shown: Option<Arc<Shown>>,
}

/// Options of a watch.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Selectors, resource version and its match.
    pub list: ListOptions,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`, where given.
    pub send_initial_events: Option<bool>,
    /// `relatedOnly`: only objects that have owners or finalizers or are being deleted, and each deletion. It is what a
    /// garbage collector has to know. kube-apiserver has no such option.
    pub related_only: bool,
    /// How long the watch goes on; zero where that is not known.
    pub time: Duration,
}

/// An object on its way out, in the version that was asked for.
#[derive(Clone)]
pub enum Object {
    /// From the cache: its bytes are ready to be sent.
    Cached(Arc<Entry>),
    /// Its JSON.
    Bytes(Bytes),
    /// From the cache, with something added on its way: its JSON with a comma behind it, as an item of a list.
    Item(Bytes),
    /// Made for this request.
    Value(Arc<Value>),
}

impl Object {
    /// Returns the object's JSON.
    pub fn bytes(&self) -> Bytes {
        match self {
            Self::Cached(entry) => entry.json(),
            Self::Bytes(bytes) => bytes.clone(),
            Self::Item(item) => item.slice(..item.len().saturating_sub(1)),
            Self::Value(value) => serialized(value).into(),
        }
    }

    /// The object's JSON with a comma behind it, as an item of a list.
    pub fn into_item(self) -> Piece {
        match self {
            Self::Cached(entry) => Piece::Item(entry),
            Self::Bytes(bytes) => Piece::Bytes([&bytes, &b","[..]].concat().into()),
            Self::Item(item) => Piece::Bytes(item),
            Self::Value(value) => {
                let mut bytes = serialized(&value);
                bytes.push(b',');
                Piece::Bytes(bytes.into())
            }
        }
    }

    /// Returns the object, parsed.
    pub fn value(&self) -> Arc<Value> {
        match self {
            Self::Cached(entry) => Arc::new(entry.value()),
            Self::Bytes(_) | Self::Item(_) => {
                Arc::new(serde_json::from_slice(&self.bytes()).unwrap_or_default())
            }
            Self::Value(value) => value.clone(),
        }
    }
}

/// An object's JSON.
fn serialized(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SOME);
    // A Value is always JSON.
    if let Err(error) = serde_json::to_writer(&mut bytes, value) {
        tracing::error!(%error, "an object can't be written");
    }
    bytes
}

/// Bytes that most objects have less than.
const SOME: usize = 2_048;

/// A list.
pub struct List {
    /// The objects, in key order.
    pub items: Vec<Object>,
    /// The list's resource version.
    pub revision: u64,
    /// The token for the next page; empty on the last.
    pub continue_token: String,
    /// How many are left, where it is known.
    pub remaining: Option<u64>,
}

/// The outcome of a write.
pub struct Written {
    /// The object as it is now. A delete that is done gives the last state, or a success `Status`.
    pub object: Object,
    /// Whether it was made (201) and not changed (200).
    pub created: bool,
    /// Whether a delete has only begun (finalizers or a grace period hold it): still 200 for most, 202 never.
    pub pending: bool,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// What happened to an object that a watch is about.
#[derive(Clone)]
pub struct Changed {
    /// What happened, as this watch sees it.
    pub kind: EventKind,
    /// The object now, or its last state.
    pub object: Object,
    /// The event that it comes from and a number of the view through which it is seen.
    pub source: Option<(Arc<CacheEvent>, u64)>,
}

impl Changed {
    /// A change that no other watch shares.
    pub fn new(kind: EventKind, object: Object) -> Self {
        Self { kind, object, source: None }
    }

    /// The change as a frame of some encoding, made once for all watches that see the same of the same event.
    /// `encoding` names everything that the frame depends on beside kind and object: the version, the form.
    pub fn frame(&self, encoding: u64, make: impl FnOnce() -> Bytes) -> Bytes {
        match &self.source {
            Some((event, view)) => event.frame(self.kind, encoding ^ view.rotate_left(32), make),
            None => make(),
        }
    }
}

/// What a watch sends.
#[derive(Clone)]
pub enum WatchEvent {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    Changed(Changed),
    /// `BOOKMARK` at a revision; `true` ends the initial events.
    Bookmark(u64, bool),
    /// `ERROR`; the stream ends.
    Error(Status),
}

impl WatchEvent {
    /// A change that no other watch shares.
    pub fn of(kind: EventKind, object: Object) -> Self {
        Self::Changed(Changed::new(kind, object))
    }
}
