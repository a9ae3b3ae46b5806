//! Who is asking, by everything that this server believes: certificates and front proxies, service account tokens,
//! bootstrap tokens, the issuers that the operator configures and those of the organization that a request is for, and a
//! webhook.

mod documents;
mod organizations;
mod settings;
mod webhook;

pub use settings::{AuthenticationConfig, TokenWebhookConfig};

use crate::lookup::Lookup;
use anyhow::Result as AnyResult;
use documents::Documents;
use freehold_apiserver_authn::{
    BootstrapToken, Peer, Request, TokenIssuer, bearer, bootstrap, certified, oidc::untrusted_issuer,
};
use freehold_apiserver_cache::Cache;
use freehold_apiserver_outbound::{Networks, Outbound};
use freehold_apiserver_server::RequestHeaders;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{
    PlaneId, Result, Status, User, Value,
    reserved::{self, Source},
};
use organizations::Organizations;
use settings::Settings;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use webhook::TokenWebhook;

/// Where a request is, as far as that says who may ask.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The plane.
    pub(crate) plane: &'a PlaneId,
    /// The organization that the plane or view is of.
    pub(crate) organization: Option<&'a str>,
}

/// Whose token it is, and which of the audiences that were asked for it is for; otherwise what is wrong with it.
pub(crate) type Reviewed = std::result::Result<(User, Vec<String>), Vec<String>>;

/// Who is asking.
pub(crate) struct Authentication {
    tokens: Arc<TokenIssuer>,
    cache: Arc<Cache>,
    lookup: Lookup,
    settings: Arc<Settings>,
    organizations: Organizations,
    webhook: Option<Arc<TokenWebhook>>,
    bootstrap: bool,
}

impl Authentication {
    /// Reads the settings, and follows their file until `stop`.
    pub(crate) fn start(
        config: &AuthenticationConfig,
        tokens: Arc<TokenIssuer>,
        cache: Arc<Cache>,
        outbound: Arc<Outbound>,
        services: Arc<dyn freehold_apiserver_outbound::Services>,
        stop: &CancellationToken,
    ) -> AnyResult<Self> {
        // What the operator names may be anywhere; what organizations name, where all that planes name may be.
        let anywhere: Networks = "any".parse().map_err(anyhow::Error::msg)?;
        let own = Arc::new(Outbound::new(anywhere, services, Default::default()));
        let fetch = Arc::new(Documents::new(own, PlaneId::core()));
        let settings = Settings::start(config, fetch, tokens.base(), stop)?;
        let webhook = |config| TokenWebhook::start(config, settings.teller(), stop);
        Ok(Self {
            lookup: Lookup::new(cache.clone()),
            organizations: Organizations::new(cache.clone(), outbound),
            webhook: config.webhook.as_ref().map(webhook).transpose()?,
            bootstrap: config.bootstrap_tokens,
            tokens,
            cache,
            settings,
        })
    }

    /// Who is asking; `None` where the request does not say, 401 where it is not to be believed.
    pub(crate) async fn authenticate(
        &self,
        place: Place<'_>,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<User>> {
        let user = certified(&Request { plane: place.plane, peer, headers, now: now() })?;
        if user.is_some() {
            return Ok(user);
        }
        let Some(token) = bearer(headers) else { return Ok(None) };
        let audiences = self.tokens.api_audiences(place.plane);
        match self.token(place, token, &audiences).await? {
            Ok((user, _)) => Ok(Some(user)),
            Err(errors) => {
                tracing::debug!(plane = %place.plane, ?errors, "bearer token refused");
                Err(Status::unauthorized())
            }
        }
    }

    /// The plane that a node's certificate or a service account's token names, unverified; `None` for other credentials.
    pub(crate) fn plane_claimed(&self, peer: Option<&Peer>, headers: &RequestHeaders<'_>) -> Option<PlaneId> {
        if let Some(peer) = peer.filter(|peer| peer.has_identity()) {
            return peer.plane_of_node().cloned();
        }
        let issuer = untrusted_issuer(bearer(headers)?)?;
        issuer.strip_prefix(self.tokens.base())?.strip_prefix('/')?.parse().ok()
    }

    /// Tells when the configuration says something else.
    pub(crate) fn changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.settings.changes()
    }

    /// Whether the anonymous may ask for a path.
    pub(crate) fn anonymous(&self, path: &str) -> bool {
        self.settings.anonymous(path)
    }

    /// The status of a TokenReview with that spec.
    pub(crate) async fn review(&self, place: Place<'_>, spec: &Value) -> Result<Reviewed> {
        let wanted = spec["audiences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let wanted: Vec<String> = wanted.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let audiences = if wanted.is_empty() { self.tokens.api_audiences(place.plane) } else { wanted };
        let token = spec["token"].as_str().unwrap_or_default();
        self.token(place, token, &audiences).await
    }

    /// Whose token this is, for whoever answers to one of `audiences`; otherwise what is wrong with it.
    async fn token(&self, place: Place<'_>, token: &str, audiences: &[String]) -> Result<Reviewed> {
        let mut errors = Vec::new();
        // Only the last of these asks another server about a token that it has not seen.
        match self.of_service_account(place.plane, token, audiences).await? {
            Some(Ok(found)) => return Ok(Ok(found)),
            // It is one of our own that is not good here, and nobody else's.
            Some(Err(error)) => return Ok(Err(vec![error])),
            // One that only says so is shown to nobody: it may be good in another plane.
            None if untrusted_issuer(token).is_some_and(|name| self.tokens.is_own(&name)) => {
                return Ok(Err(errors));
            }
            None => {}
        }
        let api: Vec<String> = self
            .tokens
            .api_audiences(place.plane)
            .into_iter()
            .filter(|own| audiences.contains(own))
            .collect();
        if !api.is_empty() {
            let found = match self.of_bootstrap(place.plane, token).await? {
                Some(user) => Some(user),
                None => Box::pin(self.of_issuer(place, token, &mut errors)).await?,
            };
            if let Some(user) = found {
                return Ok(Ok((user, api)));
            }
        }
        if let Some(webhook) = &self.webhook {
            let found = Box::pin(webhook.ask(token, audiences)).await;
            let found = found.and_then(|found| {
                found.map(|(user, audiences)| Ok((unreserved(user)?, audiences))).transpose()
            });
            match found {
                Ok(Some(found)) => return Ok(Ok(found)),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        Ok(Err(errors))
    }

    /// `None` for a token that no key signed which is believed in the plane.
    async fn of_service_account(
        &self,
        plane: &PlaneId,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<std::result::Result<(User, Vec<String>), String>>> {
        if !self.tokens.signed(plane, token) {
            return Ok(None);
        }
        self.load(plane).await?;
        let verified = self.tokens.verify_for(plane, token, audiences, now(), &self.lookup);
        Ok(Some(verified.map(|v| (v.user, v.audiences)).map_err(|error| error.to_string())))
    }

    async fn of_bootstrap(&self, plane: &PlaneId, token: &str) -> Result<Option<User>> {
        let Some(parsed) = BootstrapToken::parse(token).filter(|_| self.bootstrap) else { return Ok(None) };
        self.load(plane).await?;
        let path = ObjectPath {
            group: String::new(),
            resource: "secrets".to_owned(),
            namespace: Some(bootstrap::NAMESPACE.to_owned()),
            name: parsed.secret_name(),
        };
        let secret = self.cache.peek(plane, &path);
        Ok(secret.and_then(|secret| parsed.user(plane, &secret.value(), now())))
    }

    async fn of_issuer(
        &self,
        place: Place<'_>,
        token: &str,
        errors: &mut Vec<String>,
    ) -> Result<Option<User>> {
        let Some(name) = untrusted_issuer(token) else { return Ok(None) };
        if let Some(issuer) = self.settings.issuer(&name) {
            match issuer
                .authenticate(token, now())
                .await
                .map_err(|error| error.to_string())
                .and_then(unreserved)
            {
                Ok(user) => return Ok(Some(user)),
                Err(error) => errors.push(error),
            }
        }
        let Some(organization) = place.organization else { return Ok(None) };
        match self.organizations.authenticate(organization, &name, token, now()).await? {
            Some(Ok(user)) => Ok(Some(user)),
            Some(Err(error)) => {
                errors.push(error);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Tokens are checked against objects in memory: those of the plane must be there, and current.
    async fn load(&self, plane: &PlaneId) -> Result<()> {
        self.cache.catch_up().await?;
        self.cache.load(plane).await
    }
}

/// A user as the operator's issuer or webhook describes them; what is wrong where that takes something reserved.
fn unreserved(user: User) -> std::result::Result<User, String> {
    match reserved::check_user(Source::Operator, &user) {
        Ok(()) => Ok(user),
        Err(why) => Err(why.to_string()),
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_outside_says_that_a_user_is_freeholds_own() {
        let user = |name: &str, group: &str, key: &str| User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            extra: [(key.to_owned(), vec!["x".to_owned()])].into(),
            ..User::default()
        };
        let rows = [
            ("jane", "system:masters", "example.com/a", true),
            ("system:freehold:provisioner", "devs", "a", false),
            ("freehold:serviceaccount:organization-acme:ci", "devs", "a", false),
            ("organization:acme:jane", "devs", "a", false),
            ("plane:4711", "devs", "a", false),
            ("jane", "system:freehold:controllers", "a", false),
            ("jane", "devs", "iam.freehold.dev/granted", false),
            ("jane", "devs", "plane.freehold.dev", false),
        ];
        for (name, group, key, accepted) in rows {
            assert_eq!(unreserved(user(name, group, key)).is_ok(), accepted, "{name} {group} {key}");
        }
    }
}
