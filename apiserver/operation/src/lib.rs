//! What a request asks of the registry, and what it answers: operations, their options, objects on their way out.
//!
//! Guarantees: an operation names its plane, and nothing here has a plane of its own.
//!
//! This crate must not know: HTTP, how operations are carried out, where objects are kept.

mod heavy;
mod op;
mod shown;
mod write;

pub use heavy::heavy;
pub use op::*;
pub use shown::{Places, Shown};
pub use write::{attributes, is_stored, now, path_of, server};

use async_trait::async_trait;
use freehold_apiserver_authz::Access;
use freehold_machinery::{PlaneId, Result};

/// Who may do what in each plane, for the checks that keep people from granting what they don't have.
#[async_trait]
pub trait PolicySource: Send + Sync + 'static {
    /// What decides in a plane.
    async fn access(&self, plane: &PlaneId) -> Result<Access>;
}
