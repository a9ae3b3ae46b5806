//! Tables of what a StatefulSet needs next.

use super::decide::{Action, Decision, Observed, decide};
use crate::claims::Pod;
use freehold_controllers_context::pods::{Phase, PodView};
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::Key;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const NOW: i64 = 1000;

fn set(replicas: i64, change: impl FnOnce(&mut Value)) -> Value {
    let mut set = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "s", "generation": 2},
        "spec": {
            "replicas": replicas, "podManagementPolicy": "OrderedReady", "serviceName": "svc",
            "selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        },
    });
    change(&mut set["spec"]);
    set
}

/// Pods as words: ordinal, revision (`o`ld or `n`ew) and state (`r`eady, `p`ending, `u`nready, `f`ailed, `d`eleting).
fn pods(words: &str) -> Vec<Pod> {
    words.split_whitespace().map(pod).collect()
}

fn pod(word: &str) -> Pod {
    let at = word.find(|c: char| !c.is_ascii_digit()).unwrap();
    let name = format!("web-{}", &word[..at]);
    let revision = if word[at..].starts_with('o') { "old" } else { "new" };
    let state = &word[at + 1..];
    let labels = json!({
        "app": "web", "controller-revision-hash": revision, "statefulset.kubernetes.io/pod-name": name,
    });
    let view = PodView {
        uid: name.clone(),
        labels: labels.as_object().cloned(),
        phase: match state {
            "p" => Phase::Pending,
            "f" => Phase::Failed,
            _ => Phase::Running,
        },
        ready: matches!(state, "r" | "d"),
        ready_since: "1970-01-01T00:16:30Z".to_owned(),
        deleting: state == "d",
        ..PodView::default()
    };
    (Key::new(PlaneId::core(), "n", &name), Arc::new(view))
}

fn decided(set: &Value, words: &str) -> Decision {
    decide(&Observed {
        set,
        current: "old",
        update: "new",
        pods: &pods(words),
        claim: &|_| None,
        now: Timestamp::from_second(NOW).unwrap(),
    })
}

/// Steps as words: `+0` a pod of the new revision, `+0o` of the old, `-0` a deletion.
fn steps(decision: &Decision) -> String {
    let word = |action: &Action| match action {
        Action::Create { ordinal, of_current } => format!("+{ordinal}{}", if *of_current { "o" } else { "" }),
        Action::Delete { pod, .. } => pod.name.replace("web", ""),
        other => format!("{other:?}"),
    };
    decision.actions.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn ordered_pods_come_and_go_one_after_the_other() {
    for (replicas, words, expected) in [
        (3, "", "+0"),
        (3, "0np", ""),
        (3, "0nu", ""),
        (3, "0nr", "+1"),
        (3, "0nr 2nr", "+1"),
        (3, "0nd 1nr", ""),
        (3, "0nf 1nr", "-0"),
        (1, "0nr 1nr 2nr", "-2"),
        (1, "0nr 1nr 2nd", ""),
        (1, "0nr 1nu 2nr", "-2"),
        (1, "0nr 1nr 2nu", "-2"),
        (1, "0nr 1nu 2nu", ""),
        (1, "0nu 1nr", ""),
        (0, "0nu", "-0"),
    ] {
        assert_eq!(steps(&decided(&set(replicas, |_| {}), words)), expected, "{replicas}: {words}");
    }
}

#[test]
fn parallel_pods_wait_for_nothing() {
    let parallel = |replicas| set(replicas, |spec| spec["podManagementPolicy"] = "Parallel".into());
    for (replicas, words, expected) in
        [(3, "", "+0 +1 +2"), (3, "1nu", "+0 +2"), (3, "0nf 1nd", "-0 +2"), (1, "0nu 1nu 2nr", "-2 -1")]
    {
        assert_eq!(steps(&decided(&parallel(replicas), words)), expected, "{replicas}: {words}");
    }
}

#[test]
fn updates_go_from_the_highest_ordinal_to_the_partition() {
    for (partition, most, words, expected) in [
        (0, None, "0or 1or 2or", "-2"),
        (0, None, "0or 1or 2nr", "-1"),
        (2, None, "0or 1or 2nr", ""),
        (0, None, "0or 1or 2od", ""),
        (0, Some(json!(2)), "0or 1or 2or", "-2 -1"),
        (0, Some(json!("50%")), "0or 1or 2or", "-2"),
        (1, Some(json!(3)), "0or 1or 2or", "-2 -1"),
    ] {
        let set = set(3, |spec| {
            spec["updateStrategy"]["rollingUpdate"] = json!({"partition": partition});
            if let Some(most) = &most {
                spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = most.clone();
            }
        });
        assert_eq!(steps(&decided(&set, words)), expected, "{partition} {most:?}: {words}");
    }
    let on_delete = set(2, |spec| spec["updateStrategy"] = json!({"type": "OnDelete"}));
    assert_eq!(steps(&decided(&on_delete, "0or 1or")), "");
    assert_eq!(steps(&decided(&on_delete, "0or")), "+1");
}

#[test]
fn pods_below_the_partition_come_again_with_the_old_revision() {
    let set = set(3, |spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = 2.into());
    assert_eq!(steps(&decided(&set, "1or 2nr")), "+0o");
    assert_eq!(steps(&decided(&set, "0or 1or")), "+2");
}

#[test]
fn ordinals_begin_where_the_set_says() {
    let set = set(2, |spec| spec["ordinals"] = json!({"start": 5}));
    assert_eq!(steps(&decided(&set, "")), "+5");
    assert_eq!(steps(&decided(&set, "4nr 5nr 6nr")), "-4");
    assert_eq!(steps(&decided(&set, "5or 6or")), "-6");
}

#[test]
fn a_pod_counts_when_it_was_ready_for_long_enough() {
    let slow = set(2, |spec| spec["minReadySeconds"] = 30.into());
    let decision = decided(&slow, "0nr");
    assert_eq!(steps(&decision), "", "it is not available yet");
    assert_eq!(decision.again, Some(Duration::from_secs(20)));
    assert_eq!(
        (&decision.status["readyReplicas"], &decision.status["availableReplicas"]),
        (&json!(1), &json!(0))
    );
}

#[test]
fn the_status_counts_revisions_until_all_pods_have_the_new_one() {
    let status = decided(&set(3, |_| {}), "0or 1nr 2nr").status;
    let expected = json!({
        "observedGeneration": 2, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": null,
        "updatedReplicas": 2, "currentRevision": "old", "updateRevision": "new", "collisionCount": 0,
    });
    assert_eq!(status, expected, "the last old one is being deleted");
    let status = decided(&set(2, |_| {}), "0nr 1nr").status;
    assert_eq!((&status["currentRevision"], &status["currentReplicas"]), (&json!("new"), &json!(2)));
}

#[test]
fn a_set_that_is_being_deleted_tells_its_status_alone() {
    let mut set = set(3, |_| {});
    set["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let decision = decided(&set, "0nr");
    assert_eq!((steps(&decision).as_str(), &decision.status["replicas"]), ("", &json!(1)));
}

#[test]
fn a_pod_that_lost_its_identity_or_claims_gets_them_again() {
    let with_claims = set(1, |spec| spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}]));
    let decision = decided(&with_claims, "0nr");
    assert!(matches!(decision.actions[..], [Action::Repair { ordinal: 0, .. }]), "{decision:?}");
    let decision = decided(&with_claims, "0np");
    assert_eq!(decision.actions, [Action::Claims { ordinal: 0 }]);
}
