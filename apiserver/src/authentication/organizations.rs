//! The issuers of organizations: their `IdentityProvider`s in the core plane.
//!
//! Only those of the organization that a request is for are looked at, so a token of one is nothing in another. Whatever
//! the mappings say, its users' names and groups begin with `organization:NAME:`.

use super::documents::Documents;
use freehold_api::keys::organization_namespace;
use freehold_apiserver_authn::{Fetch, Issuer, oidc::JwtAuthenticator};
use freehold_apiserver_cache::{Cache, Entry, ListRequest};
use freehold_apiserver_outbound::Outbound;
use freehold_machinery::{
    PlaneId, Result, User,
    reserved::{self, ORGANIZATION, Source},
    user::{AUTHENTICATED, Basis, Footing},
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

const GROUP: &str = "iam.freehold.dev";
const RESOURCE: &str = "identityproviders";
/// Providers of one organization that are looked at.
const MAX_PROVIDERS: usize = 16;
/// Issuers that are kept.
const MAX_KEPT: usize = 4096;

/// A provider as it was compiled: the version of the object, and the issuer or why there is none.
type Compiled = (u64, std::result::Result<Arc<Issuer>, String>);

/// The issuers of organizations.
pub(super) struct Organizations {
    cache: Arc<Cache>,
    outbound: Arc<Outbound>,
    /// By the uid of the object.
    compiled: Mutex<HashMap<String, Compiled>>,
}

impl Organizations {
    pub(super) fn new(cache: Arc<Cache>, outbound: Arc<Outbound>) -> Self {
        Self { cache, outbound, compiled: Mutex::default() }
    }

    /// Whose token this is, by the issuer of that URL; `None` where the organization has none.
    pub(super) async fn authenticate(
        &self,
        organization: &str,
        url: &str,
        token: &str,
        now: i64,
    ) -> Result<Option<std::result::Result<User, String>>> {
        let namespace = organization_namespace(organization);
        let core = PlaneId::core();
        let request =
            ListRequest { plane: &core, group: GROUP, resource: RESOURCE, namespace: Some(&namespace) };
        let mut failed = None;
        for entry in self.cache.list(request).await?.objects.iter().take(MAX_PROVIDERS) {
            match self.issuer(organization, entry) {
                Ok(issuer) if issuer.url() == url => {
                    let user = issuer.authenticate(token, now).await.map_err(|error| error.to_string());
                    match user.and_then(|user| confined(organization, user)) {
                        Ok(user) => return Ok(Some(Ok(resting_on(entry, &namespace, user)))),
                        Err(error) => failed = Some(error),
                    }
                }
                Ok(_) => {}
                Err(error) => failed = Some(format!("IdentityProvider {:?}: {error}", entry.name())),
            }
        }
        Ok(failed.map(Err))
    }

    fn issuer(&self, organization: &str, entry: &Entry) -> std::result::Result<Arc<Issuer>, String> {
        let uid = entry.uid().to_owned();
        if let Some((version, issuer)) = self.compiled.lock().get(&uid)
            && *version == entry.modified
        {
            return issuer.clone();
        }
        let issuer = self.compile(organization, entry);
        if let Err(error) = &issuer {
            tracing::warn!(
                organization,
                provider = entry.name(),
                error,
                "an identity provider can't be used"
            );
        }
        let mut compiled = self.compiled.lock();
        if compiled.len() >= MAX_KEPT {
            compiled.clear();
        }
        compiled.insert(uid, (entry.modified, issuer.clone()));
        issuer
    }

    fn compile(&self, organization: &str, entry: &Entry) -> std::result::Result<Arc<Issuer>, String> {
        let spec = entry.value()["spec"].take();
        let config: JwtAuthenticator = serde_json::from_value(spec).map_err(|error| error.to_string())?;
        let wrong = config.validate("spec", &[]);
        if !wrong.is_empty() {
            let texts: Vec<String> = wrong.iter().map(|e| format!("{}: {}", e.field, e.body())).collect();
            return Err(texts.join(", "));
        }
        // Calls of each organization have places of their own.
        let plane =
            format!("organization-{organization}").parse().map_err(|_| "no such organization".to_owned())?;
        let fetch: Arc<dyn Fetch> = Arc::new(Documents::new(self.outbound.clone(), plane));
        Issuer::new(config, fetch)
    }
}

/// The user as one who ends with the provider.
fn resting_on(provider: &Entry, namespace: &str, user: User) -> User {
    let footing = Footing {
        plane: PlaneId::core(),
        group: GROUP,
        resource: RESOURCE,
        namespace: namespace.to_owned(),
        name: provider.name().to_owned(),
        uid: provider.uid().to_owned(),
    };
    let until = user.basis.as_ref().and_then(|basis| basis.until);
    User { basis: Some(Arc::new(Basis { until, objects: vec![footing], ..Basis::default() })), ..user }
}

/// The user as one of an organization alone.
fn confined(organization: &str, user: User) -> std::result::Result<User, String> {
    reserved::check_user(Source::Organization, &user).map_err(|why| why.to_string())?;
    let own = user.groups.iter().filter(|group| *group != AUTHENTICATED);
    let prefixed = |name: &str| format!("{ORGANIZATION}{organization}:{name}");
    let groups = own.map(|group| prefixed(group)).chain([AUTHENTICATED.to_owned()]).collect();
    Ok(User { name: prefixed(&user.name), groups, ..user })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|g| (*g).to_owned()).chain([AUTHENTICATED.to_owned()]).collect();
        User { name: name.to_owned(), groups, ..User::default() }
    }

    #[test]
    fn names_and_groups_are_the_organizations_whatever_it_says() {
        let jane = confined("acme", user("jane", &["devs"])).unwrap();
        assert_eq!(jane.name, "organization:acme:jane");
        assert_eq!(jane.groups, ["organization:acme:devs", AUTHENTICATED]);
        for (name, groups) in [("system:admin", vec![]), ("jane", vec!["system:masters"])] {
            assert!(confined("acme", user(name, &groups)).is_err(), "{name} {groups:?}");
        }
        let keyed = |key: &str| User {
            extra: [(key.to_owned(), vec!["organization-acme/ci".to_owned()])].into(),
            ..user("jane", &[])
        };
        assert!(confined("acme", keyed("iam.freehold.dev/key")).is_err());
        assert!(confined("acme", keyed("example.com/key")).is_ok());
    }
}
