//! What a project needs, from what is there.

use super::kubeconfig::SecretView;
use crate::plane::Refusal;
use freehold_api::ControlPlaneMode;
use freehold_api::keys::{ASLEEP, PROJECT, READY, TERMINATING};
use freehold_controllers_context::object::{generation, text};
use freehold_machinery::{Value, meta};
use freehold_runtime::conditions::{self, Set};
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// What is known of a project that is not being deleted.
pub(crate) struct Observed<'a> {
    pub(crate) project: &'a Value,
    /// Why it is not the fork yet that it is to be.
    pub(crate) refused: Option<&'a Refusal>,
    pub(crate) organization_exists: bool,
    pub(crate) secret: Option<&'a SecretView>,
    /// Whether that Secret is as it was made, for the project as it is now.
    pub(crate) secret_made: bool,
    /// Its ProjectControlPlane, if there is one.
    pub(crate) control_plane: Option<&'a Value>,
    /// Whether its pair answers, where that was asked: otherwise why not.
    pub(crate) answer: Option<Result<(), String>>,
    /// The address of its plane.
    pub(crate) url: &'a str,
    /// Whether certificates can be signed, and how long they are valid.
    pub(crate) validity: Option<Duration>,
    pub(crate) now: Timestamp,
}

/// What can be done for a project.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    AddFinalizer,
    WriteSecret,
    CreateControlPlane,
    DeleteControlPlane,
    /// After all others.
    SetStatus(Value),
}

/// What is to be done, and when to look again without a cause.
#[derive(Debug, PartialEq)]
pub(crate) struct Decision {
    pub(crate) actions: Vec<Action>,
    pub(crate) again: Option<Duration>,
}

/// The `Ready` condition to be.
struct Ready {
    status: &'static str,
    reason: String,
    message: String,
}

impl Ready {
    fn no(reason: &str, message: impl Into<String>) -> Self {
        Self { status: "False", reason: reason.to_owned(), message: message.into() }
    }

    fn yes() -> Self {
        Self { status: "True", reason: "Ready".to_owned(), message: String::new() }
    }
}

pub(crate) fn decide(observed: &Observed<'_>) -> Decision {
    let project = observed.project;
    // Another controller manager has the authorities and looks after it: two that don't agree would never come to rest.
    if observed.validity.is_none() && observed.secret.is_some() {
        return Decision { actions: Vec::new(), again: None };
    }
    let mut actions = Vec::new();
    if !meta::finalizers(project).contains(&PROJECT) {
        actions.push(Action::AddFinalizer);
    }
    let (runs_in, ready) = decide_place(observed, &mut actions);
    let again = decide_secret(observed, &mut actions);
    let mut status = project["status"].clone();
    if let Some(mode) = runs_in {
        status["controlPlane"] =
            json!({"id": meta::uid(project), "url": observed.url, "mode": mode.as_str()});
    }
    set_condition(&mut status, project, READY, &ready, observed.now);
    if status != project["status"] {
        actions.push(Action::SetStatus(status));
    }
    Decision { actions, again }
}

/// Where the plane runs (`None`: nowhere that could be told yet) and whether the project is ready.
fn decide_place(observed: &Observed<'_>, actions: &mut Vec<Action>) -> (Option<ControlPlaneMode>, Ready) {
    let organization = text(observed.project, "/spec/ownerRef/name");
    if !observed.organization_exists {
        return (
            None,
            Ready::no("OrganizationNotFound", format!("there is no organization {organization:?}")),
        );
    }
    if observed.validity.is_none() {
        return (
            None,
            Ready::no(
                "NoSigningAuthority",
                "no authority is configured to sign the kubeconfig's certificate",
            ),
        );
    }
    if let Some(why) = observed.refused {
        return (None, Ready::no(why.reason, why.message.clone()));
    }
    let dedicated = text(observed.project, "/spec/controlPlane/mode") == ControlPlaneMode::Dedicated.as_str();
    match (dedicated, observed.control_plane) {
        (false, None) => (Some(ControlPlaneMode::Shared), Ready::yes()),
        (false, Some(_)) => {
            actions.push(Action::DeleteControlPlane);
            let ready = Ready::no("Moving", "waiting for the dedicated control plane to be gone");
            (Some(ControlPlaneMode::Dedicated), ready)
        }
        (true, None) => {
            actions.push(Action::CreateControlPlane);
            (None, Ready::no("Provisioning", "waiting for a dedicated control plane"))
        }
        (true, Some(control_plane)) => mirror(observed, control_plane),
    }
}

/// Whether a project is to move to its pair, which seems to be ready: then it has to be asked first.
pub(crate) fn wants_answer(project: &Value, control_plane: Option<&Value>) -> bool {
    let dedicated = ControlPlaneMode::Dedicated.as_str();
    text(project, "/spec/controlPlane/mode") == dedicated
        && text(project, "/status/controlPlane/mode") != dedicated
        && control_plane.is_some_and(is_ready)
}

pub(super) fn is_ready(control_plane: &Value) -> bool {
    conditions::is_true(&control_plane["status"]["conditions"], READY) && !meta::is_deleting(control_plane)
}

/// A dedicated plane is as ready as its pair is. Requests go to the pair only once it has answered on the way that they take:
/// what looks ready where it runs may be somebody else's, or not be reached from here.
fn mirror(observed: &Observed<'_>, control_plane: &Value) -> (Option<ControlPlaneMode>, Ready) {
    let list = &control_plane["status"]["conditions"];
    if is_ready(control_plane) {
        return match &observed.answer {
            Some(Err(why)) => (None, Ready::no("PairUnreachable", why.clone())),
            None if wants_answer(observed.project, Some(control_plane)) => {
                (None, Ready::no("Provisioning", "the dedicated control plane was not asked yet"))
            }
            None | Some(Ok(())) => (Some(ControlPlaneMode::Dedicated), Ready::yes()),
        };
    }
    let condition = conditions::find(list, READY);
    let field = |name: &str| condition.and_then(|c| c[name].as_str()).filter(|text| !text.is_empty());
    let reason = field("reason").unwrap_or("Provisioning");
    let message = field("message").unwrap_or("waiting for a dedicated control plane");
    // It answers who may wake it.
    if reason == ASLEEP && control_plane["spec"]["rest"] == "Idle" {
        return (None, Ready { status: "True", ..Ready::no(reason, message) });
    }
    (None, Ready::no(reason, message))
}

/// Whether the kubeconfig has to be written, and when to look at its certificate again.
fn decide_secret(observed: &Observed<'_>, actions: &mut Vec<Action>) -> Option<Duration> {
    let validity = observed.validity.filter(|_| observed.organization_exists)?;
    // Certificates renew themselves when a third of their time is left.
    let renew = i64::try_from(validity.as_secs() / 3).unwrap_or(i64::MAX);
    let left = observed.secret.map(|secret| secret.expires - renew - observed.now.as_second());
    match (observed.secret, left) {
        (Some(_), Some(left)) if observed.secret_made && left > 0 => {
            Some(Duration::from_secs(left.unsigned_abs()))
        }
        _ => {
            actions.push(Action::WriteSecret);
            None
        }
    }
}

fn set_condition(status: &mut Value, project: &Value, type_: &str, to: &Ready, now: Timestamp) {
    let generation = Some(generation(project));
    status["observedGeneration"] = generation.into();
    let set = Set { type_, status: to.status, reason: &to.reason, message: &to.message, generation };
    conditions::set(&mut status["conditions"], set, now);
}

/// The status of a project that is being deleted; `None` where it has it.
pub(crate) fn terminating(project: &Value, reason: &str, message: &str, now: Timestamp) -> Option<Value> {
    let mut status = project["status"].clone();
    set_condition(
        &mut status,
        project,
        READY,
        &Ready::no("Terminating", "the project is being deleted"),
        now,
    );
    let progress = Ready { status: "True", reason: reason.to_owned(), message: message.to_owned() };
    set_condition(&mut status, project, TERMINATING, &progress, now);
    (status != project["status"]).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALIDITY: Duration = Duration::from_secs(900);

    fn project(mode: &str) -> Value {
        json!({
            "metadata": {"name": "web", "uid": "u", "generation": 1, "finalizers": [PROJECT]},
            "spec": {"ownerRef": {"kind": "Organization", "name": "acme"}, "controlPlane": {"mode": mode}},
        })
    }

    fn secret(expires: i64) -> SecretView {
        let annotations = json!({"resourcemanager.freehold.dev/certificate-expires": expires.to_string()});
        let metadata = json!({"labels": {PROJECT: "web"}, "annotations": annotations});
        SecretView::of(json!({"metadata": metadata})).unwrap()
    }

    fn observed<'a>(project: &'a Value) -> Observed<'a> {
        Observed {
            project,
            refused: None,
            organization_exists: true,
            secret: None,
            secret_made: true,
            control_plane: None,
            answer: None,
            url: "https://h/projects/web",
            validity: Some(VALIDITY),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn status(decision: &Decision) -> &Value {
        match decision.actions.last() {
            Some(Action::SetStatus(status)) => status,
            other => panic!("{other:?} is no status"),
        }
    }

    fn ready(decision: &Decision) -> (&str, &str) {
        let condition = conditions::find(&status(decision)["conditions"], READY).unwrap();
        (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
    }

    #[test]
    fn a_new_shared_project_is_ready_with_two_requests() {
        let mut new = project("Shared");
        let decision = decide(&observed(&new));
        assert_eq!(decision.actions.len(), 2);
        assert_eq!(decision.actions[0], Action::WriteSecret);
        new["metadata"]["finalizers"] = json!([]);
        assert_eq!(decide(&observed(&new)).actions[0], Action::AddFinalizer);
        assert_eq!(ready(&decision), ("True", "Ready"));
        let plane = json!({"id": "u", "url": "https://h/projects/web", "mode": "Shared"});
        assert_eq!(status(&decision)["controlPlane"], plane);
    }

    #[test]
    fn a_settled_project_needs_nothing_until_its_certificate_ages() {
        let mut settled = project("Shared");
        settled["status"] = status(&decide(&observed(&settled))).clone();
        for (secret, secret_made, actions, again) in [
            (secret(900), true, vec![], Some(Duration::from_secs(600))),
            (secret(300), true, vec![Action::WriteSecret], None),
            (secret(900), false, vec![Action::WriteSecret], None),
        ] {
            let decision = decide(&Observed { secret: Some(&secret), secret_made, ..observed(&settled) });
            assert_eq!(decision, Decision { actions, again });
        }
    }

    #[test]
    fn a_dedicated_project_is_as_ready_as_its_control_plane() {
        let dedicated = project("Dedicated");
        let decision = decide(&observed(&dedicated));
        assert!(decision.actions.contains(&Action::CreateControlPlane));
        assert_eq!(ready(&decision), ("False", "Provisioning"));
        let rows = [
            (json!({}), ("False", "Provisioning")),
            (
                json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "NoRoom"}]}}),
                ("False", "NoRoom"),
            ),
            (
                json!({"spec": {"rest": "Idle"}, "status": {"conditions": [
                    {"type": "Ready", "status": "False", "reason": "Asleep"},
                ]}}),
                ("True", "Asleep"),
            ),
            (
                json!({"spec": {"rest": "ByHand"}, "status": {"conditions": [
                    {"type": "Ready", "status": "False", "reason": "Asleep"},
                ]}}),
                ("False", "Asleep"),
            ),
            (json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), ("True", "Ready")),
        ];
        for (control_plane, expected) in rows {
            let answer = Some(Ok(()));
            let seen = Observed { control_plane: Some(&control_plane), answer, ..observed(&dedicated) };
            assert_eq!(ready(&decide(&seen)), expected, "{control_plane}");
        }
    }

    #[test]
    fn a_shared_project_keeps_its_address_while_it_becomes_dedicated() {
        let mut moving = project("Dedicated");
        moving["status"] = status(&decide(&observed(&project("Shared")))).clone();
        let decision = decide(&observed(&moving));
        assert_eq!(status(&decision)["controlPlane"]["mode"], "Shared");
        let control_plane = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let answered = |answer: Option<Result<(), String>>| {
            decide(&Observed { control_plane: Some(&control_plane), answer, ..observed(&moving) })
        };
        assert!(wants_answer(&moving, Some(&control_plane)));
        for (answer, reason) in [(None, "Provisioning"), (Some(Err("refused".into())), "PairUnreachable")] {
            let decision = answered(answer);
            assert_eq!(status(&decision)["controlPlane"]["mode"], "Shared", "it goes on where it is");
            assert_eq!(ready(&decision), ("False", reason));
        }
        let decision = answered(Some(Ok(())));
        assert_eq!(status(&decision)["controlPlane"]["mode"], "Dedicated");
        let moved = json!({"spec": moving["spec"], "status": status(&decision)});
        assert!(!wants_answer(&moved, Some(&control_plane)), "it has moved");
    }

    #[test]
    fn a_project_that_becomes_shared_again_waits_for_its_pair_to_be_gone() {
        let decision = decide(&Observed { control_plane: Some(&json!({})), ..observed(&project("Shared")) });
        assert!(decision.actions.contains(&Action::DeleteControlPlane));
        assert_eq!(ready(&decision), ("False", "Moving"));
    }

    #[test]
    fn what_is_missing_is_said_and_nothing_is_written() {
        let shared = project("Shared");
        let rows = [
            (Observed { organization_exists: false, ..observed(&shared) }, "OrganizationNotFound"),
            (Observed { validity: None, ..observed(&shared) }, "NoSigningAuthority"),
        ];
        for (observed, reason) in rows {
            let decision = decide(&observed);
            assert_eq!(ready(&decision), ("False", reason));
            assert_eq!(decision.actions.len(), 1);
        }
        assert!(!decide(&observed(&Value::Null)).actions.is_empty(), "an empty object is tolerated");
    }

    #[test]
    fn who_has_no_authority_leaves_a_project_to_who_has() {
        let (shared, written) = (project("Shared"), secret(1));
        let decision = decide(&Observed {
            validity: None,
            secret_made: false,
            secret: Some(&written),
            ..observed(&shared)
        });
        assert_eq!((decision.actions, decision.again), (Vec::new(), None));
    }

    #[test]
    fn a_deletion_tells_its_progress() {
        let told =
            terminating(&project("Shared"), "FinalizersRemain", "2 left", Timestamp::UNIX_EPOCH).unwrap();
        assert!(
            conditions::is_true(&told["conditions"], TERMINATING)
                && !conditions::is_true(&told["conditions"], READY)
        );
        let again = json!({"metadata": {"generation": 1}, "status": told});
        assert!(terminating(&again, "FinalizersRemain", "2 left", Timestamp::now()).is_none());
    }
}
