//! What drivers of storage, runtimes of containers and the fairness of requests are told: cluster-wide kinds of few rules.

use super::{
    field::{Errors, Field, same},
    placement,
    rows::{Row, Rule, check},
    rules, storage,
};
use freehold_machinery::{Value, meta, names};
use std::collections::BTreeSet;

const IMMUTABLE: &str = "field is immutable";

const RUNTIME: &[Row] = &[
    ("handler", Rule::RequiredName(names::dns1123_label)),
    ("overhead", Rule::Also(pod_overhead)),
    ("scheduling.nodeSelector", Rule::Labels),
    ("scheduling.tolerations", Rule::Also(tolerations)),
];

/// A RuntimeClass.
pub(super) fn runtime_class(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    check(object, RUNTIME, errors);
    let handler = object.get("handler");
    if old.is_some_and(|old| !same(handler.value, &old["handler"])) {
        errors.push(handler.invalid_as(handler.text(), IMMUTABLE));
    }
}

fn pod_overhead(overhead: &Field<'_>, errors: &mut Errors) {
    // Kubernetes looks at them as if they were limits.
    super::resources::overhead(&overhead.get("podFixed").named(overhead.get("limits").path()), errors);
}

fn tolerations(list: &Field<'_>, errors: &mut Errors) {
    let mut seen: Vec<&Value> = Vec::new();
    for toleration in list.items() {
        placement::tolerate(&toleration, errors);
        if seen.iter().any(|before| same(before, toleration.value)) {
            errors.push(toleration.duplicate());
        }
        seen.push(toleration.value);
    }
}

/// A VolumeAttachment.
pub(super) fn attachment(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let spec = object.get("spec");
    check(&spec, &[("attacher", Rule::Also(storage::driver_name))], errors);
    let source = spec.get("source");
    let (inline, name) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    match (inline.is_set(), name.is_set()) {
        (false, false) => errors.push(source.required(ONE)),
        (true, true) => errors.push(source.forbidden(ONE)),
        (false, true) => {
            if name.is_empty() {
                errors.push(name.required("must specify non empty persistentVolumeName"));
            }
            rules::name(&name, names::dns1123_subdomain, errors);
        }
        (true, false) => storage::inline_volume(&inline, errors),
    }
    check(&spec, &[("nodeName", Rule::AlwaysName(names::dns1123_subdomain))], errors);
    if old.is_some_and(|old| !same(spec.value, &old["spec"])) {
        errors.push(spec.invalid(IMMUTABLE));
    }
}

/// A CSIDriver.
pub(super) fn driver(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    check(&spec, DRIVER, errors);
    let Some(old) = old.map(|old| &old["spec"]) else { return };
    for (field, named) in
        [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
    {
        if !same(spec.get(field).value, &old[field]) {
            errors.push(spec.get(field).named(spec.get(named).path()).invalid(IMMUTABLE));
        }
    }
}

const DRIVER: &[Row] = &[
    ("attachRequired", REQUIRED_FLAG),
    ("podInfoOnMount", REQUIRED_FLAG),
    ("storageCapacity", REQUIRED_FLAG),
    ("fsGroupPolicy", Rule::OneOf(&["File", "None", "ReadWriteOnceWithFSType"])),
    ("tokenRequests", Rule::Also(token_requests)),
    ("volumeLifecycleModes", Rule::Also(modes)),
    ("seLinuxMount", REQUIRED_FLAG),
    ("nodeAllocatableUpdatePeriodSeconds", Rule::Also(update_period)),
    ("", Rule::Also(token_in_secrets)),
];
const REQUIRED_FLAG: Rule = Rule::Also(|flag, errors| {
    if !flag.is_set() {
        errors.push(flag.required(""));
    }
});

fn update_period(seconds: &Field<'_>, errors: &mut Errors) {
    if seconds.int().is_some_and(|n| n < 10) {
        errors.push(seconds.invalid("must be greater than or equal to 10 seconds"));
    }
}

fn token_in_secrets(spec: &Field<'_>, errors: &mut Errors) {
    let flag = spec.get("serviceAccountTokenInSecrets");
    if flag.is_set() && spec.get("tokenRequests").is_empty() {
        errors.push(flag.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified"));
    }
}

fn modes(modes: &Field<'_>, errors: &mut Errors) {
    const MODES: [&str; 2] = ["Persistent", "Ephemeral"];
    for mode in modes.texts().filter(|mode| !MODES.contains(mode)) {
        errors.push(modes.not_supported_as(mode, &MODES));
    }
}

fn token_requests(requests: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for request in requests.items() {
        let (audience, seconds) = (request.get("audience"), request.get("expirationSeconds"));
        if !seen.insert(audience.text()) {
            errors.push(audience.duplicate_as(audience.text()));
            continue;
        }
        if seconds.int().is_some_and(|n| n < 600) {
            errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
        }
        if seconds.int().is_some_and(|n| n > 1 << 32) {
            errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
        }
    }
}

/// A CSINode.
pub(super) fn node(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    drivers_of_node(object, errors);
    let before = old.and_then(|old| old["spec"]["drivers"].as_array()).into_iter().flatten();
    for driver in before {
        let same_name = |now: &Field<'_>| now.value["name"] == driver["name"];
        let now = object.get("spec.drivers").items().find(same_name);
        // How many volumes it takes may change.
        let fixed = |driver: &Value| {
            let mut driver = driver.clone();
            driver["allocatable"] = Value::Null;
            driver
        };
        if let Some(now) = now.filter(|now| !same(&fixed(now.value), &fixed(driver))) {
            let shown = fixed(now.value);
            errors.push(now.with(&shown).named("spec.drivers").invalid(IMMUTABLE));
        }
    }
}

fn drivers_of_node(object: &Field<'_>, errors: &mut Errors) {
    const LONGEST_ID: usize = 192;
    let mut names_seen = BTreeSet::new();
    for driver in object.get("spec.drivers").items() {
        let [name, id, keys] = ["name", "nodeID", "topologyKeys"].map(|field| driver.get(field));
        storage::driver_name(&name, errors);
        rules::required(&id, errors);
        if id.text().len() > LONGEST_ID {
            errors.push(id.invalid(format!("must be {LONGEST_ID} characters or less")));
        }
        rules::nonnegative(&driver.get("allocatable.count"), errors);
        if !names_seen.insert(name.text()) {
            errors.push(name.duplicate_as(name.text()));
        }
        let mut seen = BTreeSet::new();
        for key in keys.texts() {
            if key.is_empty() {
                errors.push(driver.required(""));
            }
            if !seen.insert(key) {
                errors.push(driver.duplicate_as(key));
            }
            errors.extend(names::qualified_name(key).into_iter().map(|why| driver.invalid_as(key, why)));
        }
    }
}

/// A CSIStorageCapacity.
pub(super) fn capacity(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let (topology, class) = (object.get("nodeTopology"), object.get("storageClassName"));
    rules::label_selector(&topology, errors);
    rules::name(&class, names::dns1123_subdomain, errors);
    rules::resource_amount(&object.get("capacity"), false, errors);
    let Some(old) = old else { return };
    if !same(topology.value, &old["nodeTopology"]) {
        errors.push(topology.invalid(IMMUTABLE));
    }
    if !same(class.value, &old["storageClassName"]) {
        errors.push(class.invalid_as(class.text(), IMMUTABLE));
    }
}

/// A VolumeAttributesClass.
pub(super) fn attributes(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let (driver, parameters) = (object.get("driverName"), object.get("parameters"));
    for (field, name) in [(&driver, "driverName"), (&parameters, "parameters")] {
        if old.is_some_and(|old| !same(field.value, &old[name])) {
            errors.push(field.forbidden(format!("updates to {name} are forbidden.")));
        }
    }
    storage::provisioner(&driver, errors);
    if parameters.is_empty() {
        errors.push(parameters.required("must contain at least one key/value pair"));
    }
    storage::parameters(&parameters, errors);
}

const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const METHODS: [&str; 9] = ["connect", "delete", "get", "head", "options", "patch", "post", "put", "trace"];

/// A FlowSchema.
pub(super) fn flow_schema(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    const MOST: i64 = 10_000;
    let spec = object.get("spec");
    let precedence = spec.get("matchingPrecedence");
    if precedence.number() <= 0 {
        errors.push(precedence.invalid_as(precedence.number(), "must be a positive value"));
    }
    if precedence.number() > MOST {
        errors.push(precedence.invalid(format!("must not be greater than {MOST}")));
    }
    if precedence.number() == 1 && meta::name(object.value) != "exempt" {
        errors.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
    }
    let method = spec.get("distinguisherMethod");
    if method.is_set() && !["ByNamespace", "ByUser"].contains(&method.get("type").text()) {
        let kind = method.named(method.get("type").path());
        errors.push(kind.not_supported_whole(&["ByNamespace", "ByUser"]));
    }
    let level = spec.get("priorityLevelConfiguration.name");
    if level.is_empty() {
        errors.push(level.required("must reference a priority level"));
    } else {
        rules::name(&level, names::dns1123_subdomain, errors);
    }
    spec.get("rules").items().for_each(|rule| flow_rule(&rule, errors));
}

fn flow_rule(rule: &Field<'_>, errors: &mut Errors) {
    let [subjects, resources, urls] =
        ["subjects", "resourceRules", "nonResourceRules"].map(|field| rule.get(field));
    if subjects.is_empty() {
        errors.push(subjects.required("subjects must contain at least one value"));
    }
    subjects.items().for_each(|subject| flow_subject(&subject, errors));
    if resources.is_empty() && urls.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(rule.required(detail));
    }
    resources.items().for_each(|rule| resource_rule(&rule, errors));
    for rule in urls.items() {
        verbs(&rule.get("verbs"), &METHODS, errors);
        let urls = rule.get("nonResourceURLs");
        if urls.is_empty() {
            errors.push(urls.required("nonResourceURLs must contain at least one value"));
        }
        lonely_star(&urls, "if '*' is present, must not specify other non-resource URLs", errors);
        for url in urls.items().filter(|url| url.text() != "*") {
            if url.is_empty() {
                errors.push(url.invalid_as("", "must not be empty"));
            } else if !url.text().starts_with('/') {
                errors.push(url.invalid("must start with slash"));
            } else if url.text().trim_end_matches('*').contains('*') {
                errors.push(url.invalid("wildcard can only do suffix matching"));
            }
        }
    }
}

fn lonely_star(list: &Field<'_>, why: &str, errors: &mut Errors) {
    if list.len() > 1 && list.texts().any(|item| item == "*") {
        errors.push(list.invalid(why));
    }
}

fn verbs(verbs: &Field<'_>, supported: &[&str], errors: &mut Errors) {
    if verbs.is_empty() {
        errors.push(verbs.required("verbs must contain at least one value"));
    } else if verbs.texts().any(|verb| verb == "*") {
        lonely_star(verbs, "if '*' is present, must not specify other verbs", errors);
    } else if verbs.texts().any(|verb| !supported.contains(&verb)) {
        // Kubernetes tells the verbs of resources for both.
        errors.push(verbs.not_supported_whole(&VERBS));
    }
}

fn resource_rule(rule: &Field<'_>, errors: &mut Errors) {
    verbs(&rule.get("verbs"), &VERBS, errors);
    for (field, missing, star) in [
        (
            "apiGroups",
            "resource rules must supply at least one api group",
            "if '*' is present, must not specify other api groups",
        ),
        (
            "resources",
            "resource rules must supply at least one resource",
            "if '*' is present, must not specify other resources",
        ),
    ] {
        let list = rule.get(field);
        if list.is_empty() {
            errors.push(list.required(missing));
        }
        lonely_star(&list, star, errors);
    }
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() && !rule.get("clusterScope").flag() {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(namespaces.required(detail));
    }
    lonely_star(&namespaces, "if '*' is present, must not specify other namespaces", errors);
    for name in namespaces.items().filter(|name| name.text() != "*") {
        let wrong = names::dns1123_label(name.text()).into_iter();
        let told = |why| format!("each member of this list must be '*' or a DNS-1123 label; {why}");
        errors.extend(wrong.map(|why| name.invalid_as(name.text(), told(why))));
    }
}

/// Kinds of subjects, each with its field.
const SUBJECTS: [(&str, &str); 3] =
    [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];

fn flow_subject(subject: &Field<'_>, errors: &mut Errors) {
    let kind = subject.get("kind");
    let Some((_, field)) = SUBJECTS.iter().find(|(name, _)| *name == kind.text()) else {
        return errors.push(kind.not_supported(&SUBJECTS.map(|(name, _)| name)));
    };
    let given = subject.get(field);
    if !given.is_set() {
        let detail = format!("{field} is required when subject kind is '{}'", kind.text());
        errors.push(given.required(&detail));
    }
    for (_, other) in SUBJECTS.iter().filter(|(_, other)| other != field && subject.get(other).is_set()) {
        let why = format!("{other} is forbidden when subject kind is not '{}'", name_of(other));
        errors.push(subject.get(other).forbidden(why));
    }
    if !given.is_set() {
        return;
    }
    let name = given.get("name");
    rules::required(&name, errors);
    if *field == "serviceAccount" {
        if !name.is_empty() && name.text() != "*" {
            rules::name(&name, names::dns1123_subdomain, errors);
        }
        let namespace = given.get("namespace");
        if namespace.is_empty() {
            errors.push(namespace.required("must specify namespace for service account"));
        } else {
            rules::name(&namespace, names::dns1123_label, errors);
        }
    }
}

fn name_of(field: &str) -> &'static str {
    SUBJECTS.iter().find(|(_, other)| *other == field).map_or("", |(name, _)| name)
}

/// A PriorityLevelConfiguration.
pub(super) fn priority_level(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let (kind, limited, exempt) = (spec.get("type"), spec.get("limited"), spec.get("exempt"));
    if (kind.text() == "Exempt") != (meta::name(object.value) == "exempt") && kind.text() == "Exempt" {
        errors.push(kind.invalid("must be 'Exempt' if and only if `name` is 'exempt'"));
    }
    match kind.text() {
        "Exempt" => {
            if limited.is_set() {
                errors.push(limited.forbidden("must be nil if the type is not Limited"));
            }
            shares(&exempt, errors);
        }
        "Limited" => {
            if exempt.is_set() {
                errors.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            if limited.is_set() {
                limits(&limited, errors);
            } else {
                errors.push(limited.required("must not be empty when type is Limited"));
            }
        }
        _ => errors.push(kind.not_supported(&["Exempt", "Limited"])),
    }
}

fn shares(level: &Field<'_>, errors: &mut Errors) {
    let (shares, lent) = (level.get("nominalConcurrencyShares"), level.get("lendablePercent"));
    if shares.number() < 0 {
        errors.push(shares.invalid("must be a non-negative integer"));
    }
    rules::within(&lent, 0, 100, errors);
}

fn limits(limited: &Field<'_>, errors: &mut Errors) {
    shares(limited, errors);
    let borrowed = limited.get("borrowingLimitPercent");
    if borrowed.number() < 0 {
        errors.push(borrowed.invalid("if specified, must be a non-negative integer"));
    }
    let response = limited.get("limitResponse");
    let (kind, queuing) = (response.get("type"), response.get("queuing"));
    match kind.text() {
        "Reject" if queuing.is_set() => {
            errors.push(queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"));
        }
        "Reject" => {}
        "Queue" if !queuing.is_set() => {
            errors.push(queuing.required("must not be empty if limited.limitResponse.type is Limited"));
        }
        "Queue" => queues(&queuing, errors),
        _ => errors.push(kind.not_supported(&["Queue", "Reject"])),
    }
}

fn queues(queuing: &Field<'_>, errors: &mut Errors) {
    const MOST: i64 = 10_000_000;
    let [queues, hand, length] = ["queues", "handSize", "queueLengthLimit"].map(|field| queuing.get(field));
    for field in [&length, &queues].into_iter().filter(|field| field.number() <= 0) {
        errors.push(field.invalid_as(field.number(), "must be positive"));
    }
    if queues.number() > MOST {
        errors.push(queues.invalid(format!("must not be greater than {MOST}")));
    }
    if hand.number() <= 0 {
        errors.push(hand.invalid_as(hand.number(), "must be positive"));
    }
    if hand.number() > queues.number() {
        let detail = format!("should not be greater than queues ({})", queues.number());
        errors.push(hand.invalid_as(hand.number(), detail));
    }
}
