//! Client certificates.
//!
//! The TLS handshake has verified a peer's certificate against the authorities of clients and of front proxies
//! together. Which of them vouches for it is found out here, once per connection, by following signatures.

use crate::{HeaderNames, Request, headers};
use freehold_machinery::{
    PlaneId, Status, User,
    reserved::{self, Source},
    user::{ANONYMOUS, AUTHENTICATED, Basis, CREDENTIAL_ID, UNAUTHENTICATED},
};
use freehold_pki::{CertificateInfo, PERMANENT, certificates_der, is_issued_by};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// How many intermediate certificates may stand between a client's and a trusted one.
const MAX_DEPTH: usize = 4;
/// What the names of nodes begin with, and their group
/// (<https://kubernetes.io/docs/reference/access-authn-authz/node/#overview>).
const NODE_USER: &str = "system:node:";
const NODES: &str = "system:nodes";
/// How many certificates of what a client presents are looked at.
const MAX_CHAIN: usize = 8;

/// The authorities that vouch for peers.
#[derive(Debug, Default)]
pub struct Roots {
    clients: Vec<Vec<u8>>,
    proxies: Vec<Arc<Proxy>>,
}

/// A front proxy's authorities, read.
#[derive(Debug)]
struct Proxy {
    authorities: Vec<Vec<u8>>,
    /// Empty admits every name.
    names: Vec<String>,
    headers: HeaderNames,
    is_host: bool,
}

/// Who may speak for others with `X-Remote-*` headers.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy {
    /// The authorities of front proxies, PEM.
    pub ca_pem: String,
    /// Common names of front proxies; empty admits each certificate of those authorities.
    pub allowed_names: Vec<String>,
    /// Where it writes who asks.
    pub headers: HeaderNames,
    /// Whether it is that of the cluster that this server extends.
    pub is_host: bool,
}

/// Why a set of authorities can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// Not a PEM text with certificates.
    #[error("the certificates of an authority can't be read")]
    Unreadable(#[from] freehold_pki::Error),
    /// Every client could speak for everyone.
    #[error("the client authority is also a front proxy authority: restrict front proxies by name")]
    EveryClientIsProxy,
}

impl Roots {
    /// Reads the authorities of clients (PEM, may be empty) and of front proxies.
    ///
    /// # Errors
    /// [`RootsError`] for text without certificates, or where one authority vouches for both and the names of front
    /// proxies are not restricted.
    pub fn new<'a>(
        client_ca_pem: &str,
        front_proxies: impl IntoIterator<Item = &'a FrontProxy>,
    ) -> Result<Self, RootsError> {
        let read = |pem: &str| if pem.is_empty() { Ok(Vec::new()) } else { certificates_der(pem) };
        let clients = read(client_ca_pem)?;
        let mut proxies = Vec::new();
        for FrontProxy { ca_pem, allowed_names, headers, is_host } in front_proxies {
            let authorities = read(ca_pem)?;
            if allowed_names.is_empty() && authorities.iter().any(|proxy| clients.contains(proxy)) {
                return Err(RootsError::EveryClientIsProxy);
            }
            let (names, headers) = (allowed_names.clone(), headers.clone());
            proxies.push(Arc::new(Proxy { authorities, names, headers, is_host: *is_host }));
        }
        Ok(Self { clients, proxies })
    }
}

impl Proxy {
    fn vouches_for(&self, info: &CertificateInfo, leaf: &[u8], rest: &[&[u8]]) -> bool {
        let named = self.names.is_empty() || self.names.contains(&info.common_name);
        let chain = Chain { intermediates: rest, roots: &self.authorities, planes: &info.planes() };
        info.client_auth && named && chain.vouches_for(leaf, MAX_DEPTH)
    }
}

/// What a client's certificate says, read once per connection.
#[derive(Clone, Debug)]
pub struct Peer {
    info: CertificateInfo,
    user: Option<User>,
    front_proxy: Option<Arc<Proxy>>,
}

impl Peer {
    /// Reads the certificates that a client presented, its own first, all DER. The handshake has verified them.
    ///
    /// # Errors
    /// 401 for a certificate that cannot be read or is bound to an invalid plane: no request on that connection is
    /// to be served.
    pub fn parse<C: AsRef<[u8]>>(chain: &[C], roots: &Roots) -> Result<Self, Status> {
        let (leaf, rest) = chain.split_first().ok_or_else(Status::unauthorized)?;
        let leaf = leaf.as_ref();
        let info = CertificateInfo::parse(leaf).map_err(|_| Status::unauthorized())?;
        let rest: Vec<&[u8]> = rest.iter().take(MAX_CHAIN).map(AsRef::as_ref).collect();
        let chain = Chain { intermediates: &rest, roots: &roots.clients, planes: &info.planes() };
        let is_client = info.client_auth && chain.vouches_for(leaf, MAX_DEPTH);
        let front_proxy = roots.proxies.iter().find(|proxy| proxy.vouches_for(&info, leaf, &rest)).cloned();
        let user = if is_client { user(&info, leaf)? } else { None };
        Ok(Self { front_proxy, user, info })
    }

    /// Whether this one may be, and may speak for, whoever the other may.
    pub fn is_who(&self, other: &Self) -> bool {
        let speaks = other.front_proxy.is_none() || self.front_proxy.is_some();
        speaks && (other.user.is_none() || self.user == other.user)
    }

    /// Whether it may speak for others.
    pub fn is_front_proxy(&self) -> bool {
        self.front_proxy.is_some()
    }

    /// The only plane in which the certificate means anything; `None` for one of the platform.
    pub fn plane(&self) -> Option<&PlaneId> {
        self.user.as_ref()?.plane.as_ref()
    }

    /// The plane whose node this is, by its certificate (`system:node:NAME` in the group `system:nodes`). Its time is
    /// checked with each request.
    pub fn plane_of_node(&self) -> Option<&PlaneId> {
        let user = self.user.as_ref().filter(|_| self.front_proxy.is_none())?;
        let is_node = user.name.starts_with(NODE_USER) && user.is_in(NODES);
        user.plane.as_ref().filter(|_| is_node)
    }

    /// Whether a certificate or a front proxy says who this is: a token is not asked for then.
    pub fn has_identity(&self) -> bool {
        self.user.is_some() || self.front_proxy.is_some()
    }

    /// The identity that a front proxy vouches for; `None` where the peer is none, or names nobody.
    pub(crate) fn front_proxied(&self, request: &Request<'_>) -> Result<Option<User>, Status> {
        let Some(proxy) = &self.front_proxy else { return Ok(None) };
        let Some(mut user) = headers::remote_user(request.headers, &proxy.headers)? else { return Ok(None) };
        if proxy.is_host {
            // A host knows nothing of planes, so what it says of them is a client's.
            user.plane = None;
            user.from_host = true;
            reserved::check_user(Source::Operator, &user).map_err(|why| {
                tracing::debug!(user = user.name, %why, "refused a front proxy's user");
                Status::unauthorized()
            })?;
        }
        self.check(request.now, user.plane.as_ref(), request.plane)?;
        let decided = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if user.name != ANONYMOUS && !user.groups.iter().any(decided) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(Some(user))
    }

    /// The identity of the certificate itself; `None` where no authority of clients vouches for it, or it has no
    /// common name.
    pub(crate) fn user(&self, request: &Request<'_>) -> Result<Option<User>, Status> {
        let Some(user) = &self.user else { return Ok(None) };
        self.check(request.now, user.plane.as_ref(), request.plane)?;
        Ok(Some(user.clone()))
    }

    /// A connection can outlive its certificate, and carry requests for several planes.
    fn check(&self, now: i64, bound: Option<&PlaneId>, plane: &PlaneId) -> Result<(), Status> {
        let valid = (self.info.not_before..=self.info.not_after).contains(&now);
        let here = bound.is_none_or(|bound| bound == plane);
        if valid && here { Ok(()) } else { Err(Status::unauthorized()) }
    }
}

/// What may stand between a client's certificate and a trusted one.
struct Chain<'a> {
    intermediates: &'a [&'a [u8]],
    roots: &'a [Vec<u8>],
    /// The planes that the client's certificate is bound to.
    planes: &'a [&'a str],
}

impl Chain<'_> {
    fn vouches_for(&self, certificate: &[u8], depth: usize) -> bool {
        if self.roots.iter().any(|root| is_issued_by(certificate, root)) {
            return true;
        }
        depth > 0
            && self
                .intermediates
                .iter()
                .filter(|issuer| **issuer != certificate && is_issued_by(certificate, issuer))
                .any(|issuer| self.may_issue(issuer) && self.vouches_for(issuer, depth - 1))
    }

    /// The authority of a plane vouches for clients of that plane alone.
    fn may_issue(&self, issuer: &[u8]) -> bool {
        CertificateInfo::parse(issuer)
            .is_ok_and(|info| info.planes().is_empty() || info.planes() == self.planes)
    }
}

/// Common name is the user, organizations are groups
/// (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates>).
fn user(info: &CertificateInfo, der: &[u8]) -> Result<Option<User>, Status> {
    let plane = match info.planes()[..] {
        [] => None,
        [plane] => Some(plane.parse::<PlaneId>().map_err(|_| Status::unauthorized())?),
        _ => return Err(Status::unauthorized()),
    };
    let generation = info.generation().map_err(|_| Status::unauthorized())?;
    if info.common_name.is_empty() {
        return Ok(None);
    }
    let basis = Basis {
        until: Some(info.not_after.saturating_add(1)),
        generation: Some(generation).filter(|at| plane.is_some() && *at != PERMANENT),
        ..Basis::default()
    };
    let mut groups = info.organizations.clone();
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let fingerprint = format!("X509SHA256={}", hex::encode(Sha256::digest(der)));
    let extra = [(CREDENTIAL_ID.to_owned(), vec![fingerprint])].into();
    Ok(Some(User {
        name: info.common_name.clone(),
        uid: String::new(),
        groups,
        extra,
        plane,
        from_host: false,
        basis: Some(Arc::new(basis)),
        is_subject: false,
    }))
}
