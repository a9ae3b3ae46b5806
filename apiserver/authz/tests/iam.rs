//! What the platform's roles and bindings allow, and where.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_apiserver_authz::{
    Access, Attributes, Policy, RuleCache,
    iam::{Iam, Kind, Scope, organization_of},
    predefined_roles, reserved,
};
use freehold_machinery::{User, Value};
use parking_lot::RwLock;
use serde_json::json;
use std::sync::Arc;

fn user(name: &str) -> User {
    User { name: name.into(), groups: vec!["system:authenticated".into()], ..User::default() }
}

fn object(namespace: &str, name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn binding(role: Value, subjects: Value, target: Value) -> Value {
    json!({"roleRef": role, "subjects": subjects, "target": target})
}

fn member(namespace: &str, organization: &str, user: &str, roles: Value) -> Value {
    object(
        namespace,
        user,
        json!({"organizationRef": {"name": organization}, "userRef": {"name": user}, "roles": roles}),
    )
}

fn project(organization: &str, project: &str) -> Scope {
    Scope::Project { organization: organization.into(), project: project.into() }
}

fn organization(name: &str) -> Scope {
    Scope::Organization(name.into())
}

fn iam() -> Iam {
    let mut iam = Iam::default();
    for role in predefined_roles() {
        iam.put(Kind::Role, &role, false);
    }
    let (acme, system) = ("organization-acme", "freehold-system");
    let deployer = json!({"includedPermissions": ["apps/deployments.create", "core/pods/log.get"], "inheritedRoles": [{"name": "viewer", "namespace": system}]});
    iam.put(Kind::Role, &object(acme, "deployer", deployer), false);
    let user = |name: &str| json!([{"kind": "User", "name": name}]);
    let here = json!({"kind": "Organization", "name": "acme"});
    let web = json!({"kind": "Project", "name": "web"});
    let predefined = |name: &str| json!({"name": name, "namespace": system});
    let maps = json!({"kind": "Project", "name": "web", "resource": {"resource": "configmaps", "namespace": "shop"}});
    let rows = [
        (acme, "dora", binding(json!({"name": "deployer"}), user("dora"), web.clone())),
        (acme, "maps", binding(predefined("editor"), user("max"), maps)),
        (
            acme,
            "team",
            binding(predefined("editor"), json!([{"kind": "Group", "name": "team"}]), here.clone()),
        ),
        (
            acme,
            "bot",
            binding(predefined("viewer"), json!([{"kind": "ServiceAccount", "name": "bot"}]), here.clone()),
        ),
        // These reach for what is not the organization's.
        (acme, "all", binding(predefined("owner"), user("eve"), json!({"kind": "Platform"}))),
        (
            acme,
            "other",
            binding(predefined("owner"), user("eve"), json!({"kind": "Organization", "name": "umbrella"})),
        ),
        (
            acme,
            "foreign",
            binding(predefined("owner"), user("eve"), json!({"kind": "Project", "name": "hive"})),
        ),
        ("default", "elsewhere", binding(predefined("owner"), user("eve"), here.clone())),
        (acme, "gone", binding(json!({"name": "none"}), user("lost"), here.clone())),
        (
            system,
            "ops",
            binding(
                json!({"name": "viewer"}),
                json!([{"kind": "Group", "name": "ops"}]),
                json!({"kind": "Platform"}),
            ),
        ),
        (system, "web", binding(json!({"name": "editor"}), user("sam"), web)),
    ];
    for (namespace, name, spec) in rows {
        iam.put(Kind::Binding, &object(namespace, name, spec), false);
    }
    let in_team = json!({"groupRef": {"name": "team"}, "userRef": {"name": "tina"}});
    iam.put(Kind::GroupMembership, &object(acme, "tina", in_team.clone()), false);
    let mut theirs = in_team;
    theirs["userRef"]["name"] = "eve".into();
    iam.put(Kind::GroupMembership, &object("organization-umbrella", "eve", theirs), false);
    for (name, role) in [("olga", "owner"), ("ed", "editor"), ("vera", "viewer")] {
        iam.put(Kind::Membership, &member(acme, "acme", name, json!([role])), false);
    }
    for guest in ["dora", "max", "tina", "eve", "lost"] {
        iam.put(Kind::Membership, &member(acme, "acme", guest, json!([])), false);
    }
    // One that names another organization than the one whose namespace it is in.
    iam.put(Kind::Membership, &member("organization-umbrella", "acme", "eve", json!(["owner"])), false);
    iam
}

fn allowed(iam: &Iam, scope: &Scope, user: &User, (verb, group, resource): (&str, &str, &str)) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let asked = Attributes {
        subresource,
        namespace: "shop",
        name: "x",
        ..Attributes::resource(user, verb, group, resource)
    };
    iam.authorize(scope, &asked).is_some()
}

#[test]
fn roles_count_where_their_bindings_say() {
    let iam = iam();
    let (web, api, hive) = (project("acme", "web"), project("acme", "api"), project("umbrella", "hive"));
    let create = ("create", "apps", "deployments");
    let read = ("get", "", "pods");
    let secret = ("get", "", "secrets");
    let rows = [
        ("dora", &web, create, true),
        ("dora", &api, create, false),
        ("dora", &web, read, true),
        ("dora", &web, ("delete", "apps", "deployments"), false),
        ("dora", &web, ("get", "", "pods/log"), true),
        ("max", &web, ("update", "", "configmaps"), true),
        ("max", &web, ("update", "", "secrets"), false),
        ("tina", &web, create, true),
        ("tina", &hive, create, false),
        ("freehold:serviceaccount:organization-acme:bot", &api, read, true),
        ("freehold:serviceaccount:organization-umbrella:bot", &api, read, false),
        ("olga", &web, ("escalate", "rbac.authorization.k8s.io", "roles"), true),
        ("olga", &hive, read, false),
        ("olga", &organization("acme"), ("create", "iam.freehold.dev", "policybindings"), true),
        ("olga", &Scope::Platform, read, false),
        ("ed", &web, secret, true),
        ("ed", &organization("acme"), ("create", "iam.freehold.dev", "policybindings"), false),
        ("ed", &organization("acme"), ("get", "iam.freehold.dev", "policybindings"), true),
        ("vera", &web, read, true),
        ("vera", &web, secret, false),
        ("vera", &web, ("get", "", "pods/exec"), false),
        ("vera", &web, create, false),
        ("sam", &web, create, true),
        ("sam", &api, create, false),
        ("lost", &web, read, false),
        ("nobody", &web, read, false),
    ];
    for (name, scope, asked, expected) in rows {
        assert_eq!(allowed(&iam, scope, &user(name), asked), expected, "{name} {scope:?} {asked:?}");
    }
    for scope in [&web, &hive, &organization("umbrella"), &organization("acme"), &Scope::Platform] {
        assert!(!allowed(&iam, scope, &user("eve"), read), "{scope:?}");
    }
    let ops = User { groups: vec!["ops".into()], ..user("oscar") };
    assert!(allowed(&iam, &hive, &ops, read) && !allowed(&iam, &Scope::Nowhere, &ops, read));
    let bound = User { plane: Some("p".parse().unwrap()), ..user("olga") };
    assert!(!allowed(&iam, &web, &bound, read), "an identity of one plane is nobody here");
}

#[test]
fn what_goes_counts_no_more() {
    let mut iam = iam();
    let web = project("acme", "web");
    let read = ("get", "", "pods");
    iam.put(Kind::Membership, &member("organization-acme", "acme", "vera", json!(["viewer"])), true);
    assert!(!allowed(&iam, &web, &user("vera"), read));
    let mut going = member("organization-acme", "acme", "ed", json!(["editor"]));
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    iam.put(Kind::Membership, &going, false);
    assert!(!allowed(&iam, &web, &user("ed"), read));
    let role = object("freehold-system", "owner", json!({}));
    assert!(allowed(&iam, &web, &user("olga"), read));
    iam.put(Kind::Role, &role, true);
    assert!(!allowed(&iam, &web, &user("olga"), read), "a role of all organizations is looked up anew");
    let locked = object("", "x", json!({"userRef": {"name": "dora"}, "reason": "left"}));
    iam.put(Kind::Deactivation, &locked, false);
    assert_eq!(iam.deactivated("dora"), Some("left"));
    iam.put(Kind::Deactivation, &locked, true);
    assert_eq!(iam.deactivated("dora"), None);
}

#[test]
fn roles_that_inherit_each_other_end() {
    let mut iam = iam();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let spec =
            json!({"includedPermissions": [format!("core/{name}.get")], "inheritedRoles": [{"name": other}]});
        iam.put(Kind::Role, &object("organization-acme", name, spec), false);
    }
    let here = json!({"kind": "Organization", "name": "acme"});
    let spec = binding(json!({"name": "a"}), json!([{"kind": "User", "name": "u"}]), here);
    iam.put(Kind::Binding, &object("organization-acme", "u", spec), false);
    iam.put(Kind::Membership, &member("organization-acme", "acme", "u", json!([])), false);
    assert!(allowed(&iam, &organization("acme"), &user("u"), ("get", "", "b")));
}

fn access(iam: Iam) -> Access {
    let place = |asked: &Attributes<'_>| match organization_of(asked.namespace) {
        Some(organization) => Scope::Organization(organization.into()),
        None => Scope::Platform,
    };
    Access::new(Arc::new(Policy::default()), Arc::new(RwLock::new(iam)), Arc::new(place))
}

#[test]
fn nobody_gives_what_they_do_not_hold() {
    let mut iam = iam();
    let manager = binding(
        json!({"name": "people-manager", "namespace": "freehold-system"}),
        json!([{"kind": "User", "name": "mia"}]),
        json!({"kind": "Organization", "name": "acme"}),
    );
    iam.put(Kind::Binding, &object("organization-acme", "mia", manager), false);
    iam.put(Kind::Membership, &member("organization-acme", "acme", "mia", json!(["viewer"])), false);
    let access = access(iam);
    let acme = "organization-acme";
    let give = |role: &str| {
        let role = json!({"name": role, "namespace": "freehold-system"});
        object(acme, "n", binding(role, json!([]), json!({"kind": "Organization", "name": "acme"})))
    };
    let group =
        |name: &str| object(acme, "n", json!({"groupRef": {"name": name}, "userRef": {"name": "mia"}}));
    let rows = [
        ("olga", "policybindings", give("owner"), true),
        ("ed", "policybindings", give("owner"), false),
        ("ed", "policybindings", give("viewer"), true),
        ("mia", "organizationmemberships", member(acme, "acme", "n", json!(["viewer"])), true),
        ("mia", "organizationmemberships", member(acme, "acme", "n", json!(["editor"])), false),
        ("mia", "userinvitations", member(acme, "acme", "n", json!(["owner"])), false),
        ("mia", "groupmemberships", group("team"), false),
        ("mia", "groupmemberships", group("empty"), true),
        ("ed", "roles", object(acme, "n", json!({"includedPermissions": ["core/pods.get"]})), true),
        ("ed", "roles", object(acme, "n", json!({"includedPermissions": ["*/*.*"]})), false),
        (
            "vera",
            "serviceaccountkeys",
            object(acme, "n", json!({"serviceAccountRef": {"name": "bot"}})),
            true,
        ),
        (
            "nobody",
            "serviceaccountkeys",
            object(acme, "n", json!({"serviceAccountRef": {"name": "bot"}})),
            false,
        ),
    ];
    for (name, resource, object, expected) in rows {
        let checked = access.check_grant(&user(name), resource, &object, None);
        assert_eq!(checked.is_ok(), expected, "{name} {resource} {object} {checked:?}");
    }
    let unchanged = give("owner");
    assert!(access.check_grant(&user("ed"), "policybindings", &unchanged, Some(&unchanged)).is_ok());
}

#[test]
fn an_explanation_says_which_binding_allows_or_what_each_lacks() {
    let access = access(iam());
    let (vera, eve) = (user("vera"), user("eve"));
    let ask = |user, verb| Attributes {
        namespace: "organization-acme",
        ..Attributes::resource(user, verb, "", "secrets")
    };
    let why = access.explain(&ask(&vera, "get"));
    assert!(why.contains("nothing allows core/secrets.get to User \"vera\""), "{why}");
    assert!(why.contains("OrganizationMembership \"organization-acme/vera\""), "{why}");
    assert!(why.contains("the role excludes core/secrets.get"), "{why}");
    let why = access.explain(&ask(&vera, "create"));
    assert!(why.contains("the role does not include core/secrets.create"), "{why}");
    let why = access.explain(&ask(&eve, "get"));
    assert!(why.contains("to User \"eve\"") && why.contains("its target is another"), "{why}");
    let pods =
        Attributes { namespace: "organization-acme", ..Attributes::resource(&vera, "get", "", "pods") };
    assert!(access.explain(&pods).starts_with("IAM: allowed by OrganizationMembership"));
}

/// RBAC of core: `rbac-*` are named by RoleBindings of organization-acme, `operator` by a ClusterRoleBinding.
fn core(iam: Iam) -> Access {
    let subject =
        |kind: &str, name: &str| json!({"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let to = |kind: &str, namespace: &str, subjects: Value| {
        json!({"kind": kind, "metadata": {"name": "all", "namespace": namespace}, "subjects": subjects,
            "roleRef": {"kind": "ClusterRole", "name": "all"}})
    };
    let account = |namespace: &str| json!({"kind": "ServiceAccount", "name": "bot", "namespace": namespace});
    let named = json!([
        subject("User", "dora"),
        subject("User", "stranger"),
        subject("Group", "all"),
        subject("User", "freehold:serviceaccount:organization-acme:bot"),
        account("organization-acme"),
        account("organization-umbrella"),
    ]);
    let objects = [
        json!({"kind": "ClusterRole", "metadata": {"name": "all"}, "rules": everything}),
        to("RoleBinding", "organization-acme", named.clone()),
        to("RoleBinding", "default", named),
        to("ClusterRoleBinding", "", json!([subject("User", "operator")])),
    ];
    let place = |asked: &Attributes<'_>| match organization_of(asked.namespace) {
        _ if reserved::is_for_platform(asked) => Scope::Platform,
        Some(organization) => Scope::Organization(organization.into()),
        None => Scope::Platform,
    };
    let policy = Policy::compile(&RuleCache::default(), &objects);
    Access::of_platform(Arc::new(policy), Arc::new(RwLock::new(iam)), Arc::new(place))
}

#[test]
fn rbac_of_an_organizations_namespace_counts_for_its_members_and_never_for_what_is_reserved() {
    let access = core(iam());
    let ask = |name: &str, namespace: &str, (verb, group, resource): (&str, &str, &str)| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let user = User { groups: vec!["all".into()], ..user(name) };
        let asked = Attributes {
            namespace,
            subresource,
            name: "x",
            ..Attributes::resource(&user, verb, group, resource)
        };
        access.authorize(&asked).allowed
    };
    let resources = "resourcemanager.freehold.dev";
    let secret = ("get", "", "secrets");
    let status = ("patch", resources, "projectsnapshots/status");
    let grant = ("create", "quota.freehold.dev", "resourcegrants");
    let who = ("impersonate", "", "serviceaccounts");
    let rows = [
        ("dora", "organization-acme", secret, true),
        ("freehold:serviceaccount:organization-acme:bot", "organization-acme", secret, true),
        // Whoever may make tokens of accounts would have what these are given.
        ("system:serviceaccount:organization-acme:bot", "organization-acme", secret, false),
        ("stranger", "organization-acme", secret, false),
        ("system:serviceaccount:organization-umbrella:bot", "organization-acme", secret, false),
        ("stranger", "default", secret, true),
        ("dora", "organization-umbrella", secret, false),
        ("dora", "organization-acme", status, false),
        ("dora", "organization-acme", grant, false),
        ("dora", "organization-acme", who, false),
        ("olga", "organization-acme", status, false),
        ("olga", "organization-acme", grant, false),
        ("operator", "organization-acme", secret, true),
        ("operator", "organization-acme", grant, true),
        ("operator", "organization-acme", who, true),
        // Controllers alone, whatever allows it to others.
        ("operator", "organization-acme", status, false),
    ];
    for (name, namespace, asked, expected) in rows {
        assert_eq!(ask(name, namespace, asked), expected, "{name} {namespace} {asked:?}");
    }
    let controller = User { groups: vec!["system:masters".into()], ..user("c") };
    let write = Attributes {
        subresource: "status",
        ..Attributes::resource(&controller, "patch", resources, "projects")
    };
    assert!(access.authorize(&write).allowed);
    let dora = user("dora");
    let rules = access.rules(&dora, &json!({"namespace": "organization-acme"})).unwrap();
    assert!(rules["incomplete"] == true && rules.to_string().contains("\"*\""), "{rules}");
    let rules = access.rules(&user("stranger"), &json!({"namespace": "organization-acme"})).unwrap();
    assert_eq!(rules["resourceRules"], json!([]));
}

#[test]
fn who_is_no_member_any_more_has_nothing_by_name() {
    let mut iam = iam();
    let web = project("acme", "web");
    for (name, asked) in [("dora", ("get", "", "pods")), ("tina", ("get", "", "pods"))] {
        assert!(allowed(&iam, &web, &user(name), asked) && iam.is_member("acme", name), "{name}");
        iam.put(Kind::Membership, &member("organization-acme", "acme", name, json!([])), true);
        assert!(!allowed(&iam, &web, &user(name), asked) && !iam.is_member("acme", name), "{name}");
    }
    let bot = "freehold:serviceaccount:organization-acme:bot";
    assert!(iam.belongs("acme", bot) && !iam.belongs("umbrella", bot) && !iam.belongs("acm", bot));
}
