//! The objects of a pair, as a pure function of the ProjectControlPlane's spec and the provisioner's certificates.
//!
//! Guarantees: the same inputs give the same objects, byte by byte, so that an apply without a change is none; every
//! object carries the owner reference and the labels of its ProjectControlPlane, and the namespace comes first.
//!
//! With [`Reach::Pod`] no DNS is needed where the pair runs: its programs and the core server reach the apiserver by its
//! Pod's address and check its certificate against [`server_name`]. So what needs the address (the kubeconfigs and the
//! controller manager) is planned once it is known, and again when it changes.
//!
//! This module must not know: clients, clocks, how certificates are made.

pub mod args;
pub mod delivery;
mod guards;
mod objects;
mod secrets;
mod spec;
mod workloads;

pub use objects::{server_name, server_names, service_endpoint};
pub use spec::*;

use freehold_api::keys;
use freehold_machinery::{Value, meta};
use objects::{object, own};
use serde_json::json;

/// The objects of a pair, in the order in which they have to be applied: first the namespace, then everything else.
pub fn plan(spec: &Spec, inputs: &Inputs) -> Vec<Value> {
    let mut objects = vec![namespace(spec)];
    objects.extend([APISERVER, CONTROLLER_MANAGER].map(|name| service_account(spec, name)));
    objects.extend(secrets::secrets(spec, inputs));
    objects.push(workloads::service(spec, inputs));
    objects.extend(guards::network_policies(spec, inputs));
    objects.push(guards::disruption_budget(spec));
    objects.push(workloads::apiserver(spec, inputs));
    objects.extend(workloads::controller_manager(spec, inputs));
    if inputs.size.delivery == Delivery::GitOps {
        objects.push(delivery::values(spec, inputs));
    }
    objects
}

fn namespace(spec: &Spec) -> Value {
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace"});
    meta::set(&mut namespace, "name", keys::pair_namespace(&spec.plane));
    own(spec, &mut namespace);
    for mode in ["enforce", "audit", "warn"] {
        let label = format!("pod-security.kubernetes.io/{mode}");
        namespace["metadata"]["labels"][label.as_str()] = "restricted".into();
    }
    namespace
}

/// The account of one program: nobody to the cluster, and without a token.
fn service_account(spec: &Spec, name: &str) -> Value {
    object(spec, "v1", "ServiceAccount", name, json!({"automountServiceAccountToken": false}))
}
