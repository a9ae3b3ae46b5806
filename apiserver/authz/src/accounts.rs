//! The service accounts of Kubernetes' own controllers: `kube-system` has them, and each plane's RBAC begins with what they may
//! do, `escalate` among it. They are made where a kube-controller-manager works, and until then these bindings sleep.
//!
//! Whoever may write service accounts, tokens or Secrets could wake one and be it. So these accounts, and credentials of
//! theirs, are for those who may do everything in the plane, and for the kube-controller-manager itself.

use crate::{Access, Attributes, bootstrap, escalation::Holder, iam::SYSTEM_NAMESPACE};
use freehold_machinery::{GroupResource, Status, User, user::MASTERS};
use std::{collections::HashSet, sync::LazyLock};

/// The user as whom a kube-controller-manager makes its accounts.
const MANAGER: &str = "system:kube-controller-manager";

static CONTROLLERS: LazyLock<HashSet<&str>> = LazyLock::new(|| bootstrap::controllers().collect());

/// Whether a service account is one of Kubernetes' controllers.
fn is_controllers(namespace: &str, name: &str) -> bool {
    namespace == SYSTEM_NAMESPACE && CONTROLLERS.contains(name)
}

impl Access {
    /// Whether `user` may make a service account, or a credential of it.
    ///
    /// # Errors
    /// 403 for an account of Kubernetes' controllers, unless the user may do everything.
    pub fn check_account(&self, user: &User, (namespace, name): (&str, &str)) -> Result<(), Status> {
        if !is_controllers(namespace, name) || user.is_in(MASTERS) || user.name == MANAGER {
            return Ok(());
        }
        let everything = Attributes { namespace: "", ..Attributes::resource(user, "*", "*", "*") };
        if self.allows(&everything) {
            return Ok(());
        }
        let why = format!("user {:?} may not be the controller whose account it is", user.name);
        Err(Status::forbidden(&GroupResource::new("", "serviceaccounts"), name, &why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use std::sync::Arc;

    #[test]
    fn accounts_of_controllers_are_for_those_who_may_do_everything() {
        let access = Access::from(Arc::new(Policy::default()));
        let named = |name: &str, groups: &[&str]| User {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        };
        let (ann, master, manager) = (named("ann", &[]), named("root", &[MASTERS]), named(MANAGER, &[]));
        let account = ("kube-system", "clusterrole-aggregation-controller");
        assert!(access.check_account(&ann, account).is_err());
        assert!(
            access.check_account(&master, account).is_ok() && access.check_account(&manager, account).is_ok()
        );
        for other in [
            ("default", "clusterrole-aggregation-controller"),
            ("kube-system", "default"),
            ("kube-system", "kube-dns"),
        ] {
            assert!(access.check_account(&ann, other).is_ok(), "{other:?}");
        }
    }
}
