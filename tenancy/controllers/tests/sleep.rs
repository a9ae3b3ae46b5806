//! Sleep and waking on a Freehold project and on a real kube-apiserver.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Api, PATIENCE, Running, apis};
use freehold_tenancy_controllers::supervisor::start_supervisor;
use freehold_tests_harness::{Random, crds, until};
use std::time::Duration;

const KINDS: &str =
    "deployments,statefulsets,replicasets,daemonsets,cronjobs,horizontalpodautoscalers,services";

const POD: &str = "template: {metadata: {labels: {app: NAME}}, spec: {containers: [{name: c, image: i}]}}";

/// A namespace with a workload of each kind.
fn workloads(namespace: &str) -> String {
    let pod = |name: &str| POD.replace("NAME", name);
    let selector = |name: &str| format!("selector: {{matchLabels: {{app: {name}}}}}");
    [
        format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}, labels: {{env: dev}}}}}}"),
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: {namespace}}}, spec: {{replicas: 3, {}, {}}}}}",
            selector("web"),
            pod("web")
        ),
        format!(
            "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: db, namespace: {namespace}, annotations: {{a: b}}}}, spec: {{replicas: 2, serviceName: db, {}, {}}}}}",
            selector("db"),
            pod("db")
        ),
        format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: bare, namespace: {namespace}}}, spec: {{replicas: 1, {}, {}}}}}",
            selector("bare"),
            pod("bare")
        ),
        format!(
            "{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: agent, namespace: {namespace}}}, spec: {{{}, {}}}}}",
            selector("agent"),
            pod("agent")
        ),
        format!(
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: report, namespace: {namespace}}}, spec: {{schedule: '0 0 * * *', jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}}}}}}}}}"
        ),
        format!(
            "{{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {{name: web, namespace: {namespace}}}, spec: {{minReplicas: 2, maxReplicas: 9, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}}}}}"
        ),
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: public, namespace: {namespace}}}, spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}}}"
        ),
    ]
    .join("\n---\n")
}

fn supervisor(state: &str, more: &str) -> String {
    format!(
        "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: ResourceSupervisor, metadata: {{name: nights}}, spec: {{target: {{selector: {{matchLabels: {{env: dev}}}}}}, override: {{state: {state}}}{more}}}}}"
    )
}

fn put_to_sleep(api: &Api, more: &str) {
    api.apply(&supervisor("Asleep", more));
}

/// Waits until a namespace sleeps as a whole.
fn asleep(api: &Api, namespace: &str) {
    for (object, path, value) in [
        ("deployment/web", ".spec.replicas", "0"),
        ("statefulset/db", ".spec.replicas", "0"),
        ("replicaset/bare", ".spec.replicas", "0"),
        ("daemonset/agent", ".spec.template.spec.nodeSelector.tenancy\\.freehold\\.dev/asleep", "true"),
        ("cronjob/report", ".spec.suspend", "true"),
        ("hpa/web", ".spec.behavior.scaleUp.selectPolicy", "Disabled"),
    ] {
        api.wait_field(namespace, object, path, value);
    }
}

fn awake(api: &Api, namespace: &str) {
    until(&format!("{}: {namespace} has no record", api.name), PATIENCE, || {
        api.kubectl.ok(&["get", "sleeprecords", "-n", namespace, "-o", "name"]).is_empty().then_some(())
    });
}

#[test]
fn a_namespace_sleeps_and_wakes_exactly() {
    for api in apis() {
        api.apply(&workloads("a"));
        let before = api.content("a", KINDS);
        assert_eq!(before.len(), 7, "{before:?}");
        let controllers = Running::start(&api, start_supervisor);
        put_to_sleep(&api, ", workloads: {loadBalancers: Delete}");
        asleep(&api, "a");
        until("the load balancer is gone", PATIENCE, || {
            (!api.kubectl.run(&["get", "-n", "a", "service/public"]).success).then_some(())
        });
        api.wait_field(
            "",
            "resourcesupervisor/nights",
            ".status.conditions[?(@.type==\"Ready\")].reason",
            "Settled",
        );
        assert_eq!(api.field("", "resourcesupervisor/nights", ".status.asleep"), "1");
        // Created during sleep: it sleeps too, and wakes with its own number.
        api.kubectl.ok(&["create", "deployment", "late", "-n", "a", "--image=i", "--replicas=4"]);
        api.wait_field("a", "deployment/late", ".spec.replicas", "0");
        api.apply(&supervisor("Awake", ", workloads: {loadBalancers: Delete}"));
        awake(&api, "a");
        assert_eq!(api.field("a", "deployment/late", ".spec.replicas"), "4");
        api.kubectl.ok(&["delete", "deployment", "late", "-n", "a"]);
        assert_eq!(api.content("a", KINDS), before, "{}", api.name);
        drop(controllers);
    }
}

#[test]
fn a_supervisor_that_is_deleted_leaves_nobody_asleep() {
    let api = common::freehold();
    api.apply(&workloads("a"));
    let before = api.content("a", KINDS);
    let _controllers = Running::start(&api, start_supervisor);
    put_to_sleep(&api, "");
    asleep(&api, "a");
    api.kubectl.ok(&["delete", "resourcesupervisor", "nights"]);
    awake(&api, "a");
    assert_eq!(api.content("a", KINDS), before);
}

/// Ends the controllers at random moments of sleeping and waking; `FREEHOLD_TEST_KILLS` says how often.
#[test]
fn controllers_that_end_at_random_moments_lose_nothing() {
    let kills: u32 = std::env::var("FREEHOLD_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let mut random = Random::new(7);
    let api = common::freehold();
    api.apply(&workloads("a"));
    api.apply(&workloads("b"));
    let before = (api.content("a", KINDS), api.content("b", KINDS));
    for round in 0..kills {
        let state = if round % 2 == 0 { "Asleep" } else { "Awake" };
        api.apply(&supervisor(state, ", workloads: {loadBalancers: Delete}"));
        let controllers = Running::start(&api, start_supervisor);
        std::thread::sleep(Duration::from_millis(random.below(250)));
        drop(controllers);
    }
    let _controllers = Running::start(&api, start_supervisor);
    api.apply(&supervisor("Awake", ", workloads: {loadBalancers: Delete}"));
    awake(&api, "a");
    awake(&api, "b");
    assert_eq!((api.content("a", KINDS), api.content("b", KINDS)), before);
}

#[test]
fn bad_schedules_and_overlaps_are_conditions() {
    let api = common::freehold();
    api.apply(&workloads("a"));
    let _controllers = Running::start(&api, start_supervisor);
    api.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: ResourceSupervisor, metadata: {name: bad}, spec: {target: {namespaces: [b]}, schedules: [{sleep: '0 25 * * *'}]}}",
    );
    let reason = ".status.conditions[?(@.type==\"Ready\")].reason";
    api.wait_field("", "resourcesupervisor/bad", reason, "Invalid");
    put_to_sleep(&api, "");
    asleep(&api, "a");
    api.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: ResourceSupervisor, metadata: {name: stronger}, spec: {priority: 9, target: {namespaces: [a]}, override: {state: Awake}}}",
    );
    awake(&api, "a");
    let overlapping = ".status.conditions[?(@.type==\"Overlapping\")].reason";
    api.wait_field("", "resourcesupervisor/nights", overlapping, "Outranked");
    api.wait_field("", "resourcesupervisor/stronger", overlapping, "Alone");
}

#[test]
fn a_personal_namespace_is_deleted_at_the_end_of_its_life() {
    let api = common::freehold();
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: mine, labels: {env: dev}}}");
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: kept, labels: {env: dev}, annotations: {tenancy.freehold.dev/expires-at: '2099-01-01T00:00:00Z'}}}");
    let _controllers = Running::start(&api, start_supervisor);
    api.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: ResourceSupervisor, metadata: {name: lives}, spec: {target: {selector: {matchLabels: {env: dev}}}, timeToLive: {after: 1s, action: Delete}}}",
    );
    until("mine is gone", PATIENCE, || {
        let namespace =
            api.kubectl.run(&["get", "namespace", "mine", "-o", "jsonpath={.metadata.deletionTimestamp}"]);
        (!namespace.success || !namespace.stdout.is_empty()).then_some(())
    });
    assert_eq!(api.field("", "namespace/kept", ".metadata.deletionTimestamp"), "");
}

#[test]
fn a_scaled_object_of_keda_is_paused_and_goes_on() {
    let api = common::freehold();
    let known = crds().into_iter().find(|crd| crd.object["metadata"]["name"] == "scaledobjects.keda.sh");
    let crd = known.expect("`tools/get crds` gets the definitions of KEDA").object.to_string();
    api.kubectl.run_with_input(&["create", "-f", "-"], &crd).expect_ok();
    api.kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd/scaledobjects.keda.sh"]);
    api.apply(&workloads("a"));
    api.apply(
        "{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: db, namespace: a, annotations: {a: b}}, \
         spec: {scaleTargetRef: {kind: StatefulSet, name: db}, triggers: [{type: cron, metadata: {start: '0 0 * * *', end: '1 0 * * *', timezone: UTC, desiredReplicas: '2'}}]}}",
    );
    let before = api.content("a", "scaledobjects");
    let _controllers = Running::start(&api, start_supervisor);
    put_to_sleep(&api, "");
    api.wait_field(
        "a",
        "scaledobject/db",
        ".metadata.annotations.autoscaling\\.keda\\.sh/paused-replicas",
        "0",
    );
    asleep(&api, "a");
    api.kubectl.ok(&["delete", "resourcesupervisor", "nights"]);
    awake(&api, "a");
    assert_eq!(api.content("a", "scaledobjects"), before);
}

#[test]
fn scalable_custom_resources_sleep_and_argo_cd_is_held() {
    let api = common::freehold();
    api.apply(SCALABLE);
    api.kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd/shops.example.com"]);
    api.kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd/applications.argoproj.io"]);
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {env: dev}}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: argocd}}");
    api.apply("{apiVersion: example.com/v1, kind: Shop, metadata: {name: s, namespace: a}, spec: {size: {replicas: 5}}}");
    api.apply("{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: app, namespace: argocd}, spec: {destination: {namespace: a, server: 'https://kubernetes.default.svc'}}}");
    let before = (api.content("a", "shops"), api.content("argocd", "applications"));
    let _controllers = Running::start(&api, start_supervisor);
    put_to_sleep(&api, ", workloads: {scalable: [{group: example.com, resource: shops}]}");
    api.wait_field("a", "shop/s", ".spec.size.replicas", "0");
    api.wait_field(
        "argocd",
        "application/app",
        ".metadata.annotations.argocd\\.argoproj\\.io/skip-reconcile",
        "true",
    );
    // Nobody names the kind any more: the record does.
    api.kubectl.ok(&["delete", "resourcesupervisor", "nights"]);
    awake(&api, "a");
    assert_eq!((api.content("a", "shops"), api.content("argocd", "applications")), before);
}

const SCALABLE: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  names: {kind: Shop, plural: shops, singular: shop, listKind: ShopList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.size.replicas, statusReplicasPath: .status.replicas}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applications.argoproj.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: argoproj.io
  names: {kind: Application, plural: applications, singular: application, listKind: ApplicationList}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
