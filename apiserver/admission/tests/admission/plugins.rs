//! Each plugin with rows of objects, and what becomes of them.

use crate::world::*;
use base64::{Engine, engine::general_purpose::STANDARD};
use freehold_apiserver_admission::{Chain, Switches, Verb};
use freehold_machinery::{Value, meta};
use freehold_pki::{ClientName, PrivateKey, csr};
use serde_json::{Value::Null, json};

#[test]
fn the_order_is_that_of_kubernetes() {
    let expected = [
        "NamespaceLifecycle",
        "LimitRanger",
        "ServiceAccount",
        "TaintNodesByCondition",
        "PodSecurity",
        "Priority",
        "DefaultTolerationSeconds",
        "DefaultStorageClass",
        "StorageObjectInUseProtection",
        "OrganizationOwnerReferences",
        "PersistentVolumeClaimResize",
        "RuntimeClass",
        "CertificateApproval",
        "CertificateSigning",
        "CertificateSubjectRestriction",
        "DefaultIngressClass",
        "PodTopologyLabels",
        "NodeDeclaredFeatureValidator",
        "PodResizeValidator",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
        "ResourceQuota",
    ];
    assert_eq!(Chain::default().names(), expected);
    let switches = Switches {
        enable: vec!["OwnerReferencesPermissionEnforcement".into()],
        disable: vec!["Priority".into(), "ResourceQuota".into()],
    };
    let changed = Chain::new(&switches);
    assert_eq!(changed.names().len(), expected.len() - 1);
    assert_eq!(changed.names()[8], "OwnerReferencesPermissionEnforcement");
    assert!(!changed.runs("ResourceQuota") && changed.runs("MutatingAdmissionWebhook"));
}

#[test]
fn a_plugin_that_is_not_known_is_not_switched() {
    let check = |enable: &[&str], disable: &[&str]| {
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        Switches { enable: names(enable), disable: names(disable) }.check()
    };
    assert_eq!(check(&["NodeRestriction"], &["Priority"]), Ok(()));
    let unknown = |flag: &str| Err(format!("{flag}-admission-plugins plugin \"Nope\" is unknown"));
    assert_eq!(check(&["Nope"], &[]), unknown("enable"));
    assert_eq!(check(&[], &["Nope"]), unknown("disable"));
    let both = "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped";
    assert_eq!(check(&["Priority"], &["Priority"]), Err(both.to_owned()));
}

#[test]
fn nothing_new_in_namespaces_that_are_not_there_to_stay() {
    let ns = |name: &str, phase: &str| ("", "namespaces", named(name, json!({"status": {"phase": phase}})));
    let write = |target: &'static str| create(target, in_ns("x", json!({})));
    let chain = only("NamespaceLifecycle");
    check(&chain, &World::new(vec![ns("ns", "Active")]), vec![(write("/configmaps"), Ok(vec![]))]);
    check(
        &chain,
        &World::default(),
        vec![
            (write("/configmaps"), Err("namespaces \"ns\" not found")),
            (write("authorization.k8s.io/localsubjectaccessreviews"), Ok(vec![])),
            (Write { verb: Verb::Update, ..write("/configmaps") }, Ok(vec![])),
            (Write { verb: Verb::Delete, ..write("/configmaps") }, Ok(vec![])),
            (create("/namespaces", named("new", json!({}))), Ok(vec![])),
            (Write { verb: Verb::Delete, old: named("mine", json!({})), ..write("/namespaces") }, Ok(vec![])),
            (
                Write { verb: Verb::Delete, old: named("default", json!({})), ..write("/namespaces") },
                Err("namespaces \"default\" is forbidden: this namespace may not be deleted"),
            ),
        ],
    );
    let status = write("/configmaps").run(&chain, &World::new(vec![ns("ns", "Terminating")])).unwrap_err();
    assert_eq!(
        status.message,
        "configmaps \"x\" is forbidden: unable to create new content in namespace ns because it is being terminated"
    );
    let cause = &status.details.unwrap().causes[0];
    assert_eq!((cause.reason.as_str(), cause.field.as_str()), ("NamespaceTerminating", "metadata.namespace"));
    assert_eq!((status.code, cause.message.as_str()), (403, "namespace ns is being terminated"));
}

#[test]
fn nothing_is_done_in_namespaces_that_are_not_there() {
    let chain = only("NamespaceExists");
    let write = |verb, target: &'static str| Write { verb, ..create(target, in_ns("x", json!({}))) };
    let gone = Err("namespaces \"ns\" not found");
    let there = World::new(vec![("", "namespaces", named("ns", json!({})))]);
    check(&chain, &there, vec![(write(Verb::Update, "/configmaps"), Ok(vec![]))]);
    let rows = vec![
        (write(Verb::Create, "/configmaps"), gone.clone()),
        (write(Verb::Update, "/configmaps"), gone.clone()),
        (write(Verb::Delete, "/configmaps"), gone),
        (write(Verb::Connect, "/pods/exec"), Ok(vec![])),
        (write(Verb::Update, "/nodes"), Ok(vec![])),
        (create("/namespaces", named("new", json!({}))), Ok(vec![])),
    ];
    check(&chain, &World::default(), rows);
}

#[test]
fn limit_ranges_fill_in_and_refuse() {
    let range = |limits: Value| {
        World::new(vec![("", "limitranges", in_ns("lr", json!({"spec": {"limits": limits}})))])
    };
    let chain = only("LimitRanger");
    let with = |resources: Value| create("/pods", pod(json!([{"name": "c", "resources": resources}])));
    let defaults = range(
        json!([{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}]),
    );
    let at = "/spec/containers/0/resources";
    let filled = create("/pods", pod(json!([{"name": "c"}]))).run(&chain, &defaults).unwrap();
    assert_eq!(
        filled.pointer(at).unwrap(),
        &json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}})
    );
    assert_eq!(
        meta::annotation(&filled, "kubernetes.io/limit-ranger"),
        Some(
            "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
        )
    );
    let bounds = range(
        json!([{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}}]),
    );
    check(
        &chain,
        &bounds,
        vec![
            (with(json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}})), Ok(vec![])),
            (
                with(json!({})),
                Ok(vec![(
                    "/spec/containers/0/resources",
                    json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}),
                )]),
            ),
            (
                with(json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "50m"}})),
                Err("pods \"p\" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"),
            ),
            (
                with(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}})),
                Err("pods \"p\" is forbidden: maximum cpu usage per Container is 1, but limit is 1500m"),
            ),
            (
                with(json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "2"}})),
                Err(
                    "pods \"p\" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, cpu max limit to request ratio per Container is 2, but provided ratio is 10.000000]",
                ),
            ),
            (Write { verb: Verb::Update, ..with(json!({"limits": {"cpu": "9"}})) }, Ok(vec![])),
        ],
    );
    let whole = range(json!([{"type": "Pod", "max": {"memory": "1Gi"}}]));
    let half = |n: &str| json!({"name": n, "resources": {"limits": {"memory": "600Mi"}, "requests": {"memory": "1Mi"}}});
    check(
        &chain,
        &whole,
        vec![
            (create("/pods", pod(json!([half("a")]))), Ok(vec![])),
            (
                create("/pods", pod(json!([half("a"), half("b")]))),
                Err("pods \"p\" is forbidden: maximum memory usage per Pod is 1Gi, but limit is 1200Mi"),
            ),
            (
                create("/pods", pod(json!([{"name": "c"}]))),
                Err("pods \"p\" is forbidden: maximum memory usage per Pod is 1Gi.  No limit is specified"),
            ),
        ],
    );
    let claims = range(
        json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}}]),
    );
    let claim = |size: &str| {
        create(
            "/persistentvolumeclaims",
            in_ns("d", json!({"spec": {"resources": {"requests": {"storage": size}}}})),
        )
    };
    check(
        &chain,
        &claims,
        vec![
            (claim("2Gi"), Ok(vec![])),
            (
                claim("1Mi"),
                Err(
                    "persistentvolumeclaims \"d\" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
                ),
            ),
            (
                claim("6Gi"),
                Err(
                    "persistentvolumeclaims \"d\" is forbidden: maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi",
                ),
            ),
        ],
    );
}

#[test]
fn pods_run_as_a_service_account_and_get_its_token() {
    let chain = only("ServiceAccount");
    let account = |name: &str, rest: Value| ("", "serviceaccounts", in_ns(name, rest));
    let world = World::new(vec![
        account("default", json!({"imagePullSecrets": [{"name": "registry"}]})),
        account("quiet", json!({"automountServiceAccountToken": false})),
    ]);
    let two = json!([{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}]);
    let done = create("/pods", pod(two)).run(&chain, &world).unwrap();
    assert_eq!(
        (&done["spec"]["serviceAccountName"], &done["spec"]["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(done["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    let volume = &done["spec"]["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-".len() + 5, "{name}");
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"],
        json!({"expirationSeconds": 3607, "path": "token"})
    );
    assert_eq!(
        done["spec"]["containers"][0]["volumeMounts"],
        json!([{"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    assert_eq!(
        done["spec"]["containers"][1]["volumeMounts"].as_array().unwrap().len(),
        1,
        "what is mounted there stays"
    );
    let again = create("/pods", done.clone()).run(&chain, &world).unwrap();
    assert_eq!(again, done, "a second pass changes nothing");

    let running_as = |account: &str, automount: Value| {
        let mut pod = pod(json!([{"name": "a"}]));
        pod["spec"]["serviceAccountName"] = account.into();
        pod["spec"]["automountServiceAccountToken"] = automount;
        create("/pods", pod)
    };
    let mirror = |spec: Value| {
        create(
            "/pods",
            json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": spec}),
        )
    };
    let unmounted = || Ok(vec![("/spec/volumes", Null), ("/spec/containers/0/volumeMounts", Null)]);
    check(
        &chain,
        &world,
        vec![
            (running_as("quiet", Null), unmounted()),
            (running_as("default", json!(false)), unmounted()),
            (
                running_as("quiet", json!(true)),
                Ok(vec![("/spec/volumes/0/projected/defaultMode", json!(420))]),
            ),
            (
                running_as("none", Null),
                Err(
                    "pods \"p\" is forbidden: error looking up service account ns/none: serviceaccount \"none\" not found",
                ),
            ),
            (mirror(json!({})), Ok(vec![("/spec/serviceAccountName", Null)])),
            (
                mirror(json!({"serviceAccountName": "default"})),
                Err("pods \"m\" is forbidden: a mirror pod may not reference service accounts"),
            ),
            (
                mirror(json!({"volumes": [{"secret": {}}]})),
                Err("pods \"m\" is forbidden: a mirror pod may not reference secrets"),
            ),
        ],
    );
}

#[test]
fn pods_tolerate_lost_nodes_for_five_minutes() {
    let world = World::default();
    let with =
        |tolerations: Value| create("/pods", in_ns("p", json!({"spec": {"tolerations": tolerations}})));
    let added = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let (lost, dead) = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
    let all = json!([{"operator": "Exists"}]);
    let own = json!([{"key": lost, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]);
    let other = json!([{"key": lost, "operator": "Exists", "effect": "NoSchedule"}]);
    check(
        &only("DefaultTolerationSeconds"),
        &world,
        vec![
            (with(Null), Ok(vec![("/spec/tolerations", json!([added(lost), added(dead)]))])),
            (with(all.clone()), Ok(vec![("/spec/tolerations", all)])),
            (with(own.clone()), Ok(vec![("/spec/tolerations", json!([own[0], added(dead)]))])),
            (
                with(other.clone()),
                Ok(vec![("/spec/tolerations", json!([other[0], added(lost), added(dead)]))]),
            ),
        ],
    );
}

#[test]
fn priorities_come_from_classes() {
    let class = |name: &str, rest: Value| ("scheduling.k8s.io", "priorityclasses", named(name, rest));
    let high = class("high", json!({"value": 1000, "preemptionPolicy": "Never"}));
    let base = class("base", json!({"value": 5, "globalDefault": true}));
    let with = |spec: Value| create("/pods", in_ns("p", json!({"spec": spec})));
    let resolved = |name: Value, priority: i64, policy: &str| {
        Ok(vec![
            ("/spec/priorityClassName", name),
            ("/spec/priority", json!(priority)),
            ("/spec/preemptionPolicy", json!(policy)),
        ])
    };
    let chain = only("Priority");
    let second = || {
        create(
            "scheduling.k8s.io/priorityclasses",
            named("other", json!({"globalDefault": true, "value": 1})),
        )
    };
    let renewed = Write {
        verb: Verb::Update,
        old: named("base", json!({})),
        ..create("scheduling.k8s.io/priorityclasses", named("base", json!({"globalDefault": true})))
    };
    let deleted = |name: &str| Write { verb: Verb::Delete, old: named(name, json!({})), ..second() };
    let system = "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted";
    let forgetful =
        Write { verb: Verb::Update, old: in_ns("p", json!({"spec": {"priority": 7}})), ..with(json!({})) };
    check(
        &chain,
        &World::new(vec![high.clone(), base]),
        vec![
            (with(json!({"priorityClassName": "high"})), resolved(json!("high"), 1000, "Never")),
            (deleted("base"), Ok(vec![])),
            (deleted("system-node-critical"), Err(system)),
            (
                with(json!({"priorityClassName": "high", "priority": 1000})),
                resolved(json!("high"), 1000, "Never"),
            ),
            (with(json!({})), resolved(json!("base"), 5, "PreemptLowerPriority")),
            (
                with(json!({"priorityClassName": "none"})),
                Err("pods \"p\" is forbidden: no PriorityClass with name none was found"),
            ),
            (
                with(json!({"priorityClassName": "high", "priority": 7})),
                Err(
                    "pods \"p\" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name",
                ),
            ),
            (
                with(json!({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"})),
                Err(
                    "pods \"p\" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority admission controller computed Never from the given PriorityClass name",
                ),
            ),
            (forgetful, Ok(vec![("/spec/priority", json!(7))])),
            (
                second(),
                Err(
                    "priorityclasses.scheduling.k8s.io \"other\" is forbidden: PriorityClass base is already marked as default. Only one default can exist",
                ),
            ),
            (renewed, Ok(vec![])),
        ],
    );
    check(
        &chain,
        &World::new(vec![high]),
        vec![(with(json!({})), resolved(Null, 0, "PreemptLowerPriority")), (second(), Ok(vec![]))],
    );
}

#[test]
fn default_classes_stand_in() {
    let class = |group, resource, name: &str, mark: &str, made: &str| {
        (
            group,
            resource,
            named(name, json!({"metadata": {"creationTimestamp": made, "annotations": {mark: "true"}}})),
        )
    };
    let storage = "storageclass.kubernetes.io/is-default-class";
    let world = World::new(vec![
        class("storage.k8s.io", "storageclasses", "old", storage, "2024-01-01T00:00:00Z"),
        class("storage.k8s.io", "storageclasses", "new-b", storage, "2025-01-01T00:00:00Z"),
        class("storage.k8s.io", "storageclasses", "new-a", storage, "2025-01-01T00:00:00Z"),
        class("storage.k8s.io", "storageclasses", "unmarked", "x", "2026-01-01T00:00:00Z"),
        class(
            "networking.k8s.io",
            "ingressclasses",
            "nginx",
            "ingressclass.kubernetes.io/is-default-class",
            "2024-01-01T00:00:00Z",
        ),
    ]);
    let claim = |spec: Value| create("/persistentvolumeclaims", in_ns("c", json!({"spec": spec})));
    let ingress = |object: Value| create("networking.k8s.io/ingresses", in_ns("i", object));
    let class_of = |value: Value| Ok(vec![("/spec/storageClassName", value)]);
    let rows = vec![
        (claim(json!({})), class_of(json!("new-a"))),
        (claim(json!({"storageClassName": ""})), class_of(json!(""))),
        (claim(json!({"storageClassName": "mine"})), class_of(json!("mine"))),
        (Write { verb: Verb::Update, ..claim(json!({})) }, class_of(Null)),
        (ingress(json!({"spec": {}})), Ok(vec![("/spec/ingressClassName", json!("nginx"))])),
        (
            ingress(json!({"spec": {}, "metadata": {"annotations": {"kubernetes.io/ingress.class": "x"}}})),
            Ok(vec![("/spec/ingressClassName", Null)]),
        ),
    ];
    let disable = vec!["NamespaceLifecycle".into(), "StorageObjectInUseProtection".into()];
    let chain = Chain::new(&Switches { disable, ..Switches::default() });
    check(&chain, &world, rows);
    check(&chain, &World::default(), vec![(claim(json!({})), class_of(Null))]);
}

#[test]
fn signers_guard_their_requests() {
    let of =
        |signer: &str, status: Value| named("r", json!({"spec": {"signerName": signer}, "status": status}));
    let update = |target: &'static str, signer: &str, status: Value| Write {
        verb: Verb::Update,
        old: of(signer, json!({})),
        ..create(target, of("forged.example/free", status))
    };
    let (approval, status) = (
        "certificates.k8s.io/certificatesigningrequests/approval",
        "certificates.k8s.io/certificatesigningrequests/status",
    );
    let refused = |verb: &str, signer: &str| {
        format!(
            "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to {verb} requests with signerName \"{signer}\""
        )
    };
    let world = World {
        permissions: vec![
            "approve signers/ a.example/one",
            "sign signers/ b.example/*",
            "approve signers/ forged.example/free",
        ],
        ..World::default()
    };
    let signed = || json!({"certificate": "x"});
    check(
        &Chain::default(),
        &world,
        vec![
            (update(approval, "a.example/one", json!({})), Ok(vec![])),
            (update(approval, "a.example/two", json!({})), Err(&refused("approve", "a.example/two"))),
            (update(status, "b.example/any", signed()), Ok(vec![])),
            (update(status, "a.example/one", signed()), Err(&refused("sign", "a.example/one"))),
            (update(status, "a.example/one", json!({"other": "x"})), Ok(vec![])),
        ],
    );
}

#[test]
fn nobody_requests_to_be_master() {
    let request = |groups: &[&str]| {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let client = ClientName { user: "jane", groups: &groups, plane: None };
        STANDARD.encode(csr::request(&PrivateKey::generate().unwrap(), &client, &[] as &[&str]).unwrap())
    };
    let ask = |signer: &str, request: String| {
        let object = named("r", json!({"spec": {"signerName": signer, "request": request}}));
        create("certificates.k8s.io/certificatesigningrequests", object)
    };
    let client = "kubernetes.io/kube-apiserver-client";
    check(
        &only("CertificateSubjectRestriction"),
        &World::default(),
        vec![
            (ask(client, request(&["dev"])), Ok(vec![])),
            (
                ask(client, request(&["dev", "system:masters"])),
                Err(
                    "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
                ),
            ),
            (ask("example.com/mine", request(&["system:masters"])), Ok(vec![])),
        ],
    );
    let garbage = ask(client, "!".into()).run(&Chain::default(), &World::default()).unwrap_err();
    assert!(garbage.message.contains("failed to parse CSR: "), "{garbage}");
}

#[test]
fn owners_are_set_by_those_who_may() {
    let owned = |owners: Value| in_ns("c", json!({"metadata": {"ownerReferences": owners}}));
    let owner = |kind: &str, block: bool| json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": kind, "blockOwnerDeletion": block});
    let update = |old: Value, new: Value| Write {
        verb: Verb::Update,
        old: owned(old),
        ..create("/configmaps", owned(new))
    };
    let delete =
        "configmaps \"c\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>";
    let block = "configmaps \"c\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    let unknown = "configmaps \"c\" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v1 Kind Unknown: no matches for kind \"Unknown\" in version \"v1\"";
    let chain = only("OwnerReferencesPermissionEnforcement");
    let rows = |delete: Expected<'static>, block: Expected<'static>| {
        vec![
            (create("/configmaps", owned(json!([owner("Pod", false)]))), Ok(vec![])),
            (create("/configmaps", owned(json!([owner("Pod", true)]))), block),
            (update(json!([]), json!([owner("Pod", false)])), delete.clone()),
            (update(json!([owner("Pod", true)]), json!([owner("Pod", true)])), Ok(vec![])),
            (update(json!([owner("Pod", true)]), json!([])), delete),
        ]
    };
    check(&chain, &World::default(), rows(Err(delete), Err(block)));
    let world =
        World { permissions: vec!["delete configmaps/ c", "update pods/finalizers o"], ..World::default() };
    check(&chain, &world, rows(Ok(vec![]), Ok(vec![])));
    check(
        &chain,
        &world,
        vec![(create("/configmaps", owned(json!([owner("Unknown", true)]))), Err(unknown))],
    );
}

#[test]
fn a_pod_takes_what_its_runtime_class_adds() {
    let class = json!({
        "metadata": {"name": "vm"},
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm"}]},
    });
    let world = World::new(vec![("node.k8s.io", "runtimeclasses", class)]);
    let pod = |spec: Value| create("/pods", in_ns("p", json!({"spec": spec})));
    let added = vec![
        ("/spec/overhead/cpu", json!("100m")),
        ("/spec/nodeSelector/vm", json!("yes")),
        ("/spec/tolerations/0/key", json!("vm")),
    ];
    let rows = vec![
        (pod(json!({})), Ok(vec![("/spec/overhead", Null)])),
        (pod(json!({"runtimeClassName": "vm"})), Ok(added)),
        (
            pod(json!({"runtimeClassName": "none"})),
            Err("pods \"p\" is forbidden: pod rejected: RuntimeClass \"none\" not found"),
        ),
        (
            pod(json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}})),
            Err(
                "pods \"p\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
        ),
    ];
    check(&only("RuntimeClass"), &world, rows);
}
