//! Pods and pod templates, for every kind that has one.

use super::{
    containers::containers,
    field::{Errors, Field, same},
    resources::container_resources,
    rules, volumes,
};
use freehold_machinery::{Value, names};
use serde_json::json;
use std::collections::BTreeSet;

const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// What an update of a pod may change.
const MUTABLE: [&str; 4] =
    ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"];

/// A Pod.
pub(super) fn pod(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    pod_spec(&spec, errors);
    if let Some(old) = old {
        update(&spec, &old["spec"], errors);
    } else if !spec.get("ephemeralContainers").is_empty() {
        errors.push(spec.get("ephemeralContainers").forbidden("cannot be set on create"));
    }
}

/// A template; `spec` of its pods and their labels.
pub(super) fn template(template: &Field<'_>, errors: &mut Errors) {
    rules::labels(&template.get("metadata.labels").named(&path_of(template, "labels")), errors);
    pod_spec(&template.get("spec"), errors);
    let ephemeral = template.get("spec.ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
}

/// A PodTemplate.
pub(super) fn pod_template(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    template(&object.get("template"), errors);
}

fn path_of(field: &Field<'_>, below: &str) -> String {
    field.get(below).required("").field
}

/// The spec of a pod or of a template's pods.
pub(super) fn pod_spec(spec: &Field<'_>, errors: &mut Errors) {
    let pod = volumes::volumes(&spec.get("volumes"), errors);
    containers(spec, &pod, errors);
    container_resources(&spec.get("resources"), errors);
    host_network(spec, errors);
    rules::one_of(&spec.get("restartPolicy"), &RESTART_POLICIES, errors);
    rules::one_of(&spec.get("dnsPolicy"), &DNS_POLICIES, errors);
    rules::labels(&spec.get("nodeSelector"), errors);
    security(spec, errors);
    affinity(&spec.get("affinity"), errors);
    dns(spec, errors);
    spread(&spec.get("topologySpreadConstraints"), errors);
    names_of(spec, errors);
    rules::within(&spec.get("activeDeadlineSeconds"), 1, i64::from(i32::MAX), errors);
    spec.get("tolerations").items().for_each(|toleration| tolerate(&toleration, errors));
    for alias in spec.get("hostAliases").items() {
        rules::address(&alias.get("ip"), errors);
        alias.get("hostnames").items().for_each(|host| rules::name(&host, names::dns1123_subdomain, errors));
    }
    rules::optional_one_of(&spec.get("preemptionPolicy"), &["PreemptLowerPriority", "Never"], errors);
    rules::optional_one_of(&spec.get("os.name"), &["linux", "windows"], errors);
}

fn names_of(spec: &Field<'_>, errors: &mut Errors) {
    let rows: [(&str, rules::NameCheck); 6] = [
        ("serviceAccountName", names::dns1123_subdomain),
        ("nodeName", names::dns1123_subdomain),
        ("hostname", names::dns1123_label),
        ("subdomain", names::dns1123_label),
        ("priorityClassName", names::dns1123_subdomain),
        ("runtimeClassName", names::dns1123_subdomain),
    ];
    for (field, check) in rows {
        rules::optional_name(&spec.get(field), check, errors);
    }
    for gate in spec.get("schedulingGates").items() {
        rules::name(&gate.get("name"), names::qualified_name, errors);
    }
    for gate in spec.get("readinessGates").items() {
        rules::name(&gate.get("conditionType"), names::qualified_name, errors);
    }
}

fn host_network(spec: &Field<'_>, errors: &mut Errors) {
    if !spec.get("hostNetwork").flag() {
        return;
    }
    for port in spec.get("containers").items().flat_map(|container| container.get("ports").items()) {
        let number = port.get("containerPort");
        let host = port.get("hostPort").int().unwrap_or(0);
        if host != 0 && Some(host) != number.int() {
            errors.push(number.invalid("must match `hostPort` when `hostNetwork` is true"));
        }
    }
}

fn security(spec: &Field<'_>, errors: &mut Errors) {
    let context = spec.get("securityContext");
    let most = i64::from(i32::MAX);
    for id in ["fsGroup", "runAsUser", "runAsGroup"] {
        rules::within(&context.get(id), 0, most, errors);
    }
    context.get("supplementalGroups").items().for_each(|group| rules::within(&group, 0, most, errors));
    rules::optional_one_of(&context.get("fsGroupChangePolicy"), &["OnRootMismatch", "Always"], errors);
    sysctls(&context.get("sysctls"), errors);
    let shared = spec.get("shareProcessNamespace");
    if shared.flag() && spec.get("hostPID").flag() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(context.get("shareProcessNamespace").invalid_as(true, detail));
    }
}

/// Names of kernel parameters, in which dots and slashes separate.
fn sysctls(list: &Field<'_>, errors: &mut Errors) {
    const MOST: usize = 253;
    const WORDS: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let word = |word: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        !word.is_empty()
            && word.chars().all(inner)
            && !word.starts_with(['-', '_'])
            && !word.ends_with(['-', '_'])
    };
    let mut seen = BTreeSet::new();
    for sysctl in list.items() {
        let name = sysctl.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if name.text().len() > MOST || !name.text().split(['.', '/']).all(word) {
            errors.push(name.invalid(WORDS));
        } else if !seen.insert(name.text().replace('/', ".")) {
            errors.push(name.duplicate());
        }
    }
}

fn dns(spec: &Field<'_>, errors: &mut Errors) {
    let config = spec.get("dnsConfig");
    let servers = config.get("nameservers");
    if spec.get("dnsPolicy").text() == "None" {
        if !config.is_set() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            return errors.push(config.required(detail));
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.push(servers.required(detail));
        }
    }
    if servers.len() > 3 {
        errors.push(servers.invalid("must not have more than 3 nameservers"));
    }
    for server in servers.items() {
        rules::address(&server, errors);
    }
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            errors.push(config.get("options").required("must not be empty"));
        }
    }
}

fn tolerate(toleration: &Field<'_>, errors: &mut Errors) {
    let [key, operator, value, effect] =
        ["key", "operator", "value", "effect"].map(|field| toleration.get(field));
    rules::optional_name(&key, names::qualified_name, errors);
    let blamed = operator.invalid_as(operator.text(), "");
    if key.is_empty() && operator.text() != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(freehold_machinery::status::FieldError { detail: detail.into(), ..blamed });
    }
    if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(effect.invalid_as(effect.text(), detail));
    }
    match operator.text() {
        "" | "Equal" => {
            let wrong = names::label_value(value.text());
            if !wrong.is_empty() {
                errors.push(operator.invalid_as(value.text(), wrong.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(operator.invalid_as(value.text(), detail));
        }
        "Exists" => {}
        _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        rules::optional_one_of(&effect, &EFFECTS, errors);
    }
}

/// A taint of a node.
pub(super) fn taints(taints: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        rules::name(&taint.get("key"), names::qualified_name, errors);
        rules::name(&taint.get("value"), names::label_value, errors);
        rules::one_of(&taint.get("effect"), &EFFECTS, errors);
        if !seen.insert((taint.get("effect").text(), taint.get("key").text())) {
            let mut error = taint.duplicate();
            error.detail = "taints must be unique by key and effect pair".into();
            errors.push(error);
        }
    }
}

fn spread(constraints: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for constraint in constraints.items() {
        let [skew, key, when] =
            ["maxSkew", "topologyKey", "whenUnsatisfiable"].map(|field| constraint.get(field));
        if skew.int().unwrap_or(0) <= 0 {
            errors.push(skew.invalid("must be greater than zero"));
        }
        topology_key(&key, errors);
        rules::optional_one_of(&when, &["DoNotSchedule", "ScheduleAnyway"], errors);
        if !seen.insert((key.text(), when.text())) {
            let pair = format!("{{{}, {}}}", key.text(), when.text());
            errors.push(constraint.get("{topologyKey, whenUnsatisfiable}").duplicate_as(pair));
        }
        rules::label_selector(&constraint.get("labelSelector"), errors);
    }
}

fn topology_key(key: &Field<'_>, errors: &mut Errors) {
    if key.is_empty() {
        errors.push(key.required("can not be empty"));
    } else {
        rules::name(key, names::qualified_name, errors);
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn affinity(affinity: &Field<'_>, errors: &mut Errors) {
    let node = affinity.get("nodeAffinity");
    let required = node.get(REQUIRED);
    if required.is_set() {
        node_selector(&required, errors);
    }
    for term in node.get(PREFERRED).items() {
        weight(&term, errors);
        node_term(&term.get("preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"].map(|kind| affinity.get(kind)) {
        kind.get(REQUIRED).items().for_each(|term| pod_term(&term, errors));
        for term in kind.get(PREFERRED).items() {
            weight(&term, errors);
            pod_term(&term.get("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Field<'_>, errors: &mut Errors) {
    let weight = term.get("weight");
    if !(1..=100).contains(&weight.int().unwrap_or(0)) {
        errors.push(weight.invalid("must be in the range 1-100"));
    }
}

/// A selector of nodes, of a pod or a volume.
pub(super) fn node_selector(selector: &Field<'_>, errors: &mut Errors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(terms.required("must have at least one node selector term"));
    }
    terms.items().for_each(|term| node_term(&term, errors));
}

fn node_term(term: &Field<'_>, errors: &mut Errors) {
    term.get("matchExpressions").items().for_each(|e| rules::node_requirement(&e, errors));
}

fn pod_term(term: &Field<'_>, errors: &mut Errors) {
    rules::label_selector(&term.get("labelSelector"), errors);
    rules::label_selector(&term.get("namespaceSelector"), errors);
    term.get("namespaces").items().for_each(|name| rules::name(&name, names::dns1123_label, errors));
    topology_key(&term.get("topologyKey"), errors);
}

/// What an update may not change, emptied of what it may.
fn fixed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let Some(map) = spec.as_object_mut() else { return spec };
    MUTABLE.iter().for_each(|field| drop(map.remove(*field)));
    for list in ["containers", "initContainers"] {
        for container in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    spec
}

fn update(spec: &Field<'_>, old: &Value, errors: &mut Errors) {
    if !same(&fixed(spec.value), &fixed(old)) {
        errors.push(spec.forbidden(
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
             (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
             (allow it to be set to 1 if it was previously negative)",
        ));
    }
    deadline(&spec.get("activeDeadlineSeconds"), old["activeDeadlineSeconds"].as_i64(), errors);
    let kept = |toleration: &Value| {
        let bare = |value: &Value| {
            let mut value = value.clone();
            value["tolerationSeconds"] = json!(null);
            value
        };
        spec.get("tolerations").items().any(|t| same(&bare(t.value), &bare(toleration)))
    };
    if !old["tolerations"].as_array().into_iter().flatten().all(kept) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(spec.get("tolerations").forbidden(detail));
    }
    let before: BTreeSet<&str> =
        old["schedulingGates"].as_array().into_iter().flatten().filter_map(|g| g["name"].as_str()).collect();
    for gate in spec.get("schedulingGates").items() {
        let name = gate.get("name").text();
        if !before.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(gate.forbidden(detail));
        }
    }
}

fn deadline(deadline: &Field<'_>, old: Option<i64>, errors: &mut Errors) {
    let Some(before) = old else { return };
    match deadline.int() {
        Some(now) if now > before => {
            errors.push(deadline.invalid("must be less than or equal to previous value"));
        }
        None => errors.push(deadline.invalid("must not update from a positive integer to nil value")),
        Some(_) => {}
    }
}
