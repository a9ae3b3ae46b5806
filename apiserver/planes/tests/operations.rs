//! Snapshots, forks, restores and ends of planes over the embedded engine, without the edge.

#![allow(clippy::unwrap_used)]

mod common;

use common::{World, id, path};
use freehold_apiserver_cache::{ListRequest, Scope, WatchRequest, WatchStart, codec};
use freehold_apiserver_storage::{Change, Key, KeyRange, LayerId, ObjectPath};
use freehold_machinery::PlaneId;
use serde_json::json;

#[tokio::test]
async fn a_fork_reads_its_snapshot_and_writes_its_own() {
    let world = World::new().await;
    let (a, b, layer): (PlaneId, PlaneId, LayerId) = (id("a"), id("b"), id("s"));
    for name in ["x", "y", "z"] {
        world.put(&a, name, "1").await;
    }
    let record = world.planes.snapshot(&a, &layer, None).await.unwrap();
    assert_eq!((record.objects, record.sealed), (3, true));
    assert_eq!(world.planes.snapshot(&a, &layer, None).await.unwrap(), record, "once");
    world.planes.switch(&b, &layer, "fork").await.unwrap();
    world.put(&b, "y", "2").await;
    world.commit(Change::Put(Key::object(&b, &path("x")), codec::whiteout())).await;
    world.put(&b, "a", "3").await;
    world.put(&a, "z", "4").await;
    assert_eq!(world.contents(&b).await, ["a=3", "y=2", "z=1"]);
    assert_eq!(world.contents(&a).await, ["x=1", "y=1", "z=4"]);
    let again: LayerId = id("s2");
    assert_eq!(world.planes.snapshot(&b, &again, None).await.unwrap().objects, 3);
    let c: PlaneId = id("c");
    world.planes.switch(&c, &again, "fork").await.unwrap();
    assert_eq!(world.contents(&c).await, ["a=3", "y=2", "z=1"], "a snapshot of a fork stands alone");
}

#[tokio::test]
async fn pages_of_a_fork_at_a_past_revision_are_as_it_was() {
    let world = World::new().await;
    let (a, b, layer): (PlaneId, PlaneId, LayerId) = (id("a"), id("b"), id("s"));
    for nth in 0..10 {
        world.put(&a, &format!("n{nth}"), "1").await;
    }
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    world.planes.switch(&b, &layer, "fork").await.unwrap();
    let at = world.put(&b, "n5", "2").await;
    world.put(&b, "n3", "3").await;
    world.commit(Change::Put(Key::object(&b, &path("n7")), codec::whiteout())).await;
    world.cache.catch_up().await.unwrap();
    let request = ListRequest { plane: &b, group: "", resource: "configmaps", namespace: Some("default") };
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = world.cache.page(request, at, &after, 3).await.unwrap();
        found.extend(page.objects.iter().cloned());
        let Some(next) = page.next else { break };
        after = next.to_string();
    }
    let names: Vec<&str> = found.iter().map(|e| e.name()).filter(|name| name.starts_with('n')).collect();
    assert_eq!(names, ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"]);
    assert!(found.iter().all(|entry| entry.modified <= at));
}

#[tokio::test]
async fn a_restore_is_one_step_for_its_plane_and_none_for_others() {
    let world = World::new().await;
    let (a, b, layer): (PlaneId, PlaneId, LayerId) = (id("a"), id("b"), id("s"));
    world.put(&a, "x", "1").await;
    world.put(&b, "x", "b").await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    let before = world.put(&a, "x", "2").await;
    world.put(&a, "new", "3").await;
    world.cache.catch_up().await.unwrap();
    let watch = |plane: &PlaneId, start| {
        world.cache.watch(Scope::Plane(plane.clone()), WatchRequest::all("", "configmaps"), start)
    };
    let mut theirs = watch(&a, WatchStart::Now).await.unwrap();
    let mut others = watch(&b, WatchStart::Now).await.unwrap();
    let mut everywhere = world
        .cache
        .watch(Scope::AllPlanes, WatchRequest::all("", "configmaps"), WatchStart::Now)
        .await
        .unwrap();
    let at = world.planes.switch(&a, &layer, "restore-1").await.unwrap();
    assert!(theirs.next().await.is_none(), "its watches end");
    let told = [everywhere.next().await.unwrap(), everywhere.next().await.unwrap()];
    let told = told.map(|event| format!("{:?} {}", event.change().unwrap().kind, event.name()));
    assert_eq!(told, ["Deleted default/new", "Modified default/x"]);
    assert_eq!(world.list(&a).await, [("x".to_owned(), "1".to_owned(), at)]);
    assert_eq!(watch(&a, WatchStart::After(before)).await.err().unwrap().code, 410);
    assert!(watch(&a, WatchStart::After(at)).await.is_ok());
    assert_eq!(world.planes.switch(&a, &layer, "restore-1").await.unwrap(), at, "once");
    while world.keys(KeyRange::system("buried")).await > 0 {
        tokio::task::yield_now().await;
    }
    let later = world.put(&b, "x", "c").await;
    let next = loop {
        let event = everywhere.next().await.unwrap();
        if event.change().is_some() {
            break event;
        }
    };
    assert_eq!((&next.plane, next.revision), (&b, later), "what is taken away is no change for anybody");
    assert_eq!(others.next().await.unwrap().revision, later, "watches of others go on");
    world.put(&a, "x", "5").await;
    assert!(world.planes.switch(&a, &layer, "restore-2").await.unwrap() > later);
    assert_eq!(world.contents(&a).await, ["x=1"]);
}

#[tokio::test]
async fn a_list_over_planes_goes_on_whatever_is_done_with_them_meanwhile() {
    let world = World::new().await;
    let (a, layer): (PlaneId, LayerId) = (id("a"), id("s"));
    let others: [PlaneId; 2] = [id("b"), id("c")];
    world.put(&a, "x", "1").await;
    world.put(&others[0], "y", "2").await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    let at = world.cache.catch_up().await.unwrap();
    for other in &others {
        world.planes.switch(other, &layer, "o").await.unwrap();
    }
    let found = async |at| {
        let what = ("", "configmaps", Some("default"));
        let mut pages = world.cache.pages_of_planes(None, what, at, None).await.unwrap();
        let mut found = Vec::new();
        while let Some(page) = world.cache.page_of_planes(&mut pages, 1).await.unwrap() {
            found.extend(page.iter().map(|one| format!("{}:{}", one.plane, one.entry.name())));
        }
        found
    };
    assert_eq!(found(at).await, ["a:x", "b:y"]);
    let now = world.cache.catch_up().await.unwrap();
    assert_eq!(found(now).await, ["a:x", "b:x", "c:x"]);
}

#[tokio::test]
async fn a_snapshot_at_a_revision_is_of_that_one_or_refused() {
    let world = World::new().await;
    let a: PlaneId = id("a");
    let first = world.put(&a, "x", "1").await;
    let second = world.put(&a, "x", "2").await;
    world.planes.snapshot(&a, &id("s"), Some(first)).await.unwrap();
    world.planes.switch(&id("b"), &id("s"), "fork").await.unwrap();
    assert_eq!(world.contents(&id("b")).await, ["x=1"]);
    let future = world.planes.snapshot(&a, &id("f"), Some(1_000_000)).await.err().unwrap();
    assert_eq!(future.code, 400, "{future}");
    world.store.compact(second).await.unwrap();
    let gone = world.planes.snapshot(&a, &id("g"), Some(first)).await.err().unwrap();
    assert_eq!(gone.code, 410, "{gone}");
    assert!(gone.message.contains("not kept any more"), "{gone}");
    assert_eq!(world.keys(KeyRange::layer(&id("g"))).await, 0, "nothing is left of it");
}

#[tokio::test]
async fn a_layer_goes_with_the_last_plane_above_it() {
    let world = World::new().await;
    let (a, b, layer): (PlaneId, PlaneId, LayerId) = (id("a"), id("b"), id("s"));
    world.put(&a, "x", "1").await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    for plane in [&a, &b] {
        world.planes.switch(plane, &layer, "o").await.unwrap();
    }
    assert_eq!(world.planes.release(&layer).await.unwrap().planes, [a.clone(), b.clone()]);
    let refused = world.planes.switch(&id("c"), &layer, "o").await.err().unwrap();
    assert_eq!(refused.code, 404, "a released layer takes no further plane");
    assert_eq!(world.contents(&b).await, ["x=1"]);
    world.planes.delete(&b).await.unwrap();
    assert!(world.keys(KeyRange::layer(&layer)).await > 0);
    world.planes.delete(&a).await.unwrap();
    assert_eq!(world.keys(KeyRange::layer(&layer)).await, 0);
    assert_eq!(world.keys(KeyRange::plane(&a)).await + world.keys(KeyRange::system("stacks")).await, 0);
    assert_eq!(world.keys(KeyRange::system("released")).await, 0);
}

#[tokio::test]
async fn what_was_not_sealed_is_nothing_and_is_made_anew() {
    let world = World::new().await;
    let (a, layer): (PlaneId, LayerId) = (id("a"), id("s"));
    world.put(&a, "x", "1").await;
    // What a server leaves that was killed in the middle: a record that says so, and objects.
    let record = json!({"source": "a", "revision": 1, "objects": 7, "bytes": 7, "sealed": false});
    world.commit(Change::Put(Key::layer(&layer), record.to_string().into())).await;
    let stale = Key::layer_object(&layer, &path("stale"));
    world.commit(Change::Put(stale, codec::whiteout())).await;
    let world = world.restarted().await;
    assert_eq!(world.planes.switch(&a, &layer, "o").await.err().unwrap().code, 404);
    assert_eq!(world.contents(&a).await, ["x=1"]);
    assert_eq!(world.planes.snapshot(&a, &layer, None).await.unwrap().objects, 1);
    assert_eq!(world.keys(KeyRange::layer_objects(&layer)).await, 1);
    world.planes.switch(&id("b"), &layer, "o").await.unwrap();
    let world = world.restarted().await;
    assert_eq!(world.contents(&id("b")).await, ["x=1"], "another server sees the same");
}

#[tokio::test]
async fn tokens_stay_where_they_were_made() {
    let world = World::new().await;
    let (a, layer): (PlaneId, LayerId) = (id("a"), id("s"));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "namespace": "default"}, "data": {"token": "c2VjcmV0"}});
    let place = ObjectPath { resource: "secrets".into(), ..path("t") };
    world.commit(Change::Put(Key::object(&a, &place), codec::encode(&secret))).await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    let stored = world.store.get(&Key::layer_object(&layer, &place)).await.unwrap().unwrap().value;
    assert!(!String::from_utf8_lossy(&stored).contains("c2VjcmV0"));
}

#[tokio::test]
async fn a_class_is_one_layer_for_its_planes_until_it_changes() {
    let world = World::new().await;
    let object = |data: &str| {
        vec![(
            path("house"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data},
            "metadata": {"name": "house", "namespace": "default"}}),
        )]
    };
    let first = world.planes.install_class("team", object("1"), false).await.unwrap();
    assert_eq!(world.planes.install_class("team", object("1"), false).await.unwrap(), first);
    let second = world.planes.install_class("team", object("2"), true).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(world.planes.install_class("team", object("3"), true).await.unwrap().len(), first.len());
    assert_eq!(world.keys(KeyRange::layer(&first.parse().unwrap())).await, 0, "the last but one goes");
    assert!(world.keys(KeyRange::layer(&second.parse().unwrap())).await > 0, "the last may still be read");
    assert_eq!(world.planes.install_class("team", Vec::new(), false).await.unwrap(), "");
    assert_eq!(world.keys(KeyRange::classes()).await, 0);
}

#[tokio::test]
async fn an_archive_fills_an_empty_plane_or_nothing() {
    use futures_util::{StreamExt, stream};
    let world = World::new().await;
    let (a, b): (PlaneId, PlaneId) = (id("a"), id("b"));
    for nth in 0..50 {
        world.put(&a, &format!("n{nth:02}"), "1").await;
    }
    let pieces: Vec<_> = world.planes.export(&a).await.unwrap().map(Result::unwrap).collect().await;
    let whole: Vec<u8> = pieces.concat();
    let import = async |bytes: Vec<u8>| {
        let (planes, plane) = (&world.planes, &b);
        let switch = |layer: LayerId| async move { planes.switch(plane, &layer, "import").await };
        planes.import(plane, stream::iter([Ok(bytes.into())]), switch).await
    };
    let mut broken = whole.clone();
    let middle = broken.len() / 2;
    broken[middle] ^= 1;
    for bad in [broken, whole[..whole.len() - 1].to_vec(), b"apiVersion: v1".to_vec()] {
        let refused = import(bad).await.err().unwrap();
        assert_eq!(refused.code, 400, "{refused}");
        assert_eq!(world.keys(KeyRange::plane(&b)).await, 0);
    }
    assert_eq!(import(whole.clone()).await.unwrap(), 50);
    assert_eq!(world.contents(&b).await, world.contents(&a).await);
    assert_eq!(import(whole).await.err().unwrap().code, 409);
}

#[tokio::test]
async fn a_watch_goes_on_at_a_server_that_started_since() {
    let world = World::new().await;
    let (a, b, layer): (PlaneId, PlaneId, LayerId) = (id("a"), id("b"), id("s"));
    world.put(&a, "kept", "1").await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    world.planes.switch(&b, &layer, "fork").await.unwrap();
    let seen = world.put(&a, "x", "1").await;
    world.put(&a, "x", "2").await;
    world.put(&b, "x", "1").await;
    world.put(&b, "kept", "2").await;
    world.commit(Change::Delete(Key::object(&a, &path("x")))).await;
    let world = world.restarted().await;
    let watch = |plane: &PlaneId, start| {
        world.cache.watch(Scope::Plane(plane.clone()), WatchRequest::all("", "configmaps"), start)
    };
    let (mut of_a, mut of_b) = (
        watch(&a, WatchStart::After(seen)).await.unwrap(),
        watch(&b, WatchStart::After(seen)).await.unwrap(),
    );
    let last = world.put(&a, "y", "1").await;
    world.put(&b, "y", "1").await;
    for (watch, expected) in [
        (&mut of_a, ["Modified default/x", "Deleted default/x", "Added default/y"]),
        (&mut of_b, ["Added default/x", "Modified default/kept", "Added default/y"]),
    ] {
        for expected in expected {
            let event = watch.next().await.unwrap();
            assert_eq!(format!("{:?} {}", event.change().unwrap().kind, event.name()), expected);
        }
    }
    world.store.compact(last).await.unwrap();
    let world = world.restarted().await;
    let late = world
        .cache
        .watch(Scope::Plane(a), WatchRequest::all("", "configmaps"), WatchStart::After(seen))
        .await;
    assert_eq!(late.err().unwrap().code, 410);
}

#[tokio::test]
async fn an_upgraded_base_is_in_all_planes_at_once_and_watches_from_before_are_too_old() {
    let world = World::new().await;
    let planes: [PlaneId; 2] = [id("a"), id("b")];
    for plane in &planes {
        world.put(plane, "own", "1").await;
    }
    let published = async |world: &World, plane: &PlaneId| {
        let found = world.cache.get(plane, &path("kube-root-ca.crt")).await.unwrap().unwrap();
        (found.value()["data"]["ca.crt"].as_str().unwrap().to_owned(), found.modified)
    };
    let before = world.cache.catch_up().await.unwrap();
    let (ca, installed) = published(&world, &planes[0]).await;
    assert!(ca == "ca" && installed <= before);
    let same = world.restarted().await;
    assert_eq!(
        published(&same, &planes[0]).await,
        ("ca".to_owned(), installed),
        "the same base is no upgrade"
    );
    let world = same.upgraded().await;
    for plane in &planes {
        let (ca, at) = published(&world, plane).await;
        assert!(ca == "ca-2" && at > before, "{plane}: {ca} at {at}");
        let watch = |start| {
            world.cache.watch(
                Scope::Plane(plane.clone()),
                WatchRequest::all("", "configmaps"),
                WatchStart::After(start),
            )
        };
        assert_eq!(watch(before).await.err().unwrap().code, 410);
        assert!(watch(at).await.is_ok());
        let request = ListRequest { plane, group: "", resource: "configmaps", namespace: None };
        assert_eq!(world.cache.page(request, before, "", 10).await.err().unwrap().code, 410);
        assert_eq!(world.contents(plane).await, ["own=1"]);
    }
}

/// Whoever writes the keys of a plane, as a dedicated pair does, can write its record too.
#[tokio::test]
async fn a_record_that_no_layer_lists_brings_nothing_into_a_plane() {
    let world = World::new().await;
    let (a, b, layer): (PlaneId, PlaneId, LayerId) = (id("a"), id("b"), id("s"));
    world.put(&a, "treasure", "1").await;
    world.put(&b, "own", "1").await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    for record in
        [&br#"{"layer":"s","operation":"x"}"#[..], br#"{"layer":"absent","operation":"x"}"#, b"{", b""]
    {
        world.commit(Change::Put(Key::stack(&b), record.to_vec().into())).await;
        world.put(&b, "later", "2").await;
        assert_eq!(world.contents(&b).await, ["later=2"], "{record:?}");
    }
    let world = world.restarted().await;
    assert_eq!(world.contents(&b).await, ["later=2"]);
    let copy: LayerId = id("copy");
    world.commit(Change::Put(Key::stack(&b), br#"{"layer":"s","operation":"x"}"#.to_vec().into())).await;
    world.put(&b, "later", "3").await;
    assert_eq!(
        world.planes.snapshot(&b, &copy, None).await.unwrap().objects,
        1,
        "nor into what is made of it"
    );
    // What core itself puts there counts.
    world.planes.switch(&b, &layer, "restore").await.unwrap();
    assert_eq!(world.contents(&b).await, ["treasure=1"]);
    assert_eq!(world.restarted().await.contents(&b).await, ["treasure=1"]);
}

#[tokio::test]
async fn a_plane_is_put_above_layers_of_its_own_organization_alone() {
    let world = World::new().await;
    let (a, b, c, free): (PlaneId, PlaneId, PlaneId, PlaneId) = (id("a"), id("b"), id("c"), id("free"));
    for (plane, organization) in [(&a, "acme"), (&b, "evil"), (&c, "acme")] {
        world.project(plane, organization).await;
    }
    world.put(&a, "treasure", "1").await;
    let layer: LayerId = id("s");
    let record = world.planes.snapshot(&a, &layer, None).await.unwrap();
    assert_eq!(record.organization.as_deref(), Some("acme"));
    for other in [&b, &free] {
        let theirs = world.planes.switch(other, &layer, "fork").await.unwrap_err();
        let absent = world.planes.switch(other, &id("t"), "fork").await.unwrap_err();
        assert_eq!((theirs.code, theirs.message.replace("\"s\"", "\"t\"")), (404, absent.message));
        assert_eq!(world.planes.layer(&layer, other).await.unwrap_err().code, 404);
        assert_eq!(world.planes.check_source(&layer, other).await.unwrap_err().code, 404);
        assert_eq!(world.contents(other).await, Vec::<String>::new());
    }
    assert_eq!(world.planes.check_source(&layer, &c).await.unwrap_err().code, 409);
    world.planes.check_source(&layer, &a).await.unwrap();
    world.planes.switch(&c, &layer, "fork").await.unwrap();
    assert_eq!(world.contents(&c).await, ["treasure=1"]);
}

/// Values as a pair, or an archive, could have written them.
#[tokio::test]
async fn what_no_client_can_decode_is_not_served() {
    let world = World::new().await;
    let b: PlaneId = id("b");
    world.put(&b, "good", "1").await;
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let object =
        |more: &str| format!(r#"{{"metadata":{{"name":"bad","namespace":"default","uid":"u"{more}}}"#);
    let values = [
        format!("{},\"data\":{deep}}}", object("")),
        format!("{},\"data\":{{\"k\":1e999}}}}", object("")),
        format!("{}}}", object(",\"resourceVersion\":\"99999999999\"")),
        format!("{}}}", object(",\"name\":\"good\"")),
        r#"{"metadata":{"name":"bad","namespace":"default"}}"#.to_owned(),
        "null".to_owned(),
    ];
    let mut raw: Vec<Vec<u8>> = values.iter().map(|value| [&[1], value.as_bytes()].concat()).collect();
    raw.extend([vec![], vec![1], vec![7, b'x'], vec![1, b'"', 0xff, b'"']]);
    for value in raw {
        world.commit(Change::Put(Key::object(&b, &path("bad")), value.clone().into())).await;
        assert_eq!(world.contents(&b).await, ["good=1"], "{:?}", String::from_utf8_lossy(&value));
    }
    assert_eq!(world.restarted().await.contents(&b).await, ["good=1"]);
}
