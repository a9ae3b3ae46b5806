//! Deployments, replica sets, stateful sets, daemon sets, replication controllers.

use super::{
    field::{Errors, Field, same},
    pods, rules, storage,
};
use freehold_machinery::{Value, names};
use serde_json::json;

/// Counts and times that are not negative, in the order in which Kubernetes looks at them.
const COUNTS: [&str; 4] = ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"];
/// What an update of a StatefulSet may change.
const STATEFUL_MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// A Deployment.
pub(super) fn deployment(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    common(&spec, "deployment", "ReplicaSet", old, errors);
    deployment_strategy(&spec.get("strategy"), errors);
    COUNTS[1..].iter().for_each(|field| rules::nonnegative(&spec.get(field), errors));
    let deadline = spec.get("progressDeadlineSeconds");
    if deadline.int().is_some_and(|seconds| seconds <= spec.get("minReadySeconds").int().unwrap_or(0)) {
        errors.push(deadline.invalid("must be greater than minReadySeconds"));
    }
}

fn deployment_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "Recreate" if rolling.is_set() => {
            errors.push(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            rules::count_or_percent(&unavailable, errors);
            rules::count_or_percent(&surge, errors);
            if rules::is_none_of_all(unavailable.value) && rules::is_none_of_all(surge.value) {
                errors.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
            }
            rules::at_most_all(&unavailable, errors);
        }
        _ => errors.push(strategy.not_supported_whole(&["Recreate", "RollingUpdate"])),
    }
}

/// A ControllerRevision.
pub(super) fn controller_revision(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    rules::nonnegative(&object.get("revision"), errors);
    let data = object.get("data");
    if !data.is_set() {
        errors.push(data.required("data is mandatory"));
    }
    if let Some(old) = old {
        rules::immutable(&data, &old["data"], errors);
    }
}

/// A ReplicaSet.
pub(super) fn replica_set(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    // Kubernetes calls it a deployment here, too.
    let spec = object.get("spec");
    common(&spec, "deployment", "ReplicaSet", old, errors);
    rules::nonnegative(&spec.get("minReadySeconds"), errors);
}

/// A DaemonSet.
pub(super) fn daemon_set(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    common(&spec, "daemonset", "DaemonSet", old, errors);
    let strategy = spec.get("updateStrategy");
    match strategy.get("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = strategy.get("rollingUpdate");
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            [&unavailable, &surge].iter().for_each(|field| rules::count_or_percent(field, errors));
            [&unavailable, &surge].iter().for_each(|field| rules::at_most_all(field, errors));
            let none = |value: &Value| {
                rules::is_none_of_all(value) || value.as_str().is_some_and(|s| !s.ends_with('%'))
            };
            match (none(unavailable.value), none(surge.value)) {
                (true, true) => errors.push(unavailable.required("cannot be 0 when maxSurge is 0")),
                (false, false) => {
                    errors.push(surge.invalid("may not be set when maxUnavailable is non-zero"));
                }
                _ => {}
            }
        }
        _ => errors.push(strategy.not_supported_whole(&["RollingUpdate", "OnDelete"])),
    }
}

/// A StatefulSet.
pub(super) fn stateful_set(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let with_claims = claims_as_volumes(object.value);
    let spec = object.with(&with_claims).get("spec");
    let policy = spec.get("podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy.text()) {
        errors.push(policy.invalid("must be 'OrderedReady' or 'Parallel'"));
    }
    stateful_strategy(&spec.get("updateStrategy"), errors);
    for when in ["whenDeleted", "whenScaled"] {
        let policy = spec.get("persistentVolumeClaimRetentionPolicy").get(when);
        rules::optional_one_of(&policy, &["Retain", "Delete"], errors);
    }
    if old.is_none() {
        for claim in spec.get("volumeClaimTemplates").items() {
            storage::claim_spec(&claim.get("spec"), errors);
        }
    }
    common(&spec, "statefulset", "StatefulSet", None, errors);
    rules::nonnegative(&spec.get("ordinals.start"), errors);
    let Some(old) = old else {
        return rules::optional_name(&spec.get("serviceName"), names::dns1123_label, errors);
    };
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        STATEFUL_MUTABLE.iter().for_each(|field| spec[*field] = Value::Null);
        spec
    };
    if !same(&fixed(&object.value["spec"]), &fixed(&old["spec"])) {
        let mutable: Vec<String> = STATEFUL_MUTABLE[..6].iter().map(|field| format!("'{field}'")).collect();
        errors.push(spec.forbidden(format!(
            "updates to statefulset spec for fields other than {} and 'minReadySeconds' are forbidden",
            mutable.join(", ")
        )));
    }
}

fn stateful_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "OnDelete" if rolling.is_set() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(rolling.invalid(detail));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rules::nonnegative(&rolling.get("partition"), errors);
        }
        _ => errors.push(strategy.invalid("must be 'RollingUpdate' or 'OnDelete'")),
    }
}

/// The claims of a StatefulSet are volumes of its pods, instead of volumes of the same name.
fn claims_as_volumes(object: &Value) -> Value {
    let mut object = object.clone();
    let claims = object["spec"]["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
    let mut claimed: Vec<Value> = Vec::new();
    for name in claims.iter().map(|claim| &claim["metadata"]["name"]) {
        if !claimed.contains(name) {
            claimed.push(name.clone());
        }
    }
    if claimed.is_empty() || !object["spec"]["template"]["spec"].is_object() {
        return object;
    }
    let spec = &mut object["spec"]["template"]["spec"];
    let mut volumes: Vec<Value> = claimed
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    let own = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.extend(own.into_iter().filter(|volume| !claimed.contains(&volume["name"])));
    spec["volumes"] = volumes.into();
    object
}

/// A ReplicationController.
pub(super) fn replication_controller(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    COUNTS.iter().for_each(|field| rules::nonnegative(&spec.get(field), errors));
    let selector = spec.get("selector");
    rules::required(&selector, errors);
    let template = spec.get("template");
    if !template.is_set() {
        return errors.push(template.required(""));
    }
    let labels = template.get("metadata.labels");
    if !selector.is_empty() && selector.entries().any(|(key, value)| labels.key(key).value != value.value) {
        let detail = "`selector` does not match template `labels`";
        errors.push(labels.invalid_as(labels.value.clone(), detail));
    }
    pods::template(&template, errors);
    restarts(&template, "ReplicationController", errors);
}

fn common(spec: &Field<'_>, kind: &str, owner: &str, old: Option<&Value>, errors: &mut Errors) {
    let counts = match kind {
        "deployment" => &COUNTS[..1],
        "statefulset" => &COUNTS[..2],
        _ => &COUNTS,
    };
    counts.iter().for_each(|field| rules::nonnegative(&spec.get(field), errors));
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    let immutable = |errors: &mut Errors| {
        if old.is_some_and(|old| !same(selector.value, &old["spec"]["selector"])) {
            errors.push(selector.invalid("field is immutable"));
        }
    };
    if kind == "daemonset" {
        immutable(errors);
    }
    if selector.is_set() {
        rules::label_selector(&selector, errors);
        if rules::is_everything(&selector) {
            errors.push(selector.invalid(format!("empty selector is invalid for {kind}")));
        }
    } else if kind != "daemonset" {
        errors.push(selector.required(""));
    }
    if rules::chooses(selector.value, &Value::Null).is_none() && selector.is_set() && kind != "daemonset" {
        let detail = if kind == "statefulset" { "" } else { "invalid label selector" };
        errors.push(selector.invalid(detail));
        if kind == "deployment" {
            return immutable(errors);
        }
    } else if !selector.is_set() || !rules::is_everything(&selector) {
        chosen(if selector.is_set() { selector.value } else { &Value::Null }, &template, errors);
    }
    if kind == "statefulset" {
        // Its own rules look at the metadata of the template too.
        pods::template_metadata(&template, errors);
    }
    pods::template(&template, errors);
    restarts(&template, owner, errors);
    if kind != "daemonset" {
        immutable(errors);
    }
}

/// The selector chooses the pods that the template makes.
pub(super) fn chosen(selector: &Value, template: &Field<'_>, errors: &mut Errors) {
    let labels = template.get("metadata.labels");
    if selector.is_null() || rules::chooses(selector, labels.value) == Some(false) {
        let shown = if labels.is_set() { labels.value.clone() } else { Value::Null };
        errors.push(labels.invalid_as(shown, "`selector` does not match template `labels`"));
    }
}

/// Pods that are kept running restart always and have no deadline.
fn restarts(template: &Field<'_>, owner: &str, errors: &mut Errors) {
    let policy = template.get("spec.restartPolicy");
    if policy.text() != "Always" {
        errors.push(policy.not_supported(&["Always"]));
    }
    let deadline = template.get("spec.activeDeadlineSeconds");
    if deadline.is_set() {
        errors.push(deadline.forbidden(format!("activeDeadlineSeconds in {owner} is not Supported")));
    }
}
