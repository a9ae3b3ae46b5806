//! Objects that every control plane has, and that are there again when somebody has deleted them: kube-apiserver makes
//! them anew within seconds.

use crate::{Operation, Registry};
use freehold_apiserver_cache::Below;
use freehold_machinery::{Result, Value, meta};
use uuid::Uuid;

/// Group, resource, namespace and name.
const STANDING: [(&str, &str, &str, &str); 2] =
    [("", "services", "default", "kubernetes"), ("networking.k8s.io", "servicecidrs", "", "kubernetes")];

fn is_standing(op: &Operation) -> bool {
    let namespace = op.namespace.as_deref().unwrap_or_default();
    let name = op.name.as_deref().unwrap_or_default();
    STANDING.contains(&(&op.ty.group, &op.ty.plural, namespace, name))
}

impl Registry {
    /// What takes the place of an object that goes, if it is one of those: what the layers below have, as a new object.
    pub(crate) async fn standing_anew(&self, op: &Operation, below: Below) -> Result<Option<Value>> {
        if below != Below::Hideable || !is_standing(op) {
            return Ok(None);
        }
        let stack = self.cache.stack(&op.plane).await?;
        Ok(stack.object(&op.plane, &op.path()).map(|entry| {
            let mut anew = entry.value();
            meta::remove(&mut anew, "resourceVersion");
            meta::set(&mut anew, "uid", Uuid::new_v4().to_string());
            meta::set(&mut anew, "creationTimestamp", freehold_apiserver_operation::now());
            anew
        }))
    }
}
