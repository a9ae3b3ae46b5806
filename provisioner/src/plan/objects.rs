//! Parts that all objects of a pair have.

use super::{
    args,
    spec::{APISERVER, COMPONENT, Spec},
};
use freehold_api::keys;
use freehold_machinery::{Value, meta};
use serde_json::json;

/// The name that an apiserver's certificate is for, whichever address it is reached by.
pub fn server_name(plane: &str) -> String {
    format!("{APISERVER}.{}.svc", keys::pair_namespace(plane))
}

/// Where an apiserver is reached by its Service.
pub fn service_endpoint(plane: &str) -> String {
    format!("https://{}:{}", server_name(plane), args::PORT)
}

/// All names in an apiserver's certificate, [`server_name`] first. None of them is one that clients of other planes ask for:
/// the authority that vouches for it is all planes'.
pub fn server_names(plane: &str) -> Vec<String> {
    let service = format!("{APISERVER}.{}", keys::pair_namespace(plane));
    vec![server_name(plane), format!("{service}.svc.cluster.local"), service]
}

/// An object in the pair's namespace, with what all of them carry.
pub(super) fn object(spec: &Spec, api_version: &str, kind: &str, name: &str, content: Value) -> Value {
    let mut object = content;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    meta::set(&mut object, "name", name);
    meta::set(&mut object, "namespace", keys::pair_namespace(&spec.plane));
    own(spec, &mut object);
    object
}

pub(super) fn own(spec: &Spec, object: &mut Value) {
    meta::set(object, "labels", labels(spec));
    if spec.uid.is_empty() {
        return;
    }
    let owner = json!([{
        "apiVersion": "infrastructure.freehold.dev/v1alpha1",
        "kind": "ProjectControlPlane",
        "name": spec.name,
        "uid": spec.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    meta::set(object, "ownerReferences", owner);
}

pub(super) fn labels(spec: &Spec) -> Value {
    json!({
        keys::PROJECT: spec.project,
        keys::PROJECT_UID: spec.plane,
        keys::ORGANIZATION: spec.organization,
        "app.kubernetes.io/name": "freehold",
        "app.kubernetes.io/managed-by": crate::FIELD_MANAGER,
    })
}

/// The label selector of one program of a pair.
pub(super) fn component(name: &str) -> Value {
    json!({"matchLabels": {COMPONENT: name}})
}
