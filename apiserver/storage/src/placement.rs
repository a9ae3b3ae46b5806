//! Which store a plane lives in.
//!
//! Today there is one, whose revisions put all changes of all planes in one order; whatever reads or writes a plane asks
//! here, so that several can come without anybody else having to know. What one commit has to change together is in one
//! store: a plane with its records, and the layers that it stands on.

use crate::{LayerId, Store};
use freehold_machinery::PlaneId;
use std::sync::Arc;

/// The stores of a server. Cheap to clone.
#[derive(Clone)]
pub struct Placement {
    one: Arc<dyn Store>,
}

impl Placement {
    /// The store of a plane.
    pub fn of(&self, _plane: &PlaneId) -> &Arc<dyn Store> {
        &self.one
    }

    /// The store of a layer, which is that of the planes above it.
    pub fn of_layer(&self, _layer: &LayerId) -> &Arc<dyn Store> {
        &self.one
    }

    /// The store of what belongs to no plane, whose revision is that of the server.
    pub fn system(&self) -> &Arc<dyn Store> {
        &self.one
    }

    /// Every store, each once.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Store>> {
        std::iter::once(&self.one)
    }
}

impl From<Arc<dyn Store>> for Placement {
    /// Everything in one store.
    fn from(one: Arc<dyn Store>) -> Self {
        Self { one }
    }
}
