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

fn node_in(zone: &str, system: &str, cpu: &str) -> World {
    let node = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone, "kubernetes.io/os": system, "other": "x"}},
        "status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}}});
    World::new(vec![("", "nodes", named("n", node))])
}

#[test]
fn a_pod_says_in_which_zone_its_node_is() {
    let on = |node: &str| in_ns("p", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": node}}));
    let zoned = json!({"a": "b", "topology.kubernetes.io/zone": "z1"});
    let binding = json!({"metadata": {"labels": {"a": "b"}}, "target": {"name": "n"}});
    let bound = create("/pods/binding", in_ns("p", binding));
    let changed = Write { verb: Verb::Update, old: on("n"), ..create("/pods", on("n")) };
    let rows = vec![
        (create("/pods", on("n")), Ok(vec![("/metadata/labels", zoned.clone())])),
        (bound, Ok(vec![("/metadata/labels", zoned)])),
        (create("/pods", on("")), Ok(vec![("/metadata/labels", json!({"a": "b"}))])),
        (create("/pods", on("gone")), Ok(vec![("/metadata/labels", json!({"a": "b"}))])),
        (changed, Ok(vec![("/metadata/labels", json!({"a": "b"}))])),
    ];
    check(&only("PodTopologyLabels"), &node_in("z1", "linux", "2"), rows);
}

#[test]
fn a_pod_grows_as_far_as_its_node_goes() {
    let asks = |node: &str, cpu: &str, memory: &str| {
        let requests = json!({"requests": {"cpu": cpu, "memory": memory}});
        in_ns("p", json!({"spec": {"nodeName": node, "containers": [{"name": "a", "resources": requests}]}}))
    };
    let resize = |object: Value| {
        let old = asks(object["spec"]["nodeName"].as_str().unwrap(), "1", "1Mi");
        Write { verb: Verb::Update, old, ..create("/pods/resize", object) }
    };
    let forbidden = |why: &str| format!("pods \"p\" is forbidden: {why}");
    let much = forbidden(
        "node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824",
    );
    let gone = forbidden("node \"gone\" not found");
    let rows = vec![
        (resize(asks("n", "2", "1Gi")), Ok(vec![])),
        (resize(asks("n", "2500m", "2Gi")), Err(much.as_str())),
        (resize(asks("", "9", "9Gi")), Ok(vec![])),
        (resize(asks("gone", "2", "1Gi")), Err(gone.as_str())),
    ];
    check(&only("PodResizeValidator"), &node_in("z", "linux", "2"), rows);
    let other = forbidden("pod resize is only supported on linux nodes, node \"n\" is \"windows\"");
    let rows = vec![
        (resize(asks("n", "2", "1Mi")), Err(other.as_str())),
        (resize(asks("n", "1", "1Mi")), Ok(vec![])),
    ];
    check(&only("PodResizeValidator"), &node_in("z", "windows", "2"), rows);
}

#[test]
fn a_pod_that_runs_is_changed_in_ways_that_its_node_knows() {
    const POD: &str = "InPlacePodLevelResourcesVerticalScaling";
    const INIT: &str = "InPlacePodVerticalScalingInitContainers";
    let node = |name: &str, features: Value| {
        ("", "nodes", named(name, json!({"status": {"declaredFeatures": features}})))
    };
    let world = World::new(vec![node("new", json!([POD, INIT])), node("old", json!(["Other"]))]);
    let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let pod = |node: &str, whole: &str, first: &str, beside: &str| {
        in_ns(
            "p",
            json!({"spec": {"nodeName": node, "resources": cpu(whole), "initContainers": [
            {"name": "first", "resources": cpu(first)},
            {"name": "beside", "restartPolicy": "Always", "resources": cpu(beside)}]}}),
        )
    };
    let write = |target: &'static str, node: &str, object: Value| Write {
        verb: Verb::Update,
        old: pod(node, "1", "1", "1"),
        ..create(target, object)
    };
    let refused = |features: &str| {
        format!(
            "pods \"p\" is forbidden: pod update requires features {features} which are not available on node \"old\""
        )
    };
    let (both, init) = (refused(&format!("{POD}, {INIT}")), refused(INIT));
    let gone = "pods \"p\" is forbidden: node \"gone\" not found";
    let rows = vec![
        (write("/pods/resize", "new", pod("new", "2", "2", "2")), Ok(vec![])),
        (write("/pods/resize", "old", pod("old", "2", "2", "2")), Err(both.as_str())),
        (write("/pods", "old", pod("old", "1", "2", "1")), Err(init.as_str())),
        (write("/pods/resize", "old", pod("old", "1000m", "1", "2")), Ok(vec![])),
        (write("/pods/status", "old", pod("old", "2", "2", "2")), Ok(vec![])),
        (write("/pods/resize", "", pod("", "2", "2", "2")), Ok(vec![])),
        (write("/pods/resize", "gone", pod("gone", "1", "1", "2")), Ok(vec![])),
        (write("/pods/resize", "gone", pod("gone", "2", "1", "1")), Err(gone)),
    ];
    check(&only("NodeDeclaredFeatureValidator"), &world, rows);
}

#[test]
fn pods_that_ask_for_devices_tolerate_what_keeps_others_away() {
    let asks = |requests: Value, tolerations: Value| {
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": requests}}],
            "initContainers": [{"name": "i", "resources": {"requests": {"b.example.com/disk": 1}}}],
            "tolerations": tolerations});
        create("/pods", in_ns("p", json!({"spec": spec})))
    };
    let one = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
    let mut with_seconds = one("a.example.com/gpu");
    with_seconds["tolerationSeconds"] = 3.into();
    let other = json!({"key": "other"});
    let at = "/spec/tolerations";
    let rows = vec![
        (
            asks(json!({"cpu": 1, "x.kubernetes.io/y": 1}), Null),
            Ok(vec![(at, json!([one("b.example.com/disk")]))]),
        ),
        (
            asks(json!({"a.example.com/gpu": 1}), json!([with_seconds, other])),
            Ok(vec![(at, json!([one("a.example.com/gpu"), other, one("b.example.com/disk")]))]),
        ),
    ];
    check(&only("ExtendedResourceToleration"), &World::default(), rows);
}

#[test]
fn images_are_pulled_for_each_pod_that_brings_them() {
    let with = |image: &str| {
        in_ns(
            "p",
            json!({"spec": {"containers": [{"image": image, "imagePullPolicy": "Never"}],
            "volumes": [{"image": {"pullPolicy": "Never"}}, {"emptyDir": {}}]}}),
        )
    };
    let update =
        |old: &str, new: &str| Write { verb: Verb::Update, old: with(old), ..create("/pods", with(new)) };
    let at = ["/spec/containers/0/imagePullPolicy", "/spec/volumes/0/image/pullPolicy"];
    let is = |policy: &str| Ok(at.map(|at| (at, json!(policy))).into());
    let rows = vec![
        (create("/pods", with("a")), is("Always")),
        (update("a", "b"), is("Always")),
        (update("a", "a"), is("Never")),
        (create("/pods/ephemeralcontainers", with("a")), is("Never")),
    ];
    let chain = only("AlwaysPullImages");
    check(&chain, &World::default(), rows);
    // What came later, from a webhook for example, is refused.
    let write = create("/pods", with("a"));
    let status = write.with(&mut with("a"), |later| chain.validate(later, &World::default())).unwrap_err();
    let refused = |path: &str| {
        format!("pods \"p\" is forbidden: {path}: Unsupported value: \"Never\": supported values: \"Always\"")
    };
    let paths = ["spec.containers[0].imagePullPolicy", "spec.volumes[0].image.pullPolicy"].map(refused);
    assert_eq!((status.code, status.message), (500, format!("[{}]", paths.join(", "))));
}

#[test]
fn pods_keep_others_away_from_their_node_alone() {
    let away = |key: &str| {
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]});
        create("/pods", in_ns("p", json!({"spec": {"affinity": {"podAntiAffinity": terms}}})))
    };
    let refused = "pods \"p\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only \
        key kubernetes.io/hostname is allowed";
    let rows = vec![
        (away("kubernetes.io/hostname"), Ok(vec![])),
        (away("zone"), Err(refused)),
        (create("/pods", pod(json!([]))), Ok(vec![])),
    ];
    check(&only("LimitPodHardAntiAffinityTopology"), &World::default(), rows);
}

#[test]
fn a_service_keeps_its_external_addresses_and_gets_no_more() {
    let with = |ips: &[&str]| in_ns("s", json!({"spec": {"externalIPs": ips}}));
    let update = |old: &[&str], new: &[&str]| Write {
        verb: Verb::Update,
        old: with(old),
        ..create("/services", with(new))
    };
    let refused = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
    let rows = vec![
        (create("/services", with(&[])), Ok(vec![])),
        (create("/services", with(&["1.1.1.1"])), Err(refused)),
        (update(&["1.1.1.1", "2.2.2.2"], &["2.2.2.2"]), Ok(vec![])),
        (update(&["1.1.1.1"], &["1.1.1.1", "2.2.2.2"]), Err(refused)),
    ];
    check(&only("DenyServiceExternalIPs"), &World::default(), rows);
}
