//! Whose trail a request is for, and what its author is to that organization.

use freehold_apiserver_audit::{Standing, Subject, Trail, TrailError};
use freehold_apiserver_authz::iam::{Iam, RESOURCES_GROUP, Scope, organization_of};
use freehold_apiserver_cache::{Cache, Entry, EventKind, ListRequest};
use freehold_apiserver_planes::{Directory, Planes, Target};
use freehold_apiserver_server::{AuditPage, Owner};
use freehold_apiserver_storage::StoreError;
use freehold_machinery::{
    PlaneId, Status, User, Value, reserved,
    user::{ANONYMOUS, MASTERS},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const ORGANIZATIONS: &str = "organizations";
/// How often events that are too old are looked for, and trails whose organization is gone.
const EXPIRY: Duration = Duration::from_secs(3600);

/// Whether a target is the core plane, or what a user sees of it.
pub(crate) fn is_core(target: &Target) -> bool {
    match target {
        Target::Local(plane) => plane.is_core(),
        Target::User(_) => true,
        _ => false,
    }
}

/// The organization and project of a target's plane, or the organization that it is.
pub(crate) fn owner_of_plane(directory: &Directory, target: &Target) -> Owner {
    if let Target::Organization(scope) = target {
        return Owner { organization: scope.exists.then(|| scope.name.clone()), project: None };
    }
    let info = plane_of(target).and_then(|plane| directory.by_plane(plane));
    info.map_or_else(Owner::default, |info| Owner {
        organization: Some(info.organization.clone()),
        project: Some(info.name.clone()),
    })
}

fn plane_of(target: &Target) -> Option<&PlaneId> {
    match target {
        Target::Local(plane) => Some(plane),
        Target::Dedicated(pair) => Some(&pair.plane),
        Target::Provider(scope) => Some(&scope.plane),
        Target::Organization(_) | Target::User(_) | Target::AllPlanes => None,
    }
}

/// The organization, and project, of what a path of the core plane names.
pub(crate) fn owner_in_core(directory: &Directory, about: &Subject<'_>) -> Owner {
    let named = about.group == RESOURCES_GROUP && !about.name.is_empty();
    if named && about.resource == ORGANIZATIONS {
        return Owner { organization: Some(about.name.into()), project: None };
    }
    if named && about.resource == "projects" {
        return directory.named(about.name).map_or_else(Owner::default, |info| Owner {
            organization: Some(info.organization.clone()),
            project: Some(info.name.clone()),
        });
    }
    Owner { organization: organization_of(about.namespace).map(Into::into), project: None }
}

/// The organization of a project that is about to be made.
pub(crate) fn owner_of_object(about: &Subject<'_>, object: &Value) -> Option<Arc<str>> {
    let is_project = about.group == RESOURCES_GROUP && about.resource == "projects";
    object["spec"]["ownerRef"]["name"].as_str().filter(|_| is_project).map(Into::into)
}

/// The uid of an organization, and what somebody is to it; `None` where there is no such organization.
pub(crate) async fn standing_at(
    planes: &Planes,
    organization: &str,
    target: &Target,
    user: Option<&User>,
) -> Option<(Arc<str>, Standing)> {
    let uid = planes.organization_uid(organization).await.ok()?;
    let Some(user) = user else { return Some((uid, Standing::Stranger)) };
    let iam = planes.people().iam().await.read();
    Some((uid, standing(user, plane_of(target), organization, &iam)))
}

/// What a user is to an organization, at one of its planes or elsewhere.
fn standing(user: &User, plane: Option<&PlaneId>, organization: &str, iam: &Iam) -> Standing {
    if let Some(home) = &user.plane {
        return if Some(home) == plane { Standing::Project } else { Standing::Stranger };
    }
    if user.name == ANONYMOUS || user.from_host {
        return Standing::Stranger;
    }
    if user.is_in(MASTERS) || reserved::is_component(user) {
        return Standing::Platform;
    }
    let of_issuer = user.name.strip_prefix(reserved::ORGANIZATION).and_then(|rest| rest.split_once(':'));
    let is_member = of_issuer.is_some_and(|(name, _)| name == organization)
        || iam.is_member(organization, &user.name)
        || iam.is_known(&Scope::Organization(organization.into()), user);
    if is_member { Standing::Member } else { Standing::Stranger }
}

/// A page of an organization's audit events since a revision, from the place where the last one ended.
pub(crate) async fn page(
    trail: &Trail,
    organization: &str,
    from: &str,
    since: i64,
) -> Result<AuditPage, Status> {
    let page = trail.page(organization, from, since).await.map_err(unreadable)?;
    Ok(AuditPage { events: page.events, next: page.next, revision: page.revision })
}

/// What is said where audit events can't be read.
pub(crate) fn unreadable(error: TrailError) -> Status {
    match error {
        TrailError::NoSuchPlace => Status::bad_request(error.to_string()),
        TrailError::Store(StoreError::Compacted { .. }) => {
            Status::expired("the resource version is too old; list the events again")
        }
        TrailError::Store(StoreError::Future { asked, current }) => Status::version_too_large(asked, current),
        TrailError::Store(_) | TrailError::Broken(_) => Status::internal(error),
    }
}

/// Keeps trails to what is not too old, of organizations that are there, until `stop`.
///
/// Each server does this: to remove a trail twice does no harm, and what one that crashed has left, or delivered late, the
/// next round finds.
pub(crate) async fn tidy(trail: Arc<Trail>, cache: Arc<Cache>, stop: CancellationToken) {
    let gone = Arc::new(Notify::new());
    let told = gone.clone();
    cache.observe(PlaneId::core(), RESOURCES_GROUP, ORGANIZATIONS, move |event| {
        let change = event.and_then(|event| event.change());
        if change.is_some_and(|change| change.kind == EventKind::Deleted) {
            told.notify_one();
        }
    });
    loop {
        if let Err(error) = clear(&trail, &cache).await {
            tracing::warn!(error, "audit events of organizations that are gone are not removed; will retry");
        }
        if let Err(error) = trail.expire().await {
            tracing::warn!(%error, "audit events that are too old are not removed; will retry");
        }
        tokio::select! {
            () = tokio::time::sleep(EXPIRY) => {}
            () = gone.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Removes the trails of organizations that are gone. Trails are looked for first: the organization of each is older than
/// its trail, so it is among those that are read afterwards if it is there at all.
async fn clear(trail: &Trail, cache: &Cache) -> Result<(), String> {
    let trails = trail.organizations().await.map_err(|error| error.to_string())?;
    if trails.is_empty() {
        return Ok(());
    }
    let at = cache.catch_up().await.map_err(|status| status.message)?;
    let core = PlaneId::core();
    let request =
        ListRequest { plane: &core, group: RESOURCES_GROUP, resource: ORGANIZATIONS, namespace: None };
    let mut there = BTreeSet::new();
    let see = |entry: Arc<Entry>| {
        there.insert(entry.uid().to_owned());
    };
    cache.scan(request, at, see).await.map_err(|status| status.message)?;
    for gone in trails.difference(&there) {
        trail.clear(gone).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_api::keys::organization_namespace;
    use freehold_apiserver_authz::iam::Kind;
    use serde_json::json;

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        User { name: name.into(), groups, ..User::default() }
    }

    #[test]
    fn an_author_stands_to_an_organization_by_what_freehold_itself_says() {
        let mut iam = Iam::default();
        let membership = json!({
            "metadata": {"name": "ann", "namespace": organization_namespace("acme")},
            "spec": {"organizationRef": {"name": "acme"}, "userRef": {"name": "ann"}, "roles": ["viewer"]},
        });
        iam.put(Kind::Membership, &membership, false);
        let (web, other): (PlaneId, PlaneId) = ("web".parse().unwrap(), "other".parse().unwrap());
        let bound = |user: User, plane: &PlaneId| User { plane: Some(plane.clone()), ..user };
        let rows = [
            (user("ann", &[]), Standing::Member),
            (user("bob", &[]), Standing::Stranger),
            (user("organization:acme:jane", &[]), Standing::Member),
            (user("organization:acme-2:jane", &[]), Standing::Stranger),
            (User::anonymous(), Standing::Stranger),
            (user("admin", &[MASTERS]), Standing::Platform),
            (user("system:kube-controller-manager", &[]), Standing::Stranger),
            (bound(user("ghost", &[reserved::CONTROLLERS, MASTERS]), &web), Standing::Project),
            (bound(user("ann", &[MASTERS]), &other), Standing::Stranger),
            (User { from_host: true, ..user("ann", &[MASTERS]) }, Standing::Stranger),
        ];
        for (user, expected) in rows {
            assert_eq!(standing(&user, Some(&web), "acme", &iam), expected, "{user:?}");
        }
    }
}
