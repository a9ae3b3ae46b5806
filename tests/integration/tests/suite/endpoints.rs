//! Names and addresses: Endpoints and EndpointSlices follow Services and pods. Pods run nowhere here: their statuses are written
//! as a node would write them.

use crate::{PATIENCE, contains_all, items, text};
use freehold_tests_integration::{Kubectl, World, facts, until};
use serde_json::{Value, json};

facts!(world:
    a_service_has_slices_of_at_most_a_hundred_endpoints,
    pods_that_name_a_port_differently_are_in_slices_of_their_own,
    slices_tell_what_is_ready_and_what_ends,
    endpoints_written_by_hand_are_mirrored,
);

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn pod(name: &str, node: &str, port: u16) -> Value {
    let container = json!({
        "name": "c", "image": "registry.example/x", "ports": [{"name": "web", "containerPort": port}],
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 600},
    })
}

/// Makes pods and gives each an address and a status.
fn run(kubectl: &Kubectl, pods: &[Value], ready: bool) {
    until("there is a service account", PATIENCE, || {
        kubectl.run(&["get", "serviceaccount", "default"]).success.then_some(())
    });
    kubectl.apply(&list(pods));
    play(kubectl, pods, ready);
}

/// Gives each of some pods an address and a status.
fn play(kubectl: &Kubectl, pods: &[Value], ready: bool) {
    let all = kubectl.json(&["get", "pods"]);
    let status = |pod: &Value| {
        let mut pod = pod.clone();
        let name = text(&pod, "/metadata/name").to_owned();
        let at = pods.iter().position(|made| text(made, "/metadata/name") == name)?;
        let ip = format!("10.{}.{}.{}", name.len(), at / 200, at % 200 + 1);
        let word = if ready { "True" } else { "False" };
        let condition =
            json!({"type": "Ready", "status": word, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        for (field, value) in [
            ("phase", json!("Running")),
            ("podIP", json!(ip)),
            ("podIPs", json!([{"ip": ip}])),
            ("conditions", json!([condition])),
        ] {
            pod["status"][field] = value;
        }
        Some(pod)
    };
    let played: Vec<Value> = items(&all).filter_map(status).collect();
    let written = kubectl.run_with_input(&["replace", "--subresource=status", "-f", "-"], &list(&played));
    assert!(written.success, "{}", written.stderr);
}

fn node(kubectl: &Kubectl, name: &str) {
    let labels = json!({"topology.kubernetes.io/zone": "here"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    kubectl.apply(&node.to_string());
}

fn service(kubectl: &Kubectl, more: &Value) {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    kubectl.apply(&service.to_string());
}

fn slices(kubectl: &Kubectl) -> Vec<Value> {
    let slices = kubectl.json(&["get", "endpointslices", "-l", "kubernetes.io/service-name=web"]);
    items(&slices).cloned().collect()
}

fn endpoints(slice: &Value) -> &[Value] {
    slice["endpoints"].as_array().map_or(&[], Vec::as_slice)
}

/// Waits until the Service's slices have so many endpoints each.
fn counts(kubectl: &Kubectl, wanted: &[usize]) -> Vec<Value> {
    until(&format!("slices of {wanted:?} endpoints"), PATIENCE, || {
        let slices = slices(kubectl);
        let mut counts: Vec<usize> = slices.iter().map(|slice| endpoints(slice).len()).collect();
        counts.sort_unstable();
        (counts == wanted).then_some(slices)
    })
}

fn a_service_has_slices_of_at_most_a_hundred_endpoints(world: &World) {
    let kubectl = world.namespace("endpoints", "many");
    node(&kubectl, "many");
    service(&kubectl, &json!({"selector": {"app": "nobody"}}));
    counts(&kubectl, &[0]);
    let pods: Vec<Value> = (0..120).map(|nth| pod(&format!("p{nth:03}"), "many", 8080)).collect();
    run(&kubectl, &pods, true);
    // How endpoints that come little by little are put into slices depends on when they do: these are all there by then.
    kubectl.ok(&["create", "service", "clusterip", "all", "--tcp=80"]);
    kubectl.ok(&["set", "selector", "service/all", "app=web"]);
    until("the controller knows all of them", PATIENCE, || {
        let all = kubectl.json(&["get", "endpointslices", "-l", "kubernetes.io/service-name=all"]);
        (items(&all).map(|slice| endpoints(slice).len()).sum::<usize>() == 120).then_some(())
    });
    kubectl.ok(&["set", "selector", "service/web", "app=web"]);
    let found = counts(&kubectl, &[20, 100]);
    assert!(found.iter().all(|slice| slice["ports"][0]["port"] == 8080), "{found:?}");
    let whole = until("Endpoints with all", PATIENCE, || {
        let whole = kubectl.json(&["get", "endpoints", "web"]);
        (whole["subsets"][0]["addresses"].as_array().map(Vec::len) == Some(120)).then_some(whole)
    });
    assert_eq!(whole["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"], "endpoint-controller");
    // Somebody deletes a slice: it is made again. A pod goes: one slice changes.
    kubectl.ok(&["delete", "endpointslice", text(&found[0], "/metadata/name")]);
    counts(&kubectl, &[20, 100]);
    kubectl.ok(&["delete", "pod", "p000", "--grace-period=0", "--force"]);
    until("one less", PATIENCE, || {
        (slices(&kubectl).iter().map(|slice| endpoints(slice).len()).sum::<usize>() == 119).then_some(())
    });
    kubectl.ok(&["delete", "service", "web"]);
    World::gone(&kubectl, &["endpoints", "web"]);
    World::gone(&kubectl, &["endpointslices", "-l", "kubernetes.io/service-name=web"]);
}

fn pods_that_name_a_port_differently_are_in_slices_of_their_own(world: &World) {
    let kubectl = world.namespace("endpoints", "ports");
    node(&kubectl, "ports");
    service(&kubectl, &json!({"trafficDistribution": "PreferSameZone"}));
    run(&kubectl, &[pod("a", "ports", 8080), pod("b", "ports", 9090)], true);
    let found = counts(&kubectl, &[1, 1]);
    let mut ports: Vec<&Value> = found.iter().map(|slice| &slice["ports"][0]["port"]).collect();
    ports.sort_by_key(|port| port.as_i64());
    assert_eq!(ports, [8080, 9090]);
    for slice in &found {
        let endpoint = &slice["endpoints"][0];
        assert_eq!((&endpoint["zone"], &endpoint["nodeName"]), (&json!("here"), &json!("ports")));
        assert_eq!(endpoint["hints"], json!({"forZones": [{"name": "here"}]}));
    }
    until("a subset for each", PATIENCE, || {
        let whole = kubectl.json(&["get", "endpoints", "web"]);
        (whole["subsets"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
}

fn slices_tell_what_is_ready_and_what_ends(world: &World) {
    let kubectl = world.namespace("endpoints", "states");
    node(&kubectl, "states");
    service(&kubectl, &json!({"clusterIP": "None"}));
    run(&kubectl, &[pod("a", "states", 8080)], false);
    let conditions = |ready: bool, serving: bool, terminating: bool| {
        let wanted = json!({"ready": ready, "serving": serving, "terminating": terminating});
        until(&format!("{wanted}"), PATIENCE, || {
            let slice = slices(&kubectl).into_iter().next()?;
            (slice["endpoints"][0]["conditions"] == wanted).then_some(slice)
        })
    };
    let slice = conditions(false, false, false);
    assert_eq!(slice["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    play(&kubectl, &[pod("a", "states", 8080)], true);
    conditions(true, true, false);
    kubectl.ok(&["delete", "pod", "a", "--wait=false"]);
    conditions(false, true, true);
    kubectl.ok(&[
        "patch",
        "service",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"publishNotReadyAddresses":true}}"#,
    ]);
    conditions(true, true, true);
}

fn endpoints_written_by_hand_are_mirrored(world: &World) {
    let kubectl = world.namespace("endpoints", "by-hand");
    kubectl.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]},
    }).to_string());
    let write = |addresses: &[&str]| {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        kubectl.apply(&json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "labels": {"by": "hand"}},
            "subsets": [{"addresses": addresses, "ports": [{"port": 8080}]}],
        }).to_string());
    };
    write(&["10.1.2.3", "fd00::1"]);
    let found = counts(&kubectl, &[1, 1]);
    for slice in &found {
        let labels = slice["metadata"]["labels"].to_string();
        contains_all(&labels, &["endpointslicemirroring-controller.k8s.io", r#""by":"hand""#]);
    }
    write(&["10.1.2.3", "10.1.2.4"]);
    let found = counts(&kubectl, &[2]);
    assert_eq!(found[0]["addressType"], "IPv4");
    kubectl.ok(&["label", "endpoints", "web", "endpointslice.kubernetes.io/skip-mirror=true"]);
    counts(&kubectl, &[]);
    kubectl.ok(&["label", "endpoints", "web", "endpointslice.kubernetes.io/skip-mirror-"]);
    counts(&kubectl, &[2]);
    kubectl.ok(&["delete", "endpoints", "web"]);
    counts(&kubectl, &[]);
}
