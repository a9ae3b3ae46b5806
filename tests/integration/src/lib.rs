//! What the integration tests share: a server for each engine with projects on it, requests that no `kubectl` would send,
//! and a fact told once and tested on both engines.
//!
//! ```text
//! freehold_tests_integration::facts!(world: a_configmap_is_kept);
//!
//! fn a_configmap_is_kept(world: &World) {
//!     let kubectl = world.namespace("my-topic", "kept");
//!     kubectl.ok(&["create", "configmap", "a"]);
//! }
//! ```
//!
//! Failures are panics that show what was asked and what came: this crate is for tests alone.

mod held;
mod hooks;
mod http;
mod processes;
mod rogue;
mod wire;
mod world;

pub use freehold_tests_harness::{
    Background, Cluster, Engine, Etcd, Extension, Fleet, Kube, KubeOptions, Kubectl, Options, Output, Random,
    Server, crds, free_port, freehold_binary, history, lost_streams, until,
};
pub use held::Held;
pub use hooks::{ADDRESS as HOOK_ADDRESS, HookServer, Reply, patching};
pub use http::{Answer, Http};
pub use processes::{end_with_kill, processes_with};
pub use rogue::{Rogue, Way};
pub use wire::{Frame, Wire, fields, frame};
pub use world::{Shared, World, world};

/// Makes each function that is named a test on each engine: those of a `world` take the server that tests share, those of
/// an `engine` start their own.
#[macro_export]
macro_rules! facts {
    (world: $($name:ident),* $(,)?) => {
        $crate::facts!(@engines $($name)*; world);
    };
    (engine: $($name:ident),* $(,)?) => {
        $crate::facts!(@engines $($name)*; own);
    };
    (@engines $($name:ident)*; $how:ident) => {
        mod embedded {
            $(#[test] fn $name() { $crate::facts!(@run super::$name, Embedded, $how); })*
        }
        mod etcd {
            $(#[test] fn $name() { $crate::facts!(@run super::$name, Etcd, $how); })*
        }
    };
    (@run $fact:path, $engine:ident, world) => { $fact(&$crate::world($crate::Engine::$engine)) };
    (@run $fact:path, $engine:ident, own) => { $fact($crate::Engine::$engine) };
}
