//! Point 3: what people do with `kubectl` in a project.

use crate::{PATIENCE, Scratch, contains_all, items, names, row, text};
use freehold_tests_integration::{World, facts, until};

const PROJECT: &str = "verbs";

facts!(world:
    create_makes_the_kinds_that_people_begin_with,
    apply_creates_configures_leaves_unchanged_and_prunes,
    server_side_apply_reports_conflicts_and_takes_fields_by_force,
    edit_writes_what_the_editor_saved,
    patch_takes_all_three_kinds_of_patch,
    label_and_annotate_add_change_and_remove,
    get_prints_tables_documents_and_parts,
    get_selects_by_labels_and_fields,
    get_watch_prints_each_change,
    describe_tells_of_objects_and_their_events,
    delete_takes_names_files_and_selectors,
    auth_can_i_answers_for_the_admin_and_for_others,
    api_resources_names_what_is_served,
    explain_reads_the_schemas,
    wait_waits_for_conditions_fields_creation_and_deletion,
    events_are_listed_in_both_versions,
);

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: 'registry.example/web:1'}]}
";

fn create_makes_the_kinds_that_people_begin_with(world: &World) {
    let kubectl = world.namespace(PROJECT, "create");
    let file = Scratch::new(world, "create.properties", "a=1\nb=2\n");
    let from_file = format!("--from-file={}", file.path());
    let rows: [&[&str]; 14] = [
        &["configmap", "a", "--from-literal=k=v", &from_file],
        &["secret", "generic", "b", "--from-literal=password=hidden"],
        &["serviceaccount", "c"],
        &["role", "d", "--verb=get,list", "--resource=pods,deployments.apps"],
        &["rolebinding", "e", "--role=d", "--serviceaccount=create:c"],
        &["clusterrole", "create-f", "--verb=get", "--non-resource-url=/metrics"],
        &["clusterrolebinding", "create-g", "--clusterrole=view", "--user=jane"],
        &["deployment", "h", "--image=registry.example/h:1", "--replicas=0"],
        &["service", "clusterip", "i", "--tcp=80:8080"],
        &["job", "j", "--image=registry.example/j:1"],
        &["cronjob", "k", "--image=registry.example/k:1", "--schedule=@daily"],
        &["quota", "l", "--hard=configmaps=100"],
        &["poddisruptionbudget", "m", "--selector=app=web", "--min-available=1"],
        &["ingress", "n", "--rule=web.example/=i:80"],
    ];
    for arguments in rows {
        let all: Vec<&str> = ["create"].iter().chain(arguments).copied().collect();
        contains_all(&kubectl.ok(&all), &[" created"]);
        contains_all(&kubectl.fails(&all), &["already exists"]);
    }
    let map = kubectl.json(&["get", "configmap", "a"]);
    assert_eq!((&map["data"]["k"], &map["data"]["create.properties"]), (&"v".into(), &"a=1\nb=2\n".into()));
    assert_eq!(kubectl.json(&["get", "secret", "b"])["data"]["password"], "aGlkZGVu");
    let token = kubectl.ok(&["create", "token", "c"]);
    assert_eq!(token.trim().split('.').count(), 3, "a JSON web token has three parts: {token}");
    let dry = kubectl.ok(&["create", "configmap", "dry", "--dry-run=server", "-o", "name"]);
    assert_eq!(dry.trim(), "configmap/dry");
    contains_all(&kubectl.fails(&["get", "configmap", "dry"]), &["NotFound"]);
}

fn apply_creates_configures_leaves_unchanged_and_prunes(world: &World) {
    let kubectl = world.namespace(PROJECT, "apply");
    let manifest = |data: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, labels: {{set: one}}}}\ndata: {data}\n"
        )
    };
    for (data, outcome) in [
        ("{k: v, gone: soon}", "configmap/a created"),
        ("{k: v, gone: soon}", "configmap/a unchanged"),
        ("{k: w}", "configmap/a configured"),
    ] {
        contains_all(&kubectl.apply(&manifest(data)), &[outcome]);
    }
    assert_eq!(kubectl.json(&["get", "configmap", "a"])["data"], serde_json::json!({"k": "w"}));
    kubectl.apply(DEPLOYMENT);
    contains_all(&kubectl.apply(DEPLOYMENT), &["deployment.apps/web unchanged"]);
    let both = format!("{}---\n{}", manifest("{k: w}"), manifest("{}").replace("name: a", "name: b"));
    kubectl.apply(&both);
    let prune = ["apply", "--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"];
    let pruned = kubectl.run_with_input(&prune, &manifest("{k: w}")).expect_ok();
    contains_all(&pruned, &["configmap/a unchanged", "configmap/b pruned"]);
    let diff = kubectl.run_with_input(&["diff", "-f", "-"], &manifest("{k: x}"));
    contains_all(&diff.stdout, &["-  k: w", "+  k: x"]);
    assert!(!diff.success, "a difference is told by the exit code, too");
    kubectl.run_with_input(&["diff", "-f", "-"], &manifest("{k: w}")).expect_ok();
    kubectl.ok(&["apply", "view-last-applied", "configmap/a"]);
}

fn server_side_apply_reports_conflicts_and_takes_fields_by_force(world: &World) {
    let kubectl = world.namespace(PROJECT, "server-side");
    let apply = |manager: &str, value: &str, more: &[&str]| {
        let field_manager = format!("--field-manager={manager}");
        let args = ["apply", "--server-side", &field_manager, "-f", "-"];
        let args: Vec<&str> = args.into_iter().chain(more.iter().copied()).collect();
        let manifest =
            format!("---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {{k: {value}}}}}");
        kubectl.run_with_input(&args, &manifest)
    };
    contains_all(&apply("one", "first", &[]).expect_ok(), &["configmap/a serverside-applied"]);
    let complaint = apply("two", "second", &[]).expect_failure();
    contains_all(&complaint, &["Apply failed with 1 conflict", "conflict with \"one\"", ".data.k"]);
    contains_all(&apply("two", "second", &["--force-conflicts"]).expect_ok(), &["serverside-applied"]);
    apply("two", "second", &[]).expect_ok();
    let map = kubectl.json(&["get", "configmap", "a", "--show-managed-fields"]);
    assert_eq!(map["data"]["k"], "second");
    let managers = map["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let managers: Vec<&str> =
        managers.iter().map(|m| text(m, "/manager")).filter(|m| *m == "two").map(|_| "two").collect();
    assert_eq!(managers, ["two"], "who lost its only field manages nothing: {map}");
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], DEPLOYMENT).expect_ok();
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], DEPLOYMENT).expect_ok();
}

fn edit_writes_what_the_editor_saved(world: &World) {
    let kubectl = world.namespace(PROJECT, "edit");
    kubectl.ok(&["create", "configmap", "a", "--from-literal=k=before"]);
    let edit = kubectl.with_variable("KUBE_EDITOR", "sed -i s/before/after/");
    contains_all(&edit.ok(&["edit", "configmap", "a"]), &["configmap/a edited"]);
    assert_eq!(kubectl.json(&["get", "configmap", "a"])["data"]["k"], "after");
    let idle = kubectl.with_variable("KUBE_EDITOR", "true").run(&["edit", "configmap", "a"]);
    contains_all(&format!("{}{}", idle.stdout, idle.stderr), &["Edit cancelled, no changes made"]);
}

fn patch_takes_all_three_kinds_of_patch(world: &World) {
    let kubectl = world.namespace(PROJECT, "patch");
    kubectl.apply(DEPLOYMENT);
    let patch = |kind: &str, patch: &str, more: &[&str]| {
        let args = ["patch", "deployment", "web", "--type", kind, "-p", patch];
        kubectl.ok(&args.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let containers =
        "{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"side\",\"image\":\"s\"}]}}}}";
    contains_all(&patch("strategic", containers, &[]), &["deployment.apps/web patched"]);
    patch("merge", "{\"spec\":{\"replicas\":5},\"metadata\":{\"labels\":{\"tier\":\"front\"}}}", &[]);
    patch("json", "[{\"op\":\"add\",\"path\":\"/metadata/labels/zone\",\"value\":\"a\"}]", &[]);
    // Nobody else writes this one meanwhile.
    kubectl.ok(&["create", "configmap", "a", "--from-literal=k=v"]);
    let test = "[{\"op\":\"test\",\"path\":\"/data/k\",\"value\":\"v\"}]";
    contains_all(&kubectl.ok(&["patch", "configmap", "a", "--type=json", "-p", test]), &["(no change)"]);
    patch("merge", "{\"status\":{\"observedGeneration\":77}}", &["--subresource=status"]);
    let web = kubectl.json(&["get", "deployment", "web"]);
    let list = web["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let mut containers: Vec<&str> = list.iter().map(|c| text(c, "/name")).collect();
    containers.sort_unstable();
    assert_eq!(containers, ["main", "side"], "a strategic merge adds to the list");
    assert_eq!(web["spec"]["replicas"], 5);
    assert_eq!((text(&web, "/metadata/labels/zone"), text(&web, "/metadata/labels/tier")), ("a", "front"));
    let complaint = kubectl.fails(&[
        "patch",
        "deployment",
        "web",
        "--type=json",
        "-p",
        "[{\"op\":\"remove\",\"path\":\"/no\"}]",
    ]);
    contains_all(&complaint, &["the server rejected our request due to an error in our request"]);
}

fn label_and_annotate_add_change_and_remove(world: &World) {
    let kubectl = world.namespace(PROJECT, "label");
    kubectl.ok(&["create", "configmap", "a"]);
    for (command, field, outcome) in
        [("label", "labels", "labeled"), ("annotate", "annotations", "annotated")]
    {
        contains_all(&kubectl.ok(&[command, "configmap", "a", "k=v", "other=x"]), &[outcome]);
        contains_all(&kubectl.fails(&[command, "configmap", "a", "k=w"]), &["--overwrite is false"]);
        kubectl.ok(&[command, "configmap", "a", "k=w", "--overwrite"]);
        kubectl.ok(&[command, "configmap", "a", "other-"]);
        let map = kubectl.json(&["get", "configmap", "a"]);
        assert_eq!(map["metadata"][field], serde_json::json!({"k": "w"}));
    }
    let complaint = kubectl.fails(&["label", "configmap", "a", "k=not valid", "--overwrite"]);
    contains_all(&complaint, &["invalid label value"]);
}

fn get_prints_tables_documents_and_parts(world: &World) {
    let kubectl = world.namespace(PROJECT, "get");
    for (name, size) in [("b", "2"), ("a", "1"), ("c", "3")] {
        let literals = [format!("--from-literal=size={size}"), "--from-literal=k=v".to_owned()];
        kubectl.ok(&["create", "configmap", name, &literals[0], &literals[1]]);
    }
    kubectl.apply(DEPLOYMENT);
    assert_eq!(row(&kubectl.ok(&["get", "configmaps"]), "a")[..2], ["a", "2"]);
    let wide = kubectl.ok(&["get", "deployments", "-o", "wide"]);
    contains_all(
        &wide,
        &["READY", "UP-TO-DATE", "AVAILABLE", "CONTAINERS", "IMAGES", "SELECTOR", "app=web", "main"],
    );
    let all = kubectl.ok(&["get", "configmaps", "--all-namespaces"]);
    contains_all(&all, &["NAMESPACE", "kube-root-ca.crt"]);
    contains_all(&kubectl.ok(&["get", "deployment", "--show-labels"]), &["LABELS", "app=web"]);
    let yaml = kubectl.ok(&["get", "configmap", "a", "-o", "yaml"]);
    contains_all(
        &yaml,
        &["apiVersion: v1\n", "kind: ConfigMap\n", "  name: a\n", "  size: \"1\"\n", "  uid: "],
    );
    let rows: [(&[&str], &str); 5] = [
        (&["get", "configmap", "a", "-o", "name"], "configmap/a"),
        (&["get", "configmap", "a", "-o", "jsonpath={.data.size}"], "1"),
        (&["get", "configmap", "a", "-o", "go-template={{.data.size}}"], "1"),
        (&["get", "configmap", "a", "-o", "custom-columns=:data.size", "--no-headers"], "1"),
        (&["get", "configmap", "a", "deployment/web", "-o", "name"], ""),
    ];
    for (args, expected) in &rows[..4] {
        assert_eq!(kubectl.ok(args).trim(), *expected, "{args:?}");
    }
    let both = kubectl.ok(&["get", "configmap/a", "deployment/web", "-o", "name"]);
    assert_eq!(both, "configmap/a\ndeployment.apps/web\n");
    let sorted = kubectl.ok(&["get", "configmap", "-l", "!none", "--sort-by=.data.size", "-o", "name"]);
    let order: Vec<&str> = sorted.lines().filter(|line| !line.contains("kube-root-ca")).collect();
    assert_eq!(order, ["configmap/a", "configmap/b", "configmap/c"]);
    contains_all(&kubectl.ok(&["get", "all"]), &["deployment.apps/web"]);
    let none = kubectl.run(&["get", "secrets"]);
    contains_all(&none.stderr, &["No resources found in get namespace."]);
    let pages = kubectl.json(&["get", "configmaps", "--chunk-size=1"]);
    assert_eq!(names(&pages).iter().filter(|name| **name != "kube-root-ca.crt").count(), 3);
}

fn get_selects_by_labels_and_fields(world: &World) {
    let kubectl = world.namespace(PROJECT, "select");
    for (name, tier) in [("a", "front"), ("b", "back"), ("c", "store")] {
        kubectl.ok(&["create", "secret", "generic", name]);
        kubectl.ok(&["label", "secret", name, &format!("tier={tier}")]);
    }
    let rows = [
        ("-l", "tier=front", "a"),
        ("-l", "tier in (front,back)", "a b"),
        ("-l", "tier notin (front)", "b c"),
        ("-l", "!tier", ""),
        ("-l", "tier,tier!=store", "a b"),
        ("--field-selector", "metadata.name=b", "b"),
        ("--field-selector", "metadata.name!=b,type=Opaque", "a c"),
    ];
    for (flag, selector, expected) in rows {
        let found = kubectl.json(&["get", "secrets", flag, selector]);
        assert_eq!(names(&found).join(" "), expected, "{flag} {selector}");
    }
    let complaint = kubectl.fails(&["get", "secrets", "--field-selector", "data.x=y"]);
    contains_all(&complaint, &["field label not supported: data.x"]);
    contains_all(
        &kubectl.fails(&["get", "secrets", "-l", "a=b=c"]),
        &["found '=', expected: ',' or 'end of string'"],
    );
}

fn get_watch_prints_each_change(world: &World) {
    let kubectl = world.namespace(PROJECT, "watch");
    kubectl.ok(&["create", "configmap", "first"]);
    let watch = kubectl.background(&["get", "configmaps", "--watch", "--output-watch-events"]);
    watch.wait_for("first");
    kubectl.ok(&["create", "configmap", "second", "--from-literal=a=b"]);
    watch.wait_for("ADDED      second");
    kubectl.ok(&["label", "configmap", "first", "k=v"]);
    watch.wait_for("MODIFIED   first");
    kubectl.ok(&["delete", "configmap", "second"]);
    watch.wait_for("DELETED    second");
    let only = kubectl.background(&["get", "configmap", "--watch-only", "-l", "k=v", "-o", "name"]);
    until("the watch of labelled objects shows one that gets the label", PATIENCE, || {
        kubectl.ok(&["create", "configmap", "third"]);
        kubectl.ok(&["label", "configmap", "third", "k=v"]);
        kubectl.ok(&["delete", "configmap", "third"]);
        only.printed().contains("configmap/third").then_some(())
    });
    assert!(!only.printed().contains("second"));
}

fn describe_tells_of_objects_and_their_events(world: &World) {
    let kubectl = world.namespace(PROJECT, "describe");
    kubectl.apply(DEPLOYMENT);
    kubectl.ok(&["create", "configmap", "a", "--from-literal=k=v"]);
    kubectl.ok(&["create", "secret", "generic", "b", "--from-literal=password=hidden"]);
    kubectl.ok(&["create", "service", "clusterip", "s", "--tcp=80:8080"]);
    kubectl.ok(&["create", "role", "r", "--verb=get", "--resource=pods"]);
    let rows: [(&[&str], &[&str]); 7] = [
        (&["configmap", "a"], &["Name:         a", "Namespace:    describe", "k:\n"]),
        (&["secret", "b"], &["Type:  Opaque", "password:  6 bytes"]),
        (
            &["deployment", "web"],
            &[
                "Replicas:",
                "2 desired",
                "RollingUpdate",
                "25% max unavailable, 25% max surge",
                "registry.example/web:1",
            ],
        ),
        (&["service", "s"], &["Type:                     ClusterIP", "8080/TCP"]),
        (&["role", "r"], &["pods", "[get]"]),
        (&["namespace", "describe"], &["Status:       Active"]),
        (&["pods"], &["Controlled By:", "ReplicaSet/web-"]),
    ];
    kubectl.ok(&["wait", "--for=create", "pod", "-l", "app=web", "--timeout=120s"]);
    for (what, parts) in rows {
        let args: Vec<&str> = ["describe"].iter().chain(what).copied().collect();
        contains_all(&kubectl.ok(&args), parts);
    }
}

fn delete_takes_names_files_and_selectors(world: &World) {
    let kubectl = world.namespace(PROJECT, "delete");
    for name in ["a", "b", "c", "d", "e"] {
        kubectl.ok(&["create", "secret", "generic", name]);
    }
    kubectl.ok(&["label", "secret", "b", "c", "group=one"]);
    contains_all(&kubectl.ok(&["delete", "secret", "a", "--dry-run=server"]), &["deleted (server dry run)"]);
    contains_all(&kubectl.ok(&["delete", "secret", "a"]), &["secret \"a\" deleted"]);
    contains_all(&kubectl.fails(&["delete", "secret", "a"]), &["secrets \"a\" not found"]);
    kubectl.ok(&["delete", "secret", "a", "--ignore-not-found"]);
    kubectl.ok(&["delete", "secret", "-l", "group=one"]);
    assert_eq!(names(&kubectl.json(&["get", "secrets"])), ["d", "e"]);
    let manifest = "---\n{apiVersion: v1, kind: Secret, metadata: {name: d}}";
    kubectl.run_with_input(&["delete", "-f", "-"], manifest).expect_ok();
    kubectl.ok(&[
        "patch",
        "secret",
        "e",
        "-p",
        "{\"metadata\":{\"finalizers\":[\"tests.freehold.dev/hold\"]}}",
    ]);
    kubectl.ok(&["delete", "secret", "e", "--wait=false"]);
    assert_ne!(text(&kubectl.json(&["get", "secret", "e"]), "/metadata/deletionTimestamp"), "");
    kubectl.ok(&["patch", "secret", "e", "--type=merge", "-p", "{\"metadata\":{\"finalizers\":null}}"]);
    World::gone(&kubectl, &["secret", "e"]);
    kubectl.ok(&["create", "secret", "generic", "f"]);
    kubectl.ok(&["delete", "secret", "--all"]);
    assert_eq!(items(&kubectl.json(&["get", "secrets"])).count(), 0);
}

fn auth_can_i_answers_for_the_admin_and_for_others(world: &World) {
    let kubectl = world.namespace(PROJECT, "auth");
    kubectl.ok(&["create", "serviceaccount", "reader"]);
    kubectl.ok(&["create", "role", "read-maps", "--verb=get,list,watch", "--resource=configmaps"]);
    kubectl.ok(&["create", "rolebinding", "reader", "--role=read-maps", "--serviceaccount=auth:reader"]);
    let reader = "--as=system:serviceaccount:auth:reader";
    let rows: [(&[&str], &str); 6] = [
        (&["delete", "nodes"], "yes"),
        (&["list", "configmaps", reader], "yes"),
        (&["list", "configmaps", reader, "--namespace=default"], "no"),
        (&["delete", "configmaps", reader], "no"),
        (&["get", "secrets", reader], "no"),
        (&["get", "/metrics", reader], "no"),
    ];
    for (what, expected) in rows {
        let args: Vec<&str> = ["auth", "can-i"].iter().chain(what).copied().collect();
        let output = kubectl.run(&args);
        assert!(output.stdout.starts_with(expected), "{output}");
        assert_eq!(output.success, expected == "yes", "{output}");
    }
    contains_all(&kubectl.ok(&["auth", "can-i", "--list", reader]), &["configmaps", "[get list watch]"]);
    kubectl.ok(&["get", "configmaps", reader]);
    let complaint = kubectl.fails(&["get", "secrets", reader]);
    let words = "secrets is forbidden: User \"system:serviceaccount:auth:reader\" cannot list resource \"secrets\" \
                 in API group \"\" in the namespace \"auth\"";
    contains_all(&complaint, &["Error from server (Forbidden)", words]);
    contains_all(&kubectl.ok(&["auth", "whoami"]), &["Username", "Groups", "system:authenticated"]);
    let escalate =
        kubectl.fails(&["create", "rolebinding", "more", "--clusterrole=cluster-admin", "--user=x", reader]);
    contains_all(&escalate, &["forbidden"]);
}

fn api_resources_names_what_is_served(world: &World) {
    let kubectl = world.project(PROJECT);
    let table = kubectl.ok(&["api-resources"]);
    assert_eq!(row(&table, "deployments"), ["deployments", "deploy", "apps/v1", "true", "Deployment"]);
    assert_eq!(row(&table, "namespaces"), ["namespaces", "ns", "v1", "false", "Namespace"]);
    let named = kubectl.ok(&["api-resources", "-o", "name"]);
    let served = [
        "bindings",
        "configmaps",
        "endpoints",
        "events",
        "limitranges",
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "pods",
        "resourcequotas",
        "secrets",
        "serviceaccounts",
        "services",
        "daemonsets.apps",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "cronjobs.batch",
        "jobs.batch",
        "clusterroles.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "leases.coordination.k8s.io",
        "events.events.k8s.io",
        "endpointslices.discovery.k8s.io",
        "ingresses.networking.k8s.io",
        "networkpolicies.networking.k8s.io",
        "poddisruptionbudgets.policy",
        "priorityclasses.scheduling.k8s.io",
        "storageclasses.storage.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "subjectaccessreviews.authorization.k8s.io",
        "certificatesigningrequests.certificates.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "apiservices.apiregistration.k8s.io",
    ];
    for kind in served {
        assert!(named.lines().any(|line| line == kind), "{kind} is missing in\n{named}");
    }
    contains_all(&kubectl.ok(&["api-versions"]), &["apps/v1\n", "batch/v1\n", "v1\n"]);
    let listable = kubectl.ok(&["api-resources", "--verbs=list", "-o", "name"]);
    let all: Vec<&str> = listable.lines().collect();
    kubectl.ok(&["get", &all.join(","), "--all-namespaces"]);
}

fn explain_reads_the_schemas(world: &World) {
    let kubectl = world.project(PROJECT);
    let rows: [(&[&str], &[&str]); 4] = [
        (&["pod"], &["KIND:       Pod", "VERSION:    v1", "spec\t<PodSpec>"]),
        (
            &["deployment.spec.strategy"],
            &["GROUP:      apps", "FIELD: strategy <DeploymentStrategy>", "rollingUpdate"],
        ),
        (&["pods.spec.containers.image"], &["FIELD: image <string>"]),
        (&["configmap", "--recursive"], &["binaryData\t<map[string]string>", "managedFields"]),
    ];
    for (what, parts) in rows {
        let args: Vec<&str> = ["explain"].iter().chain(what).copied().collect();
        contains_all(&kubectl.ok(&args), parts);
    }
    contains_all(&kubectl.fails(&["explain", "pod.nothing"]), &["field \"nothing\" does not exist"]);
}

fn wait_waits_for_conditions_fields_creation_and_deletion(world: &World) {
    let kubectl = world.namespace(PROJECT, "wait");
    let created = kubectl.background(&["wait", "--for=create", "configmap/a", "--timeout=120s"]);
    kubectl.ok(&["create", "configmap", "a", "--from-literal=k=v"]);
    created.wait_for("configmap/a condition met");
    kubectl.ok(&["wait", "--for=jsonpath={.data.k}=v", "configmap/a", "--timeout=120s"]);
    kubectl.apply(DEPLOYMENT);
    let ready = kubectl.background(&["wait", "--for=condition=Tested", "deployment/web", "--timeout=120s"]);
    let condition = "{\"status\":{\"conditions\":[{\"type\":\"Tested\",\"status\":\"True\",\"reason\":\"T\",\"message\":\"m\"}]}}";
    until("the condition is seen", PATIENCE, || {
        // The controller writes conditions, too, and takes back those that it does not know.
        kubectl.ok(&["patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", condition]);
        ready.printed().contains("deployment.apps/web condition met").then_some(())
    });
    kubectl.ok(&["delete", "deployment", "web", "--cascade=foreground", "--wait=false"]);
    kubectl.ok(&["wait", "--for=delete", "deployment/web", "--timeout=120s"]);
    kubectl.apply(DEPLOYMENT);
    let complaint = kubectl.fails(&["wait", "--for=condition=Never", "deployment/web", "--timeout=1s"]);
    contains_all(&complaint, &["timed out waiting for the condition on deployments/web"]);
}

fn events_are_listed_in_both_versions(world: &World) {
    let kubectl = world.namespace(PROJECT, "events");
    kubectl.apply(
        "---\n{apiVersion: v1, kind: Event, metadata: {name: a.1}, reason: Tested, message: it was seen, type: Warning,
          involvedObject: {apiVersion: v1, kind: ConfigMap, name: a, namespace: events}, count: 3,
          source: {component: tests}, firstTimestamp: '2026-01-01T00:00:00Z', lastTimestamp: '2026-01-02T00:00:00Z'}",
    );
    for args in [
        &["events"][..],
        &["events", "--for=configmap/a"],
        &["events", "--types=Warning"],
        &["get", "events"],
    ] {
        contains_all(&kubectl.ok(args), &["Warning", "Tested", "it was seen"]);
    }
    let modern = kubectl.json(&["get", "events.events.k8s.io", "a.1"]);
    assert_eq!((text(&modern, "/note"), text(&modern, "/regarding/name")), ("it was seen", "a"));
    assert_eq!(modern["deprecatedCount"], 3);
    kubectl.apply(DEPLOYMENT);
    until("a controller tells what it does", PATIENCE, || {
        kubectl.ok(&["events", "--for=deployment/web"]).contains("ScalingReplicaSet").then_some(())
    });
}
