//! Certificates, keys and kubeconfigs.
//!
//! All of X.509 that Freehold needs is here: certificate authorities, client and serving certificates, the signing of
//! `CertificateSigningRequest`s, and reading back who a certificate speaks for. Keys are ECDSA P-256 where Freehold
//! makes them; authorities that are brought along can also be P-384 or RSA.
//!
//! Guarantees: a certificate names every group of its user, in order; a certificate that belongs to one plane says so
//! in a URI that a signing request can neither choose nor leave out (see [`csr`]); private keys never reach `Debug`
//! output, and reach disk readable by their owner alone.
//!
//! This crate must not know: who may have which certificate, and where certificates are kept.

pub mod authority;
pub mod csr;
pub mod derived;
pub mod files;
pub mod key;
pub mod kubeconfig;
pub mod name;
pub mod read;
pub mod usage;

pub use authority::{Authority, ClientName, Pair, PlaneBinding};
pub use csr::{CsrInfo, CsrTerms};
pub use derived::{pair_token_key, pair_token_keys};
pub use files::write_private;
pub use key::PrivateKey;
pub use kubeconfig::{Credentials, KubeconfigParams, host_address, kubeconfig};
pub use read::{CertificateInfo, certificates_der, is_issued_by, not_after};

/// What begins the URI subject alternative name that binds a client certificate to one plane. The plane's identifier
/// follows. A certificate without such a name is of the platform and means the same in every plane.
pub const PLANE_URN: &str = "urn:freehold:plane:";

/// What begins the URI subject alternative name with the generation of its plane's credentials that a certificate
/// belongs to. A certificate without such a name is of generation 0.
pub const GENERATION_URN: &str = "urn:freehold:generation:";

/// The generation of certificates that raising a plane's generation does not end: those of the servers and controllers
/// of a dedicated pair, which are replaced by whoever issues them.
pub const PERMANENT: u64 = u64::MAX;

/// Why something could not be issued, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no PEM block of the wanted kind.
    #[error("no {0} found in PEM format")]
    NotPem(&'static str),
    /// It is there, but it is not what it says.
    #[error("malformed {what}: {why}")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// The decoder's word.
        why: String,
    },
    /// A private key of a kind that is not supported, or damaged.
    #[error("unsupported or corrupt private key: ECDSA P-256, P-384 and RSA are supported")]
    Key,
    /// The certificate is of another key.
    #[error("the certificate does not belong to the private key")]
    Mismatch,
    /// An authority whose certificate allows none below it.
    #[error(
        "the authority allows no subordinate authority (pathLenConstraint is 0), and each project needs one"
    )]
    PathLength,
    /// A user, group or host name that can't stand in a certificate.
    #[error("{0:?} is not valid in a certificate")]
    Name(String),
    /// A usage that `certificates.k8s.io` does not define.
    #[error("unrecognized usage {0:?}")]
    Usage(String),
    /// A signature that does not verify.
    #[error("the signature of the {0} is not valid")]
    Signature(&'static str),
}

/// The outcome of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn malformed(what: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Malformed { what, why: why.to_string() }
    }
}
