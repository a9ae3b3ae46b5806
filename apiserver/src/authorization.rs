//! Who else is asked whether somebody may do something: webhooks before and behind the server's own rules, in the order of an
//! `AuthorizationConfiguration`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#configuring-the-api-server-using-an-authorization-config-file>).
//!
//! `RBAC` stands for all that the server knows itself: each plane's RBAC and the platform's roles and bindings above it. The
//! first that allows or denies decides. What has no say here is the group `system:masters`, which may do everything, and the
//! cluster that the server extends, which judges its own users.

mod again;
mod authorizer;
mod opinion;
mod settings;
mod webhook;

pub(crate) use again::Refused;

use crate::place::PlaceKeys;
use anyhow::{Context, Result as AnyResult};
use arc_swap::ArcSwap;
use authorizer::Authorizer;
use freehold_apiserver_authz::{Attributes, Decision, access::Others};
use freehold_machinery::{Result, Status, Value};
use opinion::Opinion;
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{runtime::Handle, sync::watch};
use tokio_util::sync::CancellationToken;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// Those who are asked, in order; replaced as a whole when their file changes.
pub(crate) struct Authorization {
    current: ArcSwap<Vec<Authorizer>>,
    changes: watch::Sender<()>,
    again: again::Again,
}

impl Authorization {
    fn of(chain: Vec<Authorizer>) -> Arc<Self> {
        let changes = watch::Sender::new(());
        Arc::new(Self { current: ArcSwap::from_pointee(chain), changes, again: again::Again::default() })
    }

    /// Tells when others are asked, or in another order.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

impl Authorization {
    /// Reads an `AuthorizationConfiguration`, and again when it changes, until `stop`; without one the server's own rules
    /// decide. Fails if it can't be used at the start; later, what counted before goes on.
    pub(crate) fn start(file: Option<&Path>, stop: &CancellationToken) -> AnyResult<Arc<Self>> {
        let Some(path) = file else {
            return Ok(Self::of(vec![Authorizer::Own]));
        };
        let named = || format!("--authorization-config {}", path.display());
        let text = std::fs::read_to_string(path).with_context(named)?;
        let chain = settings::read(&text).with_context(named)?;
        let authorization = Self::of(chain);
        tokio::spawn(authorization.clone().follow(path.to_owned(), text, stop.clone()));
        Ok(authorization)
    }

    async fn follow(self: Arc<Self>, path: PathBuf, mut seen: String, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = stop.cancelled() => return,
            }
            let text = match tokio::fs::read_to_string(&path).await {
                Ok(text) if text == seen => continue,
                Ok(text) => text,
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "the authorization configuration can't be read");
                    continue;
                }
            };
            match settings::read(&text) {
                Ok(chain) => {
                    self.current.store(Arc::new(chain));
                    self.changes.send_replace(());
                    tracing::info!(path = %path.display(), "the authorization configuration was replaced");
                }
                Err(error) => tracing::error!(
                    path = %path.display(),
                    error = format!("{error:#}"),
                    "the authorization configuration can't be used; the one before it goes on"
                ),
            }
            seen = text;
        }
    }

    /// Whether the server's own rules are all there is.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.current.load().as_slice(), [Authorizer::Own])
    }

    /// All who are asked, for the server's own questions about a place.
    pub(crate) fn within(self: &Arc<Self>, place: PlaceKeys) -> Arc<dyn Others> {
        Arc::new(Within { authorization: self.clone(), place })
    }

    /// The first that allows or denies decides; where nobody does, it is not allowed. `place` are extra keys that say where
    /// it is asked, and `own` is what the server's own rules say.
    ///
    /// # Errors
    /// 500 where it is not allowed and somebody could not be asked, as kube-apiserver answers it.
    pub(crate) async fn decide(
        &self,
        attributes: &Attributes<'_>,
        place: &[(&str, String)],
        own: impl Future<Output = Result<Decision>> + Send,
    ) -> Result<Decision> {
        if self.is_plain() {
            return own.await;
        }
        self.decide_on(&spec(attributes, place), own).await
    }

    /// Decides on what is in the spec
    async fn decide_on(
        &self,
        spec: &Value,
        own: impl Future<Output = Result<Decision>> + Send,
    ) -> Result<Decision> {
        let chain = self.current.load_full();
        let mut own = Some(own);
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for authorizer in chain.iter() {
            let (opinion, error) = match authorizer {
                Authorizer::Own => match own.take() {
                    Some(own) => (Opinion::of(own.await?), None),
                    None => continue,
                },
                Authorizer::Webhook(webhook) => Box::pin(webhook.ask(spec)).await,
            };
            match opinion {
                Opinion::Allow(reason) => return Ok(Decision { allowed: true, denied: false, reason }),
                Opinion::Deny(reason) => {
                    let denied = Decision { allowed: false, denied: true, reason };
                    return error.map_or(Ok(denied), |error| Err(Status::internal(error)));
                }
                Opinion::None(reason) => {
                    reasons.extend(Some(reason).filter(|reason| !reason.is_empty()));
                    errors.extend(error);
                }
            }
        }
        if errors.is_empty() {
            return Ok(Decision { reason: reasons.join("\n"), ..Decision::default() });
        }
        Err(Status::internal(errors.join(", ")))
    }
}

/// All who are asked, at one place.
struct Within {
    authorization: Arc<Authorization>,
    place: PlaceKeys,
}

impl Others for Within {
    fn decide(&self, asked: &Attributes<'_>, own: Decision) -> std::result::Result<Decision, String> {
        let own = std::future::ready(Ok(own));
        let decided = self.authorization.decide(asked, &self.place, own);
        // Expressions and checks of grants can't wait: this thread does, and another one takes over what it had to do.
        tokio::task::block_in_place(|| Handle::current().block_on(decided)).map_err(|status| status.message)
    }
}

impl Opinion {
    fn of(decision: Decision) -> Self {
        match decision {
            Decision { allowed: true, reason, .. } => Self::Allow(reason),
            Decision { denied: true, reason, .. } => Self::Deny(reason),
            Decision { reason, .. } => Self::None(reason),
        }
    }
}

/// What is asked, as the spec of a SubjectAccessReview. All its strings are there, empty ones too, for conditions.
pub(crate) fn spec(asked: &Attributes<'_>, place: &[(&str, String)]) -> Value {
    let user = asked.user;
    let mut extra = json!(user.extra);
    for (key, value) in place {
        match value.as_str() {
            // Nobody says of themselves where they are.
            "" => drop(extra.as_object_mut().and_then(|extra| extra.remove(*key))),
            value => extra[*key] = json!([value]),
        }
    }
    let mut spec = json!({"user": user.name, "uid": user.uid, "groups": user.groups, "extra": extra});
    if asked.path.is_empty() {
        spec["resourceAttributes"] = json!({
            "verb": asked.verb, "group": asked.group, "version": asked.version, "resource": asked.resource,
            "subresource": asked.subresource, "namespace": asked.namespace, "name": asked.name,
        });
        let narrowed = [
            ("fieldSelector", asked.selectors.fields.of_fields()),
            ("labelSelector", asked.selectors.labels.of_labels()),
        ];
        for (field, requirements) in narrowed.into_iter().filter(|(_, found)| !found.is_empty()) {
            spec["resourceAttributes"][field] = json!({"requirements": requirements});
        }
    } else {
        spec["nonResourceAttributes"] = json!({"verb": asked.verb, "path": asked.path});
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::User;

    #[test]
    fn a_webhook_is_told_where_it_is_asked_whatever_the_user_says() {
        let claimed = |key: &str| (key.to_owned(), vec!["another".to_owned()]);
        let user =
            User { name: "jane".into(), extra: [claimed("p"), claimed("o")].into(), ..User::default() };
        let asked = Attributes { name: "x", ..Attributes::resource(&user, "get", "apps", "deployments") };
        let spec = spec(&asked, &[("p", "web".to_owned()), ("o", String::new())]);
        assert_eq!(spec["extra"], json!({"p": ["web"]}));
        assert_eq!((&spec["uid"], &spec["resourceAttributes"]["subresource"]), (&json!(""), &json!("")));
        let path = super::spec(&Attributes::path(&user, "get", "/version"), &[]);
        assert_eq!(path["nonResourceAttributes"], json!({"verb": "get", "path": "/version"}));
    }

    #[tokio::test]
    async fn without_a_configuration_the_own_rules_decide() {
        let stop = CancellationToken::new();
        let plain = Authorization::start(None, &stop).unwrap();
        let user = User::default();
        let asked = Attributes::resource(&user, "get", "", "pods");
        let yes = Decision { allowed: true, reason: "r".into(), ..Decision::default() };
        let decided = plain.decide(&asked, &[], std::future::ready(Ok(yes.clone()))).await;
        assert!(plain.is_plain() && decided == Ok(yes));
    }
}
