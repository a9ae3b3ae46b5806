//! What a decision costs with 1,000 roles and 10,000 bindings in one organization, and with a thousand organizations of a
//! hundred members each, and what these take in memory:
//! `cargo run --release -p freehold-apiserver-authz --example decision_cost`.
//!
//! Time is measured for each decision, which is short enough not to be interrupted most times; the median is printed.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example prints what it measured")]

use freehold_apiserver_authz::{
    Attributes,
    iam::{Iam, Kind, Scope},
    predefined_roles,
};
use freehold_machinery::{User, Value};
use serde_json::json;
use std::time::Instant;

const ROLES: usize = 1_000;
const BINDINGS: usize = 10_000;
const USERS: usize = 500;
const ORGANIZATIONS: usize = 1_000;
const MEMBERS: usize = 100;

fn object(namespace: &str, name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

/// Resident memory of this process, in KiB; 0 where the system does not say.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn large() -> Iam {
    let mut iam = Iam::default();
    for role in predefined_roles() {
        iam.put(Kind::Role, &role, false);
    }
    let home = "organization-acme";
    for n in 0..ROLES {
        let permissions: Vec<String> = (0..20).map(|p| format!("apps/things{}.get", n * 7 + p)).collect();
        let inherited = json!([{"name": format!("role-{}", (n + 1) % ROLES)}]);
        let inherited = if n % 10 == 0 { inherited } else { json!([]) };
        let spec = json!({"includedPermissions": permissions, "inheritedRoles": inherited});
        iam.put(Kind::Role, &object(home, &format!("role-{n}"), spec), false);
    }
    for n in 0..BINDINGS {
        let target = match n % 3 {
            0 => json!({"kind": "Organization", "name": "acme"}),
            _ => json!({"kind": "Project", "name": format!("project-{}", n % 50)}),
        };
        let subjects = json!([{"kind": "User", "name": format!("user-{}", n % USERS)}]);
        let spec = json!({"roleRef": {"name": format!("role-{}", n % ROLES)}, "subjects": subjects, "target": target});
        iam.put(Kind::Binding, &object(home, &format!("binding-{n}"), spec), false);
    }
    let before = resident();
    for organization in 0..ORGANIZATIONS {
        for member in 0..MEMBERS {
            let name = format!("org-{organization}");
            let spec = json!({
                "organizationRef": {"name": name}, "userRef": {"name": format!("member-{member}")}, "roles": ["editor"],
            });
            iam.put(
                Kind::Membership,
                &object(&format!("organization-{name}"), &format!("m-{member}"), spec),
                false,
            );
        }
    }
    let each = (resident() - before) * 1024 / (ORGANIZATIONS * MEMBERS);
    println!("memberships take {each} bytes each, as they are read");
    iam
}

/// Median and 99th percentile in nanoseconds.
fn measure(iam: &Iam, questions: &[(Scope, User, String)]) -> (u128, u128) {
    let mut times = Vec::with_capacity(questions.len());
    let mut allowed = 0;
    for (scope, user, resource) in questions {
        let asked = Attributes {
            namespace: "shop",
            name: "x",
            ..Attributes::resource(user, "get", "apps", resource)
        };
        let started = Instant::now();
        allowed += usize::from(iam.authorize(scope, &asked).is_some());
        times.push(started.elapsed().as_nanos());
    }
    times.sort_unstable();
    println!("  {allowed} of {} were allowed", questions.len());
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn main() {
    let started = Instant::now();
    let iam = large();
    println!(
        "{ROLES} roles, {BINDINGS} bindings, {} memberships: read in {:?}",
        ORGANIZATIONS * MEMBERS,
        started.elapsed()
    );
    let user = |name: String| User { name, groups: vec!["system:authenticated".into()], ..User::default() };
    let project = |organization: &str, n: usize| Scope::Project {
        organization: organization.into(),
        project: format!("project-{}", n % 50).as_str().into(),
    };
    let of_bindings: Vec<_> = (0..100_000)
        .map(|n| (project("acme", n), user(format!("user-{}", n % USERS)), format!("things{}", n % 7_000)))
        .collect();
    let of_members: Vec<_> = (0..100_000)
        .map(|n| {
            (
                project(&format!("org-{}", n % ORGANIZATIONS), n),
                user(format!("member-{}", n % 120)),
                "deployments".into(),
            )
        })
        .collect();
    for (what, questions) in [("bindings", of_bindings), ("memberships", of_members)] {
        let started = Instant::now();
        for (scope, user, _) in questions.iter().take(ORGANIZATIONS) {
            let asked = Attributes::resource(user, "get", "", "warm");
            let _ = iam.authorize(scope, &asked);
        }
        println!(
            "{what}: the first {ORGANIZATIONS} decisions took {:?}; {} MiB are resident",
            started.elapsed(),
            resident() / 1024
        );
        let (median, high) = measure(&iam, &questions);
        println!("  median {median} ns, 99th percentile {high} ns");
    }
}
