//! Which controllers leave a plane to others.

use freehold_machinery::PlaneId;
use freehold_runtime::Planes;

/// Controllers that work in every plane, as nobody else could: they hold the platform's keys, or look after its own kinds.
const ALWAYS: &[&str] = &["certificate-signing", "service-account-token", "api-rollout"];

/// Controllers that make Pods. Nothing runs in the core plane, which all organizations share: one of them could fill it with
/// a single object.
const WORKLOADS: &[&str] =
    &["deployment", "replica-set", "replication-controller", "stateful-set", "daemon-set", "job", "cron-job"];

/// Whether a controller leaves a plane alone.
pub(crate) fn leaves(controller: &str, plane: &PlaneId, planes: &Planes) -> bool {
    let is_others = planes.is_handed_over(plane) && !ALWAYS.contains(&controller);
    is_others || plane.is_core() && WORKLOADS.contains(&controller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::{Client, Config, Identity};

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
