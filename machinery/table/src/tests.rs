use super::*;
use freehold_machinery::resource::{Conversion, Documentation, LazySchema, StorageAs};

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn column(name: &str, kind: &str, cell: Cell) -> Column {
    let (name, kind) = (name.to_owned(), kind.to_owned());
    Column { name, kind, format: String::new(), description: String::new(), priority: 0, cell }
}

fn resource_type(group: &str, plural: &str, columns: Vec<Column>) -> ResourceType {
    ResourceType {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: "Sample".to_owned(),
        list_kind: "SampleList".to_owned(),
        plural: plural.to_owned(),
        singular: "sample".to_owned(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        verbs: vec![],
        subresources: vec![],
        storage: StorageAs {
            group: group.to_owned(),
            resource: plural.to_owned(),
            api_version: "v1".to_owned(),
            conversion: Conversion::None,
        },
        schema: LazySchema::ready(None),
        stored_schema: None,
        openapi: Documentation::None,
        columns,
        selectable_fields: vec![],
        generation: false,
        custom: true,
        deprecation: None,
        terminating: false,
        contexts: Vec::new(),
        since: 0,
        hash: String::new(),
    }
}

fn with_headers(include: IncludeObject) -> Options<'static> {
    Options { include, now: now(), with_headers: true, extra: None }
}

/// The cell that a function of a built-in column gives for an object.
fn cell(call: &'static str, object: &Value) -> Value {
    Call::parse(call).unwrap_or_else(|| panic!("{call} is no function")).run(object, now())
}

#[track_caller]
fn check(object: Value, cells: &[(&'static str, Value)]) {
    for (call, expected) in cells {
        assert_eq!(cell(call, &object), *expected, "{call}");
    }
}

#[test]
fn a_custom_type_shows_its_columns_after_the_name() {
    let path = |path: &str| Cell::Path(path.to_owned());
    let ty = resource_type(
        "example.com",
        "samples",
        vec![
            column("Ready", "string", path(".status.conditions[?(@.type==\"Ready\")].status")),
            column("Replicas", "integer", path(".spec.replicas")),
            column("Wrong", "integer", path(".spec.text")),
            column("Object", "string", path(".spec.object")),
            column("Absent", "string", path(".spec.absent")),
            column("Invalid", "string", path(".spec[")),
            column("Updated", "date", path(".status.updated")),
            column("Never", "date", path(".spec.text")),
        ],
    );
    let object = json!({
        "metadata": {"name": "one", "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {"replicas": 3.0, "text": "x", "object": {"a": [1]}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "updated": "2026-01-01T11:58:00Z"},
    });
    let meta = ListMeta { resource_version: "7", continue_token: "next", remaining: Some(2) };
    let table = render(&ty, [object.clone()], &with_headers(IncludeObject::Metadata), &meta);
    assert_eq!(
        table["metadata"],
        json!({"resourceVersion": "7", "continue": "next", "remainingItemCount": 2})
    );
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 9);
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["one", "True", 3, null, "{\"a\":[1]}", null, null, "2m", "<invalid>"])
    );
    assert_eq!(
        table["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
    );
}

#[test]
fn a_type_without_columns_shows_its_age() {
    let ty = resource_type("example.com", "samples", vec![]);
    let object = json!({"metadata": {"name": "one", "creationTimestamp": "2026-01-01T09:00:00Z"}});
    let table = render(&ty, [object.clone()], &with_headers(IncludeObject::Object), &ListMeta::default());
    assert_eq!(table["rows"], json!([{"cells": ["one", "3h"], "object": object}]));
    let later =
        Options { include: IncludeObject::None, with_headers: false, ..with_headers(IncludeObject::None) };
    let table = render(&ty, [object], &later, &ListMeta::default());
    assert_eq!(table["columnDefinitions"], Value::Null);
    assert_eq!(table["rows"], json!([{"cells": ["one", "3h"], "object": null}]));
}

#[test]
fn a_caller_can_add_a_column() {
    let ty = resource_type("example.com", "samples", vec![]);
    let project = column("Project", "string", Cell::Path(String::new()));
    let of = |object: &Value| json!(format!("project of {}", meta::name(object)));
    let options = Options { extra: Some((&project, &of)), ..with_headers(IncludeObject::None) };
    let table = render(&ty, [json!({"metadata": {"name": "one"}})], &options, &ListMeta::default());
    assert_eq!(table["columnDefinitions"][0]["name"], "Project");
    assert_eq!(table["rows"][0]["cells"], json!(["project of one", "one", null]));
}

#[test]
fn a_column_can_say_where_the_name_stands() {
    let mut name = column("Name", "string", Cell::Function("text .metadata.name"));
    name.format = "name".to_owned();
    let ty =
        resource_type("", "events", vec![column("Reason", "string", Cell::Function("text .reason")), name]);
    let object = json!({"metadata": {"name": "one"}, "reason": "Started"});
    let table = render(&ty, [object], &with_headers(IncludeObject::None), &ListMeta::default());
    assert_eq!(table["rows"][0]["cells"], json!(["Started", "one"]));
}

fn pod(spec: Value, status: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec, "status": status})
}

#[test]
fn pods_are_summed_up_as_kubectl_prints_them() {
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let with_init = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
    let sidecar =
        json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i", "restartPolicy": "Always"}]});
    let running =
        |name: &str| json!({"name": name, "ready": true, "restartCount": 0, "state": {"running": {}}});
    let rows = [
        (pod(two.clone(), json!({"phase": "Pending"})), "0/2", "Pending", "0"),
        (
            pod(two.clone(), json!({"phase": "Running", "containerStatuses": [running("a"), running("b")]})),
            "2/2",
            "Running",
            "0",
        ),
        (
            pod(
                two.clone(),
                json!({"phase": "Running", "containerStatuses": [running("a"), {
                    "name": "b", "ready": false, "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T11:57:00Z"}},
                }]}),
            ),
            "1/2",
            "CrashLoopBackOff",
            "4 (3m ago)",
        ),
        (
            pod(
                two.clone(),
                json!({
                    "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [
                        {"name": "a", "restartCount": 0, "state": {"terminated": {"reason": "Completed"}}}, running("b"),
                    ],
                }),
            ),
            "1/2",
            "Running",
            "0",
        ),
        (
            pod(
                two.clone(),
                json!({"phase": "Failed", "containerStatuses": [
                    {"name": "a", "restartCount": 1, "state": {"terminated": {"exitCode": 3}}},
                ]}),
            ),
            "0/2",
            "ExitCode:3",
            "1",
        ),
        (
            pod(
                two.clone(),
                json!({"phase": "Failed", "containerStatuses": [
                    {"name": "a", "state": {"terminated": {"signal": 9, "exitCode": 137}}},
                ]}),
            ),
            "0/2",
            "Signal:9",
            "0",
        ),
        (pod(two.clone(), json!({"phase": "Failed", "reason": "Evicted"})), "0/2", "Evicted", "0"),
        (
            pod(
                with_init.clone(),
                json!({"phase": "Pending", "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {"exitCode": 0}}, "restartCount": 2},
                    {"name": "j", "state": {"running": {}}, "restartCount": 1},
                ]}),
            ),
            "0/1",
            "Init:1/2",
            "3",
        ),
        (
            pod(
                with_init.clone(),
                json!({"phase": "Pending", "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
                ]}),
            ),
            "0/1",
            "Init:Error",
            "0",
        ),
        (
            pod(
                with_init,
                json!({"phase": "Pending", "initContainerStatuses": [
                    {"name": "i", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
                ]}),
            ),
            "0/1",
            "Init:ImagePullBackOff",
            "0",
        ),
        (
            pod(
                sidecar,
                json!({
                    "phase": "Running", "containerStatuses": [running("a")],
                    "initContainerStatuses": [
                        {"name": "i", "started": true, "ready": true, "restartCount": 5, "state": {"running": {}}},
                    ],
                }),
            ),
            "2/2",
            "Running",
            "5",
        ),
        (
            pod(
                two.clone(),
                json!({
                    "phase": "Pending",
                    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
                }),
            ),
            "0/2",
            "SchedulingGated",
            "0",
        ),
    ];
    for (pod, ready, status, restarts) in rows {
        check(
            pod,
            &[("pod-ready", json!(ready)), ("pod-status", json!(status)), ("pod-restarts", json!(restarts))],
        );
    }
    let mut leaving = pod(two, json!({"phase": "Running"}));
    leaving["metadata"]["deletionTimestamp"] = NOW.into();
    check(leaving.clone(), &[("pod-status", json!("Terminating"))]);
    leaving["status"]["reason"] = "NodeLost".into();
    check(leaving, &[("pod-status", json!("Unknown"))]);
}

#[test]
fn rows_of_pods_that_ended_have_a_condition() {
    let ty = resource_type("", "pods", vec![]);
    let printer = Printer::new(&ty, None);
    let row = printer.row(pod(json!({}), json!({"phase": "Succeeded"})), IncludeObject::None, now());
    assert_eq!(row["conditions"][0]["reason"], "Succeeded");
    let row = printer.row(pod(json!({}), json!({"phase": "Running"})), IncludeObject::None, now());
    assert_eq!(row.get("conditions"), None);
}

#[test]
fn workloads_are_printed_as_kubectl_prints_them() {
    check(
        json!({
            "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
                {"key": "c", "operator": "NotIn", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"},
            ]}, "template": {"spec": {"containers": [{"name": "x", "image": "i:1"}, {"name": "y", "image": "j"}]}}},
            "status": {"readyReplicas": 2, "updatedReplicas": 1},
        }),
        &[
            ("ratio .status.readyReplicas .spec.replicas", json!("2/3")),
            ("int .status.updatedReplicas", json!(1)),
            ("int .status.availableReplicas", json!(0)),
            ("containers .spec.template.spec", json!("x,y")),
            ("images .spec.template.spec", json!("i:1,j")),
            ("selector .spec.selector", json!("a=1,b=2,c notin (x,y),!d")),
            ("selector .spec.absent", json!("<none>")),
        ],
    );
    check(
        json!({
            "spec": {"completions": 5},
            "status": {
                "succeeded": 5, "startTime": "2026-01-01T11:00:00Z", "completionTime": "2026-01-01T11:01:30Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
        }),
        &[
            ("job-status", json!("Complete")),
            ("job-completions", json!("5/5")),
            ("job-duration", json!("90s")),
        ],
    );
    check(
        json!({"spec": {"parallelism": 3}, "status": {"startTime": "2026-01-01T11:59:00Z"}}),
        &[
            ("job-status", json!("Running")),
            ("job-completions", json!("0/1 of 3")),
            ("job-duration", json!("60s")),
        ],
    );
    let autoscaler = json!({
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                {"type": "Pods", "pods": {"target": {"averageValue": "1k"}}},
                {"type": "External", "external": {"target": {"averageValue": "30"}}},
            ],
        },
        "status": {"currentMetrics": [{"resource": {"current": {"averageUtilization": 20}}}]},
    });
    check(
        autoscaler,
        &[
            ("hpa-reference", json!("Deployment/web")),
            ("hpa-targets", json!("cpu: 20%/80%, <unknown>/1k + 1 more...")),
            ("or <unset> .spec.minReplicas", json!("<unset>")),
        ],
    );
    check(
        json!({"spec": {"targetCPUUtilizationPercentage": 50}}),
        &[("hpa-targets-v1", json!("cpu: <unknown>/50%"))],
    );
}

#[test]
fn network_objects_are_printed_as_kubectl_prints_them() {
    check(
        json!({
            "spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "externalIPs": ["1.1.1.1"], "ports": [
                {"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"},
            ]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "lb"}, {"ip": "2.2.2.2"}]}},
        }),
        &[
            ("service-cluster-ip", json!("10.0.0.1")),
            ("service-external-ip", json!("2.2.2.2,lb,1.1.1.1")),
            ("service-ports", json!("80:30080/TCP,53/UDP")),
        ],
    );
    let rows = [
        (json!({"spec": {"type": "ClusterIP"}}), "<none>"),
        (json!({"spec": {"type": "LoadBalancer"}}), "<pending>"),
        (json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}), "a.b"),
    ];
    for (service, expected) in rows {
        check(service, &[("service-external-ip", json!(expected)), ("service-ports", json!("<none>"))]);
    }
    check(
        json!({"subsets": [
            {"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}], "ports": [{"port": 80}, {"port": 81}]},
            {"addresses": [{"ip": "2.2.2.2"}]},
        ]}),
        &[("endpoints", json!("1.1.1.1:80,[::1]:80,1.1.1.1:81 + 2 more..."))],
    );
    check(
        json!({"ports": [{"port": 80}, {"name": "x"}, {}], "endpoints": [{"addresses": ["a"]}, {"addresses": ["b"]}]}),
        &[("slice-ports", json!("80,x,*")), ("slice-endpoints", json!("a,b"))],
    );
    check(
        json!({}),
        &[("endpoints", json!("<none>")), ("slice-ports", json!("<unset>")), ("ingress-hosts", json!("*"))],
    );
    check(
        json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}], "tls": [{}]}}),
        &[("ingress-hosts", json!("a,b,c + 1 more...")), ("ingress-ports", json!("80, 443"))],
    );
    check(
        json!({"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}}),
        &[("parent-ref", json!("services/default/kubernetes"))],
    );
}

#[test]
fn cluster_objects_are_printed_as_kubectl_prints_them() {
    check(
        json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}],
            },
        }),
        &[
            ("node-status", json!("Ready,SchedulingDisabled")),
            ("node-roles", json!("edge,worker")),
            ("node-address InternalIP", json!("10.1.1.1")),
            ("node-address ExternalIP", json!("<none>")),
        ],
    );
    check(
        json!({
            "involvedObject": {"kind": "Pod", "name": "web"}, "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": "2026-01-01T11:00:00Z", "lastTimestamp": "2026-01-01T11:59:30Z", "count": 4,
            "message": " done\n",
        }),
        &[
            ("event-last-seen", json!("30s")),
            ("event-first-seen", json!("60m")),
            ("event-count", json!(4)),
            ("event-object .involvedObject", json!("pod/web")),
            ("event-source", json!("kubelet, n1")),
            ("message .message", json!("done")),
        ],
    );
    check(
        json!({"eventTime": "2026-01-01T11:59:00.000001Z", "reportingController": "c", "firstTimestamp": null}),
        &[("event-last-seen", json!("59s")), ("event-count", json!(1)), ("event-source", json!("c"))],
    );
    check(
        json!({"status": {"conditions": [{"type": "Approved"}], "certificate": "x"}, "spec": {"expirationSeconds": 3600}}),
        &[("csr-condition", json!("Approved,Issued")), ("requested-duration", json!("60m"))],
    );
    check(
        json!({"status": {"hard": {"pods": "10", "limits.cpu": "4"}, "used": {"pods": "3"}}}),
        &[("quota-requests", json!("pods: 3/10")), ("quota-limits", json!("limits.cpu: 0/4"))],
    );
    check(
        json!({
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "User", "name": "a"}, {"kind": "User", "name": "b"},
                {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
            ],
        }),
        &[
            ("role-ref", json!("ClusterRole/view")),
            ("subjects User", json!("a, b")),
            ("subjects Group", json!("")),
            ("subjects ServiceAccount", json!("n/s")),
        ],
    );
    check(
        json!({"spec": {"volumeName": "v", "accessModes": ["ReadWriteMany"]}, "status": {
            "phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        }}),
        &[
            ("phase", json!("Bound")),
            ("claim-capacity", json!("1Gi")),
            ("claim-access-modes", json!("RWO,RWX")),
        ],
    );
    let rows = [
        (json!({}), "<unset>"),
        (json!({"paramRef": {"name": "p"}}), "*/p"),
        (json!({"paramRef": {"name": "p", "namespace": "n"}}), "n/p"),
        (json!({"paramRef": {"selector": {"matchLabels": {"a": "b"}}}}), "a=b"),
    ];
    for (spec, expected) in rows {
        check(json!({"spec": spec}), &[("param-ref", json!(expected))]);
    }
    check(
        json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        &[("class-name", json!("fast (default)"))],
    );
    check(
        json!({"data": {"a": "1"}, "binaryData": {"b": "", "c": ""}}),
        &[("count .data .binaryData", json!(3)), ("count .absent", json!(0))],
    );
    check(
        json!({"spec": {"service": {"namespace": "n", "name": "s"}}, "status": {"conditions": [
            {"type": "Available", "status": "False", "reason": "MissingEndpoints"},
        ]}}),
        &[("api-service", json!("n/s")), ("api-service-available", json!("False (MissingEndpoints)"))],
    );
}

#[test]
fn functions_have_one_name_each() {
    let tables = [cells::COMMON, pods::CELLS, workloads::CELLS, network::CELLS, cluster::CELLS];
    let mut names: Vec<_> = tables.into_iter().flatten().map(|(name, _)| *name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(Call::parse("absent").is_none());
}
