//! Permissions: `GROUP/RESOURCE[/SUBRESOURCE].VERB`.

use crate::Rule;
use freehold_machinery::{Map, Value};
use serde_json::json;
use std::collections::BTreeMap;

/// A list of permissions as the `rules` of an RBAC role. What is no permission gives nothing.
pub(super) fn rules(permissions: &Value) -> Value {
    let mut joined: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for permission in permissions.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let Some(((group, resource), verb)) =
            permission.rsplit_once('.').and_then(|(what, verb)| Some((what.split_once('/')?, verb)))
        else {
            continue;
        };
        let group = if group == "core" { "" } else { group };
        joined.entry((group, resource)).or_default().push(verb);
    }
    let mut rules = Vec::new();
    for ((group, resource), mut verbs) in joined {
        verbs.sort_unstable();
        verbs.dedup();
        rules.push(json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}));
    }
    Value::Array(rules)
}

/// A rule that allows all with everything stands for all paths too, as in the role `cluster-admin`.
pub(super) fn with_paths(mut rules: Value) -> Value {
    let all = json!(["*"]);
    let everything =
        |rule: &Value| ["apiGroups", "resources", "verbs"].iter().all(|field| rule[*field] == all);
    if let Value::Array(list) = &mut rules
        && list.iter().any(everything)
    {
        let mut paths = Map::new();
        paths.insert("nonResourceURLs".into(), all.clone());
        paths.insert("verbs".into(), all);
        list.push(Value::Object(paths));
    }
    rules
}

/// A rule as permissions.
pub(crate) fn describe(rule: &Rule) -> String {
    let group = |group: &String| if group.is_empty() { "core".to_owned() } else { group.clone() };
    let mut all = Vec::new();
    for at in rule.groups.iter().map(group) {
        for resource in &rule.resources {
            all.extend(rule.verbs.iter().map(|verb| format!("{at}/{resource}.{verb}")));
        }
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_become_rules_by_group_and_resource() {
        let permissions =
            json!(["core/pods.get", "core/pods.list", "apps/*.*", "core/pods/log.get", "x", "a.b", 3]);
        let expected = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
            {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]},
        ]);
        assert_eq!(rules(&permissions), expected);
        assert_eq!(with_paths(rules(&json!(["*/*.*"])))[1]["nonResourceURLs"], json!(["*"]));
        assert_eq!(with_paths(expected.clone()), expected);
    }
}
