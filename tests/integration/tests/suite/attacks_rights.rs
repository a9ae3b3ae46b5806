//! What an organization's people could take of the platform by rights that they give themselves: statuses, quota, the
//! namespace, other identities, a membership that is over, and objects outside of a view.

use crate::access::{becomes, http, member};
use crate::{PATIENCE, items, names, text};
use freehold_tests_integration::{Answer, Background, Http, Kubectl, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    rbac_in_an_organizations_namespace_gives_nothing_of_the_platforms,
    statuses_are_written_by_controllers_alone,
    quota_is_written_by_no_organization,
    who_is_no_member_any_more_has_nothing_in_the_namespace,
    an_account_of_kubernetes_in_an_organizations_namespace_is_given_nothing,
    rbac_within_a_project_counts_for_its_members_alone,
    a_patch_through_a_view_reaches_its_own_objects_alone,
    finalizers_of_the_platform_stay,
    an_object_says_nothing_of_the_plane_that_it_is_in,
);

pub(crate) const RM: &str = "/apis/resourcemanager.freehold.dev/v1alpha1";
pub(crate) const IAM: &str = "/apis/iam.freehold.dev/v1alpha1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// The groups that Freehold defines and core serves.
const GROUPS: [&str; 3] = ["resourcemanager.freehold.dev", "iam.freehold.dev", "quota.freehold.dev"];

/// All ways to the objects of an organization.
pub(crate) fn ways(organization: &str, user: &str) -> [String; 5] {
    [
        String::new(),
        format!("/organizations/{organization}"),
        format!("{RM}/organizations/{organization}/control-plane"),
        format!("/users/{user}"),
        format!("{IAM}/users/{user}/control-plane"),
    ]
}

/// Asks the server itself as a user of the platform.
pub(crate) fn ask(world: &World, user: &str) -> Http {
    http(world, &world.person(user, ""), "")
}

pub(crate) fn assert_refused(answer: &Answer, what: &str) {
    assert!(matches!(answer.code, 403..=405), "{what}: {} {}", answer.code, answer.body);
}

/// An organization with one owner, who counts.
pub(crate) fn owned(world: &World, organization: &str, projects: &[&str], owner: &str) -> Kubectl {
    world.organization(organization, projects);
    world.admin().apply(&member(organization, owner, "owner"));
    let kubectl = world.person(owner, &format!("/organizations/{organization}"));
    becomes(&kubectl, &["get", "projects"], true);
    kubectl
}

/// Lets an owner give everything in the namespace to a user, as RBAC can: by a ClusterRole and by a Role of its own.
fn give_all(http: &Http, organization: &str, user: &str) {
    let user = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]);
    give_all_to(http, organization, &user);
}

fn give_all_to(http: &Http, organization: &str, subjects: &Value) {
    let at = format!("/organizations/{organization}{RBAC}/namespaces/organization-{organization}");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "all"},
        "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    assert_eq!(http.json(Method::POST, &format!("{at}/roles"), &role).code, 201);
    for (kind, role) in [("ClusterRole", "cluster-admin"), ("Role", "all")] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": subjects,
        });
        let made = http.json(Method::POST, &format!("{at}/rolebindings"), &binding);
        assert_eq!(made.code, 201, "{}", made.body);
    }
}

fn rbac_in_an_organizations_namespace_gives_nothing_of_the_platforms(world: &World) {
    let kubectl = owned(world, "rights-evil", &["rights-lair"], "mallory");
    world.admin().apply(&member("rights-evil", "rights-guest", ""));
    let mallory = ask(world, "mallory");
    give_all(&mallory, "rights-evil", "mallory");
    let (namespace, guest) = ("organization-rights-evil", ask(world, "rights-guest"));
    let snapshot = json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "ProjectSnapshot",
        "metadata": {"name": "mine"}, "spec": {"projectRef": {"name": "rights-lair"}}});
    let snapshots = format!("{RM}/namespaces/{namespace}/projectsnapshots");
    let made = mallory.json(Method::POST, &format!("/organizations/rights-evil{snapshots}"), &snapshot);
    assert_eq!(made.code, 201, "{}", made.body);
    for way in ways("rights-evil", "mallory") {
        let forged = json!({"status": {"layer": "snapshot-another", "phase": "Ready"}}).to_string();
        let own = format!("{way}{snapshots}/mine/status");
        assert_refused(&mallory.send(Method::PATCH, &own, MERGE, forged), &own);
        let label = json!({"metadata": {"labels": {"kept": "no"}}}).to_string();
        let itself = format!("{way}/api/v1/namespaces/{namespace}");
        assert_refused(&mallory.send(Method::PATCH, &itself, MERGE, label), &itself);
        assert_refused(&mallory.send(Method::DELETE, &itself, "", ""), &itself);
        assert_refused(&mallory.json(Method::PUT, &format!("{itself}/finalize"), &json!({})), &itself);
    }
    let kept = world.admin().json(&["get", "namespace", namespace]);
    assert!(kept["metadata"]["deletionTimestamp"].is_null() && kept["metadata"]["labels"]["kept"].is_null());
    let snapshot = world.admin().json(&["get", "projectsnapshot", "mine", "-n", namespace]);
    assert_ne!(text(&snapshot, "/status/layer"), "snapshot-another");
    // Nobody is somebody else, by any way to say it, and reviews say the same.
    for masks in [&["--as=root"][..], &["--as=x", "--as-group=system:masters"]] {
        for way in ["", "/organizations/rights-evil"] {
            world.person("mallory", way).with(masks).fails(&["get", "secrets", "-n", namespace]);
        }
    }
    let account = "serviceaccounts/default";
    for args in [
        &["impersonate", account][..],
        &["patch", "projectsnapshots.resourcemanager.freehold.dev/mine", "--subresource=status"],
        &["create", "resourcegrants.quota.freehold.dev"],
        &["patch", "namespaces/organization-rights-evil"],
    ] {
        for way in ["", "/organizations/rights-evil"] {
            let asks =
                world.person("mallory", way).run(&[&["auth", "can-i", "-n", namespace], args].concat());
            assert!(!asks.success && asks.stdout.starts_with("no"), "{way} {args:?} {asks}");
        }
    }
    // RBAC there is good for what is the organization's.
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    assert_eq!(guest.get(&secrets).code, 403);
    kubectl.ok(&[
        "create",
        "rolebinding",
        "guest",
        "--clusterrole=admin",
        "--user=rights-guest",
        "-n",
        namespace,
    ]);
    until("the RoleBinding counts", PATIENCE, || (guest.get(&secrets).code == 200).then_some(()));
}

fn an_account_of_kubernetes_in_an_organizations_namespace_is_given_nothing(world: &World) {
    let owner = owned(world, "rights-tokens", &["rights-tokens"], "rights-tina");
    world.admin().apply(&member("rights-tokens", "rights-eddie", "editor"));
    let eddie = ask(world, "rights-eddie");
    let namespace = "/api/v1/namespaces/organization-rights-tokens";
    let accounts = format!("{namespace}/serviceaccounts");
    until("the editor counts", PATIENCE, || (eddie.get(&accounts).code == 200).then_some(()));
    owner.ok(&["-n", "organization-rights-tokens", "create", "serviceaccount", "boss"]);
    let tina = ask(world, "rights-tina");
    give_all_to(
        &tina,
        "rights-tokens",
        &json!([
            {"kind": "ServiceAccount", "name": "boss", "namespace": "organization-rights-tokens"},
            {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "freehold:serviceaccount:organization-rights-tokens:ci"},
        ]),
    );
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = eddie.json(Method::POST, &format!("{accounts}/boss/token"), &request);
    if let Some(token) = issued.body["status"]["token"].as_str() {
        let boss = Http::with_token(&owner, world.server().url(), token);
        assert_refused(&boss.get(&format!("{namespace}/secrets")), "secrets by a token");
        let more = member("rights-tokens", "rights-ned", "owner");
        let path = format!("{RM}/namespaces/organization-rights-tokens/organizationmemberships");
        assert_refused(&boss.send(Method::POST, &path, "application/yaml", more), "a member");
    }
    // Nor does who is given little make keys of an account that RoleBindings there give more.
    let key = json!({"apiVersion": "iam.freehold.dev/v1alpha1", "kind": "ServiceAccountKey", "metadata": {"name": "k"},
        "spec": {"serviceAccountRef": {"name": "ci"}}});
    let account = json!({"apiVersion": "iam.freehold.dev/v1alpha1", "kind": "ServiceAccount", "metadata": {"name": "ci"}, "spec": {}});
    let iam = format!("{IAM}/namespaces/organization-rights-tokens");
    assert_eq!(tina.json(Method::POST, &format!("{iam}/serviceaccounts"), &account).code, 201);
    assert_refused(&eddie.json(Method::POST, &format!("{iam}/serviceaccountkeys"), &key), "a key");
}

fn rbac_within_a_project_counts_for_its_members_alone(world: &World) {
    owned(world, "rights-in", &["rights-in-a"], "rights-ina");
    world.admin().apply(&member("rights-in", "rights-gus", ""));
    let inside = world.server().project("rights-in-a");
    for (name, subject) in
        [("gus", "--user=rights-gus"), ("sly", "--user=rights-sly"), ("all", "--group=system:authenticated")]
    {
        inside.ok(&["create", "clusterrolebinding", name, "--clusterrole=view", subject]);
    }
    let guest = world.person("rights-gus", "/projects/rights-in-a");
    becomes(&guest, &["get", "configmaps"], true);
    // Somebody of the platform who was let in by nobody learns nothing of what is there, not even its types.
    let (gus, sly) = (ask(world, "rights-gus"), ask(world, "rights-sly"));
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}});
    let ways = ["/projects/rights-in-a".to_owned(), format!("{RM}/projects/rights-in-a/control-plane")];
    let paths = ["/api/v1/namespaces/default/configmaps", "/api/v1", "/apis", "/openapi/v3", "/openapi/v2"];
    for way in &ways {
        for path in paths {
            assert_refused(&sly.get(&format!("{way}{path}")), path);
        }
        let asked = sly.json(
            Method::POST,
            &format!("{way}/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"),
            &review,
        );
        assert_refused(&asked, way);
        assert_eq!(gus.get(&format!("{way}/apis")).code, 200);
    }
    let mut watch = guest.background(&["get", "--raw", "/projects/rights-in-a/api/v1/configmaps?watch=true"]);
    watch.wait_for("kube-root-ca.crt");
    world.admin().ok(&["delete", "organizationmembership", "rights-gus", "-n", "organization-rights-in"]);
    watch.wait_for_end();
    for way in &ways {
        for path in paths {
            assert_refused(&gus.get(&format!("{way}{path}")), path);
        }
    }
    // What names somebody sleeps until they are let in again.
    world.admin().apply(&member("rights-in", "rights-gus", ""));
    becomes(&guest, &["get", "configmaps"], true);
}

/// Resources of Freehold's kinds in core: path of the collection (with a namespace where it has one), the kind, and whether
/// it is in namespaces.
fn kinds(world: &World, group: &str, namespace: &str) -> Vec<(String, String, bool)> {
    let admin = http(world, &world.admin(), "");
    let found = admin.get(&format!("/apis/{group}/v1alpha1")).body;
    let mut kinds = Vec::new();
    for resource in found["resources"].as_array().into_iter().flatten() {
        let (name, namespaced) = (text(resource, "/name"), resource["namespaced"] == true);
        if let Some((_, subresource)) = name.split_once('/') {
            assert_eq!(subresource, "status", "{name}: who writes it? apiserver/authz/src/reserved.rs");
            continue;
        }
        let at = if namespaced { format!("namespaces/{namespace}/") } else { String::new() };
        kinds.push((
            format!("/apis/{group}/v1alpha1/{at}{name}"),
            text(resource, "/kind").to_owned(),
            namespaced,
        ));
    }
    assert!(kinds.len() > 3, "{group} {found}");
    kinds
}

/// Somebody to whom the operator gave everything in core, by RBAC or by the platform's own roles.
fn operator(world: &World, user: &str, by_rbac: bool) -> Http {
    if by_rbac {
        let subject = format!("--user={user}");
        world.admin().ok(&["create", "clusterrolebinding", user, "--clusterrole=cluster-admin", &subject]);
    } else {
        world.admin().apply(&format!(
            "---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding, metadata: {{name: {user}, namespace: freehold-system}},
              spec: {{roleRef: {{name: owner}}, subjects: [{{kind: User, name: {user}}}], target: {{kind: Platform}}}}}}\n"
        ));
    }
    becomes(&world.person(user, ""), &["get", "nodes"], true);
    ask(world, user)
}

fn statuses_are_written_by_controllers_alone(world: &World) {
    owned(world, "rights-status", &[], "stella");
    world.admin().apply(&member("rights-status", "status-ed", "editor"));
    let stella = ask(world, "stella");
    give_all(&stella, "rights-status", "stella");
    let people = [
        ("stella", stella),
        ("status-ed", ask(world, "status-ed")),
        ("status-op", operator(world, "status-op", true)),
        ("status-pia", operator(world, "status-pia", false)),
    ];
    for group in GROUPS {
        for (path, kind, _) in kinds(world, group, "organization-rights-status") {
            let object = json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind,
                "metadata": {"name": "rights-status"}, "status": {"conditions": []}});
            for (user, http) in &people {
                for way in ways("rights-status", user) {
                    let at = format!("{way}{path}/rights-status/status");
                    let what = format!("{user} {at}");
                    assert_refused(&http.send(Method::PATCH, &at, MERGE, "{\"status\":{}}"), &what);
                    assert_refused(&http.send(Method::PATCH, &at, JSON_PATCH, "[]"), &what);
                    let applied = format!("{at}?fieldManager=x&force=true");
                    assert_refused(&http.send(Method::PATCH, &applied, APPLY, object.to_string()), &what);
                    assert_refused(&http.json(Method::PUT, &at, &object), &what);
                }
            }
        }
    }
    // Nor is it written along with the object.
    let (name, organizations) = ("rights-status", format!("{RM}/organizations"));
    let forged = json!({"status": {"namespace": "freehold-system"}}).to_string();
    people[0].1.send(Method::PATCH, &format!("/organizations/{name}{organizations}/{name}"), MERGE, forged);
    assert_ne!(
        text(&people[2].1.get(&format!("{organizations}/{name}")).body, "/status/namespace"),
        "freehold-system"
    );
}

fn quota_is_written_by_no_organization(world: &World) {
    owned(world, "rights-quota", &[], "quinn");
    world.admin().apply(&member("rights-quota", "quota-ed", "editor"));
    let quinn = ask(world, "quinn");
    give_all(&quinn, "rights-quota", "quinn");
    for (user, http) in [("quinn", quinn), ("quota-ed", ask(world, "quota-ed"))] {
        for (path, kind, _) in kinds(world, "quota.freehold.dev", "organization-rights-quota") {
            let object = json!({"apiVersion": "quota.freehold.dev/v1alpha1", "kind": kind, "metadata": {"name": "more"}});
            for way in ways("rights-quota", user) {
                let (all, one) = (format!("{way}{path}"), format!("{way}{path}/more"));
                let what = format!("{user} {one}");
                assert_refused(&http.json(Method::POST, &all, &object), &what);
                assert_refused(&http.json(Method::PUT, &one, &object), &what);
                assert_refused(&http.send(Method::PATCH, &one, MERGE, "{}"), &what);
                let applied = format!("{one}?fieldManager=x");
                assert_refused(&http.send(Method::PATCH, &applied, APPLY, object.to_string()), &what);
                assert_refused(&http.send(Method::DELETE, &one, "", ""), &what);
                assert_refused(&http.send(Method::DELETE, &all, "", ""), &what);
            }
        }
        let limits = "/api/v1/namespaces/organization-rights-quota/resourcequotas";
        let quota =
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "more"}, "spec": {}});
        assert_refused(&http.json(Method::POST, limits, &quota), user);
        assert_refused(&http.send(Method::DELETE, limits, "", ""), user);
    }
}

fn who_is_no_member_any_more_has_nothing_in_the_namespace(world: &World) {
    owned(world, "rights-left", &["rights-left-a"], "exa");
    let (exa, namespace) = (ask(world, "exa"), "organization-rights-left");
    give_all(&exa, "rights-left", "exa");
    let own = world.person("exa", "/organizations/rights-left");
    own.apply(&format!(
        "---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: Group, metadata: {{name: g, namespace: {namespace}}}, spec: {{}}}}
---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: GroupMembership, metadata: {{name: exa, namespace: {namespace}}},
  spec: {{groupRef: {{name: g}}, userRef: {{name: exa}}}}}}
---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding, metadata: {{name: exa, namespace: {namespace}}},
  spec: {{roleRef: {{name: owner, namespace: freehold-system}},
         subjects: [{{kind: User, name: exa}}, {{kind: Group, name: g}}], target: {{kind: Organization, name: rights-left}}}}}}\n"
    ));
    own.apply(&member("rights-left", "carol", "owner"));
    let carol = world.person("carol", "/organizations/rights-left");
    becomes(&carol, &["get", "projects"], true);
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    let mut watch = world.person("exa", "").background(&["get", "--raw", &format!("{secrets}?watch=true")]);
    watch.wait_for("rights-left-a-kubeconfig");
    carol.ok(&["delete", "organizationmembership", "exa", "-n", namespace]);
    until("what was given by name counts no more", PATIENCE, || {
        (exa.get(&secrets).code == 403).then_some(())
    });
    Background::wait_for_end(&mut watch);
    let again = json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "OrganizationMembership",
        "metadata": {"name": "exa"},
        "spec": {"organizationRef": {"name": "rights-left"}, "userRef": {"name": "exa"}, "roles": ["owner"]}});
    for way in ways("rights-left", "exa") {
        let memberships = format!("{way}{RM}/namespaces/{namespace}/organizationmemberships");
        assert_refused(&exa.json(Method::POST, &memberships, &again), &memberships);
        let read = exa.get(&format!("{way}{secrets}"));
        assert_refused(&read, &way);
        assert_refused(&exa.get(&format!("{way}{IAM}/namespaces/{namespace}/policybindings/exa")), &way);
    }
    assert_eq!(exa.get("/projects/rights-left-a/api/v1/secrets").code, 403);
    assert_eq!(items(&exa.get(&format!("/users/exa{RM}/organizations")).body).count(), 0);
    // Who comes back has what was given to them, and who made them a member gave it.
    carol.apply(&member("rights-left", "exa", ""));
    until("a member has what is given by name", PATIENCE, || (exa.get(&secrets).code == 200).then_some(()));
}

/// Sends all that changes an object through a view, and expects each to be refused.
fn assert_out_of_reach(http: &Http, way: &str, (path, kind): (&str, &str)) {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let group = path.split('/').nth(2).unwrap_or_default();
    let object = json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind,
        "metadata": {"name": name, "labels": {"touched": "yes"}}});
    let at = format!("{way}{path}");
    let label = json!({"metadata": {"labels": {"touched": "yes"}}}).to_string();
    let replace = json!([{"op": "add", "path": "/metadata/labels", "value": {"touched": "yes"}}]).to_string();
    assert_refused(&http.send(Method::PATCH, &at, MERGE, label.clone()), &at);
    assert_refused(&http.send(Method::PATCH, &at, JSON_PATCH, replace), &at);
    let strategic = http.send(Method::PATCH, &at, "application/strategic-merge-patch+json", label);
    assert!(matches!(strategic.code, 403 | 404 | 415), "{at}: {} {}", strategic.code, strategic.body);
    let applied = format!("{at}?fieldManager=x&force=true");
    assert_refused(&http.send(Method::PATCH, &applied, APPLY, object.to_string()), &at);
    assert_refused(&http.json(Method::PUT, &at, &object), &at);
    assert_refused(&http.send(Method::DELETE, &at, "", ""), &at);
}

fn a_patch_through_a_view_reaches_its_own_objects_alone(world: &World) {
    owned(world, "rights-view", &["rights-view-a"], "vlad");
    world.organization("rights-victim", &["rights-victim-a"]);
    world.admin().apply(
        "---\n{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: ControlPlaneClass, metadata: {name: rights-class}, spec: {}}
---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: User, metadata: {name: rights-user}, spec: {email: a@example.com}}
---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: UserDeactivation, metadata: {name: rights-locked},
  spec: {userRef: {name: rights-locked}, reason: left}}
---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: Group, metadata: {name: theirs, namespace: organization-rights-victim}, spec: {}}\n",
    );
    let others = [
        (format!("{RM}/projects/rights-victim-a"), "Project"),
        (format!("{RM}/organizations/rights-victim"), "Organization"),
        (format!("{RM}/controlplaneclasses/rights-class"), "ControlPlaneClass"),
        (format!("{IAM}/users/rights-user"), "User"),
        (format!("{IAM}/userdeactivations/rights-locked"), "UserDeactivation"),
        (format!("{IAM}/namespaces/organization-rights-victim/groups/theirs"), "Group"),
    ];
    let admin = http(world, &world.admin(), "");
    let before: Vec<Value> = others.iter().map(|(path, _)| admin.get(path).body).collect();
    // Who may write them elsewhere does not reach them there either.
    for (user, http) in [("vlad", ask(world, "vlad")), ("freehold-admin", http(world, &world.admin(), ""))] {
        let own = ways("rights-view", user);
        // An admin's own view is another one.
        let reach = if user == "vlad" { &own[..] } else { &own[1..3] };
        for way in reach {
            for (path, kind) in &others {
                assert_out_of_reach(&http, way, (path, kind));
            }
        }
    }
    for ((path, _), before) in others.iter().zip(before) {
        let after = admin.get(path).body;
        assert_eq!(after["spec"], before["spec"], "{path}");
        assert!(
            after["metadata"]["labels"]["touched"].is_null()
                && after["metadata"]["deletionTimestamp"].is_null()
        );
    }
    // An apply creates what is absent and the organization's, and no other patch does.
    let project = |organization: &str| {
        json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": "rights-new"},
            "spec": {"ownerRef": {"kind": "Organization", "name": organization}}})
        .to_string()
    };
    let (vlad, new) = (ask(world, "vlad"), format!("/organizations/rights-view{RM}/projects/rights-new"));
    let applied = format!("{new}?fieldManager=x");
    assert_refused(&vlad.send(Method::PATCH, &new, MERGE, project("rights-view")), &new);
    assert_refused(&vlad.send(Method::PATCH, &applied, APPLY, project("rights-victim")), &new);
    assert_refused(
        &vlad.send(Method::PATCH, &format!("{new}/status?fieldManager=x"), APPLY, project("rights-view")),
        &new,
    );
    let made = vlad.send(Method::PATCH, &applied, APPLY, project("rights-view"));
    assert_eq!(made.code, 201, "{}", made.body);
    let shown = vlad.get(&format!("/organizations/rights-view{RM}/projects")).body;
    assert_eq!(names(&shown), ["rights-new", "rights-view-a"]);
}

/// Without them a project would go and leave its keys and programs behind, an organization its namespace with all members.
fn finalizers_of_the_platform_stay(world: &World) {
    owned(world, "rights-final", &["rights-final-a"], "fay");
    let fay = ask(world, "fay");
    let none = json!({"metadata": {"finalizers": null}}).to_string();
    for (kind, path) in [
        ("project", format!("{RM}/projects/rights-final-a")),
        ("organization", format!("{RM}/organizations/rights-final")),
    ] {
        let name = path.rsplit('/').next().unwrap_or_default();
        until("the controller has put it", PATIENCE, || {
            let object = world.admin().json(&["get", kind, name]);
            object["metadata"]["finalizers"].to_string().contains("freehold.dev").then_some(())
        });
        for way in ["", "/organizations/rights-final"] {
            let taken = fay.send(Method::PATCH, &format!("{way}{path}"), MERGE, none.clone());
            // What is answered is what was written, before any controller could put it back.
            let left = taken.body["metadata"]["finalizers"].to_string();
            assert!(taken.code == 403 || left.contains("freehold.dev"), "{path} {}", taken.body);
        }
    }
}

/// Controllers of all planes go by the annotation that the server gives to what they watch.
fn an_object_says_nothing_of_the_plane_that_it_is_in(world: &World) {
    let (own, victim) = (world.project("plane-forger"), world.project("plane-victim"));
    let (uid, other) = (world.uid("plane-forger"), world.uid("plane-victim"));
    for (name, plane) in [("forged-other", other.as_str()), ("forged-core", "core")] {
        own.apply(&format!(
            "---\n{{apiVersion: apps/v1, kind: Deployment,
              metadata: {{name: {name}, annotations: {{freehold.dev/plane: {plane}, resourcemanager.freehold.dev/project: plane-victim}}}},
              spec: {{selector: {{matchLabels: {{a: {name}}}}}, template: {{metadata: {{labels: {{a: {name}}}}}, spec: {{containers: [{{name: c, image: x}}]}}}}}}}}\n"
        ));
        let selector = format!("--selector=a={name}");
        until("its ReplicaSet is made where it is", PATIENCE, || {
            (items(&own.json(&["get", "replicasets", &selector])).count() == 1).then_some(())
        });
        assert_eq!(items(&victim.json(&["get", "replicasets", &selector])).count(), 0);
    }
    for (list, project) in [("/planes/-", ""), ("/organizations/tests", "plane-forger")] {
        let shown = http(world, &world.admin(), "").get(&format!("{list}/apis/apps/v1/deployments")).body;
        let forged: Vec<&Value> =
            items(&shown).filter(|item| text(item, "/metadata/name").starts_with("forged-")).collect();
        assert_eq!(forged.len(), 2, "{list}");
        for object in forged {
            assert_eq!(object["metadata"]["annotations"]["freehold.dev/plane"], *uid, "{list}");
            let said = text(object, "/metadata/annotations/resourcemanager.freehold.dev~1project");
            assert!(project.is_empty() || said == project, "{list} {object}");
        }
    }
}
