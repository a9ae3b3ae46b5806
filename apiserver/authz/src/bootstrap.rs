//! The roles and bindings that each plane starts with, from `bootstrap.rbac`.

use crate::{GROUP, Rule, aggregation, iam};
use freehold_machinery::{Map, Value};
use serde_json::json;

const SOURCE: &str = include_str!("bootstrap.rbac");
const PREDEFINED: &str = include_str!("predefined.iam");

/// What stands for several verbs.
const VERBS: [(&str, &str); 4] = [
    ("read", "get,list,watch"),
    ("write", "create,update,patch,delete,deletecollection"),
    ("readwrite", "get,list,watch,create,update,patch,delete,deletecollection"),
    ("readupdate", "get,list,watch,update,patch"),
];

/// Kubernetes' default ClusterRoles, ClusterRoleBindings, Roles and RoleBindings, with its labels and annotations.
///
/// Aggregated roles have their rules already. Roles and RoleBindings are in `kube-system` and `kube-public`.
pub fn bootstrap_objects() -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    let mut role = None;
    for line in SOURCE.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with(' ') {
            let at: usize = role.expect("a rule follows its role");
            let rules = objects[at]["rules"].as_array_mut().expect("roles are made with rules");
            rules.push(rule(&words));
        } else {
            role = Some(objects.len());
            objects.extend(declaration(&words));
        }
    }
    settle(&mut objects);
    objects
}

/// The service accounts of `kube-system` that Kubernetes' controllers have.
pub(crate) fn controllers() -> impl Iterator<Item = &'static str> {
    SOURCE.lines().filter_map(|line| line.strip_prefix("controller ")).map(str::trim)
}

/// The roles of the platform that every organization may use, in [`iam::SYSTEM`].
pub fn predefined_roles() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for line in PREDEFINED.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if let Some((name, about)) = line.strip_prefix("role ").and_then(|rest| rest.split_once(' ')) {
            let mut role = object("Role", iam::SYSTEM, name, json!({"spec": {"description": about}}));
            role["apiVersion"] = format!("{}/v1alpha1", iam::GROUP).into();
            role["metadata"]["labels"] = json!({"iam.freehold.dev/predefined": "true"});
            if let Some(metadata) = role["metadata"].as_object_mut() {
                metadata.remove("annotations");
            }
            roles.push(role);
            continue;
        }
        let line = line.trim();
        let (field, permission) = match line.strip_prefix("but ") {
            Some(rest) => ("excludedPermissions", rest),
            None => ("includedPermissions", line),
        };
        let (what, verb) = permission.rsplit_once('.').expect("a permission has a verb");
        let verbs = VERBS.iter().find(|(name, _)| *name == verb).map_or(verb, |(_, verbs)| verbs);
        let spec = &mut roles.last_mut().expect("a permission follows its role")["spec"];
        let mut list = spec[field].as_array().cloned().unwrap_or_default();
        list.extend(verbs.split(',').map(|verb| Value::from(format!("{what}.{verb}"))));
        spec[field] = list.into();
    }
    roles
}

/// Fills in the rules of aggregated ClusterRoles among `objects`.
pub fn settle(objects: &mut [Value]) {
    loop {
        let all: Vec<&Value> = objects.iter().collect();
        let changes: Vec<(Value, Vec<Value>)> = aggregation::outdated(&all)
            .into_iter()
            .map(|(role, rules)| (role["metadata"].clone(), rules))
            .collect();
        if changes.is_empty() {
            return;
        }
        for (metadata, rules) in changes {
            let role = objects
                .iter_mut()
                .find(|object| object["kind"] == "ClusterRole" && object["metadata"] == metadata);
            role.expect("the role was just seen")["rules"] = Value::Array(rules);
        }
    }
}

fn declaration(words: &[&str]) -> Vec<Value> {
    match words {
        ["clusterrole", name, options @ ..] => vec![cluster_role(name, options)],
        ["role", namespace, name] => vec![object("Role", namespace, name, json!({"rules": []}))],
        ["bind", role, subjects @ ..] => {
            vec![binding("ClusterRoleBinding", "", role, "ClusterRole", role, subjects)]
        }
        ["bindin", namespace, name, role, subjects @ ..] => {
            vec![binding("RoleBinding", namespace, name, "Role", role, subjects)]
        }
        ["controller", name] => {
            let role = format!("system:controller:{name}");
            let account = format!("sa:kube-system/{name}");
            let bound = binding("ClusterRoleBinding", "", &role, "ClusterRole", &role, &[&account]);
            vec![cluster_role(&role, &[]), bound]
        }
        other => unreachable!("bootstrap.rbac: {other:?}"),
    }
}

fn cluster_role(name: &str, options: &[&str]) -> Value {
    let mut role = object("ClusterRole", "", name, json!({"rules": []}));
    for (key, value) in options.iter().filter_map(|option| option.split_once('=')) {
        if key == "aggregates" {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {value: "true"}}]});
        } else {
            role["metadata"]["labels"][key] = value.into();
        }
    }
    role
}

fn binding(kind: &str, namespace: &str, name: &str, role_kind: &str, role: &str, subjects: &[&str]) -> Value {
    let reference = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
    let mut fields = json!({"roleRef": reference});
    if !subjects.is_empty() {
        fields["subjects"] = subjects.iter().map(|subject| self::subject(subject)).collect();
    }
    object(kind, namespace, name, fields)
}

fn subject(text: &str) -> Value {
    match text.split_once(':').expect("a subject has a kind") {
        ("user", name) => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
        ("group", name) => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
        (_, account) => {
            let (namespace, name) = account.split_once('/').expect("a service account has a namespace");
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
    }
}

fn object(kind: &str, namespace: &str, name: &str, fields: Value) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    let head = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata});
    let parts = [head, fields]
        .into_iter()
        .filter_map(|part| if let Value::Object(map) = part { Some(map) } else { None });
    Value::Object(parts.flatten().collect::<Map>())
}

/// Lists are sorted, as Kubernetes sorts them.
fn rule(words: &[&str]) -> Value {
    let list = |text: &str| {
        let mut items: Vec<String> =
            text.split(',').map(|item| if item == "core" { "" } else { item }.to_owned()).collect();
        items.sort();
        items
    };
    let verbs =
        |text: &str| list(VERBS.iter().find(|(name, _)| *name == text).map_or(text, |(_, verbs)| verbs));
    let rule = match words {
        ["events"] => return rule(&["create,update,patch", "core,events.k8s.io", "events"]),
        [v, "url", urls] => Rule { verbs: verbs(v), urls: list(urls), ..Rule::default() },
        [v, groups, resources] => {
            Rule { verbs: verbs(v), groups: list(groups), resources: list(resources), ..Rule::default() }
        }
        [v, groups, resources, names] => Rule {
            verbs: verbs(v),
            groups: list(groups),
            resources: list(resources),
            names: list(names),
            urls: Vec::new(),
        },
        other => unreachable!("bootstrap.rbac: {other:?}"),
    };
    rule.to_value()
}
