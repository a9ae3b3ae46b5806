//! What is special about a kind, on the way of a write.

use crate::{Registry, predicates::is_class, strategy};
use freehold_apiserver_kinds::{defaults, initial_status};
use freehold_apiserver_operation::Operation;
use freehold_machinery::{Result, Value, api_service};

impl Registry {
    /// Fills in and keeps what is special about the kind.
    pub(crate) async fn strategize(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<()> {
        let strategy = strategy::of(&op.ty);
        defaults::drop_disabled(&op.ty, draft);
        match old {
            None => {
                (strategy.create)(op, draft);
                if op.ty.has_status() && !op.ty.custom && draft.get("status").is_none() {
                    draft["status"] = initial_status::initial(&op.ty);
                }
            }
            Some(old) => (strategy.update)(op, draft, old),
        }
        match (op.ty.group.as_str(), op.ty.plural.as_str()) {
            ("", "services") if op.subresource.is_none() => self.allocate(op, draft, old, dry_run).await,
            ("apiextensions.k8s.io", "customresourcedefinitions") => {
                if old.is_none() {
                    Self::check_unbound(op, draft)?;
                }
                self.establish(op, draft, old).await
            }
            (crate::exports::GROUP, _) if op.ty.custom && self.exports.is_some() => {
                self.settle_api(op, draft, old).await
            }
            _ if is_class(&op.ty) => self.settle_class(op, draft, old).await,
            ("resource.k8s.io", _) if old.is_none() => self.check_admin_access(op, draft),
            (api_service::GROUP, api_service::RESOURCE) if op.subresource.is_none() => {
                api_service::settle(draft, &freehold_apiserver_operation::now());
                Ok(())
            }
            (freehold_apiserver_quota::GROUP, _) => {
                freehold_apiserver_ledger::settle(op, draft, old);
                Ok(())
            }
            ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
                strategy::type_check(op, draft, old);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
