//! What a member could reach by ways around the role that they have: other identities of the project, other people's writes,
//! the planes that all share, and questions about others.

use crate::access::{becomes, member};
use crate::attacks_rights::{IAM, RM, ask, assert_refused, owned};
use crate::{PATIENCE, text};
use freehold_tests_integration::{Http, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    an_editor_becomes_no_controller_of_the_project,
    an_editor_brings_nothing_back_that_was_taken_away,
    an_editor_changes_no_write_of_others,
    a_workload_in_the_core_plane_makes_nothing,
    a_review_about_others_names_no_binding_of_the_platform,
);

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
/// The account of a controller that may change any role.
const CONTROLLER: &str = "clusterrole-aggregation-controller";

/// An editor of an organization of its own, who counts in its project.
fn editor(world: &World, organization: &str, editor: &str) -> Http {
    let project = format!("{organization}-a");
    owned(world, organization, &[&project], &format!("{organization}-owner"));
    world.admin().apply(&member(organization, editor, "editor"));
    let kubectl = world.person(editor, &format!("/projects/{project}"));
    becomes(&kubectl, &["create", "configmap", "a", "--dry-run=server"], true);
    ask(world, editor)
}

/// What a project was has the bindings, the accounts and so the tokens of then: who may bring it back decides about credentials.
fn an_editor_brings_nothing_back_that_was_taken_away(world: &World) {
    let ed = editor(world, "returning", "returning-ed");
    let (snapshots, restores) = (
        format!("/organizations/returning{RM}/namespaces/organization-returning/projectsnapshots"),
        format!("/organizations/returning{RM}/namespaces/organization-returning/projectrestores"),
    );
    let api = "resourcemanager.freehold.dev/v1alpha1";
    let of = |kind: &str, name: &str, spec: Value| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let project = json!({"projectRef": {"name": "returning-a"}});
    assert_eq!(ed.json(Method::POST, &snapshots, &of("ProjectSnapshot", "s", project)).code, 201);
    let spec = json!({"projectRef": {"name": "returning-a"}, "snapshotRef": {"name": "s"}});
    let restore = of("ProjectRestore", "r", spec);
    assert_refused(&ed.json(Method::POST, &restores, &restore), "a restore");
    let apply = format!("{restores}/r?fieldManager=a");
    assert_refused(
        &ed.send(Method::PATCH, &apply, "application/apply-patch+yaml", restore.to_string()),
        "a restore, applied",
    );
    let projects = format!("/organizations/returning{RM}/projects");
    let fork = |name: &str, from: Value| {
        let owner = json!({"kind": "Organization", "name": "returning"});
        of("Project", name, json!({"ownerRef": owner, "controlPlane": {"from": from}}))
    };
    for from in
        [json!({"project": "returning-a", "snapshot": "s"}), json!({"project": "returning-a", "revision": 5})]
    {
        assert_refused(&ed.json(Method::POST, &projects, &fork("returning-b", from)), "a fork of what was");
    }
    // What the project is now gives the editor nothing that they do not have.
    let now = fork("returning-c", json!({"project": "returning-a"}));
    assert_eq!(ed.json(Method::POST, &projects, &now).code, 201);
    let owner = ask(world, "returning-owner");
    assert_eq!(owner.json(Method::POST, &restores, &restore).code, 201);
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
}

fn token_secret(account: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": account, "annotations": {"kubernetes.io/service-account.name": account}}})
}

fn an_editor_becomes_no_controller_of_the_project(world: &World) {
    let ed = editor(world, "becoming", "becoming-ed");
    let place = "/projects/becoming-a/api/v1/namespaces/kube-system";
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let accounts = format!("{place}/serviceaccounts");
    let (token, secrets) = (format!("{accounts}/{CONTROLLER}/token"), format!("{place}/secrets"));
    assert_refused(&ed.json(Method::POST, &accounts, &account(CONTROLLER)), "its account");
    let apply = format!("{accounts}/{CONTROLLER}?fieldManager=a");
    let applied =
        ed.send(Method::PATCH, &apply, "application/apply-patch+yaml", account(CONTROLLER).to_string());
    assert_refused(&applied, "its account, applied");
    assert_refused(&ed.json(Method::POST, &secrets, &token_secret(CONTROLLER)), "a Secret for its token");
    // Where the account is there, as a kube-controller-manager makes it, nobody else gets its tokens; an owner does.
    let inside = world.server().project("becoming-a");
    inside.ok(&["create", "serviceaccount", CONTROLLER, "-n", "kube-system"]);
    assert_refused(&ed.json(Method::POST, &token, &request), "its token");
    assert_refused(&ed.json(Method::POST, &secrets, &token_secret(CONTROLLER)), "a Secret for its token");
    let owner = ask(world, "becoming-owner");
    assert_eq!(owner.json(Method::POST, &token, &request).code, 201);
    // An account of the editor's own has no more than the editor.
    let own = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "tokens"},
        "rules": [{"verbs": ["create"], "apiGroups": [""], "resources": ["serviceaccounts", "serviceaccounts/token", "secrets"]}]});
    let rbac = "/projects/becoming-a/apis/rbac.authorization.k8s.io/v1";
    assert_eq!(ed.json(Method::POST, &format!("{rbac}/clusterroles"), &own).code, 201);
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "tokens"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tokens"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
    assert_eq!(ed.json(Method::POST, &format!("{rbac}/clusterrolebindings"), &bound).code, 201);
    let at = "/projects/becoming-a/api/v1/namespaces/default/serviceaccounts/default/token";
    let given = ed.json(Method::POST, at, &request);
    assert_eq!(given.code, 201, "{}", given.body);
    let robot = Http::with_token(&world.admin(), world.server().url(), text(&given.body, "/status/token"));
    until("its binding counts", PATIENCE, || {
        (robot.json(Method::POST, at, &request).code == 201).then_some(())
    });
    assert_refused(&robot.json(Method::POST, &token, &request), "its token, for another account");
    assert_refused(
        &robot.json(Method::POST, &secrets, &token_secret(CONTROLLER)),
        "its Secret, for another account",
    );
}

fn an_editor_changes_no_write_of_others(world: &World) {
    let ed = editor(world, "altering", "altering-ed");
    for (resource, kind) in [
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    ] {
        let object =
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}});
        for way in [
            "/projects/altering-a",
            "/apis/resourcemanager.freehold.dev/v1alpha1/projects/altering-a/control-plane",
        ] {
            assert_refused(
                &ed.json(Method::POST, &format!("{way}{ADMISSION}/{resource}"), &object),
                resource,
            );
        }
        assert_eq!(ed.get(&format!("/projects/altering-a{ADMISSION}/{resource}")).code, 200);
    }
    // Nor is it given to an account that the editor could be.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"},
        "rules": [{"verbs": ["create"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]}]});
    let roles = "/projects/altering-a/apis/rbac.authorization.k8s.io/v1/clusterroles";
    assert_refused(&ed.json(Method::POST, roles, &role), "a role");
}

fn a_workload_in_the_core_plane_makes_nothing(world: &World) {
    owned(world, "flooding", &["flooding-a"], "flooding-owner");
    let owner = ask(world, "flooding-owner");
    let pods = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "flood"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": pods}});
    let namespace = "organization-flooding";
    let core = format!("/organizations/flooding/apis/apps/v1/namespaces/{namespace}/deployments");
    assert_eq!(owner.json(Method::POST, &core, &deployment).code, 201);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "flood"},
        "spec": {"parallelism": 3, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let jobs = format!("/organizations/flooding/apis/batch/v1/namespaces/{namespace}/jobs");
    assert_eq!(owner.json(Method::POST, &jobs, &job).code, 201);
    // A project's workloads, made later, have been seen when these would have been.
    let inside = "/projects/flooding-a/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(owner.json(Method::POST, inside, &deployment).code, 201);
    let count = |namespace: &str, way: &str| {
        let list = owner.get(&format!("{way}/api/v1/namespaces/{namespace}/pods")).body;
        list["items"].as_array().map_or(0, Vec::len)
    };
    until("the project's own Pods are made", PATIENCE, || {
        (count("default", "/projects/flooding-a") == 3).then_some(())
    });
    assert_eq!(count(namespace, "/organizations/flooding"), 0);
}

fn a_review_about_others_names_no_binding_of_the_platform(world: &World) {
    owned(world, "asking", &["asking-a"], "asking-owner");
    let admin = world.admin();
    admin.ok(&[
        "create",
        "clusterrolebinding",
        "kept-secret-rbac",
        "--clusterrole=view",
        "--user=asking-operator",
    ]);
    let binding = json!({"apiVersion": "iam.freehold.dev/v1alpha1", "kind": "PolicyBinding",
        "metadata": {"name": "kept-secret-iam", "namespace": "freehold-system"},
        "spec": {"roleRef": {"name": "viewer", "namespace": "freehold-system"},
            "subjects": [{"kind": "User", "name": "asking-operator"}], "target": {"kind": "Platform"}}});
    let admins = Http::of(&admin);
    assert_eq!(
        admins.json(Method::POST, &format!("{IAM}/namespaces/freehold-system/policybindings"), &binding).code,
        201
    );
    let owner = ask(world, "asking-owner");
    let namespace = "organization-asking";
    let ways = [
        (String::new(), format!("namespaces/{namespace}/localsubjectaccessreviews"), namespace),
        (
            "/organizations/asking".to_owned(),
            format!("namespaces/{namespace}/localsubjectaccessreviews"),
            namespace,
        ),
        ("/organizations/asking".to_owned(), "subjectaccessreviews".to_owned(), namespace),
        ("/projects/asking-a".to_owned(), "subjectaccessreviews".to_owned(), "default"),
    ];
    let review = |resource: &str, namespace: &str, verb: &str, explain: &str| {
        let kind =
            if resource.contains("local") { "LocalSubjectAccessReview" } else { "SubjectAccessReview" };
        let mut object = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind,
            "metadata": {"annotations": {"iam.freehold.dev/explain": explain}},
            "spec": {"user": "asking-operator", "resourceAttributes": {"namespace": namespace, "verb": verb, "resource": "configmaps"}}});
        if kind.starts_with("Local") {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    };
    until("the operator's binding counts", PATIENCE, || {
        let asked = review("subjectaccessreviews", "default", "get", "false");
        let answer = admins.json(Method::POST, &format!("{REVIEWS}/subjectaccessreviews"), &asked);
        text(&answer.body, "/status/reason").contains("kept-secret").then_some(())
    });
    for (way, resource, namespace) in &ways {
        for (verb, explain) in [("get", "false"), ("get", "true"), ("delete", "true")] {
            let asked = review(resource, namespace, verb, explain);
            let answer = owner.json(Method::POST, &format!("{way}{REVIEWS}/{resource}"), &asked);
            assert_eq!(answer.code, 201, "{way} {resource}: {}", answer.body);
            assert!(
                !answer.body["status"].to_string().contains("kept-secret"),
                "{way}: {}",
                answer.body["status"]
            );
        }
    }
}
