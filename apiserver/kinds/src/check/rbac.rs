//! Roles and their bindings.

use super::{
    field::{Errors, Field, same},
    rules,
};
use freehold_machinery::{Value, names};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A Role.
pub(super) fn role(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    object.get("rules").items().for_each(|rule| policy_rule(&rule, true, errors));
}

/// A ClusterRole.
pub(super) fn cluster_role(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    object.get("rules").items().for_each(|rule| policy_rule(&rule, false, errors));
    let aggregation = object.get("aggregationRule");
    let selectors = aggregation.get("clusterRoleSelectors");
    if aggregation.is_set() && selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(selectors.required(detail));
    }
    for selector in selectors.items() {
        let before = errors.len();
        rules::label_selector(&selector, errors);
        if errors.len() > before {
            errors.push(selector.invalid_as(Value::Null, "invalid label selector."));
        }
    }
}

fn policy_rule(rule: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    if rule.get("verbs").is_empty() {
        errors.push(rule.get("verbs").required("verbs must contain at least one value"));
    }
    let [groups, resources, urls] =
        ["apiGroups", "resources", "nonResourceURLs"].map(|field| rule.get(field));
    if !urls.is_empty() {
        if namespaced {
            errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
        }
        if [&groups, &resources, &rule.get("resourceNames")].iter().any(|field| !field.is_empty()) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(urls.invalid(detail));
        }
        return;
    }
    if groups.is_empty() {
        errors.push(groups.required("resource rules must supply at least one api group"));
    }
    if resources.is_empty() {
        errors.push(resources.required("resource rules must supply at least one resource"));
    }
}

/// A RoleBinding.
pub(super) fn role_binding(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    binding(object, old, &["Role", "ClusterRole"], errors);
}

/// A ClusterRoleBinding.
pub(super) fn cluster_role_binding(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    binding(object, old, &["ClusterRole"], errors);
}

fn binding(object: &Field<'_>, old: Option<&Value>, kinds: &[&str], errors: &mut Errors) {
    let role = object.get("roleRef");
    let (group, kind) = (role.get("apiGroup"), role.get("kind"));
    if group.text() != GROUP {
        errors.push(group.not_supported(&[GROUP]));
    }
    if !kinds.contains(&kind.text()) {
        errors.push(kind.not_supported(kinds));
    }
    rules::required_name(&role.get("name"), names::path_segment_name, errors);
    let namespaced = kinds.contains(&"Role");
    object.get("subjects").items().for_each(|who| subject(&who, namespaced, errors));
    if old.is_some_and(|old| !same(&old["roleRef"], role.value)) {
        errors.push(role.invalid("cannot change roleRef"));
    }
}

fn subject(subject: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    let [kind, name, group, namespace] =
        ["kind", "name", "apiGroup", "namespace"].map(|field| subject.get(field));
    rules::required(&name, errors);
    match kind.text() {
        "ServiceAccount" => {
            rules::optional_name(&name, names::dns1123_subdomain, errors);
            if !group.is_empty() {
                errors.push(group.not_supported(&[""]));
            }
            if !namespaced && namespace.is_empty() {
                errors.push(namespace.required(""));
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                errors.push(group.not_supported(&[GROUP]));
            }
        }
        _ => errors.push(kind.not_supported(&["ServiceAccount", "User", "Group"])),
    }
}
