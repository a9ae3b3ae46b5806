use super::*;
use freehold_apiserver_catalog::builtin;
use freehold_machinery::schema;
use std::sync::Arc;

fn type_of(group: &str, resource: &str) -> Arc<ResourceType> {
    let versions = if group == "autoscaling" { ["v2", "v1"] } else { ["v1", "v1"] };
    let types = builtin().types();
    versions.iter().find_map(|version| types.find(group, version, resource)).expect("a built-in type").clone()
}

fn defaulted(group: &str, resource: &str, object: &Value) -> Value {
    let ty = type_of(group, resource);
    let mut object = object.clone();
    crate::default(&ty, &mut object);
    let once = object.clone();
    crate::default(&ty, &mut object);
    assert_eq!(once, object, "defaults of {resource} are idempotent");
    object
}

/// An object with the structs that are there whoever set them.
fn with_structs(group: &str, resource: &str, mut object: Value) -> Value {
    let ty = type_of(group, resource);
    schema::zeros::complete_structs(&mut object, ty.schema.get().expect("a built-in kind has a schema"));
    object
}

/// What a pod spec of one container gets.
fn pod_spec_of(containers: Value) -> Value {
    json!({"containers": containers, "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
           "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30})
}

fn container_of(image: &str, policy: &str) -> Value {
    json!({"name": "c", "image": image, "imagePullPolicy": policy, "resources": {},
           "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
}

#[test]
fn defaults_of_workloads_are_those_of_kubernetes() {
    let given = json!({"containers": [{"name": "c", "image": "nginx"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": given});
    let filled = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod_spec_of(json!([container_of("nginx", "Always")]))});
    let rows = [
        (
            "apps",
            "deployments",
            json!({}),
            json!({"replicas": 1, "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10, "strategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}),
        ),
        (
            "apps",
            "deployments",
            json!({"replicas": 0, "strategy": {"type": "Recreate", "rollingUpdate": null}}),
            json!({"replicas": 0, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                   "strategy": {"type": "Recreate"}}),
        ),
        ("apps", "replicasets", json!({}), json!({"replicas": 1})),
        (
            "apps",
            "statefulsets",
            json!({"updateStrategy": {}}),
            json!({"replicas": 1, "revisionHistoryLimit": 10,
            "podManagementPolicy": "OrderedReady",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}),
        ),
        (
            "apps",
            "daemonsets",
            json!({}),
            json!({"revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}),
        ),
        (
            "batch",
            "jobs",
            json!({}),
            json!({"completions": 1, "parallelism": 1, "backoffLimit": 6,
            "completionMode": "NonIndexed", "suspend": false, "podReplacementPolicy": "TerminatingOrFailed",
            "manualSelector": false}),
        ),
        (
            "batch",
            "jobs",
            json!({"parallelism": 2, "backoffLimitPerIndex": 1}),
            json!({"parallelism": 2,
            "backoffLimitPerIndex": 1, "backoffLimit": 2_147_483_647, "completionMode": "NonIndexed",
            "suspend": false, "podReplacementPolicy": "TerminatingOrFailed", "manualSelector": false}),
        ),
    ];
    for (group, resource, mut spec, mut want) in rows {
        spec["template"] = template.clone();
        want["template"] = filled.clone();
        let got = defaulted(group, resource, &json!({"spec": spec}));
        assert_eq!(got["spec"], want, "{resource}");
    }
    let cron = json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}});
    let want = json!({"schedule": "* * * * *", "concurrencyPolicy": "Allow", "suspend": false,
        "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
        "jobTemplate": {"metadata": {}, "spec": {"template": filled}}});
    assert_eq!(defaulted("batch", "cronjobs", &cron)["spec"], want);
}

#[test]
fn defaults_of_pods_follow_what_they_hold() {
    let spec = json!({"hostNetwork": true, "serviceAccount": "robot", "dnsPolicy": "", "containers": [{
        "name": "c", "image": "nginx:1", "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 0}}],
        "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/"}}]});
    let got = defaulted("", "pods", &json!({"spec": spec}));
    let container = &got["spec"]["containers"][0];
    assert_eq!(container["ports"][0], json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}));
    assert_eq!(container["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
    assert_eq!(
        container["livenessProbe"],
        json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3})
    );
    assert_eq!(got["spec"]["serviceAccountName"], "robot");
    assert_eq!(got["spec"]["dnsPolicy"], "ClusterFirst");
    assert_eq!(got["spec"]["enableServiceLinks"], true);
    assert_eq!(
        got["spec"]["volumes"],
        json!([{"name": "e", "emptyDir": {}},
        {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}}, {"name": "h", "hostPath": {"path": "/", "type": ""}}])
    );
}

#[test]
fn images_without_tag_and_digest_are_pulled_each_time() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1.2", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
        ("nginx:1", "IfNotPresent"),
    ] {
        let object = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        let got = defaulted("", "pods", &object);
        assert_eq!(got["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn defaults_of_other_kinds_follow_their_fields() {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let port = json!({"port": 80, "protocol": "TCP", "targetPort": 80});
    let rows = [
        (
            "",
            "services",
            json!({"spec": {"ports": [{"port": 80}]}}),
            json!({"spec": {"type": "ClusterIP",
            "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "ports": [port]}}),
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]}}),
            json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": [port],
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10_800}}, "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true}}),
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}),
            json!({"spec": {"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}}),
        ),
        ("", "secrets", json!({}), json!({"type": "Opaque"})),
        (
            "",
            "persistentvolumeclaims",
            json!({"spec": {}}),
            json!({"spec": {"volumeMode": "Filesystem", "resources": {}}, "status": {"phase": "Pending"}}),
        ),
        (
            "",
            "limitranges",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1"}}]}}),
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1"},
                "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1"}}]}}),
        ),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 3}}),
            json!({"spec": {"maxReplicas": 3,
            "minReplicas": 1, "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}}]}, "status": {"desiredReplicas": 0}}),
        ),
        (
            "networking.k8s.io",
            "networkpolicies",
            json!({"spec": {"egress": [{"ports": [{"port": 1}]}]}}),
            json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
                "egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}}),
        ),
        (
            RBAC,
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
            json!({"roleRef": {"kind": "Role", "name": "r", "apiGroup": RBAC},
            "subjects": [{"kind": "User", "name": "u", "apiGroup": RBAC}, {"kind": "ServiceAccount", "name": "s"}]}),
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            json!({}),
            json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"value": 1}),
            json!({"value": 1, "preemptionPolicy": "PreemptLowerPriority"}),
        ),
        (
            "discovery.k8s.io",
            "endpointslices",
            json!({"ports": [{"port": 1}], "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            json!({"ports": [{"port": 1, "name": "", "protocol": "TCP"}], "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}]}),
        ),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            json!({"webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "rules": [{}]}]}),
            json!({"webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}},
                "rules": [{"scope": "*"}], "failurePolicy": "Fail", "matchPolicy": "Equivalent",
                "namespaceSelector": {}, "objectSelector": {}, "timeoutSeconds": 10}]}),
        ),
    ];
    for (group, resource, given, want) in rows {
        assert_eq!(defaulted(group, resource, &given), with_structs(group, resource, want), "{resource}");
    }
}

#[test]
fn a_pod_as_a_whole_asks_for_what_its_containers_do_or_for_its_limits() {
    let container = |name: &str, cpu: &str| json!({"name": name, "image": "a:1", "resources": {"requests": {"cpu": cpu}}});
    let sidecar = json!({"name": "s", "image": "a:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}});
    let pod = |first: Value, resources: Value| {
        let containers = json!([container("a", "500m"), container("b", "1")]);
        let object =
            json!({"spec": {"containers": containers, "initContainers": first, "resources": resources}});
        defaulted("", "pods", &object)["spec"]["resources"].clone()
    };
    let limits = json!({"cpu": "4", "memory": "1Gi"});
    let rows = [
        (json!([]), json!({}), json!({})),
        (json!([]), json!({"requests": {"memory": "1Gi"}}), json!({"requests": {"memory": "1Gi"}})),
        (
            json!([]),
            json!({"limits": limits}),
            json!({"limits": limits, "requests": {"cpu": "1500m", "memory": "1Gi"}}),
        ),
        (
            json!([sidecar, container("first", "1")]),
            json!({"limits": limits, "requests": {"memory": "1Mi"}}),
            json!({"limits": limits, "requests": {"cpu": "1750m", "memory": "1Mi"}}),
        ),
        (
            json!([sidecar, container("first", "2")]),
            json!({"limits": limits}),
            json!({"limits": limits, "requests": {"cpu": "2250m", "memory": "1Gi"}}),
        ),
    ];
    for (first, resources, expected) in rows {
        assert_eq!(pod(first, resources), expected);
    }
}
