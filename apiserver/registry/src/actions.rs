//! What is posted and done rather than stored: bindings, evictions, tokens. Admission sees what was posted, as kube-apiserver's
//! does, and is not asked about the writes that it comes to.

use crate::{Body, Object, Operation, Registry, WriteOptions, Written, prepare, validate};
use freehold_machinery::{GroupResource, ResourceType, Result, Status, Value, meta};
use serde_json::json;
use std::sync::Arc;

/// Whether objects of a type are done and never stored: `bindings`, the older way to `pods/binding`.
pub(crate) fn is_action(ty: &ResourceType) -> bool {
    ty.group.is_empty() && ty.plural == "bindings"
}

impl Registry {
    /// Does what was posted to a subresource. Tokens are issued by the caller, who has the keys.
    ///
    /// # Errors
    /// What is wrong with the object, what admission has against it, or what keeps it from being done.
    pub async fn act(&self, op: &Operation, body: &Body, options: &WriteOptions) -> Result<Written> {
        let mut object = self.read_posted(op, body)?;
        let mut op = op.clone();
        if op.name.is_none() {
            op.name = Some(meta::name(&object).to_owned());
        }
        let mut warnings = self.admit_posted(&op, &mut object, options).await?;
        let action = op.subresource.as_deref().unwrap_or(&op.ty.plural).to_owned();
        match action.as_str() {
            "binding" | "bindings" => check_binding(&op, &object)?,
            "eviction" => check_name(&op, &object, "Eviction")?,
            _ => return Err(Status::method_not_allowed(&op.ty.group_resource(), "create")),
        }
        warnings.extend(self.validate_posted(&op, &mut object, options).await?);
        let own = WriteOptions { admitted: true, ..options.clone() };
        match action.as_str() {
            "eviction" => self.evict(&op, &object, &own).await?,
            _ => self.bind(&op, &object, &own).await?,
        }
        Ok(Written { warnings, ..success() })
    }

    /// Reads an object that was posted to a subresource: of its kind, and in the namespace of the URL.
    ///
    /// # Errors
    /// 400 for what is no such object.
    pub fn read_posted(&self, op: &Operation, body: &Body) -> Result<Value> {
        let mut object = body.value.clone();
        let sub = op.subresource.as_deref().and_then(|name| op.ty.subresource(name));
        let kind = sub.map_or_else(|| op.ty.gvk(), |sub| sub.kind.clone());
        prepare::check_kind(op, &mut object, &kind, false).map_err(|failed| failed.of(&kind))?;
        let subresource = op.subresource.as_deref().unwrap_or_default();
        if let Some(why) = validate::unreadable_as(&op.ty, subresource, &object) {
            return Err(prepare::Undecodable::Why(why).of(&kind));
        }
        validate::settle(&op.ty, subresource, &mut object);
        prepare::check_namespace(op, &mut object)?;
        Ok(object)
    }

    /// Binds the Pod of a Binding to its node.
    async fn bind(&self, op: &Operation, binding: &Value, options: &WriteOptions) -> Result<()> {
        let mut op = op.clone();
        op.ty = op.types.find("", "v1", "pods").cloned().ok_or_else(Status::no_such_resource)?;
        op.subresource = Some("binding".into());
        let conflict =
            |why: &str| Err(Status::conflict(&GroupResource::new("", "pods/binding"), op.name(), why));
        let current = self.get(&op, "").await?.value();
        let (name, wanted) = (op.name(), meta::uid(binding));
        if !wanted.is_empty() && wanted != meta::uid(&current) {
            let found = meta::uid(&current);
            return conflict(&format!(
                "Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
            ));
        }
        if meta::is_deleting(&current) {
            return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let assigned = current["spec"].get("nodeName").and_then(Value::as_str).unwrap_or_default();
        if !assigned.is_empty() {
            return conflict(&format!("pod {name} is already assigned to node {assigned:?}"));
        }
        if current["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut pod = (*current).clone();
        assign(&mut pod, binding);
        self.replace(&op, pod, options).await.map(drop)
    }
}

/// Makes a Pod one of the node that a Binding names, with the Binding's labels and annotations.
fn assign(pod: &mut Value, binding: &Value) {
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            pod["metadata"][field][key] = value.clone();
        }
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": freehold_apiserver_operation::now()});
    match pod["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => pod["status"]["conditions"] = json!([condition]),
    }
}

fn check_name(op: &Operation, object: &Value, kind: &str) -> Result<()> {
    match [op.name(), ""].contains(&meta::name(object)) {
        true => Ok(()),
        false => Err(Status::bad_request(format!("name in URL does not match name in {kind} object"))),
    }
}

fn check_binding(op: &Operation, binding: &Value) -> Result<()> {
    check_name(op, binding, "Binding")?;
    match binding["target"]["name"].as_str().unwrap_or_default() {
        "" => Err(Status::new(500, "", "target.name: Required value")),
        _ => Ok(()),
    }
}

fn success() -> Written {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Written { object: Object::Value(Arc::new(status)), created: true, pending: false, warnings: Vec::new() }
}
