//! Reconciliation of one ProjectControlPlane: observe, plan, apply, report status.

use crate::apply::Applier;
use crate::certificates::{self, Authorities, Issued};
use crate::plan::{
    self, AdmissionPlugins, CONTROLLER_MANAGER, Etcd, Inputs, KeyPair, Reach, Size, Spec, Trust,
    delivery::{self, Delivery},
};
use crate::rollout::{Rollouts, Turn};
use crate::status::{Observed, status};
use crate::watch::{NAMESPACES, PROJECT_CONTROL_PLANES, SECRETS, Stores};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_api::{ProjectControlPlane, keys};
use freehold_client::{Client, DeleteOptions, Patch, PatchOptions};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Error, Key, Outcome, Reconciled};
use jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How long a deletion is left alone before it is looked at again; the watch usually is faster.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a pair waits before it asks again whether it may get its new image.
const TURN: Duration = Duration::from_secs(2);
/// The longest time between two looks at a pair.
const AT_LEAST: Duration = Duration::from_secs(12 * 3600);

/// What each pair is made from, whichever project it serves.
pub(crate) struct Terms {
    pub(crate) image: String,
    pub(crate) image_pull_policy: String,
    pub(crate) etcd: Etcd,
    pub(crate) trust: Trust,
    pub(crate) authorities: Authorities,
    pub(crate) sizes: BTreeMap<String, Size>,
    pub(crate) core_namespace_labels: BTreeMap<String, String>,
    pub(crate) core_networks: Vec<String>,
    pub(crate) reach: Reach,
    pub(crate) drain_seconds: u32,
    /// Whether pairs run on another cluster than the one with the ProjectControlPlanes.
    pub(crate) apart: bool,
    pub(crate) outbound_networks: String,
    pub(crate) admission_plugins: AdmissionPlugins,
    pub(crate) telemetry: BTreeMap<String, String>,
}

/// What came of a pair's plan.
struct Brought {
    /// When the first certificate has to be replaced.
    due: Timestamp,
    /// The pairs that have to run before this one gets its image.
    behind: Vec<String>,
}

/// Reconciles ProjectControlPlanes.
pub(crate) struct Reconciler {
    /// Client of the API with the ProjectControlPlanes.
    pub(crate) client: Client,
    /// Client of the cluster that pairs run on.
    pub(crate) cluster: Client,
    pub(crate) stores: Stores,
    pub(crate) terms: Terms,
    pub(crate) applier: Applier,
    pub(crate) rollouts: Rollouts,
}

impl Reconciler {
    /// Everything that is to be done for one ProjectControlPlane now.
    pub(crate) async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(object) = self.stores.planes.get(&key) else {
            self.applier.forget(&key);
            return Ok(Outcome::Done);
        };
        if meta::is_deleting(&object) {
            return self.remove(&key, &object).await;
        }
        self.hold(&object).await?;
        if object["spec"]["rest"].is_string() {
            // Said before anything ends: nobody is to send requests there meanwhile.
            self.tell(&object, &self.observe(&key, &object)).await?;
        }
        let result = self.bring_about(&key, &object).await;
        let seen = self.observe(&key, &object);
        let seen = match &result {
            Ok(brought) => Observed { behind: brought.behind.clone(), ..seen },
            Err(error) => Observed { failure: error.to_string(), ..seen },
        };
        self.tell(&object, &seen).await?;
        let brought = result?;
        let wait = Duration::try_from(brought.due.duration_since(Timestamp::now())).unwrap_or_default();
        let most = if brought.behind.is_empty() { AT_LEAST } else { TURN };
        Ok(Outcome::After(wait.clamp(LOOK_AGAIN, most)))
    }

    /// Plans and applies.
    async fn bring_about(&self, key: &Key, object: &Value) -> Result<Brought, Error> {
        let mut spec = spec(object)?;
        if self.terms.apart {
            spec.uid.clear();
        }
        let issued = self.credentials(&spec).await?;
        let (image, behind) = self.image(&spec);
        let controller_manager_image = self.controller_manager_image(&spec, &image);
        let inputs = Inputs {
            image,
            controller_manager_image,
            ..self.inputs(&spec, &issued, self.endpoint(key, object))
        };
        let delivery = inputs.size.delivery;
        if delivery == Delivery::GitOps {
            self.announce(&spec, &inputs).await?;
        }
        self.applier.apply(key, plan::plan(&spec, &inputs), delivery, &self.stores).await?;
        Ok(Brought { due: issued.due, behind })
    }

    /// Tells the policies of the pair's cluster about it, and checks that they have made its namespace.
    async fn announce(&self, spec: &Spec, inputs: &Inputs) -> Result<(), Error> {
        let object = delivery::announcement(spec, inputs);
        let result = self.cluster.apply(&PROJECT_CONTROL_PLANES, crate::FIELD_MANAGER, &object).await;
        result.map_err(|error| format!("ProjectControlPlane on the cluster of pairs: {error}"))?;
        match self.stores.object(&spec.plane, "Namespace", "") {
            Some(_) => Ok(()),
            None => Err(delivery::missing_namespace(spec).into()),
        }
    }

    /// Takes back what was announced, so that nobody makes the namespace anew while it goes.
    async fn withdraw(&self, plane: &str) -> Result<(), Error> {
        let options = DeleteOptions::default();
        match self.cluster.delete(&PROJECT_CONTROL_PLANES, None, plane, &options).await {
            // A cluster without the kind has no copy, and one that refuses gave no right to make one.
            Err(error) if !error.is_not_found() && error.code() != 403 => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The image that a pair gets now, and the pairs that it waits for where that is not the one to be.
    fn image(&self, spec: &Spec) -> (String, Vec<String>) {
        let of_class = self.terms.sizes.get(&spec.class).and_then(|size| size.image.as_ref());
        let wanted = of_class.unwrap_or(&self.terms.image);
        match self.rollouts.turn(&spec.plane, wanted, &self.stores.apiservers()) {
            Turn::Go(image) => (image, Vec::new()),
            Turn::Wait { image, behind } => (image, behind),
        }
    }

    /// The image that a controller manager keeps until the apiserver runs with its own: it is stopped before another one
    /// starts, and should not be stopped for an image that nobody has.
    fn controller_manager_image(&self, spec: &Spec, image: &str) -> Option<String> {
        let apiserver = self.stores.workload(&spec.plane, plan::APISERVER)?.deployed;
        let own = self.stores.workload(&spec.plane, CONTROLLER_MANAGER)?.deployed;
        let runs = apiserver.available && apiserver.image == image;
        (!runs && own.available).then_some(own.image)
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
        match self.stores.secret(&spec.plane, name) {
            Some(secret) => Ok(Some(secret)),
            None => {
                Ok(self.cluster.get_opt(&SECRETS, Some(&namespace), name).await?.map(std::sync::Arc::new))
            }
        }
    }

    fn inputs(&self, spec: &Spec, issued: &Issued, endpoint: Option<String>) -> Inputs {
        let terms = &self.terms;
        Inputs {
            image: terms.image.clone(),
            controller_manager_image: None,
            image_pull_policy: terms.image_pull_policy.clone(),
            etcd: terms.etcd.clone(),
            trust: Trust { client_ca_pem: issued.client_ca_pem.clone(), ..terms.trust.clone() },
            credentials: issued.credentials.clone(),
            size: terms.sizes.get(&spec.class).cloned().unwrap_or_default(),
            core_namespace_labels: terms.core_namespace_labels.clone(),
            core_networks: terms.core_networks.clone(),
            reach: terms.reach,
            drain_seconds: terms.drain_seconds,
            outbound_networks: terms.outbound_networks.clone(),
            admission_plugins: terms.admission_plugins.clone(),
            telemetry: terms.telemetry.clone(),
            endpoint,
        }
    }

    /// The address of a ready apiserver, or the one that was told last.
    fn endpoint(&self, key: &Key, object: &Value) -> Option<String> {
        let told = || object["status"]["endpoint"].as_str().filter(|e| !e.is_empty()).map(str::to_owned);
        self.stores.endpoint(&key.name).or_else(told)
    }

    fn observe(&self, key: &Key, object: &Value) -> Observed {
        let ready = self.stores.endpoint(&key.name);
        let endpoint = match self.terms.reach {
            Reach::Pod => ready,
            Reach::Service => ready.map(|_| plan::service_endpoint(&key.name)),
        };
        let workload = self.stores.workload(&key.name, CONTROLLER_MANAGER);
        let controller_manager = workload.is_some_and(|workload| workload.deployed.available);
        let apiserver = self.stores.workload(&key.name, plan::APISERVER);
        let problem = match (&endpoint, controller_manager) {
            (None, _) => self.stores.problem(&key.name, plan::APISERVER),
            (Some(_), false) => self.stores.problem(&key.name, CONTROLLER_MANAGER),
            // A new apiserver that does not run beside an old one that does.
            _ => self.stores.problem(&key.name, plan::APISERVER),
        };
        Observed {
            endpoint,
            controller_manager,
            updated: apiserver.is_some_and(|workload| workload.deployed.available),
            problem,
            rest: serde_json::from_value(object["spec"]["rest"].clone()).unwrap_or_default(),
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
        self.applier.forget(key);
        let finalizers = meta::finalizers(object);
        if !finalizers.contains(&keys::PROVISIONER_FINALIZER) {
            return Ok(Outcome::Done);
        }
        if self.terms.apart {
            self.withdraw(&key.name).await?;
        }
        let name = keys::pair_namespace(&key.name);
        match self.cluster.get_opt(&NAMESPACES, None, &name).await? {
            None => {
                let others: Vec<&str> =
                    finalizers.into_iter().filter(|f| *f != keys::PROVISIONER_FINALIZER).collect();
                self.set_finalizers(object, &others).await?;
                Ok(Outcome::Done)
            }
            Some(namespace) => {
                if !meta::is_deleting(&namespace) {
                    let options = DeleteOptions::uid(meta::uid(&namespace));
                    self.cluster.delete(&NAMESPACES, None, &name, &options).await?;
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
        asleep: plane.spec.rest.is_some(),
    })
}

fn content(secret: &Value, key: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str()?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
