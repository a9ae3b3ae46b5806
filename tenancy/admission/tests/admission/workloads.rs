//! Members' workloads: the Pods and claims that controllers of the cluster make for them are held to the tenant's rules.

use crate::as_ann;
use crate::site::{PATIENCE, Site};
use freehold_tests_harness::until;
use serde_json::json;

/// Creates workloads as a member, and waits until the controllers were refused.
pub(crate) fn are_held_to_the_rules(site: &Site) {
    let outside = "containers: [{name: c, image: nginx}]";
    let create = |kind: &str, name: &str, group: &str, spec: &str| {
        let manifest = format!(
            "{{apiVersion: {group}/v1, kind: {kind}, metadata: {{name: {name}, namespace: web-a}}, spec: {{{spec}}}}}"
        );
        as_ann(site, &manifest).unwrap_or_else(|message| panic!("{}: {manifest}: {message}", site.name));
    };
    let template = |pod: &str| format!("template: {{metadata: {{labels: {{app: w}}}}, spec: {{{pod}}}}}");
    let selector = "selector: {matchLabels: {app: w}}";
    create("Deployment", "w-images", "apps", &format!("{selector}, {}", template(outside)));
    let pod = "restartPolicy: Never, tolerations: [{key: gpu, operator: Exists}], \
        containers: [{name: c, image: registry.example.com/a}]";
    create("Job", "w-tolerations", "batch", &template(pod));
    let claims = "volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: gold, \
        accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]";
    let inside = "containers: [{name: c, image: registry.example.com/a}]";
    create(
        "StatefulSet",
        "w-classes",
        "apps",
        &format!("serviceName: s, {selector}, {claims}, {}", template(inside)),
    );
    create("Deployment", "w-fine", "apps", &format!("{selector}, {}", template(inside)));

    until(&format!("{}: a Pod that fits is made", site.name), PATIENCE, || {
        pods(site, "w-fine").first().cloned()
    });
    for (name, words) in [
        ("w-images", "an image is not of a registry"),
        ("w-tolerations", "a toleration is not allowed"),
        ("w-classes", "the class is not allowed"),
    ] {
        until(&format!("{}: the controller is refused for {name}", site.name), PATIENCE, || {
            assert_eq!(pods(site, name), Vec::<String>::new(), "{}: {name}", site.name);
            let events = site.get(&["events", "-n", "web-a"])?;
            let events = events["items"].as_array()?;
            let about = |event: &&serde_json::Value| {
                let involved = event["involvedObject"]["name"].as_str().unwrap_or_default();
                involved.starts_with(name) && event["message"].as_str().unwrap_or_default().contains(words)
            };
            events.iter().find(about).map(|_| ())
        });
    }
    assert!(site.get(&["pvc", "data-w-classes-0", "-n", "web-a"]).is_none(), "{}", site.name);
    a_controller_that_is_an_administrator_is_held_too(site);
}

/// A kube-controller-manager may run with the administrator's own certificate.
fn a_controller_that_is_an_administrator_is_held_too(site: &Site) {
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "b6c5bd8c-4b35-4b0b-9b8f-6c2b7e8b2f0d",
        "controller": true,
    }]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "owned", "namespace": "web-a", "ownerReferences": owner},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    });
    let output = site.kubectl.run_with_input(&["create", "--dry-run=server", "-f", "-"], &pod.to_string());
    assert!(output.stderr.contains("an image is not of a registry"), "{}: {}", site.name, output.stderr);
}

/// Names of Pods that a workload has.
fn pods(site: &Site, workload: &str) -> Vec<String> {
    let list = site.kubectl.json(&["get", "pods", "-n", "web-a", "-o", "json"]);
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let names = items.iter().map(|item| freehold_machinery::meta::name(item).to_owned());
    names.filter(|name| name.starts_with(&format!("{workload}-"))).collect()
}
