//! DenyServiceExternalIPs: Services keep their external addresses and get no new ones, because a writer could take over
//! traffic with them (CVE-2020-8554,
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#denyserviceexternalips>).

use crate::{Attributes, Lookup, Plugin, Verb, json::items};
use freehold_machinery::Result;

/// The plugin.
pub struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn validate(&self, attributes: &Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        let writes = attributes.is("", "services") && matches!(attributes.verb, Verb::Create | Verb::Update);
        let Some(service) = attributes.object().filter(|_| writes) else { return Ok(()) };
        const IPS: &str = "/spec/externalIPs";
        let known = |ip| attributes.old.is_some_and(|old| items(old, IPS).any(|other| other == ip));
        match items(service, IPS).all(known) {
            true => Ok(()),
            false => Err(attributes.forbidden("Use of external IPs is denied by admission control")),
        }
    }
}
