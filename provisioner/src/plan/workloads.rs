//! The Deployments and the Service of a pair.

use super::args::{self, PORT};
use super::{
    objects::{component, labels, object, service_endpoint},
    secrets,
    spec::{
        ADMISSION_SECRET, APISERVER, COMPONENT, CONTROLLER_MANAGER, CONTROLLER_MANAGER_KUBECONFIG,
        ETCD_SECRET, Inputs, PROXY_SECRET, Reach, SERVICE_ACCOUNT_SECRET, SERVING_SECRET, Spec, TRUST_SECRET,
    },
};
use freehold_machinery::Value;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

/// Names the content of the files that a program reads once: a change of it rolls the Pods.
const CHECKSUM: &str = "infrastructure.freehold.dev/checksum";

/// Files of Secrets are the group's to read, and nobody's to write: 0440.
const MODE: u32 = 0o440;

/// What tells the two Deployments apart.
struct Program<'a> {
    name: &'static str,
    image: &'a str,
    command: Vec<String>,
    /// Secret and mount path.
    mounts: Vec<(&'static str, &'static str)>,
    checksum: String,
    resources: &'a Value,
    /// Further fields of the container.
    container: Value,
    strategy: Value,
    replicas: u32,
    /// Seconds that a Pod has to stop.
    grace: u32,
}

/// Seconds that a program has to stop once it was told to.
pub(super) const GRACE: u32 = 10;

/// The Service of the apiserver: headless where Pods are reached by their addresses.
pub(super) fn service(spec: &Spec, inputs: &Inputs) -> Value {
    let mut content = json!({"spec": {
        "selector": {COMPONENT: APISERVER},
        "ports": [{"name": "https", "port": PORT, "targetPort": "https", "protocol": "TCP"}],
    }});
    if inputs.reach == Reach::Pod {
        content["spec"]["clusterIP"] = "None".into();
    }
    object(spec, "v1", "Service", APISERVER, content)
}

/// The apiserver. A new Pod is ready before the old one goes: two of them on one store do no harm.
pub(super) fn apiserver(spec: &Spec, inputs: &Inputs) -> Value {
    let credentials = &inputs.credentials;
    let mut mounts = vec![
        (SERVING_SECRET, args::SERVING_DIR),
        (TRUST_SECRET, args::TRUST_DIR),
        (SERVICE_ACCOUNT_SECRET, args::SERVICE_ACCOUNT_DIR),
    ];
    if credentials.etcd.is_some() && inputs.etcd.ca_pem.is_some() {
        mounts.push((ETCD_SECRET, args::ETCD_DIR));
    }
    if credentials.proxy.is_some() {
        mounts.push((PROXY_SECRET, args::PROXY_DIR));
    }
    if inputs.admission_plugins.configuration.is_some() {
        mounts.push((ADMISSION_SECRET, args::ADMISSION_DIR));
    }
    let probe = |path: &str, period: u32| {
        let get = json!({"path": path, "port": "https", "scheme": "HTTPS"});
        json!({"httpGet": get, "periodSeconds": period, "timeoutSeconds": 3, "failureThreshold": 3})
    };
    let mut container = json!({
        "env": environment(inputs),
        "ports": [{"name": "https", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": probe("/readyz", 2),
        "livenessProbe": probe("/livez", 10),
    });
    if inputs.drain_seconds > 0 {
        container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": inputs.drain_seconds}}});
    }
    let program = Program {
        name: APISERVER,
        image: &inputs.image,
        command: args::apiserver(spec, inputs),
        mounts,
        checksum: apiserver_checksum(inputs),
        resources: &inputs.size.apiserver,
        container,
        replicas: inputs.size.replicas,
        grace: GRACE + inputs.drain_seconds,
        strategy: json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
    };
    deployment(spec, inputs, program)
}

/// Variables of the apiserver.
fn environment(inputs: &Inputs) -> Vec<Json> {
    let mut variables =
        vec![json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})];
    variables.extend(inputs.telemetry.iter().map(|(name, value)| json!({"name": name, "value": value})));
    variables
}

/// The controller manager, once there is an apiserver to connect to. Never two of them at once.
pub(super) fn controller_manager(spec: &Spec, inputs: &Inputs) -> Option<Value> {
    let checksum = controller_manager_checksum(spec, inputs)?;
    let program = Program {
        name: CONTROLLER_MANAGER,
        image: inputs.controller_manager_image.as_ref().unwrap_or(&inputs.image),
        command: args::controller_manager(spec),
        mounts: vec![(CONTROLLER_MANAGER_KUBECONFIG, args::KUBECONFIG_DIR)],
        checksum,
        resources: &inputs.size.controller_manager,
        container: json!({}),
        replicas: 1,
        grace: GRACE,
        strategy: json!({"type": "Recreate"}),
    };
    Some(deployment(spec, inputs, program))
}

/// Where the apiserver is reached, once that is known.
pub(super) fn endpoint(spec: &Spec, inputs: &Inputs) -> Option<String> {
    match inputs.reach {
        Reach::Pod => inputs.endpoint.clone(),
        Reach::Service => Some(service_endpoint(&spec.plane)),
    }
}

/// Names the content of the files that the apiserver reads.
pub(super) fn apiserver_checksum(inputs: &Inputs) -> String {
    let credentials = &inputs.credentials;
    let mut files = vec![credentials.serving.cert_pem.as_str(), &credentials.service_account_keys_pem];
    files.extend(secrets::trust(inputs).map(|(_, pem)| pem));
    if let (Some(pair), Some(ca)) = (&credentials.etcd, &inputs.etcd.ca_pem) {
        files.extend([pair.cert_pem.as_str(), ca]);
    }
    files.extend(credentials.proxy.as_ref().map(|pair| pair.cert_pem.as_str()));
    files.extend(inputs.admission_plugins.configuration.as_deref());
    checksum(&files)
}

/// Names the content of the controller manager's kubeconfig, once there is one.
pub(super) fn controller_manager_checksum(spec: &Spec, inputs: &Inputs) -> Option<String> {
    let pair = &inputs.credentials.controller_manager;
    let endpoint = endpoint(spec, inputs)?;
    Some(checksum(&[&secrets::kubeconfig(spec, &inputs.trust.serving_ca_pem, pair, &endpoint)]))
}

fn checksum(files: &[&str]) -> String {
    let mut hash = Sha256::new();
    for file in files {
        hash.update((file.len() as u64).to_be_bytes());
        hash.update(file);
    }
    hex::encode(&hash.finalize()[..16])
}

fn deployment(spec: &Spec, inputs: &Inputs, program: Program<'_>) -> Value {
    let name = program.name;
    let mut pod_labels = labels(spec);
    pod_labels[COMPONENT] = name.into();
    let content = json!({"spec": {
        "replicas": if spec.asleep { 0 } else { program.replicas },
        "revisionHistoryLimit": 1,
        "selector": component(name),
        "strategy": program.strategy,
        "template": {
            "metadata": {"labels": pod_labels, "annotations": {CHECKSUM: program.checksum}},
            "spec": pod(inputs, program),
        },
    }});
    object(spec, "apps/v1", "Deployment", name, content)
}

fn pod(inputs: &Inputs, program: Program<'_>) -> Json {
    let mut container = program.container;
    container["name"] = program.name.into();
    container["image"] = program.image.into();
    container["command"] = program.command.into();
    if !inputs.image_pull_policy.is_empty() {
        container["imagePullPolicy"] = inputs.image_pull_policy.as_str().into();
    }
    // The last lines of a program that failed stand in its Pod's status, from where they reach the project's.
    container["terminationMessagePolicy"] = "FallbackToLogsOnError".into();
    container["resources"] = program.resources.clone();
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    let mount = |(secret, path): &(&str, &str)| json!({"name": secret, "mountPath": path, "readOnly": true});
    container["volumeMounts"] = program.mounts.iter().map(mount).collect();
    let volume = |(secret, _): &(&str, &str)| json!({"name": secret, "secret": {"secretName": secret, "defaultMode": MODE}});
    let mut pod = json!({
        "serviceAccountName": program.name,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": program.grace,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": program.mounts.iter().map(volume).collect::<Json>(),
    });
    if program.replicas > 1 {
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": component(program.name)});
        let preferred = json!([{"weight": 100, "podAffinityTerm": term}]);
        pod["affinity"] =
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    }
    pod
}
