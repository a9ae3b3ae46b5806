//! Where a server is.

/// A server's URL, and the name that TLS asks for where that is not its host.
pub(super) type Address = (String, Option<String>);
