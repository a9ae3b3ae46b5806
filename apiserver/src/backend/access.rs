//! Access: who is asking, and what they may do.

use crate::local::LocalBackend;
use crate::{authentication::Place, people, rights};
use async_trait::async_trait;
use freehold_apiserver_authn::{Headers, Peer, review};
use freehold_apiserver_authz::{Attributes, Decision, forbidden, iam::GRANTED};
use freehold_apiserver_planes::{Target, context::Context};
use freehold_apiserver_server::{AccessBackend, OpenIdDocument, RequestHeaders};
use freehold_machinery::{PlaneId, Result, Status, User, Value, user::MASTERS};
use futures_util::future;
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::json;
use std::sync::Arc;

#[async_trait]
impl AccessBackend for LocalBackend {
    async fn home(&self, peer: Option<&Peer>, headers: &RequestHeaders<'_>) -> Result<Option<Context>> {
        let Some(plane) = self.authentication.plane_claimed(peer, headers) else { return Ok(None) };
        let project = self.planes.directory().find_plane(&plane).await?;
        Ok(project.map(|project| Context::Project(project.name.to_string())))
    }

    async fn authenticate(
        &self,
        plane: &PlaneId,
        target: Option<&Target>,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<User>> {
        if peer.is_none()
            && let Some(token) = headers.get("authorization").and_then(people::of_key)
        {
            return people::authenticate_key(&self.planes, token).await.map(Some);
        }
        let owner = target.map(|target| self.owner_of_plane(target)).unwrap_or_default();
        let place = Place { plane, organization: owner.organization.as_deref() };
        let user = self.authentication.authenticate(place, peer, headers).await?;
        if let Some(user) = &user {
            people::check_active(&self.planes, user).await?;
            people::check_believed(&self.planes, user).await?;
        }
        Ok(user)
    }

    fn allows_anonymous(&self, path: &str) -> bool {
        self.authentication.anonymous(path)
    }

    async fn review_token(&self, target: &Target, spec: &Value) -> Result<Value> {
        let plane = match target {
            Target::Local(plane) => plane.clone(),
            Target::Dedicated(pair) => pair.plane.clone(),
            _ => PlaneId::core(),
        };
        let owner = self.owner_of_plane(target);
        let place = Place { plane: &plane, organization: owner.organization.as_deref() };
        let found = match self.authentication.review(place, spec).await? {
            Ok((user, _)) if !self.planes.believes(&user).await => {
                Err(vec!["the token was revoked".to_owned()])
            }
            found => found,
        };
        Ok(review::answer(found.as_ref().cloned().map_err(Vec::as_slice)))
    }

    async fn authorize(&self, target: &Target, attributes: &Attributes<'_>) -> Result<Decision> {
        if attributes.user.is_in(MASTERS) {
            return Ok(Decision::allow(""));
        }
        if let Some(denied) = rights::denial(&self.planes, target, attributes).await? {
            return Ok(denied);
        }
        if attributes.user.from_host {
            return match &self.host {
                Some(host) => Box::pin(host.review(attributes)).await,
                None => Ok(Decision::default()),
            };
        }
        if people::check_active(&self.planes, attributes.user).await.is_err() {
            return Ok(Decision::refuse("the user is deactivated"));
        }
        let own = self.nodes.authorize(&self.planes, target, attributes);
        let decision = self.authorization.decide(attributes, &self.place(target), own).await?;
        // Only those who could do it otherwise are told that an organization is suspended.
        if decision.allowed {
            rights::check_suspension(&self.planes, target, attributes).await?;
        }
        Ok(decision)
    }

    async fn authorize_request(&self, target: &Target, attributes: &Attributes<'_>) -> Result<Decision> {
        let decision = self.authorize(target, attributes).await?;
        // That there is no such organization, likewise.
        if let Target::Organization(scope) = target
            && decision.allowed
        {
            scope.check_exists()?;
        }
        if let Target::Provider(scope) = target
            && decision.allowed
        {
            scope.check_exists()?;
        }
        // To a pair the core server says what the platform allows.
        Ok(match attributes.user.extra.get(GRANTED).filter(|_| !self.planes.has_core()) {
            Some(reason) if !decision.allowed && !decision.denied => Decision::allow(reason.concat()),
            _ => decision,
        })
    }

    async fn admit(&self, target: &Target, user: &User) -> Result<()> {
        let plane = match target {
            Target::Local(plane) => plane,
            Target::Dedicated(pair) => &pair.plane,
            Target::Provider(scope) => &scope.plane,
            Target::Organization(_) | Target::User(_) | Target::AllPlanes => return Ok(()),
        };
        if plane.is_core() || people::is_platforms(user) {
            return Ok(());
        }
        self.planes.suspended(plane).await.map_or(Ok(()), Err)
    }

    async fn explain(&self, target: &Target, attributes: &Attributes<'_>) -> Result<String> {
        Ok(rights::access(&self.planes, target).await?.explain(attributes))
    }

    fn asks_others(&self) -> bool {
        !self.authorization.is_plain()
    }

    async fn told_of(
        &self,
        target: &Target,
        attributes: &Attributes<'_>,
        user: Arc<User>,
    ) -> Result<Arc<User>> {
        let mut told = User { extra: user.extra.clone(), ..(*user).clone() };
        told.extra.remove(GRANTED);
        if !user.is_in(MASTERS) {
            let access = rights::access(&self.planes, target).await?;
            let is_let_in = access.lets_in(&user);
            if !self.authorization.is_plain() {
                let decision = self.authorize(target, attributes).await?;
                if decision.denied {
                    return Err(forbidden(attributes, &decision.reason));
                }
                if !decision.allowed {
                    // The pair says so, in its words.
                    return Ok(Arc::new(if is_let_in { told } else { User::anonymous() }));
                }
                told.extra.insert(GRANTED.to_owned(), vec![decision.reason]);
            }
            // Who may do all is told of as that, so that the pair lets them grant what they have.
            let all = Attributes { verb: "*", ..Attributes::resource(&user, "*", "*", "*") };
            if access.granted(&all).is_some() {
                told.groups.push(MASTERS.to_owned());
            } else if let Some(reason) = access.granted(attributes) {
                told.extra.insert(GRANTED.to_owned(), vec![reason]);
            } else if !is_let_in && !told.extra.contains_key(GRANTED) {
                told = User::anonymous();
            }
        }
        Ok(Arc::new(told))
    }

    fn revoked(
        &self,
        target: &Target,
        user: &Arc<User>,
        attributes: &Attributes<'_>,
    ) -> BoxFuture<'static, ()> {
        // A webhook may have allowed it, a pair may have judged by impersonation, and another cluster judges its own users.
        let others = user.from_host
            || matches!(target, Target::Dedicated(_))
            || !self.authorization.is_plain()
            || user.extra.contains_key(GRANTED);
        let configured = people::Configured {
            authentication: self.authentication.changes(),
            keys: self.tokens.changes(),
            authorization: self.authorization.changes(),
        };
        let revoked = people::revoked(&self.planes, target, user, attributes, (others, configured));
        match self.refused(target, user, attributes) {
            None => revoked,
            Some(refused) => Box::pin(future::select(revoked, refused).map(drop)),
        }
    }

    async fn rules_for(&self, target: &Target, user: &User, namespace: &str) -> Result<Value> {
        let mut status =
            rights::access(&self.planes, target).await?.rules(user, &json!({"namespace": namespace}))?;
        if !self.authorization.is_plain() {
            // What webhooks say depends on the request.
            status["incomplete"] = true.into();
            status["evaluationError"] = "webhook authorizer does not support user rule resolution".into();
        }
        Ok(status)
    }

    async fn openid(&self, target: &Target, document: OpenIdDocument) -> Result<Value> {
        let Target::Local(plane) = target else { return Err(Status::no_such_resource()) };
        Ok(match document {
            OpenIdDocument::Configuration => {
                let uri = format!("{}/openid/v1/jwks", self.tokens.issuer(plane));
                self.tokens.openid_configuration(plane, &uri)
            }
            OpenIdDocument::Keys => self.tokens.jwks(plane),
        })
    }
}
