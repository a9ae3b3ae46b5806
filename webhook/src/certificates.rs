//! The webhook's authority and serving certificate. Replicas share the authority by a Secret; each issues its own serving
//! certificate, and renews it long before it expires.

use freehold_client::{Client, Error, Resource};
use freehold_machinery::{Value, meta};
use freehold_pki::{Authority, not_after};
use jiff::{SignedDuration, Timestamp};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
/// The Secret with the authority that replicas share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: &'static str,
}

/// How long a serving certificate is valid.
const VALIDITY: Duration = Duration::from_secs(24 * 3600);
/// How long before its end the authority is replaced. Both are trusted meanwhile.
const AUTHORITY_RENEWAL: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How often an authority is written when others write, too.
const ATTEMPTS: usize = 8;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A certificate or key cannot be made or read.
    #[error("certificate of the webhook: {0}")]
    Pki(String),
    /// The Secret cannot be read or written.
    #[error("secret with the webhook's authority: {0}")]
    Secret(#[from] Error),
}

impl From<freehold_pki::Error> for CertificateError {
    fn from(error: freehold_pki::Error) -> Self {
        Self::Pki(error.to_string())
    }
}

/// The serving certificate, replaced as it is renewed.
#[derive(Debug)]
pub struct Serving {
    key: arc_swap::ArcSwap<CertifiedKey>,
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key.load_full())
    }
}

/// The authority, and all certificates that clients are to trust.
pub struct Trust {
    authority: Authority,
    /// PEM of the current authority and, during its renewal, of the one before.
    pub bundle: String,
}

impl Trust {
    /// Reads the authority that replicas share, makes it where it is absent, and renews it before it expires.
    ///
    /// # Errors
    /// [`CertificateError`] where the Secret cannot be read or written, or does not hold an authority.
    pub async fn shared(client: &Client, secret: &Shared, now: Timestamp) -> Result<Self, CertificateError> {
        for _ in 0..ATTEMPTS {
            let existing = client.get_opt(&SECRETS, Some(&secret.namespace), secret.name).await?;
            let current = existing.as_ref().map(Self::read).transpose()?;
            let fresh = |trust: &Self| {
                not_after(trust.authority.cert_pem())
                    .is_ok_and(|end| end.duration_since(now) > AUTHORITY_RENEWAL)
            };
            match current {
                Some(trust) if fresh(&trust) => return Ok(trust),
                before => {
                    let trust = Self::generate(before.as_ref().map(|before| before.authority.cert_pem()))?;
                    let written = trust.write(client, secret, existing.as_ref()).await;
                    match written {
                        Err(error) if error.is_conflict() || error.is_already_exists() => {}
                        Err(error) => return Err(error.into()),
                        Ok(_) => return Ok(trust),
                    }
                }
            }
        }
        Err(CertificateError::Pki("the authority is being replaced by others; try again".to_owned()))
    }

    /// An authority of this process alone, for tests and single processes.
    ///
    /// # Errors
    /// [`CertificateError::Pki`] where no key can be generated.
    pub fn generate(before: Option<&str>) -> Result<Self, CertificateError> {
        let authority = Authority::generate("freehold webhook")?;
        let bundle = format!("{}{}", authority.cert_pem(), before.unwrap_or_default());
        Ok(Self { authority, bundle })
    }

    fn read(secret: &Value) -> Result<Self, CertificateError> {
        let text = |field: &str| {
            let encoded = secret["data"][field].as_str().unwrap_or_default();
            let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded);
            let bytes = bytes.map_err(|error| CertificateError::Pki(format!("{field}: {error}")))?;
            String::from_utf8(bytes).map_err(|error| CertificateError::Pki(format!("{field}: {error}")))
        };
        let authority = Authority::from_pem(&text("ca.crt")?, &text("ca.key")?)?;
        Ok(Self { authority, bundle: text("bundle.crt")? })
    }

    async fn write(
        &self,
        client: &Client,
        shared: &Shared,
        existing: Option<&Value>,
    ) -> Result<Value, Error> {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": shared.name, "namespace": shared.namespace},
            "stringData": {
                "ca.crt": self.authority.cert_pem(), "ca.key": self.authority.key_pem(), "bundle.crt": self.bundle,
            },
        });
        match existing {
            None => client.create(&SECRETS, &secret).await,
            Some(existing) => {
                meta::set(&mut secret, "resourceVersion", meta::resource_version(existing));
                client.update(&SECRETS, &secret).await
            }
        }
    }

    /// Issues a serving certificate for names and addresses.
    ///
    /// # Errors
    /// [`CertificateError::Pki`] for a name that a certificate cannot have.
    pub fn issue(&self, names: &[String]) -> Result<CertifiedKey, CertificateError> {
        let pki = |error: &dyn std::fmt::Display| CertificateError::Pki(error.to_string());
        let pair = self.authority.issue_server(names, VALIDITY)?;
        let chain = CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| pki(&error))?;
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(|error| pki(&error))?;
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(|error| pki(&error))?;
        Ok(CertifiedKey::new(chain, key))
    }
}

impl Serving {
    /// Serves a certificate until [`Serving::replace`].
    pub fn new(key: CertifiedKey) -> Arc<Self> {
        Arc::new(Self { key: arc_swap::ArcSwap::from_pointee(key) })
    }

    /// Serves another certificate from the next handshake on.
    pub fn replace(&self, key: CertifiedKey) {
        self.key.store(Arc::new(key));
    }
}
