//! Custom resource definitions: they are accepted and established with the write that makes them.

use crate::{Operation, Registry, validate};
use freehold_apiserver_cache::ListRequest;
use freehold_machinery::{Result, Value, crd, meta, schema::Schema};
use freehold_machinery_patch::apply::{self, Options};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

/// The field manager of the statuses that the server writes.
const MANAGER: &str = "kube-apiserver";

impl Registry {
    /// Fills in the status. Names are compared with the plane's other CRDs of the same group.
    pub(crate) async fn establish(
        &self,
        op: &Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        if op.subresource.is_some() {
            return Ok(());
        }
        crd::prepare_status(object, old);
        let before = unwritten(&object["status"]);
        let group = object["spec"]["group"].as_str().unwrap_or_default().to_owned();
        let (plane, resource) = (&op.plane, "customresourcedefinitions");
        let request = ListRequest { plane, group: "apiextensions.k8s.io", resource, namespace: None };
        let of_group = |name: &str| name.split_once('.').is_some_and(|(_, rest)| rest == group);
        let listed = self.cache.list(request).await?.objects;
        let others: Vec<Value> = listed
            .iter()
            .filter(|entry| of_group(entry.name()) && entry.name() != op.name())
            .map(|entry| named(op, &group, entry.name()).unwrap_or_else(|| entry.value()))
            .collect();
        let conflict = crd::name_conflict(object, others.iter());
        crd::set_status(object, conflict.as_ref(), Timestamp::now());
        own_status(op, object, &before);
        Ok(())
    }
}

/// Returns a status as Kubernetes' Go type has it before anybody writes it: what it always has is empty.
fn unwritten(status: &Value) -> Value {
    let mut unwritten = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": []});
    for (field, value) in status.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        unwritten[field] = value.clone();
    }
    unwritten
}

/// Records the server as the manager of the status that it wrote, as kube-apiserver's controllers of definitions are.
fn own_status(op: &Operation, object: &mut Value, before: &Value) {
    if object["status"] == *before {
        return;
    }
    let managed = object["metadata"]["managedFields"].clone();
    // Definitions are long: only the status is compared.
    let of_status = |status: &Value| json!({"metadata": {"managedFields": managed}, "status": status});
    let (live, mut written) = (of_status(before), of_status(&object["status"]));
    let (api_version, now) = (op.ty.api_version(), freehold_apiserver_operation::now());
    let options = Options {
        manager: MANAGER,
        force: false,
        api_version: &api_version,
        kind: &op.ty.kind,
        subresource: "status",
        now: &now,
        schema: op.ty.schema.get().map(|schema: &Arc<Schema>| &**schema),
        reset_fields: Some(validate::spec_fields()),
    };
    apply::update(Some(&live), &mut written, &options);
    match written["metadata"]["managedFields"].take() {
        Value::Null => {}
        managed => meta::set(object, "managedFields", managed),
    }
}

/// The part of a definition that says which names it has, from the type that it gave. Definitions are long: none is
/// decoded for its names while its type is at hand.
fn named(op: &Operation, group: &str, name: &str) -> Option<Value> {
    let ty = op.types.by_resource(group, name.split_once('.')?.0).filter(|ty| ty.custom)?;
    Some(json!({
        "metadata": {"name": name}, "spec": {"group": group},
        "status": {"acceptedNames": {"plural": ty.plural, "singular": ty.singular, "kind": ty.kind,
            "listKind": ty.list_kind, "shortNames": ty.short_names}},
    }))
}
