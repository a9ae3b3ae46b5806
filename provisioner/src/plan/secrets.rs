//! The Secrets of a pair.

use super::{
    args::ADMISSION_FILE,
    objects::{object, server_name},
    spec::{
        ADMIN_KUBECONFIG, ADMIN_SECRET, ADMISSION_SECRET, CLIENT_CA_FILE, CONTROLLER_MANAGER_KUBECONFIG,
        CONTROLLER_MANAGER_SECRET, ETCD_SECRET, Inputs, KeyPair, PROXY_SECRET, SERVICE_ACCOUNT_SECRET,
        SERVING_SECRET, Spec, TRUST_SECRET,
    },
    workloads,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_api::keys::KUBECONFIG_KEY;
use freehold_machinery::{Map, Value};
use serde_json::json;

/// All Secrets; those with an address in them only once it is known.
pub(super) fn secrets(spec: &Spec, inputs: &Inputs) -> Vec<Value> {
    let credentials = &inputs.credentials;
    let serving_ca = &inputs.trust.serving_ca_pem;
    let mut secrets = vec![
        certificate(spec, SERVING_SECRET, &credentials.serving, serving_ca),
        certificate(spec, CONTROLLER_MANAGER_SECRET, &credentials.controller_manager, serving_ca),
        certificate(spec, ADMIN_SECRET, &credentials.admin, serving_ca),
        opaque(spec, TRUST_SECRET, &trust(inputs)),
        opaque(
            spec,
            SERVICE_ACCOUNT_SECRET,
            &[("service-account.key", credentials.service_account_keys_pem.as_str())],
        ),
    ];
    if let (Some(pair), Some(ca)) = (&credentials.etcd, &inputs.etcd.ca_pem) {
        secrets.push(certificate(spec, ETCD_SECRET, pair, ca));
    }
    if let Some(pair) = &credentials.proxy {
        secrets.push(certificate(spec, PROXY_SECRET, pair, &inputs.trust.front_proxy_ca_pem));
    }
    if let Some(text) = &inputs.admission_plugins.configuration {
        secrets.push(opaque(spec, ADMISSION_SECRET, &[(ADMISSION_FILE, text)]));
    }
    if let Some(endpoint) = workloads::endpoint(spec, inputs) {
        let rows = [
            (CONTROLLER_MANAGER_KUBECONFIG, &credentials.controller_manager),
            (ADMIN_KUBECONFIG, &credentials.admin),
        ];
        secrets.extend(rows.map(|(name, pair)| {
            let text = kubeconfig(spec, serving_ca, pair, &endpoint);
            opaque(spec, name, &[(KUBECONFIG_KEY, text.as_str())])
        }));
    }
    secrets
}

/// The CA bundles that the apiserver checks clients against, by file name.
pub(super) fn trust(inputs: &Inputs) -> [(&'static str, &str); 2] {
    [(CLIENT_CA_FILE, &inputs.trust.client_ca_pem), ("front-proxy-ca.crt", &inputs.trust.front_proxy_ca_pem)]
}

fn certificate(spec: &Spec, name: &str, pair: &KeyPair, ca_pem: &str) -> Value {
    let files = [("tls.crt", pair.cert_pem.as_str()), ("tls.key", &pair.key_pem), ("ca.crt", ca_pem)];
    secret(spec, name, "kubernetes.io/tls", &files)
}

pub(super) fn opaque(spec: &Spec, name: &str, files: &[(&str, &str)]) -> Value {
    secret(spec, name, "Opaque", files)
}

fn secret(spec: &Spec, name: &str, kind: &str, files: &[(&str, &str)]) -> Value {
    let data: Map =
        files.iter().map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text).into())).collect();
    object(spec, "v1", "Secret", name, json!({"type": kind, "data": data}))
}

/// A kubeconfig that goes to the pair itself. JSON, which every reader of YAML takes.
pub(super) fn kubeconfig(spec: &Spec, ca_pem: &str, pair: &KeyPair, endpoint: &str) -> String {
    let name = &spec.project;
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": endpoint,
            "tls-server-name": server_name(&spec.plane),
            "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": name, "user": {
            "client-certificate-data": STANDARD.encode(&pair.cert_pem),
            "client-key-data": STANDARD.encode(&pair.key_pem),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    });
    format!("{config:#}\n")
}
