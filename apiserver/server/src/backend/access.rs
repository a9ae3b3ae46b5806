//! Access: who is asking, and what they may do.

use async_trait::async_trait;
use freehold_apiserver_authn::Headers;
use freehold_apiserver_authn::Peer;
use freehold_apiserver_authz::{Attributes, Decision};
use freehold_apiserver_planes::{Target, context::Context};
use freehold_machinery::{PlaneId, Status, User, Value};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use std::sync::Arc;

/// Knows users and what they may do. Each failure is the `Status` that the client gets.
#[async_trait]
pub trait AccessBackend: Send + Sync + 'static {
    /// The context that the identity of a request without one leads to: a plane's node or service account to its project.
    /// `None` for everybody else, whose requests are for the platform. Nothing is verified here: whoever is led to a plane is
    /// authenticated there.
    async fn home(
        &self,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<Context>, Status>;

    /// Who is asking at a plane (core for organizations, users and all planes), through a target. `None` where the request
    /// does not say; 401 where it is not to be believed.
    async fn authenticate(
        &self,
        plane: &PlaneId,
        target: Option<&Target>,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<User>, Status>;

    /// Whether requests for a path need not say who asks.
    fn allows_anonymous(&self, path: &str) -> bool;

    /// The `status` of a `TokenReview` at a target.
    async fn review_token(&self, target: &Target, spec: &Value) -> Result<Value, Status>;

    /// Whether the user of `attributes` may do it. An error is a failure to find out, not a denial.
    async fn authorize(&self, target: &Target, attributes: &Attributes<'_>) -> Result<Decision, Status>;

    /// Whether the user of `attributes` may do it, which is the request that is being served: where another server has passed it
    /// on, what that one says of it counts too. An error is a failure to find out, not a denial.
    async fn authorize_request(
        &self,
        target: &Target,
        attributes: &Attributes<'_>,
    ) -> Result<Decision, Status>;

    /// Whether anything is served there to a user: 403 with the reason where it is suspended.
    async fn admit(&self, target: &Target, user: &User) -> Result<(), Status>;

    /// Why the user of `attributes` may do it, or what is missing, in words.
    async fn explain(&self, target: &Target, attributes: &Attributes<'_>) -> Result<String, Status>;

    /// Whether others than the server's own rules are asked what somebody may do. Then identities that users of dedicated planes
    /// take on are judged here too, and not by the pair alone.
    fn asks_others(&self) -> bool;

    /// A user as a dedicated pair is told of: with what the platform gives them for this request.
    async fn told_of(
        &self,
        target: &Target,
        attributes: &Attributes<'_>,
        user: Arc<User>,
    ) -> Result<Arc<User>, Status>;

    /// Ends when what was allowed to `user` at `target` is so no longer, within a second: what is still going on ends then.
    fn revoked(
        &self,
        target: &Target,
        user: &Arc<User>,
        attributes: &Attributes<'_>,
    ) -> BoxFuture<'static, ()>;

    /// The `status` of a `SelfSubjectRulesReview`: `resourceRules`, `nonResourceRules`, `incomplete`.
    async fn rules_for(&self, target: &Target, user: &User, namespace: &str) -> Result<Value, Status>;

    /// A document of the plane's token issuer.
    async fn openid(&self, target: &Target, document: OpenIdDocument) -> Result<Value, Status>;
}

/// The two documents with which others verify a plane's service account tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenIdDocument {
    /// `/.well-known/openid-configuration`.
    Configuration,
    /// `/openid/v1/jwks`.
    Keys,
}

/// The headers of a request, as authentication reads them.
pub struct RequestHeaders<'a>(pub &'a HeaderMap);

impl Headers for RequestHeaders<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a str)) {
        for (name, value) in self.0 {
            if let Ok(value) = std::str::from_utf8(value.as_bytes()) {
                visit(name.as_str(), value);
            }
        }
    }
}
