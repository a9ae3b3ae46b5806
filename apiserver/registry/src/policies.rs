//! The admission policies of a plane, compiled once for each state of their objects.

use crate::{Operation, Registry};
use freehold_apiserver_admission::{
    bundle::Bundle,
    chain,
    policy::{self, Binding, Bound, Compiled, Policy},
};
use freehold_apiserver_cache::{Entry, ListRequest};
use freehold_machinery::{Result, Value};
use std::sync::{Arc, LazyLock};

static POLICIES: LazyLock<Compiled<Policy>> = LazyLock::new(Compiled::default);
static BINDINGS: LazyLock<Compiled<Binding>> = LazyLock::new(Compiled::default);

impl Registry {
    /// The policies of a plane that are bound, in the order of their names. Without bindings no policy is looked at.
    pub(crate) async fn bound_policies(
        &self,
        op: &Operation,
        resources: [&'static str; 2],
    ) -> Result<Vec<Bound>> {
        let plugin =
            if resources == policy::MUTATING { chain::MUTATING_POLICY } else { chain::VALIDATING_POLICY };
        if !self.chain.runs(plugin) {
            return Ok(Vec::new());
        }
        let [policies, bindings] = resources;
        let bindings = self.compiled(op, bindings, &BINDINGS, Binding::of).await?;
        let mut bound = match bindings.is_empty() {
            true => Vec::new(),
            false => Bound::join(self.compiled(op, policies, &POLICIES, Policy::of).await?, &bindings),
        };
        if let Some(bundle) = self.bundle(op) {
            let own = if resources == policy::MUTATING { &bundle.mutating } else { &bundle.validating };
            bound.extend(own.iter().cloned());
        }
        Ok(bound)
    }

    /// Policies and webhooks that come with the export of an operation's type. They hold for that type alone, whatever
    /// their rules say.
    pub(crate) fn bundle(&self, op: &Operation) -> Option<Arc<Bundle>> {
        self.exports.as_ref().filter(|_| op.ty.since > 0)?.bundle(&op.ty)
    }

    /// The objects of a resource of admission, compiled.
    pub(crate) async fn compiled<T>(
        &self,
        op: &Operation,
        resource: &'static str,
        known: &Compiled<T>,
        compile: fn(&Value) -> T,
    ) -> Result<Vec<Arc<T>>> {
        let request = ListRequest { plane: &op.plane, group: policy::GROUP, resource, namespace: None };
        let objects = self.cache.list(request).await?.objects;
        let of = |entry: Arc<Entry>| {
            known.get(&op.plane, resource, entry.name(), entry.modified, || entry.value(), compile)
        };
        Ok(objects.into_iter().map(of).collect())
    }
}
