//! A tenant's rules, compiled to annotations of its namespaces.
//!
//! Admission policies of the API server read them through `namespaceObject`: a request costs the same beside one tenant
//! or thousands, no policy is bound per tenant, and the rules hold while no process of the subsystem runs. Rules of the
//! tenants above are part of them: lists are intersected, prohibitions are joined.

use crate::tenant::Chain;
use freehold_tenancy_api::tenant::{AllowedClasses, Classes, Tenant};
use std::collections::{BTreeMap, BTreeSet};

/// What keys of the annotations begin with.
pub const PREFIX: &str = "rules.tenancy.freehold.dev/";

/// A class of objects of the cluster, with the key of its rule.
#[derive(Clone, Copy, Debug)]
pub struct ClassRule {
    /// The key of the rule, without [`PREFIX`].
    pub key: &'static str,
    /// The kind of class in messages.
    pub what: &'static str,
    /// Its API group.
    pub group: &'static str,
    /// Its plural resource.
    pub resource: &'static str,
    /// Its entry in a Tenant.
    pub of: fn(&Classes) -> Option<&AllowedClasses>,
}

/// All classes that a tenant can limit.
pub const CLASSES: [ClassRule; 5] = [
    ClassRule {
        key: "storage-classes",
        what: "StorageClass",
        group: "storage.k8s.io",
        resource: "storageclasses",
        of: |c| c.storage.as_ref(),
    },
    ClassRule {
        key: "ingress-classes",
        what: "IngressClass",
        group: "networking.k8s.io",
        resource: "ingressclasses",
        of: |c| c.ingress.as_ref(),
    },
    ClassRule {
        key: "gateway-classes",
        what: "GatewayClass",
        group: "gateway.networking.k8s.io",
        resource: "gatewayclasses",
        of: |c| c.gateway.as_ref(),
    },
    ClassRule {
        key: "priority-classes",
        what: "PriorityClass",
        group: "scheduling.k8s.io",
        resource: "priorityclasses",
        of: |c| c.priority.as_ref(),
    },
    ClassRule {
        key: "runtime-classes",
        what: "RuntimeClass",
        group: "node.k8s.io",
        resource: "runtimeclasses",
        of: |c| c.runtime.as_ref(),
    },
];

/// The list that several lists have in common; `None` where none is given.
fn intersection<'a>(lists: impl Iterator<Item = &'a Vec<String>>) -> Option<Vec<String>> {
    lists.map(|list| list.iter().cloned().collect::<BTreeSet<_>>()).reduce(|a, b| &a & &b).map(Vec::from_iter)
}

/// The classes that a chain of tenants allows; `None` for all.
pub fn allowed_classes(chain: &Chain, rule: &ClassRule) -> Option<Vec<String>> {
    intersection(chain.tenants.iter().filter_map(|t| (rule.of)(&t.spec.classes)).map(|c| &c.allowed))
}

/// The class of objects that name none: that of the nearest tenant which has one.
pub fn default_class(chain: &Chain, rule: &ClassRule) -> Option<String> {
    let mut classes = chain.tenants.iter().filter_map(|t| (rule.of)(&t.spec.classes));
    classes.find(|c| !c.default.is_empty()).map(|c| c.default.clone())
}

/// Lists of strings, one for each tenant that has a list, all of which have to hold.
type ListOf = fn(&Tenant) -> Option<&Vec<String>>;

fn filled(list: &Vec<String>) -> Option<&Vec<String>> {
    Some(list).filter(|list| !list.is_empty())
}

/// Rules that are lists: a value has to be allowed by the list of each tenant that has one.
pub const LISTS: [(&str, ListOf); 5] = [
    ("registries", |t| filled(&t.spec.images.registries)),
    ("hosts", |t| filled(&t.spec.hosts.allowed)),
    ("service-types", |t| filled(&t.spec.services.types)),
    ("external-ips", |t| t.spec.services.external_ips.as_ref()),
    ("tolerations", |t| t.spec.scheduling.tolerations.as_ref()),
];

/// The lists of a chain for a rule of [`LISTS`].
pub fn lists(chain: &Chain, of: ListOf) -> impl Iterator<Item = &Vec<String>> {
    chain.tenants.iter().filter_map(move |tenant| of(tenant))
}

/// Rules for keys of labels or annotations, of all tenants of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Keys that must be there, with their values; no values stands for any.
    pub required: BTreeMap<String, Vec<String>>,
    /// Keys that members may not set; `prefix/*` stands for all keys of a prefix.
    pub forbidden: BTreeSet<String>,
    /// Keys that members may not change.
    pub protected: BTreeSet<String>,
}

/// The rules for keys of labels (`labels`) or annotations of namespaces.
pub fn keys(chain: &Chain, labels: bool) -> Keys {
    let mut keys = Keys::default();
    for tenant in chain.tenants.iter().rev() {
        let metadata = &tenant.spec.metadata;
        let rules = if labels { &metadata.label_rules } else { &metadata.annotation_rules };
        keys.required.extend(rules.required.clone());
        keys.forbidden.extend(rules.forbidden.iter().cloned());
        keys.protected.extend(rules.protected.iter().cloned());
    }
    keys
}

/// The node selector that Pods get. Tenants above overrule those below.
pub fn node_selector(chain: &Chain) -> BTreeMap<String, String> {
    chain.tenants.iter().flat_map(|tenant| tenant.spec.scheduling.node_selector.clone()).collect()
}

/// The annotations with a chain's rules.
pub fn annotations(chain: &Chain) -> BTreeMap<String, String> {
    let mut rules = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        rules.insert(format!("{PREFIX}{key}"), value);
    };
    for class in &CLASSES {
        if let Some(allowed) = allowed_classes(chain, class) {
            put(class.key, allowed.join(","));
        }
        if let Some(default) = default_class(chain, class) {
            put(&format!("default-{}", class.key.trim_end_matches("es")), default);
        }
    }
    for (key, of) in LISTS {
        // Values of two lists are joined with `;`: a value must match one of each.
        let lists: Vec<String> = lists(chain, of).map(|list| list.join(",")).collect();
        if !lists.is_empty() {
            put(key, lists.join(";"));
        }
    }
    if chain.tenants.iter().any(|tenant| tenant.spec.hosts.forbid_wildcards) {
        put("forbid-wildcard-hosts", "true".into());
    }
    let selector = node_selector(chain);
    if !selector.is_empty() {
        put("node-selector", pairs(&selector));
    }
    for (labels, what) in [(true, "labels"), (false, "annotations")] {
        let keys = keys(chain, labels);
        let required = keys.required.iter().map(|(key, values)| {
            // Values that would be read as several are left to the webhook, which has them as they are.
            let plain = values.iter().all(|value| !value.contains([',', '=', '|']));
            format!("{key}={}", if plain { values.join("|") } else { String::new() })
        });
        let lists = [
            ("required", required.collect::<Vec<_>>()),
            ("forbidden", Vec::from_iter(keys.forbidden)),
            ("protected", Vec::from_iter(keys.protected)),
        ];
        for (rule, list) in lists {
            if !list.is_empty() {
                put(&format!("{rule}-{what}"), list.join(","));
            }
        }
    }
    rules
}

/// Returns the labels as a selector: `key=value,key=value`.
pub fn pairs(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_tenancy_api::tenant::TenantSpec;
    use std::sync::Arc;

    #[test]
    fn rules_of_tenants_above_narrow_those_below() {
        let tenant = |allowed: &[&str], default: &str, registries: &[&str]| {
            let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
            let mut spec = TenantSpec::default();
            spec.classes.storage =
                Some(AllowedClasses { allowed: strings(allowed), default: default.into() });
            spec.images.registries = strings(registries);
            Arc::new(Tenant::new("t", spec))
        };
        let (child, parent) =
            (tenant(&["fast", "slow"], "", &["r/a"]), tenant(&["slow", "old"], "slow", &["r"]));
        let chain = Chain { tenants: vec![child, parent], problem: None };
        let rules = annotations(&chain);
        let of = |key: &str| rules.get(&format!("{PREFIX}{key}")).map(String::as_str);
        assert_eq!(of("storage-classes"), Some("slow"));
        assert_eq!(of("default-storage-class"), Some("slow"));
        assert_eq!(of("registries"), Some("r/a;r"));
        assert_eq!((of("hosts"), rules.len()), (None, 3));
    }
}
