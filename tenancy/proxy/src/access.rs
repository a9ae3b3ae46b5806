//! What is whose, from informers of tenants and namespaces.

use freehold_machinery::PlaneId;
use freehold_runtime::{Key, Scope, Store};
use freehold_tenancy_api::tenant::{Subject, Tenant};
use freehold_tenancy_controllers::observed::{Informers, family, member_entry};
use freehold_tenancy_decide::admission::User;
use freehold_tenancy_decide::tenant::Namespace;
use freehold_tenancy_decide::visibility::{self, Directory, Names};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

use crate::request::Named;

/// Memberships and namespaces of a plane, kept current by informers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Access {
    plane: PlaneId,
    tenants: Store<Tenant>,
    namespaces: Store<Namespace>,
    /// Counts changes.
    changes: watch::Receiver<u64>,
}

impl Access {
    /// Starts the informers in the scope's only plane.
    pub(crate) fn start(scope: &Scope) -> Self {
        let plane = scope.planes.only().cloned().unwrap_or_else(PlaneId::core);
        let (mut tenants, mut namespaces, _) = Informers::of_tenants(&scope.planes);
        let (changed, changes) = watch::channel(0_u64);
        let changed = Arc::new(changed);
        let count = changed.clone();
        tenants.on_change(move |_| count.send_modify(|count| *count = count.wrapping_add(1)));
        namespaces.on_change(move |change| {
            let tenant =
                |side: &Option<Arc<Namespace>>| side.as_ref().and_then(|n| n.tenant().map(str::to_owned));
            if tenant(&change.old) != tenant(&change.new) {
                changed.send_modify(|count| *count = count.wrapping_add(1));
            }
        });
        let access = Self { plane, tenants: tenants.store(), namespaces: namespaces.store(), changes };
        scope.tasks.spawn(tenants.run(scope.token.clone()));
        scope.tasks.spawn(namespaces.run(scope.token.clone()));
        access
    }

    /// Whether all tenants and namespaces are known.
    pub(crate) fn is_ready(&self) -> bool {
        self.tenants.is_synced() && self.namespaces.is_synced()
    }

    /// Notifies of changes of memberships, and of whose namespaces are.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// The tenants of a user.
    pub(crate) fn tenants(&self, user: &User) -> BTreeSet<String> {
        visibility::tenants(user, self)
    }

    /// The namespaces of tenants.
    pub(crate) fn namespaces(&self, tenants: &BTreeSet<String>) -> BTreeSet<String> {
        let of = |tenant: &String| self.namespaces.by_index(&self.plane, tenant);
        tenants.iter().flat_map(of).map(|(key, _)| key.name.to_string()).collect()
    }

    /// The names that members of tenants see.
    pub(crate) fn names(&self, named: Named, tenants: &BTreeSet<String>) -> Names {
        match named.rule() {
            Some(rule) => visibility::classes(tenants, rule, self),
            None => Names::Only(tenants.clone()),
        }
    }
}

impl Directory for Access {
    fn tenant(&self, name: &str) -> Option<Arc<Tenant>> {
        self.tenants.get(&Key::new(self.plane.clone(), "", name))
    }

    fn tenants_of(&self, subject: &Subject) -> Vec<Arc<Tenant>> {
        let found = self.tenants.by_index(&self.plane, &member_entry(subject));
        found.into_iter().map(|(_, tenant)| tenant).collect()
    }

    fn family(&self, name: &str) -> BTreeSet<String> {
        family(&self.tenants, &self.plane, name)
    }
}
