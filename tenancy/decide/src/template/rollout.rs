//! In which order namespaces get a revision.

use freehold_tenancy_api::template::Rollout;

/// The instance of a group in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Child {
    /// The namespace.
    pub namespace: String,
    /// The revision that it is to hold; `None`: there is no instance yet.
    pub revision: Option<i64>,
    /// How far it is.
    pub state: RolloutState,
}

/// How far an instance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RolloutState {
    /// It did not report yet.
    #[default]
    Pending,
    /// It holds its revision.
    Ready,
    /// It could not be brought there.
    Failed,
}

/// What is to be done with the instances of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutPlan {
    /// Namespaces whose instances get the revision now.
    pub update: Vec<String>,
    /// The wave under way, from 1.
    pub wave: usize,
    /// Whether too many failed.
    pub halted: bool,
    /// Instances that hold the revision and are ready.
    pub ready: usize,
    /// Instances that are to hold it.
    pub updated: usize,
    /// Instances that are to hold it and failed.
    pub failed: usize,
}

/// How many namespaces each wave reaches.
fn sizes(rollout: &Rollout, count: usize) -> Result<Vec<usize>, String> {
    let size = |(at, text): (usize, &String)| {
        let wrong = || format!("spec.rollout.waves[{at}]: {text:?} is neither a number nor a percentage");
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: usize = percent.parse().map_err(|_| wrong())?;
                if percent > 100 { Err(wrong()) } else { Ok((count * percent).div_ceil(100)) }
            }
            None => text.parse().map_err(|_| wrong()),
        }
    };
    let mut sizes: Vec<usize> = rollout.waves.iter().enumerate().map(size).collect::<Result<_, _>>()?;
    sizes.push(count);
    // Each wave reaches at least as many as the one before it.
    let mut most = 0;
    for size in &mut sizes {
        most = most.max((*size).min(count));
        *size = most;
    }
    Ok(sizes)
}

/// The next step of a rollout. Namespaces that hold the revision already come first, the others by name; a wave begins when
/// all of the wave before it are ready.
///
/// # Errors
/// A wave that is neither a number nor a percentage.
pub fn rollout(children: &[Child], revision: i64, rollout: &Rollout) -> Result<RolloutPlan, String> {
    let mut order: Vec<&Child> = children.iter().collect();
    order.sort_by_key(|child| (child.revision != Some(revision), &child.namespace));
    let on_revision: Vec<&&Child> = order.iter().filter(|child| child.revision == Some(revision)).collect();
    let count = |state| on_revision.iter().filter(|child| child.state == state).count();
    let mut plan = RolloutPlan {
        updated: on_revision.len(),
        ready: count(RolloutState::Ready),
        failed: count(RolloutState::Failed),
        ..RolloutPlan::default()
    };
    let sizes = sizes(rollout, order.len())?;
    let is_last = |size: usize| size == order.len();
    plan.halted = plan.failed > usize::try_from(rollout.max_failures).unwrap_or(usize::MAX)
        && !rollout.waves.is_empty();
    for (at, size) in sizes.iter().enumerate() {
        plan.wave = at + 1;
        let wave = &order[..*size];
        let missing = wave.iter().filter(|child| child.revision != Some(revision));
        let missing: Vec<String> = missing.map(|child| child.namespace.clone()).collect();
        if !missing.is_empty() {
            if !plan.halted {
                plan.update = missing;
            }
            return Ok(plan);
        }
        // Failures that are allowed keep no wave waiting.
        if wave.iter().any(|child| child.state == RolloutState::Pending) || is_last(*size) {
            return Ok(plan);
        }
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use RolloutState::{Failed, Pending, Ready};

    fn children(states: &[(Option<i64>, RolloutState)]) -> Vec<Child> {
        let child = |(at, (revision, state)): (usize, &(Option<i64>, RolloutState))| Child {
            namespace: format!("n{at}"),
            revision: *revision,
            state: *state,
        };
        states.iter().enumerate().map(child).collect()
    }

    fn waves(waves: &[&str], max_failures: u32) -> Rollout {
        Rollout { waves: waves.iter().map(|w| (*w).to_owned()).collect(), max_failures }
    }

    #[test]
    fn a_wave_begins_when_the_one_before_is_ready() {
        let rollout_of = |states: &[(Option<i64>, RolloutState)]| {
            rollout(&children(states), 2, &waves(&["1", "50%"], 0)).unwrap()
        };
        let old = (Some(1), Ready);
        let first = rollout_of(&[old; 4]);
        assert_eq!((first.update, first.wave), (vec!["n0".to_owned()], 1));
        assert!(rollout_of(&[(Some(2), Pending), old, old, old]).update.is_empty());
        let second = rollout_of(&[(Some(2), Ready), old, old, old]);
        assert_eq!((second.update, second.wave), (vec!["n1".to_owned()], 2));
        let last = rollout_of(&[(Some(2), Ready), (Some(2), Ready), old, old]);
        assert_eq!((last.update, last.wave), (vec!["n2".to_owned(), "n3".to_owned()], 3));
        let done = rollout_of(&[(Some(2), Ready); 4]);
        assert_eq!((done.update.len(), done.ready, done.updated), (0, 4, 4));
    }

    #[test]
    fn too_many_failures_halt() {
        let states = [(Some(2), Failed), (Some(1), Ready), (Some(1), Ready)];
        let halted = rollout(&children(&states), 2, &waves(&["1"], 0)).unwrap();
        assert!(halted.halted && halted.update.is_empty());
        let goes_on = rollout(&children(&states), 2, &waves(&["1"], 1)).unwrap();
        assert!(!goes_on.halted);
        assert_eq!(goes_on.update, ["n1", "n2"]);
    }

    #[test]
    fn without_waves_all_get_it_at_once_and_wrong_waves_are_named() {
        let all = rollout(&children(&[(None, Pending), (Some(1), Failed)]), 2, &waves(&[], 0)).unwrap();
        assert_eq!(all.update, ["n0", "n1"]);
        assert!(
            rollout(&children(&[]), 2, &waves(&["half"], 0))
                .unwrap_err()
                .starts_with("spec.rollout.waves[0]")
        );
        assert!(rollout(&children(&[]), 2, &waves(&["101%"], 0)).is_err());
    }
}
