//! What an operator says of admission: which plugins run, and who the server is to webhooks.

use crate::{PATIENCE, contains_all, text};
use freehold_pki::{Authority, ClientName};
use freehold_tests_integration::{
    Engine, HOOK_ADDRESS, HookServer, Http, Options, Reply, Server, facts, until,
};
use http::Method;
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};

facts!(engine: plugins_and_credentials_are_what_the_flags_say);

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn plugins_and_credentials_are_what_the_flags_say(engine: Engine) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let clients = Authority::generate("clients of webhooks").expect("an authority");
    let args = [
        "--outbound-networks",
        "127.0.0.0/8",
        "--enable-admission-plugins=NodeRestriction",
        "--disable-admission-plugins=ResourceQuota,StorageObjectInUseProtection",
        "--admission-control-config-file",
        &configuration(folder.path(), &clients),
    ];
    let args = args.map(str::to_owned).into();
    let server = Server::start(Options { engine, args, ..Options::default() });
    let kubectl = server.kubectl();
    let http = Http::of(&kubectl);

    // Only who shows a certificate is answered; the kubeconfig has one for each host, and a conversion would have none.
    let hooks = HookServer::start_for(Some(clients.cert_pem()), |_, review| {
        let response =
            json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": "I know you"}});
        Reply::Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
        )
    });
    let configured = http.json(Method::POST, HOOKS, &hook(&hooks));
    assert_eq!(configured.code, 201, "{configured:?}");
    let refused = kubectl.fails(&["create", "secret", "generic", "a"]);
    contains_all(&refused, &["admission webhook \"knows.example.com\" denied the request: I know you"]);

    // Nor does the apiserver of a dedicated project ask it as somebody else.
    kubectl.apply(DEDICATED);
    kubectl.ok(&["wait", "--for=condition=Ready", "project/apart", "--timeout=120s"]);
    let apart = server.project("apart");
    let answer = Http::of(&apart).json(Method::POST, HOOKS, &hook(&hooks));
    assert_eq!(answer.code, 201, "{answer:?}");
    let refused = apart.fails(&["create", "secret", "generic", "a"]);
    contains_all(&refused, &["admission webhook \"knows.example.com\" denied the request: I know you"]);

    // A plugin that is on by itself was switched off, and one that is off on.
    kubectl.ok(&["create", "quota", "none", "--hard=configmaps=0"]);
    kubectl.ok(&["create", "configmap", "beyond-the-quota"]);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    kubectl.apply(&claim.to_string());
    let claim = kubectl.json(&["get", "pvc", "c"]);
    assert_eq!(claim["metadata"]["finalizers"], Value::Null);
    kubectl.ok(&["create", "clusterrole", "nodes", "--verb=create", "--resource=nodes"]);
    kubectl.ok(&["create", "clusterrolebinding", "nodes", "--clusterrole=nodes", "--group=system:nodes"]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}).to_string();
    let kubelet = ["create", "-f", "-", "--as=system:node:mine", "--as-group=system:nodes"];
    until("the binding counts", PATIENCE, || {
        let asked = ["auth", "can-i", "create", "nodes", "--as=system:node:mine", "--as-group=system:nodes"];
        kubectl.run(&asked).success.then_some(())
    });
    let refused = kubectl.run_with_input(&kubelet, &node).expect_failure();
    contains_all(&refused, &["node \"mine\" is not allowed to modify node \"other\""]);
    kubectl.run_with_input(&kubelet, &node.replace("other", "mine")).expect_ok();
    let made = kubectl.json(&["get", "node", "mine"]);
    assert_eq!(text(&made, "/spec/taints/0/key"), "node.kubernetes.io/not-ready");
}

const DEDICATED: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
spec: {type: Standard}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: apart}
spec:
  ownerRef: {kind: Organization, name: acme}
  controlPlane: {mode: Dedicated}
";

/// A webhook that is asked about Secrets that kubectl makes in the namespace `default`.
fn hook(hooks: &HookServer) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "knows"},
        "webhooks": [{"name": "knows.example.com", "clientConfig": hooks.by_url("/"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]}],
    })
}

/// Writes an `AdmissionConfiguration` with a certificate for the hosts of this machine's tests; gives its path.
fn configuration(folder: &Path, clients: &Authority) -> String {
    let name = ClientName { user: "freehold", groups: &[], plane: None };
    let pair = clients.issue_client(&name, Duration::from_secs(3600)).expect("a certificate");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("the test's folder can be written");
        path.display().to_string()
    };
    write("client.crt", &pair.cert_pem);
    write("client.key", &pair.key_pem);
    let user = json!({"client-certificate": "client.crt", "client-key": "client.key"});
    let wildcard = format!("*.{}", HOOK_ADDRESS.split_once('.').expect("an address has dots").1);
    let users = json!([{"name": "elsewhere.example.com", "user": {"token": "secret"}}, {"name": "*", "user": user},
        {"name": wildcard, "user": {"token": "of another port"}}]);
    let kubeconfig =
        write("kubeconfig", &json!({"apiVersion": "v1", "kind": "Config", "users": users}).to_string());
    let own = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": kubeconfig});
    let whole = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": own}]});
    write("admission.yaml", &whole.to_string())
}
