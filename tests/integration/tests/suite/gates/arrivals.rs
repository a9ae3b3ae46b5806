//! What comes into a project's plane without a request for each object: an import, a fork, a restore. Which gates it passes.

use crate::{PATIENCE, attacks_imports, quota, text};
use freehold_tests_integration::{Http, Kubectl, Server, until};
use http::Method;
use serde_json::{Value, json};

use super::RESOURCES;
const NAMESPACE: &str = "organization-walls";

/// An object of the platform that makes something arrive.
fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name}, "spec": spec});
    if kind != "Project" {
        object["metadata"]["namespace"] = NAMESPACE.into();
    }
    object
}

/// Waits for what a controller says of an object.
fn says(admin: &Kubectl, what: &str, name: &str, words: &str) {
    until(&format!("{what} {name}: {words}"), PATIENCE, || {
        let status = admin.json(&["get", what, name, "-n", NAMESPACE])["status"].to_string();
        status.contains(words).then_some(())
    });
}

/// The table of arrivals: each gate is shut, and what arrives is refused by it.
pub(super) fn page(server: &Server) -> String {
    let (admin, source) = (server.kubectl(), server.project("walls-a"));
    source.ok(&["create", "configmap", "arrives", "-n", "walls"]);
    let project = |name: &str, plane: Value| {
        object(
            "Project",
            name,
            &json!({"ownerRef": {"kind": "Organization", "name": "walls"}, "controlPlane": plane}),
        )
    };
    admin.apply(
        &object("ProjectSnapshot", "arrives", &json!({"projectRef": {"name": "walls-a"}})).to_string(),
    );
    says(&admin, "projectsnapshots", "arrives", "\"Ready\"");
    admin.apply(&project("walls-empty", json!({})).to_string());
    admin.ok(&["wait", "--for=condition=Ready", "project/walls-empty", "--timeout=120s"]);
    source.ok(&["delete", "configmap", "arrives", "-n", "walls"]);
    let core = |user: &str| Http::of_elsewhere(&server.person(user), server.url());
    let (owner, stranger) = (core("walls-owner"), core("walls-stranger"));
    let archive = attacks_imports::archive(&[(
        "core/configmaps/default/arrives",
        attacks_imports::map("arrives", &json!({})),
    )]);
    let import = |http: &Http| {
        http.send(Method::POST, "/projects/walls-empty/archive", attacks_imports::ARCHIVE, archive.clone())
    };
    let fork = project("walls-fork", json!({"from": {"project": "walls-a", "snapshot": "arrives"}}));
    let restore = object(
        "ProjectRestore",
        "arrives",
        &json!({"projectRef": {"name": "walls-a"}, "snapshotRef": {"name": "arrives"}}),
    );
    let view = format!("/organizations/walls{RESOURCES}");
    let projects = format!("{view}/projects");
    let restores = format!("{view}/namespaces/{NAMESPACE}/projectrestores");
    let ask = |http: &Http| {
        [
            import(http),
            http.json(Method::POST, &projects, &fork),
            http.json(Method::POST, &restores, &restore),
        ]
    };
    let refused = |http: &Http, words: &str| {
        for (what, answer) in ["import", "fork", "restore"].into_iter().zip(ask(http)) {
            let message = text(&answer.body, "/message");
            assert!(answer.code == 403 && message.contains(words), "{what}: {} {}", answer.code, answer.body);
        }
    };
    refused(&stranger, "cannot");
    let suspend = |to: Value| {
        let patch = json!({"spec": {"suspension": to}}).to_string();
        admin.ok(&["patch", "organization", "walls", "--type=merge", "-p", &patch]);
    };
    suspend(json!({"reason": "the test", "liftedBy": "Platform"}));
    until("the suspension counts", PATIENCE, || (import(&owner).code == 403).then_some(()));
    refused(&owner, "is suspended");
    suspend(Value::Null);
    let none = quota::registration("arrivals", "Organization", quota::MAP_KIND)
        + &quota::policy("arrivals", "walls", "{resourceType: arrivals, amount: 1}")
            .replace("paid", "arrives");
    admin.apply(&none);
    let words = "exceeded quota of organization";
    until("allowances count", PATIENCE, || {
        let answer = import(&owner);
        (answer.code == 403 && text(&answer.body, "/message").contains(words)).then_some(())
    });
    assert_eq!(owner.json(Method::POST, &projects, &fork).code, 201);
    says(&admin, "projects", "walls-fork", "QuotaExceeded");
    assert_eq!(owner.json(Method::POST, &restores, &restore).code, 201);
    says(&admin, "projectrestores", "arrives", words);
    admin.run_with_input(&["delete", "-f", "-"], &none).expect_ok();
    "\n== what arrives without a request for each object\n\
     authorization suspension allowances audit trail\n  \
       no webhooks: the plane's own are for requests; what arrives is validated as if it were created\n  \
       no policies: likewise\n  \
       no quota: quotas of namespaces arrive with what they count:\n    \
         a fork\n    \
         a restore\n    \
         an import\n"
        .to_owned()
}
