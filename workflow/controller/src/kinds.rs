//! Types that the controllers read and write.

use freehold_client::Resource;
use freehold_workflow_api::{GROUP, VERSION};

pub(crate) const DAGS: Resource = Resource::namespaced(GROUP, VERSION, "dags");
pub(crate) const RUNS: Resource = Resource::namespaced(GROUP, VERSION, "dagruns");
pub(crate) const TASKS: Resource = Resource::namespaced(GROUP, VERSION, "dagtasks");
pub(crate) const CLUSTER_TASKS: Resource = Resource::cluster(GROUP, VERSION, "clusterdagtasks");
pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");
pub(crate) const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
pub(crate) const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
pub(crate) const CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims");
pub(crate) const REVISIONS: Resource = Resource::namespaced("apps", "v1", "controllerrevisions");
