//! The roles and bindings that each plane starts with, from `data/bootstrap.txt`.

use crate::aggregated_rules;
use freehold_machinery::Value;
use serde_json::json;

const DATA: &str = include_str!("../data/bootstrap.txt");
const GROUP: &str = "rbac.authorization.k8s.io";

/// Kubernetes' default roles and bindings, aggregated ones summed up.
pub fn bootstrap_objects() -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    for line in DATA.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (line.starts_with(' '), words.as_slice()) {
            (false, ["role", name, rest @ ..]) => objects.push(role(name, rest)),
            (false, ["binding", name, rest @ .., role]) => {
                objects.push(binding(name, rest.first().copied(), role))
            }
            (true, words) => {
                if let Some(object) = objects.last_mut() {
                    add(object, words);
                }
            }
            _ => {}
        }
    }
    // `admin` holds what `edit` sums up, and `edit` what `view` does: each pass goes one step further.
    for _ in 0..3 {
        let roles: Vec<Value> =
            objects.iter().filter(|object| object["kind"] == "ClusterRole").cloned().collect();
        for object in objects.iter_mut().filter(|object| object.get("aggregationRule").is_some()) {
            object["rules"] = aggregated_rules(object, &roles);
        }
    }
    objects
}

fn object(kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut value = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
    });
    if let Some(namespace) = namespace {
        value["metadata"]["namespace"] = namespace.into();
    }
    value
}

fn role(name: &str, rest: &[&str]) -> Value {
    let namespace = rest.first().filter(|word| !word.contains('=')).copied();
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let mut value = object(kind, name, namespace);
    for (key, label) in rest.iter().filter_map(|word| word.split_once('=')) {
        value["metadata"]["labels"][key] = label.into();
    }
    value["rules"] = json!([]);
    value
}

fn binding(name: &str, namespace: Option<&str>, role: &str) -> Value {
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    let (role_kind, role) = role.split_once('/').unwrap_or(("ClusterRole", role));
    let mut value = object(kind, name, namespace);
    value["roleRef"] = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
    value["subjects"] = json!([]);
    value
}

fn list(word: &str) -> Vec<&str> {
    if word == "-" {
        Vec::new()
    } else {
        word.split(',').map(|item| if item == "\"\"" { "" } else { item }).collect()
    }
}

fn push(object: &mut Value, field: &str, value: Value) {
    if let Some(list) = object[field].as_array_mut() {
        list.push(value);
    }
}

/// A line that belongs to the object before it.
fn add(object: &mut Value, words: &[&str]) {
    match words {
        ["aggregates", key] => {
            if object.get("aggregationRule").is_none() {
                object["aggregationRule"] = json!({"clusterRoleSelectors": []});
            }
            push(
                &mut object["aggregationRule"],
                "clusterRoleSelectors",
                json!({"matchLabels": {*key: "true"}}),
            );
        }
        ["ServiceAccount", account] => {
            let (namespace, name) = account.split_once('/').unwrap_or(("kube-system", account));
            push(object, "subjects", json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}));
        }
        [kind @ ("User" | "Group"), name] => {
            push(object, "subjects", json!({"apiGroup": GROUP, "kind": kind, "name": name}));
        }
        [verbs, paths] => {
            push(object, "rules", json!({"verbs": list(verbs), "nonResourceURLs": list(paths)}))
        }
        [verbs, groups, resources, names @ ..] => {
            let mut rule =
                json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)});
            if let Some(names) = names.first() {
                rule["resourceNames"] = list(names).into();
            }
            push(object, "rules", rule);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Policy};
    use freehold_machinery::User;

    fn policy(extra: &[Value]) -> Policy {
        let objects = bootstrap_objects();
        let of = |kind: &str| -> Vec<Value> {
            objects.iter().chain(extra).filter(|object| object["kind"] == kind).cloned().collect()
        };
        Policy::compile(&of("ClusterRole"), &of("ClusterRoleBinding"), &of("Role"), &of("RoleBinding"))
    }

    #[test]
    fn the_default_roles_allow_what_kubernetes_says() {
        let grant = |user: &str, role: &str| {
            let mut value = binding(user, Some("team"), &format!("ClusterRole/{role}"));
            add(&mut value, &["User", user]);
            value
        };
        let policy = policy(&[grant("ann", "admin"), grant("ed", "edit"), grant("vi", "view")]);
        let rows = [
            ("ann", "create", "rbac.authorization.k8s.io", "rolebindings", "team", true),
            ("ed", "create", "rbac.authorization.k8s.io", "rolebindings", "team", false),
            ("ed", "create", "apps", "deployments", "team", true),
            ("ed", "get", "", "secrets", "team", true),
            ("vi", "get", "", "secrets", "team", false),
            ("vi", "list", "", "configmaps", "team", true),
            ("vi", "list", "", "configmaps", "other", false),
            ("vi", "delete", "", "configmaps", "team", false),
        ];
        for (name, verb, group, resource, namespace, allowed) in rows {
            let user =
                User { name: name.into(), groups: vec!["system:authenticated".into()], ..User::default() };
            let asked = Attributes {
                user: &user,
                verb,
                group,
                version: "v1",
                resource,
                subresource: "",
                namespace,
                name: "",
                path: "",
            };
            assert_eq!(policy.authorize(&asked).allowed, allowed, "{name} {verb} {resource} in {namespace}");
        }
    }

    #[test]
    fn discovery_is_for_the_authenticated_and_nothing_is_for_the_anonymous_but_health() {
        let policy = policy(&[]);
        let somebody =
            User { name: "x".into(), groups: vec!["system:authenticated".into()], ..User::default() };
        for (user, path, allowed) in [
            (&somebody, "/apis", true),
            (&somebody, "/openapi/v3", true),
            (&somebody, "/metrics", false),
            (&User::anonymous(), "/apis", false),
            (&User::anonymous(), "/livez", true),
        ] {
            let asked = Attributes {
                user,
                verb: "get",
                group: "",
                version: "",
                resource: "",
                subresource: "",
                namespace: "",
                name: "",
                path,
            };
            assert_eq!(policy.authorize(&asked).allowed, allowed, "{} {path}", user.name);
        }
    }
}
