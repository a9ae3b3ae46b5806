//! Gives namespaces of tenants their labels, rights, limits and network policies, repairs drift, and takes all of it back
//! from a namespace that leaves its tenant.

use crate::observed::{Informers, NAMESPACES, Observed, child_resource};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{Controller, EventType, Key, Outcome, Queue, Reconciled, Recorder, Scope};
use freehold_tenancy_api::tenant::{DeletionPolicy, Tenant};
use freehold_tenancy_api::{CORDONED_LABEL, MANAGED_LABEL, TENANT_LABEL};
use freehold_tenancy_decide::namespace::{CONDITION, ChildKind, Meter, Write, plan, problem, repair};
use freehold_tenancy_decide::tenant::{Assignment, Chain, Namespace, assign};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Namespaces reconciled at once.
const WORKERS: usize = 16;
/// The longest time that a namespace sleeps until it expires: clocks jump.
const LONGEST: Duration = Duration::from_secs(3600);

struct Controlled {
    observed: Observed,
    recorder: Recorder,
    meter: Meter,
}

/// Starts the controller on informers that do not run yet.
pub(crate) fn start(scope: &Scope, informers: &mut Informers, observed: &Observed) {
    let queue = Queue::<Key>::new();
    informers.namespaces.enqueue_into(&queue);
    for (_, informer) in &mut informers.children {
        let queue = queue.clone();
        informer.on_change(move |change| {
            queue.add(Key::new(change.key.plane.clone(), "", &change.key.namespace));
        });
    }
    follow_tenants(informers, observed, &queue);
    let controller = Controller::new("tenancy-namespace", queue).workers(WORKERS).metrics(&scope.metrics);
    let (token, observed) = (scope.token.clone(), observed.clone());
    scope.tasks.spawn(async move {
        let meter = crate::meter::of(&observed.planes, &token).await;
        if observed.synced(&token).await {
            let recorder = Recorder::new("tenancy-namespace");
            let controlled = Arc::new(Controlled { observed, recorder, meter });
            let reconcile = move |key| {
                let controlled = controlled.clone();
                async move { controlled.reconcile(key).await }
            };
            controller.run(token, reconcile).await;
        }
    });
}

/// Reconciles the namespaces of each tenant that changes, of those below it, and of those whose Quota changes.
fn follow_tenants(informers: &mut Informers, observed: &Observed, queue: &Arc<Queue<Key>>) {
    let (to, all) = (queue.clone(), observed.clone());
    informers.tenants.on_change(move |change| {
        let same = |old: &Arc<Tenant>| {
            change.new.as_ref().is_some_and(|new| {
                old.spec == new.spec && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
            })
        };
        if change.old.as_ref().is_some_and(same) {
            return;
        }
        enqueue_family(&all, &change.key, &to);
        if change.new.as_ref().is_some_and(|tenant| tenant.spec.namespaces.adopt_by_prefix) {
            let prefix = format!("{}-", change.key.name);
            for (key, namespace) in all.namespaces.in_plane(&change.key.plane) {
                if namespace.tenant().is_none() && key.name.starts_with(&prefix) {
                    to.add_routine(key);
                }
            }
        }
    });
    let (to, all) = (queue.clone(), observed.clone());
    informers.quotas.on_change(move |change| {
        let same = |old: &Arc<_>| {
            change.new.as_ref().is_some_and(|new: &Arc<freehold_tenancy_api::Quota>| {
                let old: &Arc<freehold_tenancy_api::Quota> = old;
                old.spec == new.spec
            })
        };
        if change.old.as_ref().is_some_and(same) {
            return;
        }
        for (key, _) in all.tenants.by_index(&change.key.plane, &format!("quota/{}", change.key.name)) {
            enqueue_family(&all, &key, &to);
        }
    });
}

fn enqueue_family(all: &Observed, tenant: &Key, queue: &Arc<Queue<Key>>) {
    for name in all.family(&tenant.plane, &tenant.name) {
        for (key, _) in all.namespaces.by_index(&tenant.plane, &name) {
            queue.add_routine(key);
        }
    }
}

/// What is to become of a namespace.
enum Fate {
    /// It is of no tenant.
    Free,
    /// It is a tenant's.
    Owned(Chain),
    /// Its tenant is being deleted and lets it go.
    Released,
    /// Its tenant is being deleted, and it with it.
    Deleted,
    /// Its tenant is being deleted, which is prevented.
    Untouched,
    /// Its label is refused, for a reason.
    Refused(&'static str, String),
}

impl Controlled {
    fn fate(&self, key: &Key, namespace: &Namespace) -> Fate {
        let plane = &key.plane;
        let assignment = assign(&key.name, &namespace.labels, |name| self.observed.tenant(plane, name));
        let name = match assignment {
            Assignment::None => return Fate::Free,
            Assignment::Unknown(name) => {
                return Fate::Refused("TenantMissing", format!("tenant {name:?} does not exist"));
            }
            Assignment::Protected(_) => {
                let message = "the namespace belongs to the plane and cannot be a tenant's".to_owned();
                return Fate::Refused("Protected", message);
            }
            Assignment::Labelled(name) | Assignment::ByPrefix(name) => name,
        };
        let Some(chain) = self.observed.chain(plane, &name) else { return Fate::Free };
        match chain.tenant() {
            Some(tenant) if tenant.metadata.deletion_timestamp.is_some() => {
                match tenant.spec.deletion.namespaces {
                    _ if tenant.spec.prevent_deletion => Fate::Untouched,
                    DeletionPolicy::Keep => Fate::Released,
                    DeletionPolicy::Delete => Fate::Deleted,
                }
            }
            _ => Fate::Owned(chain),
        }
    }

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(namespace) = self.observed.namespaces.get(&key) else { return Ok(Outcome::Done) };
        if namespace.deleting {
            return Ok(Outcome::Done);
        }
        let client = self.observed.planes.client(&key.plane);
        let fate = self.fate(&key, &namespace);
        match fate {
            Fate::Untouched => return Ok(Outcome::Done),
            Fate::Deleted => return delete(&client, &namespace).await,
            Fate::Owned(chain) => {
                let left = namespace.expires().map(|at| Timestamp::now().duration_until(at));
                if left.is_some_and(|left| !left.is_positive()) {
                    return delete(&client, &namespace).await;
                }
                self.fill(&key, &client, &namespace, &chain).await?;
                if let Some(left) = left.and_then(|left| Duration::try_from(left).ok()) {
                    return Ok(Outcome::After(left.min(LONGEST)));
                }
            }
            Fate::Free => self.clear(&key, &client, &namespace, None).await?,
            Fate::Released => self.clear(&key, &client, &namespace, None).await?,
            Fate::Refused(reason, message) => {
                self.clear(&key, &client, &namespace, Some((reason, message))).await?;
            }
        }
        Ok(Outcome::Done)
    }

    /// Writes what the tenant wants in the namespace, then the condition.
    async fn fill(
        &self,
        key: &Key,
        client: &Client,
        namespace: &Namespace,
        chain: &Chain,
    ) -> Result<(), Error> {
        let plane = &key.plane;
        let quota = |name: &str| self.observed.quota(plane, name);
        let writes =
            plan(namespace, (Some(chain), self.meter), quota, &self.observed.children(plane, &key.name));
        let done = self.execute(client, namespace, writes).await;
        let condition = match (&done, problem(chain, quota)) {
            (Err(error), _) => ("False", "WriteRefused", error.to_string()),
            (Ok(()), Some((reason, message))) => ("False", reason, message),
            (Ok(()), None) => ("True", "Ready", String::new()),
        };
        // A conflict is no news: the next attempt has the newer object.
        if !matches!(&done, Err(error) if error.is_conflict() || error.is_transient()) {
            set_condition(client, namespace, condition).await?;
        }
        done
    }

    /// Takes back what the controller wrote in a namespace.
    async fn clear(
        &self,
        key: &Key,
        client: &Client,
        namespace: &Namespace,
        refused: Option<(&'static str, String)>,
    ) -> Result<(), Error> {
        let children = self.observed.children(&key.plane, &key.name);
        let mut writes = plan(namespace, (None, self.meter), |_| None, &children);
        if refused.is_none() && namespace.tenant().is_some() {
            // The label goes last: until then the tenant waits for this namespace.
            let labels = json!({"metadata": {"labels": {TENANT_LABEL: null, CORDONED_LABEL: null}}});
            writes.push(Write::Metadata(labels));
        }
        self.execute(client, namespace, writes).await?;
        match refused {
            Some((reason, message)) => set_condition(client, namespace, ("False", reason, message)).await,
            None => remove_condition(client, namespace).await,
        }
    }

    async fn execute(&self, client: &Client, namespace: &Namespace, writes: Vec<Write>) -> Result<(), Error> {
        let (metadata, children): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|write| matches!(write, Write::Metadata(_)));
        let done = join_all(children.iter().map(|write| self.write(client, namespace, write))).await;
        done.into_iter().collect::<Result<(), Error>>()?;
        for write in &metadata {
            self.write(client, namespace, write).await?;
        }
        Ok(())
    }

    async fn write(&self, client: &Client, namespace: &Namespace, write: &Write) -> Result<(), Error> {
        let name = Some(namespace.name.as_str());
        match write {
            Write::Metadata(patch) => {
                let (patch, options) = (Patch::Merge(patch.clone()), PatchOptions::default());
                client.patch(&NAMESPACES, None, &namespace.name, &patch, &options).await.map(drop)
            }
            Write::Create(kind, object) => match client.create(&child_resource(*kind), object).await {
                Err(error) if error.is_already_exists() => {
                    self.take_over(client, namespace, *kind, object).await
                }
                other => other.map(drop),
            },
            Write::Replace(kind, object) => client.update(&child_resource(*kind), object).await.map(drop),
            Write::Recreate(kind, object) => {
                let resource = child_resource(*kind);
                let options = DeleteOptions::default();
                unless_gone(client.delete(&resource, name, meta::name(object), &options).await)?;
                client.create(&resource, object).await.map(drop)
            }
            Write::Delete(kind, child) => {
                let options = DeleteOptions::default();
                unless_gone(client.delete(&child_resource(*kind), name, child, &options).await)
            }
        }
    }

    /// Replaces an object that somebody else created under a name of ours.
    async fn take_over(
        &self,
        client: &Client,
        namespace: &Namespace,
        kind: ChildKind,
        wanted: &Value,
    ) -> Result<(), Error> {
        let resource = child_resource(kind);
        let existing = client.get(&resource, Some(&namespace.name), meta::name(wanted)).await?;
        if meta::label(&existing, MANAGED_LABEL).is_none() {
            let about = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace.name, "uid": namespace.uid},
            });
            let message = format!("{resource} {:?} was taken over by the tenant", meta::name(wanted));
            self.recorder.event(client, &about, EventType::Warning, "NameTakenOver", &message).await;
        }
        match repair(kind, wanted, &existing) {
            Some(Write::Recreate(_, object)) => {
                let options = DeleteOptions::uid(meta::uid(&existing));
                unless_gone(
                    client.delete(&resource, Some(&namespace.name), meta::name(&object), &options).await,
                )?;
                client.create(&resource, &object).await.map(drop)
            }
            Some(Write::Replace(_, object)) => client.update(&resource, &object).await.map(drop),
            _ => Ok(()),
        }
    }
}

fn unless_gone(result: Result<Value, Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

async fn delete(client: &Client, namespace: &Namespace) -> Reconciled {
    let options = DeleteOptions::uid(&namespace.uid);
    unless_gone(client.delete(&NAMESPACES, None, &namespace.name, &options).await)?;
    Ok(Outcome::Done)
}

async fn set_condition(
    client: &Client,
    namespace: &Namespace,
    (status, reason, message): (&str, &str, String),
) -> Result<(), Error> {
    let old = namespace.condition.as_ref();
    let same = |field: &str, value: &str| {
        old.is_some_and(|old| old.get(field).and_then(Value::as_str).unwrap_or_default() == value)
    };
    if same("status", status) && same("reason", reason) && same("message", &message) {
        return Ok(());
    }
    let mut condition = json!({"type": CONDITION, "status": status, "reason": reason, "message": message});
    condition["lastTransitionTime"] = match old {
        Some(old) if same("status", status) => old["lastTransitionTime"].clone(),
        _ => time::format_seconds(Timestamp::now()).into(),
    };
    patch_conditions(client, namespace, condition).await
}

async fn remove_condition(client: &Client, namespace: &Namespace) -> Result<(), Error> {
    if namespace.condition.is_none() {
        return Ok(());
    }
    patch_conditions(client, namespace, json!({"$patch": "delete", "type": CONDITION})).await
}

async fn patch_conditions(client: &Client, namespace: &Namespace, condition: Value) -> Result<(), Error> {
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let patched = client.patch(&NAMESPACES, None, &namespace.name, &patch, &PatchOptions::status()).await;
    unless_gone(patched)
}
