//! What RBAC allows and how it says no.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_apiserver_authz::{
    Attributes, Policy, RuleCache, aggregation, bootstrap_objects, forbidden, review,
};
use freehold_machinery::{User, Value, meta};
use serde_json::json;
use std::collections::BTreeSet;

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(ToString::to_string).collect(), ..User::default() }
}

fn role(kind: &str, namespace: &str, name: &str, rules: Value) -> Value {
    json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": rules})
}

fn binding(kind: &str, namespace: &str, name: &str, role: (&str, &str), subjects: Value) -> Value {
    let (role_kind, role) = role;
    json!({
        "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": role_kind, "name": role}, "subjects": subjects,
    })
}

fn compile(objects: &[Value]) -> Policy {
    Policy::compile(&RuleCache::default(), objects)
}

fn objects() -> Vec<Value> {
    let pods = json!([
        {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
        {"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["update"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s1"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["userextras/example.com/scope"], "verbs": ["impersonate"]},
        {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]},
    ]);
    let account = json!([{"kind": "ServiceAccount", "name": "bot"}]);
    vec![
        role("ClusterRole", "", "reader", pods),
        role("Role", "ns", "writer", json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}])),
        binding(
            "ClusterRoleBinding",
            "",
            "crb",
            ("ClusterRole", "reader"),
            json!([{"kind": "User", "name": "jane"}]),
        ),
        binding(
            "RoleBinding",
            "ns",
            "rb",
            ("ClusterRole", "reader"),
            json!([{"kind": "Group", "name": "devs"}]),
        ),
        binding("RoleBinding", "ns", "bot", ("Role", "writer"), account.clone()),
        binding("ClusterRoleBinding", "", "nowhere", ("ClusterRole", "reader"), account),
        binding(
            "ClusterRoleBinding",
            "",
            "gone",
            ("ClusterRole", "none"),
            json!([{"kind": "User", "name": "lost"}]),
        ),
        binding(
            "ClusterRoleBinding",
            "",
            "role",
            ("Role", "writer"),
            json!([{"kind": "User", "name": "lost2"}]),
        ),
    ]
}

#[test]
fn a_binding_allows_what_its_role_says_where_it_counts() {
    let policy = compile(&objects());
    let jane = "RBAC: allowed by ClusterRoleBinding \"crb\" of ClusterRole \"reader\" to User \"jane\"";
    let dev = "RBAC: allowed by RoleBinding \"rb/ns\" of ClusterRole \"reader\" to Group \"devs\"";
    let bot = "RBAC: allowed by RoleBinding \"bot/ns\" of Role \"writer\" to ServiceAccount \"bot/ns\"";
    let bot_name = "system:serviceaccount:ns:bot";
    // user, verb, group, resource, namespace, name, reason when allowed
    type Row<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str, Result<&'a str, &'a str>);
    let rows: [Row<'_>; 24] = [
        ("jane", "get", "", "pods", "", "", Ok(jane)),
        ("jane", "list", "", "pods", "ns", "", Ok(jane)),
        ("jane", "get", "", "pods/log", "ns", "x", Ok(jane)),
        ("jane", "get", "", "pods/exec", "ns", "x", Err("")),
        ("jane", "delete", "", "pods", "ns", "", Err("")),
        ("jane", "get", "apps", "pods", "", "", Err("")),
        ("jane", "update", "apps", "deployments/scale", "ns", "x", Ok(jane)),
        ("jane", "update", "apps", "deployments", "ns", "x", Err("")),
        ("jane", "impersonate", "", "userextras/example.com/scope", "", "x", Ok(jane)),
        ("jane", "get", "", "secrets", "ns", "s1", Ok(jane)),
        ("jane", "get", "", "secrets", "ns", "s2", Err("")),
        ("jane", "list", "", "secrets", "ns", "", Err("")),
        ("jane", "get", "/metrics", "", "", "", Ok(jane)),
        ("jane", "get", "/logs/a/b", "", "", "", Ok(jane)),
        ("jane", "get", "/metrics/x", "", "", "", Err("")),
        ("dev", "get", "", "pods", "ns", "", Ok(dev)),
        ("dev", "get", "", "pods", "other", "", Err("")),
        ("dev", "get", "", "pods", "", "", Err("")),
        ("dev", "get", "/metrics", "", "", "", Err("")),
        (bot_name, "create", "", "pods/exec", "ns", "x", Ok(bot)),
        (bot_name, "create", "apps", "deployments", "ns", "", Err("")),
        (bot_name, "get", "", "pods", "", "", Err("")),
        (
            "lost",
            "get",
            "",
            "pods",
            "",
            "",
            Err("RBAC: clusterrole.rbac.authorization.k8s.io \"none\" not found"),
        ),
        (
            "lost2",
            "get",
            "",
            "pods",
            "ns",
            "",
            Err("RBAC: role.rbac.authorization.k8s.io \"writer\" not found"),
        ),
    ];
    for (name, verb, group, target, namespace, object, expected) in rows {
        let groups: &[&str] = if name == "dev" { &["devs"] } else { &[] };
        let user = user(name, groups);
        let (resource, subresource) = target.split_once('/').unwrap_or((target, ""));
        let attributes = match resource {
            "" => Attributes::path(&user, verb, group),
            _ => Attributes {
                subresource,
                namespace,
                name: object,
                ..Attributes::resource(&user, verb, group, resource)
            },
        };
        let decision = policy.authorize(&attributes);
        let outcome =
            if decision.allowed { Ok(decision.reason.as_str()) } else { Err(decision.reason.as_str()) };
        assert_eq!(outcome, expected, "{attributes:?}");
    }
    let master = user("root", &["system:masters"]);
    assert!(Policy::default().authorize(&Attributes::resource(&master, "delete", "x", "y")).allowed);
    assert!(Policy::default().authorize(&Attributes::path(&master, "get", "/x")).allowed);
    assert!(
        !Policy::default().authorize(&Attributes::resource(&user("jane", &["a"]), "get", "", "pods")).allowed
    );
}

#[test]
fn a_refusal_reads_as_kubernetes_writes_it() {
    let jane = user("jane", &[]);
    let pods = Attributes { namespace: "default", ..Attributes::resource(&jane, "list", "", "pods") };
    let deployment = Attributes { name: "web", ..Attributes::resource(&jane, "get", "apps", "deployments") };
    let rows = [
        (
            pods,
            "",
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default""#,
        ),
        (
            pods,
            "why",
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default": why"#,
        ),
        (
            deployment,
            "",
            r#"deployments.apps "web" is forbidden: User "jane" cannot get resource "deployments" in API group "apps" at the cluster scope"#,
        ),
        (
            Attributes { subresource: "scale", ..deployment },
            "",
            r#"deployments.apps "web" is forbidden: User "jane" cannot get resource "deployments/scale" in API group "apps" at the cluster scope"#,
        ),
        (
            Attributes::path(&jane, "get", "/a<b>&"),
            "",
            r#"forbidden: User "jane" cannot get path "/a&lt;b&gt;&amp;""#,
        ),
    ];
    for (attributes, reason, message) in rows {
        let status = forbidden(&attributes, reason);
        assert_eq!(
            (status.message.as_str(), status.code, status.reason.as_str()),
            (message, 403, "Forbidden")
        );
        assert_eq!(status.details.unwrap().kind, attributes.resource);
    }
}

#[test]
fn roles_of_the_same_rules_share_them() {
    let cache = RuleCache::default();
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let planes: Vec<Policy> = (0..10)
        .map(|n| Policy::compile(&cache, &[role("ClusterRole", "", &format!("r{n}"), rules.clone())]))
        .collect();
    assert_eq!(cache.in_use(), 1);
    drop(planes);
    assert_eq!(cache.in_use(), 0, "rules that nobody uses are not kept");
}

#[test]
fn the_default_roles_allow_what_their_users_need() {
    let objects = bootstrap_objects();
    let mut all = objects.clone();
    for (name, role) in [("a", "admin"), ("e", "edit"), ("v", "view")] {
        all.push(binding(
            "RoleBinding",
            "ns",
            name,
            ("ClusterRole", role),
            json!([{"kind": "User", "name": name}]),
        ));
    }
    let policy = compile(&all);
    let may = |name: &str, groups: &[&str], verb: &str, group: &str, resource: &str, namespace: &str| {
        let user = user(name, groups);
        policy
            .authorize(&Attributes { namespace, ..Attributes::resource(&user, verb, group, resource) })
            .allowed
    };
    let everyone = &["system:authenticated"][..];
    let controller = "system:kube-controller-manager";
    let rows = [
        ("a", everyone, "create", "rbac.authorization.k8s.io", "rolebindings", "ns", true),
        ("a", everyone, "create", "apps", "deployments", "ns", true),
        ("a", everyone, "create", "", "resourcequotas", "ns", false),
        ("e", everyone, "create", "rbac.authorization.k8s.io", "rolebindings", "ns", false),
        ("e", everyone, "get", "", "secrets", "ns", true),
        ("e", everyone, "get", "", "pods", "ns", true),
        ("v", everyone, "get", "", "secrets", "ns", false),
        ("v", everyone, "list", "", "pods", "ns", true),
        ("v", everyone, "list", "", "pods", "", false),
        ("x", everyone, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", true),
        ("x", &[], "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", false),
        (controller, everyone, "watch", "any.example", "things", "", true),
        (controller, everyone, "delete", "", "pods", "ns", false),
        ("system:serviceaccount:kube-system:job-controller", everyone, "create", "", "pods", "ns", true),
        (
            "system:serviceaccount:kube-system:namespace-controller",
            everyone,
            "deletecollection",
            "x",
            "y",
            "ns",
            true,
        ),
    ];
    for (name, groups, verb, group, resource, namespace, expected) in rows {
        assert_eq!(may(name, groups, verb, group, resource, namespace), expected, "{name} {verb} {resource}");
    }
    for (groups, path, expected) in [
        (everyone, "/openapi/v3/apis/apps/v1", true),
        (everyone, "/metrics", false),
        (&["system:unauthenticated"], "/healthz", true),
        (&["system:unauthenticated"], "/api", false),
        (&["system:serviceaccounts"], "/openid/v1/jwks", true),
    ] {
        assert_eq!(
            policy.authorize(&Attributes::path(&user("u", groups), "get", path)).allowed,
            expected,
            "{path}"
        );
    }
}

#[test]
fn the_default_objects_are_whole() {
    let objects = bootstrap_objects();
    let key = |o: &Value| format!("{} {}/{}", o["kind"].as_str().unwrap(), meta::namespace(o), meta::name(o));
    let keys: BTreeSet<String> = objects.iter().map(key).collect();
    assert_eq!(keys.len(), objects.len(), "no object stands twice");
    for object in &objects {
        assert_eq!(meta::label(object, "kubernetes.io/bootstrapping"), Some("rbac-defaults"));
        assert_eq!(meta::annotation(object, "rbac.authorization.kubernetes.io/autoupdate"), Some("true"));
        assert_eq!(object["apiVersion"], "rbac.authorization.k8s.io/v1");
        if let Some(role) = object.get("roleRef") {
            let namespace = if role["kind"] == "Role" { meta::namespace(object) } else { "" };
            let wanted =
                format!("{} {namespace}/{}", role["kind"].as_str().unwrap(), role["name"].as_str().unwrap());
            assert!(keys.contains(&wanted), "{wanted} is bound");
        } else {
            assert!(!object["rules"].as_array().unwrap().is_empty(), "{}", key(object));
        }
    }
    let view = objects.iter().find(|o| key(o) == "ClusterRole /view").unwrap();
    let edit = objects.iter().find(|o| key(o) == "ClusterRole /edit").unwrap();
    let rules = |o: &Value| o["rules"].as_array().unwrap().clone();
    assert!(rules(view).iter().all(|rule| rules(edit).contains(rule)), "edit has all of view");
    let read = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]});
    assert!(rules(view).contains(&read));
}

#[test]
fn aggregation_follows_labels() {
    let labelled = |name: &str, value: &str, verb: &str| json!({"metadata": {"name": name, "labels": {"to-x": value}}, "rules": [{"verbs": [verb]}]});
    let selector = json!({"clusterRoleSelectors": [{"matchLabels": {"to-x": "true"}}]});
    let x = json!({"metadata": {"name": "x", "labels": {"to-x": "true"}}, "aggregationRule": selector, "rules": []});
    let (b, a, a2, no) = (
        labelled("b", "true", "list"),
        labelled("a", "true", "get"),
        labelled("c", "true", "get"),
        labelled("n", "no", "x"),
    );
    let all = [&x, &b, &a, &a2, &no];
    assert_eq!(
        aggregation::aggregated_rules(&x, all),
        Some(vec![json!({"verbs": ["get"]}), json!({"verbs": ["list"]})])
    );
    assert_eq!(aggregation::aggregated_rules(&a, all), None);
    let outdated = aggregation::outdated(&all);
    assert_eq!(outdated.len(), 1);
    let mut settled = x.clone();
    settled["rules"] = Value::Array(outdated[0].1.clone());
    assert!(aggregation::outdated(&[&settled, &b, &a, &a2, &no]).is_empty());
}

/// Subjects of the escalation tests: an admin of `ns` and what else is bound.
fn escalation_policy() -> Policy {
    let mut objects = bootstrap_objects();
    let named = |names: Value, verb: &str, resource: &str| json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": [resource], "resourceNames": names, "verbs": [verb]}]);
    let to = |name: &str| json!([{"kind": "User", "name": name}]);
    objects.extend([
        binding("RoleBinding", "ns", "jane", ("ClusterRole", "admin"), to("jane")),
        role("ClusterRole", "", "binder", named(json!(["cluster-admin", "missing"]), "bind", "clusterroles")),
        binding("ClusterRoleBinding", "", "binder", ("ClusterRole", "binder"), to("binder")),
        role("ClusterRole", "", "escalator", named(json!(["r"]), "escalate", "roles")),
        binding("ClusterRoleBinding", "", "escalator", ("ClusterRole", "escalator"), to("escalator")),
        binding("ClusterRoleBinding", "", "root", ("ClusterRole", "cluster-admin"), to("root")),
    ]);
    compile(&objects)
}

#[test]
fn nobody_writes_a_role_that_they_do_not_hold() {
    let policy = escalation_policy();
    let rules = |verbs: Value, groups: Value, resources: Value| json!([{"apiGroups": groups, "resources": resources, "verbs": verbs}]);
    let nodes = rules(json!(["list", "get"]), json!([""]), json!(["pods", "nodes"]));
    let message = "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"jane\" (groups=[\"a\" \"b\"]) is attempting to \
                   grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"list\"]}";
    let path = json!([{"nonResourceURLs": ["/x"], "verbs": ["get"]}]);
    let rows = [
        ("jane", "ns", rules(json!(["get"]), json!([""]), json!(["pods", "secrets"])), Ok(())),
        ("jane", "ns", nodes.clone(), Err(message)),
        ("jane", "other", rules(json!(["get"]), json!([""]), json!(["pods"])), Err("Resources:[\"pods\"]")),
        ("jane", "ns", rules(json!(["*"]), json!(["*"]), json!(["*"])), Err("Verbs:[\"*\"]")),
        ("jane", "ns", path.clone(), Err("{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}")),
        ("root", "ns", nodes.clone(), Ok(())),
        ("root", "ns", path, Ok(())),
        ("escalator", "ns", nodes.clone(), Err("is attempting")),
    ];
    for (name, namespace, rules, expected) in rows {
        let written = role("Role", namespace, "r", rules);
        let outcome =
            policy.check_role(&user(name, &["a", "b"]), &written, None).map_err(|status| status.message);
        match expected {
            Ok(()) => assert_eq!(outcome, Ok(())),
            Err(part) => assert!(outcome.clone().unwrap_err().contains(part), "{outcome:?}"),
        }
    }
    let (old, new) = (role("Role", "ns", "r", json!([])), role("Role", "ns", "r", nodes.clone()));
    assert!(
        policy.check_role(&user("escalator", &[]), &new, Some(&old)).is_ok(),
        "escalate on the name covers updates"
    );
    assert!(policy.check_role(&user("master", &["system:masters"]), &new, None).is_ok());
    let mut collected = new.clone();
    collected["metadata"]["finalizers"] = json!(["x"]);
    assert!(
        policy.check_role(&user("nobody", &[]), &collected, Some(&new)).is_ok(),
        "the garbage collector may work"
    );
    let many: Vec<String> = (0..500).map(|n| format!("r{n}")).collect();
    let huge = role("Role", "ns", "r", rules(json!(many), json!(many), json!(many)));
    assert!(policy.check_role(&user("jane", &[]), &huge, None).unwrap_err().message.contains("too large"));
}

#[test]
fn an_aggregation_rule_needs_everything() {
    let policy = escalation_policy();
    let mut written = role("ClusterRole", "", "agg", json!([]));
    written["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let refused = policy.check_role(&user("jane", &[]), &written, None).unwrap_err();
    let message = "clusterroles.rbac.authorization.k8s.io \"agg\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(refused.message, message);
    assert!(policy.check_role(&user("root", &[]), &written, None).is_ok());
    let mut relabelled = written.clone();
    relabelled["metadata"]["labels"] = json!({"x": "y"});
    assert!(
        policy.check_role(&user("jane", &[]), &relabelled, Some(&written)).is_ok(),
        "an unchanged rule is no question"
    );
}

#[test]
fn nobody_binds_a_role_that_they_do_not_hold() {
    let policy = escalation_policy();
    let rows = [
        ("jane", "RoleBinding", "ns", "view", None),
        ("jane", "RoleBinding", "other", "view", Some(403)),
        ("jane", "RoleBinding", "ns", "cluster-admin", Some(403)),
        ("jane", "ClusterRoleBinding", "", "view", Some(403)),
        ("jane", "RoleBinding", "ns", "missing", Some(404)),
        ("binder", "ClusterRoleBinding", "", "cluster-admin", None),
        ("binder", "ClusterRoleBinding", "", "missing", None),
        ("binder", "ClusterRoleBinding", "", "view", Some(403)),
        ("root", "ClusterRoleBinding", "", "cluster-admin", None),
    ];
    for (name, kind, namespace, role, code) in rows {
        let written = binding(kind, namespace, "b", ("ClusterRole", role), json!([]));
        let outcome = policy.check_binding(&user(name, &[]), &written, None);
        assert_eq!(outcome.err().map(|status| status.code), code, "{name} binds {role} in {namespace:?}");
    }
}

#[test]
fn access_reviews_are_checked_and_answered() {
    let policy = compile(&objects());
    let ask = json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "ns"}, "user": "jane", "groups": ["g"]});
    let subject = review::subject(&ask);
    assert_eq!((subject.name.as_str(), subject.groups.as_slice()), ("jane", &["g".to_owned()][..]));
    let answer = review::status(&policy.authorize(&review::attributes(&ask, &subject)));
    assert_eq!(answer["allowed"], true);
    assert!(answer["reason"].as_str().unwrap().starts_with("RBAC: allowed by "));
    let path = json!({"nonResourceAttributes": {"verb": "get", "path": "/x"}});
    assert_eq!(
        review::status(&policy.authorize(&review::attributes(&path, &subject))),
        json!({"allowed": false})
    );

    use review::Kind;
    let both = json!({"resourceAttributes": {}, "nonResourceAttributes": {}, "user": "u"});
    let rows = [
        (Kind::Own, json!({}), Some("exactly one of")),
        (Kind::Own, both, Some("cannot be specified in combination with resourceAttributes")),
        (Kind::Own, json!({"resourceAttributes": {}}), None),
        (
            Kind::Any,
            json!({"resourceAttributes": {}}),
            Some("spec.user: Invalid value: \"\": at least one of user or group must be specified"),
        ),
        (Kind::Any, json!({"resourceAttributes": {}, "groups": ["g"]}), None),
        (
            Kind::Local,
            json!({"resourceAttributes": {"namespace": "b"}, "user": "u"}),
            Some("must match metadata.namespace"),
        ),
        (Kind::Local, json!({"resourceAttributes": {"namespace": "a"}, "user": "u"}), None),
    ];
    for (kind, spec, expected) in rows {
        let outcome = review::validate(kind, &json!({"metadata": {"namespace": "a"}, "spec": spec}));
        match expected {
            None => assert_eq!(outcome, Ok(()), "{kind:?} {spec}"),
            Some(part) => assert!(outcome.clone().unwrap_err().message.contains(part), "{outcome:?}"),
        }
    }
}

#[test]
fn a_rules_review_lists_what_authorize_allows() {
    let policy = compile(&objects());
    let rules = |user: &User, namespace: &str| {
        review::rules(&policy, user, &json!({"namespace": namespace}), namespace)
    };
    let jane = rules(&user("jane", &[]), "ns").unwrap();
    assert_eq!(jane["resourceRules"].as_array().unwrap().len(), 4);
    assert_eq!(
        jane["nonResourceRules"],
        json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]}])
    );
    let dev = rules(&user("d", &["devs"]), "ns").unwrap();
    assert_eq!((dev["resourceRules"].as_array().unwrap().len(), &dev["nonResourceRules"]), (4, &json!([])));
    assert_eq!(rules(&user("d", &["devs"]), "other").unwrap()["resourceRules"], json!([]));
    assert!(
        rules(&user("lost", &[]), "ns").unwrap()["evaluationError"].as_str().unwrap().contains("not found")
    );
    assert_eq!(rules(&user("jane", &[]), "").unwrap_err().message, "no namespace on request");
    let master = rules(&user("root", &["system:masters"]), "ns").unwrap();
    assert_eq!(master["resourceRules"][0], json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
}

#[test]
fn an_answer_is_found_among_ten_thousand_bindings() {
    let mut objects = Vec::new();
    for n in 0..1_000 {
        let rules: Vec<Value> = (0..5)
            .map(|r| json!({"apiGroups": ["g"], "resources": [format!("r{n}x{r}")], "verbs": ["get"]}))
            .collect();
        objects.push(role("ClusterRole", "", &format!("role{n}"), json!(rules)));
    }
    for n in 0..10_000 {
        let subjects = json!([{"kind": "User", "name": format!("u{n}")}, {"kind": "Group", "name": format!("g{}", n % 1000)}]);
        objects.push(binding(
            "ClusterRoleBinding",
            "",
            &format!("b{n}"),
            ("ClusterRole", &format!("role{}", n % 1_000)),
            subjects,
        ));
    }
    let policy = compile(&objects);
    let asked = user("u77", &["g78", "g79", "system:authenticated"]);
    let allowed = Attributes::resource(&asked, "get", "g", "r79x4");
    let refused = Attributes::resource(&asked, "get", "g", "r500x4");
    assert!(policy.authorize(&allowed).allowed && !policy.authorize(&refused).allowed);
}

#[test]
fn a_policy_that_is_changed_place_by_place_answers_as_one_that_is_compiled_from_all() {
    let rules = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    let roles =
        vec![role("ClusterRole", "", "get", rules("get")), role("ClusterRole", "", "list", rules("list"))];
    let cache = RuleCache::default();
    let mut places: std::collections::BTreeMap<String, Vec<Value>> = Default::default();
    let mut policy = Policy::compile(&cache, &roles);
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let verbs = ["get", "list", "watch"];
    for step in 0..2_000 {
        let place = match next(20) {
            0 => String::new(),
            n => format!("n{n}"),
        };
        let kind = if place.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
        let mut objects = Vec::new();
        if !place.is_empty() && next(2) == 0 {
            objects.push(role("Role", &place, "own", rules("watch")));
        }
        for n in 0..next(4) {
            let named = [("ClusterRole", "get"), ("ClusterRole", "list"), ("Role", "own")][next(3) as usize];
            let kind_of_subject = ["User", "Group"][next(2) as usize];
            let subject = json!([{"kind": kind_of_subject, "name": format!("s{}", next(3))}]);
            objects.push(binding(kind, &place, &format!("b{n}"), named, subject));
        }
        policy = policy.with(&cache, &place, &objects);
        places.insert(place, objects);
        let whole = Policy::compile(&cache, roles.iter().chain(places.values().flatten()));
        let asked = user(&format!("s{}", next(3)), &[&format!("s{}", next(3))]);
        let namespace = format!("n{}", next(20));
        for verb in verbs {
            let at = Attributes { namespace: &namespace, ..Attributes::resource(&asked, verb, "", "pods") };
            let (changed, compiled) = (policy.authorize(&at), whole.authorize(&at));
            assert_eq!(
                (changed.allowed, &changed.reason),
                (compiled.allowed, &compiled.reason),
                "step {step}"
            );
            let reach = freehold_apiserver_authz::Reach::Namespaces;
            assert_eq!(policy.visible(&at, reach), whole.visible(&at, reach), "step {step}");
        }
        let text = |(rules, errors): (Vec<_>, Vec<_>)| format!("{rules:?} {errors:?}");
        assert_eq!(text(policy.rules_for(&asked, &namespace)), text(whole.rules_for(&asked, &namespace)));
    }
}
