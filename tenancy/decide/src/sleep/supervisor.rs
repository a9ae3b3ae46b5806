//! What supervisors wish for a namespace.

use super::rules::Selection;
use super::schedule::{Calendar, Transition};
use crate::target::Targets;
use freehold_machinery::time::parse_duration;
use freehold_tenancy_api::supervisor::{
    EndOfLife, LoadBalancers, ResourceSupervisorSpec, ScalableKind, SleepState, TimeToLive,
};
use jiff::{SignedDuration, Timestamp};

/// A ResourceSupervisor, compiled.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// The namespaces.
    pub targets: Targets,
    /// Priority among several supervisors: the highest counts.
    pub priority: i32,
    /// What sleeps, and how.
    pub settings: Settings,
    calendar: Calendar,
    by_hand: Option<(SleepState, Option<Timestamp>)>,
    paused: bool,
    time_to_live: Option<(SignedDuration, EndOfLife)>,
}

/// What sleeps in a namespace, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which workloads.
    pub selection: Selection,
    /// Custom resources with a `scale` subresource.
    pub scalable: Vec<ScalableKind>,
    /// Whether Services of type LoadBalancer are deleted.
    pub delete_load_balancers: bool,
    /// Whether Applications of Argo CD are held.
    pub hold_argo_cd: bool,
}

/// What becomes of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// It is asleep, with the settings of a supervisor.
    Asleep,
    /// It is awake.
    #[default]
    Awake,
    /// It stays as it is.
    Unchanged,
    /// It is deleted.
    Deleted,
}

/// A supervisor by name, as far as it decides about a namespace.
pub struct Wisher<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub supervisor: &'a Supervisor,
}

impl Supervisor {
    /// Compiles a spec.
    ///
    /// # Errors
    /// What cannot be read, with the field that has it.
    pub fn new(spec: &ResourceSupervisorSpec) -> Result<Self, String> {
        let workloads = &spec.workloads;
        let by_hand = spec.by_hand.as_ref().map(|by_hand| {
            let until = match by_hand.until.as_str() {
                "" => None,
                text => Some(
                    text.parse().map_err(|_| format!("spec.override.until: {text:?} is no RFC 3339 time"))?,
                ),
            };
            Ok::<_, String>((by_hand.state, until))
        });
        Ok(Self {
            targets: Targets::new(&spec.target).map_err(|error| format!("spec.target.selector: {error}"))?,
            priority: spec.priority,
            calendar: Calendar::new(&spec.schedules, &spec.exceptions)?,
            by_hand: by_hand.transpose()?,
            paused: spec.paused,
            time_to_live: spec.time_to_live.as_ref().map(time_to_live).transpose()?,
            settings: Settings {
                selection: Selection::new(&workloads.kinds, &workloads.excluded)?,
                scalable: workloads.scalable.clone(),
                delete_load_balancers: workloads.load_balancers == LoadBalancers::Delete,
                hold_argo_cd: workloads.hold_argo_cd,
            },
        })
    }

    /// A supervisor with a spec that cannot be read: namespaces that it names stay as they are.
    pub fn held(spec: &ResourceSupervisorSpec) -> Self {
        Self {
            targets: Targets::new(&spec.target).unwrap_or_default(),
            priority: spec.priority,
            settings: Settings::default(),
            calendar: Calendar::default(),
            by_hand: None,
            paused: true,
            time_to_live: None,
        }
    }

    /// The state at a time; `None` where nothing asks for one.
    pub fn state(&self, now: Timestamp) -> Option<SleepState> {
        match self.by_hand {
            Some((state, until)) if until.is_none_or(|until| now < until) => Some(state),
            _ => self.calendar.state(now),
        }
    }

    /// The next change of the state.
    pub fn next(&self, now: Timestamp) -> Option<Transition> {
        match self.by_hand {
            Some((_, None)) => None,
            Some((state, Some(until))) if now < until => {
                let then = self.calendar.state(until);
                if then == Some(state) {
                    self.calendar.next(until)
                } else {
                    Some(Transition { at: until, state: then })
                }
            }
            _ => self.calendar.next(now),
        }
    }

    /// Whether the supervisor changes nothing.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// When the life of a namespace ends.
    pub fn expiry(&self, created: Timestamp, annotated: Option<Timestamp>) -> Option<Timestamp> {
        let (after, _) = self.time_to_live?;
        annotated.or_else(|| created.checked_add(after).ok())
    }

    fn wish(&self, now: Timestamp, expiry: Option<Timestamp>) -> Option<Wish> {
        if self.paused {
            return Some(Wish::Unchanged);
        }
        if let (Some((_, action)), Some(expiry)) = (self.time_to_live, expiry)
            && expiry <= now
        {
            return Some(match action {
                EndOfLife::Sleep => Wish::Asleep,
                EndOfLife::Delete => Wish::Deleted,
            });
        }
        self.state(now).map(|state| match state {
            SleepState::Asleep => Wish::Asleep,
            SleepState::Awake => Wish::Awake,
        })
    }
}

fn time_to_live(ttl: &TimeToLive) -> Result<(SignedDuration, EndOfLife), String> {
    match parse_duration(&ttl.after) {
        Some(nanos) if nanos > 0 => Ok((SignedDuration::from_nanos(nanos), ttl.action)),
        _ => Err(format!("spec.timeToLive.after: {:?} is no positive duration such as 72h", ttl.after)),
    }
}

/// What becomes of a namespace that the supervisors select, and which of them decides: the first with a wish, by priority
/// and name. An override on the namespace counts more than each wish for sleeping or waking.
pub fn choose<'a>(
    wishers: &mut [Wisher<'a>],
    created: Timestamp,
    expires: Option<Timestamp>,
    by_hand: Option<SleepState>,
    now: Timestamp,
) -> (Wish, Option<&'a str>) {
    wishers.sort_by_key(|wisher| (std::cmp::Reverse(wisher.supervisor.priority), wisher.name));
    let decision = wishers.iter().find_map(|wisher| {
        let wish = wisher.supervisor.wish(now, wisher.supervisor.expiry(created, expires))?;
        Some((wish, Some(wisher.name)))
    });
    let overridden = by_hand.map(|state| match state {
        SleepState::Asleep => Wish::Asleep,
        SleepState::Awake => Wish::Awake,
    });
    match (decision, overridden, wishers.first()) {
        (Some((Wish::Deleted, by)), _, _) => (Wish::Deleted, by),
        (decision, Some(wish), Some(first)) => (wish, decision.map_or(Some(first.name), |(_, by)| by)),
        (Some(decision), _, _) => decision,
        (None, _, _) => (Wish::Awake, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_tenancy_api::supervisor::{Override, SleepSchedule};

    fn spec(priority: i32, state: Option<SleepState>) -> ResourceSupervisorSpec {
        let by_hand = state.map(|state| Override { state, until: String::new() });
        ResourceSupervisorSpec { priority, by_hand, ..Default::default() }
    }

    fn chosen(
        rows: &[(&str, ResourceSupervisorSpec)],
        by_hand: Option<SleepState>,
        now: &str,
    ) -> (Wish, Option<String>) {
        let compiled: Vec<(&str, Supervisor)> =
            rows.iter().map(|(name, spec)| (*name, Supervisor::new(spec).unwrap())).collect();
        let mut wishers: Vec<Wisher<'_>> =
            compiled.iter().map(|(name, supervisor)| Wisher { name, supervisor }).collect();
        let created = "2026-01-01T00:00:00Z".parse().unwrap();
        let (wish, by) = choose(&mut wishers, created, None, by_hand, now.parse().unwrap());
        (wish, by.map(str::to_owned))
    }

    #[test]
    fn the_highest_priority_with_a_wish_decides() {
        let now = "2026-01-02T00:00:00Z";
        let (asleep, awake) = (Some(SleepState::Asleep), Some(SleepState::Awake));
        let rows = [
            (vec![("b", spec(0, asleep)), ("a", spec(0, awake))], (Wish::Awake, Some("a".to_owned()))),
            (vec![("b", spec(1, asleep)), ("a", spec(0, awake))], (Wish::Asleep, Some("b".to_owned()))),
            (vec![("b", spec(1, None)), ("a", spec(0, asleep))], (Wish::Asleep, Some("a".to_owned()))),
            (vec![], (Wish::Awake, None)),
        ];
        for (supervisors, expected) in rows {
            assert_eq!(chosen(&supervisors, None, now), expected);
        }
        let paused = ResourceSupervisorSpec { paused: true, ..spec(5, asleep) };
        assert_eq!(chosen(&[("p", paused), ("a", spec(0, asleep))], None, now).0, Wish::Unchanged);
        assert_eq!(chosen(&[("a", spec(0, asleep))], awake, now).0, Wish::Awake);
        assert_eq!(chosen(&[], asleep, now).0, Wish::Awake, "without a supervisor nothing says what sleeps");
    }

    #[test]
    fn a_life_ends_after_its_time() {
        let spec = ResourceSupervisorSpec {
            time_to_live: Some(TimeToLive { after: "72h".into(), action: EndOfLife::Delete }),
            ..Default::default()
        };
        assert_eq!(chosen(&[("a", spec.clone())], None, "2026-01-03T23:59:59Z").0, Wish::Awake);
        assert_eq!(
            chosen(&[("a", spec.clone())], Some(SleepState::Awake), "2026-01-04T00:00:00Z").0,
            Wish::Deleted
        );
        let supervisor = Supervisor::new(&spec).unwrap();
        let later: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
        assert_eq!(supervisor.expiry("2026-01-01T00:00:00Z".parse().unwrap(), Some(later)), Some(later));
        let bad = TimeToLive { after: "soon".into(), action: EndOfLife::Sleep };
        assert!(
            Supervisor::new(&ResourceSupervisorSpec { time_to_live: Some(bad), ..Default::default() })
                .is_err()
        );
    }

    #[test]
    fn an_override_ends_and_the_schedule_counts_again() {
        let schedule =
            SleepSchedule { sleep: "0 20 * * *".into(), wake: "0 7 * * *".into(), time_zone: String::new() };
        let spec = ResourceSupervisorSpec {
            schedules: vec![schedule],
            by_hand: Some(Override { state: SleepState::Awake, until: "2026-01-01T23:00:00Z".into() }),
            ..Default::default()
        };
        let supervisor = Supervisor::new(&spec).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(supervisor.state(at("2026-01-01T21:00:00Z")), Some(SleepState::Awake));
        assert_eq!(supervisor.state(at("2026-01-01T23:00:00Z")), Some(SleepState::Asleep));
        assert_eq!(supervisor.next(at("2026-01-01T21:00:00Z")).unwrap().at, at("2026-01-01T23:00:00Z"));
    }
}
