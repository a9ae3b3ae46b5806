//! Runs the Pods of a Kubernetes API as processes of this machine, so that one machine without containers is enough.
//!
//! The node registers itself, takes every Pod that no node has, runs its containers, probes them, tells their status,
//! keeps their logs, and serves those, streams into containers and what they use to the apiserver. What a container runtime would do is done in other ways:
//!
//! | in a cluster | here |
//! | --- | --- |
//! | an image is pulled | a table says which program an image stands for ([`Images`]); others are `ErrImagePull` |
//! | a network namespace | each Pod has an address of its own in 127.64.0.0/10; nothing keeps it from using others |
//! | a mount namespace | volumes are directories; where a mount path stands in a command, an argument or a variable, the real directory is put in its place. A program that has a mount path built in does not find it |
//! | `/dev/termination-log` | a file of the container's, put in its place in the same way |
//! | users, cgroups, capabilities | none: containers run as this process does, and limits are not enforced |
//!
//! So it is for programs that are trusted, Freehold's own first of all.
//!
//! Guarantees: no process runs twice, nor outlives the node's next start; a process that was killed is back at once; the
//! API says that a Pod is gone only after its processes are.
//!
//! Deliberately absent: sidecar init containers, lifecycle hooks, ephemeral containers, persistent
//! volumes, gRPC probes, resource limits.
//!
//! This crate must not know what the programs are, nor the apiserver's insides.

mod address;
mod backoff;
mod container;
mod environment;
mod expand;
mod images;
mod logbook;
mod logs;
mod message;
mod node;
mod pod;
mod ports;
mod probe;
mod process;
mod process_times;
mod register;
mod running;
mod serve;
mod shared;
mod sources;
mod status;
mod streams;
mod terminal;
mod tls;
mod usage;
mod volumes;

pub use images::Images;
pub use node::{Config, Node, end_leftovers};
pub use serve::LogServer;
