//! Where pods may run: affinity, spreading, tolerations and taints.

use super::{
    field::{Errors, Field},
    rows::{REQUIRED, Row, Rule, check},
    rules,
};
use freehold_machinery::names;
use std::collections::BTreeSet;

/// What a taint does.
pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED_TERMS: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// A toleration of a pod.
pub(super) fn tolerate(toleration: &Field<'_>, errors: &mut Errors) {
    let [key, operator, value, effect] =
        ["key", "operator", "value", "effect"].map(|field| toleration.get(field));
    if key.is_set() {
        rules::name(&key, names::qualified_name, errors);
    }
    if key.is_empty() && operator.text() != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(operator.invalid_as(operator.text(), detail));
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
        "Lt" | "Gt" => errors.push(operator.not_supported(&["Equal", "Exists", "Lt", "Gt"])),
        _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
    }
    rules::optional_one_of(&effect, &EFFECTS, errors);
}

/// The taints of a node.
pub(super) fn taints(taints: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        rules::name(&taint.get("key"), names::qualified_name, errors);
        let wrong = names::label_value(taint.get("value").text());
        if !wrong.is_empty() {
            errors.push(taint.get("value").invalid(wrong.join(";")));
        }
        rules::one_of(&taint.get("effect"), &EFFECTS, errors);
        if !seen.insert((taint.get("effect").text(), taint.get("key").text())) {
            let mut error = taint.duplicate();
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
        }
    }
}

const SPREAD: &[Row] = &[
    ("maxSkew", Rule::Positive),
    ("topologyKey", Rule::Required("can not be empty")),
    ("whenUnsatisfiable", Rule::AlwaysOneOf(&["DoNotSchedule", "ScheduleAnyway"])),
];
const NODES_COUNTED: &[Row] = &[
    ("nodeAffinityPolicy", Rule::OneOf(&["Honor", "Ignore"])),
    ("nodeTaintsPolicy", Rule::OneOf(&["Honor", "Ignore"])),
];

/// How pods are spread over a topology.
pub(super) fn spread(constraints: &Field<'_>, errors: &mut Errors) {
    let all: Vec<Field<'_>> = constraints.items().collect();
    for (index, constraint) in all.iter().enumerate() {
        let pair = |c: &Field<'_>| {
            (c.get("topologyKey").text().to_owned(), c.get("whenUnsatisfiable").text().to_owned())
        };
        let (key, when) = pair(constraint);
        check(constraint, SPREAD, errors);
        if all.iter().skip(index + 1).any(|later| pair(later) == (key.clone(), when.clone())) {
            let shown = format!("{{{key}, {when}}}");
            errors.push(constraint.get("{topologyKey, whenUnsatisfiable}").duplicate_as(shown));
        }
        let least = constraint.get("minDomains");
        if least.is_set() {
            if least.number() <= 0 {
                errors.push(least.invalid("must be greater than zero"));
            }
            if when != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}");
                errors.push(least.invalid(detail));
            }
        }
        check(constraint, NODES_COUNTED, errors);
        own_labels(constraint, errors);
        rules::label_selector(&constraint.get("labelSelector"), errors);
    }
}

/// Keys of which the pod's own values are added to the selector of a term.
fn own_labels(term: &Field<'_>, errors: &mut Errors) {
    let selector = term.get("labelSelector");
    let lists = ["matchLabelKeys", "mismatchLabelKeys"].map(|field| term.get(field));
    for list in lists.iter().filter(|list| !list.is_empty()) {
        if selector.is_set() {
            list.items().for_each(|key| rules::name(&key, names::qualified_name, errors));
        } else {
            errors.push(list.forbidden("must not be specified when labelSelector is not set"));
        }
    }
    let [matching, differing] = &lists;
    let mut selected: BTreeSet<&str> = selector.get("matchLabels").entries().map(|(key, _)| key).collect();
    for expression in selector.get("matchExpressions").items() {
        let key = expression.get("key");
        if let Some(index) = matching.texts().collect::<Vec<_>>().iter().rposition(|own| *own == key.text())
            && selected.contains(key.text())
        {
            let at = format!("{}[{index}]", term.path());
            errors.push(key.named(&at).invalid("exists in both matchLabelKeys and labelSelector"));
        }
        selected.insert(key.text());
    }
    for key in matching.items().filter(|key| differing.texts().any(|other| other == key.text())) {
        errors.push(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
    }
}

/// Where a pod wants to be, and near which others.
pub(super) fn affinity(affinity: &Field<'_>, errors: &mut Errors) {
    let node = affinity.get("nodeAffinity");
    let required = node.get(REQUIRED_TERMS);
    if required.is_set() {
        node_selector(&required, true, errors);
    }
    for term in node.get(PREFERRED).items() {
        weight(&term, errors);
        node_term(&term.get("preference"), false, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"].map(|kind| affinity.get(kind)) {
        kind.get(REQUIRED_TERMS).items().for_each(|term| pod_term(&term, errors));
        for term in kind.get(PREFERRED).items() {
            weight(&term, errors);
            pod_term(&term.get("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Field<'_>, errors: &mut Errors) {
    let weight = term.get("weight");
    if !(1..=100).contains(&weight.number()) {
        errors.push(weight.invalid_as(weight.number(), "must be in the range 1-100"));
    }
}

/// A selector of nodes, of a pod or a volume; `strict` where the values have to be values of labels.
pub(super) fn node_selector(selector: &Field<'_>, strict: bool, errors: &mut Errors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(terms.required("must have at least one node selector term"));
    }
    terms.items().for_each(|term| node_term(&term, strict, errors));
}

fn node_term(term: &Field<'_>, strict: bool, errors: &mut Errors) {
    for expression in term.get("matchExpressions").items() {
        rules::node_requirement(&expression, errors);
        if strict {
            expression.get("values").items().for_each(|v| rules::name(&v, names::label_value, errors));
        }
    }
    term.get("matchFields").items().for_each(|requirement| node_field(&requirement, errors));
}

fn node_field(requirement: &Field<'_>, errors: &mut Errors) {
    let [key, operator, values] = ["key", "operator", "values"].map(|field| requirement.get(field));
    match operator.text() {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(values.required(detail));
        }
        "In" | "NotIn" => {}
        other => errors.push(operator.invalid_as(other, "not a valid selector operator")),
    }
    if key.text() == "metadata.name" {
        values.items().for_each(|value| rules::name(&value, names::dns1123_subdomain, errors));
    } else {
        errors.push(key.invalid_as(key.text(), "not a valid field selector key"));
    }
}

fn pod_term(term: &Field<'_>, errors: &mut Errors) {
    rules::label_selector(&term.get("labelSelector"), errors);
    rules::label_selector(&term.get("namespaceSelector"), errors);
    let namespace = term.get("namespace").path().to_owned();
    for name in term.get("namespaces").items() {
        rules::name(&name.named(&namespace), names::dns1123_label, errors);
    }
    own_labels(term, errors);
    let key = term.get("topologyKey");
    check(&key, &[("", Rule::Required("can not be empty"))], errors);
    rules::name(&key, names::qualified_name, errors);
}

/// A term of the topologies that a class of storage allows.
pub(super) fn topology_term(term: &Field<'_>, errors: &mut Errors) {
    let mut keys = BTreeSet::new();
    for requirement in term.get("matchLabelExpressions").items() {
        let (key, values) = (requirement.get("key"), requirement.get("values"));
        check(&values, &[("", REQUIRED)], errors);
        let mut seen = BTreeSet::new();
        errors
            .extend(values.items().filter(|value| !seen.insert(value.text())).map(|value| value.duplicate()));
        rules::name(&key, names::qualified_name, errors);
        if !keys.insert(key.text()) {
            errors.push(key.duplicate());
        }
    }
}
