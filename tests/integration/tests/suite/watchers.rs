//! Watches over HTTP: what a slow one costs the others, and what becomes of it.

use crate::PATIENCE;
use crate::storm::{MAPS, map, runtime, version};
use freehold_client::{Client, ListOptions, WatchEvent, WatchOptions, WatchStream};
use freehold_tests_integration::{Server, World, facts};
use tokio::sync::watch::{Sender, channel};
use tokio::time::timeout;

const PROJECT: &str = "watchers";
const NAME: &str = "large";
/// Updates of an object of half a MiB: several times what a server keeps for a watcher that does not read, beside what lies
/// in the sockets between them.
const UPDATES: usize = 48;
const SIZE: usize = 512 << 10;
/// By how many updates the reader may be behind the writer: much less than what a server keeps for it.
const BEHIND: usize = 4;

facts!(world: a_watcher_that_does_not_read_is_cut_off_and_the_others_are_told_all);

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
