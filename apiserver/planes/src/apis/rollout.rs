//! Rollouts: which consumers of an export get its next schemas already.
//!
//! Nothing is noted of a consumer: whether it is in a stage follows from its plane, its organization and the labels of its
//! binding, for every server in the same way.

use super::compiled::TypeCache;
use freehold_api::rollouts::{ApiRolloutSpec, ApiRolloutStatus, RolloutPhase, RolloutStage};
use freehold_apiserver_cache::Entry;
use freehold_machinery::PlaneId;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Labels of a binding.
pub(super) type Labels = BTreeMap<String, String>;

/// A staged change of an export's schemas.
pub struct Rollout {
    /// The provider's plane.
    pub plane: PlaneId,
    /// Its name.
    pub name: Box<str>,
    /// The export.
    pub export: Box<str>,
    /// The names of the next schemas.
    pub schemas: Vec<Box<str>>,
    /// How many stages have them.
    pub stage: usize,
    /// Why objects of consumers may become invalid, where that was accepted.
    pub forced: Option<Box<str>>,
    pub(super) phase: RolloutPhase,
    pub(super) stages: Vec<RolloutStage>,
    /// The revision that it was made at.
    pub(super) created: u64,
    /// The revision since which the stages are what they are; later where that is not known.
    pub(super) since: u64,
    pub(super) types: TypeCache,
}

/// A plane that consumes an export, as stages look at it.
#[derive(Clone, Copy)]
pub struct Consumer<'a> {
    /// The plane.
    pub plane: &'a PlaneId,
    /// The organization that owns it.
    pub organization: &'a str,
    /// The labels of its binding.
    pub labels: &'a BTreeMap<String, String>,
}

impl Rollout {
    pub(super) fn read(plane: &PlaneId, entry: &Entry, before: Option<&Self>) -> Option<Self> {
        let object = entry.value();
        let spec = ApiRolloutSpec::deserialize(&object["spec"]).ok()?;
        let status = ApiRolloutStatus::deserialize(&object["status"]).unwrap_or_default();
        let mut rollout = Self {
            plane: plane.clone(),
            name: entry.name().into(),
            export: spec.export.into(),
            schemas: spec.schemas.into_iter().map(Into::into).collect(),
            stage: (status.stage as usize).min(spec.stages.len()),
            forced: spec.force.map(|force| force.reason.into()),
            phase: status.phase,
            stages: spec.stages,
            created: entry.created,
            since: entry.modified,
            types: TypeCache::default(),
        };
        if let Some(before) = before.filter(|before| before.serves_like(&rollout)) {
            rollout.since = before.since;
        }
        Some(rollout)
    }

    /// Whether it is neither over nor taken back.
    pub fn is_open(&self) -> bool {
        !matches!(self.phase, RolloutPhase::Complete | RolloutPhase::Reverted)
    }

    /// Whether every stage has the next schemas.
    pub fn is_at_end(&self) -> bool {
        self.is_open() && self.stage == self.stages.len()
    }

    /// Whether consumers are served the same by two states of a rollout.
    pub(super) fn serves_like(&self, other: &Self) -> bool {
        let of = |rollout: &Self| if rollout.is_open() { rollout.stage } else { 0 };
        self.created == other.created && self.schemas == other.schemas && of(self) == of(other)
    }

    /// Whether a consumer gets the next schemas.
    pub fn includes(&self, consumer: Consumer<'_>) -> bool {
        self.is_open()
            && self.stages.iter().take(self.stage).any(|stage| selects(stage, &self.name, consumer))
    }
}

/// Whether a stage of a rollout is about a consumer.
pub fn selects(stage: &RolloutStage, rollout: &str, consumer: Consumer<'_>) -> bool {
    let by_label = |(key, value): (&String, &String)| consumer.labels.get(key) == Some(value);
    stage.percent.is_some_and(|percent| place(rollout, consumer.plane) < u64::from(percent))
        || stage.organizations.iter().any(|name| name == consumer.organization)
        || !stage.labels.is_empty() && stage.labels.iter().all(by_label)
}

/// The percentile of a plane in a rollout, from 0 to 99.
fn place(rollout: &str, plane: &PlaneId) -> u64 {
    let digest = Sha256::digest(format!("freehold rollout\n{rollout}\n{plane}"));
    let first = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    first % 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planes() -> Vec<PlaneId> {
        (0..1000).map(|nth| format!("plane-{nth}").parse().unwrap()).collect()
    }

    fn by_percent(percent: u8, plane: &PlaneId) -> bool {
        let stage = RolloutStage { percent: Some(percent), ..RolloutStage::default() };
        selects(&stage, "v2", Consumer { plane, organization: "acme", labels: &Labels::new() })
    }

    #[test]
    fn consumers_of_a_smaller_percentage_are_among_those_of_a_larger() {
        let planes = planes();
        let of = |percent| planes.iter().filter(|plane| by_percent(percent, plane)).count();
        assert_eq!((of(0), of(100)), (0, 1000));
        let ten = of(10);
        assert!((60..140).contains(&ten), "{ten} of 1,000 are 10 %");
        for percent in 1..=100 {
            let lost =
                planes.iter().any(|plane| by_percent(percent - 1, plane) && !by_percent(percent, plane));
            assert!(!lost, "{percent}");
        }
    }

    #[test]
    fn two_rollouts_do_not_begin_with_the_same_consumers() {
        let planes = planes();
        let first = |rollout: &str| -> Vec<&PlaneId> {
            planes.iter().filter(|plane| place(rollout, plane) < 10).collect()
        };
        assert_eq!(first("v2"), first("v2"));
        assert_ne!(first("v2"), first("v3"));
    }

    #[test]
    fn a_stage_selects_by_organization_and_by_labels_of_the_binding() {
        let plane: PlaneId = "web".parse().unwrap();
        let labels: Labels = [("ring".to_owned(), "canary".to_owned())].into();
        let consumer = Consumer { plane: &plane, organization: "acme", labels: &labels };
        let rows = [
            (RolloutStage { organizations: vec!["acme".into()], ..RolloutStage::default() }, true),
            (RolloutStage { organizations: vec!["other".into()], ..RolloutStage::default() }, false),
            (RolloutStage { labels: labels.clone(), ..RolloutStage::default() }, true),
            (
                RolloutStage {
                    labels: [("ring".to_owned(), "late".to_owned())].into(),
                    ..RolloutStage::default()
                },
                false,
            ),
            (RolloutStage::default(), false),
        ];
        for (stage, expected) in rows {
            assert_eq!(selects(&stage, "v2", consumer), expected, "{stage:?}");
        }
    }
}
