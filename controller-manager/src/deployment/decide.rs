//! What a Deployment needs, from the ReplicaSets that are there.

use super::rolling::{Limits, Numbers, recreate, roll};
use super::status::{Facts, status};
use super::template::{DESIRED, MAX, REVISION, equal, replica_set, revision};
use crate::object::{labels, selector, selects};
use freehold_machinery::{Value, meta};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// What is known of a Deployment.
pub(super) struct Observed<'a> {
    pub(super) deployment: &'a Value,
    /// The ReplicaSets that it controls.
    pub(super) owned: Vec<Arc<Value>>,
    /// Those of its namespace that nothing controls.
    pub(super) orphans: Vec<Arc<Value>>,
    pub(super) now: Timestamp,
}

/// What can be done for a Deployment.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Create(Value),
    Adopt(String),
    /// A merge patch of a ReplicaSet, and what to tell of it.
    Patch {
        name: String,
        patch: Value,
        event: Option<String>,
    },
    Delete {
        name: String,
        uid: String,
    },
    /// Its own revision.
    Annotate(String),
    SetStatus(Value),
}

/// What is to be done, and when to look again without a cause.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) actions: Vec<Action>,
    pub(super) again: Option<Duration>,
}

pub(super) fn decide(observed: &Observed<'_>) -> Decision {
    let deployment = observed.deployment;
    // Without a selector the Deployment would take over everything; the server does not accept one like that.
    let Some(selector) = selector(deployment) else { return Decision::default() };
    let adoptable =
        observed.orphans.iter().filter(|set| selects(&selector, labels(set)) && !meta::is_deleting(set));
    let adoptions: Vec<Action> = adoptable.map(|set| Action::Adopt(meta::name(set).to_owned())).collect();
    if !adoptions.is_empty() {
        // Decide again when they are its own.
        return Decision { actions: adoptions, again: None };
    }
    let mut sets: Vec<&Value> =
        observed.owned.iter().map(|set| &**set).filter(|s| !meta::is_deleting(s)).collect();
    sets.sort_by_key(|set| (meta::text(set, "creationTimestamp"), meta::name(set)));
    let new =
        sets.iter().copied().find(|set| equal(&set["spec"]["template"], &deployment["spec"]["template"]));
    let old: Vec<&Value> =
        sets.iter().copied().filter(|set| new.is_none_or(|n| meta::uid(n) != meta::uid(set))).collect();

    let mut actions = Vec::new();
    if deployment["spec"]["paused"] == true {
        scale_while_paused(deployment, &sets, &mut actions);
    } else {
        roll_out(deployment, new, &old, &mut actions);
        clean_up(deployment, &old, &mut actions);
    }
    let (wanted, again) = status(&Facts { deployment, new, all: sets, now: observed.now });
    if wanted != deployment["status"] {
        actions.push(Action::SetStatus(wanted));
    }
    Decision { actions, again }
}

fn roll_out(deployment: &Value, new: Option<&Value>, old: &[&Value], actions: &mut Vec<Action>) {
    let limits = Limits::of(deployment);
    let old_numbers: Vec<Numbers> = old.iter().map(|set| Numbers::of(set)).collect();
    let new_numbers = new.map(Numbers::of);
    let zero = Numbers { wanted: 0, available: 0, present: 0 };
    let (grown, shrunk) = if deployment["spec"]["strategy"]["type"] == "Recreate" {
        recreate(limits, new_numbers, &old_numbers)
    } else {
        roll(limits, new_numbers.unwrap_or(zero), &old_numbers)
    };
    let next = old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
    let number = match new {
        Some(set) => revision(set).max(next),
        None => next,
    };
    match new {
        // `Recreate` makes no new pods, and so no ReplicaSet, before the old ones are gone.
        None if grown == 0 && limits.desired > 0 && !old.is_empty() => {}
        None => actions.push(Action::Create(replica_set(deployment, grown, limits.max(), number))),
        Some(set) => scale(deployment, set, grown, Some(number), actions),
    }
    for (set, size) in old.iter().zip(shrunk) {
        scale(deployment, set, size, None, actions);
    }
    if meta::annotation(deployment, REVISION) != Some(&number.to_string()) && new.is_some() {
        actions.push(Action::Annotate(number.to_string()));
    }
}

/// While paused nothing rolls out, but scaling reaches the newest ReplicaSet that has pods.
fn scale_while_paused(deployment: &Value, sets: &[&Value], actions: &mut Vec<Action>) {
    let active: Vec<&Value> = sets.iter().copied().filter(|set| Numbers::of(set).wanted > 0).collect();
    let newest = active.iter().copied().max_by_key(|set| revision(set));
    let Some(newest) = newest.or(sets.last().copied()) else { return };
    let others: i64 =
        active.iter().filter(|s| meta::uid(s) != meta::uid(newest)).map(|s| Numbers::of(s).wanted).sum();
    let size = (Limits::of(deployment).desired - others).max(0);
    scale(deployment, newest, size, None, actions);
}

fn scale(deployment: &Value, set: &Value, size: i64, revision: Option<i64>, actions: &mut Vec<Action>) {
    let (limits, before) = (Limits::of(deployment), Numbers::of(set).wanted);
    let mut patch = json!({});
    let mut event = None;
    if size != before {
        patch["spec"]["replicas"] = size.into();
        let direction = if size > before { "up" } else { "down" };
        event = Some(format!("Scaled {direction} replica set {} from {before} to {size}", meta::name(set)));
    }
    let annotations = [
        (DESIRED, Some(limits.desired.to_string())),
        (MAX, Some(limits.max().to_string())),
        (REVISION, revision.map(|r| r.to_string())),
    ];
    // A ReplicaSet without pods keeps its annotations: nobody reads them, and each write costs.
    if size > 0 || revision.is_some() {
        for (key, value) in annotations.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            if meta::annotation(set, key) != Some(&value) {
                patch["metadata"]["annotations"][key] = value.into();
            }
        }
    }
    let wait = deployment["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    if revision.is_some() && set["spec"]["minReadySeconds"].as_i64().unwrap_or(0) != wait {
        patch["spec"]["minReadySeconds"] = wait.into();
    }
    if patch != json!({}) {
        actions.push(Action::Patch { name: meta::name(set).to_owned(), patch, event });
    }
}

/// Deletes the oldest of the ReplicaSets that are kept only to go back to.
fn clean_up(deployment: &Value, old: &[&Value], actions: &mut Vec<Action>) {
    let limit = deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10);
    let is_idle = |set: &&&Value| {
        let numbers = Numbers::of(set);
        numbers.wanted == 0 && numbers.present == 0 && !super::template::is_stale(set)
    };
    let mut idle: Vec<&&Value> = old.iter().filter(is_idle).collect();
    idle.sort_by_key(|set| revision(set));
    let surplus = idle.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    for set in idle.into_iter().take(surplus) {
        actions.push(Action::Delete { name: meta::name(set).to_owned(), uid: meta::uid(set).to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(image: &str, replicas: i64) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "n", "uid": "d", "generation": 1},
            "spec": {
                "replicas": replicas, "revisionHistoryLimit": 1,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"image": image}]}},
            },
        })
    }

    fn set(image: &str, replicas: i64, revision: i64) -> Arc<Value> {
        let mut set = replica_set(&deployment(image, replicas), replicas, replicas, revision);
        set["metadata"]["uid"] = format!("uid-{image}").into();
        set["status"] =
            json!({"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas});
        Arc::new(set)
    }

    fn decided(deployment: &Value, owned: Vec<Arc<Value>>) -> Vec<Action> {
        decide(&Observed { deployment, owned, orphans: Vec::new(), now: Timestamp::UNIX_EPOCH }).actions
    }

    fn patches(actions: &[Action]) -> Vec<(&str, Option<i64>)> {
        let mut found = Vec::new();
        for action in actions {
            if let Action::Patch { name, patch, .. } = action {
                found.push((name.as_str(), patch["spec"]["replicas"].as_i64()));
            }
        }
        found
    }

    #[test]
    fn a_new_deployment_gets_a_replica_set_of_revision_1() {
        let actions = decided(&deployment("a", 3), Vec::new());
        let Action::Create(set) = &actions[0] else { panic!("{actions:?}") };
        assert_eq!((set["spec"]["replicas"].as_i64(), revision(set)), (Some(3), 1));
        assert!(matches!(&actions[1], Action::SetStatus(status) if status["observedGeneration"] == 1));
    }

    #[test]
    fn a_changed_template_rolls_out_beside_the_old_one() {
        let actions = decided(&deployment("b", 4), vec![set("a", 4, 1)]);
        let Action::Create(created) = &actions[0] else { panic!("{actions:?}") };
        assert_eq!((created["spec"]["replicas"].as_i64(), revision(created)), (Some(1), 2));
        assert_eq!(patches(&actions)[0].1, Some(3));
    }

    #[test]
    fn going_back_to_a_template_makes_it_the_newest_revision() {
        let actions = decided(&deployment("a", 1), vec![set("a", 0, 1), set("b", 1, 2)]);
        let back = set("a", 0, 1);
        let found = actions.iter().find_map(|action| match action {
            Action::Patch { name, patch, .. } if name == meta::name(&back) => Some(patch),
            _ => None,
        });
        assert_eq!(found.unwrap()["metadata"]["annotations"][REVISION], "3");
        assert!(actions.contains(&Action::Annotate("3".into())));
    }

    #[test]
    fn history_beyond_its_limit_goes_oldest_first() {
        let owned = vec![set("a", 0, 1), set("b", 0, 2), set("c", 0, 3), set("d", 2, 4)];
        let deleted: Vec<String> = decided(&deployment("d", 2), owned)
            .into_iter()
            .filter_map(|action| match action {
                Action::Delete { uid, .. } => Some(uid),
                _ => None,
            })
            .collect();
        assert_eq!(deleted, ["uid-a", "uid-b"]);
    }

    #[test]
    fn a_paused_deployment_scales_but_does_not_roll_out() {
        let mut paused = deployment("b", 5);
        paused["spec"]["paused"] = true.into();
        let actions = decided(&paused, vec![set("a", 3, 1)]);
        assert!(!actions.iter().any(|a| matches!(a, Action::Create(_))));
        assert_eq!(patches(&actions)[0].1, Some(5));
    }

    #[test]
    fn recreate_removes_the_old_pods_first() {
        let mut recreate = deployment("b", 2);
        recreate["spec"]["strategy"]["type"] = "Recreate".into();
        let actions = decided(&recreate, vec![set("a", 2, 1)]);
        assert!(!actions.iter().any(|a| matches!(a, Action::Create(_))));
        assert_eq!(patches(&actions)[0].1, Some(0));
        let actions = decided(&recreate, vec![set("a", 0, 1)]);
        assert!(matches!(&actions[0], Action::Create(set) if set["spec"]["replicas"] == 2));
    }

    #[test]
    fn a_matching_orphan_is_adopted_before_anything_else() {
        let deployment = deployment("a", 1);
        let orphan = set("a", 1, 1);
        let name = meta::name(&orphan).to_owned();
        let observed = Observed {
            deployment: &deployment,
            owned: vec![],
            orphans: vec![orphan],
            now: Timestamp::UNIX_EPOCH,
        };
        assert_eq!(decide(&observed).actions, [Action::Adopt(name)]);
    }

    #[test]
    fn a_deployment_that_makes_no_sense_is_left_alone() {
        for broken in [Value::Null, json!({"spec": {"selector": {}}}), json!({"spec": "x"})] {
            assert_eq!(decided(&broken, Vec::new()), []);
        }
    }
}
