//! What exports add to the ClusterRoles `view`, `edit` and `admin` of their consumers: rights on exported types alone.

use super::Apis;
use freehold_api::apis::{BINDINGS, EXPORTS, ExportedRole, RoleName};
use freehold_apiserver_catalog::TypeSet;
use freehold_machinery::{PlaneId, ResourceType, Value};
use serde_json::json;
use std::collections::BTreeMap;

/// Rules by the ClusterRole that they are added to.
pub(crate) type BundledRules = BTreeMap<&'static str, Vec<Value>>;

/// The ClusterRoles that contain what a role allows.
fn containing(role: RoleName) -> &'static [&'static str] {
    match role {
        RoleName::View => &["view", "edit", "admin"],
        RoleName::Edit => &["edit", "admin"],
        RoleName::Admin => &["admin"],
    }
}

/// The rule of a role about one exported type; `None` where it is not about that.
fn rule(role: &ExportedRole, ty: &ResourceType) -> Option<Value> {
    let is_of = |resource: &&String| {
        resource.split_once('/').map_or(resource.as_str(), |(plural, _)| plural) == ty.plural
    };
    let resources: Vec<&String> = role.resources.iter().filter(is_of).collect();
    (!resources.is_empty())
        .then(|| json!({"apiGroups": [ty.group], "resources": resources, "verbs": role.verbs}))
}

impl Apis {
    /// Whether a plane, or its class, has a binding.
    pub(crate) fn binds(&self, plane: &PlaneId) -> bool {
        self.index.read().has_bindings(plane) || self.class_of(plane).is_some()
    }

    /// The rules that exports add where a plane serves these types. What an export names and the plane serves otherwise,
    /// as a definition of its own or of Kubernetes, is nothing of the export's.
    pub(crate) fn bundled_rules(&self, types: &TypeSet) -> BundledRules {
        let mut rules = BundledRules::new();
        for ty in types.custom().iter().filter(|ty| ty.since > 0) {
            let Some(export) = self.export_of(ty) else { continue };
            for role in &export.roles {
                let Some(rule) = rule(role, ty) else { continue };
                for name in containing(role.role) {
                    let known = rules.entry(name).or_default();
                    if !known.contains(&rule) {
                        known.push(rule.clone());
                    }
                }
            }
        }
        rules
    }

    /// Tells of planes in which an object of an export or binding may change what roles allow.
    pub(super) fn tell_of_roles(&self, plane: &PlaneId, resource: &str, name: &str) {
        if self.rbac_changes.is_empty() {
            return;
        }
        match resource {
            BINDINGS => self.rbac_changes.tell(plane),
            EXPORTS => {
                let mut told = self.index.read().consumers(plane, name);
                told.extend(self.export(plane, name).iter().flat_map(|export| self.class_consumers(export)));
                told.iter().for_each(|consumer| self.rbac_changes.tell(consumer));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::crd;

    #[test]
    fn a_role_is_about_exported_resources_alone() {
        let spec = json!({
            "group": "db.example.com", "names": {"plural": "databases", "kind": "Database"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        });
        let by = crd::Exporter { home: &PlaneId::core(), identity: "i", since: 1 };
        let ty = crd::exported(&spec, by).unwrap_or_default().remove(0);
        let role = |resources: &[&str]| ExportedRole {
            role: RoleName::Edit,
            resources: resources.iter().map(|name| (*name).to_owned()).collect(),
            verbs: vec!["get".to_owned()],
        };
        assert_eq!(rule(&role(&["secrets", "*", "*/status", "databases2"]), &ty), None);
        let found = rule(&role(&["secrets", "databases/status"]), &ty);
        assert_eq!(
            found,
            Some(
                json!({"apiGroups": ["db.example.com"], "resources": ["databases/status"], "verbs": ["get"]})
            )
        );
    }
}
