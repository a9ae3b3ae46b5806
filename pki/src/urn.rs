//! Names in certificates that bind them to a plane.

/// What begins the URI subject alternative name that binds a client certificate to one plane. The plane's identifier
/// follows. A certificate without such a name is of the platform and means the same in every plane.
pub const PLANE_URN: &str = "urn:freehold:plane:";

/// What begins the URI subject alternative name with the generation of its plane's credentials that a certificate
/// belongs to. A certificate without such a name is of generation 0.
pub const GENERATION_URN: &str = "urn:freehold:generation:";

/// The generation of certificates that raising a plane's generation does not end: those of the servers and controllers
/// of a dedicated pair, which are replaced by whoever issues them.
pub const PERMANENT: u64 = u64::MAX;
