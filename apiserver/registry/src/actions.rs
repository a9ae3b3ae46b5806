//! Subresources that act rather than write their object: binding, eviction, token.

use crate::{Body, DeleteOptions, Object, Operation, Registry, WriteOptions, Written, prepare};
use freehold_machinery::{GroupResource, Result, Status, Value, meta};
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
        prepare::check_kind(op, &mut body.clone(), kind).map_err(|failed| failed.of(kind))
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

    async fn evict(&self, op: &Operation, eviction: &Value, options: &WriteOptions) -> Result<Written> {
        if ![op.name(), ""].contains(&meta::name(eviction)) {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let given = &eviction["deleteOptions"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let delete = DeleteOptions {
            dry_run: options.dry_run,
            grace_period: given["gracePeriodSeconds"].as_i64(),
            uid: text(&given["preconditions"]["uid"]),
            resource_version: text(&given["preconditions"]["resourceVersion"]),
            propagation: text(&given["propagationPolicy"]),
            orphan_dependents: None,
        };
        let mut whole = op.clone();
        whole.subresource = None;
        let pod = self.get(&whole, "").await?.value();
        self.check_budgets(&whole, &pod).await?;
        self.delete(&whole, &delete).await?;
        Ok(success(true))
    }

    /// A disruption budget that allows nothing refuses the eviction.
    async fn check_budgets(&self, op: &Operation, pod: &Value) -> Result<()> {
        let request = freehold_apiserver_cache::ListRequest {
            plane: &op.plane,
            group: "policy",
            resource: "poddisruptionbudgets",
            namespace: op.namespace.as_deref(),
        };
        for entry in self.cache.list(request).await?.objects {
            let budget = entry.value();
            let Ok(selector) = freehold_machinery::selector::Labels::from_value(&budget["spec"]["selector"])
            else {
                continue;
            };
            let chosen =
                budget["spec"].get("selector").is_some() && selector.matches(|key| meta::label(pod, key));
            if chosen && budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) <= 0 {
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                return Err(Status::too_many_requests(message, 10));
            }
        }
        Ok(())
    }
}

fn success(created: bool) -> Written {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Written { object: Object::Value(Arc::new(status)), created, pending: false, warnings: Vec::new() }
}
