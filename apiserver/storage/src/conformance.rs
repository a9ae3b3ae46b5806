//! The suite that each engine passes: one function for each fact about [`Store`], and [`conformance!`](crate::conformance!)
//! which makes a test of each.
//!
//! A fact gets a store of its own with nothing in it. It assumes nothing of the engine beyond the port: not which
//! revision comes next, nor how many items a watch puts its events into.

mod commits;
mod reads;
mod watches;

pub use commits::*;
pub use reads::*;
pub use watches::*;

use crate::{
    Change, Commit, Committed, Event, Expect, Key, KeyRange, KeyValue, ObjectPath, Range, Revision, Store,
};
use crate::{WatchItem, WatchStream};
use bytes::Bytes;
use freehold_machinery::PlaneId;
use futures_util::StreamExt;
use std::{sync::Arc, time::Duration};

/// Makes a `#[tokio::test]` of each fact. `$make` is an `async fn() -> (Arc<dyn Store>, G)`; `G` is dropped after the
/// test, and stops what the store stands on. `conformance!(make; resized)` leaves out what counts bytes exactly, for a
/// wrapper that stores values in another size than it was given them.
#[macro_export]
macro_rules! conformance {
    ($make:path) => {
        $crate::conformance! { $make; resized }
        $crate::conformance! { $make: usage_counts_each_plane_by_itself }
    };
    ($make:path; resized) => {
        $crate::conformance! { $make:
            a_new_store_is_empty_and_beyond_revision_zero,
            keys_are_read_in_byte_order,
            a_limit_leaves_out_the_last_keys,
            pages_read_at_one_revision_hold_each_key_once,
            keys_only_leaves_values_out,
            a_range_holds_no_key_of_its_neighbours,
            several_ranges_read_as_each_of_them_does,
            a_past_revision_reads_as_it_was,
            a_future_revision_cannot_be_read,
            below_the_compacted_revision_nothing_can_be_read,
            compaction_goes_forward_only_and_not_ahead,
            compaction_keeps_what_is_live,
            a_key_with_a_long_history_reads_right_at_each_revision,
            an_empty_value_is_not_an_absent_key,
            a_large_value_reads_back,
            usage_counts_live_keys_and_their_bytes,
            pages_of_the_past_hold_what_was_there_then,
            a_hold_tells_a_revision_at_which_all_can_be_read,
            an_archive_holds_a_range_as_of_one_revision_while_writes_go_on,
            each_commit_makes_a_later_revision,
            an_update_keeps_the_creation_and_a_deletion_ends_it,
            an_expectation_compares_the_last_write,
            a_refusal_tells_what_is_there_and_changes_nothing,
            a_commit_of_many_keys_has_one_revision,
            deleting_what_is_absent_makes_no_revision,
            a_range_is_deleted_at_one_revision,
            a_range_of_any_size_is_cleared_in_steps,
            a_commit_over_a_limit_is_refused,
            a_read_sees_every_commit_that_was_answered,
            of_many_increments_of_one_key_none_is_lost,
            concurrent_commits_that_move_a_unit_keep_the_sum,
            a_watch_yields_what_comes_after_its_revision,
            a_watch_yields_its_range_only,
            the_changes_of_one_revision_are_in_one_item,
            previous_values_come_where_they_are_asked_for,
            a_watch_resumes_after_any_revision,
            a_watch_from_below_the_compacted_revision_fails,
            a_watch_from_a_future_revision_fails,
            progress_comes_on_request_and_after_the_events,
            progress_passes_what_happens_outside_of_the_range,
            progress_comes_without_being_asked_for,
            watches_see_what_concurrent_writers_write_once_and_in_order,
            a_watch_that_is_read_late_loses_nothing,
            dropping_a_watch_leaves_the_others,
            a_watch_amid_compactions_has_no_gap_or_says_that_it_is_compacted,
        }
    };
    ($make:path: $($fact:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                let (store, guard) = $make().await;
                $crate::conformance::$fact(store).await;
                drop(guard);
            }
        )*
    };
}

/// How long a watch may take to yield what it must.
const PATIENCE: Duration = Duration::from_secs(60);

type Shared = Arc<dyn Store>;

fn plane(name: &str) -> PlaneId {
    name.parse().expect("the suite names planes right")
}

fn key_in(plane_name: &str, name: &str) -> Key {
    let path = ObjectPath {
        group: String::new(),
        resource: "configmaps".into(),
        namespace: Some("default".into()),
        name: name.into(),
    };
    Key::object(&plane(plane_name), &path)
}

fn key(name: &str) -> Key {
    key_in("blue", name)
}

fn blue() -> KeyRange {
    KeyRange::plane(&plane("blue"))
}

fn put(key: &Key, value: &str) -> Change {
    Change::Put(key.clone(), Bytes::copy_from_slice(value.as_bytes()))
}

fn changes(changes: Vec<Change>) -> Commit {
    Commit { expect: Vec::new(), changes }
}

/// Commits what must succeed.
async fn done(store: &Shared, commit: Commit) -> Revision {
    match store.commit(commit).await.expect("the store commits") {
        Committed::Done(revision) => revision,
        Committed::Refused(found) => panic!("refused: {found:?}"),
    }
}

async fn write(store: &Shared, key: &Key, value: &str) -> Revision {
    done(store, changes(vec![put(key, value)])).await
}

async fn read(store: &Shared, keys: KeyRange) -> Vec<KeyValue> {
    store.range(Range::all(keys)).await.expect("the store reads").items
}

async fn read_at(store: &Shared, keys: KeyRange, at: Revision) -> Vec<KeyValue> {
    store.range(Range { at: Some(at), ..Range::all(keys) }).await.expect("the store reads the past").items
}

fn names(items: &[KeyValue]) -> Vec<String> {
    items.iter().map(|item| String::from_utf8_lossy(item.key.as_bytes()).into_owned()).collect()
}

fn text(value: &Bytes) -> &str {
    std::str::from_utf8(value).expect("the suite writes text")
}

/// Sets a key if it is still as it was read; returns whether it was.
async fn swap(store: &Shared, read: &[KeyValue], writes: Vec<Change>) -> bool {
    let expect = read.iter().map(|item| Expect { key: item.key.clone(), modified: item.modified }).collect();
    let committed = store.commit(Commit { expect, changes: writes }).await.expect("the store commits");
    matches!(committed, Committed::Done(_))
}

async fn next(watch: &mut WatchStream) -> WatchItem {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("the watch yields in time")
        .expect("the watch goes on")
        .expect("the watch does not fail")
}

/// The events up to and with a revision.
async fn events_until(watch: &mut WatchStream, last: Revision) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    while events.last().is_none_or(|event| event.revision < last) {
        match next(watch).await {
            WatchItem::Events(more) => events.extend(more),
            WatchItem::Progress(revision) => {
                assert!(revision < last, "progress {revision} overtook the events")
            }
        }
    }
    events
}

/// Waits for a progress of at least `revision`; fails on events.
async fn progress_until(watch: &mut WatchStream, revision: Revision) {
    loop {
        match next(watch).await {
            WatchItem::Progress(reached) if reached >= revision => return,
            WatchItem::Progress(_) => {}
            WatchItem::Events(events) => panic!("unexpected {events:?}"),
        }
    }
}
