//! Cluster roles that are the sum of others.

use freehold_machinery::{Value, selector::Labels};

/// Whether `role` is one of those that make up `sum`.
pub fn aggregates_into(role: &Value, sum: &Value) -> bool {
    let selectors = sum["aggregationRule"]["clusterRoleSelectors"].as_array();
    let chosen = |selector: &Value| {
        let label = |key: &str| freehold_machinery::meta::label(role, key);
        Labels::from_value(selector).is_ok_and(|selector| selector.matches(label))
    };
    freehold_machinery::meta::name(role) != freehold_machinery::meta::name(sum)
        && selectors.into_iter().flatten().any(chosen)
}

/// The rules of `sum`: those of all roles that make it up, each once, in the order of the roles.
pub fn aggregated_rules<'a>(sum: &Value, roles: impl IntoIterator<Item = &'a Value>) -> Value {
    let mut rules: Vec<Value> = Vec::new();
    for role in roles.into_iter().filter(|role| aggregates_into(role, sum)) {
        for rule in role["rules"].as_array().into_iter().flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules.into()
}
