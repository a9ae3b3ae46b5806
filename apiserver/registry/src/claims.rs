//! Claims of planes that are gone.

use crate::{DeleteOptions, Operation, Registry};
use freehold_apiserver_cache::{Entry, ListRequest};
use freehold_apiserver_quota::{CLAIMS, GROUP, objects};
use freehold_machinery::{PlaneId, Result};
use std::sync::Arc;

impl Registry {
    /// Gives back all that was claimed for objects of a plane that is gone. It is done in small commits, and may be done
    /// again.
    ///
    /// # Errors
    /// Whatever a read or a deletion fails with; what was given back by then stays so.
    pub async fn release_claims(&self, op: &Operation, plane: &PlaneId) -> Result<()> {
        if !self.ledger.tenancy().has_core() {
            return Ok(());
        }
        let request =
            ListRequest { plane: &PlaneId::core(), group: GROUP, resource: CLAIMS, namespace: None };
        let of_plane = |entry: &&Arc<Entry>| entry.label(objects::PLANE_LABEL) == Some(plane.as_str());
        let listed = self.cache.list(request).await?.objects;
        for entry in listed.iter().filter(of_plane) {
            let mut one = op.clone();
            one.namespace = Some(entry.namespace().to_owned());
            one.name = Some(entry.name().to_owned());
            match self.delete_unasked(&one, &DeleteOptions::default()).await {
                Ok(_) => {}
                Err(status) if status.is_not_found() => {}
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }
}
