//! Whose requests are, and the trails of organizations.

use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_audit::{Standing, Subject};
use freehold_apiserver_planes::Target;
use freehold_machinery::{Status, User, Value};
use futures_util::stream::BoxStream;
use std::sync::Arc;

/// Knows whose a request is, and keeps the trails of organizations. Each failure is the `Status` that the client gets.
#[async_trait]
pub trait AuditBackend: Send + Sync + 'static {
    /// The organization and project that a request is for, for the audit log: those of its target or, in the core plane,
    /// of the object that its path names.
    fn owner(&self, target: &Target, about: &Subject<'_>) -> Owner;

    /// The organization of an object that is about to be made, where the object and not its path says that.
    fn owner_of(&self, target: &Target, about: &Subject<'_>, object: &Value) -> Option<Arc<str>>;

    /// The uid of an organization, and what somebody (`None`: nobody was believed) is to it; `None` where there is no such
    /// organization.
    async fn standing(
        &self,
        organization: &str,
        target: &Target,
        user: Option<&User>,
    ) -> Option<(Arc<str>, Standing)>;

    /// Audit events of an organization, from a place or from a time (microseconds since 1970) on. 404 where none are kept.
    async fn audit_page(&self, target: &Target, from: &str, since: i64) -> Result<AuditPage, Status>;

    /// Audit events of an organization as they come, after a revision (0: from now on).
    async fn audit_watch(&self, target: &Target, after: u64) -> Result<AuditStream, Status>;
}

/// Audit events as they come, JSON each.
pub type AuditStream = BoxStream<'static, Result<Vec<Bytes>, Status>>;

/// Whose a target is.
#[derive(Clone, Debug, Default)]
pub struct Owner {
    /// The organization, if it is one's.
    pub organization: Option<Arc<str>>,
    /// The project, if it is one.
    pub project: Option<Arc<str>>,
}

/// A page of events, JSON each.
#[derive(Debug, Default)]
pub struct AuditPage {
    /// The events, the oldest first.
    pub events: Vec<Bytes>,
    /// Where the next page begins.
    pub next: Option<String>,
    /// The revision that it was read at.
    pub revision: u64,
}
