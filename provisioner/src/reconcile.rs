//! Reconciliation of one ProjectControlPlane: observe, plan, apply, report status.

use crate::FIELD_MANAGER;
use crate::certificates::{self, Authorities, Issued};
use crate::plan::{self, AdmissionPlugins, CONTROLLER_MANAGER, Etcd, Inputs, KeyPair, Size, Spec, Trust};
use crate::status::{Observed, status};
use crate::watch::{Stores, Workload};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_api::{ProjectControlPlane, keys};
use freehold_client::{Client, DeleteOptions, Patch, PatchOptions, Resource};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Error, Key, Outcome, Reconciled};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

pub(crate) const PROJECT_CONTROL_PLANES: Resource =
    Resource::cluster("infrastructure.freehold.dev", "v1alpha1", "projectcontrolplanes");
pub(crate) const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
pub(crate) const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
pub(crate) const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments");

/// The types of a plan by their kinds.
static KINDS: [(&str, Resource); 6] = [
    ("Namespace", NAMESPACES),
    ("Secret", SECRETS),
    ("Service", Resource::namespaced("", "v1", "services")),
    ("Deployment", DEPLOYMENTS),
    ("NetworkPolicy", Resource::namespaced("networking.k8s.io", "v1", "networkpolicies")),
    ("PodDisruptionBudget", Resource::namespaced("policy", "v1", "poddisruptionbudgets")),
];
/// How long a deletion is left alone before it is looked at again; the watch usually is faster.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The longest time between two looks at a pair.
const AT_LEAST: Duration = Duration::from_secs(12 * 3600);

/// What each pair is made from, whichever project it serves.
pub(crate) struct Terms {
    pub(crate) image: String,
    pub(crate) etcd: Etcd,
    pub(crate) trust: Trust,
    pub(crate) authorities: Authorities,
    pub(crate) sizes: BTreeMap<String, Size>,
    pub(crate) core_namespace_labels: BTreeMap<String, String>,
    pub(crate) outbound_networks: String,
    pub(crate) admission_plugins: AdmissionPlugins,
}

/// Reconciles ProjectControlPlanes.
pub(crate) struct Reconciler {
    pub(crate) client: Client,
    pub(crate) stores: Stores,
    pub(crate) terms: Terms,
    /// What was applied last, by the hash of each object, so that what did not change is not sent again.
    pub(crate) applied: Mutex<HashMap<Key, HashMap<String, u64>>>,
}

impl Reconciler {
    /// Everything that is to be done for one ProjectControlPlane now.
    pub(crate) async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(object) = self.stores.planes.get(&key) else {
            self.applied.lock().remove(&key);
            return Ok(Outcome::Done);
        };
        if meta::is_deleting(&object) {
            return self.remove(&key, &object).await;
        }
        self.hold(&object).await?;
        let result = self.bring_about(&key, &object).await;
        let seen = match &result {
            Ok(_) => self.observe(&key),
            Err(error) => Observed { failure: error.to_string(), ..self.observe(&key) },
        };
        self.tell(&object, &seen).await?;
        let due = result?;
        let wait = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
        Ok(Outcome::After(wait.clamp(LOOK_AGAIN, AT_LEAST)))
    }

    /// Forgets what was applied, so that everything is applied again: what others changed is put right.
    pub(crate) fn forget_applied(&self) {
        self.applied.lock().clear();
    }

    /// Plans and applies. Gives when to look again.
    async fn bring_about(&self, key: &Key, object: &Value) -> Result<Timestamp, Error> {
        let spec = spec(object)?;
        let issued = self.credentials(&spec).await?;
        let inputs = self.inputs(&spec, &issued, self.endpoint(key, object));
        self.apply(key, plan::plan(&spec, &inputs)).await?;
        Ok(issued.due)
    }

    async fn credentials(&self, spec: &Spec) -> Result<Issued, Error> {
        let mut secrets = HashMap::new();
        let names = [
            plan::SERVING_SECRET,
            plan::CONTROLLER_MANAGER_SECRET,
            plan::ADMIN_SECRET,
            plan::ETCD_SECRET,
            plan::PROXY_SECRET,
            plan::TRUST_SECRET,
        ];
        for name in names {
            if let Some(secret) = self.secret(spec, name).await? {
                secrets.insert(name, secret);
            }
        }
        let kept = |name: &str| {
            let secret = secrets.get(name)?;
            if name == plan::TRUST_SECRET {
                let cert_pem = content(secret, plan::CLIENT_CA_FILE)?;
                return Some(KeyPair { cert_pem, key_pem: String::new() });
            }
            Some(KeyPair { cert_pem: content(secret, "tls.crt")?, key_pem: content(secret, "tls.key")? })
        };
        Ok(certificates::credentials(&spec.plane, &self.terms.authorities, kept, Timestamp::now())?)
    }

    /// A Secret as the watch saw it; asked for where it did not, because what is made twice rolls the Pods.
    async fn secret(&self, spec: &Spec, name: &str) -> Result<Option<std::sync::Arc<Value>>, Error> {
        let namespace = keys::pair_namespace(&spec.plane);
        let known = self.stores.secret(&namespace, name);
        match known {
            Some(secret) => Ok(Some(secret)),
            None => Ok(self.client.get_opt(&SECRETS, Some(&namespace), name).await?.map(std::sync::Arc::new)),
        }
    }

    fn inputs(&self, spec: &Spec, issued: &Issued, endpoint: Option<String>) -> Inputs {
        let terms = &self.terms;
        Inputs {
            image: terms.image.clone(),
            etcd: terms.etcd.clone(),
            trust: Trust { client_ca_pem: issued.client_ca_pem.clone(), ..terms.trust.clone() },
            credentials: issued.credentials.clone(),
            size: terms.sizes.get(&spec.class).cloned().unwrap_or_default(),
            core_namespace_labels: terms.core_namespace_labels.clone(),
            outbound_networks: terms.outbound_networks.clone(),
            admission_plugins: terms.admission_plugins.clone(),
            endpoint,
        }
    }

    /// The address of a ready apiserver, or the one that was told last.
    fn endpoint(&self, key: &Key, object: &Value) -> Option<String> {
        let told = || object["status"]["endpoint"].as_str().filter(|e| !e.is_empty()).map(str::to_owned);
        self.stores.endpoint(&key.name).or_else(told)
    }

    /// Applies what is not applied yet: the namespace, then everything in it at once.
    async fn apply(&self, key: &Key, objects: Vec<Value>) -> Result<(), Error> {
        let before = self.known(key);
        let changed: Vec<(String, u64, Value)> = objects
            .into_iter()
            .map(|object| (identity(&object), fingerprint(&object), object))
            .filter(|(id, hash, _)| before.get(id) != Some(hash))
            .collect();
        let (first, rest): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|(_, _, o)| o["kind"] == "Namespace");
        for group in [first, rest] {
            try_join_all(group.iter().map(|(_, _, object)| self.apply_one(object))).await?;
            let mut applied = self.applied.lock();
            applied.entry(key.clone()).or_default().extend(group.into_iter().map(|(id, hash, _)| (id, hash)));
        }
        Ok(())
    }

    /// What was applied already. Of Deployments that somebody removed it is not true any more.
    fn known(&self, key: &Key) -> HashMap<String, u64> {
        let mut known = self.applied.lock().get(key).cloned().unwrap_or_default();
        for name in [plan::APISERVER, CONTROLLER_MANAGER] {
            if self.stores.workload(&key.name, name).is_none() {
                known.remove(&format!("Deployment/{name}"));
            }
        }
        known
    }

    async fn apply_one(&self, object: &Value) -> Result<(), Error> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (_, resource) =
            KINDS.iter().find(|(name, _)| *name == kind).ok_or_else(|| format!("{kind} is not of a plan"))?;
        let applied = self.client.apply(resource, FIELD_MANAGER, object).await;
        applied.map(drop).map_err(|error| format!("{kind} {:?}: {error}", meta::name(object)).into())
    }

    fn observe(&self, key: &Key) -> Observed {
        let controller_manager = self.stores.workload(&key.name, CONTROLLER_MANAGER);
        Observed {
            endpoint: self.stores.endpoint(&key.name),
            controller_manager: controller_manager.is_some_and(|workload: Workload| workload.available),
            ..Observed::default()
        }
    }

    /// Writes the status, if it is another.
    async fn tell(&self, object: &Value, seen: &Observed) -> Result<(), Error> {
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
        let ca = &self.terms.trust.serving_ca_pem;
        let new = status(&object["status"], seen, ca, generation, Timestamp::now());
        if new == object["status"] {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"metadata": {"uid": meta::uid(object)}, "status": new}));
        let name = meta::name(object);
        match self.client.patch(&PROJECT_CONTROL_PLANES, None, name, &patch, &PatchOptions::status()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Sees to it that the object does not go before its pair has gone.
    async fn hold(&self, object: &Value) -> Result<(), Error> {
        let mut finalizers = meta::finalizers(object);
        if finalizers.contains(&keys::PROVISIONER_FINALIZER) {
            return Ok(());
        }
        finalizers.push(keys::PROVISIONER_FINALIZER);
        self.set_finalizers(object, &finalizers).await
    }

    async fn set_finalizers(&self, object: &Value, finalizers: &[&str]) -> Result<(), Error> {
        let precondition = meta::resource_version(object);
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": precondition}});
        let name = meta::name(object);
        let patch = Patch::Merge(patch);
        let options = PatchOptions::default();
        match self.client.patch(&PROJECT_CONTROL_PLANES, None, name, &patch, &options).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes the namespace, and lets the object go once it is gone.
    async fn remove(&self, key: &Key, object: &Value) -> Reconciled {
        self.applied.lock().remove(key);
        let finalizers = meta::finalizers(object);
        if !finalizers.contains(&keys::PROVISIONER_FINALIZER) {
            return Ok(Outcome::Done);
        }
        let name = keys::pair_namespace(&key.name);
        match self.client.get_opt(&NAMESPACES, None, &name).await? {
            None => {
                let others: Vec<&str> =
                    finalizers.into_iter().filter(|f| *f != keys::PROVISIONER_FINALIZER).collect();
                self.set_finalizers(object, &others).await?;
                Ok(Outcome::Done)
            }
            Some(namespace) => {
                if !meta::is_deleting(&namespace) {
                    let options = DeleteOptions::uid(meta::uid(&namespace));
                    self.client.delete(&NAMESPACES, None, &name, &options).await?;
                }
                self.tell(object, &Observed { removing: true, ..Observed::default() }).await?;
                Ok(Outcome::After(LOOK_AGAIN))
            }
        }
    }
}

/// The spec of a ProjectControlPlane, whose name has to be the uid of its project: the names of everything that is made
/// for it follow from that.
fn spec(object: &Value) -> Result<Spec, Error> {
    let plane: ProjectControlPlane = serde_json::from_value(object.clone())?;
    let project = &plane.spec.project_ref;
    if plane.metadata.name != project.uid {
        return Err(format!("the name has to be spec.projectRef.uid, {:?}", project.uid).into());
    }
    Ok(Spec {
        name: plane.metadata.name,
        uid: plane.metadata.uid,
        project: project.name.clone(),
        plane: project.uid.clone(),
        organization: plane.spec.organization,
        class: plane.spec.class,
    })
}

fn content(secret: &Value, key: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str()?).ok()?).ok()
}

fn identity(object: &Value) -> String {
    format!("{}/{}", object["kind"].as_str().unwrap_or_default(), meta::name(object))
}

fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_a_plan_has_its_type() {
        for (kind, resource) in &KINDS {
            assert!(resource.namespaced != (*kind == "Namespace"), "{kind}");
        }
    }

    #[test]
    fn a_name_that_is_not_the_projects_uid_is_refused() {
        let object = |name: &str| {
            json!({"metadata": {"name": name, "uid": "1"}, "spec": {
                "projectRef": {"name": "web", "uid": "u"}, "organization": "acme", "class": "default",
            }})
        };
        assert_eq!(spec(&object("u")).unwrap().project, "web");
        assert_eq!(
            spec(&object("x")).unwrap_err().to_string(),
            "the name has to be spec.projectRef.uid, \"u\""
        );
    }
}
