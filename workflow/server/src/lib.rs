//! REST server of the workflow subsystem: DAGs, runs, history, logs, statistics and accounts, and Kontroler's routes.
//!
//! The server holds no rights of its own where it forwards: each request is made to the Kubernetes API with the caller's
//! bearer token, and what it reads from the history is authorized by a SelfSubjectAccessReview in the caller's name.
//! Stand-alone it knows local accounts and tokens of an OIDC issuer, whose roles decide, and uses its own identity.
//!
//! Guarantees: bodies, pages, streams, logins and connections have limits; tokens are known by hash alone; no account exists
//! before an operator creates it; failures are Kubernetes `Status` objects.
//!
//! This crate must not know how runs are carried out.

mod access;
mod accounts;
mod app;
mod caller;
mod oidc;
mod openapi;
mod reads;
mod reply;
mod routes;
mod serve;
mod streams;
mod tls;
mod upstream;

pub use accounts::create_account;
pub use app::{App, Authentication, Options};
pub use oidc::OidcOptions;
pub use openapi::document as openapi;
pub use reads::{HISTORY_GROUP, HistoryRead, read};
pub use serve::{Serving, serve};
pub use tls::TlsFiles;
