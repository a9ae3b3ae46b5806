//! ResourceClaims of Pods: made from templates, taken back from Pods that have ended, deleted with them
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>).
//!
//! Devices are allocated by the scheduler. Of Pods without templates and that have no claim, nothing is kept here.

mod decide;

use crate::context::Context;
use crate::kinds::{PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use decide::{FINALIZER, Step, has_ended, has_templates, is_of, make, pods_of, templates, told};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::object::{
    controller_of, finalizer_patch, items, namespace_terminates, text, unless_gone,
};
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, QueueKey, Reconcile, Reconciled, Recorder,
    Store,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "resourceclaim-controller";
/// The manager of the field of Pods' status in which their claims are named.
const MANAGER: &str = "ResourceClaimController";

/// A Pod or claim that is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Pod(Key),
    Claim(Key),
}

impl QueueKey for Subject {
    fn plane(&self) -> &PlaneId {
        match self {
            Self::Pod(key) | Self::Claim(key) => &key.plane,
        }
    }
}

/// What is kept of a Pod that has claims.
struct PodView {
    /// Whether claims are to be made for it or named in its status.
    wants: bool,
    ended: bool,
    uid: Box<str>,
}

impl PodView {
    fn of(pod: &Value) -> Option<Self> {
        if items(pod, "/spec/resourceClaims").is_empty() {
            return None;
        }
        let wants = has_templates(pod) && templates(pod).any(|(entry, _)| told(pod, entry).is_none());
        let ended = has_ended(pod);
        Some(Self { wants: wants && !ended && !meta::is_deleting(pod), ended, uid: meta::uid(pod).into() })
    }
}

struct Claims {
    planes: Planes,
    pods: Store<PodView>,
    claims: Store<Value>,
    queue: Arc<Queue<Subject>>,
    recorder: Recorder,
}

/// Index entry of claims by the names of Pods that have them.
fn pod_entry(namespace: &str, name: &str) -> String {
    format!("pod {namespace}/{name}")
}

fn index(key: &Key, claim: &Value) -> Vec<String> {
    let names: BTreeSet<&str> = pods_of(claim).into_iter().map(|(name, _)| name).collect();
    names.into_iter().map(|name| pod_entry(&key.namespace, name)).collect()
}

/// Starts the controller.
pub(crate) fn start(context: &Context) {
    let queue: Arc<Queue<Subject>> = Queue::new();
    let planes = &context.planes;
    let mut claims = Informer::new(planes, Interest::objects(RESOURCE_CLAIMS).index(index));
    let mut pods = Informer::new(planes, Interest::projected(PODS, |pod| PodView::of(&pod)));
    let mut all_templates =
        Informer::new(planes, Interest::projected(RESOURCE_CLAIM_TEMPLATES, |_| Some(())));
    let (known_claims, known_pods) = (claims.store(), pods.store());

    let (on_pods, of_pods) = (queue.clone(), known_claims.clone());
    pods.on_change(move |change| {
        let key = &change.key;
        if change.new.as_deref().is_some_and(|pod| pod.wants) {
            on_pods.add(Subject::Pod(key.clone()));
        }
        if change.new.as_deref().is_none_or(|pod| pod.ended) {
            for (claim, _) in of_pods.by_index(&key.plane, &pod_entry(&key.namespace, &key.name)) {
                on_pods.add(Subject::Claim(claim));
            }
        }
    });
    let (on_claims, of_claims) = (queue.clone(), known_pods.clone());
    claims.on_change(move |change| {
        let key = &change.key;
        on_claims.add(Subject::Claim(key.clone()));
        let Some(old) = change.old.as_deref().filter(|_| change.new.is_none()) else { return };
        // One that somebody deleted comes again.
        let owner = controller_of(old).map_or("", |owner| text(owner, "/name"));
        let pod = Key::new(key.plane.clone(), &key.namespace, owner);
        if of_claims.get(&pod).is_some() {
            on_claims.add(Subject::Pod(pod));
        }
    });
    let (on_templates, waiting) = (queue.clone(), known_pods);
    all_templates.on_change(move |change| {
        if change.old.is_none() {
            for (pod, _) in waiting.in_namespace(&change.key.plane, &change.key.namespace) {
                on_templates.add(Subject::Pod(pod));
            }
        }
    });
    let pods = context.run_informer(pods);
    let claims = context.run_informer(claims);
    context.run_informer(all_templates);
    let controller = Claims {
        planes: planes.clone(),
        pods: pods.clone(),
        claims: claims.clone(),
        queue: queue.clone(),
        recorder: Recorder::new("resource_claim"),
    };
    context.control(NAME, &queue, &[&pods, &claims], controller);
}

impl Reconcile for Claims {
    type Key = Subject;

    async fn reconcile(&self, subject: Subject) -> Reconciled {
        match subject {
            Subject::Pod(key) => self.pod(&key).await,
            Subject::Claim(key) => self.claim(&key).await,
        }
    }
}

impl Claims {
    async fn pod(&self, key: &Key) -> Reconciled {
        if self.pods.get(key).is_none() {
            return Ok(Outcome::Done);
        }
        let client = self.planes.client(&key.plane);
        let Some(pod) = client.get_opt(&PODS, key.ns(), &key.name).await? else { return Ok(Outcome::Done) };
        if has_ended(&pod) || meta::is_deleting(&pod) || !has_templates(&pod) {
            return Ok(Outcome::Done);
        }
        let mut named = BTreeMap::new();
        for (entry, template) in templates(&pod) {
            match self.provide(&client, key, &pod, (entry, template)).await {
                Ok(Some(name)) => {
                    named.insert(entry.to_owned(), name);
                }
                Ok(None) => {}
                Err(error) => {
                    let message = format!("PodResourceClaim {entry}: {error}");
                    self.recorder
                        .event(&client, &pod, EventType::Warning, "FailedResourceClaimCreation", &message)
                        .await;
                    return Err(error.into());
                }
            }
        }
        if named.iter().any(|(entry, name)| told(&pod, entry) != Some(name)) {
            let statuses: Vec<Value> =
                named.iter().map(|(entry, name)| json!({"name": entry, "resourceClaimName": name})).collect();
            let apply = Patch::Apply(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": key.name, "namespace": key.namespace, "uid": meta::uid(&pod)},
                "status": {"resourceClaimStatuses": statuses},
            }));
            let options = PatchOptions { subresource: "status".into(), ..PatchOptions::apply(MANAGER) };
            if let Err(error) = client.patch(&PODS, key.ns(), &key.name, &apply, &options).await {
                unless_gone(&client, &PODS, (key.ns(), &key.name, meta::uid(&pod)), error).await?;
            }
        }
        Ok(Outcome::Done)
    }

    /// Returns the name of an entry's claim, made if there is none; `None` if it can't be made and never will.
    async fn provide(
        &self,
        client: &Client,
        key: &Key,
        pod: &Value,
        (entry, template): (&str, &str),
    ) -> Result<Option<String>, Error> {
        if let Some(name) = told(pod, entry) {
            let found = client.get_opt(&RESOURCE_CLAIMS, key.ns(), name).await?;
            if found.is_some_and(|claim| is_of(&claim, pod, entry)) {
                return Ok(Some(name.to_owned()));
            }
        }
        let owned = self.claims.by_index(&key.plane, &pod_entry(&key.namespace, &key.name));
        if let Some((found, _)) =
            owned.iter().find(|(_, claim)| is_of(claim, pod, entry) && !meta::is_deleting(claim))
        {
            return Ok(Some(found.name.to_string()));
        }
        // The store may be behind a claim that was made a moment ago.
        let all = client.list_all(&RESOURCE_CLAIMS, key.ns(), &Default::default()).await?.items;
        if let Some(found) = all.iter().find(|claim| is_of(claim, pod, entry) && !meta::is_deleting(claim)) {
            return Ok(Some(meta::name(found).to_owned()));
        }
        let template = client.get(&RESOURCE_CLAIM_TEMPLATES, key.ns(), template).await?;
        match client.create(&RESOURCE_CLAIMS, &make(pod, entry, &template)).await {
            Ok(claim) => Ok(Some(meta::name(&claim).to_owned())),
            Err(error) if namespace_terminates(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn claim(&self, key: &Key) -> Reconciled {
        let Some(claim) = self.claims.get(key) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        let mut going = BTreeSet::new();
        for (name, uid) in pods_of(&claim) {
            let pod = Key::new(key.plane.clone(), &key.namespace, name);
            // The server is asked of those alone that this store does not know to go on.
            let goes_on = match self.pods.get(&pod) {
                Some(view) => &*view.uid == uid && !view.ended,
                None => false,
            };
            if goes_on || lives(&client, &pod, uid).await? {
                going.insert((name.to_owned(), uid.to_owned()));
            }
        }
        let needs = |name: &str, uid: &str| going.contains(&(name.to_owned(), uid.to_owned()));
        let (version, options) = (meta::resource_version(&claim), PatchOptions::default());
        match decide::decide(&claim, needs) {
            Step::Status(status) => {
                let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
                let options = PatchOptions::status();
                let changed = client.patch(&RESOURCE_CLAIMS, key.ns(), &key.name, &patch, &options).await;
                self.unless_gone(&client, key, &claim, changed.map(drop)).await?;
                // What follows is decided on the change that comes of it.
                self.queue.add(Subject::Claim(key.clone()));
            }
            Step::Unprotect => {
                if let Some(patch) = finalizer_patch(&claim, FINALIZER, false) {
                    let changed = client.patch(&RESOURCE_CLAIMS, key.ns(), &key.name, &patch, &options).await;
                    self.unless_gone(&client, key, &claim, changed.map(drop)).await?;
                }
            }
            Step::Delete => {
                let options = DeleteOptions {
                    resource_version: version.to_owned(),
                    ..DeleteOptions::uid(meta::uid(&claim))
                };
                let deleted = client.delete(&RESOURCE_CLAIMS, key.ns(), &key.name, &options).await;
                self.unless_gone(&client, key, &claim, deleted.map(drop)).await?;
            }
            Step::Leave => {}
        }
        Ok(Outcome::Done)
    }

    async fn unless_gone(
        &self,
        client: &Client,
        key: &Key,
        claim: &Value,
        written: Result<(), Error>,
    ) -> Result<(), Error> {
        match written {
            Ok(()) => Ok(()),
            Err(error) => {
                unless_gone(client, &RESOURCE_CLAIMS, (key.ns(), &key.name, meta::uid(claim)), error).await
            }
        }
    }
}

/// Reports whether the server has a Pod of this uid that goes on.
async fn lives(client: &Client, pod: &Key, uid: &str) -> Result<bool, Error> {
    let found = client.get_opt(&PODS, pod.ns(), &pod.name).await?;
    Ok(found.is_some_and(|pod| meta::uid(&pod) == uid && !has_ended(&pod)))
}
