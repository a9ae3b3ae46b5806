//! The subsystem's policies, as `freehold install tenancy` applies them.

use crate::site::Site;
use freehold_client::Resource;
use freehold_machinery::meta;
use freehold_tenancy_admission::policies;

/// Applies policies and their bindings.
pub(crate) fn install(site: &Site) {
    for object in policies::validating().iter().chain(&policies::mutating()) {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let plural = if kind.ends_with("policy") { kind.replace("policy", "policies") } else { kind + "s" };
        let resource = Resource::dynamic("admissionregistration.k8s.io", "v1", plural, false);
        let applied = site.wait(site.client().apply(&resource, "test", object));
        applied.unwrap_or_else(|error| panic!("{}: {error}", meta::name(object)));
    }
}
