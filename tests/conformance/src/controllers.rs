//! The real kube-controller-manager at work in a project plane, for as long as is asked.
//!
//! In rounds, each in namespaces of its own, it is given what controllers do on every cluster; what they make of it has to
//! be what Kubernetes documents. At the end its log must have no error but those that it has on a cluster of
//! kube-apiserver's as well.

use crate::plane::Plane;
use anyhow::{Result, bail};
use freehold_tests_harness::{Kubectl, until};
use serde_json::Value;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// How it may be told to speak with the API.
pub(crate) const CONTENT_TYPES: [(&str, &str); 2] =
    [("json", "application/json"), ("protobuf", "application/vnd.kubernetes.protobuf")];

/// How long each thing may take: a CronJob waits for its minute.
const PATIENCE: Duration = Duration::from_secs(180);

/// What it logs as an error on a real cluster too, and why.
const KNOWN: &[(&str, &str)] = &[
    ("The manifest file is empty, ignoring.", "it says so of itself"),
    ("is not as new as written version", "its cache has not seen its own write yet; it tries again"),
    (
        "the object has been modified; please apply your changes to the latest version",
        "two controllers wrote; it tries again",
    ),
    (
        "is forbidden: unable to create new content in namespace",
        "a namespace went while something was being made in it",
    ),
    ("namespaces \"", "a namespace went while something was being made in it"),
    (
        "\"Failed to watch\" err=\"the server could not find the requested resource\"",
        "a definition is gone, and its informer goes on (https://github.com/kubernetes/kubernetes/issues/79610)",
    ),
    (
        "failed to list *v1.PartialObjectMetadata: the server could not find the requested resource",
        "the same",
    ),
];

/// What it is given, and what has to come of it: run with `kubectl` in a namespace of its own, which is named.
type Fact = fn(&Kubectl, &str);

const FACTS: &[(&str, Fact)] = &[
    ("deployments", deployments),
    ("jobs", jobs),
    ("cronjobs", cronjobs),
    ("sets", sets),
    ("services", services),
    ("garbage", garbage),
    ("custom", custom),
    ("namespaces", namespaces),
    ("quotas", quotas),
    ("roles", roles),
];

/// What was done.
pub(crate) struct Done {
    rounds: usize,
    seconds: u64,
    lines: usize,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = FACTS.len();
        write!(
            f,
            "{} rounds of {facts} in {} s, {} lines of log without an error",
            self.rounds, self.seconds, self.lines
        )
    }
}

/// Gives it work until the time is up, then looks at what it has logged.
pub(crate) fn work(plane: &mut Plane, time: Duration) -> Result<Done> {
    let begun = Instant::now();
    let mut rounds = 0;
    while rounds == 0 || begun.elapsed() < time {
        round(plane.kubectl(), rounds);
        rounds += 1;
    }
    let (log, runs) = plane.controllers()?;
    if !runs {
        bail!("a program has ended:\n{}", tail(&log));
    }
    let errors: Vec<&str> = log.lines().filter(|line| is_error(line)).collect();
    if !errors.is_empty() {
        bail!("{} errors in its log:\n{}", errors.len(), errors.join("\n"));
    }
    Ok(Done { rounds, seconds: begun.elapsed().as_secs(), lines: log.lines().count() })
}

fn round(kubectl: &Kubectl, round: usize) {
    thread::scope(|scope| {
        for (name, fact) in FACTS {
            scope.spawn(move || {
                let namespace = format!("{name}-{round}");
                kubectl.ok(&["create", "namespace", &namespace]);
                fact(&kubectl.with(&["--namespace", &namespace]), &namespace);
                kubectl.ok(&["delete", "namespace", &namespace, "--ignore-not-found", "--timeout=60s"]);
            });
        }
    });
}

/// A line that klog marks as an error or worse, and that is not known of real clusters.
fn is_error(line: &str) -> bool {
    let severe = line.starts_with(['E', 'F']) && line[1..].starts_with(|c: char| c.is_ascii_digit());
    severe && !KNOWN.iter().any(|(text, _)| line.contains(text))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// `kubectl apply` of a manifest in one line, which would be taken for JSON.
fn apply(kubectl: &Kubectl, manifest: &str) {
    kubectl.apply(&format!("---\n{manifest}"));
}

/// Waits until a fact is there.
fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, PATIENCE, || holds().then_some(()));
}

/// Waits until objects, as `kubectl get` is asked for them, have a value at a path.
fn becomes(kubectl: &Kubectl, get: &[&str], path: &str, expected: &str) {
    let args: Vec<String> =
        get.iter().map(|arg| (*arg).to_owned()).chain([format!("-o=jsonpath={path}")]).collect();
    let args: Vec<&str> = ["get"].into_iter().chain(args.iter().map(String::as_str)).collect();
    let mut last = String::new();
    let begun = Instant::now();
    loop {
        let found = kubectl.run(&args);
        if found.success && found.stdout == expected {
            return;
        }
        last.clone_from(&found.stdout);
        assert!(begun.elapsed() < PATIENCE, "{get:?}: {path} is {last:?} and not {expected:?}");
        thread::sleep(Duration::from_millis(300));
    }
}

fn is_gone(kubectl: &Kubectl, what: &[&str]) {
    let args: Vec<&str> =
        ["get", "-o=name", "--ignore-not-found"].into_iter().chain(what.iter().copied()).collect();
    wait(&format!("{what:?} are gone"), || {
        let found = kubectl.run(&args);
        thread::sleep(Duration::from_millis(300));
        found.success && found.stdout.is_empty()
    });
}

fn pods(image: &str) -> String {
    format!("containers: [{{name: c, image: 'registry.k8s.io/{image}:1'}}]")
}

fn deployment(replicas: u8) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: {replicas},
          selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{{}}}}}}}}}",
        pods("pause")
    )
}

/// Rollouts, rollbacks, scaling, and what is left of each.
fn deployments(kubectl: &Kubectl, _: &str) {
    apply(kubectl, &deployment(2));
    becomes(kubectl, &["deployment", "web"], "{.status.availableReplicas}", "2");
    is_gone(kubectl, &["service"]);
    kubectl.ok(&["set", "image", "deployment/web", "c=registry.k8s.io/pause:2"]);
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=55s"]);
    becomes(
        kubectl,
        &["replicasets", "--sort-by=.metadata.creationTimestamp"],
        "{.items[*].spec.replicas}",
        "0 2",
    );
    kubectl.ok(&["rollout", "undo", "deployment/web"]);
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=55s"]);
    becomes(
        kubectl,
        &["deployment", "web"],
        "{.metadata.annotations['deployment\\.kubernetes\\.io/revision']}",
        "3",
    );
    kubectl.ok(&["scale", "deployment/web", "--replicas=0"]);
    is_gone(kubectl, &["pods"]);
    kubectl.ok(&["delete", "deployment", "web"]);
    is_gone(kubectl, &["replicasets"]);
}

/// Jobs of all sorts, and the time after which they go.
fn jobs(kubectl: &Kubectl, _: &str) {
    for (name, more) in [
        ("several", "completions: 3, parallelism: 2"),
        ("indexed", "completions: 2, parallelism: 2, completionMode: Indexed"),
        ("brief", "ttlSecondsAfterFinished: 1"),
        ("suspended", "suspend: true"),
    ] {
        apply(
            kubectl,
            &format!(
                "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{{more},
              template: {{spec: {{restartPolicy: Never, {}}}}}}}}}",
                pods("true")
            ),
        );
    }
    becomes(
        kubectl,
        &["job", "several"],
        "{.status.succeeded} {.status.conditions[?(@.type=='Complete')].status}",
        "3 True",
    );
    becomes(kubectl, &["job", "indexed"], "{.status.completedIndexes}", "0,1");
    is_gone(kubectl, &["job", "brief", "--ignore-not-found"]);
    becomes(kubectl, &["job", "suspended"], "{.status.conditions[0].type}", "Suspended");
    kubectl.ok(&["patch", "job", "suspended", "--type=merge", "-p", r#"{"spec":{"suspend":false}}"#]);
    kubectl.ok(&["wait", "--for=condition=complete", "job/suspended", "--timeout=55s"]);
    kubectl.ok(&["delete", "jobs", "--all", "--cascade=foreground"]);
    is_gone(kubectl, &["pods"]);
}

/// A CronJob's minute comes, and its job is done.
fn cronjobs(kubectl: &Kubectl, _: &str) {
    apply(
        kubectl,
        &format!(
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: often}}, spec: {{schedule: '* * * * *',
          jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, {}}}}}}}}}}}}}",
            pods("true")
        ),
    );
    wait("a job of the CronJob is done", || {
        let jobs = kubectl.json(&["get", "jobs"]);
        thread::sleep(Duration::from_secs(1));
        jobs["items"].as_array().into_iter().flatten().any(|job| {
            job["metadata"]["ownerReferences"][0]["kind"] == "CronJob" && job["status"]["succeeded"] == 1
        })
    });
    wait("it is noted", || {
        thread::sleep(Duration::from_millis(300));
        kubectl.json(&["get", "cronjob", "often"])["status"]["lastSuccessfulTime"].is_string()
    });
    kubectl.ok(&["delete", "cronjob", "often"]);
    is_gone(kubectl, &["jobs"]);
}

/// Pods one after the other, and one on each node.
fn sets(kubectl: &Kubectl, _: &str) {
    apply(kubectl, &format!(
        "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: s}}, spec: {{replicas: 2, serviceName: s,
          selector: {{matchLabels: {{app: s}}}}, template: {{metadata: {{labels: {{app: s}}}}, spec: {{{}}}}}}}}}",
        pods("pause")
    ));
    apply(kubectl, &format!(
        "{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: d}}, spec: {{
          selector: {{matchLabels: {{app: d}}}}, template: {{metadata: {{labels: {{app: d}}}}, spec: {{{}}}}}}}}}",
        pods("pause")
    ));
    becomes(kubectl, &["statefulset", "s"], "{.status.readyReplicas}", "2");
    becomes(kubectl, &["pods", "-l", "app=s"], "{.items[*].metadata.name}", "s-0 s-1");
    becomes(kubectl, &["daemonset", "d"], "{.status.desiredNumberScheduled} {.status.numberReady}", "1 1");
    kubectl.ok(&["delete", "statefulset/s", "daemonset/d"]);
    is_gone(kubectl, &["pods"]);
    is_gone(kubectl, &["controllerrevisions"]);
}

/// Endpoints follow Pods, and a budget protects them.
fn services(kubectl: &Kubectl, _: &str) {
    apply(kubectl, &deployment(2));
    apply(
        kubectl,
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}",
    );
    apply(
        kubectl,
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}",
    );
    becomes(kubectl, &["endpointslices"], "{.items[0].endpoints[*].conditions.ready}", "true true");
    becomes(
        kubectl,
        &["poddisruptionbudget", "web"],
        "{.status.currentHealthy} {.status.disruptionsAllowed}",
        "2 1",
    );
    kubectl.ok(&["scale", "deployment/web", "--replicas=1"]);
    becomes(kubectl, &["endpointslices"], "{.items[0].endpoints[*].conditions.ready}", "true");
    kubectl.ok(&["delete", "service", "web"]);
    is_gone(kubectl, &["endpointslices"]);
}

fn owned(name: &str, owner: &Value, blocking: bool) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, ownerReferences: [{{apiVersion: {}, kind: {}, name: {}, uid: {},
          blockOwnerDeletion: {blocking}}}]}}}}",
        owner["apiVersion"], owner["kind"], owner["metadata"]["name"], owner["metadata"]["uid"],
    )
}

/// What is owned goes with its owner, before it, or stays, as was asked.
fn garbage(kubectl: &Kubectl, _: &str) {
    for (cascade, stays) in [("background", false), ("foreground", false), ("orphan", true)] {
        kubectl.ok(&["create", "configmap", "owner"]);
        let owner = kubectl.json(&["get", "configmap", "owner"]);
        apply(kubectl, &owned(&format!("of-{cascade}"), &owner, cascade == "foreground"));
        kubectl.ok(&["delete", "configmap", "owner", &format!("--cascade={cascade}"), "--timeout=55s"]);
        match stays {
            true => becomes(kubectl, &["configmap", "of-orphan"], "{.metadata.ownerReferences}", ""),
            false => is_gone(kubectl, &["configmap", &format!("of-{cascade}")]),
        }
    }
}

/// Creates owners of a custom type and deletes its definition with all of them.
fn custom(kubectl: &Kubectl, namespace: &str) {
    let group = format!("{namespace}.example.com");
    apply(kubectl, &format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: widgets.{group}}},
          spec: {{group: {group}, scope: Namespaced, names: {{plural: widgets, singular: widget, kind: Widget}},
          versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]}}}}"
    ));
    let definition = format!("crd/widgets.{group}");
    kubectl.ok(&["wait", "--for=condition=Established", &definition, "--timeout=55s"]);
    let widgets = format!("widgets.{group}");
    apply(kubectl, &format!("{{apiVersion: {group}/v1, kind: Widget, metadata: {{name: owner}}}}"));
    let owner = kubectl.json(&["get", &widgets, "owner"]);
    apply(kubectl, &owned("owned", &owner, false));
    kubectl.ok(&["delete", &widgets, "owner", "--timeout=55s"]);
    is_gone(kubectl, &["configmap", "owned"]);
    apply(kubectl, &format!("{{apiVersion: {group}/v1, kind: Widget, metadata: {{name: last}}}}"));
    kubectl.ok(&["delete", &definition, "--timeout=55s"]);
}

/// A namespace goes with what is in it, once nothing holds that; a new one has its account and authority.
fn namespaces(kubectl: &Kubectl, namespace: &str) {
    becomes(kubectl, &["serviceaccount", "default"], "{.metadata.name}", "default");
    wait("the authority is there", || {
        thread::sleep(Duration::from_millis(300));
        let found = kubectl.run(&["get", "configmap", "kube-root-ca.crt", "-o=jsonpath={.data.ca\\.crt}"]);
        found.stdout.contains("BEGIN CERTIFICATE")
    });
    apply(
        kubectl,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}",
    );
    kubectl.ok(&["create", "configmap", "free"]);
    kubectl.ok(&["delete", "namespace", namespace, "--wait=false"]);
    let condition = "{.status.conditions[?(@.type=='NamespaceFinalizersRemaining')].status}";
    becomes(kubectl, &["namespace", namespace], condition, "True");
    is_gone(kubectl, &["configmap", "free"]);
    kubectl.ok(&["patch", "configmap", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    is_gone(kubectl, &["namespace", namespace]);
}

/// What is counted is refused beyond its limit, and counted down again.
fn quotas(kubectl: &Kubectl, _: &str) {
    apply(
        kubectl,
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {count/secrets: '2', pods: '1'}}}",
    );
    becomes(kubectl, &["resourcequota", "q"], "{.status.used}", r#"{"count/secrets":"0","pods":"0"}"#);
    for name in ["a", "b"] {
        kubectl.ok(&["create", "secret", "generic", name]);
    }
    let refused = kubectl.fails(&["create", "secret", "generic", "c"]);
    assert!(
        refused.contains(
            "exceeded quota: q, requested: count/secrets=1, used: count/secrets=2, limited: count/secrets=2"
        ),
        "{refused}"
    );
    kubectl.ok(&["delete", "secret", "a"]);
    becomes(kubectl, &["resourcequota", "q"], "{.status.used.count/secrets}", "1");
    kubectl.ok(&["create", "secret", "generic", "c"]);
}

/// Roles that are made of others.
fn roles(kubectl: &Kubectl, namespace: &str) {
    apply(
        kubectl,
        &format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: {namespace}-whole}},
          aggregationRule: {{clusterRoleSelectors: [{{matchLabels: {{part-of: {namespace}}}}}]}}}}"
    ),
    );
    apply(kubectl, &format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: {namespace}-part, labels: {{part-of: {namespace}}}}},
          rules: [{{apiGroups: [''], resources: [pods], verbs: [get]}}]}}"
    ));
    let rule = "{.rules[0].resources[0]}";
    becomes(kubectl, &["clusterrole", &format!("{namespace}-whole")], rule, "pods");
    kubectl.ok(&["delete", "clusterrole", &format!("{namespace}-whole"), &format!("{namespace}-part")]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_lines_that_real_clusters_do_not_have() {
        let rows = [
            ("E1121 10:00:00.000000  1 a.go:1] \"Unhandled Error\" err=\"decoding failed\"", true),
            ("F1121 10:00:00.000000  1 a.go:1] it ends", true),
            (
                "E1121 10:00:00.000000  1 a.go:1] the object has been modified; please apply your changes to the latest version and try again",
                false,
            ),
            ("I1121 10:00:00.000000  1 a.go:1] Error syncing", false),
            ("Every word", false),
        ];
        for (line, expected) in rows {
            assert_eq!(is_error(line), expected, "{line}");
        }
    }
}
