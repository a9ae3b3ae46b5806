//! The admission policies of a plane, compiled once for each state of their objects.

use crate::{Operation, Registry};
use freehold_apiserver_admission::policy::{self, Binding, Bound, Compiled, Policy};
use freehold_machinery::Value;
use std::sync::{Arc, LazyLock};

static POLICIES: LazyLock<Compiled<Policy>> = LazyLock::new(Compiled::default);
static BINDINGS: LazyLock<Compiled<Binding>> = LazyLock::new(Compiled::default);

impl Registry {
    /// The policies of a plane that are bound, in the order of their names. Without bindings no policy is looked at.
    pub(crate) fn bound_policies(&self, op: &Operation, resources: [&'static str; 2]) -> Vec<Bound> {
        let [policies, bindings] = resources;
        let bindings = self.compiled(op, bindings, &BINDINGS, Binding::of);
        if bindings.is_empty() {
            return Vec::new();
        }
        Bound::join(self.compiled(op, policies, &POLICIES, Policy::of), &bindings)
    }

    fn compiled<T>(
        &self,
        op: &Operation,
        resource: &'static str,
        known: &Compiled<T>,
        compile: fn(&Value) -> T,
    ) -> Vec<Arc<T>> {
        let entries = self.cache.peek_list(&op.plane, policy::GROUP, resource, None);
        let in_use = |entry: &Arc<freehold_apiserver_cache::Entry>| {
            known.get(&op.plane, resource, entry.name(), entry.modified, || compile(&entry.value()))
        };
        entries.iter().map(in_use).collect()
    }
}
