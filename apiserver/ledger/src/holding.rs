//! Taking addresses and ports in the commit of the Service that is to have them.

use crate::{
    Ledger,
    allocations::{Allocations, place},
    held::Held,
    plan::Posting,
};
use freehold_apiserver_cache::ListRequest;
use freehold_apiserver_operation::Operation;
use freehold_apiserver_storage::{Change, Expect, Key, StoreError};
use freehold_machinery::{PlaneId, Result};

/// The plural of Services.
const SERVICES: &str = "services";

impl Ledger {
    /// Returns what a write takes that its object did not hold before.
    pub(crate) fn taken(&self, op: &Operation, posting: Posting<'_>) -> Held {
        let Some(new) = posting.new else { return Held::default() };
        let holds = (self.holds)(&op.ty);
        holds(new).beyond(&posting.old.map(holds).unwrap_or_default())
    }

    /// Looks at what the Services of a plane hold, as the cache has them.
    ///
    /// # Errors
    /// Fails where the store or the cache does.
    pub async fn with_allocations<T>(
        &self,
        plane: &PlaneId,
        look: impl FnOnce(&Allocations) -> T,
    ) -> Result<T> {
        let known = self.books.allocations.lock().of(plane);
        let changed = self.cache.changed(plane, "", SERVICES).await?;
        {
            let allocations = known.lock();
            if allocations.changed == Some(changed) {
                return Ok(look(&allocations));
            }
        }
        let request = ListRequest { plane, group: "", resource: SERVICES, namespace: None };
        let listed = self.cache.list(request).await?;
        // Read and looked at in one go: another may bring what it listed before.
        let mut allocations = known.lock();
        allocations.read(listed.changed, &listed.objects);
        Ok(look(&allocations))
    }

    /// Returns the conditions and changes under which a write takes what it takes; `None` where somebody else has it by
    /// now.
    pub(crate) async fn book_held(
        &self,
        op: &Operation,
        held: &Held,
    ) -> Result<Option<Option<(Expect, Change)>>> {
        if held.is_empty() {
            return Ok(Some(None));
        }
        let key = Key::allocations(&op.plane);
        let record = self.stores.of(&op.plane).get(&key).await.map_err(StoreError::of_commit)?;
        let modified = record.map_or(0, |record| record.modified);
        self.cache.wait_for(modified).await?;
        let place = place(op.namespace.as_deref().unwrap_or_default(), op.name());
        let look = |allocations: &Allocations| allocations.are_free_for(held, &place);
        let is_free = self.with_allocations(&op.plane, look).await?;
        let change = Change::Put(key.clone(), b"{}"[..].into());
        Ok(is_free.then(|| Some((Expect { key, modified }, change))))
    }
}
