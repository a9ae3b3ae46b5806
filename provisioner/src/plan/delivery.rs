//! Who brings a pair's objects about: the provisioner alone, or the policies and manifests of `deploy/gitops`.
//!
//! Keys of a pair follow from the platform's, so its Secrets are the provisioner's in both ways. What the manifests cannot
//! know stands in one of them, [`VALUES_SECRET`], whose fields are variables of a Flux Kustomization.

pub use super::spec::Delivery;
use super::workloads::{GRACE, apiserver_checksum, controller_manager_checksum};
use super::{
    guards,
    objects::labels,
    secrets,
    spec::{ADMIN_KUBECONFIG, CONTROLLER_MANAGER_KUBECONFIG, Inputs, Spec},
};
use freehold_api::keys;
use freehold_machinery::{Value, meta};
use serde_json::json;

/// Secret with the values of a pair's manifests.
pub const VALUES_SECRET: &str = "pair-values";
/// Annotation of a ProjectControlPlane that names the components of `deploy/gitops` that its pair needs, as a JSON list of paths.
pub const COMPONENTS: &str = "infrastructure.freehold.dev/components";

impl Delivery {
    /// Whether the provisioner makes an object of a plan itself.
    pub fn makes(self, object: &Value) -> bool {
        let kubeconfig = [ADMIN_KUBECONFIG, CONTROLLER_MANAGER_KUBECONFIG].contains(&meta::name(object));
        self == Self::Apply || (object["kind"] == "Secret" && !kubeconfig)
    }

    /// Whether the provisioner removes objects of a kind that a plan does not have.
    pub fn prunes(self, kind: &str) -> bool {
        self == Self::Apply || kind == "Secret"
    }
}

/// The ProjectControlPlane as the policies of the pair's cluster see it: a copy of the one beside the core servers.
pub fn announcement(spec: &Spec, inputs: &Inputs) -> Value {
    let components = Value::from(components(inputs)).to_string();
    let mut object = json!({
        "apiVersion": "infrastructure.freehold.dev/v1alpha1",
        "kind": "ProjectControlPlane",
        "spec": {
            "projectRef": {"name": spec.project, "uid": spec.plane},
            "organization": spec.organization,
            "class": spec.class,
        },
    });
    meta::set(&mut object, "name", spec.plane.as_str());
    meta::set(&mut object, "labels", labels(spec));
    meta::set(&mut object, "annotations", json!({COMPONENTS: components}));
    object
}

/// Paths from `deploy/gitops/pair` to what a pair has beside the base.
fn components(inputs: &Inputs) -> Vec<String> {
    let plugins = &inputs.admission_plugins;
    let rows = [
        ("several-apiservers", inputs.size.replicas > 1),
        ("enable-admission-plugins", !plugins.enable.is_empty()),
        ("disable-admission-plugins", !plugins.disable.is_empty()),
        ("admission-configuration", plugins.configuration.is_some()),
        ("traces", !inputs.telemetry.is_empty()),
    ];
    rows.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| format!("../components/{name}")).collect()
}

/// The Secret with the values of the pair's manifests.
pub(super) fn values(spec: &Spec, inputs: &Inputs) -> Value {
    let size = &inputs.size;
    let controller_manager_image = inputs.controller_manager_image.as_ref().unwrap_or(&inputs.image);
    let rows = [
        ("IMAGE", inputs.image.clone()),
        ("CONTROLLER_MANAGER_IMAGE", controller_manager_image.clone()),
        ("IMAGE_PULL_POLICY", pull_policy(inputs).to_owned()),
        ("APISERVER_REPLICAS", replicas(spec, size.replicas)),
        ("CONTROLLER_MANAGER_REPLICAS", replicas(spec, 1)),
        ("APISERVER_RESOURCES", size.apiserver.to_string()),
        ("CONTROLLER_MANAGER_RESOURCES", size.controller_manager.to_string()),
        ("APISERVER_CHECKSUM", apiserver_checksum(inputs)),
        ("CONTROLLER_MANAGER_CHECKSUM", controller_manager_checksum(spec, inputs).unwrap_or_default()),
        ("APISERVER_CLIENTS", Value::from(guards::clients(inputs)).to_string()),
        ("STORE_ENDPOINTS", inputs.etcd.endpoints.join(",")),
        ("STORE_PREFIX", inputs.etcd.prefix.clone()),
        ("FRONT_PROXY_NAMES", inputs.trust.front_proxy_names.join(",")),
        ("OUTBOUND_NETWORKS", inputs.outbound_networks.clone()),
        ("ENABLE_ADMISSION_PLUGINS", inputs.admission_plugins.enable.join(",")),
        ("DISABLE_ADMISSION_PLUGINS", inputs.admission_plugins.disable.join(",")),
        ("APISERVER_GRACE_SECONDS", (GRACE + inputs.drain_seconds).to_string()),
    ];
    let rows = rows.iter().map(|(name, value)| (*name, value.as_str()));
    let telemetry = inputs.telemetry.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let rows: Vec<(&str, &str)> = rows.chain(telemetry).collect();
    let mut secret = secrets::opaque(spec, VALUES_SECRET, &rows);
    // Flux looks at the pair anew when the values change, and not only at its interval.
    secret["metadata"]["labels"]["reconcile.fluxcd.io/watch"] = "Enabled".into();
    secret
}

/// How many Pods of a program run.
fn replicas(spec: &Spec, wanted: u32) -> String {
    if spec.asleep { 0 } else { wanted }.to_string()
}

/// What Kubernetes makes of an absent policy, since manifests have to name one.
fn pull_policy(inputs: &Inputs) -> &str {
    let image = inputs.image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && image.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    match inputs.image_pull_policy.as_str() {
        "" if latest => "Always",
        "" => "IfNotPresent",
        policy => policy,
    }
}

/// Namespace of a pair's manifests in a message to whoever waits for it.
pub(crate) fn missing_namespace(spec: &Spec) -> String {
    let name = keys::pair_namespace(&spec.plane);
    format!(
        "namespace {name:?} is not there yet: the policies of deploy/gitops make it for class {:?}",
        spec.class
    )
}
