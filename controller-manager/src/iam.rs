//! Bindings, group memberships, invitations and keys: whether they count, and when they are over.
//!
//! Authorization does not wait for this: it reads the objects themselves. What is said here is for people.

use freehold_api::keys::{READY, SYSTEM_NAMESPACE, organization_of};
use freehold_client::{Client, DeleteOptions, PatchOptions, Resource};
use freehold_controllers_context::kinds::{
    BINDINGS, GROUP_MEMBERSHIPS, GROUPS, IAM_ACCOUNTS, IAM_KEYS, IAM_ROLES, INVITATIONS,
};
use freehold_controllers_context::object::{generation, status_patch, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{
    Informer, Interest, Key, Outcome, Queue, Reconciled, Store,
    conditions::{self, Set},
};
use jiff::Timestamp;
use std::time::Duration;

/// How long what is over can still be looked at.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A kind whose objects are judged by what they refer to and by the time.
#[derive(Clone, Copy)]
struct Judged {
    name: &'static str,
    resource: &'static Resource,
    refers_to: Option<(&'static Resource, &'static str)>,
    /// The field with a time after which it is over.
    ends: Option<&'static str>,
}

const BINDING: Judged = Judged {
    name: "policy-binding",
    resource: &BINDINGS,
    refers_to: Some((&IAM_ROLES, "/spec/roleRef")),
    ends: None,
};
const MEMBERSHIP: Judged = Judged {
    name: "group-membership",
    resource: &GROUP_MEMBERSHIPS,
    refers_to: Some((&GROUPS, "/spec/groupRef")),
    ends: None,
};
const INVITATION: Judged = Judged {
    name: "user-invitation",
    resource: &INVITATIONS,
    refers_to: None,
    ends: Some("/spec/expirationDate"),
};
const KEY: Judged = Judged {
    name: "service-account-key",
    resource: &IAM_KEYS,
    refers_to: Some((&IAM_ACCOUNTS, "/spec/serviceAccountRef")),
    ends: Some("/spec/expirationDate"),
};

/// What is to be done with an object, and when to look again.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// Its status, where it has another.
    Said(Option<Value>, Option<Duration>),
    /// It is over, and has been for long enough.
    Delete,
}

/// What an object refers to: namespace and name.
fn reference(judged: &Judged, object: &Value) -> Option<(String, String)> {
    let (_, field) = judged.refers_to?;
    let name = text(object, &format!("{field}/name")).to_owned();
    let given = text(object, &format!("{field}/namespace"));
    let namespace = if given.is_empty() { meta::namespace(object) } else { given };
    Some((namespace.to_owned(), name))
}

/// Whether a reference of an object can lead into a namespace: its own, or the platform's. What is in another one does not
/// exist for it, as authorization has it.
fn reaches(from: &str, namespace: &str) -> bool {
    namespace == from || namespace == SYSTEM_NAMESPACE
}

/// Why an object does not count; `None` where it does.
fn fault(judged: &Judged, object: &Value, found: bool) -> Option<(&'static str, String)> {
    let namespace = meta::namespace(object);
    if namespace != SYSTEM_NAMESPACE && organization_of(namespace).is_none() {
        let why = format!("it belongs into the namespace of an organization, or into {SYSTEM_NAMESPACE}");
        return Some(("WrongNamespace", why));
    }
    if !found {
        let (namespace, name) = reference(judged, object).unwrap_or_default();
        return Some(("ReferenceNotFound", format!("there is no {name:?} in namespace {namespace:?}")));
    }
    let (kind, target) = (text(object, "/spec/target/kind"), text(object, "/spec/target/name"));
    let own = organization_of(namespace);
    let beyond = own.is_some() && (kind == "Platform" || kind == "Organization" && own != Some(target));
    beyond.then(|| ("TargetOutOfReach", "an organization's bindings do not reach beyond it".to_owned()))
}

fn decide(judged: &Judged, object: &Value, found: bool, now: Timestamp) -> Verdict {
    let end = judged.ends.and_then(|field| freehold_machinery::time::parse(text(object, field)));
    let left = end.map(|end| end.as_second() - now.as_second());
    let kept = i64::try_from(KEPT.as_secs()).unwrap_or(i64::MAX);
    if left.is_some_and(|left| left < -kept) {
        return Verdict::Delete;
    }
    let expired = left.is_some_and(|left| left <= 0);
    let answered = text(object, "/spec/state");
    let (status, reason, message) = match fault(judged, object, found) {
        Some((reason, message)) => ("False", reason, message),
        None if matches!(answered, "Accepted" | "Declined") => ("False", "Answered", String::new()),
        None if expired => ("False", "Expired", String::new()),
        None => ("True", "Ready", String::new()),
    };
    let generation = Some(generation(object));
    let mut wanted = object["status"].clone();
    wanted["observedGeneration"] = generation.into();
    conditions::set(
        &mut wanted["conditions"],
        Set { type_: READY, status, reason, message: &message, generation },
        now,
    );
    let again = left.map(|left| if left > 0 { left } else { left + kept + 1 });
    let again = again.map(|seconds| Duration::from_secs(seconds.unsigned_abs().max(1)));
    Verdict::Said((wanted != object["status"]).then_some(wanted), again)
}

struct Judge {
    judged: Judged,
    client: Client,
    objects: Store<Value>,
    references: Option<Store<()>>,
}

fn start(context: &mut Context, judged: Judged) {
    let queue = Queue::new();
    let by_reference = move |_: &Key, object: &Value| {
        reference(&judged, object)
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .into_iter()
            .collect()
    };
    let interest = Interest::objects(judged.resource.clone()).index(by_reference);
    let mut informer = Informer::new(&context.core, interest);
    informer.enqueue_into(&queue);
    let objects = context.run_informer(informer);
    let references = judged.refers_to.map(|(resource, _)| {
        let mut informer = Informer::new(&context.core, Interest::projected(resource.clone(), |_| Some(())));
        let (waiting, objects) = (queue.clone(), objects.clone());
        informer.on_change(move |change| {
            let at = format!("{}/{}", change.key.namespace, change.key.name);
            for (key, _) in objects.by_index(&change.key.plane, &at) {
                waiting.add(key);
            }
        });
        context.run_informer(informer)
    });
    context.resync(&objects, &queue);
    let (client, waits) = (context.core.everywhere(), objects.clone());
    let more = references.clone();
    let judge = Judge { judged, client, objects, references };
    match more {
        Some(more) => context.control(judged.name, 2, &queue, &[&waits, &more], judge),
        None => context.control(judged.name, 2, &queue, &[&waits], judge),
    }
}

/// Starts the controller of bindings.
pub(crate) fn bindings(context: &mut Context) {
    start(context, BINDING);
}

/// Starts the controller of group memberships.
pub(crate) fn memberships(context: &mut Context) {
    start(context, MEMBERSHIP);
}

/// Starts the controller of invitations.
pub(crate) fn invitations(context: &mut Context) {
    start(context, INVITATION);
}

/// Starts the controller of keys.
pub(crate) fn keys(context: &mut Context) {
    start(context, KEY);
}

impl Reconcile for Judge {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(object) = self.objects.get(&key) else { return Ok(Outcome::Done) };
        let found = match (&self.references, reference(&self.judged, &object)) {
            (Some(there), Some((namespace, name))) => {
                reaches(&key.namespace, &namespace)
                    && there.get(&Key::new(key.plane.clone(), &namespace, &name)).is_some()
            }
            _ => true,
        };
        let resource = self.judged.resource;
        match decide(&self.judged, &object, found, Timestamp::now()) {
            Verdict::Delete => {
                match self.client.delete(resource, key.ns(), &key.name, &DeleteOptions::default()).await {
                    Err(error) if !error.is_not_found() => Err(error.into()),
                    _ => Ok(Outcome::Done),
                }
            }
            Verdict::Said(status, again) => {
                if let Some(status) = status {
                    let options = PatchOptions::status();
                    self.client
                        .patch(resource, key.ns(), &key.name, &status_patch(&status), &options)
                        .await?;
                }
                Ok(again.map_or(Outcome::Done, Outcome::After))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ready(judged: &Judged, object: &Value, found: bool, now: i64) -> (String, String) {
        let now = Timestamp::from_second(now).unwrap();
        let Verdict::Said(Some(status), _) = decide(judged, object, found, now) else { panic!("{object}") };
        let condition = conditions::find(&status["conditions"], READY).unwrap();
        let field = |name: &str| condition[name].as_str().unwrap().to_owned();
        (field("status"), field("reason"))
    }

    #[test]
    fn what_does_not_count_is_told_why() {
        let of = |namespace: &str, spec: Value| json!({"metadata": {"namespace": namespace}, "spec": spec});
        let at = |kind: &str, name: &str| json!({"target": {"kind": kind, "name": name}});
        let acme = "organization-acme";
        let rows = [
            (&BINDING, of(acme, at("Organization", "acme")), true, "Ready"),
            (&BINDING, of(acme, at("Organization", "umbrella")), true, "TargetOutOfReach"),
            (&BINDING, of(acme, at("Platform", "")), true, "TargetOutOfReach"),
            (&BINDING, of(SYSTEM_NAMESPACE, at("Platform", "")), true, "Ready"),
            (&BINDING, of("default", at("Project", "web")), true, "WrongNamespace"),
            (&BINDING, of(acme, at("Project", "web")), false, "ReferenceNotFound"),
            (&INVITATION, of(acme, json!({"expirationDate": "1970-01-01T00:10:00Z"})), true, "Ready"),
            (&INVITATION, of(acme, json!({"expirationDate": "1970-01-01T00:01:00Z"})), true, "Expired"),
            (
                &INVITATION,
                of(acme, json!({"expirationDate": "1970-01-01T00:10:00Z", "state": "Declined"})),
                true,
                "Answered",
            ),
        ];
        for (judged, object, found, reason) in rows {
            assert_eq!(ready(judged, &object, found, 100).1, reason, "{object}");
        }
    }

    #[test]
    fn what_is_over_is_looked_at_again_and_goes_in_the_end() {
        let key = json!({"metadata": {"namespace": "organization-a"}, "spec": {"expirationDate": "1970-01-01T00:01:00Z"}});
        let at = |seconds: i64| decide(&KEY, &key, true, Timestamp::from_second(seconds).unwrap());
        let again = |verdict: Verdict| match verdict {
            Verdict::Said(_, again) => again.map(|again| again.as_secs()),
            Verdict::Delete => None,
        };
        assert_eq!(again(at(10)), Some(50));
        assert_eq!(again(at(70)), Some(KEPT.as_secs() - 9));
        assert_eq!(at(70 + 8 * 24 * 3600), Verdict::Delete);
        assert!(matches!(
            decide(&KEY, &Value::Null, false, Timestamp::UNIX_EPOCH),
            Verdict::Said(Some(_), None)
        ));
    }
}
