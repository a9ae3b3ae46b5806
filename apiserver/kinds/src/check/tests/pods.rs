use super::*;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn containers_are_checked_as_kubernetes_checks_them() {
    let good = json!({"spec": {"containers": [container()]}});
    let name = format!("spec.containers[0].name: Invalid value: \"C_\": {LABEL}");
    let rows: &[(Value, &[&str])] = &[
        (json!({"spec": {"containers": null}}), &["spec.containers: Required value"]),
        (with(json!({"image": null})), &["spec.containers[0].image: Required value"]),
        (with(json!({"name": ""})), &["spec.containers[0].name: Required value"]),
        (with(json!({"name": "C_"})), &[&name]),
        (
            json!({"spec": {"containers": [container(), container()]}}),
            &["spec.containers[1].name: Duplicate value: \"c\""],
        ),
        (
            json!({"spec": {"initContainers": [container()]}}),
            &["spec.initContainers[0].name: Duplicate value: \"c\""],
        ),
        (
            with(json!({"imagePullPolicy": "Often"})),
            &[
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            ],
        ),
        (
            with(json!({"ports": [{"containerPort": 70_000}, {"protocol": "X", "containerPort": 1}]})),
            &[
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "spec.containers[0].ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ],
        ),
        (
            with(json!({"ports": [{"containerPort": 1, "name": "p"}, {"containerPort": 2, "name": "p"}]})),
            &["spec.containers[0].ports[1].name: Duplicate value: \"p\""],
        ),
        (
            with(
                json!({"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]}),
            ),
            &["spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//5\""],
        ),
        (
            with(
                json!({"env": [{"name": "A=B"}, {"name": "D", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}),
            ),
            &[
                "spec.containers[0].env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='",
                "spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not supported: spec.x",
                "spec.containers[0].env[1].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
            ],
        ),
        (with(json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})), &[]),
        (
            with(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
        ),
        (
            with(json!({"livenessProbe": {"periodSeconds": -1, "successThreshold": 2}})),
            &[
                "spec.containers[0].livenessProbe: Required value: must specify a handler type",
                "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            with(json!({"resources": {"requests": {"cpu": "2", "gpu": "1"}, "limits": {"cpu": "1"}}})),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
                "spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                "spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
            ],
        ),
    ];
    check_all("", "pods", &good, rows);
}

#[test]
fn specs_of_pods_are_checked_as_kubernetes_checks_them() {
    let good = json!({"spec": {"containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "emptyDir": {}}]}});
    let spec = |spec: Value| json!({"spec": spec});
    let rows: &[(Value, &[&str])] = &[
        (
            spec(json!({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/a"}}]})),
            &[
                "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
            ],
        ),
        (
            spec(
                json!({"volumes": [{"name": "v"}, {"name": "v"}, {"name": "s", "secret": {"defaultMode": 512}}]}),
            ),
            &[
                "spec.volumes[1].name: Duplicate value: \"v\"",
                "spec.volumes[2].secret.secretName: Required value",
                "spec.volumes[2].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            ],
        ),
        (
            spec(json!({"restartPolicy": "Sometimes", "dnsPolicy": "None"})),
            &[
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
                "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
            ],
        ),
        (
            spec(
                json!({"activeDeadlineSeconds": 0, "tolerations": [{"key": "a", "operator": "Is"}, {"operator": "Exists", "effect": "No"}]}),
            ),
            &[
                "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
                "spec.tolerations[0].operator: Unsupported value: \"Is\": supported values: \"Equal\", \"Exists\"",
                "spec.tolerations[1].effect: Unsupported value: \"No\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ],
        ),
        (
            spec(
                json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 0, "podAffinityTerm": {"topologyKey": "-"}}]}}}),
            ),
            &[
                "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
                "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Invalid value: \"-\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ],
        ),
        (
            spec(
                json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
            ),
            &["spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero"],
        ),
    ];
    check_all("", "pods", &good, rows);
}

#[test]
fn workloads_choose_the_pods_that_they_make() {
    let spec = |spec: Value| json!({"spec": spec});
    let mismatch = "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`";
    let restart =
        "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"";
    for resource in ["deployments", "replicasets", "statefulsets", "daemonsets"] {
        let kind = match resource {
            "statefulsets" => "statefulset",
            "daemonsets" => "daemonset",
            _ => "deployment",
        };
        let empty = format!("spec.selector: Invalid value: {{}}: empty selector is invalid for {kind}");
        let rows: &[(Value, &[&str])] = &[
            (spec(json!({"selector": {"matchLabels": null}})), &[&empty]),
            (spec(json!({"selector": {"matchLabels": {"a": "c"}}})), &[mismatch]),
            (spec(json!({"template": {"spec": {"restartPolicy": "Never"}}})), &[restart]),
            (
                spec(json!({"template": {"spec": {"containers": null}}})),
                &["spec.template.spec.containers: Required value"],
            ),
        ];
        check_all("apps", resource, &workload(), rows);
    }
    let rows: &[(Value, &[&str])] = &[
        (
            spec(json!({"replicas": -1})),
            &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            spec(json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}})),
            &[
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
            ],
        ),
        (
            spec(json!({"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}})),
            &[
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
            ],
        ),
        (
            spec(json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}})),
            &[
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ],
        ),
        (
            spec(json!({"progressDeadlineSeconds": 5, "minReadySeconds": 5})),
            &["spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"],
        ),
    ];
    check_all("apps", "deployments", &workload(), rows);
}

#[test]
fn claims_of_stateful_sets_are_volumes_of_their_pods() {
    let mut set = workload();
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/d"}]);
    let missing = "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\"";
    assert_eq!(problems("apps", "statefulsets", &set, None), [missing]);
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    assert_eq!(problems("apps", "statefulsets", &set, None), [""; 0]);
}

#[test]
fn jobs_and_cron_jobs_are_checked_as_kubernetes_checks_them() {
    let mut template = template();
    template["spec"]["restartPolicy"] = "Never".into();
    let selector = json!({"matchLabels": {"a": "b"}});
    let job = json!({"spec": {"manualSelector": true, "selector": selector, "template": template}});
    let policy = |policy: &str| json!({"spec": {"template": {"spec": {"restartPolicy": policy}}}});
    let rows: &[(Value, &[&str])] = &[
        (
            policy("Always"),
            &["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
        ),
        (
            json!({"spec": {"completionMode": "Indexed", "parallelism": 2}}),
            &["spec.completions: Required value: when completion mode is Indexed"],
        ),
        (
            json!({"spec": {"backoffLimit": -1}}),
            &["spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0"],
        ),
    ];
    check_all("batch", "jobs", &job, rows);
    let cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "*/5 * * * *", "timeZone": "Europe/Berlin",
        "jobTemplate": {"spec": {"template": template}}}});
    let rows: &[(Value, &[&str])] = &[
        (json!({"spec": {"schedule": ""}}), &["spec.schedule: Required value"]),
        (
            json!({"spec": {"schedule": "bad"}}),
            &["spec.schedule: Invalid value: \"bad\": expected exactly 5 fields, found 1: [bad]"],
        ),
        (
            json!({"spec": {"timeZone": "Mars/Base"}}),
            &["spec.timeZone: Invalid value: \"Mars/Base\": unknown time zone Mars/Base"],
        ),
        (
            json!({"spec": {"concurrencyPolicy": "Maybe"}}),
            &[
                "spec.concurrencyPolicy: Unsupported value: \"Maybe\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
            ],
        ),
        (
            json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": null}}}}}}),
            &[
                "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ],
        ),
    ];
    check_all("batch", "cronjobs", &cron, rows);
}
