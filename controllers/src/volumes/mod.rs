//! Persistent volumes: claims are bound to volumes, programs outside are told which to make, and volumes whose claims are
//! gone are released (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/>).
//!
//! Volumes themselves are made, deleted and expanded by drivers' programs (CSI), never here. One key of a plane is worked
//! on at a time, and each write is refused if what it was decided on has changed, so that no volume gets two claims.

mod bind;
mod claim;
mod matching;
mod volume;

use crate::context::Context;
use crate::kinds::{CLAIMS, STORAGE_CLASSES, VOLUMES};
use claim::{Notice, Observed};
use freehold_client::{Client, Error, Patch, PatchOptions, Resource};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::object::text;
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, QueueKey, Reconcile, Reconciled, Recorder,
    Store,
};
use matching::class_of;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "persistentvolume-binder-controller";
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// How often a claim that waits for a program outside is told so.
const AGAIN: Duration = Duration::from_secs(15 * 60);

/// A claim or volume that is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Claim(Key),
    Volume(Key),
}

impl QueueKey for Subject {
    fn plane(&self) -> &PlaneId {
        match self {
            Self::Claim(key) | Self::Volume(key) => &key.plane,
        }
    }
}

struct Binder {
    planes: Planes,
    claims: Store<Value>,
    volumes: Store<Value>,
    classes: Store<Value>,
    queue: Arc<Queue<Subject>>,
    recorder: Recorder,
}

/// Index entry of claims without a volume, and of volumes without a claim, by their class.
fn free_entry(class: &str) -> String {
    format!("free {class}")
}

/// Index entry of volumes by the claim that they refer to.
fn claim_entry(namespace: &str, name: &str) -> String {
    format!("claim {namespace}/{name}")
}

/// Index entry of claims by the volume that they name.
fn volume_entry(name: &str) -> String {
    format!("volume {name}")
}

fn claim_index(_: &Key, claim: &Value) -> Vec<String> {
    match text(claim, "/spec/volumeName") {
        "" => vec![free_entry(class_of(claim))],
        volume => vec![volume_entry(volume)],
    }
}

fn volume_index(_: &Key, volume: &Value) -> Vec<String> {
    let reference = &volume["spec"]["claimRef"];
    match reference.is_object() {
        true => vec![claim_entry(text(reference, "/namespace"), text(reference, "/name"))],
        false => vec![free_entry(class_of(volume))],
    }
}

/// Starts the controller.
pub(crate) fn start(context: &Context) {
    let queue: Arc<Queue<Subject>> = Queue::new();
    let planes = &context.planes;
    let mut claims = Informer::new(planes, Interest::objects(CLAIMS).index(claim_index));
    let mut volumes = Informer::new(planes, Interest::objects(VOLUMES).index(volume_index));
    let mut classes = Informer::new(planes, Interest::objects(STORAGE_CLASSES));
    let (known_claims, known_volumes) = (claims.store(), volumes.store());

    let (on_claims, of_claims) = (queue.clone(), known_volumes.clone());
    claims.on_change(move |change| {
        let (key, plane) = (&change.key, &change.key.plane);
        on_claims.add(Subject::Claim(key.clone()));
        for (volume, _) in of_claims.by_index(plane, &claim_entry(&key.namespace, &key.name)) {
            on_claims.add(Subject::Volume(volume));
        }
    });
    let (on_volumes, waiting) = (queue.clone(), known_claims.clone());
    volumes.on_change(move |change| {
        let (key, plane) = (&change.key, &change.key.plane);
        on_volumes.add(Subject::Volume(key.clone()));
        for (claim, _) in waiting.by_index(plane, &volume_entry(&key.name)) {
            on_volumes.add(Subject::Claim(claim));
        }
        let Some(volume) = change.new.as_deref() else { return };
        let reference = &volume["spec"]["claimRef"];
        if reference.is_object() {
            let (namespace, name) = (text(reference, "/namespace"), text(reference, "/name"));
            on_volumes.add(Subject::Claim(Key::new(plane.clone(), namespace, name)));
        } else if volume["status"]["phase"] == "Available" {
            enqueue_waiting(&on_volumes, &waiting, plane, class_of(volume));
        }
    });
    let (on_classes, waiting) = (queue.clone(), known_claims.clone());
    classes.on_change(move |change| {
        let plane = &change.key.plane;
        enqueue_waiting(&on_classes, &waiting, plane, &change.key.name);
        if change.new.as_deref().is_some_and(is_default) {
            enqueue_waiting(&on_classes, &waiting, plane, "");
        }
    });
    let claims = context.run_informer(claims);
    let volumes = context.run_informer(volumes);
    let classes = context.run_informer(classes);
    let binder = Binder {
        planes: planes.clone(),
        claims: claims.clone(),
        volumes: volumes.clone(),
        classes: classes.clone(),
        queue: queue.clone(),
        recorder: Recorder::new("persistentvolume-controller"),
    };
    context.control(NAME, &queue, &[&claims, &volumes, &classes], binder);
}

fn enqueue_waiting(queue: &Queue<Subject>, claims: &Store<Value>, plane: &PlaneId, class: &str) {
    for (claim, _) in claims.by_index(plane, &free_entry(class)) {
        queue.add_routine(Subject::Claim(claim));
    }
}

fn is_default(class: &Value) -> bool {
    DEFAULT_CLASS.iter().any(|name| meta::annotation(class, name) == Some("true"))
}

impl Reconcile for Binder {
    type Key = Subject;

    async fn reconcile(&self, subject: Subject) -> Reconciled {
        match subject {
            Subject::Claim(key) => self.claim(&key).await,
            Subject::Volume(key) => self.volume(&key).await,
        }
    }
}

impl Binder {
    async fn claim(&self, key: &Key) -> Reconciled {
        let Some(claim) = self.claims.get(key) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        let observed = self.observe(&client, key, &claim).await?;
        match claim::decide(&claim, &observed) {
            claim::Step::Bind(volume) => self.bind(&client, &claim, &volume).await?,
            claim::Step::Wait(told) => {
                self.claim_phase(&client, &claim, "Pending", None).await?;
                self.tell(&client, &claim, told).await;
            }
            claim::Step::Lost(told) => {
                if claim["status"]["phase"] != "Lost" {
                    self.claim_phase(&client, &claim, "Lost", None).await?;
                    self.tell(&client, &claim, Some(told)).await;
                }
            }
            claim::Step::SetClass(name) => {
                patch(&client, &CLAIMS, &claim, Some(bind::class(&claim, &name)), "").await?;
            }
            claim::Step::Provision(provisioner) => {
                patch(&client, &CLAIMS, &claim, bind::provisioner(&claim, &provisioner), "").await?;
                self.tell(&client, &claim, Some(claim::provisioning(&provisioner))).await;
                return Ok(Outcome::After(AGAIN));
            }
            claim::Step::Leave => {}
        }
        Ok(Outcome::Done)
    }

    async fn observe(&self, client: &Client, key: &Key, claim: &Value) -> Result<Observed, Error> {
        let (plane, class) = (&key.plane, class_of(claim));
        let name = text(claim, "/spec/volumeName");
        if !name.is_empty() {
            let named = match self.volumes.get(&Key::new(plane.clone(), "", name)) {
                Some(volume) => Some(volume),
                // Only the server knows that it is gone: this store may be behind.
                None => client.get_opt(&VOLUMES, None, name).await?.map(Arc::new),
            };
            return Ok(Observed { named, ..Observed::default() });
        }
        let mut candidates = self.volumes.by_index(plane, &claim_entry(&key.namespace, &key.name));
        candidates.extend(self.volumes.by_index(plane, &free_entry(class)));
        let found = match class.is_empty() {
            true => None,
            false => match self.classes.get(&Key::new(plane.clone(), "", class)) {
                Some(class) => Some(class),
                // One of a layer below the plane is in no list over all planes.
                None => client.get_opt(&STORAGE_CLASSES, None, class).await?.map(Arc::new),
            },
        };
        let mut defaults = self.classes.in_plane(plane);
        defaults.retain(|(_, class)| is_default(class) && !meta::is_deleting(class));
        // The newest; of those of one second the first by name.
        defaults.sort_by(|(a, one), (b, other)| {
            let made = |class: &Value| text(class, "/metadata/creationTimestamp").to_owned();
            made(other).cmp(&made(one)).then_with(|| a.cmp(b))
        });
        Ok(Observed {
            candidates: candidates.into_iter().map(|(_, volume)| volume).collect(),
            named: None,
            class: found,
            default_class: defaults.first().map(|(key, _)| key.name.to_string()),
        })
    }

    /// Takes the four steps of a binding, as far as they are not taken: after a failure the rest is taken later.
    async fn bind(&self, client: &Client, claim: &Value, volume: &Value) -> Result<(), Error> {
        let volume = patch(client, &VOLUMES, volume, bind::volume_to_claim(volume, claim), "").await?;
        let phase = bind::volume_phase(&volume, "Bound", "");
        let volume = patch(client, &VOLUMES, &volume, phase, "status").await?;
        let claim = patch(client, &CLAIMS, claim, bind::claim_to_volume(claim, &volume), "").await?;
        self.claim_phase(client, &claim, "Bound", Some(&volume)).await?;
        self.tell(client, &claim, claim::expansion(&claim, &volume)).await;
        Ok(())
    }

    async fn claim_phase(
        &self,
        client: &Client,
        claim: &Value,
        phase: &str,
        volume: Option<&Value>,
    ) -> Result<(), Error> {
        patch(client, &CLAIMS, claim, bind::claim_status(claim, phase, volume), "status").await.map(drop)
    }

    async fn volume(&self, key: &Key) -> Reconciled {
        let Some(volume) = self.volumes.get(key) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        let claim_key = {
            let reference = &volume["spec"]["claimRef"];
            Key::new(key.plane.clone(), text(reference, "/namespace"), text(reference, "/name"))
        };
        let mut claim = self.claims.get(&claim_key);
        if matches!(
            volume::decide(&volume, claim.as_deref()),
            volume::Step::Released | volume::Step::Failed(_)
        ) {
            // Only the server knows that a claim is gone: this store may be behind.
            claim = client.get_opt(&CLAIMS, claim_key.ns(), &claim_key.name).await?.map(Arc::new);
        }
        let (phase, message, told) = match volume::decide(&volume, claim.as_deref()) {
            volume::Step::Available => ("Available", String::new(), None),
            volume::Step::Bound => ("Bound", String::new(), None),
            volume::Step::Released => ("Released", String::new(), None),
            volume::Step::Failed(notice) => ("Failed", notice.message.clone(), Some(notice)),
            volume::Step::Unbind => {
                patch(&client, &VOLUMES, &volume, Some(bind::unbind(&volume)), "").await?;
                return Ok(Outcome::Done);
            }
            volume::Step::AskClaim => {
                self.queue.add(Subject::Claim(claim_key));
                return Ok(Outcome::Done);
            }
            volume::Step::Refuse(notice) => {
                self.tell(&client, &volume, Some(notice)).await;
                return Ok(Outcome::Done);
            }
            volume::Step::Leave => return Ok(Outcome::Done),
        };
        let change = bind::volume_phase(&volume, phase, &message);
        if change.is_some() {
            patch(&client, &VOLUMES, &volume, change, "status").await?;
            self.tell(&client, &volume, told).await;
        }
        Ok(Outcome::Done)
    }

    async fn tell(&self, client: &Client, about: &Value, notice: Option<Notice>) {
        let Some(Notice { warning, reason, message }) = notice else { return };
        let kind = if warning { EventType::Warning } else { EventType::Normal };
        self.recorder.event(client, about, kind, reason, &message).await;
    }
}

/// Patches an object, if there is anything to change, and returns what it is then.
async fn patch(
    client: &Client,
    resource: &Resource,
    object: &Value,
    change: Option<Patch>,
    subresource: &str,
) -> Result<Value, Error> {
    let Some(change) = change else { return Ok(object.clone()) };
    let options = PatchOptions { subresource: subresource.to_owned(), ..PatchOptions::default() };
    let namespace = Some(meta::namespace(object)).filter(|namespace| !namespace.is_empty());
    client.patch(resource, namespace, meta::name(object), &change, &options).await
}
