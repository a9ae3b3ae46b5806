//! Claims grow where their storage class allows it.

use crate::{Attributes, Lookup, Plugin, Verb, json::text};
use freehold_machinery::{Result, Value, meta, quantity::Quantity};

/// The plugin.
pub struct PersistentVolumeClaimResize;

fn size(claim: &Value) -> Option<Quantity> {
    text(claim, "/spec/resources/requests/storage").parse().ok()
}

fn class(claim: &Value) -> &str {
    let old = meta::annotation(claim, "volume.beta.kubernetes.io/storage-class");
    old.unwrap_or_else(|| text(claim, "/spec/storageClassName"))
}

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        if attributes.verb != Verb::Update || !attributes.is("", "persistentvolumeclaims") {
            return Ok(());
        }
        let (Some(claim), Some(old)) = (attributes.object(), attributes.old) else { return Ok(()) };
        if size(claim) <= size(old) {
            return Ok(());
        }
        if text(old, "/status/phase") != "Bound" {
            return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let expands = |name: &str| {
            let found = lookup.get(attributes.plane, "storage.k8s.io", "storageclasses", "", name);
            found.is_some_and(|class| class["allowVolumeExpansion"] == true)
        };
        let name = class(claim);
        if name.is_empty() || name != class(old) || !expands(name) {
            let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
            return Err(attributes.forbidden(why));
        }
        Ok(())
    }
}
