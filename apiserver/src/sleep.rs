//! Dedicated pairs that sleep: they are woken by who may do something there, waited for within bounds, and it is noted
//! when they were used.

use crate::local::LocalBackend;
use crate::rights;
use freehold_api::{infrastructure::GROUP, keys};
use freehold_apiserver_authz::{Attributes, forbidden};
use freehold_apiserver_planes::{DedicatedTarget, Planes, Power, Target};
use freehold_apiserver_registry::{Annotations, Body, Operation, Registry, WriteOptions};
use freehold_apiserver_server::{AccessBackend, InUse};
use freehold_machinery::{
    PlaneId, Result, Status, User, Value, meta,
    reserved::is_component,
    user::{ANONYMOUS, MASTERS},
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// How long a request is held while its pair starts.
const LONGEST: Duration = Duration::from_secs(30);
/// Requests that are held for one plane.
const OF_PLANE: usize = 100;
/// Requests that are held for the planes of one organization.
const OF_ORGANIZATION: usize = 300;
/// Requests that are held in all.
const OF_ALL: usize = 1000;
/// When a pair that still sleeps is woken again: whoever did it may have gone meanwhile.
const AGAIN: Duration = Duration::from_secs(1);
/// How often it is looked at which uses are to be noted.
const LOOK: Duration = Duration::from_secs(1);
/// Attempts at a write that others' writes get before.
const ATTEMPTS: usize = 5;
/// Seconds after which a refused request may come again.
const RETRY: u32 = 5;

/// Which pairs are used and waited for.
pub(crate) struct Sleepers {
    planes: Arc<Planes>,
    registry: Arc<Registry>,
    held: Mutex<Places>,
    used: Mutex<HashMap<PlaneId, Use>>,
}

/// How many requests are held.
#[derive(Default)]
struct Places {
    all: usize,
    planes: HashMap<PlaneId, usize>,
    organizations: HashMap<Arc<str>, usize>,
}

/// How a pair is used.
struct Use {
    /// Requests that go on.
    now: usize,
    /// Whether there was one since it was noted.
    since: bool,
    noted: Option<Instant>,
    after: Duration,
}

impl Use {
    /// Whether it has to be noted now.
    fn is_due(&self) -> bool {
        (self.now > 0 || self.since) && self.noted.is_none_or(|at| at.elapsed() >= self.after / 4)
    }
}

impl Places {
    /// Takes a place; which limit there is none by otherwise.
    fn take(&mut self, plane: &PlaneId, organization: &Arc<str>) -> Result<(), &'static str> {
        let own = self.planes.get(plane).copied().unwrap_or(0);
        let others = self.organizations.get(organization).copied().unwrap_or(0);
        if own >= OF_PLANE {
            return Err("project");
        }
        if others >= OF_ORGANIZATION {
            return Err("organization");
        }
        if self.all >= OF_ALL {
            return Err("server");
        }
        self.all += 1;
        self.planes.insert(plane.clone(), own + 1);
        self.organizations.insert(organization.clone(), others + 1);
        Ok(())
    }

    fn leave(&mut self, plane: &PlaneId, organization: &Arc<str>) {
        self.all = self.all.saturating_sub(1);
        give_back(&mut self.planes, plane);
        give_back(&mut self.organizations, organization);
    }
}

/// Counts one less; what is at none is forgotten.
fn give_back<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// A request that is held.
struct Place {
    sleepers: Arc<Sleepers>,
    plane: PlaneId,
    organization: Arc<str>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sleepers.held.lock().leave(&self.plane, &self.organization);
    }
}

/// A request that uses a pair, for as long as it goes on.
struct Using {
    sleepers: Arc<Sleepers>,
    plane: PlaneId,
}

impl Drop for Using {
    fn drop(&mut self) {
        if let Some(used) = self.sleepers.used.lock().get_mut(&self.plane) {
            used.now = used.now.saturating_sub(1);
            used.since = true;
        }
    }
}

impl Sleepers {
    pub(crate) fn start(planes: Arc<Planes>, registry: Arc<Registry>) -> Arc<Self> {
        let (held, used) = Default::default();
        let sleepers = Arc::new(Self { planes, registry, held, used });
        if sleepers.planes.has_core() {
            tokio::spawn(note_regularly(Arc::downgrade(&sleepers)));
        }
        sleepers
    }

    /// Counts a request of a user to a pair that may sleep.
    fn count(self: &Arc<Self>, pair: &DedicatedTarget) -> Option<InUse> {
        let after = pair.sleep_after?;
        let mut all = self.used.lock();
        let used = all.entry(pair.plane.clone()).or_insert(Use { now: 0, since: true, noted: None, after });
        used.now += 1;
        used.after = after;
        Some(Box::new(Using { sleepers: self.clone(), plane: pair.plane.clone() }))
    }

    /// The planes whose use has to be noted now. Those that nobody uses any more are forgotten.
    fn due(&self) -> Vec<PlaneId> {
        let mut all = self.used.lock();
        let due: Vec<PlaneId> =
            all.iter().filter(|(_, used)| used.is_due()).map(|(plane, _)| plane.clone()).collect();
        for plane in &due {
            if let Some(used) = all.get_mut(plane) {
                (used.noted, used.since) = (Some(Instant::now()), false);
            }
        }
        all.retain(|_, used| {
            used.now > 0 || used.since || used.noted.is_some_and(|at| at.elapsed() < used.after)
        });
        due
    }

    /// Holds a request until its pair can be asked.
    async fn wait(self: &Arc<Self>, pair: &DedicatedTarget) -> Result<DedicatedTarget> {
        let plane = &pair.plane;
        let info = self.planes.directory().by_plane(plane);
        let (project, organization) =
            info.map(|info| (info.name.clone(), info.organization.clone())).unwrap_or_default();
        let taken = self.held.lock().take(plane, &organization);
        if let Err(whose) = taken {
            // It is on its way all the same, for who comes again.
            return Err(Status::unavailable(format!(
                "the control plane of project {project:?} is waking, and as many requests of this {whose} wait for such as may"
            ))
            .retry_after(RETRY));
        }
        let _place = Place { sleepers: self.clone(), plane: plane.clone(), organization };
        let awake = self.awake(plane);
        tokio::time::timeout(LONGEST, awake).await.unwrap_or_else(|_| {
            let seconds = LONGEST.as_secs();
            Err(Status::unavailable(format!(
                "the control plane of project {project:?} is waking, and was not ready within {seconds} s"
            ))
            .retry_after(RETRY))
        })
    }

    async fn awake(self: &Arc<Self>, plane: &PlaneId) -> Result<DedicatedTarget> {
        let changes = self.planes.pair_changes();
        let mut seen = changes.subscribe();
        loop {
            seen.mark_unchanged();
            let pair = self.planes.pair(plane).await?;
            match pair.power {
                Power::Awake => return Ok(pair),
                Power::Kept => return Err(kept()),
                Power::Asleep => self.write(plane, wake).await?,
                Power::Waking => {}
            }
            // The sender lives as long as this.
            let _ = tokio::time::timeout(AGAIN, seen.changed()).await;
        }
    }

    /// Changes the ProjectControlPlane of a plane.
    async fn write(&self, plane: &PlaneId, change: fn(&mut Value) -> bool) -> Result<()> {
        let infra = PlaneId::infra();
        let types = self.planes.types_of(&infra).await?;
        let ty = types.find(GROUP, freehold_api::infrastructure::VERSION, "projectcontrolplanes").cloned();
        let user = User { name: "system:apiserver".into(), groups: vec![MASTERS.into()], ..User::default() };
        let op = Operation {
            plane: infra,
            types,
            user: Arc::new(user),
            ty: ty.ok_or_else(Status::no_such_resource)?,
            namespace: None,
            name: Some(plane.to_string()),
            subresource: None,
            seen: 0,
            narrowed: false,
            annotations: Annotations::default(),
        };
        let options =
            WriteOptions { field_manager: "freehold-apiserver".to_owned(), ..WriteOptions::default() };
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            let mut object = (*self.registry.get(&op, "").await?.value()).clone();
            if meta::is_deleting(&object) || !change(&mut object) {
                return Ok(());
            }
            last = self.registry.update(&op, &Body::from(object), &options).await.map(drop);
            match &last {
                Err(status) if status.is_conflict() => {}
                _ => break,
            }
        }
        match last {
            // Who was first has done the same, or it is done again soon.
            Err(status) if !status.is_conflict() => Err(status),
            _ => Ok(()),
        }
    }
}

/// Notes uses from time to time.
async fn note_regularly(sleepers: Weak<Sleepers>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(sleepers) = sleepers.upgrade() else { return };
        for plane in sleepers.due() {
            if let Err(error) = sleepers.write(&plane, note).await {
                tracing::warn!(%plane, %error, "failed to note that a pair is used");
            }
        }
    }
}

/// Writes down that a pair is used now.
fn note(object: &mut Value) -> bool {
    let now = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][keys::LAST_REQUEST] = now.into();
    true
}

/// Lets a pair run that sleeps because nobody used it.
fn wake(object: &mut Value) -> bool {
    if object["spec"]["rest"] != "Idle" {
        return false;
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("rest");
    }
    note(object)
}

fn kept() -> Status {
    Status::unavailable(
        "the control plane is asleep: its project says so (spec.controlPlane.asleep), and requests do not wake it",
    )
}

impl LocalBackend {
    /// A pair as it can be asked, and what counts as its use; see [`PlaneBackend::awake`](freehold_apiserver_server::PlaneBackend::awake).
    pub(crate) async fn awake_for(
        &self,
        pair: &DedicatedTarget,
        attributes: &Attributes<'_>,
    ) -> Result<(DedicatedTarget, Option<InUse>)> {
        let (sleepers, user) = (&self.sleepers, attributes.user);
        let is_platforms = is_component(user);
        let target = Target::Dedicated(pair.clone());
        if pair.power == Power::Awake {
            // Strangers keep no pair awake, and the platform none for itself.
            let counts = pair.sleep_after.is_some() && !is_platforms && self.is_let_in(&target, user).await?;
            return Ok((pair.clone(), if counts { sleepers.count(pair) } else { None }));
        }
        if is_platforms {
            return Err(kept_or_asleep(pair));
        }
        let decision = self.authorize(&target, attributes).await?;
        if !decision.allowed || !self.is_let_in(&target, user).await? {
            return Err(forbidden(attributes, &decision.reason));
        }
        let pair = sleepers.wait(pair).await?;
        let using = sleepers.count(&pair);
        Ok((pair, using))
    }

    /// Whether a user belongs to a project, and is not just anybody.
    async fn is_let_in(&self, target: &Target, user: &User) -> Result<bool> {
        Ok(user.name != ANONYMOUS && rights::access(&self.planes, target).await?.lets_in(user))
    }
}

/// What is told to who wakes nothing.
fn kept_or_asleep(pair: &DedicatedTarget) -> Status {
    match pair.power {
        Power::Kept => kept(),
        _ => {
            Status::unavailable("the control plane is asleep, and the platform's own requests do not wake it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(name: &str) -> PlaneId {
        name.parse().unwrap()
    }

    #[test]
    fn one_project_can_hold_no_more_requests_than_its_share() {
        let (mut places, acme, other) = (Places::default(), Arc::from("acme"), Arc::from("other"));
        for _ in 0..OF_PLANE {
            places.take(&plane("a"), &acme).unwrap();
        }
        assert_eq!(places.take(&plane("a"), &acme), Err("project"));
        for n in 0..OF_ORGANIZATION - OF_PLANE {
            places.take(&plane(&format!("p{}", n / OF_PLANE)), &acme).unwrap();
        }
        assert_eq!(places.take(&plane("z"), &acme), Err("organization"));
        places.take(&plane("b"), &other).unwrap();
        places.leave(&plane("a"), &acme);
        places.take(&plane("a"), &acme).unwrap();
        for _ in 0..OF_PLANE {
            places.leave(&plane("a"), &acme);
        }
        assert!(!places.planes.contains_key(&plane("a")));
        assert_eq!(places.all, OF_ORGANIZATION - OF_PLANE + 1);
    }

    #[test]
    fn a_pair_that_its_project_keeps_asleep_is_not_woken_by_a_request() {
        let mut object = json!({"spec": {"rest": "ByHand"}, "metadata": {}});
        assert!(!wake(&mut object));
        assert_eq!(object["spec"]["rest"], "ByHand");
        let mut object = json!({"spec": {"rest": "Idle"}, "metadata": {}});
        assert!(wake(&mut object));
        assert!(
            object["spec"]["rest"].is_null()
                && object["metadata"]["annotations"][keys::LAST_REQUEST].is_string()
        );
    }

    #[test]
    fn a_use_is_noted_at_once_and_then_a_few_times_in_the_time_of_its_class() {
        let mut used = Use { now: 1, since: true, noted: None, after: Duration::from_secs(3600) };
        assert!(used.is_due());
        used.noted = Some(Instant::now());
        assert!(!used.is_due());
        used.after = Duration::ZERO;
        assert!(used.is_due(), "a watch that goes on is use");
        (used.now, used.since) = (0, false);
        assert!(!used.is_due());
    }
}
