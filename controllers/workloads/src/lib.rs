//! Kubernetes' controllers of workloads: what runs Pods, follows them and scales them, over many planes in one process.
//!
//! Each is a module with a pure `decide(observed) -> actions` and a thin `reconcile` around it. Pods, ReplicaSets and
//! revisions are what kube-controller-manager makes of the same objects, so that either can take over from the other.
//!
//! Guarantees: an object that makes no sense is left alone and reported; no Pod is made twice for the same purpose, because a
//! reconcile waits for its own last writes.
//!
//! This crate must not know the apiserver but by its API, nor Freehold's own kinds.

mod autoscaler;
mod claims;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod ephemeral;
mod job;
mod podcontrol;
mod podgc;
mod replicaset;
mod statefulset;
mod template;
mod ttl;

use freehold_controllers_context::Start;

/// Every controller of this crate by its name.
pub const CONTROLLERS: &[(&str, Start)] = &[
    ("deployment", deployment::start),
    ("replica-set", replicaset::start),
    ("replication-controller", replicaset::replication_controllers),
    ("stateful-set", statefulset::start),
    ("daemon-set", daemonset::start),
    ("horizontal-pod-autoscaler", autoscaler::start),
    ("job", job::start),
    ("cron-job", cronjob::start),
    ("ttl-after-finished", ttl::start),
    ("disruption", disruption::start),
    ("pod-garbage-collector", podgc::start),
    ("ephemeral-volume", ephemeral::start),
];
