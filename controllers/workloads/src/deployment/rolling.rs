//! How many pods each ReplicaSet of a rollout may have
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#rolling-update-deployment>).

use super::template::is_stale;
use freehold_machinery::Value;

/// The numbers of one ReplicaSet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Numbers {
    /// `spec.replicas`.
    pub(super) wanted: i64,
    /// `status.availableReplicas`, as far as it is about the present spec.
    pub(super) available: i64,
    /// `status.replicas`.
    pub(super) present: i64,
}

impl Numbers {
    pub(super) fn of(set: &Value) -> Self {
        let wanted = set["spec"]["replicas"].as_i64().unwrap_or(1).max(0);
        let available = set["status"]["availableReplicas"].as_i64().unwrap_or(0).max(0);
        // A status from before the last scaling may still count pods that are on their way out.
        let available = if is_stale(set) { available.min(wanted) } else { available };
        Self { wanted, available, present: set["status"]["replicas"].as_i64().unwrap_or(0).max(0) }
    }
}

/// The limits of a rollout, in pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// What the Deployment wants.
    pub(super) desired: i64,
    /// How many more there may be meanwhile.
    pub(super) surge: i64,
    /// How many fewer may be available meanwhile.
    pub(super) unavailable: i64,
}

impl Limits {
    /// Reads `spec.strategy.rollingUpdate`; 25 % each where it is absent. Both 0 would stop every rollout, so then one
    /// pod may be unavailable. `Recreate` has neither.
    pub(super) fn of(deployment: &Value) -> Self {
        let spec = &deployment["spec"];
        let desired = spec["replicas"].as_i64().unwrap_or(1).max(0);
        if spec["strategy"]["type"] == "Recreate" {
            return Self { desired, surge: 0, unavailable: 0 };
        }
        let rolling = &spec["strategy"]["rollingUpdate"];
        let surge = resolve(&rolling["maxSurge"], desired, true);
        let unavailable = resolve(&rolling["maxUnavailable"], desired, false);
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable }.min(desired);
        Self { desired, surge, unavailable }
    }

    /// How many pods there may be at once.
    pub(super) fn max(&self) -> i64 {
        self.desired + self.surge
    }
}

/// A number, or a percentage of `total` that is rounded up or down.
fn resolve(value: &Value, total: i64, up: bool) -> i64 {
    let percent = match value {
        Value::Number(n) => return n.as_i64().unwrap_or(0).max(0),
        Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(25_i64),
        _ => 25,
    };
    let hundredths = percent.clamp(0, 100_000) * total;
    if up { (hundredths + 99) / 100 } else { hundredths / 100 }
}

/// The new sizes of a rolling update: of the newest ReplicaSet, and of the old ones in the order given, which is that
/// in which they shrink.
pub(super) fn roll(limits: Limits, new: Numbers, old: &[Numbers]) -> (i64, Vec<i64>) {
    let old_wanted: i64 = old.iter().map(|n| n.wanted).sum();
    let room = limits.max() - new.wanted - old_wanted;
    let grown = match new.wanted.cmp(&limits.desired) {
        std::cmp::Ordering::Less => new.wanted + room.clamp(0, limits.desired - new.wanted),
        _ => limits.desired,
    };
    (grown, shrink(limits, new, old))
}

/// Old ReplicaSets lose first what is not available, then what availability allows.
fn shrink(limits: Limits, new: Numbers, old: &[Numbers]) -> Vec<i64> {
    let mut sizes: Vec<i64> = old.iter().map(|n| n.wanted).collect();
    let total: i64 = new.wanted + sizes.iter().sum::<i64>();
    let min_available = limits.desired - limits.unavailable;
    let new_unavailable = (new.wanted - new.available).max(0);
    let mut removable = total - min_available - new_unavailable;
    for (size, numbers) in sizes.iter_mut().zip(old) {
        let sick = (numbers.wanted - numbers.available).clamp(0, removable.max(0));
        *size -= sick;
        removable -= sick;
    }
    let available: i64 = new.available + old.iter().map(|n| n.available).sum::<i64>();
    let mut spare = (available - min_available).min(removable).max(0);
    for size in &mut sizes {
        let less = (*size).min(spare);
        *size -= less;
        spare -= less;
    }
    sizes
}

/// Sizes for `Recreate`: nothing new before nothing old is left, and while that is still waited for.
pub(super) fn recreate(
    limits: Limits,
    new: Option<Numbers>,
    old: &[Numbers],
    waits: bool,
) -> (i64, Vec<i64>) {
    let gone = old.iter().all(|n| n.wanted == 0 && n.present == 0) && !waits;
    let new = if gone { limits.desired } else { new.map_or(0, |n| n.wanted) };
    (new, vec![0; old.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn n(wanted: i64, available: i64) -> Numbers {
        Numbers { wanted, available, present: wanted }
    }

    #[test]
    fn surge_rounds_up_and_unavailable_down() {
        let deployment = |surge: Value, unavailable: Value| json!({"spec": {"replicas": 10, "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}});
        let rows = [
            (json!(null), json!(null), 3, 2),
            (json!("25%"), json!("25%"), 3, 2),
            (json!(0), json!(0), 0, 1),
            (json!(2), json!(50), 2, 10),
            (json!("nonsense"), json!(-4), 3, 0),
        ];
        for (surge, unavailable, s, u) in rows {
            let limits = Limits::of(&deployment(surge.clone(), unavailable.clone()));
            assert_eq!((limits.surge, limits.unavailable), (s, u), "{surge} {unavailable}");
        }
    }

    #[test]
    fn a_rollout_keeps_its_limits_at_each_step() {
        let limits = Limits { desired: 4, surge: 1, unavailable: 1 };
        let rows = [
            // (new, old) -> (new, old)
            (n(0, 0), vec![n(4, 4)], 1, vec![3]),
            (n(1, 0), vec![n(3, 3)], 2, vec![3]),
            (n(2, 1), vec![n(3, 3)], 2, vec![2]),
            (n(4, 4), vec![n(1, 1)], 4, vec![0]),
            (n(4, 0), vec![n(0, 0)], 4, vec![0]),
            // What is sick goes first.
            (n(1, 1), vec![n(2, 0), n(2, 2)], 1, vec![0, 2]),
            // More than wanted: the newest shrinks at once.
            (n(6, 6), vec![], 4, vec![]),
        ];
        for (new, old, grown, shrunk) in rows {
            assert_eq!(roll(limits, new, &old), (grown, shrunk), "{new:?} {old:?}");
        }
    }

    #[test]
    fn a_rollout_ends_whatever_becomes_available_meanwhile() {
        let limits = Limits { desired: 10, surge: 3, unavailable: 2 };
        let (mut new, mut old) = (n(0, 0), vec![n(7, 7), n(3, 1)]);
        for _ in 0..20 {
            let (grown, shrunk) = roll(limits, new, &old);
            new = n(grown, grown.min(new.available + 1));
            old = shrunk.iter().zip(&old).map(|(size, o)| n(*size, o.available.min(*size))).collect();
            let total = new.wanted + old.iter().map(|o| o.wanted).sum::<i64>();
            let available = new.available + old.iter().map(|o| o.available).sum::<i64>();
            assert!(
                total <= limits.max() && available >= limits.desired - limits.unavailable,
                "{new:?} {old:?}"
            );
        }
        assert_eq!((new.wanted, old.iter().map(|o| o.wanted).sum::<i64>()), (10, 0));
    }

    #[test]
    fn recreating_waits_until_the_last_old_pod_is_gone() {
        let limits = Limits { desired: 3, surge: 0, unavailable: 1 };
        assert_eq!(recreate(limits, None, &[n(3, 3)], false), (0, vec![0]));
        assert_eq!(recreate(limits, None, &[n(0, 0)], true), (0, vec![0]));
        assert_eq!(
            recreate(limits, None, &[Numbers { wanted: 0, available: 0, present: 1 }], false),
            (0, vec![0])
        );
        assert_eq!(recreate(limits, None, &[n(0, 0)], false), (3, vec![0]));
    }
}
