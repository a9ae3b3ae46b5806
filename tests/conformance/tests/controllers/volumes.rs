//! Volume binding, nodes' networks and ResourceClaims: Freehold's controllers and those of kube-controller-manager, given the
//! same objects. Nothing else runs: programs that make volumes or allocate devices are played.

use super::{External, PROJECTS, differences, items, name, start_external_with, text};
use freehold_tests_harness::{Engine, Kubectl, Options, Server};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const OBJECTS: &str = include_str!("volumes.yaml");
const PATIENCE: Duration = Duration::from_secs(180);
/// Nothing more is written when nothing was for so long. The other binder looks at everything each 15 seconds.
const REST: Duration = Duration::from_secs(18);
const KINDS: &str = "persistentvolumes,persistentvolumeclaims,resourceclaims,pods,nodes";
const NETWORK: &str = "10.244.0.0/22";
const ALLOCATED: &str = r#"{"allocation":{"devices":{"results":[{"request":"one","driver":"gpu.example.com","pool":"p","device":"d"}]}},"reservedFor":[{"resource":"pods","name":"trainer","uid":"UID"}]}"#;

#[test]
fn volumes_networks_and_claims_become_what_kube_controller_manager_makes_of_them() {
    if std::env::var_os("FREEHOLD_TEST_CONTROLLERS").is_none() {
        return;
    }
    let args = vec![format!("--cluster-cidr={NETWORK}")];
    let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
    server.kubectl().apply(PROJECTS);
    let ours = observe(&server.project("own"));
    let kubectl = server.project("external");
    let controllers = "serviceaccount-controller,persistentvolume-binder-controller,node-ipam-controller,\
        resourceclaim-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller";
    let cidr = format!("--cluster-cidr={NETWORK}");
    let args = [format!("--controllers={controllers}"), cidr, "--allocate-node-cidrs".to_owned()];
    let _running: External = start_external_with(&server, &kubectl, &args);
    let theirs = observe(&kubectl);
    let found = differences(&ours, &theirs);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

fn observe(project: &Kubectl) -> Value {
    project.ok(&["create", "namespace", "compare"]);
    let kubectl = project.with(&["--namespace", "compare"]);
    let until = Instant::now() + PATIENCE;
    while !kubectl.run(&["get", "serviceaccount", "default"]).success {
        assert!(Instant::now() < until, "no service account");
    }
    kubectl.apply(OBJECTS);
    for node in ["n1", "n2"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        kubectl.apply(&node.to_string());
        settle_nodes(&kubectl);
    }
    let mut seen = Map::new();
    let mut look = |step: &str| {
        settle(&kubectl, step);
        seen.insert(step.to_owned(), normal(&kubectl));
    };
    look("made");
    allocate(&kubectl);
    kubectl.ok(&[
        "patch",
        "storageclass",
        "soon",
        "--type=merge",
        "-p",
        r#"{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}}}"#,
    ]);
    kubectl.ok(&["delete", "node", "n1"]);
    kubectl.apply(r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"later"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#);
    look("allocated");
    kubectl.ok(&["delete", "pvc", "fitting", "picky", "--wait=false"]);
    kubectl.ok(&[
        "patch",
        "pod",
        "trainer",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"phase":"Succeeded"}}"#,
    ]);
    kubectl.ok(&["delete", "pv", "named", "--wait=false"]);
    kubectl.ok(&["patch", "pv", "named", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    look("deleted");
    Value::Object(seen)
}

/// Allocates a device to the Pod's claim and reserves it, as the scheduler does.
fn allocate(kubectl: &Kubectl) {
    let claims = kubectl.json(&["get", "resourceclaims"]);
    let claim = name(items(&claims).first().expect("a claim of the Pod"));
    let pod = kubectl.json(&["get", "pod", "trainer"]);
    let finalizers = r#"{"metadata":{"finalizers":["resource.kubernetes.io/delete-protection"]}}"#;
    kubectl.ok(&["patch", "resourceclaim", &claim, "--type=merge", "-p", finalizers]);
    let status = ALLOCATED.replace("UID", text(&pod, "/metadata/uid"));
    let patch = format!(r#"{{"status":{status}}}"#);
    kubectl.ok(&["patch", "resourceclaim", &claim, "--subresource=status", "--type=merge", "-p", &patch]);
}

/// Nodes come one after the other, so that both give out networks in this order.
fn settle_nodes(kubectl: &Kubectl) {
    let until = Instant::now() + PATIENCE;
    while items(&kubectl.json(&["get", "nodes"])).iter().any(|node| text(node, "/spec/podCIDR").is_empty()) {
        assert!(Instant::now() < until, "a node has no network");
    }
}

fn settle(kubectl: &Kubectl, step: &str) {
    let until = Instant::now() + PATIENCE;
    let (mut last, mut since) = (String::new(), Instant::now());
    while since.elapsed() < REST {
        let all = kubectl.json(&["get", KINDS]);
        let versions: String = items(&all).iter().map(|o| text(o, "/metadata/resourceVersion")).collect();
        if versions != last {
            (last, since) = (versions, Instant::now());
        }
        assert!(Instant::now() < until, "{step}: not at rest: {all}");
    }
}

fn normal(kubectl: &Kubectl) -> Value {
    let mut result = Map::new();
    let claim_name = |text: &str| {
        if text.starts_with("trainer-gpu-") { "trainer-gpu-RANDOM".to_owned() } else { text.to_owned() }
    };
    for object in items(&kubectl.json(&["get", KINDS])) {
        let kind = text(object, "/kind");
        let metadata = &object["metadata"];
        let mut kept = json!({
            "annotations": metadata["annotations"], "labels": metadata["labels"], "finalizers": metadata["finalizers"],
            "deleting": metadata.get("deletionTimestamp").is_some(),
            "owners": metadata["ownerReferences"].as_array().map(|owners| owners.iter().map(|o| json!([o["kind"], o["name"], o["controller"], o["blockOwnerDeletion"]])).collect::<Vec<_>>()),
        });
        match kind {
            "Pod" => {
                let statuses = object["status"]["resourceClaimStatuses"].as_array();
                kept["claims"] = statuses
                    .into_iter()
                    .flatten()
                    .map(|s| json!([s["name"], claim_name(text(s, "/resourceClaimName"))]))
                    .collect();
            }
            "Node" => kept["networks"] = json!([object["spec"]["podCIDR"], object["spec"]["podCIDRs"]]),
            _ => {
                kept["spec"] = object["spec"].clone();
                kept["status"] = object["status"].clone();
            }
        }
        strip(&mut kept);
        result.insert(format!("{kind}/{}", claim_name(&name(object))), kept);
    }
    let mut events = BTreeSet::new();
    for event in items(&kubectl.json(&["get", "events", "--all-namespaces"])) {
        let about = |field: &str| text(event, &format!("/involvedObject/{field}")).to_owned();
        if !matches!(about("kind").as_str(), "Node" | "Pod") {
            events.insert(format!(
                "{} {} {} {} {}",
                about("kind"),
                about("name"),
                text(event, "/type"),
                text(event, "/reason"),
                text(event, "/message")
            ));
        }
    }
    result.insert("events".to_owned(), json!(events));
    Value::Object(result)
}

/// Removes what is chance: uids, versions and times.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for field in ["uid", "resourceVersion", "lastPhaseTransitionTime", "allocationTimestamp"] {
                map.remove(field);
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}
