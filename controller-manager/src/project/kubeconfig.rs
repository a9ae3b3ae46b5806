//! The Secret with a project's kubeconfig: how it is made, and whether one is as it was made.
//!
//! Members of the organization can write that Secret. So the controller seals what it writes, with a key that nobody else
//! has, and makes a Secret anew whose seal is not that of its content and of what the kubeconfig has to be made from.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_api::keys::{
    KUBECONFIG_KEY, ORGANIZATION, PROJECT, PROJECT_ADMIN, kubeconfig_secret, organization_namespace,
};
use freehold_api::urls::project_url;
use freehold_controllers_context::object::text;
use freehold_controllers_context::project::generation;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_pki::{Authority, ClientName, Credentials, KubeconfigParams, PlaneBinding, kubeconfig};
use freehold_runtime::Key;
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Annotation of a kubeconfig Secret: the seal, in hexadecimal digits.
const SEAL: &str = "resourcemanager.freehold.dev/kubeconfig-seal";
/// Annotation of a kubeconfig Secret: when its certificate ends, in seconds since 1970.
const EXPIRES: &str = "resourcemanager.freehold.dev/certificate-expires";
const TYPE: &str = "Opaque";

/// A SHA-256, or the first half of one.
type Hash = [u8; 32];
type Half = [u8; 16];

/// What is kept of a kubeconfig Secret.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SecretView {
    /// The project that it is for.
    pub(crate) project: String,
    /// When its certificate ends, in seconds since 1970.
    pub(crate) expires: i64,
    content: Half,
    seal: Option<Half>,
}

impl SecretView {
    pub(crate) fn of(secret: Value) -> Option<Self> {
        let seal = meta::annotation(&secret, SEAL).and_then(|seal| hex::decode(seal).ok());
        Some(Self {
            project: meta::label(&secret, PROJECT)?.to_owned(),
            expires: meta::annotation(&secret, EXPIRES).and_then(|e| e.parse().ok()).unwrap_or(0),
            content: content(&secret),
            seal: seal.and_then(|seal| seal.try_into().ok()),
        })
    }
}

/// A hash of parts, each ended so that none runs into the next.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn half(hash: Hash) -> Half {
    std::array::from_fn(|at| hash[at])
}

/// All of a Secret that whoever uses it reads.
fn content(secret: &Value) -> Half {
    let mut data: Vec<(&str, String)> = ["data", "stringData"]
        .iter()
        .filter_map(|field| secret[*field].as_object())
        .flatten()
        .map(|(key, value)| (key.as_str(), value.to_string()))
        .collect();
    data.sort_unstable();
    let said = [
        text(secret, "/type").to_owned(),
        meta::annotation(secret, EXPIRES).unwrap_or_default().to_owned(),
        (secret["immutable"] == true).to_string(),
    ];
    let data = data.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
    half(hash(said.iter().map(String::as_bytes).chain(data)))
}

/// Where a project's kubeconfig is.
pub(crate) fn secret_key(project: &Value) -> Key {
    let namespace = organization_namespace(text(project, "/spec/ownerRef/name"));
    Key::new(PlaneId::core(), &namespace, &kubeconfig_secret(meta::name(project)))
}

/// What kubeconfigs are made from.
pub(crate) struct Terms {
    pub(crate) external_url: String,
    pub(crate) ca_pem: String,
    pub(crate) signing: Option<Arc<Authority>>,
    pub(crate) validity: Duration,
}

impl Terms {
    /// The address of a project's plane.
    pub(crate) fn url(&self, project: &Value) -> String {
        project_url(&self.external_url, meta::name(project))
    }

    /// Whether a Secret is one that was made here, for the project as it is now.
    pub(crate) fn made(&self, project: &Value, secret: &SecretView) -> bool {
        let seal = self.signing.as_ref().map(|signing| self.seal(signing, project, &secret.content));
        seal.is_some() && seal == secret.seal
    }

    fn seal(&self, signing: &Authority, project: &Value, content: &Half) -> Half {
        let key = hash([&b"seals of kubeconfigs"[..], signing.key_pem().as_bytes()]);
        let (url, generation) = (self.url(project), generation(project).to_be_bytes());
        let from: [&[u8]; 6] = [
            meta::uid(project).as_bytes(),
            url.as_bytes(),
            self.ca_pem.as_bytes(),
            signing.cert_pem().as_bytes(),
            &generation,
            content,
        ];
        half(hash([&key[..], &hash(from)[..]]))
    }

    /// The Secret with a new certificate for a project's plane alone. It has no owner reference: this controller removes
    /// it itself, and the garbage collector would ask for the owner of each at its making and every few minutes.
    ///
    /// # Errors
    /// There is no authority to sign with, or it can't sign that.
    pub(crate) fn secret(&self, project: &Value, now: Timestamp) -> anyhow::Result<Value> {
        let signing =
            self.signing.as_ref().ok_or_else(|| anyhow::anyhow!("no signing authority is configured"))?;
        let (name, organization) = (meta::name(project), text(project, "/spec/ownerRef/name"));
        let groups = [freehold_machinery::user::MASTERS.to_owned()];
        let plane = PlaneBinding { plane: meta::uid(project), generation: generation(project).into() };
        let client = ClientName { user: PROJECT_ADMIN, groups: &groups, plane: Some(plane) };
        let pair = signing.for_plane(meta::uid(project))?.issue_client(&client, self.validity)?;
        let text = kubeconfig(&KubeconfigParams {
            name,
            server: &self.url(project),
            tls_server_name: "",
            ca_pem: &self.ca_pem,
            user: Credentials::ClientCert { cert_pem: &pair.cert_pem, key_pem: &pair.key_pem },
            namespace: "default",
        });
        let expires = now.as_second().saturating_add_unsigned(self.validity.as_secs());
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": TYPE,
            "metadata": {
                "name": kubeconfig_secret(name),
                "namespace": organization_namespace(organization),
                "labels": {PROJECT: name, ORGANIZATION: organization},
                "annotations": {EXPIRES: expires.to_string()},
            },
            "data": {KUBECONFIG_KEY: STANDARD.encode(text)},
        });
        let seal = self.seal(signing, project, &content(&secret));
        secret["metadata"]["annotations"][SEAL] = hex::encode(seal).into();
        Ok(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        let signing = Authority::generate("test").unwrap();
        Terms {
            external_url: "https://h:6443/".into(),
            ca_pem: signing.cert_pem().to_owned(),
            signing: Some(Arc::new(signing)),
            validity: Duration::from_secs(3600),
        }
    }

    fn project(generation: i64) -> Value {
        json!({
            "metadata": {"name": "web", "uid": "0c1f", "generation": 1},
            "spec": {"ownerRef": {"name": "acme"}, "controlPlane": {"credentials": {"generation": generation}}},
        })
    }

    #[test]
    fn a_kubeconfig_signs_in_to_its_plane_alone_and_with_its_generation() {
        let (terms, now) = (terms(), Timestamp::from_second(1000).unwrap());
        let secret = terms.secret(&project(3), now).unwrap();
        assert_eq!(secret["metadata"]["namespace"], "organization-acme");
        let text = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap()).unwrap();
        let config =
            freehold_client::Config::from_kubeconfig_text(std::str::from_utf8(&text).unwrap()).unwrap();
        assert_eq!(config.server, "https://h:6443/projects/web");
        let freehold_client::Identity::ClientCert { cert_pem, .. } = config.identity else {
            panic!("no certificate")
        };
        let der = freehold_pki::certificates_der(&cert_pem).unwrap();
        let info = freehold_pki::CertificateInfo::parse(&der[0]).unwrap();
        assert_eq!((info.planes(), info.generation().unwrap()), (vec!["0c1f"], 3));
        let view = SecretView::of(secret).unwrap();
        assert_eq!((view.project.as_str(), view.expires), ("web", 4600));
        assert!(terms.made(&project(3), &view));
    }

    #[test]
    fn a_secret_that_differs_in_anything_is_not_one_that_was_made_here() {
        let (terms, project) = (terms(), project(0));
        let secret = terms.secret(&project, Timestamp::UNIX_EPOCH).unwrap();
        let made = |secret: &Value| terms.made(&project, &SecretView::of(secret.clone()).unwrap());
        assert!(made(&secret));
        let changes: [(&str, Value); 6] = [
            ("/data/kubeconfig", "cGxhbnRlZA==".into()),
            ("/data", json!({"kubeconfig": secret["data"]["kubeconfig"], "other": "eA=="})),
            ("/data", Value::Null),
            ("/type", "example.com/other".into()),
            ("/metadata/annotations/resourcemanager.freehold.dev~1certificate-expires", "99999".into()),
            ("/metadata/annotations/resourcemanager.freehold.dev~1kubeconfig-seal", "00".into()),
        ];
        for (at, value) in changes {
            let mut changed = secret.clone();
            *changed.pointer_mut(at).unwrap() = value;
            assert!(!made(&changed), "{at}");
        }
        let mut frozen = secret.clone();
        frozen["immutable"] = true.into();
        assert!(!made(&frozen));
    }

    #[test]
    fn a_secret_is_made_anew_when_what_it_is_made_from_has_changed() {
        let (terms, other) = (terms(), terms());
        let view = SecretView::of(terms.secret(&project(0), Timestamp::UNIX_EPOCH).unwrap()).unwrap();
        let mut renewed = project(0);
        renewed["metadata"]["uid"] = "0c20".into();
        assert!(!terms.made(&renewed, &view) && !terms.made(&project(1), &view));
        assert!(!other.made(&project(0), &view));
        assert!(!Terms { signing: None, ..other }.made(&project(0), &view));
    }
}
