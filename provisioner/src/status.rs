//! The status of a ProjectControlPlane as a pure function of what was observed.

use crate::problem::Problem;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_api::{Rest, keys};
use freehold_machinery::Value;
use freehold_runtime::conditions;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// What was observed of a pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Why it could not be brought about; empty where it could.
    pub failure: String,
    /// Whether it is being removed.
    pub removing: bool,
    /// `https://ADDRESS:PORT` of a ready apiserver.
    pub endpoint: Option<String>,
    /// Whether the controller manager runs.
    pub controller_manager: bool,
    /// Whether all apiservers are of the last plan.
    pub updated: bool,
    /// The pairs that have to run before this one gets its new image, by the uids of their projects.
    pub behind: Vec<String>,
    /// What keeps a program from running.
    pub problem: Option<Problem>,
    /// Why none of its programs is to run.
    pub rest: Option<Rest>,
}

/// The condition that tells whether a pair runs as it was planned last.
pub const UPDATED: &str = "Updated";

/// The status after `before`.
///
/// `endpoint` stays when no apiserver is ready for a moment: what connects to it learns that soon enough, and a pair
/// whose process was killed is usually back at the same address. Whoever connects there checks the certificate against
/// `caBundle` for the name [`crate::plan::server_name`], not for the address.
pub fn status(before: &Value, seen: &Observed, ca_pem: &str, generation: i64, now: Timestamp) -> Value {
    let mut status = before.clone();
    if !status.is_object() {
        status = Value::Object(freehold_machinery::Map::new());
    }
    if let Some(endpoint) = &seen.endpoint {
        status["endpoint"] = endpoint.as_str().into();
    }
    status["caBundle"] = STANDARD.encode(ca_pem).into();
    status["observedGeneration"] = generation.into();
    let was_away = conditions::find(&status["conditions"], keys::READY)
        .is_some_and(|ready| ready["reason"] == keys::ASLEEP || ready["reason"] == keys::WAKING);
    let (ready, reason, message) = verdict(seen, was_away);
    let condition = conditions::Set {
        type_: keys::READY,
        status: if ready { "True" } else { "False" },
        reason,
        message: &message,
        generation: Some(generation),
    };
    conditions::set(&mut status["conditions"], condition, now);
    let (updated, reason, message) = progress(seen);
    let condition = conditions::Set {
        type_: UPDATED,
        status: if updated { "True" } else { "False" },
        reason,
        message: &message,
        generation: Some(generation),
    };
    conditions::set(&mut status["conditions"], condition, now);
    status
}

fn progress(seen: &Observed) -> (bool, &'static str, String) {
    match (&seen.problem, seen.updated) {
        _ if seen.rest.is_some() => (true, keys::ASLEEP, String::new()),
        _ if !seen.behind.is_empty() => {
            let names = seen.behind.join(", ");
            (false, "Waiting", format!("gets its new image once these pairs run with theirs: {names}"))
        }
        (Some(problem), false) => (false, problem.reason, problem.message.clone()),
        (None, false) => (false, "Updating", String::new()),
        (_, true) => (true, "UpToDate", String::new()),
    }
}

/// What is told of a pair that is ready, whatever is being changed about it.
const ALL_READY: &str = "namespace and certificates: ready, apiserver: ready, controller manager: ready";

fn verdict(seen: &Observed, was_away: bool) -> (bool, &'static str, String) {
    let word = |ready: bool| if ready { "ready" } else { "not ready" };
    let apiserver = seen.endpoint.is_some();
    let mut parts = format!(
        "namespace and certificates: ready, apiserver: {}, controller manager: {}",
        word(apiserver),
        word(seen.controller_manager)
    );
    let problem = seen.problem.as_ref();
    if let Some(problem) = problem {
        parts = format!("{parts}; {}", problem.message);
    }
    let reason = |otherwise| problem.map_or(otherwise, |problem| problem.reason);
    match seen {
        _ if seen.removing => {
            (false, "Terminating", "the pair and its namespace are being removed".to_owned())
        }
        _ if seen.rest == Some(Rest::Idle) => {
            (false, keys::ASLEEP, "nobody used the pair: the next request of a user wakes it".to_owned())
        }
        _ if seen.rest.is_some() => {
            let why = "the pair was put to rest by hand: spec.controlPlane.asleep of its project";
            (false, keys::ASLEEP, why.to_owned())
        }
        _ if !seen.failure.is_empty() => (false, "ProvisioningFailed", seen.failure.clone()),
        _ if !apiserver && was_away => (false, reason(keys::WAKING), parts),
        _ if !apiserver => (false, reason("ApiserverNotReady"), parts),
        _ if !seen.controller_manager => (false, reason("ControllerManagerNotReady"), parts),
        _ => (true, "Ready", ALL_READY.to_owned()),
    }
}

/// Counts ProjectControlPlanes by the reason of a condition; those without the condition are `Unknown`.
pub fn reasons<'a>(objects: impl Iterator<Item = &'a Value>, condition: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for object in objects {
        let found = conditions::find(&object["status"]["conditions"], condition);
        let reason = found.and_then(|found| found["reason"].as_str());
        let is_word = |reason: &&str| reason.chars().all(|c| c.is_ascii_alphanumeric());
        *counts.entry(reason.filter(is_word).unwrap_or("Unknown").to_owned()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn readiness_follows_both_programs_and_the_endpoint_stays() {
        let up = Observed { endpoint: Some("https://127.64.0.1:6443".into()), ..Observed::default() };
        let rows = [
            (Observed::default(), "False", "ApiserverNotReady", None),
            (up.clone(), "False", "ControllerManagerNotReady", Some("https://127.64.0.1:6443")),
            (
                Observed { controller_manager: true, ..up.clone() },
                "True",
                "Ready",
                Some("https://127.64.0.1:6443"),
            ),
            (Observed::default(), "False", "ApiserverNotReady", Some("https://127.64.0.1:6443")),
            (
                Observed { failure: "no".into(), ..up.clone() },
                "False",
                "ProvisioningFailed",
                Some("https://127.64.0.1:6443"),
            ),
            (Observed { removing: true, ..up }, "False", "Terminating", Some("https://127.64.0.1:6443")),
        ];
        let mut before = json!(null);
        for (seen, is, reason, endpoint) in rows {
            before = status(&before, &seen, "ca", 3, Timestamp::UNIX_EPOCH);
            let ready = &before["conditions"][0];
            assert_eq!(
                (ready["status"].as_str(), ready["reason"].as_str()),
                (Some(is), Some(reason)),
                "{seen:?}"
            );
            assert_eq!(before["endpoint"].as_str(), endpoint, "{seen:?}");
            assert_eq!(before["observedGeneration"], 3);
        }
        assert_eq!(before["conditions"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_pair_at_rest_says_so_until_its_apiserver_answers_again() {
        let up =
            Observed { endpoint: Some("https://a".into()), controller_manager: true, ..Observed::default() };
        let rows = [
            (up.clone(), "True", "Ready"),
            (Observed { rest: Some(Rest::Idle), ..up.clone() }, "False", "Asleep"),
            (Observed { rest: Some(Rest::ByHand), ..Observed::default() }, "False", "Asleep"),
            (Observed::default(), "False", "Waking"),
            (Observed::default(), "False", "Waking"),
            (Observed { controller_manager: false, ..up.clone() }, "False", "ControllerManagerNotReady"),
            (Observed::default(), "False", "ApiserverNotReady"),
            (up, "True", "Ready"),
        ];
        let mut told = json!(null);
        for (seen, is, reason) in rows {
            told = status(&told, &seen, "ca", 1, Timestamp::UNIX_EPOCH);
            let ready = conditions::find(&told["conditions"], "Ready").unwrap();
            assert_eq!((&ready["status"], &ready["reason"]), (&json!(is), &json!(reason)), "{seen:?}");
            assert_eq!(told["endpoint"], "https://a", "it stays");
        }
    }

    #[test]
    fn what_keeps_a_program_from_running_is_the_reason() {
        let problem = Problem { reason: "ImageUnavailable", message: "image \"a\": not found".into() };
        let seen = Observed { problem: Some(problem.clone()), ..Observed::default() };
        let told = status(&json!(null), &seen, "ca", 1, Timestamp::UNIX_EPOCH);
        let ready = conditions::find(&told["conditions"], "Ready").unwrap();
        assert_eq!(ready["reason"], "ImageUnavailable");
        let message = ready["message"].as_str().unwrap();
        assert!(message.ends_with("controller manager: not ready; image \"a\": not found"), "{message}");
        // A new apiserver that fails beside an old one that serves: the pair is ready, and not up to date.
        let up = Observed { endpoint: Some("https://a".into()), controller_manager: true, ..seen };
        let told = status(&told, &up, "ca", 1, Timestamp::UNIX_EPOCH);
        let find = |type_| conditions::find(&told["conditions"], type_).unwrap();
        assert_eq!(
            (&find("Ready")["status"], &find(UPDATED)["reason"]),
            (&json!("True"), &json!("ImageUnavailable"))
        );
    }

    #[test]
    fn a_pair_that_waits_for_others_says_for_which() {
        let seen = Observed { behind: vec!["a".into(), "b".into()], updated: true, ..Observed::default() };
        let told = status(&json!(null), &seen, "ca", 1, Timestamp::UNIX_EPOCH);
        let condition = conditions::find(&told["conditions"], UPDATED).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Waiting")));
        assert!(condition["message"].as_str().unwrap().ends_with(": a, b"));
    }

    #[test]
    fn pairs_are_counted_by_the_reason_of_a_condition() {
        let pair = |reason: &str| json!({"status": {"conditions": [{"type": "Ready", "reason": reason}]}});
        let pairs = [pair("Ready"), pair("Asleep"), pair("Ready"), pair("a \"b\""), json!({})];
        let counts: Vec<_> = reasons(pairs.iter(), "Ready").into_iter().collect();
        assert_eq!(counts, [("Asleep".to_owned(), 1), ("Ready".to_owned(), 2), ("Unknown".to_owned(), 2)]);
    }

    #[test]
    fn the_same_observation_gives_the_same_status() {
        let first = status(&json!({}), &Observed::default(), "ca", 1, Timestamp::UNIX_EPOCH);
        assert_eq!(status(&first, &Observed::default(), "ca", 1, Timestamp::now()), first);
    }
}
