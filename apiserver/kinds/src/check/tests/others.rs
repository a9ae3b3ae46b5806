use super::*;

#[test]
fn services_are_checked_as_kubernetes_checks_them() {
    let good = json!({"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
    let spec = |spec: Value| json!({"spec": spec});
    let rows: &[(Value, &[&str])] = &[
        (spec(json!({"ports": null})), &["spec.ports: Required value"]),
        (spec(json!({"ports": null, "clusterIP": "None", "clusterIPs": ["None"]})), &[]),
        (
            spec(json!({"ports": [{"port": 0}]})),
            &[
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            spec(json!({"ports": [{"port": 80}, {"port": 81, "name": "b"}]})),
            &["spec.ports[0].name: Required value"],
        ),
        (
            spec(json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "a"}]})),
            &[
                "spec.ports[1].name: Duplicate value: \"a\"",
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
            ],
        ),
        (
            spec(json!({"type": "Magic"})),
            &[
                "spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ],
        ),
        (
            spec(json!({"ports": [{"port": 80, "nodePort": 30_000}]})),
            &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        (spec(json!({"type": "ExternalName"})), &["spec.externalName: Required value"]),
        (
            spec(json!({"externalTrafficPolicy": "Local"})),
            &[
                "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
            ],
        ),
        (
            spec(json!({"externalIPs": ["127.0.0.1"], "selector": {"a": "b!"}})),
            &[
                "spec.selector: Invalid value: \"b!\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            ],
        ),
    ];
    check_all("", "services", &good, rows);
}

#[test]
fn ingresses_and_network_policies_are_checked_as_kubernetes_checks_them() {
    let path = |path: Value| json!({"spec": {"rules": [{"host": "a.b", "http": {"paths": [path]}}]}});
    let service = json!({"service": {"name": "s", "port": {"number": 80}}});
    let good = path(json!({"path": "/", "pathType": "Prefix", "backend": service}));
    let rows: &[(Value, &[&str])] = &[
        (
            path(json!({"path": "x", "pathType": "Prefix", "backend": {}})),
            &[
                "spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path",
                "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
            ],
        ),
        (
            path(json!({"backend": service})),
            &["spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"],
        ),
        (
            path(json!({"pathType": "Fuzzy", "backend": {"service": {"name": "s"}}})),
            &[
                "spec.rules[0].http.paths[0].pathType: Unsupported value: \"Fuzzy\": supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\"",
                "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
            ],
        ),
        (
            json!({"spec": {"rules": null}}),
            &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
        ),
    ];
    check_all("networking.k8s.io", "ingresses", &good, rows);
    let good = json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}]}});
    let rule = |rule: Value| json!({"spec": {"ingress": [rule]}});
    let rows: &[(Value, &[&str])] = &[
        (
            rule(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/33"}}, {}]})),
            &[
                "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.0/33\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                "spec.ingress[0].from[1]: Required value: must specify a peer",
            ],
        ),
        (
            rule(
                json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}, "podSelector": {}}]}),
            ),
            &[
                "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
                "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
            ],
        ),
        (
            rule(json!({"ports": [{"port": 80, "endPort": 79}]})),
            &["spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`"],
        ),
    ];
    check_all("networking.k8s.io", "networkpolicies", &good, rows);
}

#[test]
fn budgets_and_autoscalers_are_checked_as_kubernetes_checks_them() {
    let good = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    let rows: &[(Value, &[&str])] = &[(
        json!({"spec": {"minAvailable": "200%"}}),
        &["spec.minAvailable: Invalid value: \"200%\": must not be greater than 100%"],
    )];
    check_all("policy", "poddisruptionbudgets", &good, rows);
    let both = patch::merge(&good, &json!({"spec": {"maxUnavailable": 1}}));
    let found = problems("policy", "poddisruptionbudgets", &both, None);
    assert!(found[0].ends_with("minAvailable and maxUnavailable cannot be both set"), "{found:?}");
    let good = json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}});
    let rows: &[(Value, &[&str])] = &[
        (
            json!({"spec": {"minReplicas": 5}}),
            &["spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"],
        ),
        (
            json!({"spec": {"minReplicas": 0}}),
            &[
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
            ],
        ),
        (
            json!({"spec": {"metrics": [{"type": "Resource"}]}}),
            &[
                "spec.metrics[0].resource: Required value: must populate information for the given metric source",
            ],
        ),
    ];
    check_all("autoscaling", "horizontalpodautoscalers", &good, rows);
}

#[test]
fn rules_of_access_are_checked_as_kubernetes_checks_them() {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let good = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let rows: &[(Value, &[&str])] = &[
        (
            json!({"rules": [{}]}),
            &[
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
        ),
        (
            json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/"]}]}),
            &[
                "rules[0].nonResourceURLs: Invalid value: [\"/\"]: namespaced rules cannot apply to non-resource URLs",
            ],
        ),
    ];
    check_all(RBAC, "roles", &good, rows);
    let good =
        json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]});
    let rows: &[(Value, &[&str])] = &[
        (
            json!({"roleRef": {"kind": "Role"}}),
            &["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""],
        ),
        (
            json!({"subjects": [{"kind": "ServiceAccount", "name": "s"}, {"kind": "Robot", "name": "x"}]}),
            &[
                "subjects[0].namespace: Required value",
                "subjects[1].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ],
        ),
    ];
    check_all(RBAC, "clusterrolebindings", &good, rows);
}

#[test]
fn secrets_hold_what_their_type_asks_for() {
    let good = json!({"data": {"a": "eA=="}});
    let rows: &[(Value, &[&str])] = &[
        (
            json!({"type": "kubernetes.io/tls"}),
            &["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        ),
        (json!({"type": "kubernetes.io/basic-auth", "data": {"username": "eA=="}}), &[]),
        (json!({"type": "kubernetes.io/ssh-auth"}), &["data[ssh-privatekey]: Required value"]),
        (
            json!({"type": "kubernetes.io/service-account-token"}),
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        (json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}}), &[]),
        (
            json!({"data": {"a/b": "eA=="}}),
            &[
                "data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            ],
        ),
        (
            json!({"data": {"a": "A".repeat(1_500_000)}}),
            &["data: Too long: may not be more than 1048576 bytes"],
        ),
    ];
    check_all("", "secrets", &good, rows);
    let rows: &[(Value, &[&str])] = &[
        (
            json!({"binaryData": {"a": "eA=="}}),
            &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
        ),
        (
            json!({"data": {"a": "A".repeat(1_048_577)}}),
            &["[]: Too long: may not be more than 1048576 bytes"],
        ),
    ];
    check_all("", "configmaps", &good, rows);
}

#[test]
fn storage_is_checked_as_kubernetes_checks_it() {
    let good =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let modes = "\"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"";
    let unsupported = format!("spec.accessModes: Unsupported value: \"X\": supported values: {modes}");
    let rows: &[(Value, &[&str])] = &[
        (
            json!({"spec": {"accessModes": null}}),
            &["spec.accessModes: Required value: at least 1 access mode is required"],
        ),
        (json!({"spec": {"accessModes": ["X"]}}), &[&unsupported]),
        (json!({"spec": {"resources": {"requests": null}}}), &["spec.resources[storage]: Required value"]),
        (
            json!({"spec": {"resources": {"requests": {"storage": "0"}}}}),
            &["spec.resources[storage]: Invalid value: \"0\": must be greater than zero"],
        ),
    ];
    check_all("", "persistentvolumeclaims", &good, rows);
    let good = json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}});
    let rows: &[(Value, &[&str])] = &[
        (json!({"spec": {"hostPath": null}}), &["spec: Required value: must specify a volume type"]),
        (
            json!({"spec": {"capacity": null}}),
            &[
                "spec.capacity: Required value",
                "spec.capacity: Unsupported value: null: supported values: \"storage\"",
            ],
        ),
    ];
    check_all("", "persistentvolumes", &good, rows);
}

#[test]
fn kinds_of_the_cluster_are_checked_as_kubernetes_checks_them() {
    let rows: &[(&str, &str, Value, &[&str])] = &[
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"metadata": {"name": "p"}, "value": 1_000_000_001}),
            &["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
        (
            "coordination.k8s.io",
            "leases",
            json!({"spec": {"leaseDurationSeconds": 0}}),
            &["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
        ),
        (
            "apiregistration.k8s.io",
            "apiservices",
            json!({"metadata": {"name": "v1.b"}, "spec": {"group": "a", "version": "v1",
            "groupPriorityMinimum": 1, "versionPriority": 1}}),
            &["metadata.name: Invalid value: \"v1.b\": must be `spec.version+\".\"+spec.group`: \"v1.a\""],
        ),
        (
            "discovery.k8s.io",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["::1"]}, {}]}),
            &[
                "endpoints[0].addresses[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                "endpoints[0].addresses: Invalid value: \"::1\": must be an IPv4 address",
                "endpoints[1].addresses: Required value: must contain at least 1 address",
            ],
        ),
        (
            "",
            "endpoints",
            json!({"subsets": [{}]}),
            &["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
        ),
        (
            "",
            "resourcequotas",
            json!({"spec": {"hard": {"pods": "1", "count/things.b": "2", "stars": "3"}}}),
            &[
                "spec.hard[stars]: Invalid value: \"stars\": must be a standard resource type or fully qualified",
                "spec.hard[stars]: Invalid value: \"stars\": must be a standard resource for quota",
            ],
        ),
        (
            "",
            "limitranges",
            json!({"spec": {"limits": [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}}),
            &["spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"],
        ),
        (
            "",
            "events",
            json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}),
            &["involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"],
        ),
        (
            "",
            "nodes",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoGo"}]}}),
            &[
                "metadata.taints[0].effect: Unsupported value: \"NoGo\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ],
        ),
        ("storage.k8s.io", "storageclasses", json!({}), &["provisioner: Required value"]),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            json!({"webhooks": [{"name": "a.b.c",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {}, "timeoutSeconds": 31}]}),
            &[
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ],
        ),
    ];
    for (group, resource, object, want) in rows {
        assert_eq!(problems(group, resource, object, None), *want, "{resource}");
    }
}
