//! Claims of objects that are gone, without a commit that gave back what they claimed: those of a definition that was deleted with
//! its objects, those of a project that went back to a snapshot, and what was claimed for a project while it was deleted. The claim
//! is deleted, and its bucket has that much more.
//!
//! A claim is written and deleted in the commits of its object, so an object that is not there, asked for after its claim was
//! seen, claims nothing. Whatever can't be told for certain stays.

use freehold_client::{Client, DeleteOptions, Error, ListOptions, Resource};
use freehold_controllers_context::discovery::discover;
use freehold_controllers_context::kinds::{CRDS, PROJECTS, QUOTA_CLAIMS, RESTORES};
use freehold_controllers_context::object::text;
use freehold_controllers_context::project::ProjectView;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{
    PlaneId, Status, Value, meta,
    tenancy::{Coordinates, OrganizationName, Tenant},
};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Seen, Store};
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long is remembered which types a plane serves.
const REMEMBERED: Duration = Duration::from_secs(20);
/// Planes whose types are remembered.
const MAX_PLANES: usize = 64;
/// On a claim that was made before its object: above which record of its plane, and when.
const AHEAD: &str = "quota.freehold.dev/ahead-of";
/// How long an object may be on its way that was claimed for before it came.
const HELD: SignedDuration = SignedDuration::from_mins(10);

/// What is kept of a claim: what it is for.
#[derive(Clone, Debug, PartialEq)]
struct View {
    uid: String,
    version: String,
    plane: PlaneId,
    group: Box<str>,
    kind: Box<str>,
    namespace: Box<str>,
    name: Box<str>,
    ahead: Option<Timestamp>,
    told: Told,
}

/// When this process was told of a claim, which makes it no other one.
#[derive(Clone, Copy, Debug)]
struct Told(Instant);

impl PartialEq for Told {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl View {
    fn of(claim: Value) -> Option<Self> {
        let part = |field: &str| text(&claim, &format!("/spec/resourceRef/{field}")).into();
        let view = Self {
            uid: meta::uid(&claim).to_owned(),
            version: meta::resource_version(&claim).to_owned(),
            plane: text(&claim, "/spec/resourceRef/plane").parse().ok()?,
            group: part("apiGroup"),
            kind: part("kind"),
            namespace: part("namespace"),
            name: part("name"),
            ahead: meta::annotation(&claim, AHEAD).and_then(|mark| mark.split_once(' ')?.1.parse().ok()),
            told: Told(Instant::now()),
        };
        (!view.kind.is_empty() && !view.name.is_empty() && !meta::is_deleting(&claim)).then_some(view)
    }

    /// For how long its object may still be on its way.
    fn is_awaited(&self, now: Timestamp) -> Option<Duration> {
        let left = HELD - now.duration_since(self.ahead?);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    /// Whether an answer says that the object or its plane is not there; it may also be the type.
    fn is_without(&self, status: &Status) -> bool {
        let missing = status.details.as_ref().map_or("", |details| &details.name);
        missing == &*self.name || missing == self.plane.as_str()
    }

    fn index(_: &Key, view: &Self) -> Vec<String> {
        vec![view.plane.to_string()]
    }
}

/// The types of a plane: of each group and kind its resource, and the groups of which that is not known.
#[derive(Clone, Debug, Default)]
struct Types {
    known: HashMap<(String, String), Resource>,
    failed: Vec<String>,
}

impl Types {
    /// The resource of a claim's object; `Err(true)`: there is certainly none.
    fn resource(&self, claim: &View) -> Result<&Resource, bool> {
        let found = self.known.get(&(claim.group.to_string(), claim.kind.to_string()));
        let group_of = |version: &str| version.split_once('/').map_or("", |(group, _)| group).to_owned();
        found.ok_or_else(|| !self.failed.iter().any(|version| group_of(version) == *claim.group))
    }
}

struct Allowances {
    core: Client,
    planes: Planes,
    claims: Store<View>,
    projects: Store<ProjectView>,
    root: Client,
    types: Mutex<HashMap<PlaneId, (Instant, Types)>>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let informer =
        Informer::new(&context.core, Interest::projected(QUOTA_CLAIMS, View::of).index(View::index));
    let claims = context.run_informer(informer);
    let (on_types, known) = (queue.clone(), claims.clone());
    let interest = Interest::projected(CRDS, |_| None::<()>).metadata_only().from_now();
    let mut definitions = Informer::new(&context.planes, interest);
    definitions.on_object(move |key, _, seen| {
        let group = key.name.split_once('.').map_or("", |(_, group)| group);
        if seen == Seen::Gone {
            let all = known.by_index(&PlaneId::core(), key.plane.as_str());
            let theirs = all.into_iter().filter(|(_, claim)| *claim.group == *group);
            theirs.for_each(|(claim, _)| on_types.add(claim));
        }
    });
    context.run_informer(definitions);
    let restored = |restore: Value| {
        let done = text(&restore, "/status/phase") == "Completed";
        done.then(|| text(&restore, "/spec/projectRef/name").to_owned())
    };
    let mut restores = Informer::new(&context.core, Interest::projected(RESTORES, restored));
    let (on_restores, known, projects) = (queue.clone(), claims.clone(), context.projects().store());
    restores.on_change(move |change| {
        let (Some(project), None) = (&change.new, &change.old) else { return };
        let project = projects.get(&Key::new(PlaneId::core(), "", project));
        let Some(plane) = project.and_then(|project| project.plane.clone()) else { return };
        for (claim, _) in known.by_index(&PlaneId::core(), plane.as_str()) {
            on_restores.add_routine(claim);
        }
    });
    context.run_informer(restores);
    let (on_projects, known) = (queue.clone(), claims.clone());
    context.projects().on_change(move |change| {
        let gone = change.old.as_ref().filter(|_| change.new.is_none());
        let Some(plane) = gone.and_then(|project| project.plane.as_ref()) else { return };
        for (claim, _) in known.by_index(&PlaneId::core(), plane.as_str()) {
            on_projects.add_routine(claim);
        }
    });
    context.resync(&claims, &queue);
    let projects = context.projects().store();
    let controller = Allowances {
        core: context.core.everywhere(),
        planes: context.planes.clone(),
        claims: claims.clone(),
        projects: projects.clone(),
        root: context.core.root(),
        types: Mutex::default(),
    };
    context.control("allowance", 4, &queue, &[&claims, &projects], controller);
}

/// Whether an object of the core plane is another organization's.
fn is_others(own: &OrganizationName, resource: &Resource, object: &Value) -> bool {
    let at = Coordinates {
        group: &resource.group,
        resource: &resource.plural,
        namespace: meta::namespace(object),
        name: meta::name(object),
    };
    let tenant = Tenant::of(at, |_| OrganizationName::named(text(object, "/spec/ownerRef/name")));
    tenant.is_some_and(|tenant| !Tenant::Organization(own.clone()).sees(&tenant))
}

impl Reconcile for Allowances {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(claim) = self.claims.get(&key) else { return Ok(Outcome::Done) };
        let own = OrganizationName::of_namespace(&key.namespace);
        let is_gone = match &own {
            Some(own) if !self.is_within(own, &claim).await? => true,
            own => self.is_gone(&claim, own.as_ref()).await?,
        };
        if !is_gone {
            return Ok(Outcome::Done);
        }
        if let Some(left) = claim.is_awaited(Timestamp::now()) {
            return Ok(Outcome::After(left));
        }
        let options = DeleteOptions {
            uid: claim.uid.clone(),
            resource_version: claim.version.clone(),
            ..DeleteOptions::default()
        };
        match self.core.delete(&QUOTA_CLAIMS, key.ns(), &key.name, &options).await {
            // It went with its object.
            Err(error) if error.is_not_found() => Ok(Outcome::Done),
            Err(error) => Err(error.into()),
            Ok(_) => {
                tracing::info!(claim = %key, "given back: what it was for is gone");
                Ok(Outcome::Done)
            }
        }
    }
}

impl Allowances {
    /// Whether a claim is for something in a plane of its organization's projects, or in the core plane. Others' planes are
    /// asked nothing: for the claim they do not exist, whatever is in them.
    async fn is_within(&self, own: &OrganizationName, claim: &View) -> Result<bool, Error> {
        if claim.plane.is_core() {
            let namespace = &*claim.namespace;
            return Ok(
                namespace.is_empty() || OrganizationName::of_namespace(namespace).as_ref() == Some(own)
            );
        }
        let known = self.projects.by_index(&PlaneId::core(), own.as_str());
        if known.iter().any(|(_, project)| project.plane.as_ref() == Some(&claim.plane)) {
            return Ok(true);
        }
        // A project may be newer than what is known here.
        let view = self.root.at(&format!("/organizations/{own}"));
        match view.list_all(&PROJECTS, None, &ListOptions::default()).await {
            Ok(listed) => Ok(listed.items.iter().any(|project| meta::uid(project) == claim.plane.as_str())),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the object of a claim is certainly not there. One of another organization is not.
    async fn is_gone(&self, claim: &View, own: Option<&OrganizationName>) -> Result<bool, Error> {
        let client = self.planes.client(&claim.plane);
        let types = match self.types(&client, claim).await {
            // A plane that goes gives back by itself, but for what comes after that: an import was under way.
            Err(Error::Api(status)) if status.code == 404 => {
                return Ok(claim.is_without(&status));
            }
            types => types?,
        };
        let resource = match types.resource(claim) {
            Ok(resource) => resource,
            Err(certain) => return Ok(certain),
        };
        let namespace = Some(&*claim.namespace).filter(|namespace| !namespace.is_empty());
        match client.get(resource, namespace, &claim.name).await {
            Ok(found) => Ok(own.is_some_and(|own| claim.plane.is_core() && is_others(own, resource, &found))),
            Err(Error::Api(status)) if status.code == 404 => Ok(claim.is_without(&status)),
            Err(error) => Err(error),
        }
    }

    /// The types of a claim's plane, looked up after it was told of: before, that of its object may not have been there yet.
    async fn types(&self, client: &Client, claim: &View) -> Result<Types, Error> {
        let all = || self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_now = |since: &Instant| since.elapsed() < REMEMBERED && *since > claim.told.0;
        let remembered = all().get(&claim.plane).filter(|(since, _)| is_of_now(since)).cloned();
        if let Some((_, types)) = remembered {
            return Ok(types);
        }
        let since = Instant::now();
        let found = discover(client).await?;
        let known = found.types.into_iter().map(|ty| ((ty.resource.group.to_string(), ty.kind), ty.resource));
        let types = Types { known: known.collect(), failed: found.failed };
        let mut remembered = all();
        if remembered.len() >= MAX_PLANES {
            remembered.clear();
        }
        remembered.insert(claim.plane.clone(), (since, types.clone()));
        Ok(types)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::GroupResource;
    use serde_json::json;

    #[test]
    fn only_what_certainly_is_not_there_is_given_back() {
        let claim = |group: &str, kind: &str| {
            let spec = json!({"resourceRef": {"apiGroup": group, "kind": kind, "name": "a", "plane": "p"}});
            View::of(json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap()
        };
        let resource = Resource::namespaced("", "v1", "pods");
        let types = Types {
            known: [((String::new(), "Pod".to_owned()), resource.clone())].into(),
            failed: vec!["broken.example/v1".to_owned()],
        };
        assert_eq!(types.resource(&claim("", "Pod")), Ok(&resource));
        assert_eq!(types.resource(&claim("gone.example", "Thing")), Err(true));
        assert_eq!(types.resource(&claim("broken.example", "Thing")), Err(false));
        let missing = |name: &str| Status::not_found(&GroupResource::new("", "planes"), name);
        let is_without = |name: &str| claim("", "Pod").is_without(&missing(name));
        assert_eq!(["a", "p", "another", ""].map(is_without), [true, true, false, false]);
        let now = Timestamp::now();
        let ahead = |ago: SignedDuration| View { ahead: Some(now - ago), ..claim("", "Pod") };
        assert!(ahead(HELD / 2).is_awaited(now).is_some(), "its object may still come");
        assert_eq!((ahead(HELD * 2).is_awaited(now), claim("", "Pod").is_awaited(now)), (None, None));
        for by_hand in
            [json!({}), json!({"spec": {"resourceRef": {"kind": "Pod", "name": "a"}}}), Value::Null]
        {
            assert_eq!(View::of(by_hand), None);
        }
    }
}
