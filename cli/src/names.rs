//! Names that commands share.

use std::time::Duration;

/// How long components have to finish after a stop.
pub(crate) const STOP: Duration = Duration::from_secs(4);

/// The Lease of who runs the controllers.
pub(crate) const LEASE: &str = "freehold-controller-manager";

/// The Lease of who runs the provisioner.
pub(crate) const PROVISIONER_LEASE: &str = "freehold-provisioner";

/// The scheduler of Pods that name none.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The common name of the server towards nodes.
pub(crate) const API_SERVER: &str = "freehold-apiserver";

/// The common name of the server towards dedicated pairs.
pub(crate) const FRONT_PROXY: &str = "freehold-front-proxy";

/// Reads `--domain`: the domain of a certificate's wildcard, in lower case.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    match freehold_machinery::names::dns1123_subdomain(&text).is_empty() {
        true => Ok(text),
        false => Err("it must be a domain name, like projects.example.com".to_owned()),
    }
}
