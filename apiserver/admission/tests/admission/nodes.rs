//! What kubelets may write, and what new nodes and volumes get.

use crate::world::*;
use base64::{Engine, engine::general_purpose::STANDARD};
use freehold_apiserver_admission::Verb;
use freehold_machinery::Value;
use freehold_pki::{ClientName, PrivateKey, csr};
use serde_json::{Value::Null, json};

const KUBELET: (&str, &str) = ("system:node:n1", "system:nodes");

fn by_kubelet(target: &str, object: Value) -> Write<'_> {
    Write { user: KUBELET, ..create(target, object) }
}

fn update(target: &str, old: Value, object: Value) -> Write<'_> {
    Write { verb: Verb::Update, old, ..by_kubelet(target, object) }
}

/// A mirror of a static Pod on a node.
fn mirror(node: &str, owners: Value, spec: Value) -> Value {
    let mut pod = in_ns("p", json!({"spec": spec}));
    pod["spec"]["nodeName"] = node.into();
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    pod["metadata"]["ownerReferences"] = owners;
    pod
}

fn owner(uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true}])
}

fn world() -> World {
    World::new(vec![
        ("", "nodes", named("n1", json!({"metadata": {"uid": "u1"}}))),
        ("", "pods", in_ns("mine", json!({"metadata": {"uid": "m"}, "spec": {"nodeName": "n1"}}))),
        ("", "pods", in_ns("other", json!({"metadata": {"uid": "o"}, "spec": {"nodeName": "n2"}}))),
    ])
}

#[test]
fn a_kubelet_makes_mirrors_of_its_own_pods_alone() {
    let refused = |why: &str| format!("pods \"p\" is forbidden: {why}");
    let none = refused(
        "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
    );
    let elsewhere = refused("node \"n1\" can only create pods with spec.nodeName set to itself");
    let unowned = refused("node \"n1\" can only create pods with an owner reference set to itself");
    let stale = refused("node n1 UID mismatch: expected old got u1");
    let reads = |what: &str| refused(&format!("node \"n1\" can not create pods that reference {what}"));
    let (secrets, claims) = (reads("secrets"), reads("persistentvolumeclaims"));
    let of = |spec: Value| by_kubelet("/pods", mirror("n1", owner("u1"), spec));
    let rows = vec![
        (of(json!({"containers": [{"name": "c"}], "volumes": [{"hostPath": {"path": "/"}}]})), Ok(vec![])),
        (create("/pods", in_ns("p", json!({}))), Ok(vec![])),
        (by_kubelet("/pods", in_ns("p", json!({}))), Err(&*none)),
        (by_kubelet("/pods", mirror("n2", owner("u1"), json!({}))), Err(&*elsewhere)),
        (by_kubelet("/pods", mirror("n1", json!([]), json!({}))), Err(&*unowned)),
        (by_kubelet("/pods", mirror("n1", owner("old"), json!({}))), Err(&*stale)),
        (of(json!({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {}}}]}]})), Err(&*secrets)),
        (of(json!({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]})), Err(&*claims)),
    ];
    check(&only("NodeRestriction"), &world(), rows);
}

#[test]
fn a_kubelet_writes_about_its_own_pods_alone() {
    let chain = only("NodeRestriction");
    let bound = |node: &str, labels: Value| {
        in_ns("p", json!({"spec": {"nodeName": node}, "metadata": {"labels": labels}}))
    };
    let delete =
        |node: &str| Write { verb: Verb::Delete, old: bound(node, Null), ..by_kubelet("/pods", Null) };
    let evict = |pod: &str| Write { old: Null, ..by_kubelet("/pods/eviction", in_ns(pod, json!({}))) };
    let token = |pod: &str, uid: &str| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid});
        by_kubelet("/serviceaccounts/token", named("sa", json!({"spec": {"boundObjectRef": bound}})))
    };
    let status = |old, new| update("/pods/status", old, new);
    let elsewhere =
        "pods \"p\" is forbidden: node \"n1\" can only delete pods with spec.nodeName set to itself";
    let labelled = "pods \"p\" is forbidden: node \"n1\" cannot update labels through pod status";
    let evicted = "pods \"other\" is forbidden: node n1 can only evict pods with spec.nodeName set to itself";
    let changed = "pods \"p\" is forbidden: unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods";
    let unasked = "serviceaccounts \"sa\" is forbidden: audience \"\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience";
    let not_here = "serviceaccounts \"sa\" is forbidden: node requested token bound to a pod scheduled on a different node";
    let rows = vec![
        (delete("n1"), Ok(vec![])),
        (delete("n2"), Err(elsewhere)),
        (status(bound("n1", Null), bound("n1", Null)), Ok(vec![])),
        (status(bound("n1", Null), bound("n1", json!({"a": "b"}))), Err(labelled)),
        (update("/pods", bound("n1", Null), bound("n1", Null)), Err(changed)),
        (evict("mine"), Ok(vec![])),
        (evict("other"), Err(evicted)),
        (token("mine", "m"), Err(unasked)),
        (token("other", "o"), Err(not_here)),
        (token("gone", "g"), Err("pods \"gone\" not found")),
    ];
    check(&chain, &world(), rows);
    let audience = World { permissions: vec!["request-serviceaccounts-token-audience / "], ..world() };
    check(&chain, &audience, vec![(token("mine", "m"), Ok(vec![]))]);
}

#[test]
fn a_kubelet_writes_its_own_node_without_taints_and_foreign_labels() {
    let node = |name: &str, labels: Value| named(name, json!({"metadata": {"labels": labels}}));
    let of = |name, labels| by_kubelet("/nodes", node(name, labels));
    let tainted = named("n1", json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}));
    let other = "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"";
    let set = "nodes \"n1\" is forbidden: node \"n1\" is not allowed to set the following labels: node-restriction.kubernetes.io/a, x.k8s.io/b";
    let modified = "nodes \"n1\" is forbidden: is not allowed to modify labels: kubernetes.io/c";
    let taints = "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints";
    let allowed = json!({"kubernetes.io/hostname": "n1", "x.node.kubernetes.io/a": "b", "mine": "c"});
    let foreign = json!({"x.k8s.io/b": "", "node-restriction.kubernetes.io/a": "", "mine": "c"});
    let lease = |namespace: &str, name: &str| {
        let mut lease = named(name, json!({}));
        lease["metadata"]["namespace"] = namespace.into();
        by_kubelet("coordination.k8s.io/leases", lease)
    };
    let rows = vec![
        (of("n1", allowed), Ok(vec![])),
        (of("n2", Null), Err(other)),
        (of("n1", foreign), Err(set)),
        (
            update("/nodes", node("n1", json!({"a": "b"})), node("n1", json!({"kubernetes.io/c": ""}))),
            Err(modified),
        ),
        (update("/nodes", node("n1", Null), tainted), Err(taints)),
        (
            lease("ns", "n1"),
            Err(
                "leases.coordination.k8s.io \"n1\" is forbidden: can only access leases in the \"kube-node-lease\" system namespace",
            ),
        ),
        (
            by_kubelet("storage.k8s.io/csinodes", named("n2", json!({}))),
            Err(
                "csinodes.storage.k8s.io \"n2\" is forbidden: can only access CSINode with the same name as the requesting node",
            ),
        ),
    ];
    check(&only("NodeRestriction"), &world(), rows);
}

#[test]
fn a_kubelet_asks_for_certificates_of_its_own_name_alone() {
    let ask = |user: &str| {
        let groups = vec!["system:nodes".to_owned()];
        let client = ClientName { user, groups: &groups, plane: None };
        let request = csr::request(&PrivateKey::generate().unwrap(), &client, &[] as &[&str]).unwrap();
        let spec =
            json!({"signerName": "kubernetes.io/kubelet-serving", "request": STANDARD.encode(request)});
        by_kubelet("certificates.k8s.io/certificatesigningrequests", named("r", json!({"spec": spec})))
    };
    let refused = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: can only create a node CSR with CN=system:node:n1";
    let rows = vec![(ask("system:node:n1"), Ok(vec![])), (ask("system:node:n2"), Err(refused))];
    check(&only("NodeRestriction"), &world(), rows);
}

#[test]
fn a_new_node_takes_no_pods_until_it_is_ready() {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let with = |taints: Value| create("/nodes", named("n", json!({"spec": {"taints": taints}})));
    let at = "/spec/taints";
    let rows = vec![
        (create("/nodes", named("n", json!({}))), Ok(vec![(at, json!([taint]))])),
        (with(json!([{"key": "a", "effect": "NoExecute"}])), Ok(vec![("/spec/taints/1", taint.clone())])),
        (with(json!([taint])), Ok(vec![(at, json!([taint]))])),
        (Write { verb: Verb::Update, ..with(json!([])) }, Ok(vec![(at, json!([]))])),
    ];
    check(&only("TaintNodesByCondition"), &World::default(), rows);
}

#[test]
fn volumes_and_claims_get_their_finalizers_once() {
    let at = "/metadata/finalizers";
    let claim = "kubernetes.io/pvc-protection";
    let held = in_ns("c", json!({"metadata": {"finalizers": [claim]}}));
    let rows = vec![
        (create("/persistentvolumeclaims", in_ns("c", json!({}))), Ok(vec![(at, json!([claim]))])),
        (create("/persistentvolumeclaims", held), Ok(vec![(at, json!([claim]))])),
        (
            create("/persistentvolumes", named("v", json!({}))),
            Ok(vec![(at, json!(["kubernetes.io/pv-protection"]))]),
        ),
        (create("/configmaps", in_ns("c", json!({}))), Ok(vec![(at, Null)])),
    ];
    check(&only("StorageObjectInUseProtection"), &World::default(), rows);
}
