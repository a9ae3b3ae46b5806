//! Facts about reads and compaction.

use super::*;
use crate::{StoreError, Usage};

/// Revision 0 is free to mean "before all".
pub async fn a_new_store_is_empty_and_beyond_revision_zero(store: Shared) {
    let result = store.range(Range::all(KeyRange::all_planes())).await.expect("the store reads");
    assert_eq!((result.items.len(), result.more), (0, false));
    assert!(result.revision > 0);
    assert_eq!(store.revision().await.expect("the store tells its revision"), result.revision);
    assert_eq!(store.get(&key("a")).await.expect("the store reads"), None);
}

/// Whatever order they were written in.
pub async fn keys_are_read_in_byte_order(store: Shared) {
    let mut written = ["b", "a-b", "a", "a.b", "ab", "a0", "c", "B"].map(key);
    for key in &written {
        write(&store, key, "x").await;
    }
    written.sort();
    let found: Vec<_> = read(&store, blue()).await.into_iter().map(|item| item.key).collect();
    assert_eq!(found, written);
}

/// A limit leaves out the last keys, and the answer says that there are more.
pub async fn a_limit_leaves_out_the_last_keys(store: Shared) {
    for name in ["a", "b", "c"] {
        write(&store, &key(name), name).await;
    }
    for (limit, expected) in [(0, 3), (1, 1), (2, 2), (3, 3), (4, 3)] {
        let result = store.range(Range { limit, ..Range::all(blue()) }).await.expect("the store reads");
        assert_eq!((result.items.len(), result.more), (expected, expected < 3), "limit {limit}");
        assert_eq!(result.items[0].key, key("a"));
    }
}

/// Whatever is written in between.
pub async fn pages_read_at_one_revision_hold_each_key_once(store: Shared) {
    for nth in 0..20 {
        write(&store, &key(&format!("{nth:02}")), "x").await;
    }
    let expected = names(&read(&store, blue()).await);
    let first = store.range(Range { limit: 3, ..Range::all(blue()) }).await.expect("the store reads");
    let (mut found, mut more, at) = (first.items, first.more, Some(first.revision));
    while more {
        let last = found.last().expect("a page that is not the last holds keys");
        let keys = blue().from_key(KeyRange::one(&last.key).end);
        write(&store, &key(&format!("new-{}", found.len())), "x").await;
        done(&store, changes(vec![Change::Delete(key("19"))])).await;
        let page = store.range(Range { limit: 3, at, ..Range::all(keys) }).await.expect("the store reads");
        more = page.more;
        found.extend(page.items);
    }
    assert_eq!(names(&found), expected);
}

/// All else is as it is with values.
pub async fn keys_only_leaves_values_out(store: Shared) {
    let revision = write(&store, &key("a"), "value").await;
    let result = store.range(Range { keys_only: true, ..Range::all(blue()) }).await.expect("the store reads");
    let expected = KeyValue { key: key("a"), value: Bytes::new(), created: revision, modified: revision };
    assert_eq!(result.items, [expected]);
}

/// Planes whose names begin alike are apart.
pub async fn a_range_holds_no_key_of_its_neighbours(store: Shared) {
    for plane in ["blu", "blue", "blue-2", "blue0"] {
        write(&store, &key_in(plane, "a"), plane).await;
    }
    write(&store, &Key::system("a"), "system").await;
    assert_eq!(names(&read(&store, blue()).await), names(&read(&store, KeyRange::one(&key("a"))).await));
    assert_eq!(read(&store, KeyRange::all_planes()).await.len(), 4);
    // A wrapper has records of its own there.
    let everything = names(&read(&store, KeyRange::everything()).await);
    let written = ["blu", "blue", "blue-2", "blue0"].map(|plane| key_in(plane, "a"));
    for key in written.iter().chain([&Key::system("a")]) {
        assert!(everything.contains(&format!("{key:?}")), "{key:?} is not among {everything:?}");
    }
    assert_eq!(read(&store, blue().from_key(KeyRange::one(&key("a")).end)).await, []);
}

/// In whatever order they are, with little or much between them, and with a long history.
pub async fn several_ranges_read_as_each_of_them_does(store: Shared) {
    let planes = ["a", "a-b", "b", "c", "d", "e"];
    for plane in planes.iter().filter(|plane| **plane != "c") {
        for name in ["one", "three", "two"] {
            write(&store, &key_in(plane, name), plane).await;
        }
        // Something else of the plane, which is large for one of them.
        let size = if *plane == "b" { 40_000 } else { 10 };
        let path = ObjectPath {
            group: "apps".into(),
            resource: "deployments".into(),
            namespace: Some("default".into()),
            name: "between".into(),
        };
        write(&store, &Key::object(&self::plane(plane), &path), &"x".repeat(size)).await;
    }
    let mut at = 0;
    for _ in 0..40 {
        at = write(&store, &key_in("d", "one"), "again").await;
    }
    done(&store, changes(vec![Change::Delete(key_in("e", "two"))])).await;
    let range = |name: &&str| KeyRange::resource(&plane(name), "", "configmaps", None);
    let in_order: Vec<KeyRange> = ["a-b", "a", "b", "c", "d", "e"].iter().map(range).collect();
    let other: Vec<KeyRange> = planes.iter().rev().map(range).collect();
    for (ranges, limit) in [(&in_order, 0), (&other, 0), (&in_order, 2), (&in_order, 3), (&Vec::new(), 0)] {
        let read = store.ranges(ranges, at, limit).await.expect("the store reads");
        assert_eq!(read.len(), ranges.len());
        for (keys, found) in ranges.iter().zip(read) {
            let range = Range { keys: keys.clone(), at: Some(at), limit, keys_only: false };
            assert_eq!(found, store.range(range).await.expect("the store reads"), "{keys:?}, limit {limit}");
        }
    }
}

/// The result still tells the store's own revision.
pub async fn a_past_revision_reads_as_it_was(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let made = write(&store, &key("a"), "one").await;
    let changed = write(&store, &key("a"), "two").await;
    let other = write(&store, &key("b"), "three").await;
    let deleted = done(&store, changes(vec![Change::Delete(key("a"))])).await;
    let again = write(&store, &key("a"), "four").await;
    let rows: [(Revision, &[(&str, &str)]); 6] = [
        (before, &[]),
        (made, &[("a", "one")]),
        (changed, &[("a", "two")]),
        (other, &[("a", "two"), ("b", "three")]),
        (deleted, &[("b", "three")]),
        (again, &[("a", "four"), ("b", "three")]),
    ];
    for (at, expected) in rows {
        let result =
            store.range(Range { at: Some(at), ..Range::all(blue()) }).await.expect("the store reads");
        let found: Vec<_> = result.items.iter().map(|item| (item.key.clone(), text(&item.value))).collect();
        let expected: Vec<_> = expected.iter().map(|(name, value)| (key(name), *value)).collect();
        assert_eq!((found, result.revision), (expected, again), "at {at}");
    }
}

/// A read of a future revision fails with an error that names both revisions.
pub async fn a_future_revision_cannot_be_read(store: Shared) {
    let revision = write(&store, &key("a"), "x").await;
    let range = Range { at: Some(revision + 1000), ..Range::all(blue()) };
    let error = store.range(range).await.expect_err("the future can't be read");
    assert!(matches!(error, StoreError::Future { asked, .. } if asked == revision + 1000), "{error}");
}

/// At the compacted revision itself it can.
pub async fn below_the_compacted_revision_nothing_can_be_read(store: Shared) {
    let first = write(&store, &key("a"), "one").await;
    let second = write(&store, &key("a"), "two").await;
    let third = write(&store, &key("a"), "three").await;
    store.compact(second).await.expect("the store compacts");
    let range = Range { at: Some(first), ..Range::all(blue()) };
    let error = store.range(range).await.expect_err("it is compacted");
    assert!(matches!(error, StoreError::Compacted { asked, .. } if asked == first), "{error}");
    for (at, expected) in [(second, "two"), (third, "three")] {
        assert_eq!(text(&read_at(&store, blue(), at).await[0].value), expected);
    }
}

/// Each way has its error.
pub async fn compaction_goes_forward_only_and_not_ahead(store: Shared) {
    let first = write(&store, &key("a"), "one").await;
    let second = write(&store, &key("a"), "two").await;
    let error = store.compact(second + 1000).await.expect_err("that is not yet");
    assert!(matches!(error, StoreError::Future { .. }), "{error}");
    store.compact(second).await.expect("the store compacts");
    for again in [second, first] {
        let error = store.compact(again).await.expect_err("that is done");
        assert!(matches!(error, StoreError::Compacted { asked, .. } if asked == again), "{error}");
    }
}

/// However old it is.
pub async fn compaction_keeps_what_is_live(store: Shared) {
    let old = write(&store, &key("old"), "kept").await;
    for nth in 0..50 {
        write(&store, &key("busy"), &nth.to_string()).await;
    }
    write(&store, &key("gone"), "x").await;
    let deleted = done(&store, changes(vec![Change::Delete(key("gone"))])).await;
    let before = read(&store, blue()).await;
    store.compact(deleted).await.expect("the store compacts");
    let last = write(&store, &key("later"), "x").await;
    store.compact(last).await.expect("the store compacts");
    let after = read(&store, blue()).await;
    assert_eq!(before, [after[0].clone(), after[2].clone()]);
    assert_eq!((after[2].modified, text(&after[0].value)), (old, "49"));
}

/// With neighbours that have none.
pub async fn a_key_with_a_long_history_reads_right_at_each_revision(store: Shared) {
    write(&store, &key("a"), "first").await;
    let mut history = Vec::new();
    for nth in 0..60 {
        history.push((write(&store, &key("b"), &nth.to_string()).await, nth));
    }
    write(&store, &key("c"), "last").await;
    for (at, nth) in history {
        let found = read_at(&store, blue(), at).await;
        assert_eq!((found.len(), text(&found[1].value)), (2, nth.to_string().as_str()));
    }
    assert_eq!(names(&read(&store, blue()).await).len(), 3);
}

/// It can be expected, watched and counted.
pub async fn an_empty_value_is_not_an_absent_key(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let revision = write(&store, &key("a"), "").await;
    let found = store.get(&key("a")).await.expect("the store reads").expect("the key is there");
    assert_eq!((found.value.len(), found.modified), (0, revision));
    assert!(swap(&store, &[found], vec![]).await);
    let mut watch = store.watch(blue(), before, false).await.expect("the store watches");
    assert_eq!(events_until(&mut watch, revision).await[0].value, Some(Bytes::new()));
}

/// One MiB of all byte values.
pub async fn a_large_value_reads_back(store: Shared) {
    let value: Bytes = (0..1 << 20).map(|nth: u32| (nth.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let before = done(&store, changes(vec![Change::Put(key("a"), value.clone())])).await;
    let found = store.get(&key("a")).await.expect("the store reads").expect("the key is there");
    assert_eq!(found.value, value);
    let after = done(&store, changes(vec![Change::Delete(key("a"))])).await;
    let mut watch = store.watch(blue(), before, true).await.expect("the store watches");
    assert_eq!(events_until(&mut watch, after).await[0].previous, Some(found));
}

/// Not those of the past.
pub async fn usage_counts_live_keys_and_their_bytes(store: Shared) {
    assert_eq!(store.usage(blue()).await.expect("the store counts"), Usage::default());
    for (name, value) in [("a", "old and long"), ("a", "new"), ("b", ""), ("c", "gone")] {
        write(&store, &key(name), value).await;
    }
    write(&store, &key_in("red", "a"), "elsewhere").await;
    done(&store, changes(vec![Change::Delete(key("c"))])).await;
    let counted = store.usage(blue()).await.expect("the store counts");
    let bytes = (key("a").as_bytes().len() + key("b").as_bytes().len() + "new".len()) as u64;
    // A wrapper's values may be longer than they were given, each by the same.
    assert!(counted.keys == 2 && counted.bytes >= bytes, "{counted:?}");
    for (name, value) in [("a", "new"), ("b", "")] {
        write(&store, &key_in("teal", name), value).await;
    }
    let same = store.usage(KeyRange::plane(&plane("teal"))).await.expect("the store counts");
    assert_eq!(counted, same, "history counts");
}

/// Which is how much room a plane takes.
pub async fn usage_counts_each_plane_by_itself(store: Shared) {
    for (nth, plane) in ["blue", "blue-2", "red"].into_iter().enumerate() {
        for key_nth in 0..=nth {
            write(&store, &key_in(plane, &key_nth.to_string()), &"v".repeat(100 * (nth + 1))).await;
        }
    }
    write(&store, &Key::system("a"), "system").await;
    let of = async |keys| store.usage(keys).await.expect("the store counts");
    let (mut keys, mut bytes) = (0, 0);
    for (nth, name) in ["blue", "blue-2", "red"].into_iter().enumerate() {
        let key_len = key_in(name, "0").as_bytes().len();
        let expected =
            Usage { keys: nth as u64 + 1, bytes: ((nth + 1) * (key_len + 100 * (nth + 1))) as u64 };
        assert_eq!(of(KeyRange::plane(&plane(name))).await, expected, "{name}");
        (keys, bytes) = (keys + expected.keys, bytes + expected.bytes);
    }
    assert_eq!(of(KeyRange::all_planes()).await, Usage { keys, bytes });
}

/// Keys that are gone, changed or back since, each once and as they were, whatever the size of a page.
pub async fn pages_of_the_past_hold_what_was_there_then(store: Shared) {
    for nth in 0..30 {
        write(&store, &key(&format!("{nth:02}")), "then").await;
    }
    let at = done(&store, changes(vec![Change::Delete(key("07")), Change::Delete(key("29"))])).await;
    let expected = read_at(&store, blue(), at).await;
    assert_eq!(expected.len(), 28);
    done(&store, changes(vec![Change::DeleteRange(blue())])).await;
    for nth in (0..40).step_by(3) {
        write(&store, &key(&format!("{nth:02}")), "now").await;
    }
    for limit in [1, 7, 28, 100] {
        let (mut found, mut keys) = (Vec::new(), blue());
        loop {
            let ask = Range { at: Some(at), limit, ..Range::all(keys.clone()) };
            let page = store.range(ask).await.expect("the store reads the past");
            assert!(page.items.len() <= limit);
            found.extend(page.items);
            let Some(last) = found.last().filter(|_| page.more) else { break };
            keys = blue().from_key(KeyRange::one(&last.key).end);
        }
        assert_eq!(found, expected, "in pages of {limit}");
    }
}

/// Whatever is written after it.
pub async fn a_hold_tells_a_revision_at_which_all_can_be_read(store: Shared) {
    write(&store, &key("a"), "one").await;
    let hold = store.hold().await.expect("the store holds");
    let before = read(&store, blue()).await;
    write(&store, &key("a"), "two").await;
    write(&store, &key("b"), "two").await;
    assert_eq!(read_at(&store, blue(), hold.revision).await, before);
}

/// More keys than are read at a time.
pub async fn an_archive_holds_a_range_as_of_one_revision_while_writes_go_on(store: Shared) {
    use crate::archive::{Decoder, Export, Header, Item, Kind, Record, export};
    for first in (0..1200).step_by(100) {
        let some = (first..first + 100).map(|nth| put(&key(&format!("{nth:05}")), "then")).collect();
        done(&store, changes(some)).await;
    }
    write(&store, &key_in("red", "a"), "elsewhere").await;
    let hold = store.hold().await.expect("the store holds");
    let at = hold.revision;
    let header = Header::new(Kind::Plane, 0, "2026-01-01T00:00:00Z".into());
    let what = Export { store: store.clone(), keys: blue(), hold };
    let mut pieces = std::pin::pin!(export(what, header).expect("the header is small"));
    let (mut decoder, mut found, mut headers) = (Decoder::default(), Vec::new(), Vec::new());
    while let Some(piece) = pieces.next().await {
        decoder.feed(&piece.expect("the store is read"));
        while let Some(item) = decoder.next_item().expect("the archive is right") {
            match item {
                Item::Header(header) => headers.push(header),
                Item::Record(record) => found.push(record),
            }
        }
        write(&store, &key("00900"), "now").await;
        done(&store, changes(vec![Change::Delete(key(&format!("{:05}", 600 + found.len() % 600)))])).await;
    }
    assert_eq!(decoder.finish().expect("the archive is complete"), 1200);
    assert_eq!(headers.iter().map(|header| header.revision).collect::<Vec<_>>(), [at]);
    let expected: Vec<Record> = read_at(&store, blue(), at).await.into_iter().map(Record::from).collect();
    assert!(found == expected, "the archive is not the store as of {at}");
}
