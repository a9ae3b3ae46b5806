//! Who is locked out, who is let in with a key, and when what was allowed is so no longer.

use crate::rights::needed;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use freehold_apiserver_authz::{
    Access, Attributes,
    iam::{GROUP, RESOURCES_GROUP, service_account},
    reserved,
};
use freehold_apiserver_planes::{Consumers, Planes, Target};
use freehold_apiserver_registry::{Object, Operation, Written};
use freehold_machinery::{
    PlaneId, Result, Status, User, Value, meta,
    user::{AUTHENTICATED, MASTERS},
};
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use std::{sync::Arc, time::Duration};
use tokio::{select, sync::watch, time::sleep};
use uuid::Uuid;

/// What the tokens of service accounts begin with, so that they are known for what they are wherever they are found.
const TOKEN: &str = "fhsa_";
/// The extra key of those who authenticate with a key: which one.
const KEY: &str = "iam.freehold.dev/key";
/// The group of all service accounts with keys.
const ACCOUNTS: &str = "freehold:serviceaccounts";
/// How long changes are collected before what they change is looked at.
const TOGETHER: Duration = Duration::from_millis(100);
/// Longest wait for a credential to end, in milliseconds.
const LONGEST_WAIT: i64 = 3_600_000;

/// Whether a user is the platform's own: those are not kept out by a suspension.
pub(crate) fn is_platforms(user: &User) -> bool {
    reserved::is_controller(user)
}

/// 401 for who is locked out.
pub(crate) async fn check_active(planes: &Planes, user: &User) -> Result<()> {
    if user.plane.is_some() {
        return Ok(());
    }
    let iam = planes.people().iam().await.read();
    if iam.deactivated(&user.name).is_some() || iam.is_revoked(user) {
        tracing::debug!(user = user.name, "a deactivated user or a revoked credential is refused");
        return Err(Status::unauthorized());
    }
    Ok(())
}

/// 401 for a credential of a plane that was revoked there.
pub(crate) async fn check_believed(planes: &Planes, user: &User) -> Result<()> {
    if planes.believes(user).await {
        return Ok(());
    }
    tracing::debug!(user = user.name, "a revoked credential of a project is refused");
    Err(Status::unauthorized())
}

/// A new token and what is kept of it, for a key of that name.
fn token(namespace: &str, name: &str) -> (String, String) {
    // 244 random bits.
    let secret = [Uuid::new_v4(), Uuid::new_v4()].map(|part| part.simple().to_string()).concat();
    let at = BASE64_URL_SAFE_NO_PAD.encode(format!("{namespace}/{name}"));
    let token = format!("{TOKEN}{at}.{secret}");
    let hash = hex::encode(Sha256::digest(&token));
    (token, hash)
}

/// Whether an operation makes a key.
pub(crate) fn is_key(op: &Operation) -> bool {
    op.plane.is_core()
        && op.ty.group == GROUP
        && op.ty.plural == "serviceaccountkeys"
        && op.subresource.is_none()
}

/// Gives a key that is about to be made its hash; the token is for its maker.
pub(crate) fn prepare_key(op: &Operation, key: &mut Value) -> Result<String> {
    let name = meta::name(key);
    if name.is_empty() {
        return Err(Status::bad_request("a key needs a name"));
    }
    let (token, hash) = token(op.namespace.as_deref().unwrap_or_default(), name);
    key["spec"]["tokenHash"] = hash.into();
    Ok(token)
}

/// The answer to who made a key: the one place where its token stands.
pub(crate) fn reveal(written: Written, token: String) -> Written {
    let mut value: Value = (*written.object.value()).clone();
    value["status"]["token"] = token.into();
    Written { object: Object::Value(Arc::new(value)), ..written }
}

/// Whether a bearer token is one of a service account with keys.
pub(crate) fn of_key(authorization: &str) -> Option<&str> {
    let token =
        authorization.trim().split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))?.1;
    token.trim().starts_with(TOKEN).then(|| token.trim())
}

/// The service account whose key a token is. 401 where there is no such key, or none that counts.
pub(crate) async fn authenticate_key(planes: &Planes, token: &str) -> Result<User> {
    let at = token.strip_prefix(TOKEN).and_then(|rest| rest.split_once('.')).map(|(at, _)| at);
    let at =
        at.and_then(|at| BASE64_URL_SAFE_NO_PAD.decode(at).ok()).and_then(|at| String::from_utf8(at).ok());
    let at = at.ok_or_else(Status::unauthorized)?;
    let hash = hex::encode(Sha256::digest(token));
    let iam = planes.people().iam().await.read();
    let account =
        iam.account_of(&at, &hash, jiff::Timestamp::now().as_second()).ok_or_else(Status::unauthorized)?;
    let (namespace, name) = account.split_once('/').ok_or_else(Status::unauthorized)?;
    Ok(User {
        name: service_account(namespace, name),
        groups: vec![ACCOUNTS.to_owned(), AUTHENTICATED.to_owned()],
        extra: [(KEY.to_owned(), vec![at])].into(),
        ..User::default()
    })
}

/// What a long request asked for, kept for as long as it goes on.
pub(crate) struct Asked {
    user: Arc<User>,
    verb: Box<str>,
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    subresource: Box<str>,
    namespace: Box<str>,
    name: Box<str>,
    path: Box<str>,
}

impl Asked {
    pub(crate) fn new(user: &Arc<User>, asked: &Attributes<'_>) -> Self {
        Self {
            user: user.clone(),
            verb: asked.verb.into(),
            group: asked.group.into(),
            version: asked.version.into(),
            resource: asked.resource.into(),
            subresource: asked.subresource.into(),
            namespace: asked.namespace.into(),
            name: asked.name.into(),
            path: asked.path.into(),
        }
    }

    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes {
            user: &self.user,
            verb: &self.verb,
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            path: &self.path,
            // What others say is not asked again.
            selectors: Default::default(),
        }
    }
}

/// Tells when the configuration says otherwise who is believed, and who is asked what they may.
pub(crate) struct Configured {
    pub(crate) authentication: watch::Receiver<()>,
    /// The keys of tokens among that.
    pub(crate) keys: watch::Receiver<()>,
    pub(crate) authorization: watch::Receiver<()>,
}

/// Ends when what was allowed is so no longer. `others` may have judged too, by more than is known here: then only what was
/// allowed here can end here. What others have a say in ends when other ones have it: it may be asked for again.
pub(crate) fn revoked(
    planes: &Arc<Planes>,
    target: &Target,
    user: &Arc<User>,
    asked: &Attributes<'_>,
    (others, mut configured): (bool, Configured),
) -> BoxFuture<'static, ()> {
    let (planes, target, asked) = (planes.clone(), target.clone(), Asked::new(user, asked));
    let plane = match &target {
        Target::Local(plane) => plane.clone(),
        Target::Provider(scope) => scope.plane.clone(),
        // The pair looks after its own roles and bindings.
        _ => PlaneId::core(),
    };
    Box::pin(async move {
        let mut above = planes.people().changes();
        let own = planes.changes_of(&plane);
        let mut below = own.subscribe();
        let mut projects = planes.directory().restrictions();
        let mut bindings = planes.apis().changes();
        let is_provider = matches!(target, Target::Provider(_));
        // All that an identity rests on is in one plane.
        let home = asked.user.basis.as_ref().and_then(|basis| basis.objects.first());
        let footings = home.map(|footing| planes.footings_of(&footing.plane)).unwrap_or_default();
        let mut beneath = footings.subscribe();
        let asks_nobody = asked.user.is_in(MASTERS);
        let standing = Standing {
            is_judged: !others || is_judged_here(&planes, &target, &asked).await,
            is_let_in: is_let_in(&planes, &target, &asked.user).await,
            restricted: restricted(&planes, &target),
        };
        while holds(&planes, &target, &asked, standing).await {
            // The senders live as long as this, so that nothing of it fails.
            select! {
                _ = above.changed() => {}
                _ = below.changed() => {}
                _ = projects.changed() => {}
                _ = beneath.changed() => {}
                _ = bindings.changed(), if is_provider => {}
                _ = configured.authentication.changed() => {}
                _ = configured.keys.changed() => {}
                _ = configured.authorization.changed(), if !asks_nobody => return,
                () = ends(&planes, &asked.user) => continue,
            }
            sleep(TOGETHER).await;
            beneath.mark_unchanged();
            above.mark_unchanged();
            bindings.mark_unchanged();
            below.mark_unchanged();
            projects.mark_unchanged();
        }
    })
}

/// Waits until a user's credential ends by itself. At the longest for an hour: clocks are set.
async fn ends(planes: &Planes, user: &User) {
    let key = match key_of(user) {
        Some(key) => planes.people().iam().await.read().key_ends(key),
        None => None,
    };
    let until = user.basis.as_ref().and_then(|basis| basis.until);
    let Some(until) = key.into_iter().chain(until).min() else { return std::future::pending().await };
    let left = until.saturating_mul(1000).saturating_sub(jiff::Timestamp::now().as_millisecond());
    sleep(Duration::from_millis(left.clamp(1, LONGEST_WAIT) as u64)).await;
}

/// Whether what a user's identity rests on is there, and the time of its credential is not over.
async fn stands(planes: &Planes, user: &User) -> bool {
    let Some(basis) = &user.basis else { return true };
    if basis.until.is_some_and(|until| jiff::Timestamp::now().as_second() >= until) {
        return false;
    }
    if basis.voucher.as_ref().is_some_and(|voucher| !voucher.stands()) {
        return false;
    }
    if !planes.believes(user).await {
        return false;
    }
    for footing in &basis.objects {
        if !planes.stands(footing).await {
            return false;
        }
    }
    true
}

/// What decides at a target; `None` where nobody's rights can go.
async fn access(planes: &Planes, target: &Target) -> Option<Result<Access>> {
    Some(match target {
        Target::Local(plane) => planes.access(plane).await,
        Target::Dedicated(pair) => planes.access(&pair.plane).await,
        Target::Organization(scope) => planes.access_of(scope).await,
        Target::Provider(scope) => planes.access(&scope.plane).await,
        Target::User(_) | Target::AllPlanes => return None,
    })
}

/// Whether what is known here allowed it, where others judge too.
async fn is_judged_here(planes: &Planes, target: &Target, asked: &Asked) -> bool {
    let access = access(planes, target).await.and_then(Result::ok);
    access.is_some_and(|access| access.authorize(&needed(target, &asked.attributes())).allowed)
}

async fn is_suspended(planes: &Planes, target: &Target, asked: &Attributes<'_>) -> bool {
    match target {
        Target::Local(plane) => planes.suspended(plane).await.is_some(),
        Target::Dedicated(pair) => planes.suspended(&pair.plane).await.is_some(),
        Target::Organization(scope) => {
            let own = matches!(asked.group, RESOURCES_GROUP | GROUP);
            !own && planes.organization_suspended(&scope.name).await.is_some()
        }
        Target::Provider(scope) => {
            let one = match &scope.consumers {
                Consumers::One(plane) => planes.suspended(plane).await.is_some(),
                _ => false,
            };
            one || planes.suspended(&scope.plane).await.is_some()
        }
        Target::User(_) | Target::AllPlanes => false,
    }
}

/// What was found out of a long request when it began.
#[derive(Clone, Copy)]
struct Standing {
    /// Whether what is known here allowed it.
    is_judged: bool,
    /// Whether the plane's RBAC counts for its user.
    is_let_in: bool,
    /// When consumers of an export last took something back; `None` where the export is gone, and 0 for other targets.
    restricted: Option<u64>,
}

/// When consumers last took something back of what a provider sees; `None` where nothing is to be seen any more.
fn restricted(planes: &Planes, target: &Target) -> Option<u64> {
    let Target::Provider(scope) = target else { return Some(0) };
    let export = planes.apis().export(&scope.plane, &scope.name)?;
    let known = scope.export.as_ref()?;
    let is_same = export.claims == known.claims && export.schemas == known.schemas;
    is_same.then(|| planes.apis().restricted(&export))
}

/// Whether the RBAC of a target's plane counts for a user. What can't be found out now counts as a yes.
async fn is_let_in(planes: &Planes, target: &Target, user: &User) -> bool {
    let access = access(planes, target).await.and_then(Result::ok);
    access.is_none_or(|access| access.lets_in(user))
}

/// Whether what was allowed is so still. What can't be found out now is asked again with the next change.
async fn holds(planes: &Planes, target: &Target, asked: &Asked, standing: Standing) -> bool {
    let user = &*asked.user;
    if check_active(planes, user).await.is_err()
        || !has_key(planes, user).await
        || !stands(planes, user).await
    {
        return false;
    }
    if restricted(planes, target) != standing.restricted {
        return false;
    }
    if is_platforms(user) {
        return true;
    }
    let attributes = asked.attributes();
    if is_suspended(planes, target, &attributes).await {
        return false;
    }
    match access(planes, target).await {
        Some(Ok(access)) if standing.is_let_in && !access.lets_in(user) => false,
        Some(Ok(access)) if standing.is_judged => access.authorize(&needed(target, &attributes)).allowed,
        _ => true,
    }
}

/// Whether the key that somebody authenticated with counts still.
async fn has_key(planes: &Planes, user: &User) -> bool {
    let Some(key) = key_of(user) else { return true };
    planes.people().iam().await.read().has_key(key, jiff::Timestamp::now().as_second())
}

/// The key (`namespace/name`) that somebody authenticated with.
fn key_of(user: &User) -> Option<&String> {
    user.extra.get(KEY).and_then(|keys| keys.first()).filter(|_| user.plane.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_which_key_it_is_and_is_kept_as_a_hash() {
        let (token, hash) = token("organization-acme", "ci");
        assert_eq!(of_key(&format!("Bearer {token}")), Some(&*token));
        assert!(of_key("Bearer eyJhbGciOi").is_none() && of_key(&token).is_none());
        assert_eq!(hash, hex::encode(Sha256::digest(&token)));
        assert_ne!(token, super::token("organization-acme", "ci").0);
    }
}
