//! Aggregated ClusterRoles: those whose rules are the union of others', chosen by label
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>).

use freehold_machinery::{Value, meta, selector::Labels};

/// What the `rules` of an aggregated ClusterRole should be, given all ClusterRoles of its plane.
///
/// `None` for a role that does not aggregate: its rules are its own. A selector that can't be read chooses nothing.
pub fn aggregated_rules<'a>(role: &Value, all: impl IntoIterator<Item = &'a Value>) -> Option<Vec<Value>> {
    let aggregation = role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let selectors: Vec<Labels> = aggregation["clusterRoleSelectors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|selector| Labels::from_value(selector).ok())
        .collect();
    let name = meta::name(role);
    let chosen = |other: &&Value| meta::name(other) != name && selectors.iter().any(|s| matches(s, other));
    let mut sources: Vec<&Value> = all.into_iter().filter(chosen).collect();
    sources.sort_by_key(|source| meta::name(source));
    let mut rules: Vec<Value> = Vec::new();
    for rule in sources.into_iter().filter_map(|source| source["rules"].as_array()).flatten() {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    Some(rules)
}

/// Which aggregated ClusterRoles of a plane have to be written again, each with its new rules. Roles that aggregate
/// aggregated ones settle when this is called until it gives nothing.
pub fn outdated<'a>(all: &[&'a Value]) -> Vec<(&'a Value, Vec<Value>)> {
    let current = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
    let wanted = |role: &&'a Value| Some((*role, aggregated_rules(role, all.iter().copied())?));
    all.iter().filter_map(wanted).filter(|(role, rules)| current(role) != *rules).collect()
}

fn matches(selector: &Labels, role: &Value) -> bool {
    selector.matches(|key| meta::label(role, key))
}
