//! The destination of a request: its address, and how the server proves its identity.

use freehold_machinery::PlaneId;
use std::{fmt, sync::Arc};

/// A server that a plane's objects name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The plane whose objects name it.
    pub plane: PlaneId,
    /// Where it is.
    pub host: Host,
    /// How its certificate is judged.
    pub trust: Trust,
    /// The certificate that is shown to it, if any.
    pub identity: Option<Arc<Identity>>,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A port of a Service of the plane.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// One of its ports.
        port: u16,
    },
    /// A host and port of a URL, a name or an address (IPv6 without brackets).
    Url {
        /// A name or an address.
        host: String,
        /// A port.
        port: u16,
    },
}

/// How a server's certificate is judged. It must be for the name of the host, which is `name.namespace.svc` for Services.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// By the authorities that the machine trusts.
    System,
    /// By these authorities alone: PEM.
    Bundle(Arc<[u8]>),
    /// Not at all (`insecureSkipTLSVerify`).
    Anything,
}

/// A client certificate. Compared by its certificate.
pub struct Identity {
    /// The certificate with its chain, PEM.
    pub chain: Vec<u8>,
    /// Its key, PEM.
    pub key: Vec<u8>,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain
    }
}

impl Eq for Identity {}

impl std::hash::Hash for Identity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.chain.hash(state);
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl Trust {
    /// By a `caBundle`, PEM; by the machine's authorities where it is empty.
    pub fn of_bundle(pem: &[u8]) -> Self {
        if pem.is_empty() { Self::System } else { Self::Bundle(pem.into()) }
    }
}

impl Host {
    /// The name that the server's certificate is for.
    pub fn server_name(&self) -> String {
        match self {
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Self::Url { host, .. } => host.clone(),
        }
    }

    /// `host:port`, as a URL has it.
    pub fn authority(&self) -> String {
        let (Self::Service { port, .. } | Self::Url { port, .. }) = self;
        let name = self.server_name();
        if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
    }
}
