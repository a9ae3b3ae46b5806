//! What a Service needs of a load balancer.

use super::pool::Pool;
use freehold_machinery::{Value, meta};
use freehold_runtime::object::{items, text};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Held by a Service as long as it has addresses.
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The next step for a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// It has these addresses, as far as it has them not yet, and keeps no others.
    Provide(Vec<IpAddr>),
    /// It gets addresses that are reserved first.
    Reserve(Vec<IpAddr>),
    /// It gives its addresses back.
    Release,
    /// It can't be served, and is told why.
    Refuse(String),
    /// Nothing: another one serves it, or nobody has to.
    Leave,
}

/// What is known of addresses.
pub(super) struct Observed<'a> {
    /// The pool; `None` where there is none.
    pub(super) pool: Option<&'a Pool>,
    /// Addresses that this Service has.
    pub(super) own: &'a BTreeSet<IpAddr>,
    /// Addresses that anybody has.
    pub(super) taken: &'a BTreeSet<IpAddr>,
    /// How many addresses Services of this plane have.
    pub(super) of_plane: usize,
}

/// Reports whether a Service is to have a load balancer.
pub(super) fn wants(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && !meta::is_deleting(service)
}

/// Reports whether this controller holds a Service or is asked to serve it.
pub(super) fn concerns(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" || meta::finalizers(service).contains(&FINALIZER)
}

/// Decides the next step for a Service.
pub(super) fn decide(service: &Value, observed: &Observed<'_>) -> Step {
    let class = text(service, "/spec/loadBalancerClass");
    let is_ours = observed.pool.is_some_and(|pool| pool.class == class);
    if !wants(service) {
        // Where there is no pool any more, what was given is given back all the same.
        let holds = meta::finalizers(service).contains(&FINALIZER) && (is_ours || !observed.own.is_empty());
        return if holds || !observed.own.is_empty() { Step::Release } else { Step::Leave };
    }
    let Some(pool) = observed.pool.filter(|_| is_ours) else { return Step::Leave };
    let wanted = match families(service, pool, observed) {
        Ok(wanted) => wanted,
        Err(why) => return Step::Refuse(why),
    };
    let new = wanted.iter().filter(|address| !observed.own.contains(address)).count();
    if new == 0 {
        return Step::Provide(wanted);
    }
    let kept = observed.own.iter().filter(|address| wanted.contains(address)).count();
    let others = observed.of_plane.saturating_sub(observed.own.len());
    if others + kept + new > pool.limit {
        return Step::Refuse(format!(
            "this control plane may have {} addresses of load balancers",
            pool.limit
        ));
    }
    Step::Reserve(wanted)
}

/// Returns an address of each family of the Service, those that it has first.
fn families(service: &Value, pool: &Pool, observed: &Observed<'_>) -> Result<Vec<IpAddr>, String> {
    let asked = match text(service, "/spec/loadBalancerIP") {
        "" => None,
        text => Some(text.parse::<IpAddr>().map_err(|_| format!("loadBalancerIP {text:?} is no address"))?),
    };
    let listed = items(service, "/spec/ipFamilies").iter().map(|family| family == "IPv4");
    let mut families: Vec<bool> = listed.collect();
    if families.is_empty() {
        families.push(asked.is_none_or(|address| address.is_ipv4()));
    }
    if let Some(asked) = asked.filter(|asked| !families.contains(&asked.is_ipv4())) {
        return Err(format!("loadBalancerIP {asked} is of none of the Service's families"));
    }
    families
        .into_iter()
        .map(|is_v4| of_family(is_v4, asked.filter(|a| a.is_ipv4() == is_v4), pool, observed))
        .collect()
}

fn of_family(
    is_v4: bool,
    asked: Option<IpAddr>,
    pool: &Pool,
    observed: &Observed<'_>,
) -> Result<IpAddr, String> {
    if let Some(asked) = asked {
        let is_free = observed.own.contains(&asked) || !observed.taken.contains(&asked);
        return match (pool.has(asked), is_free) {
            (true, true) => Ok(asked),
            // Whose it is, is nobody else's business.
            (true, false) => Err(format!("loadBalancerIP {asked} is in use")),
            (false, _) => Err(format!("loadBalancerIP {asked} is not in the pool")),
        };
    }
    let kept = observed.own.iter().find(|own| own.is_ipv4() == is_v4 && pool.has(**own)).copied();
    let family = if is_v4 { "IPv4" } else { "IPv6" };
    kept.or_else(|| pool.free(is_v4, observed.taken))
        .ok_or_else(|| format!("the pool has no free {family} address"))
}

/// Returns `status.loadBalancer` with these addresses.
pub(super) fn status(addresses: &[IpAddr]) -> Value {
    let ingress = addresses.iter().map(|address| json!({"ip": address.to_string(), "ipMode": "VIP"}));
    json!({"ingress": ingress.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: &str) -> Pool {
        Pool::parse(&json!({"data": {"addresses": text, "addressesPerPlane": "2"}})).unwrap()
    }

    fn set(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn service(spec: Value) -> Value {
        let mut service = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer"}});
        service["spec"].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
        service
    }

    fn list(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_service_gets_an_address_of_each_family() {
        let pool = pool("192.0.2.1-192.0.2.3,2001:db8::1");
        let both = json!({"ipFamilies": ["IPv4", "IPv6"]});
        let asked = |address: &str| json!({"loadBalancerIP": address});
        let rows = [
            (json!({}), set(&[]), set(&[]), Step::Reserve(list(&["192.0.2.1"]))),
            (json!({}), set(&["192.0.2.2"]), set(&["192.0.2.2"]), Step::Provide(list(&["192.0.2.2"]))),
            (both, set(&[]), set(&["192.0.2.1"]), Step::Reserve(list(&["192.0.2.2", "2001:db8::1"]))),
            (asked("192.0.2.3"), set(&[]), set(&[]), Step::Reserve(list(&["192.0.2.3"]))),
            (
                asked("192.0.2.3"),
                set(&["192.0.2.1"]),
                set(&["192.0.2.1"]),
                Step::Reserve(list(&["192.0.2.3"])),
            ),
            (
                asked("192.0.2.3"),
                set(&[]),
                set(&["192.0.2.3"]),
                Step::Refuse("loadBalancerIP 192.0.2.3 is in use".into()),
            ),
            (
                asked("10.0.0.1"),
                set(&[]),
                set(&[]),
                Step::Refuse("loadBalancerIP 10.0.0.1 is not in the pool".into()),
            ),
        ];
        for (spec, own, taken, step) in rows {
            let observed = Observed { pool: Some(&pool), own: &own, taken: &taken, of_plane: own.len() };
            assert_eq!(decide(&service(spec.clone()), &observed), step, "{spec}");
        }
    }

    #[test]
    fn a_plane_has_no_more_addresses_than_the_pool_allows() {
        let (pool, own, taken) = (pool("192.0.2.0/24"), set(&[]), set(&["192.0.2.1", "192.0.2.2"]));
        let observed = |of_plane| Observed { pool: Some(&pool), own: &own, taken: &taken, of_plane };
        assert_eq!(decide(&service(json!({})), &observed(1)), Step::Reserve(list(&["192.0.2.3"])));
        assert!(matches!(decide(&service(json!({})), &observed(2)), Step::Refuse(_)));
    }

    #[test]
    fn addresses_go_back_with_the_type_or_the_service() {
        let (pool, own, none) = (pool("192.0.2.0/24"), set(&["192.0.2.1"]), set(&[]));
        let mut other = service(json!({"type": "ClusterIP"}));
        let with = |own| Observed { pool: Some(&pool), own, taken: own, of_plane: 1 };
        assert_eq!(decide(&other, &with(&none)), Step::Leave);
        assert_eq!(decide(&other, &with(&own)), Step::Release);
        other["metadata"]["finalizers"] = json!([FINALIZER]);
        assert_eq!(decide(&other, &with(&none)), Step::Release, "its finalizer is left");
        let mut deleted = service(json!({}));
        deleted["metadata"]["deletionTimestamp"] = "x".into();
        assert_eq!(decide(&deleted, &with(&own)), Step::Release);
        let without = Observed { pool: None, own: &own, taken: &own, of_plane: 1 };
        assert_eq!(decide(&deleted, &without), Step::Release);
    }

    #[test]
    fn services_of_another_class_are_left_to_others() {
        let pool = pool("192.0.2.0/24");
        let none = set(&[]);
        let observed = Observed { pool: Some(&pool), own: &none, taken: &none, of_plane: 0 };
        let mut other = service(json!({"loadBalancerClass": "example.com/other"}));
        assert_eq!(decide(&other, &observed), Step::Leave);
        other["spec"]["type"] = "ClusterIP".into();
        other["metadata"]["finalizers"] = json!([FINALIZER]);
        assert_eq!(decide(&other, &observed), Step::Leave, "another one's finalizer");
    }
}
