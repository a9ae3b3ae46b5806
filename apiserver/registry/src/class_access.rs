//! Which class and mode a project may take: a `ControlPlaneClass` says which organizations may use it, and where its planes may
//! run. Asked when a project is made, a fork too, and when it moves; what a project has, it keeps.

use freehold_machinery::{Value, meta, selector::Labels};

/// The class of projects that name none. It allows everything where nobody has made it.
pub(crate) const DEFAULT: &str = "default";
/// The mode of projects that name none.
const SHARED: &str = "Shared";

fn plane(project: &Value) -> &Value {
    &project["spec"]["controlPlane"]
}

/// The name of a project's class.
pub(crate) fn name_of(project: &Value) -> &str {
    plane(project)["class"].as_str().filter(|name| !name.is_empty()).unwrap_or(DEFAULT)
}

fn mode_of(project: &Value) -> &str {
    plane(project)["mode"].as_str().unwrap_or(SHARED)
}

/// Whether a project takes another class, mode or owner than it had.
pub(crate) fn is_chosen(new: &Value, old: &Value) -> bool {
    name_of(new) != name_of(old)
        || mode_of(new) != mode_of(old)
        || new["spec"]["ownerRef"] != old["spec"]["ownerRef"]
}

/// Why a class is not for a project of the organization with that namespace; `None` where it is.
pub(crate) fn refusal(class: &Value, namespace: &Value, project: &Value) -> Option<String> {
    let (name, mode, spec) = (meta::name(class), mode_of(project), &class["spec"]);
    if meta::is_deleting(class) {
        return Some(format!("ControlPlaneClass {name:?} is being deleted"));
    }
    if !admits(&spec["allowedOrganizations"], namespace) {
        let owner = project["spec"]["ownerRef"]["name"].as_str().unwrap_or_default();
        return Some(format!("ControlPlaneClass {name:?} is not for organization {owner:?}"));
    }
    let modes = spec["allowedModes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_allowed = modes.is_empty() || modes.iter().any(|allowed| *allowed == *mode);
    (!is_allowed).then(|| format!("ControlPlaneClass {name:?} does not allow mode {mode}"))
}

/// A selector that can't be read selects nothing.
fn admits(selector: &Value, namespace: &Value) -> bool {
    let label = |key: &str| namespace["metadata"]["labels"][key].as_str();
    selector.is_null() || Labels::from_value(selector).is_ok_and(|labels| labels.matches(label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn project(mode: &str) -> Value {
        json!({"spec": {"ownerRef": {"name": "acme"}, "controlPlane": {"class": "gold", "mode": mode}}})
    }

    #[test]
    fn a_class_is_for_the_organizations_and_modes_that_it_names() {
        let (namespace, gold) =
            (json!({"metadata": {"labels": {"tier": "gold"}}}), json!({"matchLabels": {"tier": "gold"}}));
        let other = json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]});
        let broken = json!({"matchExpressions": [{"key": "tier", "operator": "Like"}]});
        let rows = [
            (json!({}), "Dedicated", None),
            (json!({"allowedOrganizations": null, "allowedModes": []}), "Dedicated", None),
            (json!({"allowedOrganizations": {}}), "Shared", None),
            (json!({"allowedOrganizations": gold}), "Shared", None),
            (json!({"allowedOrganizations": other}), "Shared", Some("is not for organization")),
            (json!({"allowedOrganizations": broken}), "Shared", Some("is not for organization")),
            (json!({"allowedModes": ["Shared"]}), "Shared", None),
            (json!({"allowedModes": ["Shared"]}), "Dedicated", Some("does not allow mode Dedicated")),
        ];
        for (spec, mode, expected) in rows {
            let class = json!({"metadata": {"name": "gold"}, "spec": spec});
            let why = refusal(&class, &namespace, &project(mode));
            assert_eq!(why.is_some(), expected.is_some(), "{spec} {mode} {why:?}");
            assert!(expected.is_none_or(|part| why.is_some_and(|why| why.contains(part))), "{spec} {mode}");
        }
        let class = json!({"metadata": {"name": "gold"}, "spec": {"allowedOrganizations": gold}});
        assert!(refusal(&class, &Value::Null, &project("Shared")).is_some(), "no namespace has no labels");
    }

    #[test]
    fn what_a_project_has_is_not_chosen_again() {
        let empty = json!({"spec": {"ownerRef": {"name": "acme"}}});
        let named = json!({"spec": {"ownerRef": {"name": "acme"}, "controlPlane": {"class": "default", "mode": "Shared"}}});
        assert!(!is_chosen(&named, &empty) && !is_chosen(&project("Shared"), &project("Shared")));
        assert!(
            is_chosen(&project("Dedicated"), &project("Shared")) && is_chosen(&project("Shared"), &named)
        );
    }
}
