//! What an update of a pod may change, and what its status may say.

use super::{
    containers::trimmed,
    field::{Errors, Field, same},
    rules,
};
use freehold_machinery::{Value, names};
use serde_json::json;
use std::collections::BTreeSet;

const MIRROR: &str = "kubernetes.io/config.mirror";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];
const REQUIRED_TERMS: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Checks a pod against the one before.
pub(super) fn update(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    annotations(object, old, errors);
    let (spec, before) = (object.get("spec"), &old["spec"]);
    for list in CONTAINERS {
        let containers = spec.get(list);
        if containers.len() != before[list].as_array().map_or(0, Vec::len) {
            return errors.push(containers.forbidden("pod updates may not add or remove containers"));
        }
        for container in containers.items() {
            rules::required(&container.get("image"), errors);
            trimmed(&container, errors);
        }
    }
    deadline(&spec.get("activeDeadlineSeconds"), before["activeDeadlineSeconds"].as_i64(), errors);
    tolerations(&spec.get("tolerations"), &before["tolerations"], errors);
    gates(&spec.get("schedulingGates"), &before["schedulingGates"], errors);
    let mut kept = spec.value.clone();
    restore(&mut kept, before);
    if !crate::access::is_empty(&before["schedulingGates"]) {
        directives(&spec, before, &mut kept, errors);
    }
    if !same(&kept, before) {
        errors.push(spec.forbidden_change(
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
             (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
             (allow it to be set to 1 if it was previously negative)",
            before,
            &kept,
        ));
    }
}

fn annotations(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    let (now, then) = (object.get("metadata.annotations"), &old["metadata"]["annotations"]);
    let before = Field::root(then);
    let fixed = |key: &str| key.starts_with(APP_ARMOR) || key == MIRROR;
    for (key, value) in before.entries().filter(|(key, _)| fixed(key)) {
        if now.key(key).value != value.value {
            let what = if key == MIRROR { "mirror pod annotation" } else { "AppArmor annotations" };
            errors.push(now.key(key).forbidden(format!("may not remove or update {what}")));
        }
    }
    for (key, value) in now.entries().filter(|(key, _)| fixed(key) && then[*key].is_null()) {
        let what = if key == MIRROR { "mirror pod annotation" } else { "AppArmor annotations" };
        errors.push(value.forbidden(format!("may not add {what}")));
    }
}

/// Puts back what an update may change.
fn restore(spec: &mut Value, old: &Value) {
    for list in CONTAINERS {
        let before = old[list].as_array().into_iter().flatten();
        for (container, before) in spec[list].as_array_mut().into_iter().flatten().zip(before) {
            container["image"] = before["image"].clone();
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        spec[field] = old[field].clone();
    }
    let grace = "terminationGracePeriodSeconds";
    if old[grace].as_i64().is_some_and(|before| before < 0) && spec[grace] == 1 {
        spec[grace] = old[grace].clone();
    }
}

/// While a pod is gated, the nodes that it may run on can be narrowed.
fn directives(spec: &Field<'_>, old: &Value, kept: &mut Value, errors: &mut Errors) {
    let selector = spec.get("nodeSelector");
    for (key, before) in Field::root(&old["nodeSelector"]).entries() {
        if selector.key(key).value != before.value {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.push(selector.invalid(detail));
        }
    }
    kept["nodeSelector"] = old["nodeSelector"].clone();
    let affinity = spec.get("affinity.nodeAffinity");
    let before = &old["affinity"]["nodeAffinity"];
    if same(affinity.value, before) {
        return;
    }
    if before[REQUIRED_TERMS].is_null() {
        // What was not limited yet may be limited in any way.
        kept["affinity"] = old["affinity"].clone();
        return;
    }
    node_terms(
        &affinity.get(REQUIRED_TERMS).get("nodeSelectorTerms"),
        &before[REQUIRED_TERMS]["nodeSelectorTerms"],
        errors,
    );
    if kept["affinity"].is_object() {
        kept["affinity"]["nodeAffinity"] = before.clone();
    } else {
        kept["affinity"] = json!({"nodeAffinity": before});
    }
}

fn node_terms(terms: &Field<'_>, old: &Value, errors: &mut Errors) {
    let Some(before) = old.as_array().filter(|before| !before.is_empty()) else { return };
    if terms.len() != before.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.push(terms.invalid(detail));
    }
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for (term, before) in terms.items().zip(before) {
        let extends = |field: &str| items(term.get(field).value).starts_with(&items(&before[field]));
        let was_empty =
            items(&before["matchExpressions"]).is_empty() && items(&before["matchFields"]).is_empty();
        if (was_empty && !same(term.value, before)) || !extends("matchExpressions") || !extends("matchFields")
        {
            errors.push(term.invalid("only additions are allowed (no mutations or deletions)"));
        }
    }
}

fn tolerations(now: &Field<'_>, old: &Value, errors: &mut Errors) {
    let bare = |value: &Value| {
        let mut value = value.clone();
        value["tolerationSeconds"] = Value::Null;
        value
    };
    for before in old.as_array().into_iter().flatten() {
        if !now.items().any(|toleration| same(&bare(toleration.value), &bare(before))) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            return errors.push(now.forbidden(detail));
        }
    }
    now.items().for_each(|toleration| super::placement::tolerate(&toleration, errors));
}

fn gates(now: &Field<'_>, old: &Value, errors: &mut Errors) {
    let before: BTreeSet<&str> =
        old.as_array().into_iter().flatten().filter_map(|g| g["name"].as_str()).collect();
    for name in now.items().map(|gate| gate.get("name")) {
        if !before.contains(name.text()) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            errors.push(name.forbidden(detail));
        }
    }
}

fn deadline(deadline: &Field<'_>, old: Option<i64>, errors: &mut Errors) {
    rules::within(deadline, 0, i64::from(i32::MAX), errors);
    match (deadline.int(), old) {
        (Some(now), Some(before)) if now > before => {
            errors.push(deadline.invalid("must be less than or equal to previous value"));
        }
        (None, Some(_)) => {
            errors.push(deadline.invalid("must not update from a positive integer to nil value"))
        }
        _ => {}
    }
}

/// The status of a pod.
pub(super) fn status(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    annotations(object, old, errors);
    let status = object.get("status");
    for condition in status.get("conditions").items() {
        let (generation, kind) = (condition.get("observedGeneration"), condition.get("type"));
        if generation.number() < 0 {
            errors.push(generation.invalid("must be a non-negative integer"));
        }
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind.text()) {
            rules::name(&kind.named(condition.get("Type").path()), names::qualified_name, errors);
        }
    }
    let nominated = status.get("nominatedNodeName");
    if !nominated.is_empty() && nominated.value != &old["status"]["nominatedNodeName"] {
        rules::name(&nominated, names::dns1123_subdomain, errors);
        if !crate::access::is_empty(&old["spec"]["nodeName"]) {
            errors.push(nominated.forbidden("may not be set on pods that are already bound to a node"));
        }
    }
    let generation = status.get("observedGeneration");
    if generation.number() < 0 {
        errors.push(generation.invalid("must be a non-negative integer"));
    }
    let class = status.get("qosClass");
    // One that is left out is worked out again, from what can't have changed.
    if !class.is_empty() && class.text() != old["status"]["qosClass"].as_str().unwrap_or_default() {
        errors.push(class.invalid_as(class.text(), "field is immutable"));
    }
    transitions(object, old, errors);
    addresses(&status, "podIPs", old, errors);
    let hosts = status.get("hostIPs");
    if let Some(first) = hosts.items().next().map(|host| host.get("ip"))
        && first.text() != status.get("hostIP").text()
    {
        errors.push(first.invalid_as(first.text(), "must be equal to `hostIP`"));
    }
    addresses(&status, "hostIPs", old, errors);
}

/// Containers that have ended and are not to be restarted stay so.
fn transitions(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    let restarts = old["spec"]["restartPolicy"].as_str().unwrap_or_default();
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        let now = object.get("status").get(list);
        let before = Field::root(&old["status"]).get(list);
        for (index, before) in before.items().enumerate() {
            let ended = before.get("state.terminated");
            let failed = ended.get("exitCode").number() != 0;
            let may_restart = restarts == "Always" || (restarts == "OnFailure" && failed);
            if !ended.is_set() || (may_restart && !list.starts_with("ephemeral")) {
                continue;
            }
            let name = before.get("name").text();
            for after in now.items().filter(|after| after.get("name").text() == name) {
                if !after.get("state.terminated").is_set() {
                    let at = format!("{}[{index}].state", now.path());
                    errors
                        .push(after.named(&at).forbidden("may not be transitioned to non-terminated state"));
                }
            }
        }
    }
}

fn addresses(status: &Field<'_>, list: &str, old: &Value, errors: &mut Errors) {
    let addresses = status.get(list);
    let known = |ip: &str| old["status"][list].as_array().into_iter().flatten().any(|old| old["ip"] == ip);
    for item in addresses.items().filter(|item| !known(item.get("ip").text())) {
        rules::address(&item.get("ip").named(item.path()), errors);
    }
    let families: Vec<bool> = addresses.items().map(|item| item.get("ip").text().contains(':')).collect();
    let dual = families.len() == 2 && families[0] != families[1];
    if families.len() > 1 && !dual {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(addresses.invalid(detail));
    }
}
