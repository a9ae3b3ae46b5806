//! The embedded engine: etcd's semantics in a directory of the local disk, for one process.
//!
//! It guarantees what [`Store`](freehold_apiserver_storage::Store) says; a commit is answered after the disk was synced.
//! It must not know what is in a value.
//!
//! # Files
//!
//! ```text
//! LOCK     locked (flock) by the process that has the directory open; its process id and a line feed are in it
//! db/      a fjall 3 database (an LSM tree with a journal) with the keyspaces below
//! db.new/  a database that is being made; worth nothing
//! TRIAL    for a moment only, while it is found out whether a full disk has room again
//! ```
//!
//! All numbers are big-endian. `u64` has 8 bytes, `u32` 4. A revision is a `u64`; the first commit makes revision 2.
//!
//! **`meta`** holds
//! - `format`: the bytes `freehold-embedded 1`. A directory with another content is refused.
//! - `compacted`: the oldest revision that can be read, a `u64`. Absent: 1.
//!
//! **`data`** holds each version of each key. The database's key is
//!
//! ```text
//! the key, with each byte 00 written as 00 FF  |  00 01  |  u64: all bits of the revision inverted
//! ```
//!
//! so that keys sort as they are, and the versions of one key from new to old. The content is
//!
//! ```text
//! u64: the revision that made the key since it was last absent; 0: this version is a deletion  |  the value
//! ```
//!
//! The value of a key as of revision R is therefore the first entry at or behind (key, R) with the same key, unless it
//! is a deletion.
//!
//! **`log`** holds each revision, under its `u64`, without gaps from `compacted` to the latest (while compaction is under
//! way, older ones too). The latest is the store's revision; with an empty log that is 1. The content is, for each
//! change, in the order of the commit:
//!
//! ```text
//! u64: made at, as in `data`  |  u64: revision of the version replaced, 0: none  |  u32: length of the key  |  the key
//! ```
//!
//! The value is in `data`, under (key, revision).
//!
//! Sorted files have their index in pieces of 4 KiB, so that a lookup reads one of them and not the index of 64 MiB, and no filters, which
//! can't tell of the first entry behind a place.
//!
//! # Writing
//!
//! One thread takes what is queued, evaluates it commit by commit on an overlay, writes one batch for the group and
//! syncs the journal once. Then the revision becomes visible, watches are woken, and the commits are answered. The batch
//! is atomic: after a crash a group is there as a whole or not at all. When nobody wrote for a second, what is in memory
//! is written to sorted files.
//!
//! # Compaction
//!
//! `compacted` is set first, durably. Then the log is followed from its start to that revision, some hundred changes
//! at a time, in the batches of commits or, when there are none, in its own: the version that a change replaced is
//! deleted, and so is a deletion itself; the record goes with them. A compaction that was cut off goes on when the
//! directory is opened. It costs by what was changed, not by what is stored. It does not pass a revision that is held.
//! When a quarter of what is stored was deleted, the sorted files are written anew, so that the room comes back.
//!
//! # Opening
//!
//! Each byte below `db` is covered by a checksum that is compared first (`check.rs`): a changed one is damage, and which
//! file it is in is said. The end of the last journal that a crash cut off is removed: it was never acknowledged.
//!
//! # Restoring
//!
//! [`Embedded::restore`] makes a database from an archive in `db.new` and renames it to `db` at the end. Versions keep
//! their revisions; `compacted` and the one, empty, record of the log are at a later revision than the store that was
//! lost can have reached, so that its clients read anew.

mod check;
mod codec;
mod disk;
mod engine;
mod evaluate;
mod inner;
mod options;
mod recent;
mod restore;
mod sweep;
mod watch;
mod writer;

pub use engine::Embedded;
pub use options::{OpenError, Options, Retention};
pub use restore::RestoreError;
