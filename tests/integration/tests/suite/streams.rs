//! Pods of a project's own node: logs, streams into them, their way back to the API, and what no address of a Node reaches.

use crate::PATIENCE;
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use freehold_pki::{ClientName, PrivateKey};
use freehold_tests_integration::{Http, Kubectl, World, facts, freehold_binary, lost_streams, until};
use http::Method;
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

facts!(world:
    logs_of_a_project_are_read_from_its_node_and_not_by_another_project,
    kubectl_streams_into_pods_of_a_node,
    nodes_and_pods_are_led_from_the_root_to_their_own_project_alone,
);

/// `freehold node`, for as long as this is kept.
pub(crate) struct Node(Child);

impl Node {
    pub(crate) fn start(world: &World, kubectl: &Kubectl) -> Self {
        let node =
            Command::new(freehold_binary())
                .arg("node")
                .arg("--kubeconfig")
                .arg(kubectl.kubeconfig())
                .arg("--data-dir")
                .arg(world.server().folder().join(format!(
                    "node-of-{}",
                    kubectl.kubeconfig().file_stem().unwrap_or_default().display()
                )))
                .args(["--image", "shell=/bin/sh"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
        Self(node.expect("the program starts"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: shell, command: [sh, -c, 'echo first; sleep 1000']}
";

fn logs_of_a_project_are_read_from_its_node_and_not_by_another_project(world: &World) {
    world.organization("streams", &["streams-a", "streams-b"]);
    let (owner, stranger) = (world.server().project("streams-a"), world.server().project("streams-b"));
    let _node = Node::start(world, &owner);
    owner.apply(POD);
    until("the log is read through the server", PATIENCE, || {
        let read = owner.run(&["logs", "talker"]);
        (read.success && read.stdout == "first\n").then_some(())
    });
    let follower = owner.background(&["logs", "--follow", "talker"]);
    follower.wait_for("first");
    let own = "/projects/streams-a/api/v1/nodes/local/proxy/containerLogs/default/talker/c";
    assert_eq!(owner.ok(&["get", "--raw", own]), "first\n");

    // The other project names the same address as its own node's.
    let node = owner.json(&["get", "node", "local"]);
    let status = json!({"addresses": node["status"]["addresses"], "daemonEndpoints": node["status"]["daemonEndpoints"]});
    let imitation =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}, "status": status});
    stranger.apply(&imitation.to_string());
    let pod = POD.replace("spec:\n", "spec:\n  nodeName: local\n");
    stranger.apply(&pod);
    let patch = json!({"status": status}).to_string();
    stranger.ok(&["patch", "node", "local", "--subresource=status", "--type=merge", "--patch", &patch]);
    let refused = stranger.fails(&["logs", "talker"]);
    assert!(refused.contains("failed to verify certificate"), "{refused}");
    let theirs = "/projects/streams-b/api/v1/nodes/local/proxy/containerLogs/default/talker/c";
    let refused = stranger.fails(&["get", "--raw", theirs]);
    assert!(refused.contains("failed to verify certificate"), "{refused}");

    // Nor is anything dialled outside of the networks of nodes.
    let elsewhere = json!({"status": {"addresses": [{"type": "InternalIP", "address": "169.254.169.254"}]}});
    let elsewhere = elsewhere.to_string();
    stranger.ok(&["patch", "node", "local", "--subresource=status", "--type=merge", "--patch", &elsewhere]);
    let refused = stranger.fails(&["logs", "talker"]);
    assert!(refused.contains("--node-networks"), "{refused}");
    owner.ok(&["delete", "pod", "talker", "--wait=false"]);
}

const STREAMED: &str = "
apiVersion: v1
kind: Pod
metadata: {name: streamed}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: serving
    image: shell
    env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    command: [python3, -m, http.server, --bind, $(IP), '8080']
    readinessProbe: {httpGet: {path: /, port: 8080}}
---
apiVersion: v1
kind: Pod
metadata: {name: ended}
spec:
  restartPolicy: Never
  containers:
  - {name: says, image: shell, command: [sh, -c, 'echo bye > /dev/termination-log; exit 3']}
  - {name: logs, image: shell, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, 'echo why; exit 4']}
---
apiVersion: v1
kind: Pod
metadata: {name: holds}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: shell, command: [python3, -m, http.server, '28731'], readinessProbe: {tcpSocket: {port: 28731}}}
";

const COLLIDES: &str = "
apiVersion: v1
kind: Pod
metadata: {name: collides}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: shell, ports: [{containerPort: 28731}], command: [python3, -m, http.server, '28731']}
";

/// The first line of what is served at a forwarded port.
fn first_line(port: &str) -> Option<String> {
    let mut connection = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
    connection.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    answer.lines().next().map(str::to_owned)
}

fn kubectl_streams_into_pods_of_a_node(world: &World) {
    world.organization("into", &["into-a"]);
    let owner = world.server().project("into-a");
    let _node = Node::start(world, &owner);
    owner.apply(STREAMED);
    owner.ok(&["wait", "--for=condition=Ready", "pod/streamed", "pod/holds", "--timeout=60s"]);
    // Over WebSockets, and over SPDY.
    for websockets in ["true", "false"] {
        let kubectl = owner
            .with_variable("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
            .with_variable("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
        let failed = kubectl.run(&["exec", "streamed", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
        assert_eq!((failed.success, failed.stdout.as_str()), (false, "out\n"), "{websockets}");
        assert!(
            failed.stderr.contains("err\n") && failed.stderr.contains("exit code 7"),
            "{}",
            failed.stderr
        );
        let long = "line\n".repeat(100_000);
        let echoed = kubectl.run_with_input(&["exec", "-i", "streamed", "--", "cat"], &long);
        assert!(echoed.success && echoed.stdout == long, "{websockets}: {}", echoed.stderr);
        let run = ["run", "reads", "--image=shell", "--restart=Never", "-i", "--rm", "--command", "--"];
        let script = ["sh", "-c", "read line; echo got $line"];
        let attached = kubectl.run_with_input(&[&run[..], &script].concat(), "hello\n");
        assert!(attached.stdout.contains("got hello"), "{attached:?}");
        let forwarded = kubectl.background(&["port-forward", "pod/streamed", ":8080"]);
        let port = until("a port is forwarded", PATIENCE, || {
            let printed = forwarded.printed();
            let (_, rest) = printed.split_once("127.0.0.1:")?;
            Some(rest.split_once(' ')?.0.to_owned())
        });
        assert_eq!(first_line(&port).as_deref(), Some("HTTP/1.0 200 OK"), "{websockets}");
    }
    let shell = format!(
        "kubectl --kubeconfig {} exec -it streamed -- sh -c 'test -t 0 && echo terminal'",
        owner.kubeconfig().display()
    );
    let typed =
        std::iter::repeat_with(|| typed_on_terminal(&shell)).take(5).find(|typed| !lost_streams(typed));
    assert!(typed.as_deref().is_some_and(|typed| typed.contains("terminal")), "{typed:?}");
    let file = world.server().folder().join("copied");
    std::fs::write(&file, "content").expect("a file is written");
    let (from, to) = (file.display().to_string(), format!("{}-there", file.display()));
    owner.ok(&["cp", &from, &format!("streamed:{to}")]);
    assert_eq!(std::fs::read_to_string(&to).expect("the file is there"), "content");
    messages(&owner);
    owner.ok(&["delete", "pod", "--all", "--wait=false"]);
}

/// What a command prints on a terminal, its complaints among it.
fn typed_on_terminal(shell: &str) -> String {
    let script = Command::new("script").args(["-qec", shell, "/dev/null"]).stdin(Stdio::null()).output();
    String::from_utf8_lossy(&script.expect("script runs").stdout).into_owned()
}

/// What containers leave behind is told, and so is who has the port that one wanted.
fn messages(owner: &Kubectl) {
    let message = |pod: &str, container: usize| {
        until("a container has ended", PATIENCE, || {
            let status = owner.json(&["get", "pod", pod]);
            let ended = &status["status"]["containerStatuses"][container]["state"]["terminated"];
            ended.is_object().then(|| ended["message"].as_str().unwrap_or_default().to_owned())
        })
    };
    let all = ["ended", "ended"].iter().enumerate().map(|(at, pod)| message(pod, at)).collect::<Vec<_>>();
    assert_eq!(all, ["bye\n", "why\n"]);
    assert!(!std::path::Path::new("/dev/termination-log").exists());
    owner.apply(COLLIDES);
    let why = "port 28731 is taken: container c of pod default/holds listens to it at 0.0.0.0";
    assert_eq!(message("collides", 0), why);
}

/// The credentials of a node of a project, as a kubelet gets them.
fn node_certificate(owner: &Kubectl) -> freehold_pki::Pair {
    let key = PrivateKey::generate().expect("a key");
    let subject = ClientName { user: "system:node:n", groups: &["system:nodes".to_owned()], plane: None };
    let request = freehold_pki::csr::request(&key, &subject, &[] as &[&str]).expect("a request");
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "node-n"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "request": BASE64_STANDARD.encode(request),
            "usages": ["digital signature", "client auth"]},
    });
    owner.apply(&object.to_string());
    owner.ok(&["certificate", "approve", "node-n"]);
    let certificate = until("a node's certificate is signed", PATIENCE, || {
        let request = owner.json(&["get", "csr", "node-n"]);
        BASE64_STANDARD.decode(request["status"]["certificate"].as_str()?).ok()
    });
    let cert_pem = String::from_utf8(certificate).expect("a certificate is text");
    freehold_pki::Pair { cert_pem, key_pem: key.pem().to_owned() }
}

fn nodes_and_pods_are_led_from_the_root_to_their_own_project_alone(world: &World) {
    world.organization("home", &["home-a", "home-b"]);
    let [a, b] = ["home-a", "home-b"].map(|project| world.server().project(project));
    let url = world.server().url().to_owned();
    for (project, name) in [(&a, "a"), (&b, "b")] {
        project.ok(&["create", "configmap", "whose", &format!("--from-literal=name={name}")]);
        project.ok(&[
            "create",
            "clusterrolebinding",
            "all",
            "--clusterrole=cluster-admin",
            "--serviceaccount=default:default",
        ]);
    }
    let token = a.ok(&["create", "token", "default"]);
    let pod = Http::with_token(&a, &url, token.trim());
    let whose = "/api/v1/namespaces/default/configmaps/whose";
    let name = |body: &Value| body["data"]["name"].clone();
    assert_eq!(name(&pod.get(whose).body), "a", "its own project, at the root");
    assert_eq!(name(&pod.get(&format!("/projects/home-a{whose}")).body), "a", "and below its path");
    // An administrator of one project is nobody elsewhere, whatever a request says besides.
    for path in [
        format!("/projects/home-b{whose}"),
        format!("/planes/{}{whose}", world.uid("home-b")),
        format!("/planes/core{whose}"),
        "/organizations/home/api".to_owned(),
    ] {
        assert_eq!(pod.get(&path).code, 401, "{path}");
    }
    assert_eq!(
        pod.get("/apis/resourcemanager.freehold.dev/v1alpha1/projects").code,
        404,
        "projects are the platform's"
    );
    // Claims that nobody signed lead to a place where they are not believed.
    let (head, rest) = token.trim().split_once('.').expect("a token has parts");
    let (claims, signature) = rest.split_once('.').expect("a token has parts");
    let claims =
        String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(claims).expect("claims")).expect("claims are text");
    let forged = claims.replace(&world.uid("home-a"), &world.uid("home-b"));
    assert_ne!(forged, claims);
    let forged = format!("{head}.{}.{signature}", BASE64_URL_SAFE_NO_PAD.encode(forged));
    assert_eq!(Http::with_token(&a, &url, &forged).get(whose).code, 401);
    // Nodes are led likewise; administrators' certificates are not, nor is who is of the platform.
    let node = Http::with_certificate(&a, &url, &node_certificate(&a));
    let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = node.json(Method::POST, reviews, &who);
    assert_eq!(answer.body["status"]["userInfo"]["username"], "system:node:n", "{}", answer.body);
    assert_eq!(node.get(&format!("/projects/home-b{whose}")).code, 401);
    assert_eq!(Http::of_elsewhere(&a, &url).get("/api").code, 401, "an administrator of the project");
    assert!(!world.admin().run(&["get", "--raw", whose]).success, "the platform has no such object");
    world.admin().ok(&["get", "projects"]);
    if let Some(slice) =
        a.json(&["get", "endpointslices", "-l", "kubernetes.io/service-name=kubernetes"])["items"].get(0)
    {
        let port = slice["ports"][0]["port"].as_u64().expect("a port");
        let address = slice["endpoints"][0]["addresses"][0].as_str().expect("an address");
        assert_eq!(format!("https://{address}:{port}"), url);
    }
    in_cluster(world, &a);
}

const ASKS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: asks}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: shell
    command:
    - sh
    - -c
    - >-
      curl -sS --cacert /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
      -H \"Authorization: Bearer $(cat /var/run/secrets/kubernetes.io/serviceaccount/token)\"
      https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/default/configmaps/whose
";

/// A Pod reaches the API with what clients in Pods go by.
fn in_cluster(world: &World, project: &Kubectl) {
    let _node = Node::start(world, project);
    project.apply(ASKS);
    until("a Pod has asked", PATIENCE, || {
        let read = project.run(&["logs", "asks"]);
        let answer: Value = serde_json::from_str(&read.stdout).ok()?;
        assert_eq!(answer["data"]["name"], "a", "{answer}");
        Some(())
    });
}
