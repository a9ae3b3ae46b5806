//! What a Deployment needs, from the ReplicaSets that are there.

use super::proportion::{Sized, proportional};
use super::rolling::{Limits, Numbers, recreate, roll};
use super::status::{Course, Facts, is_complete, status};
use super::template::{
    DESIRED, MAX, REVISION, ROLLBACK, annotations_of, equal, history, is_stale, replica_set, revision,
    rolled_back,
};
use freehold_controllers_context::object::{labels, selector, selects};
use freehold_machinery::{Value, meta};
use freehold_runtime::EventType;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// What is known of a Deployment.
pub(super) struct Observed<'a> {
    pub(super) deployment: &'a Value,
    /// The ReplicaSets that it controls.
    pub(super) owned: Vec<Arc<Value>>,
    /// ReplicaSets of its namespace that nothing controls.
    pub(super) orphans: Vec<Arc<Value>>,
    /// Whether pods of ReplicaSets other than the one with this uid have not ended.
    pub(super) others_run: &'a dyn Fn(&str) -> bool,
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
    /// A merge patch of the Deployment itself.
    PatchOwn(Value),
    /// Its status and, with it, its own revision.
    SetStatus(Value, Option<String>),
    Event(EventType, &'static str, String),
}

/// What is to be done, and when to look again without a cause.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) actions: Vec<Action>,
    pub(super) again: Option<Duration>,
}

/// The ReplicaSets of a Deployment, oldest first.
struct Sets<'a> {
    deployment: &'a Value,
    /// The one of the present template.
    new: Option<&'a Value>,
    old: Vec<&'a Value>,
    all: Vec<&'a Value>,
}

pub(super) fn decide(observed: &Observed<'_>) -> Decision {
    let deployment = observed.deployment;
    // Without a selector the Deployment would take over everything; the server does not accept one like that.
    let Some(selector) = selector(deployment) else { return selects_all(deployment) };
    let adoptable =
        observed.orphans.iter().filter(|set| selects(&selector, labels(set)) && !meta::is_deleting(set));
    let adoptions: Vec<Action> = adoptable.map(|set| Action::Adopt(meta::name(set).to_owned())).collect();
    if !adoptions.is_empty() && !meta::is_deleting(deployment) {
        // Decide again when they are its own.
        return Decision { actions: adoptions, again: None };
    }
    let sets = Sets::of(deployment, &observed.owned);
    let mut actions = Vec::new();
    let paused = deployment["spec"]["paused"] == true;
    let rolls_back = meta::annotation(deployment, ROLLBACK).and_then(|to| to.parse::<i64>().ok());
    if let Some(to) = rolls_back.filter(|_| !paused && !meta::is_deleting(deployment)) {
        return roll_back(&sets, to);
    }
    let mut course = Course::Settled;
    let mut own_revision = None;
    if !meta::is_deleting(deployment) {
        own_revision = keep_revision(&sets, &mut actions);
        if paused || is_scaled(&sets) {
            scale_all(&sets, &mut actions);
            if paused {
                clean_up(&sets, &mut actions);
            }
        } else {
            course = roll_out(&sets, observed.others_run, &mut actions);
            if is_complete(deployment, &deployment["status"]) {
                clean_up(&sets, &mut actions);
            }
        }
    }
    if let Some(Action::Create(set)) = actions.iter().find(|a| matches!(a, Action::Create(_))) {
        own_revision = Some(revision(set).to_string());
    }
    let facts = Facts { deployment, new: sets.new, all: &sets.all, course, now: observed.now };
    let (wanted, again) = status(&facts);
    let own_revision = own_revision.filter(|r| meta::annotation(deployment, REVISION) != Some(r));
    if wanted != deployment["status"] || own_revision.is_some() {
        actions.push(Action::SetStatus(wanted, own_revision));
    }
    Decision { actions, again }
}

/// Says that a selector is missing.
fn selects_all(deployment: &Value) -> Decision {
    if deployment["spec"]["selector"] != json!({}) {
        return Decision::default();
    }
    let message = "This deployment is selecting all pods. A non-empty selector is required.";
    let mut actions = vec![Action::Event(EventType::Warning, "SelectingAll", message.to_owned())];
    if is_stale(deployment) {
        let generation = freehold_controllers_context::object::generation(deployment);
        actions.push(Action::SetStatus(json!({"observedGeneration": generation}), None));
    }
    Decision { actions, again: None }
}

impl<'a> Sets<'a> {
    fn of(deployment: &'a Value, owned: &'a [Arc<Value>]) -> Self {
        let mut all: Vec<&Value> = owned.iter().map(|set| &**set).filter(|s| !meta::is_deleting(s)).collect();
        all.sort_by_key(|set| (meta::text(set, "creationTimestamp"), meta::name(set)));
        let template = &deployment["spec"]["template"];
        let new = all.iter().copied().find(|set| equal(&set["spec"]["template"], template));
        let old =
            all.iter().copied().filter(|set| new.is_none_or(|n| meta::uid(n) != meta::uid(set))).collect();
        Self { deployment, new, old, all }
    }

    fn active(&self) -> Vec<&'a Value> {
        self.all.iter().copied().filter(|set| Numbers::of(set).wanted > 0).collect()
    }

    /// The revision that the new ReplicaSet has or gets.
    fn revision(&self) -> i64 {
        let next = self.old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
        self.new.map_or(next, |set| revision(set).max(next))
    }
}

/// Brings the annotations of the new ReplicaSet up to date; gives its revision.
fn keep_revision(sets: &Sets<'_>, actions: &mut Vec<Action>) -> Option<String> {
    let (deployment, set) = (sets.deployment, sets.new?);
    let number = sets.revision();
    let mut patch = json!({});
    for (key, value) in annotations_of(deployment) {
        if meta::annotation(set, key) != value.as_str() {
            patch["metadata"]["annotations"][key] = value.clone();
        }
    }
    if revision(set) < number {
        patch["metadata"]["annotations"][REVISION] = number.to_string().into();
        if let Some((key, value)) = history(set) {
            patch["metadata"]["annotations"][key] = value.into();
        }
    }
    let wait = deployment["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    if set["spec"]["minReadySeconds"].as_i64().unwrap_or(0) != wait {
        patch["spec"]["minReadySeconds"] = wait.into();
    }
    if patch != json!({}) {
        actions.push(Action::Patch { name: meta::name(set).to_owned(), patch, event: None });
    }
    Some(number.to_string())
}

/// Whether the Deployment was scaled since its ReplicaSets were.
fn is_scaled(sets: &Sets<'_>) -> bool {
    let desired = Limits::of(sets.deployment).desired;
    let noted = |set: &Value| meta::annotation(set, DESIRED).and_then(|d| d.parse::<i64>().ok());
    sets.active().into_iter().filter_map(noted).any(|noted| noted != desired)
}

/// Scales without rolling out: what is there grows or shrinks in proportion.
fn scale_all(sets: &Sets<'_>, actions: &mut Vec<Action>) {
    let (limits, active) = (Limits::of(sets.deployment), sets.active());
    let newest = || sets.new.or(sets.old.last().copied());
    let only = match active.len() {
        0 => newest(),
        1 => active.first().copied(),
        _ => None,
    };
    if let Some(set) = only {
        if Numbers::of(set).wanted != limits.desired {
            scale(sets.deployment, set, limits.desired, actions);
        }
        return;
    }
    if active.is_empty() {
        return;
    }
    let saturated = sets.new.is_some_and(|set| {
        let numbers = Numbers::of(set);
        let noted = meta::annotation(set, DESIRED).and_then(|d| d.parse::<i64>().ok());
        numbers.wanted == limits.desired
            && noted == Some(limits.desired)
            && numbers.available == limits.desired
    });
    if saturated {
        let old = active.iter().filter(|set| sets.new.is_none_or(|n| meta::uid(n) != meta::uid(set)));
        return old.for_each(|set| scale(sets.deployment, set, 0, actions));
    }
    if sets.deployment["spec"]["strategy"]["type"] == "Recreate" {
        return;
    }
    let status = sets.deployment["status"]["replicas"].as_i64().unwrap_or(0);
    let sized = active.iter().map(|set| {
        let before = meta::annotation(set, MAX).and_then(|m| m.parse().ok()).filter(|max: &i64| *max > 0);
        Sized { wanted: Numbers::of(set).wanted, max_before: before.unwrap_or(status) }
    });
    let sizes = proportional(limits, &sized.collect::<Vec<_>>());
    for (set, size) in active.iter().zip(sizes) {
        scale(sets.deployment, set, size, actions);
    }
}

fn roll_out(sets: &Sets<'_>, others_run: &dyn Fn(&str) -> bool, actions: &mut Vec<Action>) -> Course {
    let (deployment, limits) = (sets.deployment, Limits::of(sets.deployment));
    let old_numbers: Vec<Numbers> = sets.old.iter().map(|set| Numbers::of(set)).collect();
    let new_numbers = sets.new.map(Numbers::of);
    let zero = Numbers { wanted: 0, available: 0, present: 0 };
    let recreates = deployment["spec"]["strategy"]["type"] == "Recreate";
    let waits = recreates && others_run(sets.new.map_or("", meta::uid));
    let (grown, shrunk) = if recreates {
        recreate(limits, new_numbers, &old_numbers, waits)
    } else {
        roll(limits, new_numbers.unwrap_or(zero), &old_numbers)
    };
    let gone = old_numbers.iter().all(|n| n.wanted == 0 && n.present == 0) && !waits;
    let mut course = Course::Rolling;
    match sets.new {
        // `Recreate` makes no new pods, and so no ReplicaSet, before the old ones are gone.
        None if recreates && !gone => {}
        None => {
            let set = replica_set(deployment, grown, limits.max(), sets.revision());
            course = Course::Created(meta::name(&set).to_owned());
            actions.push(Action::Create(set));
        }
        Some(set) if Numbers::of(set).wanted != grown => scale(deployment, set, grown, actions),
        Some(_) => {}
    }
    for ((set, size), before) in sets.old.iter().zip(shrunk).zip(&old_numbers) {
        if size != before.wanted {
            scale(deployment, set, size, actions);
        }
    }
    course
}

/// Sets a ReplicaSet's size, and notes for which size of the Deployment that was.
fn scale(deployment: &Value, set: &Value, size: i64, actions: &mut Vec<Action>) {
    let (limits, before) = (Limits::of(deployment), Numbers::of(set).wanted);
    let mut patch = json!({});
    let mut event = None;
    if size != before {
        patch["spec"]["replicas"] = size.into();
        let direction = if size > before { "up" } else { "down" };
        event = Some(format!("Scaled {direction} replica set {} from {before} to {size}", meta::name(set)));
    }
    for (key, value) in [(DESIRED, limits.desired.to_string()), (MAX, limits.max().to_string())] {
        if meta::annotation(set, key) != Some(&value) {
            patch["metadata"]["annotations"][key] = value.into();
        }
    }
    if patch == json!({}) {
        return;
    }
    let name = meta::name(set).to_owned();
    // Its annotations may have to change too: one write is enough.
    for action in actions.iter_mut() {
        if let Action::Patch { name: earlier, patch: into, event: told } = action
            && *earlier == name
        {
            join(into, &patch);
            *told = told.take().or(event);
            return;
        }
    }
    actions.push(Action::Patch { name, patch, event });
}

/// Adds the fields of one patch to another.
fn join(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                join(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// Goes back to the template of an earlier revision, as an annotation asks; 0 means the one before.
fn roll_back(sets: &Sets<'_>, to: i64) -> Decision {
    let deployment = sets.deployment;
    let mut revisions: Vec<i64> = sets.all.iter().map(|set| revision(set)).filter(|r| *r > 0).collect();
    revisions.sort_unstable();
    let before = revisions.len().checked_sub(2).and_then(|at| revisions.get(at).copied());
    let wanted = if to == 0 { before } else { Some(to) };
    let found = wanted.and_then(|wanted| sets.all.iter().find(|set| revision(set) == wanted));
    let clear = json!({"metadata": {"annotations": {ROLLBACK: null}}});
    let warn = |reason, message: String| Action::Event(EventType::Warning, reason, message);
    let name = meta::name(deployment);
    let actions = match found {
        None => {
            let what = if to == 0 {
                "Unable to find last revision."
            } else {
                "Unable to find the revision to rollback to."
            };
            vec![warn("DeploymentRollbackRevisionNotFound", what.to_owned()), Action::PatchOwn(clear)]
        }
        Some(set) if equal(&set["spec"]["template"], &deployment["spec"]["template"]) => {
            let message =
                format!("The rollback revision contains the same template as current deployment {name:?}");
            vec![warn("DeploymentRollbackTemplateUnchanged", message), Action::PatchOwn(clear)]
        }
        Some(set) => {
            let message = format!("Rolled back deployment {name:?} to revision {}", revision(set));
            let patch = rolled_back(deployment, set);
            vec![Action::PatchOwn(patch), Action::Event(EventType::Normal, "DeploymentRollback", message)]
        }
    };
    Decision { actions, again: None }
}

/// Deletes the oldest of the ReplicaSets that are kept only to go back to.
fn clean_up(sets: &Sets<'_>, actions: &mut Vec<Action>) {
    let limit = sets.deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10);
    let mut old = sets.old.clone();
    old.sort_by_key(|set| revision(set));
    let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    let is_idle = |set: &&&Value| {
        let numbers = Numbers::of(set);
        numbers.wanted == 0 && numbers.present == 0 && !is_stale(set)
    };
    for set in old.iter().take(surplus).filter(is_idle) {
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
                "replicas": replicas, "revisionHistoryLimit": 1, "progressDeadlineSeconds": 600,
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
        let observed = Observed {
            deployment,
            owned,
            orphans: Vec::new(),
            others_run: &|_| false,
            now: Timestamp::UNIX_EPOCH,
        };
        decide(&observed).actions
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
        let Action::SetStatus(status, revision) = &actions[1] else { panic!("{actions:?}") };
        assert_eq!((status["observedGeneration"].as_i64(), revision.as_deref()), (Some(1), Some("1")));
        assert_eq!(status["conditions"][0]["reason"], "NewReplicaSetCreated");
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
        assert_eq!(
            found.unwrap()["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"],
            "1"
        );
        assert!(actions.iter().any(|a| matches!(a, Action::SetStatus(_, Some(revision)) if revision == "3")));
    }

    #[test]
    fn history_beyond_its_limit_goes_oldest_first() {
        let owned = vec![set("a", 0, 1), set("b", 0, 2), set("c", 0, 3), set("d", 2, 4)];
        let mut done = deployment("d", 2);
        assert!(
            !decided(&done, owned.clone()).iter().any(|a| matches!(a, Action::Delete { .. })),
            "not before it is done"
        );
        done["status"] =
            json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "observedGeneration": 1});
        let deleted: Vec<String> = decided(&done, owned)
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
    fn scaling_in_the_middle_of_a_rollout_keeps_the_proportion() {
        let mut rolling = deployment("b", 10);
        rolling["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
        let note = |set: Arc<Value>| {
            let mut set = (*set).clone();
            set["metadata"]["annotations"][DESIRED] = "5".into();
            set["metadata"]["annotations"][MAX] = "5".into();
            Arc::new(set)
        };
        let actions = decided(&rolling, vec![note(set("a", 3, 1)), note(set("b", 2, 2))]);
        let mut sizes: Vec<_> = patches(&actions).iter().map(|(_, size)| *size).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [Some(4), Some(6)]);
    }

    #[test]
    fn an_annotation_rolls_back_to_a_revision() {
        let owned = || vec![set("a", 0, 1), set("b", 1, 2)];
        let asked = |to: &str| {
            let mut deployment = deployment("b", 1);
            deployment["metadata"]["annotations"][ROLLBACK] = to.into();
            decided(&deployment, owned())
        };
        for to in ["0", "1"] {
            let actions = asked(to);
            let Action::PatchOwn(patch) = &actions[0] else { panic!("{actions:?}") };
            assert_eq!(patch["spec"]["template"]["spec"]["containers"][0]["image"], "a");
            assert!(patch["metadata"]["annotations"][ROLLBACK].is_null());
        }
        for (to, reason) in
            [("2", "DeploymentRollbackTemplateUnchanged"), ("7", "DeploymentRollbackRevisionNotFound")]
        {
            assert!(matches!(&asked(to)[0], Action::Event(_, found, _) if *found == reason), "{to}");
        }
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
            others_run: &|_| false,
            now: Timestamp::UNIX_EPOCH,
        };
        assert_eq!(decide(&observed).actions, [Action::Adopt(name)]);
    }

    #[test]
    fn a_deployment_that_makes_no_sense_is_left_alone() {
        for broken in [Value::Null, json!({"spec": {"selector": null}}), json!({"spec": "x"})] {
            assert_eq!(decided(&broken, Vec::new()), []);
        }
        let all = decided(&json!({"metadata": {"generation": 1}, "spec": {"selector": {}}}), Vec::new());
        assert!(matches!(&all[..], [Action::Event(_, "SelectingAll", _), Action::SetStatus(..)]), "{all:?}");
    }
}
