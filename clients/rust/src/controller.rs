//! A controller over all consumers.

use crate::{Request, Store, queue::Queue};
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, pin_mut, stream::FuturesUnordered};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use serde::de::DeserializeOwned;
use std::{collections::HashSet, fmt, future::Future, time::Duration};

/// What a reconciler wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To be called when the object changes.
    Wait,
    /// To be called after this time too.
    Requeue(Duration),
}

/// Calls a reconciler for each object and each change of a type in all consumers, at most `concurrency` at a time and never
/// two for one object, until the future is dropped. `api` is of [`Consumers::all`](crate::Consumers::all). An object that the
/// store does not have any more is gone. Reconcilers that fail are called again, with growing pauses.
pub async fn run<K, F, R, E>(api: Api<K>, store: Store<K>, concurrency: usize, reconcile: F)
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    F: Fn(Request) -> R,
    R: Future<Output = Result<Action, E>>,
    E: fmt::Display,
{
    let events = watcher(api, watcher::Config::default()).default_backoff();
    follow(events, store, concurrency.max(1), reconcile).await;
}

async fn follow<K, F, R, E>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    store: Store<K>,
    concurrency: usize,
    reconcile: F,
) where
    K: Resource,
    F: Fn(Request) -> R,
    R: Future<Output = Result<Action, E>>,
    E: fmt::Display,
{
    pin_mut!(events);
    let mut queue = Queue::default();
    let mut listed = HashSet::new();
    let mut running = FuturesUnordered::new();
    let mut later: FuturesUnordered<BoxFuture<'static, Request>> = FuturesUnordered::new();
    loop {
        while let Some(request) = queue.start(concurrency) {
            running.push(reconcile(request.clone()).map(|done| (request, done)));
        }
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => take_in(event, &store, &mut listed).into_iter().for_each(|one| queue.add(one)),
                Some(Err(error)) => tracing::warn!(%error, "failed to follow the view; will retry"),
                None => return,
            },
            Some((request, done)) = running.next() => {
                queue.done(&request);
                if let Some(after) = pause(&mut queue, &request, done) {
                    later.push(tokio::time::sleep(after).map(|()| request).boxed());
                }
            }
            Some(request) = later.next() => queue.add(request),
        }
    }
}

/// After which time a request is due again, if it is.
fn pause<E: fmt::Display>(queue: &mut Queue, request: &Request, done: Result<Action, E>) -> Option<Duration> {
    match done {
        Ok(action) => {
            queue.succeeded(request);
            match action {
                Action::Wait => None,
                Action::Requeue(after) => Some(after),
            }
        }
        Err(error) => {
            tracing::warn!(%request, %error, "failed to reconcile; will retry");
            Some(queue.failed(request))
        }
    }
}

/// Takes an event into the store, and returns what is to be reconciled.
fn take_in<K: Resource>(event: Event<K>, store: &Store<K>, listed: &mut HashSet<Request>) -> Vec<Request> {
    match event {
        Event::Init => {
            listed.clear();
            Vec::new()
        }
        Event::InitDone => store.retain(&std::mem::take(listed)),
        Event::InitApply(object) => {
            let found = put(object, store);
            listed.extend(found.clone());
            found
        }
        Event::Apply(object) => put(object, store),
        Event::Delete(object) => {
            let Some(request) = Request::of(&object) else { return Vec::new() };
            store.remove(&request);
            vec![request]
        }
    }
}

fn put<K: Resource>(object: K, store: &Store<K>) -> Vec<Request> {
    let Some(request) = Request::of(&object) else { return Vec::new() };
    store.put(request.clone(), object);
    vec![request]
}
