//! Two projects with objects of the same names on one cluster: the real program on both sides, with real processes. The
//! cluster is a project of another Freehold with `freehold node`, which serves the Kubernetes API that the syncer needs.

use freehold_tests_harness::{Engine, Kubectl, Options, Server, free_port, freehold_binary, until};
use freehold_workloads_decide::names::host_namespace;
use serde_json::json;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// A process that is killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(folder: &Path, name: &str, args: &[&str]) -> Self {
        let log = File::create(folder.join(format!("{name}.log"))).expect("a log");
        let mut command = Command::new(freehold_binary());
        command.args(args).env("FREEHOLD_LOG", "info,freehold_workloads_syncer=debug,freehold_runtime=debug");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        Self(command.spawn().expect("the program starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with two projects of a class whose Pods run on one cluster.
struct World {
    // Processes first: they go before what they use.
    _processes: Vec<Process>,
    server: Server,
    host: Kubectl,
    _host_server: Server,
}

const HOST: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: provider}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: host}
spec: {ownerRef: {kind: Organization, name: provider}}
";

const PROJECTS: &str = "
apiVersion: infrastructure.freehold.dev/v1alpha1
kind: WorkloadCluster
metadata: {name: shared, labels: {tier: small}}
spec: {kubeconfig: {namespace: freehold-system, name: shared}, networks: [10.0.0.0/8]}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: ControlPlaneClass
metadata: {name: pods}
spec:
  workloads:
    clusterSelector: {matchLabels: {tier: small}}
    quota: {pods: '20'}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: red}
spec: {ownerRef: {kind: Organization, name: acme}, controlPlane: {class: pods}}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: blue}
spec: {ownerRef: {kind: Organization, name: acme}, controlPlane: {class: pods}}
";

const POD: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: COLOR}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: shell
    command: [sh, -c, 'echo I am $COLOR in $NAMESPACE at $KUBERNETES_SERVICE_HOST; sleep 1000']
    env:
    - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
";

impl World {
    fn start() -> Self {
        let host_server = Server::start(Engine::Embedded);
        host_server.kubectl().apply(HOST);
        let host = host_server.project("host");
        let folder = host_server.folder().to_owned();
        let (kubeconfig, data) = (host.kubeconfig().display().to_string(), folder.join("node-data"));
        let data = data.display().to_string();
        let args = ["node", "--kubeconfig", &kubeconfig, "--data-dir", &data, "--image", "shell=/bin/sh"];
        let node = Process::start(&folder, "node", &args);
        let address = format!("127.0.0.1:{}", free_port());
        let args = vec!["--syncers".to_owned(), address.clone()];
        let server = Server::start(Options { args, ..Options::default() });
        let (admin, pki) = (server.admin_kubeconfig().display().to_string(), server.data_dir().join("pki"));
        let pki = pki.display().to_string();
        let args = ["syncer", "--kubeconfig", &admin, "--pki-dir", &pki, "--listen", &address];
        let syncer = Process::start(server.folder(), "syncer", &args);
        let text = std::fs::read_to_string(&kubeconfig).expect("a kubeconfig");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shared", "namespace": "freehold-system"},
            "stringData": {"kubeconfig": text},
        });
        server.kubectl().apply(&secret.to_string());
        server.kubectl().apply(PROJECTS);
        Self { _processes: vec![syncer, node], server, host, _host_server: host_server }
    }

    fn uid(&self, project: &str) -> String {
        self.server.kubectl().ok(&["get", "project", project, "-o", "jsonpath={.metadata.uid}"])
    }
}

#[test]
fn pods_of_projects_with_the_same_names_run_on_one_cluster_and_know_nothing_of_each_other() {
    let world = World::start();
    let projects = ["red", "blue"].map(|name| (name, world.server.project(name)));
    for (name, project) in &projects {
        project.apply(&POD.replace("COLOR}", &format!("{name}}}")));
    }
    for (name, project) in &projects {
        project.ok(&["wait", "--for=condition=Ready", "pod/web", "--timeout=120s"]);
        let log = until("the log is read through the syncer", PATIENCE, || {
            let read = project.run(&["logs", "web"]);
            (read.success && !read.stdout.is_empty()).then_some(read.stdout)
        });
        assert_eq!(log, format!("I am {name} in default at 127.0.0.1\n"));
        let echoed = project.run(&["exec", "web", "--", "sh", "-c", "echo $COLOR; exit 3"]);
        assert_eq!(
            (echoed.stdout.as_str(), echoed.success),
            (format!("{name}\n").as_str(), false),
            "{echoed:?}"
        );
        let pod = project.json(&["get", "pod", "web"]);
        assert_eq!(pod["spec"]["nodeName"], "shared");
        assert!(pod["status"]["podIP"].is_string() && pod["status"]["containerStatuses"][0]["ready"] == true);
        let nodes = project.ok(&["get", "nodes", "-o", "name"]);
        assert_eq!(nodes, "node/shared\n");
    }
    walls(&world, &projects[0].1);
    ends(&world, &projects);
}

/// What the host enforces, and what happens to what is changed there.
fn walls(world: &World, red: &Kubectl) {
    let namespace = host_namespace(&world.uid("red"), "default");
    let host = world.host.with(&["--namespace", &namespace]);
    let labels = host.json(&["get", "namespace", &namespace])["metadata"]["labels"].clone();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "baseline");
    host.ok(&["get", "networkpolicy", "x-freehold-isolation"]);
    assert_eq!(host.json(&["get", "resourcequota", "x-freehold-quota"])["spec"]["hard"]["pods"], "20");
    let pod = host.json(&["get", "pod", "web"]);
    assert_eq!(pod["spec"]["serviceAccountName"], "x-freehold-pods");
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);

    // The tokens are of the project's own issuer, and bound to the project's Pod.
    let secrets = host.json(&["get", "secrets"]);
    let names =
        secrets["items"].as_array().expect("a list").iter().map(|s| s["metadata"]["name"].to_string());
    assert!(names.clone().any(|name| name.contains("x-freehold-tokens-")), "{:?}", names.collect::<Vec<_>>());

    host.ok(&["delete", "networkpolicy", "x-freehold-isolation"]);
    until("the wall stands again", PATIENCE, || {
        host.run(&["get", "networkpolicy", "x-freehold-isolation"]).success.then_some(())
    });
    host.ok(&["patch", "configmap", "settings", "--type=merge", "--patch", r#"{"data":{"color":"stolen"}}"#]);
    until("the ConfigMap is the project's again", PATIENCE, || {
        let map = host.json(&["get", "configmap", "settings"]);
        (map["data"]["color"] == "red").then_some(())
    });
    red.ok(&["patch", "configmap", "settings", "--type=merge", "--patch", r#"{"data":{"color":"scarlet"}}"#]);
    until("a change reaches the host", PATIENCE, || {
        let map = host.json(&["get", "configmap", "settings"]);
        (map["data"]["color"] == "scarlet").then_some(())
    });

    // A Pod that the tenant binds itself gets nothing that others don't.
    let forged = POD
        .replace("name: web,", "name: forged,")
        .replace("spec:\n", "spec:\n  nodeName: shared\n  hostPID: true\n");
    red.apply(&forged);
    let message = until("the forged Pod is refused", PATIENCE, || {
        let pod = red.json(&["get", "pod", "forged"]);
        let conditions = pod["status"]["conditions"].as_array()?.clone();
        let said = conditions.iter().find(|c| c["reason"] == "Unschedulable")?;
        said["message"].as_str().map(str::to_owned)
    });
    assert!(message.contains("hostPID"), "{message}");
    assert!(host.fails(&["get", "pod", "forged"]).contains("NotFound"));
    // Nor does a status that the tenant writes stay.
    let status = r#"{"status":{"podIP":"10.9.9.9"}}"#;
    red.ok(&["patch", "pod", "web", "--subresource=status", "--type=merge", "--patch", status]);
    until("the status is the host's again", PATIENCE, || {
        (red.json(&["get", "pod", "web"])["status"]["podIP"] != "10.9.9.9").then_some(())
    });
}

/// Pods end together on both sides, and everything goes with the project.
fn ends(world: &World, [(_, red), (_, blue)]: &[(&str, Kubectl); 2]) {
    let namespaces = ["red", "blue"].map(|name| host_namespace(&world.uid(name), "default"));
    red.ok(&["delete", "pod", "web", "--timeout=60s"]);
    until("the host Pod is gone", PATIENCE, || {
        (!world.host.run(&["get", "pod", "web", "-n", &namespaces[0]]).success).then_some(())
    });
    world.host.ok(&["delete", "pod", "web", "-n", &namespaces[1], "--timeout=60s"]);
    until("the project's Pod is gone", PATIENCE, || {
        (!blue.run(&["get", "pod", "web"]).success).then_some(())
    });
    world.server.kubectl().ok(&["delete", "project", "blue", "--timeout=60s"]);
    until("the host namespace is gone", PATIENCE, || {
        (!world.host.run(&["get", "namespace", &namespaces[1]]).success).then_some(())
    });
    world.host.ok(&["get", "namespace", &namespaces[0]]);
}
