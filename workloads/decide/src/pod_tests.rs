use super::*;
use crate::names::{self, token_secret};

fn terms<'a>(class: &'a ClassWorkloads, services: &'a [ServiceAddress]) -> Terms<'a> {
    let api = ("192.0.2.1", 7443);
    Terms { project: "p", cluster: "shared", dns_domain: "cluster.local", class, api, services }
}

fn pod(spec: Value) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "labels": {"app": "web"},
            "annotations": {"note": "a $(HOME) \"b\""}, "finalizers": ["tenant/holds"],
        },
        "spec": spec,
    })
}

fn translated(spec: Value) -> Translated {
    translate(&pod(spec), &terms(&ClassWorkloads::default(), &[])).unwrap()
}

fn refusal(spec: Value) -> String {
    translate(&pod(spec), &terms(&ClassWorkloads::default(), &[])).unwrap_err().0
}

fn names_of(translated: &Translated) -> Vec<(Referent, &str)> {
    translated.references.iter().map(|(kind, name)| (*kind, name.as_str())).collect()
}

#[test]
fn a_pod_keeps_what_runs_and_loses_what_the_platform_decides() {
    let spec = json!({
        "containers": [{"name": "c", "image": "nginx", "command": ["a"]}],
        "serviceAccountName": "builder", "nodeName": "host-node-7", "schedulerName": "mine", "priority": 1_000_000,
        "priorityClassName": "system-node-critical", "runtimeClassName": "unconfined", "overhead": {"cpu": "0"},
        "readinessGates": [{"conditionType": "x"}], "terminationGracePeriodSeconds": 7, "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}, {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
    });
    let host = translated(spec).pod;
    let spec = host["spec"].as_object().unwrap();
    assert_eq!(
        (&spec["restartPolicy"], &spec["terminationGracePeriodSeconds"]),
        (&json!("Never"), &json!(7))
    );
    assert_eq!(spec["serviceAccountName"], names::ACCOUNT);
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["tolerations"], json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]));
    for field in [
        "nodeName",
        "schedulerName",
        "priority",
        "priorityClassName",
        "runtimeClassName",
        "overhead",
        "readinessGates",
        "serviceAccount",
    ] {
        assert!(!spec.contains_key(field), "{field}");
    }
    assert_eq!(host["metadata"]["namespace"], host_namespace("p", "shop"));
    assert_eq!(host["metadata"].as_object().unwrap().len(), 4, "no finalizers, no owners");
    assert_eq!(host["metadata"]["annotations"].get("note"), None);
}

#[test]
fn a_forged_pod_on_the_node_is_translated_like_any_other() {
    for (spec, word) in [
        (json!({"nodeName": "shared", "hostNetwork": true}), "hostNetwork"),
        (json!({"nodeName": "shared", "hostPID": true}), "hostPID"),
        (json!({"nodeName": "shared", "hostIPC": true}), "hostIPC"),
        (json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), "hostPath"),
        (json!({"volumes": [{"name": "v", "nfs": {"server": "10.0.0.1", "path": "/"}}]}), "nfs"),
        (json!({"volumes": [{"name": "v", "csi": {"driver": "secrets-store"}}]}), "csi"),
        (
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]}),
            "clusterTrustBundle",
        ),
        (json!({"containers": [{"name": "c", "securityContext": {"privileged": true}}]}), "privileged"),
        (json!({"initContainers": [{"name": "c", "securityContext": {"privileged": true}}]}), "privileged"),
        (json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}), "hostPort"),
        (
            json!({"containers": [{"name": "c", "readinessProbe": {"httpGet": {"host": "169.254.169.254"}}}]}),
            "probes",
        ),
        (
            json!({"containers": [{"name": "c", "lifecycle": {"preStop": {"httpGet": {"host": "x"}}}}]}),
            "hooks",
        ),
        (json!({"resourceClaims": [{"name": "gpu"}]}), "resourceClaims"),
        (json!({"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}), "nodeSelector"),
        (json!({"nodeSelector": {"kubernetes.io/hostname": "host-node-7"}}), "nodeSelector"),
    ] {
        assert!(refusal(spec.clone()).contains(word), "{spec}: {}", refusal(spec.clone()));
    }
    assert!(translate(&json!({"metadata": {}}), &terms(&ClassWorkloads::default(), &[])).is_err());
}

#[test]
fn a_class_that_trusts_a_project_lets_it_reach_the_node() {
    let class: ClassWorkloads = serde_json::from_value(json!({
        "podSecurity": "privileged", "runtimeClass": "kata", "priorityClass": "tenants", "nodeSelector": {"pool": "t"},
    }))
    .unwrap();
    let spec = json!({
        "hostNetwork": true, "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
        "nodeSelector": {"kubernetes.io/hostname": "shared", "kubernetes.io/arch": "arm64"},
        "containers": [{"name": "c", "securityContext": {"privileged": true}}],
    });
    let host = translate(&pod(spec), &terms(&class, &[])).unwrap().pod;
    assert_eq!(host["spec"]["hostNetwork"], true);
    assert_eq!(host["spec"]["nodeSelector"], json!({"kubernetes.io/arch": "arm64", "pool": "t"}));
    assert_eq!(
        (&host["spec"]["runtimeClassName"], &host["spec"]["priorityClassName"]),
        (&json!("kata"), &json!("tenants"))
    );
}

#[test]
fn references_stay_within_the_namespace_and_names_never_meet_the_syncers() {
    let stolen = token_secret("other");
    let spec = json!({
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [
            {"name": "a", "configMap": {"name": "kube-root-ca.crt"}},
            {"name": "b", "secret": {"secretName": stolen}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "d", "ephemeral": {"volumeClaimTemplate": {}}},
        ],
        "containers": [{
            "name": "c", "envFrom": [{"configMapRef": {"name": "../../kube-system/x"}}],
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        }],
    });
    let all = translated(spec);
    let expected = [
        (Referent::ConfigMap, "../../kube-system/x"),
        (Referent::ConfigMap, "kube-root-ca.crt"),
        (Referent::Secret, "pull"),
        (Referent::Secret, "s"),
        (Referent::Secret, stolen.as_str()),
        (Referent::Claim, "data"),
        (Referent::Claim, "web-d"),
    ];
    assert_eq!(names_of(&all), expected);
    let volumes = &all.pod["spec"]["volumes"];
    assert_eq!(volumes[0]["configMap"]["name"], names::host_name("kube-root-ca.crt"));
    assert_ne!(volumes[1]["secret"]["secretName"], stolen.as_str());
    assert_eq!(volumes[3], json!({"name": "d", "persistentVolumeClaim": {"claimName": "web-d"}}));
}

#[test]
fn tokens_are_the_projects_and_the_downward_api_shows_the_projects_pod() {
    let spec = json!({
        "serviceAccountName": "builder",
        "volumes": [{"name": "api", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
            ]}},
        ]}}],
        "containers": [{"name": "c", "env": [
            {"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "NOTE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['note']"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "KUBERNETES_SERVICE_HOST", "value": "mine"},
        ]}],
    });
    let all = translated(spec);
    let sources = &all.pod["spec"]["volumes"][0]["projected"]["sources"];
    assert_eq!(sources[0]["secret"]["name"], token_secret("web"));
    assert_eq!((all.tokens.len(), all.tokens[0].seconds), (1, 3607));
    let annotations = &all.pod["metadata"]["annotations"];
    let shown = |item: usize| {
        let path = sources[2]["downwardAPI"]["items"][item]["fieldRef"]["fieldPath"].as_str().unwrap();
        let key = path.strip_prefix("metadata.annotations['").unwrap().strip_suffix("']").unwrap();
        annotations[key].as_str().unwrap().to_owned()
    };
    assert_eq!([shown(0), shown(1), shown(2)], ["shop", "app=\"web\"", "a $(HOME) \"b\""]);
    let env = all.pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let value = |name: &str| {
        let found: Vec<&Value> = env.iter().filter(|variable| variable["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name}");
        found[0]["value"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!([value("NS"), value("NODE"), value("NOTE")], ["shop", "shared", "a $$(HOME) \"b\""]);
    assert_eq!([value("KUBERNETES_SERVICE_HOST"), value("KUBERNETES_SERVICE_PORT")], ["mine", "7443"]);
    assert_eq!(value("IP"), "", "kubelet knows it");
}

#[test]
fn affinity_stays_within_the_project_and_names_no_nodes() {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "namespaces": ["db", "kube-system"], "labelSelector": {}});
    let all_namespaces = json!({"topologyKey": "zone", "namespaceSelector": {}});
    let daemon = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["shared"]}]});
    let spec = json!({"affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": all_namespaces}],
        },
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [daemon]}},
    }});
    let affinity = translated(spec).pod["spec"]["affinity"].clone();
    let required = &affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(
        required["namespaces"],
        json!([host_namespace("p", "db"), host_namespace("p", "kube-system")])
    );
    let preferred = &affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    let own = json!({"matchLabels": {names::PROJECT: "p"}});
    assert_eq!(preferred["podAffinityTerm"]["namespaceSelector"], own);
    assert_eq!(affinity["nodeAffinity"], json!({}), "each node of the cluster is the project's one Node");

    let other =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["host-node-7"]}]});
    let label = json!({"matchExpressions": [{"key": "pool", "operator": "Exists"}]});
    for term in [other, label] {
        let required = json!({"nodeSelectorTerms": [term]});
        let node = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        assert!(refusal(json!({"affinity": {"nodeAffinity": node}})).contains("nodeAffinity"));
    }
    let selected = json!({"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": "x"}}});
    let pods = json!({"requiredDuringSchedulingIgnoredDuringExecution": [selected]});
    assert!(refusal(json!({"affinity": {"podAffinity": pods}})).contains("namespaceSelector"));
}

#[test]
fn full_names_of_services_are_those_of_the_project() {
    let service = ServiceAddress { namespace: "db".into(), name: "pg".into(), ip: "10.1.0.9".into() };
    let class = ClassWorkloads::default();
    let many = vec![service; MAX_ALIASES + 10];
    let host =
        translate(&pod(json!({"hostAliases": [{"ip": "1.1.1.1"}]})), &terms(&class, &many)).unwrap().pod;
    let aliases = host["spec"]["hostAliases"].as_array().unwrap();
    assert_eq!(aliases.len(), 2 + MAX_ALIASES, "a hosts file has an end");
    assert_eq!(aliases[1]["ip"], "192.0.2.1");
    assert_eq!(aliases[1]["hostnames"][3], "kubernetes.default.svc.cluster.local");
    assert_eq!(
        aliases[2],
        json!({"ip": "10.1.0.9", "hostnames": ["pg.db", "pg.db.svc", "pg.db.svc.cluster.local"]})
    );
}
