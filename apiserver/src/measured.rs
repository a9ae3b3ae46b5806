//! A store that is measured: what each operation took, under the names that kube-apiserver has for its etcd.

use async_trait::async_trait;
use freehold_apiserver_storage::{
    Change, Cleared, Commit, Committed, Hold, Key, KeyRange, KeyValue, Range, RangeResult, Revision, Store,
    StoreError, Usage, Watched,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

/// Upper bounds of the buckets of durations, in seconds: kube-apiserver's, and finer ones for engines that are faster.
const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
/// Most label sets: beyond, groups and resources are not told. Projects bring their own types.
const MOST_SERIES: usize = 2_000;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    operation: &'static str,
    group: String,
    resource: String,
}

/// What operations of a store took.
#[derive(Clone)]
pub(crate) struct StoreMetrics {
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
    requests: Family<Labels, Counter>,
    errors: Family<Labels, Counter>,
    series: Arc<AtomicUsize>,
}

impl StoreMetrics {
    pub(crate) fn new() -> Self {
        Self {
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            requests: Family::default(),
            errors: Family::default(),
            series: Arc::default(),
        }
    }

    /// Shows them at `/metrics`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let seconds = self.seconds.clone();
        registry.register("etcd_request_duration_seconds", "Time that operations of the store took", seconds);
        registry.register("etcd_requests", "Operations of the store", self.requests.clone());
        registry.register("etcd_request_errors", "Operations of the store that failed", self.errors.clone());
    }

    fn observe(&self, operation: &'static str, key: &[u8], since: Instant, failed: bool) {
        let (group, resource) = kind(key).unwrap_or_default();
        let mut labels = Labels { operation, group: group.to_owned(), resource: resource.to_owned() };
        if self.requests.get(&labels).is_none() && self.series.fetch_add(1, Relaxed) >= MOST_SERIES {
            labels = Labels { operation, group: String::new(), resource: String::new() };
        }
        self.seconds.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
        self.requests.get_or_create(&labels).inc();
        if failed {
            self.errors.get_or_create(&labels).inc();
        }
    }
}

/// The group and resource of an object's key (`planes/<plane>/<group>/<resource>/...`).
fn kind(key: &[u8]) -> Option<(&str, &str)> {
    let mut parts = std::str::from_utf8(key).ok()?.split('/');
    let objects = matches!(parts.next()?, "planes" | "layers");
    let (_, group, resource) = (parts.next()?, parts.next()?, parts.next()?);
    let real = objects && !group.is_empty() && !group.starts_with('.') && !resource.is_empty();
    real.then_some((if group == "core" { "" } else { group }, resource))
}

/// Measures what is done with a store from now on.
pub(crate) fn measure(store: &mut Arc<dyn Store>) -> StoreMetrics {
    let metrics = StoreMetrics::new();
    *store = Measured::over(store.clone(), &metrics);
    metrics
}

/// The store, measured.
pub(crate) struct Measured {
    store: Arc<dyn Store>,
    metrics: StoreMetrics,
}

impl Measured {
    /// Measures what is done with a store.
    pub(crate) fn over(store: Arc<dyn Store>, metrics: &StoreMetrics) -> Arc<dyn Store> {
        Arc::new(Self { store, metrics: metrics.clone() })
    }

    fn done<T>(
        &self,
        operation: &'static str,
        key: &[u8],
        since: Instant,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.metrics.observe(operation, key, since, result.is_err());
        result
    }
}

fn first_key(commit: &Commit) -> Vec<u8> {
    let key = match commit.changes.first() {
        Some(Change::Put(key, _) | Change::Delete(key)) => key.as_bytes(),
        Some(Change::DeleteRange(range)) => &range.start,
        None => return Vec::new(),
    };
    key.to_vec()
}

fn operation(commit: &Commit) -> &'static str {
    match commit.changes.first() {
        Some(Change::Put(key, _)) => {
            let made =
                |expect: &freehold_apiserver_storage::Expect| expect.key == *key && expect.modified == 0;
            if commit.expect.iter().any(made) { "create" } else { "update" }
        }
        Some(Change::Delete(_) | Change::DeleteRange(_)) => "delete",
        None => "get",
    }
}

#[async_trait]
impl Store for Measured {
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError> {
        let (start, since) = (range.keys.start.clone(), Instant::now());
        let operation = if range.keys.is_one() { "get" } else { "list" };
        let result = self.store.range(range).await;
        self.done(operation, &start, since, result)
    }

    async fn ranges(
        &self,
        ranges: &[KeyRange],
        at: Revision,
        limit: usize,
    ) -> Result<Vec<RangeResult>, StoreError> {
        let start = ranges.first().map(|keys| keys.start.clone()).unwrap_or_default();
        let since = Instant::now();
        let result = self.store.ranges(ranges, at, limit).await;
        self.done("list", &start, since, result)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let (key, operation, since) = (first_key(&commit), operation(&commit), Instant::now());
        let result = self.store.commit(commit).await;
        self.done(operation, &key, since, result)
    }

    async fn watch(&self, keys: KeyRange, after: Revision, previous: bool) -> Watched {
        self.store.watch(keys, after, previous).await
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.store.request_progress().await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let since = Instant::now();
        let result = self.store.compact(revision).await;
        self.done("compact", &[], since, result)
    }

    async fn usage(&self, keys: KeyRange) -> Result<Usage, StoreError> {
        self.store.usage(keys).await
    }

    async fn hold(&self) -> Result<Hold, StoreError> {
        self.store.hold().await
    }

    async fn clear(&self, keys: KeyRange) -> Result<(), StoreError> {
        let (start, since) = (keys.start.clone(), Instant::now());
        let result = self.store.clear(keys).await;
        self.done("delete", &start, since, result)
    }

    async fn clear_some(&self, keys: KeyRange) -> Result<Cleared, StoreError> {
        let (start, since) = (keys.start.clone(), Instant::now());
        let result = self.store.clear_some(keys).await;
        self.done("delete", &start, since, result)
    }

    async fn get(&self, key: &Key) -> Result<Option<KeyValue>, StoreError> {
        let since = Instant::now();
        let result = self.store.get(key).await;
        self.done("get", key.as_bytes(), since, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_apiserver_storage::{Expect, ObjectPath};
    use freehold_machinery::PlaneId;

    fn path(resource: &str) -> ObjectPath {
        ObjectPath {
            group: String::new(),
            resource: resource.to_owned(),
            namespace: Some("a".to_owned()),
            name: "b".to_owned(),
        }
    }

    #[tokio::test]
    async fn operations_of_the_store_are_counted_by_the_kind_of_their_objects() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = StoreMetrics::new();
        let engine = freehold_apiserver_storage_embedded::Embedded::open(dir.path()).unwrap();
        let store = Measured::over(engine, &metrics);
        let key = Key::object(&PlaneId::core(), &path("configmaps"));
        let commit = Commit {
            expect: vec![Expect { key: key.clone(), modified: 0 }],
            changes: vec![Change::Put(key.clone(), "x".into())],
        };
        drop(store.commit(commit).await.unwrap());
        assert!(store.get(&key).await.unwrap().is_some());
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"etcd_requests_total{operation="create",group="",resource="configmaps"} 1"#,
            r#"etcd_requests_total{operation="get",group="",resource="configmaps"} 1"#,
            r#"etcd_request_duration_seconds_count{operation="create",group="",resource="configmaps"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn any_number_of_types_makes_a_bounded_number_of_series() {
        let metrics = StoreMetrics::new();
        for index in 0..MOST_SERIES + 50 {
            let key = format!("planes/p/group{index}/things/a/b");
            metrics.observe("get", key.as_bytes(), Instant::now(), false);
        }
        let rest = Labels { operation: "get", group: String::new(), resource: String::new() };
        assert_eq!(metrics.requests.get_or_create(&rest).get(), 50);
    }
}
