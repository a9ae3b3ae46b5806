//! Addresses of a pool, given to Services of all planes, for bare metal.
//!
//! The pool is the ConfigMap `load-balancer-addresses` of `kube-system` in the plane of the platform, which only its
//! administrators write. An address that is given is a Lease beside it, named after the address: that no two Services have
//! one, in whatever planes and whichever instance serves them, is the uniqueness of names.

use super::decide::{Observed, Step, decide};
use super::pool::Pool;
use super::{Provider, Verdict};
use crate::addresses::number;
use crate::context::Context;
use crate::kinds::{CONFIG_MAPS, LEASES};
use freehold_client::{Client, DeleteOptions, Error};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::object::text;
use freehold_runtime::{Informer, Interest, Key, Planes, Queue, Store};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

const NAMESPACE: &str = "kube-system";
const POOL: &str = "load-balancer-addresses";
const LABEL: &str = "load-balancer.freehold.dev/pool";

/// An address that a Service has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    address: IpAddr,
    /// The Service: plane, namespace and name.
    holder: String,
    plane: String,
    uid: String,
}

impl Given {
    fn of(lease: &Value) -> Option<Self> {
        let holder = text(lease, "/spec/holderIdentity");
        let plane = holder.split('/').next().unwrap_or_default().to_owned();
        let address = meta::annotation(lease, LABEL)?.parse().ok()?;
        Some(Self { address, holder: holder.to_owned(), plane, uid: meta::uid(lease).to_owned() })
    }
}

/// The addresses of the pool, and whose they are.
pub(super) struct Registry {
    client: Client,
    platform: PlaneId,
    pool: Store<Result<Pool, String>>,
    given: Store<Given>,
}

fn holder(key: &Key) -> String {
    format!("{}/{}/{}", key.plane, key.namespace, key.name)
}

fn holder_key(holder: &str) -> Option<Key> {
    let mut parts = holder.splitn(3, '/');
    let (plane, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Key::new(plane.parse().ok()?, namespace, name))
}

/// Returns the name of an address' Lease: written out in full, since names have neither `:` nor `-` at an end.
fn lease_name(address: IpAddr) -> String {
    match number(address) {
        (_, true) => format!("load-balancer-{address}"),
        (number, false) => format!("load-balancer-{number:032x}"),
    }
}

impl Registry {
    /// Follows the pool and what is given of it. Services are added to the queue when either changes.
    pub(super) fn start(context: &Context, queue: &Arc<Queue<Key>>, services: &Store<()>) -> Self {
        let platform: &Planes = &context.platform;
        let fields = format!("metadata.namespace={NAMESPACE},metadata.name={POOL}");
        let interest = Interest::projected(CONFIG_MAPS, |map| Some(Pool::parse(&map))).fields(fields);
        let mut pool = Informer::new(platform, interest);
        let (on_pool, all) = (queue.clone(), services.clone());
        pool.on_change(move |change| {
            if let Some(Err(why)) = change.new.as_deref() {
                tracing::error!("ConfigMap {NAMESPACE}/{POOL} is not used: {why}; correct it");
            }
            all.keys().into_iter().for_each(|key| on_pool.add_routine(key));
        });
        let interest = Interest::projected(LEASES, |lease| Given::of(&lease)).labels(LABEL);
        let interest =
            interest.index(|_, given: &Given| vec![given.holder.clone(), format!("plane {}", given.plane)]);
        let mut given = Informer::new(platform, interest);
        let (on_given, planes) = (queue.clone(), context.planes.clone());
        given.on_change(move |change| {
            let holders = [&change.old, &change.new].into_iter().flatten();
            for key in holders.filter_map(|given| holder_key(&given.holder)) {
                // A manager of one plane is not asked about others.
                if planes.only().is_none_or(|only| *only == key.plane) {
                    on_given.add(key);
                }
            }
        });
        let plane = platform.only().cloned().unwrap_or_else(PlaneId::core);
        Self {
            client: platform.client(&plane),
            platform: plane,
            pool: context.run_informer(pool),
            given: context.run_informer(given),
        }
    }

    /// Returns the stores that have to be complete before anything is decided.
    pub(super) fn stores(&self) -> (Store<Given>, Store<Result<Pool, String>>) {
        (self.given.clone(), self.pool.clone())
    }

    fn pool(&self) -> Option<Arc<Result<Pool, String>>> {
        self.pool.get(&Key::new(self.platform.clone(), NAMESPACE, POOL))
    }

    fn own(&self, key: &Key) -> Vec<(Key, Arc<Given>)> {
        self.given.by_index(&self.platform, &holder(key))
    }

    fn step(&self, key: &Key, service: &Value) -> Step {
        let (pool, own) = (self.pool(), self.own(key));
        let pool = pool.as_deref().and_then(|pool| pool.as_ref().ok());
        let own: BTreeSet<IpAddr> = own.iter().map(|(_, given)| given.address).collect();
        let taken = self.given.in_plane(&self.platform).into_iter().map(|(_, given)| given.address).collect();
        let of_plane = self.given.count_by_index(&self.platform, &format!("plane {}", key.plane));
        decide(service, &Observed { pool, own: &own, taken: &taken, of_plane })
    }

    /// Reserves an address for a Service; fails if another one has it.
    async fn reserve(&self, key: &Key, address: IpAddr) -> Result<(), Error> {
        let name = lease_name(address);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "labels": {LABEL: "default"},
                "annotations": {LABEL: address.to_string()},
            },
            "spec": {"holderIdentity": holder(key)},
        });
        let created = self.client.create(&LEASES, &lease).await;
        let (found, refusal) = match created {
            Ok(lease) => (lease, None),
            Err(error) if error.is_already_exists() => {
                (self.client.get(&LEASES, Some(NAMESPACE), &name).await?, Some(error))
            }
            Err(error) => return Err(error),
        };
        let given = Given::of(&found).map(Arc::new);
        let is_own = given.as_ref().is_some_and(|given| given.holder == holder(key));
        // The next decision sees it, whenever the watch does.
        self.given.replace(&Key::new(self.platform.clone(), NAMESPACE, &name), given);
        match refusal {
            Some(error) if !is_own => Err(error),
            _ => Ok(()),
        }
    }
}

impl Provider for Registry {
    fn judge(&self, key: &Key, service: Option<&Value>) -> Verdict {
        let Some(service) = service else {
            return if self.own(key).is_empty() { Verdict::Leave } else { Verdict::Release };
        };
        match self.step(key, service) {
            Step::Provide(_) | Step::Reserve(_) => Verdict::Serve,
            Step::Release => Verdict::Release,
            Step::Refuse(why) => Verdict::Refuse(why),
            Step::Leave => Verdict::Leave,
        }
    }

    async fn provide(&self, key: &Key, service: &Value) -> Result<Vec<IpAddr>, Error> {
        let (Step::Provide(addresses) | Step::Reserve(addresses)) = self.step(key, service) else {
            return Ok(Vec::new());
        };
        let own = self.own(key);
        for address in &addresses {
            if !own.iter().any(|(_, given)| given.address == *address) {
                self.reserve(key, *address).await?;
            }
        }
        Ok(addresses)
    }

    async fn release(&self, key: &Key, kept: &[IpAddr]) -> Result<(), Error> {
        for (lease, given) in self.own(key) {
            if kept.contains(&given.address) {
                continue;
            }
            let options = DeleteOptions::uid(given.uid.clone());
            match self.client.delete(&LEASES, Some(NAMESPACE), &lease.name, &options).await {
                Err(error) if !error.is_not_found() && error.code() != 409 => return Err(error),
                _ => {}
            }
            self.given.replace(&lease, None);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_lease_name() {
        let name = |text: &str| lease_name(text.parse().unwrap());
        assert_eq!(name("192.0.2.1"), "load-balancer-192.0.2.1");
        assert_eq!(name("2001:db8::1"), "load-balancer-20010db8000000000000000000000001");
        assert_eq!(name("2001:0db8:0::1"), name("2001:db8::1"));
    }

    #[test]
    fn a_holder_is_read_back() {
        let key = Key::new("p1".parse().unwrap(), "n", "web");
        assert_eq!(holder_key(&holder(&key)), Some(key));
        assert_eq!(holder_key("nonsense"), None);
    }
}
