//! Tables of what a DaemonSet needs next.

use super::decide::{Action, Decision, Observed, decide};
use super::pod::Template;
use crate::claims::Pod;
use freehold_controllers_context::node::NodeView;
use freehold_controllers_context::pods::{Phase, PodView};
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::Key;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

fn set(strategy: Value) -> Value {
    json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "s", "generation": 4},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}}, "updateStrategy": strategy, "minReadySeconds": 10,
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"nodeSelector": {"fits": "yes"}}},
        },
    })
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    set(json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}))
}

/// Pods as words: node, revision (`o`ld or `n`ew) and state (`a`vailable, `r`eady, `u`nready, `f`ailed, `s`ucceeded,
/// `d`eleting, `w`aiting for the node).
fn pods(words: &str) -> Vec<Pod> {
    words.split_whitespace().enumerate().map(|(at, word)| pod(at, word)).collect()
}

fn pod(at: usize, word: &str) -> Pod {
    let (node, rest) = word.split_at(1);
    let (revision, state) = rest.split_at(1);
    let on = if state == "w" { "" } else { node };
    let labels = json!({"app": "d", "controller-revision-hash": if revision == "o" { "old" } else { "new" }});
    let view = PodView {
        uid: word.into(),
        labels: labels.as_object().cloned(),
        phase: match state {
            "f" => Phase::Failed,
            "s" => Phase::Succeeded,
            _ => Phase::Running,
        },
        ready: matches!(state, "a" | "r"),
        ready_since: if state == "a" { "1970-01-01T00:00:00Z" } else { "1970-01-01T00:16:35Z" }.into(),
        deleting: state == "d",
        scheduled: !on.is_empty(),
        node: on.into(),
        target: if on.is_empty() { node.into() } else { Box::default() },
        created: format!("{at}"),
        ..PodView::default()
    };
    (Key::new(PlaneId::core(), "n", word), Arc::new(view))
}

fn decided(set: &Value, nodes: &str, words: &str) -> Decision {
    let node = |name: char| {
        let labels = json!({"fits": if name.is_uppercase() { "no" } else { "yes" }});
        let view = NodeView { labels: labels.as_object().cloned(), ..NodeView::default() };
        (Key::new(PlaneId::core(), "", &name.to_string()), Arc::new(view))
    };
    let nodes: Vec<_> = nodes.chars().map(node).collect();
    let now = Timestamp::from_second(1000).unwrap();
    let observed = Observed { set, hash: "new", nodes: &nodes, pods: &pods(words), now };
    decide(&observed, &Template::of(set))
}

/// Steps as words: `+a` a pod for node `a`, `-aoa` the deletion of that pod.
fn steps(decision: &Decision) -> String {
    let word = |action: &Action| match action {
        Action::Create(node) => format!("+{node}"),
        Action::Delete(pod, _) => format!("-{}", pod.name),
        Action::Replace { pod, failed, .. } => format!("{}{}", if *failed { "!" } else { "." }, pod.name),
    };
    let mut words: Vec<String> = decision.actions.iter().map(word).collect();
    words.sort_unstable();
    words.join(" ")
}

#[test]
fn each_node_that_fits_has_one_pod() {
    let plain = rolling(json!(0), json!(1));
    for (nodes, words, expected) in [
        ("abc", "", "+a +b +c"),
        ("abC", "ana", "+b"),
        ("ab", "ana bnd", ""),
        ("ab", "anw bna", ""),
        ("aB", "ana Bna", "-Bna"),
        ("ab", "ana anu bna", "-anu"),
        ("ab", "anf bns", "!anf .bns"),
        ("a", "ana xnw", "-xnw"),
        ("a", "ana xna", ""),
    ] {
        assert_eq!(steps(&decided(&plain, nodes, words)), expected, "{nodes}: {words}");
    }
}

#[test]
fn an_update_replaces_as_many_as_may_be_unavailable() {
    for (unavailable, words, expected) in [
        (json!(1), "aoa boa coa", "-aoa"),
        (json!(2), "aoa boa coa", "-aoa -boa"),
        (json!("50%"), "aoa boa coa", "-aoa -boa"),
        (json!(1), "anu boa coa", ""),
        (json!(1), "anr boa coa", ""),
        (json!(1), "aou boa coa", "-aou"),
        (json!(2), "aou boa coa", "-aou -boa"),
        (json!(1), "aod boa coa", ""),
        (json!(1), "ana bna cna", ""),
    ] {
        let set = rolling(json!(0), unavailable.clone());
        assert_eq!(steps(&decided(&set, "abc", words)), expected, "{unavailable}: {words}");
    }
    assert_eq!(steps(&decided(&set(json!({"type": "OnDelete"})), "ab", "aoa boa")), "");
}

#[test]
fn an_update_that_surges_keeps_old_pods_until_new_ones_are_available() {
    for (surge, nodes, words, expected) in [
        (json!(1), "abc", "aoa boa coa", "+a"),
        (json!(1), "abc", "aoa anu boa coa", ""),
        (json!(1), "abc", "aoa ana boa coa", "-aoa"),
        (json!(1), "abc", "aou anu boa coa", "-aou"),
        (json!(1), "abc", "ana boa coa", "+b"),
        (json!("100%"), "abc", "aoa bou coa", "+a +b +c"),
        (json!(1), "ab", "aod boa", "+a"),
    ] {
        let set = rolling(surge.clone(), json!(0));
        assert_eq!(steps(&decided(&set, nodes, words)), expected, "{surge}: {words}");
    }
}

#[test]
fn the_status_counts_the_oldest_pod_of_each_node() {
    let decision = decided(&rolling(json!(0), json!(1)), "abcD", "ana aou bor Dna");
    let expected = json!({
        "observedGeneration": 4, "desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberMisscheduled": 1,
        "numberReady": 2, "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 2,
    });
    assert_eq!(decision.status, expected);
    assert_eq!(decision.again.map(|left| left.as_secs()), Some(5), "one becomes available");
}
