//! Every plane's objects in memory, as the bytes that go on the wire.
//!
//! One watch on the store feeds the cache. A plane is loaded on its first request and dropped when it has been idle;
//! a watch pins it. Reads wait until the cache has seen the store's current revision, so they are linearizable.
//! What planes have in common lies in [`Layer`]s, held once; the [`Stack`] of them below a plane is merged in on reads.
//!
//! This crate must not know: HTTP, resource types, who is asking.

mod census;
pub mod codec;
mod decodable;
mod entry;
mod event;
mod feed;
mod hub;
mod index;
mod layer;
mod layer_kind;
mod layer_switch;
mod merge;
mod objects;
mod piece;
mod plane;
mod read;
mod seen;
mod skipped;
mod state;
mod switch;
mod topic;
mod watch;

pub use entry::{Annotations, Entry};
pub use event::{CacheEvent, Change, EventKind, check};
pub use feed::Cache;
pub use index::By;
pub use layer::{
    Below, EXTENSION_AUTHENTICATION, Layer, LayerSource, PLANE, Stack, StackInfo, Switch, Texts, TextsOf,
};
pub use layer_kind::LayerKind;
pub use piece::Piece;
pub use read::{ListRequest, Listed, ListedPart, Page, PageOfPlanes, PagesOfPlanes, Survey, Wanted};
pub use skipped::log_skipped;
pub use state::{CacheOptions, CacheState, Resident, Seen};
pub use watch::{Scope, Subscription, WatchRequest, WatchStart};
