//! Facts about watches.

use super::*;
use crate::StoreError;
use std::collections::HashMap;

/// History first, then live.
pub async fn a_watch_yields_what_comes_after_its_revision(store: Shared) {
    let seen = write(&store, &key("a"), "seen").await;
    let one = write(&store, &key("a"), "one").await;
    let mut watch = store.watch(blue(), seen, false).await.expect("the store watches");
    let two = done(&store, changes(vec![Change::Delete(key("a"))])).await;
    let three = write(&store, &key("a"), "three").await;
    let event = |revision, value: Option<&'static str>, created| Event {
        key: key("a"),
        revision,
        value: value.map(|value| Bytes::from_static(value.as_bytes())),
        created,
        previous: None,
    };
    let expected = [event(one, Some("one"), seen), event(two, None, 0), event(three, Some("three"), three)];
    assert_eq!(events_until(&mut watch, three).await, expected);
}

/// Neither a plane nor a resource whose name only begins alike.
pub async fn a_watch_yields_its_range_only(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let ranges = [
        KeyRange::one(&key("a")),
        KeyRange::resource(&plane("blue"), "", "configmaps", Some("default")),
        blue(),
    ];
    let mut watches = Vec::new();
    for range in ranges {
        watches.push(store.watch(range, before, false).await.expect("the store watches"));
    }
    let mut all = Vec::new();
    for key in [key("a"), key("aa"), key_in("blue-2", "a"), key("b")] {
        all.push(write(&store, &key, "x").await);
    }
    let last = write(&store, &key("a"), "y").await;
    let expected =
        [vec![all[0], last], vec![all[0], all[1], all[3], last], vec![all[0], all[1], all[3], last]];
    for (watch, expected) in watches.iter_mut().zip(expected) {
        let found: Vec<_> = events_until(watch, last).await.iter().map(|event| event.revision).collect();
        assert_eq!(found, expected);
    }
}

/// However many and large they are: here 100 of 15 KiB, with as much before them.
pub async fn the_changes_of_one_revision_are_in_one_item(store: Shared) {
    let many = |fill: &str| {
        changes((0..100).map(|nth| put(&key(&format!("{nth:03}")), &fill.repeat(15_000))).collect())
    };
    let before = store.revision().await.expect("the store tells its revision");
    let mut live = store.watch(blue(), before, true).await.expect("the store watches");
    let mut revisions = Vec::new();
    for fill in ["a", "b", "c"] {
        revisions.push(done(&store, many(fill)).await);
    }
    let mut late = store.watch(blue(), before, true).await.expect("the store watches");
    for watch in [&mut live, &mut late] {
        let mut found = Vec::new();
        while found.len() < 300 {
            let WatchItem::Events(events) = next(watch).await else { continue };
            assert_eq!(events.len() % 100, 0, "a revision was split");
            found.extend(events.into_iter().map(|event| event.revision));
        }
        let expected: Vec<_> = revisions.iter().flat_map(|revision| [*revision; 100]).collect();
        assert_eq!(found, expected);
    }
}

/// For puts and deletions, from history and live.
pub async fn previous_values_come_where_they_are_asked_for(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let mut live = store.watch(blue(), before, true).await.expect("the store watches");
    let mut without = store.watch(blue(), before, false).await.expect("the store watches");
    let made = write(&store, &key("a"), "one").await;
    let changed = write(&store, &key("a"), "two").await;
    let deleted = done(&store, changes(vec![Change::Delete(key("a"))])).await;
    let mut late = store.watch(blue(), before, true).await.expect("the store watches");
    let held = |value: &'static str, modified| {
        Some(KeyValue { key: key("a"), value: Bytes::from_static(value.as_bytes()), created: made, modified })
    };
    for watch in [&mut live, &mut late] {
        let found: Vec<_> =
            events_until(watch, deleted).await.into_iter().map(|event| event.previous).collect();
        assert_eq!(found, [None, held("one", made), held("two", changed)]);
    }
    let found = events_until(&mut without, deleted).await;
    assert!(found.iter().all(|event| event.previous.is_none()));
}

/// A watch that resumes after any revision yields the remaining changes, each once.
pub async fn a_watch_resumes_after_any_revision(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let mut revisions = Vec::new();
    for nth in 0..30 {
        revisions.push(write(&store, &key(&format!("{}", nth % 7)), &nth.to_string()).await);
    }
    for (nth, after) in std::iter::once(before).chain(revisions.clone()).enumerate().take(30) {
        let mut watch = store.watch(blue(), after, false).await.expect("the store watches");
        let events = events_until(&mut watch, revisions[29]).await;
        let found: Vec<_> = events.iter().map(|event| event.revision).collect();
        assert_eq!(found, revisions[nth..]);
    }
}

/// From the compacted revision on it works.
pub async fn a_watch_from_below_the_compacted_revision_fails(store: Shared) {
    let mut revisions = Vec::new();
    for nth in 0..10 {
        revisions.push(write(&store, &key("a"), &nth.to_string()).await);
    }
    store.compact(revisions[5]).await.expect("the store compacts");
    for after in [0, revisions[0], revisions[3]] {
        let error = match store.watch(blue(), after, false).await {
            Err(error) => error,
            Ok(mut watch) => tokio::time::timeout(PATIENCE, watch.next())
                .await
                .expect("the watch yields in time")
                .expect("the watch tells why it ends")
                .expect_err("the watch fails"),
        };
        let oldest = revisions[5];
        assert!(
            matches!(error, StoreError::Compacted { oldest: o, .. } if o == oldest),
            "{error} after {after}"
        );
    }
    let mut watch = store.watch(blue(), revisions[5], false).await.expect("the store watches");
    assert_eq!(events_until(&mut watch, revisions[9]).await.len(), 4);
}

/// At the current revision it waits.
pub async fn a_watch_from_a_future_revision_fails(store: Shared) {
    let current = write(&store, &key("a"), "x").await;
    let Err(error) = store.watch(blue(), current + 1000, false).await else {
        panic!("the future can't be watched")
    };
    assert!(matches!(error, StoreError::Future { asked, .. } if asked == current + 1000), "{error}");
    let mut watch = store.watch(blue(), current, false).await.expect("the store watches");
    let later = write(&store, &key("a"), "y").await;
    assert_eq!(events_until(&mut watch, later).await.len(), 1);
}

/// What was committed before the request is yielded before the progress.
pub async fn progress_comes_on_request_and_after_the_events(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let mut watch = store.watch(blue(), before, false).await.expect("the store watches");
    for round in 1..=20 {
        let revision = write(&store, &key("a"), &round.to_string()).await;
        store.request_progress().await.expect("the store takes the request");
        assert_eq!(events_until(&mut watch, revision).await.len(), 1);
        progress_until(&mut watch, revision).await;
    }
}

/// A cache of a part can so tell that it is up to date.
pub async fn progress_passes_what_happens_outside_of_the_range(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let mut watch = store.watch(blue(), before, false).await.expect("the store watches");
    for nth in 0..10 {
        let revision = write(&store, &key_in("red", &nth.to_string()), "x").await;
        store.request_progress().await.expect("the store takes the request");
        progress_until(&mut watch, revision).await;
    }
}

/// Where nothing happens at all.
pub async fn progress_comes_without_being_asked_for(store: Shared) {
    let revision = write(&store, &key("a"), "x").await;
    let mut watch = store.watch(blue(), revision, false).await.expect("the store watches");
    progress_until(&mut watch, revision).await;
}

/// Some that began before the writers, and some amid.
pub async fn watches_see_what_concurrent_writers_write_once_and_in_order(store: Shared) {
    const WRITERS: usize = 6;
    const TIMES: usize = 40;
    let before = store.revision().await.expect("the store tells its revision");
    let mut watches = Vec::new();
    for _ in 0..2 {
        watches.push(store.watch(KeyRange::all_planes(), before, true).await.expect("the store watches"));
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move { churn(&store, writer, TIMES).await })
        })
        .collect();
    let mut committed = Vec::new();
    for (nth, writer) in writers.into_iter().enumerate() {
        committed.extend(writer.await.expect("the writer ends well"));
        if nth < 2 {
            watches.push(store.watch(KeyRange::all_planes(), before, true).await.expect("the store watches"));
        }
    }
    committed.sort_unstable();
    let last = *committed.last().expect("something was written");
    let live: HashMap<_, _> =
        read(&store, KeyRange::all_planes()).await.into_iter().map(|item| (item.key.clone(), item)).collect();
    for watch in &mut watches {
        let events = events_until(watch, last).await;
        let mut revisions: Vec<_> = events.iter().map(|event| event.revision).collect();
        assert!(revisions.is_sorted(), "events came out of order");
        revisions.dedup();
        assert_eq!(revisions, committed);
        assert_eq!(replayed(events), live);
    }
}

/// Puts and deletes keys that other writers use too; returns the revisions that it made.
async fn churn(store: &Shared, writer: usize, times: usize) -> Vec<Revision> {
    let mut revisions = Vec::new();
    for nth in 0..times {
        let name = |offset: usize| key(&((writer * 3 + nth * 5 + offset) % 11).to_string());
        let value = format!("{writer}-{nth}");
        let commit = changes(vec![
            put(&name(0), &value),
            put(&key(&format!("own-{writer}")), &value),
            Change::Delete(name(1)),
        ]);
        revisions.push(done(store, commit).await);
    }
    revisions
}

/// What the events make, with each previous value checked against those before it.
fn replayed(events: Vec<Event>) -> HashMap<Key, KeyValue> {
    let mut live = HashMap::new();
    for event in events {
        let previous = match event.value {
            Some(value) => {
                let now = KeyValue {
                    key: event.key.clone(),
                    value,
                    created: event.created,
                    modified: event.revision,
                };
                live.insert(event.key, now)
            }
            None => live.remove(&event.key),
        };
        assert_eq!(previous, event.previous);
    }
    live
}

/// Thousands of changes behind.
pub async fn a_watch_that_is_read_late_loses_nothing(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let mut watch = store.watch(blue(), before, false).await.expect("the store watches");
    let filler = "x".repeat(4000);
    let mut last = before;
    for nth in 0..40 {
        let all =
            (0..100).map(|key_nth| put(&key(&format!("{key_nth}")), &format!("{nth} {filler}"))).collect();
        last = done(&store, changes(all)).await;
    }
    let events = events_until(&mut watch, last).await;
    assert_eq!(events.len(), 4000);
    assert!(events.is_sorted_by_key(|event| event.revision));
}

/// Dropping a watch leaves the others open, and new ones can be opened.
pub async fn dropping_a_watch_leaves_the_others(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(store.watch(blue(), before, false).await.expect("the store watches"));
    }
    let first = write(&store, &key("a"), "x").await;
    watches.truncate(25);
    watches.push(store.watch(blue(), before, false).await.expect("the store watches"));
    let second = write(&store, &key("a"), "y").await;
    for watch in &mut watches {
        let found: Vec<_> = events_until(watch, second).await.iter().map(|event| event.revision).collect();
        assert_eq!(found, [first, second]);
    }
}

/// Read while others write and compact: what it yields is each revision from its first on, until it is told that what comes
/// next is compacted. From there it can't be resumed; from the compacted revision it can.
pub async fn a_watch_amid_compactions_has_no_gap_or_says_that_it_is_compacted(store: Shared) {
    const TIMES: u64 = 300;
    let before = store.revision().await.expect("the store tells its revision");
    let late = store.watch(blue(), before, false).await.expect("the store watches");
    let live = store.watch(blue(), before, false).await.expect("the store watches");
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            let mut revisions = Vec::new();
            for nth in 0..TIMES {
                revisions.push(write(&store, &key(&(nth % 5).to_string()), &nth.to_string()).await);
                if nth % 50 == 49 {
                    store.compact(revisions[nth as usize - 5]).await.expect("the store compacts");
                }
            }
            revisions
        })
    };
    let reader = tokio::spawn(follow(live, TIMES as usize));
    let revisions = writer.await.expect("the writer ends well");
    let last = revisions[revisions.len() - 1];
    for (found, compacted) in
        [reader.await.expect("the reader ends well"), follow(late, TIMES as usize).await]
    {
        assert_eq!(found, revisions[..found.len()], "a gap, a repetition, or out of order");
        assert!(found.len() == revisions.len() || compacted);
    }
    let oldest = revisions[TIMES as usize - 6];
    let mut resumed = store.watch(blue(), oldest, false).await.expect("the store watches");
    assert_eq!(events_until(&mut resumed, last).await.len(), 5);
}

/// The revisions that a watch yields, up to so many, and whether it ended since something was compacted.
async fn follow(mut watch: WatchStream, count: usize) -> (Vec<Revision>, bool) {
    let mut found = Vec::new();
    while found.len() < count {
        match tokio::time::timeout(PATIENCE, watch.next()).await.expect("the watch yields in time") {
            Some(Ok(WatchItem::Events(events))) => found.extend(events.iter().map(|event| event.revision)),
            Some(Ok(WatchItem::Progress(_))) => {}
            Some(Err(StoreError::Compacted { .. })) => return (found, true),
            other => panic!("{other:?}"),
        }
    }
    (found, false)
}
