//! When a dedicated pair rests: after the time of its class without a request of a user, or because its project says so.
//!
//! The core servers write into a ProjectControlPlane when its pair was used last, and wake it. Each decision is bound to the
//! resource version that it was made from, so that a use that comes meanwhile counts.

use super::decide::is_ready;
use freehold_api::{
    ControlPlaneMode,
    keys::{LAST_REQUEST, READY},
};
use freehold_controllers_context::object::text;
use freehold_machinery::{Value, meta, time};
use freehold_runtime::conditions;
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// The seconds of a class without use after which its pairs sleep.
pub(crate) fn after(class: &Value) -> Option<u64> {
    class["spec"]["dedicated"]["sleepAfterSeconds"].as_u64()
}

/// What is to change in the spec of a ProjectControlPlane, as a merge patch, and when to look again.
pub(crate) fn decide(
    project: &Value,
    control_plane: &Value,
    after: Option<u64>,
    now: Timestamp,
) -> (Option<Value>, Option<Duration>) {
    if meta::is_deleting(control_plane) {
        return (None, None);
    }
    // Until its plane has moved there, a pair has to answer.
    let moved = text(project, "/status/controlPlane/mode") == ControlPlaneMode::Dedicated.as_str();
    let by_hand = moved && project["spec"]["controlPlane"]["asleep"] == true;
    let (rest, again) = match (control_plane["spec"]["rest"].as_str(), by_hand) {
        (_, true) => (Some("ByHand"), None),
        (Some("ByHand"), false) => (None, None),
        (Some(rest), false) => (Some(rest), None),
        (None, false) => match after.filter(|_| moved && is_ready(control_plane)) {
            Some(after) => idle(control_plane, after, now),
            None => (None, None),
        },
    };
    let wanted = (json!(rest), json!(after));
    let spec = &control_plane["spec"];
    if (&wanted.0, &wanted.1) == (&spec["rest"], &spec["sleepAfterSeconds"]) {
        return (None, again);
    }
    let patch = json!({
        "metadata": {"resourceVersion": meta::resource_version(control_plane)},
        "spec": {"rest": wanted.0, "sleepAfterSeconds": wanted.1},
    });
    (Some(patch), again)
}

/// Whether a pair that runs has been idle for so many seconds; if not, when it will have been.
fn idle(control_plane: &Value, after: u64, now: Timestamp) -> (Option<&'static str>, Option<Duration>) {
    let ready = conditions::find(&control_plane["status"]["conditions"], READY);
    let ready = ready.and_then(|ready| ready["lastTransitionTime"].as_str()).and_then(time::parse);
    let used = meta::annotation(control_plane, LAST_REQUEST).and_then(time::parse);
    // What nobody knows anything of begins now.
    let since = used.max(ready).unwrap_or(now);
    let passed = u64::try_from(now.duration_since(since).as_secs()).unwrap_or(0);
    match after.checked_sub(passed).filter(|left| *left > 0) {
        Some(left) => (None, Some(Duration::from_secs(left))),
        None => (Some("Idle"), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(asleep: bool, mode: &str) -> Value {
        json!({"spec": {"controlPlane": {"asleep": asleep}}, "status": {"controlPlane": {"mode": mode}}})
    }

    fn pair(rest: Option<&str>, used: i64, is_ready: bool) -> Value {
        let at = |second: i64| time::format_seconds(Timestamp::from_second(second).unwrap());
        let status = if is_ready { "True" } else { "False" };
        json!({
            "metadata": {"resourceVersion": "7", "annotations": {LAST_REQUEST: at(used)}},
            "spec": {"rest": rest, "sleepAfterSeconds": 60},
            "status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": at(100)}]},
        })
    }

    #[test]
    fn a_pair_rests_after_its_time_and_where_its_project_says_so() {
        let (idle, hand) = (Some("Idle"), Some("ByHand"));
        let rows = [
            ("used a moment ago", None, 1000, true, false, None, Some(50)),
            ("idle for as long as the class says", None, 950, true, false, idle, None),
            ("not ready, perhaps on its way back", None, 950, false, false, None, None),
            ("it sleeps on", idle, 950, false, false, idle, None),
            ("it was woken", None, 1010, false, false, None, None),
            ("by hand", None, 1010, true, true, hand, None),
            ("by hand, while it sleeps", idle, 950, false, true, hand, None),
            ("taken back", hand, 950, false, false, None, None),
        ];
        let now = Timestamp::from_second(1010).unwrap();
        for (what, rest, used, is_ready, by_hand, expected, again) in rows {
            let before = pair(rest, used, is_ready);
            let (patch, next) = decide(&project(by_hand, "Dedicated"), &before, Some(60), now);
            let to = patch.as_ref().map_or(&before["spec"]["rest"], |patch| &patch["spec"]["rest"]);
            assert_eq!((to.as_str(), next), (expected, again.map(Duration::from_secs)), "{what}");
            assert_eq!(patch.is_some(), rest != expected, "{what}");
            assert!(patch.is_none_or(|patch| patch["metadata"]["resourceVersion"] == "7"), "{what}");
        }
    }

    #[test]
    fn a_pair_that_does_not_serve_its_plane_yet_is_left_running() {
        let now = Timestamp::from_second(9000).unwrap();
        assert_eq!(decide(&project(true, "Shared"), &pair(None, 1, true), Some(60), now), (None, None));
    }

    #[test]
    fn what_a_class_says_reaches_its_pairs() {
        let now = Timestamp::from_second(101).unwrap();
        let told = |after| decide(&project(false, "Dedicated"), &pair(None, 1, true), after, now).0;
        assert_eq!(told(Some(90)).unwrap()["spec"]["sleepAfterSeconds"], 90);
        assert!(told(None).unwrap()["spec"]["sleepAfterSeconds"].is_null());
        assert_eq!(told(Some(60)), None);
        let class = json!({"spec": {"dedicated": {"sleepAfterSeconds": 5}}});
        assert_eq!((after(&class), after(&json!({}))), (Some(5), None));
    }
}
