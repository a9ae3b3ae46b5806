//! Quotas of the tenancy subsystem, read for the registry: Tenants are the groups of namespaces, Quotas their limits.

use freehold_apiserver_registry::{Amounts, Meter, SharedGroup, SharedKinds, SharedLimits};
use freehold_machinery::{GroupResource, User, Value, user::MASTERS};
use freehold_tenancy_api::{GROUP, Quota, TENANT_LABEL, Tenant, VERSION};
use freehold_tenancy_decide::{
    admission::acts_in_person,
    limits::{Limits, check},
};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Reads Tenants and Quotas.
pub(crate) struct TenantQuotas;

/// The limits of a Tenant.
struct TenantMeter {
    limits: Limits,
    definition: String,
}

/// What a Quota counts, without how much it allows.
fn definition(quota: Option<&Value>) -> String {
    let spec = quota.map_or(&Value::Null, |quota| &quota["spec"]);
    let hard: Vec<&String> = spec["hard"].as_object().into_iter().flat_map(|hard| hard.keys()).collect();
    let mut counted = spec["counted"].clone();
    for counter in counted.as_array_mut().into_iter().flatten() {
        if let Some(counter) = counter.as_object_mut() {
            counter.remove("limit");
        }
    }
    let text = format!("{hard:?} {counted} {}", spec["scopes"]);
    hex::encode(&Sha256::digest(text)[..12])
}

impl SharedLimits for TenantQuotas {
    fn kinds(&self) -> SharedKinds {
        SharedKinds {
            group: GROUP,
            version: VERSION,
            groups: "tenants",
            limits: "quotas",
            ledgers: ("quotaledgers", "QuotaLedger"),
            label: TENANT_LABEL,
        }
    }

    fn group(&self, object: &Value) -> SharedGroup {
        let spec = &object["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let max = spec.pointer("/namespaces/max").filter(|max| !max.is_null());
        SharedGroup {
            above: text("parent"),
            limits: text("quota"),
            own: max.map(Value::to_string).unwrap_or_default(),
        }
    }

    fn meter(&self, group: &Value, limits: Option<&Value>) -> Option<Arc<dyn Meter>> {
        let tenant: Tenant = serde_json::from_value(group.clone()).ok()?;
        // A Quota that cannot be read limits nothing; its condition says so.
        let quota: Option<Quota> = limits.and_then(|quota| serde_json::from_value(quota.clone()).ok());
        let limits_of = Limits::of(&tenant, quota.as_ref()).or_else(|_| Limits::of(&tenant, None)).ok()?;
        let definition =
            format!("{}{}", definition(limits), if tenant.spec.namespaces.max.is_some() { "+" } else { "" });
        (!limits_of.is_empty())
            .then(|| Arc::new(TenantMeter { limits: limits_of, definition }) as Arc<dyn Meter>)
    }

    fn binds(&self, user: &User, resource: &GroupResource, object: &Value, bypasses: bool) -> bool {
        let is_admin = bypasses || user.is_in(MASTERS);
        !(is_admin && acts_in_person(&user.name, resource, object))
    }
}

impl Meter for TenantMeter {
    fn definition(&self) -> &str {
        &self.definition
    }

    fn counted(&self) -> Vec<GroupResource> {
        let mut counted: Vec<_> =
            self.limits.watched().iter().map(|watched| watched.resource.clone()).collect();
        counted.dedup();
        counted
    }

    fn amounts(&self, resource: &GroupResource, object: &Value) -> Result<Amounts, String> {
        // A Pod counts until it is gone, however long its end takes: what was charged is what is given back.
        self.limits.amounts(resource, object, Timestamp::MIN)
    }

    fn check(&self, used: &Amounts, growth: &Amounts) -> Result<(), String> {
        check(&self.limits, used, growth).map_err(|exceeded| exceeded.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn quota(limit: &str) -> Value {
        json!({
            "metadata": {"name": "q"},
            "spec": {
                "hard": {"secrets": limit},
                "counted": [{"name": "size", "group": "e.com", "version": "v1", "resource": "apps",
                    "expression": "object.spec.replicas * 2", "limit": limit}],
            },
        })
    }

    #[test]
    fn a_tenant_is_charged_by_its_quota_and_another_limit_counts_the_same() {
        let tenant = json!({"metadata": {"name": "acme"}, "spec": {"quota": "q", "parent": "top", "namespaces": {"max": 3}}});
        let says = TenantQuotas.group(&tenant);
        assert_eq!((&*says.above, &*says.limits, &*says.own), ("top", "q", "3"));
        let meter = TenantQuotas.meter(&tenant, Some(&quota("4"))).unwrap();
        let other = TenantQuotas.meter(&tenant, Some(&quota("5"))).unwrap();
        assert_eq!(meter.definition(), other.definition());
        assert_ne!(meter.definition(), TenantQuotas.meter(&tenant, None).unwrap().definition());
        let apps = GroupResource::new("e.com", "apps");
        let amounts = meter.amounts(&apps, &json!({"spec": {"replicas": 2}})).unwrap();
        assert!(meter.check(&Amounts::new(), &amounts).is_ok());
        assert!(meter.check(&amounts, &amounts).unwrap_err().contains("limited to 4"));
        assert!(meter.amounts(&apps, &json!({"spec": {"replicas": -2}})).is_err());
        let broken = json!({"metadata": {"name": "q"}, "spec": {"hard": {"unicorns": "1"}}});
        assert!(
            TenantQuotas
                .meter(&json!({"metadata": {"name": "t"}, "spec": {"quota": "q"}}), Some(&broken))
                .is_none()
        );
    }

    #[test]
    fn administrators_are_bound_where_they_act_for_others() {
        let user = |name: &str, groups: &[&str]| User {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        };
        let pods = GroupResource::new("", "pods");
        let owned = json!({"metadata": {"ownerReferences": [{"controller": true}]}});
        let binds = |user: &User, object: &Value, bypasses| TenantQuotas.binds(user, &pods, object, bypasses);
        assert!(!binds(&user("root", &[MASTERS]), &json!({}), false));
        assert!(binds(&user("root", &[MASTERS]), &owned, false));
        assert!(binds(&user("system:freehold:controller-manager", &[MASTERS]), &json!({}), true));
        assert!(binds(&user("ann", &[]), &json!({}), false) && !binds(&user("ann", &[]), &json!({}), true));
    }
}
