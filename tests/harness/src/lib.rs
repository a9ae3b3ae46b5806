//! A real server per test: the `freehold` program in a directory of its own, on a free port, with `kubectl` beside it.
//!
//! ```no_run
//! use freehold_tests_harness::{Engine, Server};
//!
//! let server = Server::start(Engine::Embedded);
//! let kubectl = server.kubectl();
//! kubectl.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}");
//! assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "name"]), "configmap/a\n");
//! ```
//!
//! Guarantees: no test sees another's server, store, home directory or `kubectl` cache; nothing that a test started is
//! left running after it; of a test that failed the directory with logs and data is kept, and its path printed.
//!
//! Failures are panics that show what was asked and what came: this crate is for tests alone.

mod balancer;
mod cluster;
mod crds;
mod etcd;
mod extension;
mod fleet;
pub mod history;
mod kube;
mod kubectl;
mod network;
mod paths;
mod ports;
mod process;
mod random;
mod server;
mod wait;

pub use cluster::{ClientFiles, Cluster};
pub use crds::{Crd, crds};
pub use etcd::Etcd;
pub use extension::Extension;
pub use fleet::Fleet;
pub use kube::{Kube, KubeOptions};
pub use kubectl::{Background, Kubectl, Output, lost_streams};
pub use network::Network;
pub use paths::{freehold_binary, tool};
pub use ports::free_port;
pub use process::resident_kib;
pub use random::Random;
pub use server::{Engine, Options, Server};
pub use wait::until;
