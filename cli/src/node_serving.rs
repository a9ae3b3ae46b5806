//! The certificate that `freehold node` serves with: asked for as a kubelet asks, and approved by whoever runs the node.

use anyhow::{Context, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_client::{Client, Patch, PatchOptions, Resource, WatchEvent, WatchOptions};
use freehold_pki::{ClientName, PrivateKey};
use serde_json::json;
use std::time::Duration;

const REQUESTS: Resource = Resource::cluster("certificates.k8s.io", "v1", "certificatesigningrequests");
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
/// Where a control plane says whose client certificates it believes.
const AUTHENTICATION: &str = "extension-apiserver-authentication";
/// How long the certificate is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a node serves with, PEM.
pub(crate) struct Certificate {
    /// The certificate, and behind it that of the authority.
    pub(crate) cert_pem: String,
    /// Its key.
    pub(crate) key_pem: String,
    /// The authority of the control plane's clients.
    pub(crate) client_ca_pem: String,
}

/// Gets a serving certificate for a node at `hosts` from its control plane.
///
/// # Errors
/// The user may not approve requests, or nobody signs them.
pub(crate) async fn certificate(client: &Client, node: &str, hosts: &[&str]) -> Result<Certificate> {
    let published = client.get(&CONFIG_MAPS, Some("kube-system"), AUTHENTICATION).await?;
    let client_ca_pem = published["data"]["client-ca-file"].as_str().unwrap_or_default().to_owned();
    if client_ca_pem.is_empty() {
        bail!("the control plane does not publish the authority of its clients");
    }
    let key = PrivateKey::generate()?;
    let subject = ClientName {
        user: &format!("system:node:{node}"),
        groups: &["system:nodes".to_owned()],
        plane: None,
    };
    let request = freehold_pki::csr::request(&key, &subject, hosts)?;
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "freehold-node-"},
        "spec": {
            "signerName": "kubernetes.io/kubelet-serving",
            "request": STANDARD.encode(request),
            "usages": ["digital signature", "server auth"],
        },
    });
    let made = client.create(&REQUESTS, &object).await.context("failed to ask for a serving certificate")?;
    let name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    approve(client, &name).await.context("failed to approve the serving certificate")?;
    let cert_pem = tokio::time::timeout(PATIENCE, signed(client, &name)).await;
    let cert_pem = cert_pem.context("nobody signed the serving certificate")??;
    Ok(Certificate { cert_pem, key_pem: key.pem().to_owned(), client_ca_pem })
}

async fn approve(client: &Client, name: &str) -> Result<()> {
    let condition = json!({
        "type": "Approved", "status": "True", "reason": "FreeholdNode", "message": "asked for by freehold node",
    });
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let options = PatchOptions { subresource: "approval".into(), ..PatchOptions::default() };
    client.patch(&REQUESTS, None, name, &patch, &options).await?;
    Ok(())
}

/// Follows a request until it has a certificate.
async fn signed(client: &Client, name: &str) -> Result<String> {
    let only = WatchOptions { field_selector: format!("metadata.name={name}"), ..WatchOptions::default() };
    let mut events = client.watch(&REQUESTS, None, &only).await?;
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(request) | WatchEvent::Modified(request)) = event? else { continue };
        if let Some(certificate) = request["status"]["certificate"].as_str() {
            return Ok(String::from_utf8(STANDARD.decode(certificate)?)?);
        }
    }
    bail!("the server ended the watch before the certificate was there")
}
