//! What a Quota means: ResourceQuotas of single namespaces, and limits over all of a tenant's.

use freehold_machinery::Map;
use freehold_tenancy_api::quota::Quota;
use freehold_tenancy_api::tenant::NamedSpec;
use serde_json::json;
use std::collections::BTreeMap;

/// The ResourceQuotas that each namespace gets: one that tracks use and holds the whole limit even while nothing checks
/// the sum, and one with the limits of single namespaces.
pub fn resource_quotas(quota: &Quota) -> Vec<NamedSpec> {
    let spec = |hard: &BTreeMap<String, String>, scoped: bool| {
        let mut spec = Map::from_iter([("hard".to_owned(), json!(hard))]);
        if scoped && !quota.spec.scopes.is_empty() {
            spec.insert("scopes".into(), json!(quota.spec.scopes));
        }
        spec
    };
    let name = &quota.metadata.name;
    let mut quotas = Vec::new();
    if !quota.spec.hard.is_empty() {
        quotas.push(NamedSpec { name: name.clone(), spec: spec(&quota.spec.hard, true) });
    }
    if !quota.spec.per_namespace.is_empty() {
        let spec = spec(&quota.spec.per_namespace, false);
        quotas.push(NamedSpec { name: format!("{name}-namespace"), spec });
    }
    quotas
}
