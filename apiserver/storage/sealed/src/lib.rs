//! A store whose values are compressed and encrypted on their way into another one.
//!
//! [`Sealed`] is a [`Store`](freehold_apiserver_storage::Store) over any store and keeps its semantics: keys, revisions,
//! expectations and events are the inner store's own; values of objects (under `planes/` and `layers/`) are sealed when
//! they are committed and opened when they are read, previous values too. The first bytes of a value say what it is, so
//! plain values stay readable among sealed ones, and either can be switched on and off at any time.
//!
//! - `format`: the header, described well enough to write a reader.
//! - `compress`, `dictionaries`, `training`: zstd with the dictionary of the value's type.
//! - `cipher`, `config`, `vault`, `rotation`: AES-256-GCM. Key-encryption keys come from a file and seal data keys; data
//!   keys lie sealed in the store and seal values. The key under which a value lies is bound to it, so that a value can't
//!   be moved to another object or plane.
//!
//! What this does not do: whoever can write to the inner store can put plain values there, or an older value of the same
//! key. Keys (names of objects) and sizes are not hidden.
//!
//! This crate must not know: what objects mean, HTTP.

mod cipher;
mod codec;
mod compress;
mod config;
mod dictionaries;
mod error;
mod expired_keys;
mod format;
mod kinds;
mod progress;
mod rotation;
mod store;
mod training;
mod vault;

pub use config::{EncryptionKeys, KeysError};
pub use error::OpenError;
pub use progress::Rotation;
pub use rotation::RotateError;
pub use store::{Options, Sealed, Status};
