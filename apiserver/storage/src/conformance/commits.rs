//! Facts about commits.

use super::*;
use crate::StoreError;
use std::collections::BTreeSet;

/// Whether or not the value is another.
pub async fn each_commit_makes_a_later_revision(store: Shared) {
    let mut last = store.revision().await.expect("the store tells its revision");
    for value in ["x", "x", "y"] {
        let revision = write(&store, &key("a"), value).await;
        assert!(revision > last);
        assert_eq!(store.revision().await.expect("the store tells its revision"), revision);
        last = revision;
    }
}

/// A key that comes back is a new one.
pub async fn an_update_keeps_the_creation_and_a_deletion_ends_it(store: Shared) {
    let made = write(&store, &key("a"), "one").await;
    let changed = write(&store, &key("a"), "two").await;
    let found = store.get(&key("a")).await.expect("the store reads").expect("the key is there");
    assert_eq!((found.created, found.modified), (made, changed));
    done(&store, changes(vec![Change::Delete(key("a"))])).await;
    assert_eq!(store.get(&key("a")).await.expect("the store reads"), None);
    let again = write(&store, &key("a"), "three").await;
    let found = store.get(&key("a")).await.expect("the store reads").expect("the key is there");
    assert_eq!((found.created, found.modified), (again, again));
}

/// 0 stands for absence, before a key is made and after it is deleted.
pub async fn an_expectation_compares_the_last_write(store: Shared) {
    let expecting =
        |modified, change| Commit { expect: vec![Expect { key: key("a"), modified }], changes: vec![change] };
    let one = done(&store, expecting(0, put(&key("a"), "one"))).await;
    let two = done(&store, expecting(one, put(&key("a"), "two"))).await;
    for wrong in [0, one, two + 1] {
        let refused =
            store.commit(expecting(wrong, put(&key("a"), "three"))).await.expect("the store answers");
        assert!(matches!(refused, Committed::Refused(_)), "{wrong} was taken for {two}");
    }
    done(&store, expecting(two, Change::Delete(key("a")))).await;
    done(&store, expecting(0, put(&key("a"), "four"))).await;
}

/// In the order of the expectations, for those that hold too.
pub async fn a_refusal_tells_what_is_there_and_changes_nothing(store: Shared) {
    let a = write(&store, &key("a"), "1").await;
    let b = write(&store, &key("b"), "2").await;
    let expect = [("c", 0), ("b", a), ("a", a)].map(|(name, modified)| Expect { key: key(name), modified });
    let commit = Commit { expect: expect.into(), changes: vec![put(&key("a"), "9"), put(&key("d"), "9")] };
    let found = |name: &str, value: &'static str, at| {
        Some(KeyValue {
            key: key(name),
            value: Bytes::from_static(value.as_bytes()),
            created: at,
            modified: at,
        })
    };
    let expected = Committed::Refused(vec![None, found("b", "2", b), found("a", "1", a)]);
    assert_eq!(store.commit(commit).await.expect("the store answers"), expected);
    assert_eq!(store.revision().await.expect("the store tells its revision"), b);
    assert_eq!(read(&store, blue()).await.len(), 2);
}

/// Puts and deletions alike.
pub async fn a_commit_of_many_keys_has_one_revision(store: Shared) {
    write(&store, &key("gone"), "x").await;
    let mut all: Vec<_> = (0..100).map(|nth| put(&key(&format!("{nth:03}")), "x")).collect();
    all.push(Change::Delete(key("gone")));
    let revision = done(&store, changes(all)).await;
    let found = read(&store, blue()).await;
    assert_eq!(found.len(), 100);
    assert!(found.iter().all(|item| (item.created, item.modified) == (revision, revision)));
}

/// A deletion of an absent key makes no revision, and no watch sees it.
pub async fn deleting_what_is_absent_makes_no_revision(store: Shared) {
    let before = write(&store, &key("a"), "x").await;
    let nothing = vec![Change::Delete(key("b")), Change::DeleteRange(KeyRange::plane(&plane("red")))];
    for commit in [changes(nothing), Commit::default()] {
        assert_eq!(done(&store, commit).await, before);
    }
    assert_eq!(store.revision().await.expect("the store tells its revision"), before);
}

/// All of it and nothing else, together with other changes.
pub async fn a_range_is_deleted_at_one_revision(store: Shared) {
    for nth in 0..150 {
        write(&store, &key(&format!("{nth:03}")), "x").await;
    }
    let before = write(&store, &key_in("blue-2", "a"), "x").await;
    let commit = changes(vec![Change::DeleteRange(blue()), put(&key_in("red", "a"), "x")]);
    let revision = done(&store, commit).await;
    assert_eq!(read(&store, blue()).await, []);
    assert_eq!(read(&store, KeyRange::all_planes()).await.len(), 2);
    assert_eq!(read_at(&store, blue(), before).await.len(), 150);
    let mut watch = store.watch(blue(), before, true).await.expect("the store watches");
    let events = events_until(&mut watch, revision).await;
    assert_eq!(events.len(), 150);
    assert!(
        events
            .iter()
            .all(|event| event.revision == revision && event.value.is_none() && event.previous.is_some())
    );
}

/// Clearing a range removes every key of it and none beside it, however many revisions that takes.
pub async fn a_range_of_any_size_is_cleared_in_steps(store: Shared) {
    let keys = 2 * crate::CLEAR_STEP + 100;
    for first in (0..keys).step_by(100) {
        let some = (first..first + 100).map(|nth| put(&key(&format!("{nth:05}")), "x")).collect();
        done(&store, changes(some)).await;
    }
    let before = write(&store, &key_in("blue-2", "a"), "x").await;
    let mut watch = store.watch(KeyRange::all_planes(), before, false).await.expect("the store watches");
    store.clear(blue()).await.expect("the store clears");
    assert_eq!(
        names(&read(&store, KeyRange::all_planes()).await),
        ["planes/blue-2/core/configmaps/default/a"]
    );
    // A store may write for itself meanwhile, so that its revision tells nothing: a write here ends what is looked at.
    let after = write(&store, &key_in("blue-2", "b"), "x").await;
    let mut events = events_until(&mut watch, after).await;
    assert_eq!(events.pop().map(|event| event.revision), Some(after));
    let gone: BTreeSet<_> = events.iter().map(|event| event.key.as_bytes().clone()).collect();
    assert_eq!((events.len(), gone.len()), (keys, keys));
    let revisions: BTreeSet<_> = events.iter().map(|event| event.revision).collect();
    assert!(revisions.len() >= 3, "it was one step");
    let nothing = store.clear_some(blue()).await.expect("the store clears");
    assert_eq!(nothing.rest, None);
    let after = write(&store, &key_in("blue-2", "c"), "x").await;
    assert_eq!(events_until(&mut watch, after).await.len(), 1, "clearing what is empty made an event");
}

/// With [`StoreError::TooLarge`], and nothing happens.
pub async fn a_commit_over_a_limit_is_refused(store: Shared) {
    let before = store.revision().await.expect("the store tells its revision");
    let many = (0..=crate::MAX_OPERATIONS).map(|nth| put(&key(&nth.to_string()), "x")).collect();
    let large = Bytes::from(vec![0; crate::MAX_VALUE_BYTES + 1]);
    let rows = [
        many,
        vec![Change::Put(key("a"), large)],
        vec![put(&key(&"x".repeat(crate::MAX_KEY_BYTES)), "x")],
        vec![put(&key("a"), "x"), Change::Delete(key("a"))],
        vec![put(&key("a"), "x"), Change::DeleteRange(blue())],
    ];
    for row in rows {
        let error = store.commit(changes(row)).await.expect_err("it is too large");
        assert!(matches!(error, StoreError::TooLarge(_)), "{error}");
    }
    assert_eq!(store.revision().await.expect("the store tells its revision"), before);
}

/// A read sees every answered commit, whichever task made it.
pub async fn a_read_sees_every_commit_that_was_answered(store: Shared) {
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for nth in 0..25 {
                    let key = key(&format!("{task}-{nth}"));
                    let revision = write(&store, &key, "x").await;
                    let found = store.get(&key).await.expect("the store reads").expect("the key is there");
                    assert_eq!(found.modified, revision);
                    assert!(store.revision().await.expect("the store tells its revision") >= revision);
                    let listed = store.range(Range::all(blue())).await.expect("the store reads");
                    assert!(listed.revision >= revision && listed.items.contains(&found));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
}

/// N tasks that each add one M times make N * M.
pub async fn of_many_increments_of_one_key_none_is_lost(store: Shared) {
    const TASKS: usize = 16;
    const TIMES: usize = 10;
    write(&store, &key("counter"), "0").await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..TIMES {
                    while !increment(&store).await {}
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    let found = store.get(&key("counter")).await.expect("the store reads").expect("the key is there");
    assert_eq!(text(&found.value), (TASKS * TIMES).to_string());
}

async fn increment(store: &Shared) -> bool {
    let found = store.get(&key("counter")).await.expect("the store reads").expect("the key is there");
    let count: usize = text(&found.value).parse().expect("the counter is a number");
    swap(store, &[found], vec![put(&key("counter"), &(count + 1).to_string())]).await
}

/// At each revision, not only at the end.
pub async fn concurrent_commits_that_move_a_unit_keep_the_sum(store: Shared) {
    const ACCOUNTS: usize = 4;
    let start =
        done(&store, changes((0..ACCOUNTS).map(|nth| put(&key(&nth.to_string()), "100")).collect())).await;
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for nth in 0..10 {
                    while !move_unit(&store, (task + nth) % ACCOUNTS, (task + nth + 1 + nth % 3) % ACCOUNTS)
                        .await
                    {}
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    let mut revisions = BTreeSet::from([start]);
    for at in start..=store.revision().await.expect("the store tells its revision") {
        let found = read_at(&store, blue(), at).await;
        let sum: i64 =
            found.iter().map(|item| text(&item.value).parse::<i64>().expect("an account is a number")).sum();
        assert_eq!((found.len(), sum), (ACCOUNTS, 100 * ACCOUNTS as i64), "at {at}");
        revisions.extend(found.iter().map(|item| item.modified));
    }
    assert_eq!(revisions.len(), 81, "each commit has a revision of its own");
}

async fn move_unit(store: &Shared, from: usize, to: usize) -> bool {
    let mut found = Vec::new();
    for account in [from, to] {
        found.extend(store.get(&key(&account.to_string())).await.expect("the store reads"));
    }
    let amounts = found.iter().map(|item| text(&item.value).parse::<i64>().expect("an account is a number"));
    let moved = amounts.zip([-1, 1]).map(|(amount, by)| (amount + by).to_string());
    let writes = found.iter().zip(moved).map(|(item, amount)| put(&item.key, &amount)).collect();
    swap(store, &found, writes).await
}
