//! The etcd engine passes the suite against the embedded store behind the facade, and is kept within its plane.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, Key, KeyRange, ObjectPath, Range, Store, StoreError, WatchItem,
};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_apiserver_storage_etcd::{Bounds, Etcd, EtcdOptions, Facade, Scope};
use freehold_machinery::PlaneId;
use futures_util::StreamExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

/// An embedded store behind a facade on a port of the loopback interface.
struct Served {
    store: Arc<Embedded>,
    url: String,
    _connections: JoinSet<()>,
    _dir: TempDir,
}

async fn serve(scope: Scope) -> Served {
    serve_with(scope, |facade| facade).await
}

/// An engine that is confined to the plane named `mine`.
async fn confined_to(served: &Served) -> Arc<Etcd> {
    let mut options = EtcdOptions::new([&served.url]);
    options.home = KeyRange::plane(&plane("mine"));
    Etcd::connect(options).await.unwrap()
}

async fn serve_with(scope: Scope, with: impl FnOnce(Facade) -> Facade) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let facade = with(Facade::new(store.clone(), "/freehold/"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut connections = JoinSet::new();
    connections.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let (facade, scope) = (facade.clone(), scope.clone());
            let service = service_fn(move |request| {
                let (facade, scope) = (facade.clone(), scope.clone());
                async move { Ok::<_, Infallible>(facade.handle(scope, request).await) }
            });
            connections.spawn(async move {
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Served { store, url, _connections: connections, _dir: dir }
}

async fn engine() -> (Arc<dyn Store>, Served) {
    let served = serve(Scope::All).await;
    let engine = Etcd::connect(EtcdOptions::new([&served.url])).await.unwrap();
    (engine, served)
}

freehold_apiserver_storage::conformance!(engine);

fn plane(name: &str) -> PlaneId {
    name.parse().unwrap()
}

fn key(plane_name: &str) -> Key {
    let path =
        ObjectPath { group: String::new(), resource: "secrets".into(), namespace: None, name: "a".into() };
    Key::object(&plane(plane_name), &path)
}

fn put(key: Key) -> Commit {
    Commit { expect: vec![], changes: vec![Change::Put(key, Bytes::from_static(b"x"))] }
}

/// A store with something in four planes, and an engine that is confined to the one named `mine`.
async fn confined() -> (Arc<Etcd>, Served) {
    let served = serve(Scope::Plane(plane("mine"))).await;
    for name in ["mine", "mine-2", "mine0", "other"] {
        drop(served.store.commit(put(key(name))).await.unwrap());
    }
    (confined_to(&served).await, served)
}

fn assert_denied<T>(result: Result<T, StoreError>, what: &str) {
    assert!(matches!(result, Err(StoreError::Denied(_))), "{what} is not denied");
}

#[tokio::test]
async fn within_its_plane_a_confined_client_can_do_everything_but_compact() {
    let (engine, served) = confined().await;
    let revision = engine.revision().await.unwrap();
    assert_eq!(revision, served.store.revision().await.unwrap());
    let mine = KeyRange::plane(&plane("mine"));
    let mut watch = engine.watch(mine.clone(), revision, true).await.unwrap();
    let found = engine.get(&key("mine")).await.unwrap().unwrap();
    let expect = vec![Expect { key: key("mine"), modified: found.modified }];
    let changes = vec![Change::Put(key("mine"), Bytes::from_static(b"y"))];
    assert!(matches!(engine.commit(Commit { expect, changes }).await.unwrap(), Committed::Done(_)));
    let events = loop {
        if let WatchItem::Events(events) = watch.next().await.unwrap().unwrap() {
            break events;
        }
    };
    assert_eq!(events[0].previous, Some(found));
    let elsewhere = served.store.commit(put(key("other"))).await.unwrap();
    engine.request_progress().await.unwrap();
    loop {
        match watch.next().await.unwrap().unwrap() {
            WatchItem::Progress(reached) if Committed::Done(reached) == elsewhere => break,
            WatchItem::Progress(_) => {}
            WatchItem::Events(events) => panic!("{events:?} is of another plane"),
        }
    }
    let delete = Commit { expect: vec![], changes: vec![Change::Delete(key("mine"))] };
    drop(engine.commit(delete).await.unwrap());
    assert_eq!(engine.usage(mine).await.unwrap().keys, 0);
    assert_eq!(served.store.usage(KeyRange::everything()).await.unwrap().keys, 3);
    assert_denied(engine.compact(revision).await, "compaction");
}

#[tokio::test]
async fn a_confined_client_is_denied_whatever_reaches_out_of_its_plane() {
    let (engine, served) = confined().await;
    let before = served.store.revision().await.unwrap();
    let mine = KeyRange::plane(&plane("mine"));
    let wider = KeyRange { start: mine.start.clone(), end: KeyRange::plane(&plane("mine0")).end };
    let earlier = KeyRange { start: Bytes::from_static(b"planes/"), end: mine.end.clone() };
    let other = KeyRange::plane(&plane("other"));
    for keys in
        [other.clone(), wider, earlier, KeyRange::all_planes(), KeyRange::everything(), KeyRange::system("a")]
    {
        assert_denied(engine.range(Range::all(keys.clone())).await, "a range");
        assert_denied(engine.usage(keys.clone()).await, "a count");
        assert_denied(engine.watch(keys.clone(), before, false).await.map(|_| ()), "a watch");
        assert_denied(
            engine.commit(Commit { expect: vec![], changes: vec![Change::DeleteRange(keys)] }).await,
            "a deletion",
        );
    }
    for foreign in [key("mine-2"), key("mine0"), key("other"), Key::system("a")] {
        assert_denied(engine.get(&foreign).await, "a read");
        assert_denied(engine.commit(put(foreign.clone())).await, "a write");
        let both = Commit {
            changes: vec![put(key("mine")).changes.remove(0), Change::Delete(foreign.clone())],
            expect: vec![],
        };
        assert_denied(engine.commit(both).await, "a deletion beside an allowed write");
        let peek = Commit { expect: vec![Expect { key: foreign, modified: 0 }], changes: vec![] };
        assert_denied(engine.commit(peek).await, "an expectation");
    }
    assert_eq!(served.store.revision().await.unwrap(), before);
}

#[tokio::test]
async fn a_confined_client_writes_objects_and_no_records() {
    let (engine, served) = confined().await;
    let before = served.store.revision().await.unwrap();
    let own = |rest: &str| Key::from_store(format!("planes/mine/{rest}").into());
    let records = [".stack", ".class", ".classes/x", ".layer", ".planes/other", ".x/secrets/a"];
    let odd = [
        "",
        "core",
        "core/secrets",
        "core//a",
        "core/secrets/..",
        "core/secrets/a/b/c",
        "core/secrets/a/",
        "CORE/x/a",
        "/secrets/a",
    ];
    for rest in records.into_iter().chain(odd) {
        assert_denied(engine.commit(put(own(rest))).await, rest);
        let delete = Commit { expect: vec![], changes: vec![Change::Delete(own(rest))] };
        assert_denied(engine.commit(delete).await, rest);
        let both = Commit {
            changes: vec![put(key("mine")).changes.remove(0), Change::Delete(own(rest))],
            expect: vec![],
        };
        assert_denied(engine.commit(both).await, rest);
    }
    let mine = KeyRange::plane(&plane("mine"));
    for range in
        [mine.clone(), KeyRange::plane_objects(&plane("mine")), KeyRange::one(&Key::stack(&plane("mine")))]
    {
        let delete = Commit { expect: vec![], changes: vec![Change::DeleteRange(range)] };
        assert_denied(engine.commit(delete).await, "a range");
    }
    assert_eq!(served.store.revision().await.unwrap(), before);
    drop(served.store.commit(put(Key::stack(&plane("mine")))).await.unwrap());
    assert!(engine.get(&Key::stack(&plane("mine"))).await.unwrap().is_some(), "it has to know its own stack");
}

#[tokio::test]
async fn a_confined_client_gets_large_ranges_piece_by_piece() {
    let (engine, served) = confined().await;
    let path = |nth: usize| ObjectPath {
        group: String::new(),
        resource: "secrets".into(),
        namespace: Some("default".into()),
        name: format!("b-{nth:03}"),
    };
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    for nth in 0..40 {
        let key = Key::object(&plane("mine"), &path(nth));
        drop(
            served
                .store
                .commit(Commit { expect: vec![], changes: vec![Change::Put(key, large.clone())] })
                .await
                .unwrap(),
        );
    }
    let mine = KeyRange::plane(&plane("mine"));
    let page = engine.range(Range { limit: 1000, ..Range::all(mine.clone()) }).await.unwrap();
    assert!(page.more && page.items.len() < 41, "{}", page.items.len());
    assert_eq!(engine.range(Range::all(mine)).await.unwrap().items.len(), 41);
}

#[tokio::test]
async fn a_confined_client_stores_what_its_bounds_and_the_check_allow() {
    const KEYS: u64 = 50;
    let few = Bounds { keys: KEYS, ..Bounds::default() };
    let slow = Bounds { writes_per_second: 0.1, ..Bounds::default() };
    let path = |nth: u64| ObjectPath {
        group: String::new(),
        resource: "secrets".into(),
        namespace: None,
        name: format!("b-{nth}"),
    };
    let served =
        serve_with(Scope::Plane(plane("mine")), |facade| facade.with_bounds(Arc::new(move |_| few))).await;
    let engine = confined_to(&served).await;
    let mut full = 0;
    for nth in 0..10 * KEYS {
        match engine.commit(put(Key::object(&plane("mine"), &path(nth)))).await {
            Ok(_) => {}
            Err(StoreError::Full(_)) => full += 1,
            Err(other) => panic!("{other}"),
        }
    }
    let stored = served.store.usage(KeyRange::plane(&plane("mine"))).await.unwrap().keys;
    assert!(full > 0 && stored <= 3 * KEYS, "{stored} keys, {full} refused");
    drop(
        engine
            .commit(Commit {
                expect: vec![],
                changes: vec![Change::Delete(Key::object(&plane("mine"), &path(0)))],
            })
            .await
            .unwrap(),
    );

    let served =
        serve_with(Scope::Plane(plane("mine")), |facade| facade.with_bounds(Arc::new(move |_| slow))).await;
    let engine = confined_to(&served).await;
    let first = engine.commit(put(key("mine"))).await;
    assert!(first.is_ok());
    assert!(matches!(engine.commit(put(key("mine"))).await, Err(StoreError::Busy(_))), "over its rate");

    let served =
        serve_with(Scope::Plane(plane("mine")), |facade| facade.with_check(|_, _| Err("it is odd"))).await;
    assert_denied(confined_to(&served).await.commit(put(key("mine"))).await, "an odd value");
    let huge = vec![Change::Put(key("mine"), vec![b'x'; 3 << 20].into())];
    let refused = confined_to(&served).await.commit(Commit { expect: vec![], changes: huge }).await;
    assert!(matches!(refused, Err(StoreError::TooLarge(_))));
}

#[tokio::test]
async fn a_client_with_another_prefix_reaches_nothing() {
    let served = serve(Scope::All).await;
    let mut options = EtcdOptions::new([&served.url]);
    options.prefix = "/other/".into();
    assert_denied(Etcd::connect(options).await.map(|_| ()), "a connection");
}
