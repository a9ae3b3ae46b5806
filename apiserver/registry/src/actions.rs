//! Subresources that act rather than write their object: binding, eviction, token.

use crate::{Body, Object, Operation, Registry, WriteOptions, Written, prepare};
use freehold_machinery::{GroupResource, Result, Status, Value};
use serde_json::json;
use std::sync::Arc;

impl Registry {
    /// A POST to a subresource. Tokens are issued by the caller, who has the keys.
    pub async fn act(&self, op: &Operation, body: &Body, options: &WriteOptions) -> Result<Written> {
        self.check_action(op, &body.value)?;
        match (op.ty.plural.as_str(), op.subresource.as_deref()) {
            ("pods", Some("binding")) => self.bind(op, &body.value, options).await,
            ("pods", Some("eviction")) => self.evict(op, &body.value, options).await,
            _ => Err(Status::method_not_allowed(&op.ty.group_resource(), "create")),
        }
    }

    /// Checks that the body is of the kind that the subresource speaks.
    fn check_action(&self, op: &Operation, body: &Value) -> Result<()> {
        let sub = op.subresource.as_deref().and_then(|name| op.ty.subresource(name));
        let Some(kind) = sub.map(|sub| &sub.kind) else { return Ok(()) };
        prepare::check_kind(op, &mut body.clone(), kind, false).map_err(|failed| failed.of(kind))
    }

    async fn bind(&self, op: &Operation, binding: &Value, options: &WriteOptions) -> Result<Written> {
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(Status::new(500, "", "target.name: Required value"));
        }
        let current = self.get(op, "").await?.value();
        let assigned = current["spec"].get("nodeName").and_then(Value::as_str).unwrap_or_default();
        if !assigned.is_empty() {
            let why = format!("pod {} is already assigned to node {assigned:?}", op.name());
            return Err(Status::conflict(&GroupResource::new("", "pods/binding"), op.name(), &why));
        }
        let mut pod = (*current).clone();
        pod["spec"]["nodeName"] = node.into();
        let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": prepare::now()});
        match pod["status"]["conditions"].as_array_mut() {
            Some(conditions) => conditions.push(condition),
            None => pod["status"]["conditions"] = json!([condition]),
        }
        let mut whole = op.clone();
        whole.subresource = Some("binding".into());
        self.replace(&whole, pod, options).await?;
        Ok(success(true))
    }
}

pub(crate) fn success(created: bool) -> Written {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Written { object: Object::Value(Arc::new(status)), created, pending: false, warnings: Vec::new() }
}
