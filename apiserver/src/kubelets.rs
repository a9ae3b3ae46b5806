//! The kubelets of planes: which addresses may be dialled, and how the server and a kubelet know each other.
//!
//! Both certificates are of the authority of the plane's clients: the one that the server shows, and the one that the
//! kubelet serves with (signed by `kubernetes.io/kubelet-serving`). So a node of one plane is worth nothing to another,
//! whatever address its object names. Nothing is kept of planes whose nodes nobody asks.

use freehold_apiserver_outbound::{Destination, Host, Identity, Limits, Networks, Outbound, Services, Trust};
use freehold_apiserver_server::Kubelet;
use freehold_machinery::{PlaneId, Result, Status, user::MASTERS};
use freehold_pki::{Authority, ClientName, PlaneBinding};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// The common name of the server towards kubelets of planes, as kubeadm names it.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";
/// For how long the server's certificate is valid; a new one is made after half of it.
const VALIDITY: Duration = Duration::from_secs(24 * 3600);
/// Planes of which something is kept while nobody uses it.
const KEPT: usize = 256;
/// Streams and requests to the nodes of one plane at a time.
const STREAMS: usize = 256;

/// Reaches kubelets.
pub(crate) struct Kubelets {
    authority: Arc<Authority>,
    syncers: Option<Syncers>,
    networks: Networks,
    outbound: Arc<Outbound>,
    known: Mutex<HashMap<PlaneId, Known>>,
}

/// The platform's own kubelets of projects' nodes: they stand for clusters that projects share.
pub(crate) struct Syncers {
    /// Where they are. Nodes with such an address are reached as the platform, for their plane.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Who this server is to them.
    pub(crate) identity: Arc<Identity>,
    /// The authority of their certificates.
    pub(crate) trust: Trust,
}

/// How the server and the nodes of one plane know each other.
#[derive(Clone)]
struct Known {
    identity: Arc<Identity>,
    trust: Trust,
    made: Instant,
    streams: Arc<Semaphore>,
}

impl Kubelets {
    /// Dials kubelets in `networks`, for planes whose authorities follow from `authority`.
    pub(crate) fn new(authority: Arc<Authority>, networks: Networks, services: Arc<dyn Services>) -> Self {
        let outbound = Arc::new(Outbound::new(networks.clone(), services, Limits::default()));
        Self { authority, syncers: None, networks, outbound, known: Mutex::default() }
    }

    /// Reaches syncers too, in whatever network they are: the operator names them.
    pub(crate) fn with_syncers(self, syncers: Option<Syncers>) -> Self {
        Self { syncers, ..self }
    }

    /// The kubelet at an address that a Node of a plane names.
    ///
    /// # Errors
    /// 500 for an address outside of the networks, 429 where the plane has too many streams.
    pub(crate) fn reach(&self, plane: &PlaneId, address: SocketAddr) -> Result<Kubelet> {
        let syncer = self.syncers.as_ref().filter(|syncers| syncers.addresses.contains(&address));
        if syncer.is_none() && !self.networks.allows(address.ip()) {
            let why =
                "the address is in none of the networks of nodes that this server may dial (--node-networks)";
            return Err(Status::new(500, "", format!("error dialing backend: dial tcp {address}: {why}")));
        }
        let known = self.known(plane)?;
        let permit = known.streams.try_acquire_owned().map_err(|_| {
            Status::too_many_requests("Too many streams to the nodes of this control plane are open.", 1)
        })?;
        let host = Host::Url { host: address.ip().to_string(), port: address.port() };
        // Which plane it is about a syncer learns from the path, which users do not write.
        let (identity, trust, prefix) = match syncer {
            Some(syncer) => (syncer.identity.clone(), syncer.trust.clone(), format!("/planes/{plane}")),
            None => (known.identity, known.trust, String::new()),
        };
        let destination = Destination { plane: plane.clone(), host, trust, identity: Some(identity) };
        Ok(Kubelet { outbound: self.outbound.clone(), destination, prefix, permit })
    }

    fn known(&self, plane: &PlaneId) -> Result<Known> {
        let found = self.known.lock().get(plane).cloned();
        if let Some(known) = found.as_ref().filter(|known| known.made.elapsed() < VALIDITY / 2) {
            return Ok(known.clone());
        }
        let (identity, trust) = self.make(plane).map_err(Status::internal)?;
        let mut all = self.known.lock();
        // The certificate is renewed; the streams that are open count on.
        let streams = all.get(plane).map(|known| known.streams.clone());
        let streams = streams.unwrap_or_else(|| Arc::new(Semaphore::new(STREAMS)));
        if all.len() >= KEPT {
            all.retain(|_, known| known.streams.available_permits() < STREAMS);
        }
        let known = Known { identity: Arc::new(identity), trust, made: Instant::now(), streams };
        all.insert(plane.clone(), known.clone());
        Ok(known)
    }

    fn make(&self, plane: &PlaneId) -> freehold_pki::Result<(Identity, Trust)> {
        let name = ClientName {
            user: KUBELET_CLIENT,
            groups: &[MASTERS.to_owned()],
            plane: Some(PlaneBinding { plane: plane.as_str(), generation: 0 }),
        };
        let pair = self.authority.for_plane(plane.as_str())?.issue_client(&name, VALIDITY)?;
        let root = self.authority.root_for_plane(plane.as_str())?;
        let identity = Identity { chain: pair.cert_pem.into_bytes(), key: pair.key_pem.as_bytes().to_vec() };
        Ok((identity, Trust::Bundle(root.into_bytes().into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use freehold_apiserver_outbound::Route;

    struct NoServices;

    #[async_trait]
    impl Services for NoServices {
        async fn route(
            &self,
            _: &PlaneId,
            _: &str,
            name: &str,
            _: u16,
        ) -> std::result::Result<Route, String> {
            Err(format!("service {name:?} not found"))
        }
    }

    fn kubelets(networks: &str) -> Kubelets {
        let authority = Arc::new(Authority::generate("ca").unwrap());
        Kubelets::new(authority, networks.parse().unwrap(), Arc::new(NoServices))
    }

    #[test]
    fn only_addresses_in_the_networks_of_nodes_are_dialled() {
        let plane: PlaneId = "a".parse().unwrap();
        for (networks, address, allowed) in [
            ("none", "127.0.0.1:10250", false),
            ("127.0.0.0/8", "127.0.0.1:10250", true),
            ("127.0.0.0/8", "10.0.0.1:10250", false),
            ("127.0.0.0/8", "169.254.169.254:80", false),
            ("10.0.0.0/8", "[::ffff:127.0.0.1]:10250", false),
        ] {
            let reached = kubelets(networks).reach(&plane, address.parse().unwrap());
            assert_eq!(reached.is_ok(), allowed, "{networks} {address}");
        }
    }

    #[test]
    fn a_plane_has_so_many_streams_and_takes_none_of_anothers() {
        let kubelets = kubelets("127.0.0.0/8");
        let (a, b): (PlaneId, PlaneId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let address = "127.0.0.1:10250".parse().unwrap();
        let mut open: Vec<Kubelet> =
            (0..STREAMS).map(|_| kubelets.reach(&a, address).ok().unwrap()).collect();
        assert_eq!(kubelets.reach(&a, address).err().map(|status| status.code), Some(429));
        let other = kubelets.reach(&b, address).ok().unwrap();
        assert!(other.destination.trust != open[0].destination.trust, "each plane has its own authority");
        open.pop();
        assert!(kubelets.reach(&a, address).is_ok());
    }
}
