//! Watches over HTTP: what a slow one costs the others, and what becomes of it.

use crate::PATIENCE;
use crate::storm::{MAPS, map, runtime, version};
use freehold_client::{Client, ListOptions, RawRequest, WatchEvent, WatchOptions, WatchStream};
use freehold_tests_integration::{Server, World, facts};
use futures_util::StreamExt as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::pin::pin;
use tokio::sync::watch::{Sender, channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

const PROJECT: &str = "watchers";
const NAME: &str = "large";
/// Updates of an object of half a MiB: several times what a server keeps for a watcher that does not read, beside what lies
/// in the sockets between them.
const UPDATES: usize = 48;
const SIZE: usize = 512 << 10;
/// By how many updates the reader may be behind the writer: much less than what a server keeps for it.
const BEHIND: usize = 4;

/// Objects of which so many are listed where nobody else waits for it.
const MANY: usize = 400;
const OF_MANY: &str = "many";
const OTHER_PROJECT: &str = "watchers-of-many";

facts!(world:
    a_watcher_that_does_not_read_is_cut_off_and_the_others_are_told_all,
    a_watch_that_tells_much_at_first_goes_on_with_what_happens,
);

/// A client with a connection of its own, and its watch.
async fn watching(world: &World, from: &str) -> (Client, WatchStream) {
    let client = Server::client_of(&world.project(PROJECT));
    let options = WatchOptions { resource_version: from.to_owned(), ..WatchOptions::default() };
    let watch = client.watch(&MAPS, Some("default"), &options).await.expect("it can be watched");
    (client, watch)
}

/// The versions of objects that a watch tells of until it ends or has told so many, and whether it still goes on. `count` is
/// kept up to date for those who wait for it.
async fn told(watch: &mut WatchStream, most: usize, count: &Sender<usize>) -> (Vec<u64>, bool) {
    let mut versions = Vec::new();
    while versions.len() < most {
        count.send_replace(versions.len());
        match timeout(PATIENCE, watch.next()).await.expect("it tells, or it ends") {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                versions.push(version(&object));
            }
            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => return (versions, false),
            Some(Ok(_)) => {}
        }
    }
    (versions, true)
}

fn a_watcher_that_does_not_read_is_cut_off_and_the_others_are_told_all(world: &World) {
    runtime().block_on(async {
        let writer = Server::client_of(&world.project(PROJECT));
        let from = writer.list(&MAPS, Some("default"), &ListOptions::default()).await.expect("a list");
        let (_slow, mut slow) = watching(world, &from.resource_version).await;
        let (_quick, quick) = watching(world, &from.resource_version).await;
        let (count, mut so_far) = channel(0);
        let reading = tokio::spawn(async move {
            let mut quick = quick;
            told(&mut quick, UPDATES, &count).await
        });
        let mut written = Vec::new();
        let mut object = map(NAME, "");
        for nth in 0..UPDATES {
            // However busy this machine is, the quick one is never far behind.
            let near = so_far.wait_for(|count| nth <= count + BEHIND);
            let near = timeout(PATIENCE, near).await.expect("the quick one reads").map(drop);
            assert!(near.is_ok(), "the quick one was cut off before event {nth}");
            object["data"]["v"] = char::from(b'a' + (nth % 26) as u8).to_string().repeat(SIZE).into();
            let answer = match nth {
                0 => writer.create(&MAPS, &object).await,
                _ => writer.update(&MAPS, &object).await,
            };
            object = answer.expect("writes are not held up by who does not read");
            written.push(version(&object));
        }
        let (seen, goes_on) = reading.await.expect("the quick one has read");
        assert!(goes_on, "the quick one was cut off after {} events", seen.len());
        assert_eq!(seen, written, "each once, in order");

        // The slow one is told the beginning, nothing twice and nothing left out, and then that it is over.
        let (seen, goes_on) = told(&mut slow, UPDATES, &channel(0).0).await;
        assert!(!goes_on && seen.len() < UPDATES, "{} events came after all", seen.len());
        assert_eq!(seen, written[..seen.len()]);
    });
}

/// Names of the objects that a watch says were added in a line: as they are, or in a Table.
fn added(line: &[u8]) -> Vec<String> {
    let event: Value = serde_json::from_slice(line).expect("an event is JSON");
    let object = &event["object"];
    let named = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match object["rows"].as_array() {
        _ if event["type"] != "ADDED" => Vec::new(),
        Some(rows) => rows.iter().map(|row| named(&row["object"])).collect(),
        None => vec![named(object)],
    }
}

fn a_watch_that_tells_much_at_first_goes_on_with_what_happens(world: &World) {
    let kubectl = world.project(OTHER_PROJECT);
    runtime().block_on(async {
        let client = Server::client_of(&kubectl);
        let mut created = JoinSet::new();
        for nth in 0..MANY {
            let (client, map) = (client.clone(), map(&format!("{OF_MANY}-{nth:03}"), &"x".repeat(1024)));
            created.spawn(async move { client.create(&MAPS, &map).await });
        }
        created.join_all().await.into_iter().for_each(|made| drop(made.expect("an object is made")));
        const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=300";
        for (query, accept, after) in [
            ("", "application/json", "plain"),
            ("&resourceVersion=0", "application/json;as=Table;v=v1;g=meta.k8s.io", "table"),
            (
                "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                "metadata",
            ),
        ] {
            let request = RawRequest { accept, ..RawRequest::get(format!("{WATCH}{query}")) };
            let mut pieces = pin!(client.download(&request).await.expect("it is watched").into_stream());
            let (mut seen, mut line, mut all) = (Vec::new(), Vec::new(), false);
            let last = format!("after-{after}");
            while !seen.contains(&last) {
                let piece = timeout(PATIENCE, pieces.next()).await.expect("it tells").expect("it goes on");
                for byte in piece.expect("bytes") {
                    match byte {
                        b'\n' => seen.extend(added(&std::mem::take(&mut line))),
                        byte => line.push(byte),
                    }
                }
                let told = seen.iter().filter(|name| name.starts_with(OF_MANY)).count();
                if told == MANY && !std::mem::replace(&mut all, true) {
                    // What is large, and takes long where it is made into something else, before what is not.
                    let large = map(&format!("large-{after}"), &"x".repeat(SIZE));
                    client.create(&MAPS, &large).await.expect("it is made");
                    client.create(&MAPS, &map(&last, "")).await.expect("it is made");
                }
            }
            let many: Vec<&String> = seen.iter().filter(|name| name.starts_with(OF_MANY)).collect();
            let once: BTreeSet<&String> = many.iter().copied().collect();
            assert_eq!((many.len(), once.len()), (MANY, MANY), "each once, as {accept}");
            let behind: Vec<&String> = seen.iter().filter(|name| name.ends_with(after)).collect();
            assert_eq!(behind, [&format!("large-{after}"), &last], "in order");
        }
    });
    // kubectl takes lists compressed.
    let listed = kubectl.ok(&["get", "configmaps", "-o", "name"]);
    assert_eq!(listed.lines().filter(|name| name.contains(OF_MANY)).count(), MANY);
}
