//! Pods of projects and their host Pods: carries out [`freehold_workloads_decide::sync`].

use crate::cluster::Cluster;
use crate::kinds::{ACCOUNTS, Kind, PODS, SECRETS};
use crate::world::{Object, Place, Placed, World};
use crate::{nodes, objects};
use freehold_client::{DeleteOptions, Error, Patch, PatchOptions};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{EventType, Key, Outcome, Reconciled};
use freehold_workloads_decide::pod::{self, Terms, Translated};
use freehold_workloads_decide::sync::{self, Step};
use freehold_workloads_decide::{Refusal, names, status, tokens};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How soon a Pod comes again whose cluster is not there.
const ELSEWHERE: Duration = Duration::from_secs(5);
/// How soon a Pod comes again that its cluster refuses: limits change without word.
const REFUSED: Duration = Duration::from_secs(60);

/// One reconcile of a Pod.
struct Work<'a> {
    world: &'a World,
    key: &'a Key,
    placed: &'a Placed,
}

/// Reconciles a Pod.
///
/// # Errors
/// A server does not answer, or another writer was first.
pub(crate) async fn reconcile(world: Arc<World>, key: Key) -> Reconciled {
    let view = world.pods.get(&key);
    let placed = match (world.place(&key.plane), &view) {
        (Place::On(placed), _) => placed,
        (Place::Nowhere, _) => return Ok(Outcome::Done),
        (Place::Waiting, Some(view)) if view.node.is_empty() => match world.assign(&key.plane).await? {
            Place::On(placed) => placed,
            Place::Waiting => return Ok(Outcome::After(ELSEWHERE)),
            Place::Nowhere => return Ok(Outcome::Done),
        },
        (Place::Waiting, _) => return Ok(Outcome::After(ELSEWHERE)),
    };
    if view.as_ref().is_some_and(|view| !view.node.is_empty() && *view.node != *placed.cluster.name) {
        // It runs on a node of the project's own.
        return Ok(Outcome::Done);
    }
    let host = placed.cluster.pods.get(&placed.cluster.key(&key));
    let versions = view.as_ref().zip(host.as_ref()).map(|(view, host)| (view.version, host.version));
    if versions.is_some() && world.settled.lock().get(&key).copied() == versions && !is_due(&world, &key) {
        return Ok(Outcome::Done);
    }
    Work { world: &world, key: &key, placed: &placed }.run(view.is_some()).await
}

fn is_due(world: &World, key: &Key) -> bool {
    world.renewals.lock().get(key).is_some_and(|(_, at)| *at <= Timestamp::now().as_second())
}

impl Work<'_> {
    fn cluster(&self) -> &Cluster {
        &self.placed.cluster
    }

    async fn run(&self, exists: bool) -> Reconciled {
        let client = self.world.client(&self.key.plane);
        let pod = match exists {
            true => client.get_opt(&PODS, self.key.ns(), &self.key.name).await?,
            false => None,
        };
        let host_key = self.cluster().key(self.key);
        let host = self.cluster().client.get_opt(&PODS, host_key.ns(), &host_key.name).await?;
        let host = host.filter(|host| meta::label(host, names::PROJECT) == Some(self.key.plane.as_str()));
        let mut steps = sync::decide(pod.as_ref(), host.as_ref(), &self.cluster().name);
        let wanted = match &pod {
            Some(pod) => match self.translate(pod) {
                Ok(wanted) => Some(wanted),
                Err(refusal) if host.is_none() => return self.refuse(pod, &refusal).await,
                Err(_) => None,
            },
            None => None,
        };
        let Some(pod) = pod else {
            self.release(host.is_none()).await?;
            self.act(&json!({}), None, &steps).await?;
            return Ok(Outcome::Done);
        };
        if let (Some(wanted), Some(host)) = (&wanted, &host)
            && !meta::is_deleting(&pod)
            && !meta::is_deleting(host)
            && meta::annotation(host, names::UID) == Some(meta::uid(&pod))
        {
            self.provide(&pod, wanted, false).await?;
            steps.extend(sync::drift(wanted, host));
        }
        let version = match self.act(&pod, wanted.as_ref(), &steps).await {
            Ok(version) => version,
            Err(error) => return self.failed(&pod, error).await,
        };
        self.settle(&pod, host.as_ref(), version, &steps);
        Ok(self.next())
    }

    /// Remembers that nothing is left to do, so that the events of the syncer's own writes cost nothing.
    fn settle(&self, pod: &Value, host: Option<&Value>, version: Option<u64>, steps: &[Step]) {
        let own = |step: &Step| matches!(step, Step::Status(_) | Step::Bind);
        let (Some(host), true) = (host, steps.iter().all(own)) else { return };
        let parse = |object: &Value| meta::resource_version(object).parse().unwrap_or_default();
        let versions = (version.unwrap_or_else(|| parse(pod)), parse(host));
        self.world.settled.lock().insert(self.key.clone(), versions);
    }

    fn next(&self) -> Outcome {
        let due = self.world.renewals.lock().get(self.key).map(|(_, at)| *at);
        let left = due.map(|at| at.saturating_sub(Timestamp::now().as_second()).max(1));
        left.map_or(Outcome::Done, |left| Outcome::After(Duration::from_secs(left.unsigned_abs())))
    }

    fn translate(&self, pod: &Value) -> Result<Translated, Refusal> {
        let object = self.cluster().object();
        let services = self.cluster().services(&self.key.plane);
        let (host, port) = &self.world.terms.api;
        let terms = Terms {
            project: self.key.plane.as_str(),
            cluster: &self.cluster().name,
            dns_domain: object["spec"]["dnsDomain"].as_str().unwrap_or("cluster.local"),
            class: &self.placed.class,
            api: (host, *port),
            services: &services,
        };
        pod::translate(pod, &terms)
    }

    /// Tells the Pod's author why it does not run.
    async fn refuse(&self, pod: &Value, Refusal(why): &Refusal) -> Reconciled {
        if meta::is_deleting(pod) && !pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
            self.act(pod, None, &[Step::DeletePod(0)]).await?;
            return Ok(Outcome::Done);
        }
        let Some(status) = status::refused_status(pod, why, Timestamp::now()) else {
            return Ok(Outcome::Done);
        };
        let client = self.world.client(&self.key.plane);
        let patch = Patch::Merge(json!({"status": status}));
        client.patch(&PODS, self.key.ns(), &self.key.name, &patch, &PatchOptions::status()).await?;
        self.world.recorder.event(&client, pod, EventType::Warning, "FailedScheduling", why).await;
        Ok(Outcome::Done)
    }

    /// Tells the Pod's author what its cluster refuses; anything else is tried again soon.
    async fn failed(&self, pod: &Value, error: Error) -> Reconciled {
        match error.code() {
            400 | 403 | 413 | 422 if !error.is_conflict() => {
                let why: String =
                    format!("the cluster refuses the Pod: {error}").chars().take(1000).collect();
                self.refuse(pod, &Refusal(why)).await?;
                Ok(Outcome::After(REFUSED))
            }
            _ => Err(error.into()),
        }
    }

    /// Lets go what a Pod that is no more referred to.
    async fn release(&self, host_is_gone: bool) -> Result<(), Error> {
        if !host_is_gone {
            return Ok(());
        }
        self.world.settled.lock().remove(self.key);
        let had_tokens = self.world.renewals.lock().remove(self.key).is_some();
        for object in self.world.references.replace(self.key, &Default::default()) {
            self.world.queues.objects.add(object);
        }
        if had_tokens {
            let key = self.cluster().key(self.key);
            let secret = Key::new(key.plane.clone(), &key.namespace, &names::token_secret(&self.key.name));
            self.cluster().remove_named(Kind::Secret, &secret).await?;
        }
        Ok(())
    }

    /// Carries out steps, and gives the resource version that the project's Pod has then, if it is known.
    async fn act(
        &self,
        pod: &Value,
        wanted: Option<&Translated>,
        steps: &[Step],
    ) -> Result<Option<u64>, Error> {
        let (client, host) = (self.world.client(&self.key.plane), &self.cluster().client);
        let host_key = self.cluster().key(self.key);
        let (ns, name) = (self.key.ns(), &*self.key.name);
        let mut version = None;
        for step in steps {
            match step {
                Step::Create => {
                    let Some(wanted) = wanted else { continue };
                    self.provide(pod, wanted, true).await?;
                    self.create(&wanted.pod).await?;
                }
                Step::Bind => nodes::bind(self.world, self.placed, &self.key.plane, pod).await?,
                Step::Status(patch) => {
                    let patch = Patch::Merge(json!({"status": patch}));
                    let answer = client.patch(&PODS, ns, name, &patch, &PatchOptions::status()).await?;
                    version = meta::resource_version(&answer).parse().ok();
                }
                Step::DeleteHost(grace) => {
                    let options = DeleteOptions { grace_period_seconds: *grace, ..DeleteOptions::default() };
                    gone(host.delete(&PODS, host_key.ns(), &host_key.name, &options).await)?;
                }
                Step::DeletePod(grace) => {
                    let uid = meta::uid(pod);
                    let options =
                        DeleteOptions { grace_period_seconds: Some(*grace), ..DeleteOptions::uid(uid) };
                    gone(client.delete(&PODS, ns, name, &options).await)?;
                }
                Step::UpdateHost(patch) => {
                    let (patch, options) = (Patch::Merge(patch.clone()), PatchOptions::default());
                    host.patch(&PODS, host_key.ns(), &host_key.name, &patch, &options).await?;
                }
                Step::Debug(containers) => {
                    let patch = Patch::Merge(json!({"spec": {"ephemeralContainers": containers}}));
                    let options =
                        PatchOptions { subresource: "ephemeralcontainers".into(), ..PatchOptions::default() };
                    host.patch(&PODS, host_key.ns(), &host_key.name, &patch, &options).await?;
                }
            }
        }
        Ok(version)
    }

    async fn create(&self, pod: &Value) -> Result<(), Error> {
        match self.cluster().client.create(&PODS, pod).await {
            // The watch brings it.
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }

    /// Puts on the host what a Pod needs: its namespace with its guards, what it refers to, and its tokens.
    async fn provide(&self, pod: &Value, wanted: &Translated, is_new: bool) -> Result<(), Error> {
        if is_new {
            objects::ensure_namespace(self.world, self.placed, &self.key.plane, &self.key.namespace).await?;
        }
        for object in self.world.references.replace(self.key, &wanted.references) {
            self.world.queues.objects.add(object);
        }
        let missing = wanted.references.iter().map(|(referent, name)| Object {
            kind: crate::references::kind_of(*referent),
            key: Key::new(self.key.plane.clone(), &self.key.namespace, name),
        });
        let missing = missing.filter(|object| is_new || !self.cluster().has(object.kind, &object.key));
        let missing = missing.map(|object| objects::ensure(self.world, self.placed, object));
        let (_, ()) = futures_util::try_join!(try_join_all(missing), self.tokens(pod, wanted))?;
        Ok(())
    }

    /// Makes the tokens of a Pod, or makes them anew when that is due.
    async fn tokens(&self, pod: &Value, wanted: &Translated) -> Result<(), Error> {
        if wanted.tokens.is_empty() || self.has_tokens(meta::uid(pod)).await? {
            return Ok(());
        }
        let client = self.world.client(&self.key.plane);
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default");
        let (mut made, mut expirations) = (Vec::new(), Vec::new());
        for source in &wanted.tokens {
            let request = source.request(pod);
            let answer =
                client.create_subresource(&ACCOUNTS, self.key.ns(), account, "token", &request).await?;
            made.push((
                source.key.clone(),
                answer["status"]["token"].as_str().unwrap_or_default().to_owned(),
            ));
            expirations.extend(answer["status"]["expirationTimestamp"].as_str().and_then(time::parse));
        }
        let renew = tokens::renewal(Timestamp::now(), &expirations);
        self.cluster().ensure(tokens::secret(pod, self.key.plane.as_str(), &made, renew)).await?;
        self.note(meta::uid(pod), renew.as_second());
        Ok(())
    }

    /// Whether the Pod's tokens are on the host and good for a while.
    async fn has_tokens(&self, uid: &str) -> Result<bool, Error> {
        let host = self.cluster().key(self.key);
        let name = names::token_secret(&self.key.name);
        let key = Key::new(host.plane.clone(), &host.namespace, &name);
        // A predecessor's of the same name ended with it.
        let known =
            self.world.renewals.lock().get(self.key).filter(|(of, _)| **of == *uid).map(|(_, at)| *at);
        let is_there = self.cluster().has_named(Kind::Secret, &key);
        let at = match known {
            Some(at) => at,
            None if !is_there => return Ok(false),
            // After a start: the Secret says it.
            None => {
                let Some(secret) = self.cluster().client.get_opt(&SECRETS, key.ns(), &name).await? else {
                    return Ok(false);
                };
                let is_own = meta::annotation(&secret, names::UID) == Some(uid);
                let at = meta::annotation(&secret, tokens::RENEW).and_then(time::parse).filter(|_| is_own);
                at.map_or(0, Timestamp::as_second)
            }
        };
        let is_good = at > Timestamp::now().as_second() && (is_there || known.is_some() && self.is_young());
        if is_good {
            self.note(uid, at);
        }
        Ok(is_good)
    }

    fn note(&self, uid: &str, renew: i64) {
        self.world.renewals.lock().insert(self.key.clone(), (uid.into(), renew));
    }

    /// Whether the host Pod is not there yet: then its Secret may be on its way here.
    fn is_young(&self) -> bool {
        self.cluster().pods.get(&self.cluster().key(self.key)).is_none()
    }
}

/// A deletion of what is gone has succeeded.
fn gone(deleted: Result<Value, Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}
