//! Why something could not be issued, read or written.

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
