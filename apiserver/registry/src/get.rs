//! Reads of single objects.

use crate::{Registry, convert::schema_since, registry::parse_version};
use freehold_apiserver_operation::{Object, Operation};
use freehold_machinery::Result;
use std::sync::Arc;

impl Registry {
    /// Reads one object (or its `status`, which is the same, or its `scale`). With a resource version (0 included) the
    /// answer may be as old as that; without one it is the latest.
    ///
    /// # Errors
    /// A 404 where it is absent, a 504 where the cache does not reach the resource version, and what a conversion fails with.
    pub async fn get(&self, op: &Operation, resource_version: &str) -> Result<Object> {
        match parse_version(resource_version)? {
            None => drop(self.catch_up(op).await?),
            Some(revision) => self.cache.wait_for_asked(revision).await?,
        }
        let entry = self.cache.get_cached(&op.plane, &op.path()).await?.ok_or_else(|| op.not_found())?;
        let since = schema_since(&self.cache, &op.plane, &op.ty);
        let object = self.converter.out(&op.plane, &op.ty, entry, since).await?;
        match op.subresource.as_deref() {
            Some("scale") => crate::scale::get(op, &object.value()).map(|v| Object::Value(Arc::new(v))),
            Some(crate::exports::REFERRERS) if op.ty.since > 0 => {
                self.referrers(op).await.map(|found| Object::Value(Arc::new(found)))
            }
            Some(crate::exports::ACCESS) if op.ty.group == crate::exports::GROUP => {
                self.access(op, &object.value()).map(|found| Object::Value(Arc::new(found)))
            }
            _ => Ok(object),
        }
    }
}
