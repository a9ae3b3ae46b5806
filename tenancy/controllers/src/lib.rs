//! Controllers of the tenancy subsystem, on any Kubernetes API.
//!
//! [`start`] begins all of them on a scope: the planes of a Freehold, one of them, or a foreign cluster.

mod discovery;
pub mod integration;
pub mod meter;
mod namespace;
pub mod observed;
mod quota;
pub mod roles;
mod running;
pub mod supervisor;
pub mod template;
mod tenant;
pub mod usage;

use freehold_runtime::Scope;
use std::collections::BTreeSet;

pub use tenant::FINALIZER;

/// The controllers, by the names that `--controllers` takes.
pub const NAMES: [&str; 6] = ["tenant", "namespace", "quota", "supervisor", "template", "extension"];

/// Spawns all controllers of the subsystem on the scope's tasks.
pub fn start(scope: &Scope) {
    start_some(scope, &NAMES.into_iter().collect());
}

/// Starts the named controllers.
pub fn start_some(scope: &Scope, names: &BTreeSet<&str>) {
    start_tenants(scope, names);
    if names.contains("supervisor") {
        supervisor::start_supervisor(scope);
    }
    if names.contains("template") {
        template::start_templates(scope);
    }
    if names.contains("extension") {
        integration::start_extensions(scope);
    }
}

/// Starts the controllers of tenants, namespaces and quotas, which share their informers.
fn start_tenants(scope: &Scope, names: &BTreeSet<&str>) {
    if !["tenant", "namespace", "quota"].iter().any(|name| names.contains(name)) {
        return;
    }
    let mut informers = observed::Informers::new(&scope.planes);
    let observed = informers.observed(&scope.planes);
    if names.contains("namespace") {
        namespace::start(scope, &mut informers, &observed);
    }
    if names.contains("quota") {
        quota::start(scope, &mut informers, &observed);
    }
    if names.contains("tenant") {
        let usages = usage::Usages::new(
            scope,
            &mut informers.tenants,
            &mut informers.namespaces,
            &mut informers.quotas,
        );
        tenant::start(scope, &mut informers, &observed, &usages);
    }
    informers.spawn(scope);
}
