//! What a project of Freehold decides about tenants by itself: no webhook runs, and none is registered.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "admission/installed.rs"]
mod installed;
#[path = "../../controllers/tests/tenants/site.rs"]
#[allow(dead_code, reason = "the controllers' tests ask for more of it")]
mod site;

use freehold_tests_harness::until;
use serde_json::{Value, json};
use site::{PATIENCE, Site};

const READY: &str = "tenancy.freehold.dev/Ready";

const TENANTS: &str = "
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: web}
spec:
  members: [{role: owner, subjects: [{name: ann}]}]
  namespaces: {selfService: true, requirePrefix: true, max: 3, declared: [{name: a}]}
  metadata:
    labels: {stage: dev}
    labelRules: {required: {stage: [dev, prod]}, forbidden: [example.com/*], protected: [cost]}
  hosts: {collisionScope: Cluster}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: lab}
spec:
  members: [{role: editor, subjects: [{name: ann}, {name: kim}]}]
  namespaces: {selfService: true, declared: [{name: a}]}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: shut}
spec:
  cordoned: true
  members: [{role: owner, subjects: [{name: sue}]}]
  namespaces: {selfService: true}
";

#[test]
fn a_project_decides_about_tenants_without_a_webhook() {
    let site = Site::freehold();
    let _ = site.start();
    // Before there are tenants, and in planes without them, nothing is asked.
    site.kubectl.ok(&["create", "namespace", "early"]);
    installed::install(&site);
    site.apply(TENANTS);
    for name in ["web-a", "lab-a"] {
        site.condition(&["namespace", name], READY, "True", "Ready");
    }
    namespaces_join_their_creators_tenant(&site);
    keys_are_required_forbidden_and_protected(&site);
    host_names_collide_over_all_tenants(&site);
    tenants_make_sense(&site);
    administrators_pass(&site);
    let configurations = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    assert!(site.kubectl.ok(&["get", configurations, "-o", "name"]).is_empty());
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn create(site: &Site, user: &str, object: &Value) -> Result<(), String> {
    let output = site.kubectl.run_with_input(&["create", "--as", user, "-f", "-"], &object.to_string());
    if output.success { Ok(()) } else { Err(output.stderr) }
}

/// A right that was just given counts from a moment later on.
fn refused(site: &Site, user: &str, object: &Value, words: &str) {
    until(&format!("{user} is told {words:?} of {object}"), PATIENCE, || {
        create(site, user, object).err().filter(|message| message.contains(words)).map(drop)
    });
}

fn namespaces_join_their_creators_tenant(site: &Site) {
    until("ann may create namespaces", PATIENCE, || {
        create(site, "ann", &namespace("web-b", json!({"stage": "dev"}))).ok()
    });
    let made = site.condition(&["namespace", "web-b"], READY, "True", "Ready");
    assert_eq!(made["metadata"]["labels"]["tenancy.freehold.dev/tenant"], "web");
    assert_eq!(made["metadata"]["annotations"]["tenancy.freehold.dev/created-by"], "ann");
    // Of two tenants the name decides, or the label.
    refused(site, "ann", &namespace("other", json!({})), "a member of several tenants");
    create(site, "ann", &namespace("other", json!({"tenancy.freehold.dev/tenant": "lab"}))).unwrap();
    refused(
        site,
        "ann",
        &namespace("more", json!({"tenancy.freehold.dev/tenant": "web", "stage": "dev"})),
        "begin with",
    );
    refused(
        site,
        "kim",
        &namespace("web-k", json!({"tenancy.freehold.dev/tenant": "web"})),
        "you may not create",
    );
    refused(site, "sue", &namespace("shut-a", json!({})), "is cordoned");
    // Three at most, exactly.
    create(site, "ann", &namespace("web-c", json!({"stage": "dev"}))).unwrap();
    refused(site, "ann", &namespace("web-d", json!({"stage": "dev"})), "exceeded quota of tenant");
}

fn keys_are_required_forbidden_and_protected(site: &Site) {
    refused(site, "ann", &namespace("web-e", json!({})), "\"stage\" is required");
    refused(site, "ann", &namespace("web-e", json!({"stage": "qa"})), "must be one of");
    refused(site, "ann", &namespace("web-e", json!({"stage": "dev", "example.com/x": "y"})), "is forbidden");
    let label = |change: &str| {
        site.kubectl.run(&["label", "namespace", "web-b", "--overwrite", change, "--as", "ann"])
    };
    assert!(label("cost=one").success);
    for (change, words) in
        [("cost=two", "is protected"), ("stage-", "is required"), ("example.com/x=y", "is forbidden")]
    {
        let output = label(change);
        assert!(!output.success && output.stderr.contains(words), "{change}: {}", output.stderr);
    }
    assert!(label("stage=prod").success);
    let annotate = |change: &str| {
        site.kubectl.run(&["annotate", "namespace", "web-b", "--overwrite", change, "--as", "ann"])
    };
    assert!(annotate("tenancy.freehold.dev/sleep=asleep").success, "owners put their namespaces to sleep");
    assert!(!annotate("tenancy.freehold.dev/expires-at=2099-01-01T00:00:00Z").success);
}

fn ingress(namespace: &str, name: &str) -> Value {
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"rules": [{"host": "shop.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]},
    })
}

fn host_names_collide_over_all_tenants(site: &Site) {
    until("kim edits in lab", PATIENCE, || create(site, "kim", &ingress("lab-a", "first")).ok());
    refused(site, "ann", &ingress("web-a", "second"), "is used by another tenant");
    // The tenant of the first does not ask for that.
    create(site, "kim", &ingress("lab-a", "third")).unwrap();
    site.kubectl.ok(&["delete", "ingress", "first", "third", "-n", "lab-a"]);
    create(site, "ann", &ingress("web-a", "second")).unwrap();
    refused(site, "ann", &ingress("web-b", "fourth"), "is used by web-a/second");
}

fn tenants_make_sense(site: &Site) {
    let parent = |tenant: &str, parent: &str| {
        let patch = json!({"spec": {"parent": parent}}).to_string();
        site.kubectl.run(&["patch", "tenant", tenant, "--type=merge", "-p", &patch])
    };
    assert!(parent("lab", "web").success);
    let output = parent("web", "lab");
    assert!(output.stderr.contains("would be its own ancestor"), "{}", output.stderr);
    assert!(parent("lab", "").success);
    let long = "a".repeat(41);
    let tenant = json!({"apiVersion": "tenancy.freehold.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": long}, "spec": {}});
    let output = site.kubectl.run_with_input(&["create", "-f", "-"], &tenant.to_string());
    assert!(output.stderr.contains("at most 40 characters"), "{}", output.stderr);
}

fn administrators_pass(site: &Site) {
    site.kubectl.ok(&["create", "namespace", "web-of-the-admin"]);
    site.kubectl.ok(&["label", "namespace", "web-b", "--overwrite", "example.com/x=y", "cost=three"]);
    site.apply(&ingress("web-b", "by-the-admin").to_string());
}
