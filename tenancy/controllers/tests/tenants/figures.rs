//! Figures of namespaces: how long one takes to be ready beside many, and what many cost.
//!
//! `FREEHOLD_TENANCY_NAMESPACES=10000 cargo test -p freehold-tenancy-controllers --test tenants figures -- --nocapture`

use crate::site::Site;
use freehold_client::Resource;
use freehold_machinery::Value;
use freehold_runtime::{Informer, Interest};
use freehold_tenancy_decide::tenant::Namespace;
use freehold_tests_harness::{resident_kib, until};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
/// Creations under way at once.
const PARALLEL: usize = 32;
/// Namespaces that are timed one after another beside all others.
const TIMED: usize = 100;
const PATIENCE: Duration = Duration::from_secs(1800);

type Times = Arc<Mutex<HashMap<String, Instant>>>;

/// How many namespaces to measure with; `None` leaves the figures out.
pub(crate) fn count() -> Option<usize> {
    std::env::var("FREEHOLD_TENANCY_NAMESPACES").ok()?.parse().ok()
}

pub(crate) fn figures(site: &Site, count: usize) {
    let scope = site.start();
    site.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: big}, spec: {members: [{role: owner, subjects: [{name: ann}]}], \
         networkPolicies: [{name: own, spec: {podSelector: {}}}], limitRanges: [{name: own, spec: {limits: [{type: Container, default: {cpu: 500m}}]}}]}}",
    );
    let ready = watch_ready(site);
    let begun = Instant::now();
    create(site, 0..count);
    let created = begun.elapsed();
    wait_ready(&ready, count);
    let filled = begun.elapsed();
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    println!(
        "{}: {count} namespaces created at {:.0}/s, ready at {:.0}/s",
        site.name,
        rate(created),
        rate(filled)
    );
    let mut times: Vec<Duration> = (count..count + TIMED).map(|n| time_one(site, &ready, n)).collect();
    times.sort_unstable();
    println!(
        "{}: one more is ready after {:?} (median), {:?} (p99)",
        site.name,
        times[TIMED / 2],
        times[TIMED - 2]
    );
    let tenant = site.until("all are counted", &["tenant", "big"], |tenant| {
        tenant["status"]["readyNamespaces"].as_u64() == Some((count + TIMED) as u64)
    });
    println!("{}: the Tenant has {} bytes", site.name, tenant.to_string().len());
    println!(
        "{}: this process, controllers and test, {} MiB",
        site.name,
        resident_kib(std::process::id()) / 1024
    );
    scope.token.cancel();
    cold_start(site);
}

/// How long new controllers take until they have repaired a drift.
fn cold_start(site: &Site) {
    site.kubectl.ok(&["-n", "big-0", "delete", "limitrange", "tenancy-own"]);
    let begun = Instant::now();
    let scope = site.start();
    site.until("the drift is repaired", &["limitrange", "tenancy-own", "-n", "big-0"], |_| true);
    println!("{}: {:?} after a cold start a drift is repaired", site.name, begun.elapsed());
    scope.token.cancel();
}

fn watch_ready(site: &Site) -> Times {
    let times = Times::default();
    let seen = times.clone();
    let scope = site.scope();
    let interest = Interest::projected(NAMESPACES, |object: Value| Some(Namespace::of(&object)));
    let mut informer = Informer::new(&scope.planes, interest);
    informer.on_change(move |change| {
        if change.new.as_ref().is_some_and(|namespace| namespace.is_ready()) {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.entry(change.key.name.to_string()).or_insert_with(Instant::now);
        }
    });
    site.runtime().spawn(informer.run(scope.token));
    times
}

async fn create_one(client: freehold_client::Client, n: usize) {
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": format!("big-{n}"), "labels": {"tenancy.freehold.dev/tenant": "big"}},
    });
    client.create(&NAMESPACES, &object).await.unwrap_or_else(|error| panic!("big-{n}: {error}"));
}

fn create(site: &Site, range: std::ops::Range<usize>) {
    let permits = Arc::new(tokio::sync::Semaphore::new(PARALLEL));
    let tasks: Vec<_> = range
        .map(|n| {
            let (client, permits) = (site.client(), permits.clone());
            site.runtime().spawn(async move {
                let _permit = permits.acquire().await;
                create_one(client, n).await;
            })
        })
        .collect();
    for task in tasks {
        site.wait(task).expect("it is created");
    }
}

fn wait_ready(ready: &Times, count: usize) {
    until("all are ready", PATIENCE, || {
        (ready.lock().unwrap_or_else(PoisonError::into_inner).len() >= count).then_some(())
    });
}

fn time_one(site: &Site, ready: &Times, n: usize) -> Duration {
    let begun = Instant::now();
    site.wait(create_one(site.client(), n));
    let name = format!("big-{n}");
    let at = until("it is ready", PATIENCE, || {
        ready.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied()
    });
    at.duration_since(begun)
}
