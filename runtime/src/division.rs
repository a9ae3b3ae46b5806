//! Several instances divide all planes between them, when one is too small for them.
//!
//! Planes are in parts. Each part has a Lease, so that never more than one instance works on it; which instance asks for
//! which follows from the names of those that are there, by rendezvous hashing: one that comes or goes moves its own share
//! alone. Who is there is known from a Lease that each instance keeps for itself.

use crate::leader::{Election, NAMESPACE, Times, leases};
use crate::parts::spread;
use crate::{Metrics, Planes};
use freehold_client::{Client, DeleteOptions, Error, ListOptions};
use freehold_machinery::{Value, meta};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The label on the Leases of instances that names what they divide.
const LABEL: &str = "freehold.dev/division";
/// Multiple of their duration for which Leases of dead instances are kept.
const KEPT: u32 = 20;

type Members = BTreeSet<String>;

/// The instance that a part is assigned to; `None` without instances.
fn winner(part: u32, members: &Members) -> Option<&String> {
    members.iter().max_by_key(|member| spread(&[member, &part.to_string()]))
}

/// An instance among others that divide all planes.
pub struct Division {
    client: Client,
    name: String,
    identity: String,
    times: Times,
    count: u32,
    metrics: Metrics,
}

impl Division {
    /// An instance that no other is called like, among those that divide `count` parts under a name.
    pub fn new(
        client: Client,
        name: impl Into<String>,
        identity: impl Into<String>,
        count: u32,
        times: Times,
    ) -> Self {
        let (name, identity) = (name.into(), identity.into());
        Self { client, name, identity, times, count: count.max(1), metrics: Metrics::default() }
    }

    /// Exports the parts of this instance as metrics.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Acquires and releases parts of planes that are [`Planes::in_parts`] of this number, until `stop`; then it
    /// releases all.
    pub async fn run(self, planes: Planes, stop: CancellationToken) {
        let (seen, members) = watch::channel(Members::new());
        let parts = futures_util::future::join_all(
            (0..self.count).map(|part| self.hold(part, members.clone(), planes.clone(), stop.clone())),
        );
        let roll = Roll {
            client: &self.client,
            division: &self.name,
            identity: &self.identity,
            times: self.times,
            seen: HashMap::new(),
        };
        tokio::join!(parts, roll.keep(seen, stop.clone()));
    }

    /// Has one part whenever it is this instance's.
    async fn hold(
        &self,
        part: u32,
        mut members: watch::Receiver<Members>,
        planes: Planes,
        stop: CancellationToken,
    ) {
        let mine = |members: &Members| winner(part, members) == Some(&self.identity);
        let name = format!("{}-{part}", self.name);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = members.wait_for(|members| mine(members)) => if changed.is_err() { return },
            }
            let term = stop.child_token();
            let election = Election::new(self.client.clone(), &name, &self.identity)
                .times(self.times)
                .metrics(&self.metrics);
            let work = election.run(term.clone(), |lead| {
                let planes = planes.clone();
                async move {
                    planes.take(part);
                    lead.cancelled().await;
                    planes.give_back(part).await;
                }
            });
            let lost = async {
                tokio::select! {
                    () = term.cancelled() => {}
                    _ = members.wait_for(|members| !mine(members)) => term.cancel(),
                }
            };
            tokio::join!(work, lost);
        }
    }
}

/// The instances that renew their Leases.
struct Roll<'a> {
    client: &'a Client,
    division: &'a str,
    identity: &'a str,
    times: Times,
    /// The Lease of each instance as it was seen last, and since when it has been so.
    seen: HashMap<String, (Value, Instant)>,
}

impl Roll<'_> {
    /// Renews this instance's Lease and watches those of the others, until `stop`.
    async fn keep(mut self, members: watch::Sender<Members>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            match tokio::time::timeout(self.times.renew, self.look()).await {
                Ok(Ok(found)) => {
                    members.send_if_modified(|known| {
                        let changed = *known != found;
                        if changed {
                            tracing::info!(
                                division = self.division,
                                instances = found.len(),
                                "redistributed planes over instances"
                            );
                            *known = found;
                        }
                        changed
                    });
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, division = self.division, "failed to list instances")
                }
                Err(_) => tracing::debug!(division = self.division, "timed out listing instances"),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.times.retry) => {}
            }
        }
        // The others need not wait until it has expired.
        let gone = async {
            let (lease, options) = (self.lease(), DeleteOptions::default());
            self.client.delete(&leases(), Some(NAMESPACE), &lease, &options).await
        };
        let _ = tokio::time::timeout(self.times.retry, gone).await;
    }

    /// The name of this instance's Lease.
    fn lease(&self) -> String {
        format!("{}-{:016x}", self.division, spread(&[self.identity]))
    }

    async fn look(&mut self) -> Result<Members, Error> {
        self.renew().await?;
        let options =
            ListOptions { label_selector: format!("{LABEL}={}", self.division), ..ListOptions::default() };
        let list = self.client.list_all(&leases(), Some(NAMESPACE), &options).await?;
        let (members, expired) = self.members(&list.items);
        for lease in expired {
            let options = DeleteOptions::uid(lease.1);
            // Another instance may have been quicker.
            let _ = self.client.delete(&leases(), Some(NAMESPACE), &lease.0, &options).await;
        }
        Ok(members)
    }

    /// The live instances, and the Leases (name and uid) of those that have long been dead.
    fn members(&mut self, leases: &[Value]) -> (Members, Vec<(String, String)>) {
        let (mut members, mut expired) = (Members::new(), Vec::new());
        let mut seen = HashMap::new();
        for lease in leases {
            let spec = &lease["spec"];
            let holder = spec["holderIdentity"].as_str().unwrap_or_default().to_owned();
            let name = meta::name(lease).to_owned();
            let since = match self.seen.remove(&name) {
                Some((known, since)) if known == *spec => since,
                _ => Instant::now(),
            };
            // A Lease that says something else of its time is believed no longer than this instance's.
            let told = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0));
            let valid = told.min(self.times.lease);
            if holder == self.identity || since.elapsed() < valid {
                members.insert(holder);
            } else if since.elapsed() > self.times.lease * KEPT {
                expired.push((name.clone(), meta::uid(lease).to_owned()));
            }
            seen.insert(name, (spec.clone(), since));
        }
        self.seen = seen;
        (members, expired)
    }

    async fn renew(&self) -> Result<(), Error> {
        let (name, now) = (self.lease(), crate::leader::now());
        let spec = json!({
            "holderIdentity": self.identity, "leaseDurationSeconds": self.times.lease.as_secs().max(1), "renewTime": now,
        });
        let found = self.client.get_opt(&leases(), Some(NAMESPACE), &name).await?;
        let Some(mut lease) = found else {
            let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {LABEL: self.division}});
            let fresh = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
            });
            return self.client.create(&leases(), &fresh).await.map(drop);
        };
        lease["spec"] = spec;
        self.client.update(&leases(), &lease).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::{Config, Identity};

    fn members(names: &[&str]) -> Members {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_that_comes_or_goes_moves_its_own_share_alone() {
        let (two, three) = (members(&["a", "b"]), members(&["a", "b", "c"]));
        let mut moved = 0;
        for part in 0..3000 {
            let (before, after) = (winner(part, &two).unwrap(), winner(part, &three).unwrap());
            assert!(before == after || after == "c", "part {part} moved from {before} to {after}");
            moved += usize::from(before != after);
        }
        assert!((850..1150).contains(&moved), "{moved} of 3000 parts moved to the third");
        assert_eq!(winner(0, &Members::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_counts_until_its_lease_was_not_renewed_in_time() {
        let client = Client::new(&Config::new("http://127.0.0.1:1", "", Identity::None)).unwrap();
        let times = Times::of_lease(Duration::from_secs(15));
        let mut roll = Roll { client: &client, division: "d", identity: "me", times, seen: HashMap::new() };
        let lease = |holder: &str, renewed: u32| {
            json!({
                "metadata": {"name": holder, "uid": holder},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
            })
        };
        let both = [lease("me", 1), lease("other", 1)];
        assert_eq!(roll.members(&both).0, members(&["me", "other"]));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(roll.members(&[lease("me", 2), lease("other", 2)]).0, members(&["me", "other"]));
        tokio::time::advance(Duration::from_secs(16)).await;
        let (left, expired) = roll.members(&[lease("me", 2), lease("other", 2)]);
        assert_eq!((left, expired.len()), (members(&["me"]), 0));
        tokio::time::advance(Duration::from_secs(15 * 21)).await;
        assert_eq!(roll.members(&[lease("other", 2)]).1, [("other".to_owned(), "other".to_owned())]);
        assert_eq!(roll.members(&[json!({"spec": 7}), Value::Null]).0, Members::new());
    }
}
