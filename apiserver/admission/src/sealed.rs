//! A lookup that does not show what a provider may not see.

use crate::{Lookup, Permission};
use freehold_machinery::{PlaneId, ResourceType, User, Value};
use std::sync::Arc;

/// Policies, and as many webhooks, that an export may have. What its expressions cost is divided by it.
pub const MAX: usize = 10;

/// What is seen of a plane by what comes with an export: nothing but the forms of the object itself.
pub struct Sealed<'a, L: ?Sized>(pub &'a L);

impl<L: Lookup + ?Sized> Lookup for Sealed<'_, L> {
    fn get(&self, _: &PlaneId, _: &str, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
        None
    }

    fn list(&self, _: &PlaneId, _: &str, _: &str, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn allows(&self, _: &PlaneId, _: &User, _: &Permission<'_>) -> bool {
        false
    }

    fn resource_of(&self, _: &PlaneId, _: &str, _: &str) -> Option<(String, bool)> {
        None
    }

    fn equivalents(&self, plane: &PlaneId, ty: &ResourceType) -> Vec<Arc<ResourceType>> {
        self.0.equivalents(plane, ty)
    }

    fn budget_share(&self) -> u64 {
        MAX as u64
    }
}
