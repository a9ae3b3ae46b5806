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

/// Controllers that share their informers, by the names that `--controllers` takes.
pub const FAMILIES: [&[&str]; 4] = [
    &["tenant", "namespace", "quota"],
    &["supervisor"],
    &["template", "template-instance", "template-group-instance"],
    &["extension", "integration-config"],
];
/// The environment variable with the controllers to run, separated by commas. Default: all.
pub const CHOICE: &str = "FREEHOLD_TENANCY_CONTROLLERS";

/// The names of all controllers.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.into_iter().flatten().copied()
}

/// Spawns the controllers that the environment names on the scope's tasks.
pub fn start(scope: &Scope) {
    let chosen = std::env::var(CHOICE).unwrap_or_default();
    let chosen: Vec<&str> = chosen.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    for name in chosen.iter().filter(|name| !names().any(|known| known == **name)) {
        tracing::warn!(name, "{CHOICE} names a controller that does not exist; it is ignored");
    }
    start_some(scope, &names().filter(|name| chosen.is_empty() || chosen.contains(name)).collect());
}

/// Starts the named controllers.
pub fn start_some(scope: &Scope, names: &BTreeSet<&str>) {
    start_tenants(scope, names);
    if names.contains("supervisor") {
        supervisor::start_supervisor(scope);
    }
    template::start_some(scope, template::TemplateOptions::from_environment(scope), names);
    integration::start_some(scope, names);
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
