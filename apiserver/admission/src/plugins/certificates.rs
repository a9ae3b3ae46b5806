//! CertificateSigningRequests: who may approve and sign for which signer, and what may not be asked for
//! (<https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#authorization>).

use crate::{Attributes, Lookup, Permission, Plugin, Verb, json::text};
use base64::{Engine, engine::general_purpose::STANDARD};
use freehold_machinery::{Result, Value, user::MASTERS};
use x509_parser::{
    certification_request::X509CertificationRequest, pem::Pem, prelude::FromDer, x509::X509Name,
};

const GROUP: &str = "certificates.k8s.io";
const RESOURCE: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Approving or denying needs the verb `approve` on the signer.
pub struct CertificateApproval;

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let updates = attributes.verb == Verb::Update && attributes.is_sub(GROUP, RESOURCE, "approval");
        // The old object's signer: the new one's is the writer's word.
        match attributes.old.filter(|_| updates) {
            Some(old) => check(attributes, lookup, "approve", text(old, "/spec/signerName")),
            None => Ok(()),
        }
    }
}

/// Writing a certificate or conditions needs the verb `sign` on the signer.
pub struct CertificateSigning;

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let updates = attributes.verb == Verb::Update && attributes.is_sub(GROUP, RESOURCE, "status");
        let (Some(old), Some(new)) = (attributes.old.filter(|_| updates), attributes.object()) else {
            return Ok(());
        };
        let same = |field: &str| old["status"][field] == new["status"][field];
        if same("certificate") && same("conditions") {
            return Ok(());
        }
        check(attributes, lookup, "sign", text(old, "/spec/signerName"))
    }
}

/// Nobody becomes a member of `system:masters` by a request.
pub struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn validate(&self, attributes: &Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        let creates = attributes.verb == Verb::Create && attributes.is(GROUP, RESOURCE);
        let client = |csr: &&Value| creates && text(csr, "/spec/signerName") == CLIENT_SIGNER;
        let Some(csr) = attributes.object().filter(client) else { return Ok(()) };
        let pem = STANDARD.decode(text(csr, "/spec/request")).unwrap_or_default();
        let groups = organizations(&pem)
            .map_err(|error| attributes.forbidden(&format!("failed to parse CSR: {error}")))?;
        if groups.iter().any(|group| group == MASTERS) {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            return Err(attributes.forbidden(&why));
        }
        Ok(())
    }
}

/// The common name that a `CertificateSigningRequest` asks for; empty where there is none.
///
/// # Errors
/// What can't be read, never taken for none.
pub(crate) fn common_name(csr: &Value) -> Result<String, String> {
    let pem = STANDARD.decode(text(csr, "/spec/request")).unwrap_or_default();
    with_subject(&pem, |subject| {
        let name = subject.iter_common_name().next().map(|name| name.as_str().map(str::to_owned));
        name.transpose().map(Option::unwrap_or_default).map_err(|error| error.to_string())
    })
}

/// The groups that a request asks for. What can't be read is refused, never taken for none.
fn organizations(request: &[u8]) -> Result<Vec<String>, String> {
    with_subject(request, |subject| {
        let names = subject.iter_organization();
        names.map(|o| o.as_str().map(str::to_owned).map_err(|error| error.to_string())).collect()
    })
}

fn with_subject<T>(
    request: &[u8],
    read: impl FnOnce(&X509Name<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let mut blocks = Pem::iter_from_buffer(request).filter_map(|block| block.ok());
    let block = blocks
        .find(|block| block.label == "CERTIFICATE REQUEST")
        .ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let (_, csr) = X509CertificationRequest::from_der(&block.contents).map_err(|error| error.to_string())?;
    read(&csr.certification_request_info.subject)
}

/// The permission is held on the signer itself, or on all signers of its domain (`example.com/*`).
fn check(attributes: &Attributes<'_>, lookup: &dyn Lookup, verb: &str, signer: &str) -> Result<()> {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let held = |name: &str| {
        let permission = Permission {
            verb,
            group: GROUP,
            version: "*",
            resource: "signers",
            name,
            ..Permission::default()
        };
        lookup.allows(attributes.plane, attributes.user, &permission)
    };
    if held(signer) || held(&domain) {
        return Ok(());
    }
    Err(attributes.forbidden(&format!("user not permitted to {verb} requests with signerName {signer:?}")))
}
