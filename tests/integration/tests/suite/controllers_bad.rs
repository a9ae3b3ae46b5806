//! Controllers and bad input: what others wrote badly harms itself alone, and a plane in which everything fails keeps no other
//! waiting.

use crate::{PATIENCE, items, text};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_integration::{Engine, Http, Kubectl, Server, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    what_is_written_badly_stops_no_controller,
    a_plane_in_which_everything_fails_backs_off_alone,
);

/// Panics of all controllers so far.
fn panics(world: &World) -> u64 {
    let metrics = world.admin().ok(&["get", "--raw", "/metrics"]);
    let counted =
        metrics.lines().filter(|line| line.starts_with("freehold_controller_reconcile_panics_total"));
    counted.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn template(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "registry.example/x"}]}})
}

fn deployment(name: &str, replicas: u32, annotations: &Value) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "annotations": annotations},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(&labels)},
    })
}

/// Objects that the API takes and that make little sense.
fn strange() -> Vec<Value> {
    let map = |name: &str, owner: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]}});
    let owner = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name, "uid": "00000000-0000-0000-0000-000000000001", "controller": true});
    let numbers = json!({
        "deployment.kubernetes.io/revision": "many", "deployment.kubernetes.io/max-replicas": "-1",
        "deployment.kubernetes.io/desired-replicas": "1e9", "deprecated.deployment.rollback.to": "yesterday",
    });
    let mut pod = template(&json!({"app": "strange"}));
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "strange".into();
    pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    pod["metadata"]["annotations"] = json!({
        "controller.kubernetes.io/pod-deletion-cost": "-2147483648", "batch.kubernetes.io/job-completion-index": "x",
    });
    pod["metadata"]["ownerReferences"] = json!([owner("batch/v1", "Job", "none")]);
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "FQDN",
        "endpoints": [{"addresses": ["a.example"]}], "ports": [],
        "metadata": {"name": "strange", "labels": {
            "kubernetes.io/service-name": "none", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
    });
    vec![
        map("of-nothing", owner("nonsense.example/v9", "Nothing", "none")),
        map("of-a-cluster", owner("rbac.authorization.k8s.io/v1", "ClusterRole", "none")),
        deployment("numbers", 1, &numbers),
        pod,
        slice,
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "strange"},
            "spec": {"hard": {"count/nothings.nonsense.example": "3", "requests.nonsense.example/x": "0"}}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "strange"},
            "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "strange"}}}}),
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "lock", "annotations": {
            "control-plane.alpha.kubernetes.io/leader": "{"}}, "subsets": []}),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "never"}, "spec": {
            "schedule": "0 0 31 2 *", "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/x"}]}}}}}}),
    ]
}

fn has_pods(kubectl: &Kubectl, app: &str, count: usize) {
    until(&format!("{app} has {count} pods"), PATIENCE, || {
        let pods = kubectl.json(&["get", "pods", "-l", &format!("app={app}")]);
        (items(&pods).count() == count).then_some(())
    });
}

fn what_is_written_badly_stops_no_controller(world: &World) {
    let kubectl = world.namespace("strange", "strange");
    until("there is a service account", PATIENCE, || {
        kubectl.run(&["get", "serviceaccount", "default"]).success.then_some(())
    });
    let before = panics(world);
    for object in strange() {
        let made = kubectl.run_with_input(&["create", "-f", "-"], &object.to_string());
        assert!(made.success, "{object}: {}", made.stderr);
    }
    // Statuses that no controller would have written.
    for (kind, name, status) in [
        ("deployment", "numbers", json!({"observedGeneration": -5, "replicas": 900, "conditions": []})),
        (
            "cronjob",
            "never",
            json!({"lastScheduleTime": "2999-01-01T00:00:00Z", "active": [{"name": "gone"}]}),
        ),
        (
            "pdb",
            "strange",
            json!({"disruptedPods": {"nobody": "2999-01-01T00:00:00Z"}, "observedGeneration": 99}),
        ),
    ] {
        let patch = json!({ "status": status }).to_string();
        kubectl.run(&["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch]);
    }
    has_pods(&kubectl, "numbers", 1);
    kubectl.apply(&deployment("sound", 2, &json!({})).to_string());
    has_pods(&kubectl, "sound", 2);
    until("what belongs to nothing goes, or stays where that can't be told", PATIENCE, || {
        let maps = kubectl.json(&["get", "configmaps"]);
        let names: Vec<&str> = items(&maps).map(|map| text(map, "/metadata/name")).collect();
        (names.contains(&"of-nothing") && !names.contains(&"of-a-cluster")).then_some(())
    });
    World::gone(&kubectl, &["pod", "strange"]);
    kubectl.ok(&["delete", "namespace", "strange", "--timeout=120s"]);
    assert_eq!(panics(world), before, "a controller panicked");
}

fn a_plane_in_which_everything_fails_backs_off_alone(world: &World) {
    let failing = world.namespace("failing", "failing");
    let bystander = world.namespace("failing-bystander", "fine");
    failing.ok(&["create", "quota", "none", "--hard=pods=0"]);
    until("the quota counts", PATIENCE, || {
        let quota = failing.json(&["get", "quota", "none"]);
        (text(&quota, "/status/hard/pods") == "0").then_some(())
    });
    failing.ok(&["wait", "--for=create", "serviceaccount/default", "--timeout=120s"]);
    let many: Vec<Value> = (0..30).map(|nth| deployment(&format!("d{nth}"), 3, &json!({}))).collect();
    failing.apply(&json!({"apiVersion": "v1", "kind": "List", "items": many}).to_string());
    for nth in 0..3 {
        let name = format!("fine-{nth}");
        bystander.apply(&deployment(&name, 2, &json!({})).to_string());
        has_pods(&bystander, &name, 2);
    }
    let told = until("a deployment says why", PATIENCE, || {
        let deployment = failing.json(&["get", "deployment", "d29"]);
        let conditions = deployment["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| text(condition, "/type") == "ReplicaFailure")
    });
    assert_eq!(text(&told, "/reason"), "FailedCreate");
    assert!(text(&told, "/message").contains("exceeded quota"), "{told}");
    assert_eq!(items(&failing.json(&["get", "pods"])).count(), 0);
    // What held it up goes, and it goes on: within its backoff.
    failing.ok(&["delete", "quota", "none"]);
    failing.ok(&["scale", "deployment", "d0", "--replicas=1"]);
    has_pods(&failing, "d0", 1);
}

/// On an etcd whoever has its keys may write anything. What no program can read is left out and told of in the log; what
/// another version wrote is taken as it is; neither keeps the rest from being served and looked after, also after a restart.
#[test]
fn what_was_written_below_the_api_stops_neither_server_nor_controllers() {
    let mut server = Server::start(Engine::Etcd);
    server.kubectl().apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\n---\n\
         apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\n\
         spec: {ownerRef: {kind: Organization, name: acme}}\n",
    );
    let kubectl = server.project("web").with(&["--namespace", "default"]);
    until("there is a service account", PATIENCE, || {
        kubectl.run(&["get", "serviceaccount", "default"]).success.then_some(())
    });
    let plane = text(&server.kubectl().json(&["get", "project", "web"]), "/metadata/uid").to_owned();
    let etcd = Http::plain(&server.etcd_url().expect("an etcd"));
    let put = |group: &str, resource: &str, name: &str, value: &[u8]| {
        let key = format!("/freehold/planes/{plane}/{group}/{resource}/default/{name}");
        let [key, value] = [key.as_bytes(), value].map(|bytes| BASE64_STANDARD.encode(bytes));
        let answer = etcd.json(Method::POST, "/v3/kv/put", &json!({"key": key, "value": value}));
        assert_eq!(answer.code, 200, "{}", answer.body);
    };
    // A key as the server writes it, so that the others are where the server looks.
    kubectl.ok(&["create", "configmap", "sound"]);
    let prefix = BASE64_STANDARD.encode(format!("/freehold/planes/{plane}/"));
    let end = BASE64_STANDARD.encode(format!("/freehold/planes/{plane}0"));
    let range = json!({"key": prefix, "range_end": end, "keys_only": true});
    let keys = etcd.json(Method::POST, "/v3/kv/range", &range).body;
    let found = keys["kvs"].as_array().into_iter().flatten().find_map(|kv| {
        let key = String::from_utf8(BASE64_STANDARD.decode(text(kv, "/key")).ok()?).ok()?;
        key.ends_with("/configmaps/default/sound").then_some(key)
    });
    let core = found.expect("the key of a ConfigMap");
    let core = core.split('/').nth(4).expect("a group").to_owned();

    for (resource, group) in
        [("configmaps", core.as_str()), ("pods", core.as_str()), ("jobs", "batch"), ("replicasets", "apps")]
    {
        put(group, resource, "no-format", b"\xffnonsense");
        put(group, resource, "no-json", b"\x01{\"metadata\":");
        put(group, resource, "no-object", b"\x01[1, 2]");
        put(group, resource, "empty", b"");
        put(group, resource, "no-metadata", b"\x01{\"metadata\":7,\"spec\":[]}");
    }
    let place = |kind: &str, version: &str, name: &str| {
        json!({"apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "labels": {"a": 5},
            "ownerReferences": "many", "finalizers": {"x": 1}, "creationTimestamp": "tomorrow", "generation": "first"}})
    };
    for (group, resource, kind, version) in [
        (core.as_str(), "pods", "Pod", "v1"),
        ("batch", "jobs", "Job", "batch/v1"),
        ("batch", "cronjobs", "CronJob", "batch/v9"),
        ("apps", "replicasets", "ReplicaSet", "apps/v1"),
        ("apps", "deployments", "Deployment", "apps/v9beta3"),
        (core.as_str(), "resourcequotas", "ResourceQuota", "v1"),
        ("policy", "poddisruptionbudgets", "PodDisruptionBudget", "policy/v1"),
    ] {
        let mut object = place(kind, version, "of-another-version");
        object["spec"] =
            json!({"replicas": "three", "selector": [1], "template": 9, "hard": [], "schedule": {}});
        object["status"] = json!([{"conditions": "fine"}]);
        put(group, resource, "of-another-version", format!("\u{1}{object}").as_bytes());
    }
    let look = |name: &str, kubectl: &Kubectl| {
        kubectl.apply(&deployment(name, 2, &json!({})).to_string());
        has_pods(kubectl, name, 2);
        let maps = kubectl.json(&["get", "configmaps"]);
        let names: Vec<&str> = items(&maps).map(|map| text(map, "/metadata/name")).collect();
        assert!(names.contains(&"sound") && !names.contains(&"no-json"), "{names:?}");
    };
    look("before", &kubectl);
    server.restart();
    look("after", &server.project("web").with(&["--namespace", "default"]));
    let metrics = server.kubectl().ok(&["get", "--raw", "/metrics"]);
    let panicked = metrics.lines().filter(|line| {
        line.starts_with("freehold_controller_reconcile_panics_total") && !line.ends_with(" 0")
    });
    assert_eq!(panicked.collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(server.log().contains("skipped"), "the log says what is left out");
}
