//! Operations in the platform's own planes that no object of an organization can allow.
//!
//! RBAC and the platform's roles, checks of grants, impersonation and reviews all ask this table through
//! [`Access`](crate::Access). A new row closes an operation for all of them.

use crate::{
    Attributes, Rule,
    iam::{GROUP as IAM, QUOTA_GROUP as QUOTA, RESOURCES_GROUP as RESOURCES},
};
use freehold_machinery::{User, reserved::CONTROLLERS, user::MASTERS};
use std::sync::LazyLock;

/// The API group of what dedicated pairs are made of.
const INFRASTRUCTURE: &str = "infrastructure.freehold.dev";

/// Verbs that change an object.
const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// The first letters of all verbs of impersonation, constrained ones too (KEP-5284).
const IMPERSONATE: &str = "impersonate";

/// Resources that Freehold's controllers alone write: the platform trusts what stands there.
const CONTROLLERS_OWN: [(&str, &[&str]); 4] = [
    (RESOURCES, &["*/status"]),
    (IAM, &["*/status"]),
    (QUOTA, &["*/status"]),
    (INFRASTRUCTURE, &["*/status"]),
];

/// Resources that are written by those whom the platform allows it.
const PLATFORMS_OWN: [(&str, &[&str]); 6] = [
    // What an organization is allowed.
    (QUOTA, &["*"]),
    ("", &["resourcequotas", "resourcequotas/status"]),
    // An organization's namespace goes with the organization.
    ("", &["namespaces", "namespaces/status", "namespaces/finalize"]),
    // These are of all organizations.
    (RESOURCES, &["controlplaneclasses"]),
    (INFRASTRUCTURE, &["workloadclusters"]),
    (IAM, &["users", "userdeactivations"]),
];

static CONTROLLERS_RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| rules(&CONTROLLERS_OWN));
static PLATFORMS_RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| rules(&PLATFORMS_OWN));

fn rules(rows: &[(&str, &[&str])]) -> Vec<Rule> {
    let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
    let rule = |(group, resources): &(&str, &[&str])| Rule {
        verbs: list(&WRITE),
        groups: list(&[group]),
        resources: list(resources),
        ..Rule::default()
    };
    rows.iter().map(rule).collect()
}

/// Whether a user is one of Freehold's controllers, or may do everything.
pub fn is_controller(user: &User) -> bool {
    user.plane.is_none() && !user.from_host && (user.is_in(MASTERS) || user.is_in(CONTROLLERS))
}

/// Whether an operation is for Freehold's controllers alone, whatever allows it to others.
pub fn is_for_controllers(asked: &Attributes<'_>) -> bool {
    !asked.is_read() && CONTROLLERS_RULES.iter().any(|rule| rule.is_about(asked))
}

/// Whether no object of an organization can allow an operation.
pub fn is_for_platform(asked: &Attributes<'_>) -> bool {
    asked.verb.starts_with(IMPERSONATE)
        || is_for_controllers(asked)
        || !asked.is_read() && PLATFORMS_RULES.iter().any(|rule| rule.is_about(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_so_for_every_verb_but_reads() {
        let user = User::default();
        let rows = [
            (RESOURCES, "projectsnapshots", "status", true, true),
            (IAM, "policybindings", "status", true, true),
            (RESOURCES, "projectsnapshots", "", false, false),
            (QUOTA, "resourcegrants", "", false, true),
            (QUOTA, "resourcegrants", "status", true, true),
            ("", "namespaces", "finalize", false, true),
            ("", "secrets", "", false, false),
            ("apps", "deployments", "status", false, false),
        ];
        for (group, resource, subresource, controllers, platform) in rows {
            for verb in WRITE.into_iter().chain(["invented"]) {
                let asked = Attributes { subresource, ..Attributes::resource(&user, verb, group, resource) };
                assert_eq!(
                    is_for_controllers(&asked),
                    controllers,
                    "{verb} {group} {resource}/{subresource}"
                );
                assert_eq!(is_for_platform(&asked), platform, "{verb} {group} {resource}/{subresource}");
            }
            let read = Attributes { subresource, ..Attributes::resource(&user, "get", group, resource) };
            assert!(!is_for_controllers(&read) && !is_for_platform(&read));
        }
        for verb in ["impersonate", "impersonate:user-info", "impersonate-on:user-info:get"] {
            assert!(is_for_platform(&Attributes::resource(&user, verb, "", "users")));
        }
    }
}
