//! Objects of exported kinds that name others: what they name has to be there, and may be kept from deletion.

use super::GROUP;
use crate::{Operation, Registry};
use freehold_machinery::{
    Result, Status, Value,
    crd::references::{MAX_NAMED, Named, Reference},
    meta,
    status::{FieldError, FieldErrorKind},
};
use serde_json::json;

/// The subresource with who names an object.
pub(crate) const REFERRERS: &str = "referrers";
/// Referrers that a refusal names.
const TOLD: usize = 3;

/// An object that names another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferredBy {
    /// The project that it is in.
    pub project: String,
    /// Its API group.
    pub group: String,
    /// Its resource.
    pub resource: String,
    /// Its namespace; empty for none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The field that names the other one.
    pub field: String,
    /// Whether the other one can't be deleted meanwhile.
    pub blocks: bool,
}

impl Registry {
    /// 422 for an object that comes to name one that is not there. What was named before is not looked for again.
    pub(crate) async fn check_references(
        &self,
        op: &Operation,
        draft: &Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let Some(exports) = self.exports.as_ref().filter(|_| op.ty.since > 0 && !meta::is_deleting(draft))
        else {
            return Ok(());
        };
        let mut errors = Vec::new();
        for reference in exports.references(&op.ty).iter() {
            let (named, before) =
                (reference.named(draft), old.map(|old| reference.named(old)).unwrap_or_default());
            if named.len() > MAX_NAMED {
                let why = format!("must name at most {MAX_NAMED} objects");
                errors.push(FieldError::new(FieldErrorKind::TooMany, reference.field(), why));
                continue;
            }
            for one in named.iter().filter(|one| !before.contains(one)) {
                if !exports.has_referent(op, reference, one).await? {
                    errors.push(not_found(reference, one));
                }
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &errors))
        }
    }

    /// 409 for the deletion of an object that others name, where their provider wants that.
    pub(crate) async fn check_referrers(&self, op: &Operation) -> Result<()> {
        if op.ty.subresource(REFERRERS).is_none() || self.exports.is_none() {
            return Ok(());
        }
        let named = self.exports()?.referrers(op).await?;
        let blocking: Vec<String> = named.iter().filter(|one| one.blocks).map(ReferredBy::place).collect();
        if blocking.is_empty() {
            return Ok(());
        }
        let more = if blocking.len() > TOLD { ", and others" } else { "" };
        let shown = blocking.iter().take(TOLD).cloned().collect::<Vec<_>>().join(", ");
        let why = format!("it is named by {shown}{more}");
        Err(Status::conflict(&op.ty.group_resource(), op.name(), &why))
    }

    /// Who names an object, as its subresource.
    pub(crate) async fn referrers(&self, op: &Operation) -> Result<Value> {
        let found = self.exports()?.referrers(op).await?;
        let item = |one: ReferredBy| {
            json!({
                "project": one.project, "group": one.group, "resource": one.resource, "namespace": one.namespace,
                "name": one.name, "field": one.field, "blocksDeletion": one.blocks,
            })
        };
        let items: Vec<Value> = found.into_iter().map(item).collect();
        let metadata = match &op.namespace {
            Some(namespace) => json!({"name": op.name(), "namespace": namespace}),
            None => json!({"name": op.name()}),
        };
        Ok(json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "ObjectReferrers", "metadata": metadata, "referrers": items,
        }))
    }
}

impl ReferredBy {
    /// Where it is, for people.
    fn place(&self) -> String {
        let Self { project, resource, namespace, name, .. } = self;
        match namespace.as_str() {
            "" => format!("{resource} {name} of project {project:?}"),
            namespace => format!("{resource} {namespace}/{name} of project {project:?}"),
        }
    }
}

fn not_found(reference: &Reference, named: &Named) -> FieldError {
    let parts = [&named.project, &named.namespace, &named.name];
    let shown: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let error = FieldError::new(FieldErrorKind::NotFound, reference.field(), "");
    FieldError { value: Some(format!("{} {}", reference.resource, shown.join("/")).into()), ..error }
}
