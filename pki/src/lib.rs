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
mod error;
pub mod files;
pub mod key;
pub mod kubeconfig;
pub mod name;
pub mod read;
mod urn;
pub mod usage;

pub use authority::{Authority, ClientName, Pair, PlaneBinding};
pub use csr::{CsrInfo, CsrTerms};
pub use derived::{pair_token_key, pair_token_keys};
pub use error::{Error, Result};
pub use files::write_private;
pub use key::PrivateKey;
pub use kubeconfig::{Credentials, KubeconfigParams, host_address, kubeconfig};
pub use read::{CertificateInfo, certificates_der, is_issued_by, not_after};
pub use urn::{GENERATION_URN, PERMANENT, PLANE_URN};
