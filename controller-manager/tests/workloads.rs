//! Workload controllers against a real server: they run in the test's process, over all planes, and nothing else works on
//! their kinds. Pods run nowhere: a task writes their statuses as a node would.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "workloads/autoscaler.rs"]
mod autoscaler;
#[path = "workloads/daemonset.rs"]
mod daemonset;
#[path = "workloads/nodes.rs"]
mod nodes;
#[path = "workloads/replication.rs"]
mod replication;
#[path = "workloads/statefulset.rs"]
mod statefulset;
#[path = "workloads/world.rs"]
mod world;
