//! The console's gateway: its files, sessions, REST over the Kubernetes API, and many watches in one stream.
//!
//! ```text
//! browser --cookie--> guard -> session -> forward ------> apiserver, as the session's user
//!                                      -> streams: SSE --> one watch each, as the session's user
//! ```
//! The gateway has no rights of its own. A session maps to an identity that its user proved: a one-time link, a token, or
//! an OpenID Connect sign-in. Credentials stay in this process; the browser has an opaque cookie.
//!
//! Everything that grows has a limit: sessions, streams, watches of a stream, events and bytes that wait, bytes of bodies, large
//! answers at a time, requests a second and at a time.
//!
//! This crate must not know: any kind, the console's pages, or anything of the apiserver but its API.

mod api;
mod assets;
mod error;
mod forward;
mod gateway;
mod guard;
mod identity;
mod login;
mod oidc;
mod pieces;
mod rate;
mod reply;
mod secret;
mod server;
mod sessions;
mod share;
mod streams;
mod terminal;

pub use gateway::{Config, Gateway};
pub use identity::{Credentials, Lease, Links};
pub use oidc::OidcConfig;
pub use reply::{Body, BoxError, Reply};
pub use server::{CertificateFiles, ServeError};

/// Parts of OpenID Connect that `freehold login` has in common with the console's sign-in.
pub mod openid {
    pub use crate::{
        oidc::{field, form, system_authorities},
        secret::{challenge, claims, fresh},
    };
}

/// The path below which everything of the console is.
pub const PREFIX: &str = "/console/";
