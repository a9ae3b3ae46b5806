//! Which controllers leave a plane to others.

use freehold_machinery::PlaneId;
use freehold_runtime::{Control, Planes};

/// Controllers that work in every plane, as nobody else could: they hold the platform's keys, or look after its own kinds.
const ALWAYS: &[&str] = &["certificate-signing", "service-account-token", "api-rollout"];

/// Controllers that make Pods. Nothing runs in the core plane, which all organizations share: one of them could fill it with
/// a single object.
const WORKLOADS: &[&str] =
    &["deployment", "replica-set", "replication-controller", "stateful-set", "daemon-set", "job", "cron-job"];

/// Controllers whose work a shared cluster does for the Pods that it runs: the state that the syncer brings back from it would
/// be undone here.
const OF_CLUSTERS: &[&str] = &["persistentvolume-binder-controller", "service-lb-controller"];

/// Whether a controller leaves a plane alone.
pub(crate) fn leaves(controller: &str, plane: &PlaneId, planes: &Planes) -> bool {
    let is_left = match planes.control(plane) {
        Control::Ours => false,
        Control::Cluster => OF_CLUSTERS.contains(&controller),
        Control::Others => !ALWAYS.contains(&controller),
    };
    is_left || plane.is_core() && WORKLOADS.contains(&controller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::{Client, Config, Identity};

    #[test]
    fn claims_and_addresses_of_pods_on_a_shared_cluster_are_left_to_it() {
        let nowhere = Config::new("http://127.0.0.1:1", "", Identity::None);
        let planes = Planes::all(Client::new(&nowhere).unwrap());
        let plane: PlaneId = "p".parse().unwrap();
        planes.hand_over(&plane, Control::Cluster);
        for (controller, left) in [
            ("persistentvolume-binder-controller", true),
            ("service-lb-controller", true),
            ("deployment", false),
        ] {
            assert_eq!(leaves(controller, &plane, &planes), left, "{controller}");
        }
    }

    #[test]
    fn nothing_makes_pods_in_the_core_plane() {
        let nowhere = Config::new("http://127.0.0.1:1", "", Identity::None);
        let planes = Planes::all(Client::new(&nowhere).unwrap());
        for (controller, plane, left) in [
            ("job", PlaneId::core(), true),
            ("job", PlaneId::infra(), false),
            ("namespace", PlaneId::core(), false),
        ] {
            assert_eq!(leaves(controller, &plane, &planes), left, "{controller} {plane}");
        }
    }
}
