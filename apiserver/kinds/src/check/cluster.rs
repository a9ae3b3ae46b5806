//! What belongs to the running of a cluster: nodes, leases, priorities, events, requests for certificates.

use super::{
    field::{Errors, Field, same},
    placement,
    rows::{Rule, check},
    rules,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Value, meta, names};
use serde_json::json;
use std::collections::BTreeSet;

const SYSTEM_PREFIX: &str = "system-";
/// The two classes of the system itself, with their values.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
/// The greatest priority that users may define.
const MAX_PRIORITY: i64 = 1_000_000_000;

/// What a namespace waits for before it goes: `kubernetes`, or what has a domain.
fn finalizer(name: &Field<'_>, text: &str, errors: &mut Errors) {
    const STANDARD: [&str; 3] = ["kubernetes", "foregroundDeletion", "orphan"];
    errors.extend(names::qualified_name(text).into_iter().map(|why| name.invalid_as(text, why)));
    if !text.contains('/') && !STANDARD.contains(&text) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(name.invalid_as(text, detail));
    }
}

/// A Namespace. On updates its finalizers stay as they are.
pub(super) fn namespace(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let finalizers = object.get("spec.finalizers");
    if old.is_none() {
        finalizers.texts().for_each(|text| finalizer(&finalizers, text, errors));
    }
}

/// The finalizers of a namespace that goes.
pub(super) fn namespace_finalizers(object: &Field<'_>, errors: &mut Errors) {
    for name in object.get("spec.finalizers").items() {
        finalizer(&name, name.text(), errors);
    }
}

/// A PriorityClass.
pub(super) fn priority_class(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let (name, value) = (meta::name(object.value), object.get("value"));
    let given = value.int().unwrap_or(0);
    if name.starts_with(SYSTEM_PREFIX) {
        if !SYSTEM_CLASSES.contains(&(name, given)) {
            let why = match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
                Some((_, value)) => format!("value of {name} PriorityClass must be {value}"),
                None => format!("{name} is not a known system priority class"),
            };
            errors.push(object.get("metadata.name").forbidden(format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            )));
        }
    } else if given > MAX_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.push(value.forbidden(detail));
    }
    let preemption = object.get("preemptionPolicy");
    if preemption.is_set() && old.is_none() {
        rules::one_of(&preemption, &["PreemptLowerPriority", "Never"], errors);
    }
    if let Some(old) = old {
        if old["value"].as_i64().unwrap_or(0) != given {
            errors.push(value.forbidden("may not be changed in an update."));
        }
        rules::immutable(&preemption, &old["preemptionPolicy"], errors);
    }
}

/// A Lease.
pub(super) fn lease(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let duration = spec.get("leaseDurationSeconds");
    if duration.int().is_some_and(|seconds| seconds <= 0) {
        errors.push(duration.invalid("must be greater than 0"));
    }
    rules::nonnegative(&spec.get("leaseTransitions"), errors);
    let preferred = spec.get("preferredHolder");
    if !preferred.is_empty() && spec.get("strategy").is_empty() {
        errors.push(preferred.forbidden("may only be specified if `strategy` is defined"));
    }
}

/// A Node.
pub(super) fn node(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let before = errors.len();
    placement::taints(&object.get("spec.taints").named("metadata.taints"), errors);
    let taints = before..errors.len();
    pod_networks(object, old, errors);
    if old.is_some() {
        // The rules for all nodes and those for updates both look at them.
        errors.extend_from_within(taints);
    }
    let provider = object.get("spec.providerID");
    let before = old.and_then(|old| old["spec"]["providerID"].as_str()).unwrap_or_default();
    if !before.is_empty() && before != provider.text() {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(provider.forbidden(detail));
    }
}

/// The networks of a node's pods: one of each family, which stay. The field for one of them wins over the first of the
/// list, which it stands for.
fn pod_networks(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let list = |spec: &Value| {
        let listed: Vec<Value> = spec["podCIDRs"].as_array().cloned().unwrap_or_default();
        match spec["podCIDR"].as_str().filter(|one| !one.is_empty()) {
            Some(one) if listed.first().and_then(Value::as_str) != Some(one) => vec![Value::from(one)],
            _ => listed,
        }
    };
    let field = object.get("spec.podCIDRs");
    let (now, before) = (list(&object.value["spec"]), old.map(|old| list(&old["spec"])).unwrap_or_default());
    let found: Vec<_> = now
        .iter()
        .enumerate()
        .map(|(index, network)| {
            let at = format!("{}[{index}]", field.path());
            rules::network(&Field::root(network).named(&at), errors)
        })
        .collect();
    let six: Vec<bool> = found.iter().flatten().map(rules::Network::is_six).collect();
    if now.len() > 2 || six.len() == 2 && six[0] == six[1] {
        errors.push(field.invalid_as(now.clone(), "may specify no more than one CIDR for each IP family"));
    }
    if !before.is_empty() && now != before {
        errors.push(field.forbidden("node updates may not change podCIDR except from \"\" to valid"));
    }
}

/// An Event as core serves it.
pub(super) fn event(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    any_event(object, &object.get("involvedObject"), "reportingComponent", errors);
}

/// What every event says, in the words of core.
fn any_event(object: &Field<'_>, about: &Field<'_>, reporter: &str, errors: &mut Errors) {
    const LONGEST_NOTE: usize = 1024;
    let namespace = meta::namespace(object.value);
    let theirs = about.get("namespace").named("involvedObject.namespace");
    let timed = object.get("eventTime").is_set();
    let home: &[&str] = if timed { &["default", "kube-system"] } else { &["", "default"] };
    let differs =
        if theirs.is_empty() { !home.contains(&namespace) } else { !timed && theirs.text() != namespace };
    if differs {
        errors.push(theirs.invalid_as(theirs.text(), "does not match event.namespace"));
    }
    if !timed {
        return;
    }
    let controller = object.get(reporter);
    rules::required(&controller, errors);
    rules::name(&controller, names::qualified_name, errors);
    for field in ["reportingInstance", "action", "reason"].map(|field| object.get(field)) {
        rules::required(&field, errors);
        at_most(&field, 128, errors);
    }
    at_most(&object.get("note").named("message"), LONGEST_NOTE, errors);
    at_most(&object.get("message"), LONGEST_NOTE, errors);
}

fn at_most(field: &Field<'_>, most: usize, errors: &mut Errors) {
    if field.text().len() > most {
        errors.push(field.invalid_as("", format!("can have at most {most} characters")));
    }
}

/// What older clients write, with what it is called in core.
const OLD_FIELDS: [(&str, &str); 4] = [
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("deprecatedSource", "source"),
];

/// An Event as events.k8s.io serves it.
pub(super) fn new_event(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    // Related objects are the same struct, and are told by their own name.
    let about = object.get("regarding").named("involvedObject").shown_as("related");
    any_event(object, &about, "reportingController", errors);
    let series = object.get("series");
    if series.is_set() && old.is_none_or(|old| !same(series.value, &old["series"])) {
        if series.get("count").number() < 2 {
            errors.push(series.get("count").invalid_as("", "should be at least 2"));
        }
        check(&series, &[("lastObservedTime", Rule::Required(""))], errors);
    }
    let Some(old) = old else {
        check(object, &[("eventTime", Rule::Required(""))], errors);
        let kind = object.get("type");
        if !["Normal", "Warning"].contains(&kind.text()) {
            errors.push(kind.invalid_as("", format!("has invalid value: {}", kind.text())));
        }
        let given = OLD_FIELDS.map(|(field, named)| object.get(field).named(named));
        errors.extend(given.iter().filter(|f| !f.is_empty()).map(|f| f.invalid_as("", "needs to be unset")));
        return;
    };
    if !same(about.value, &old["regarding"]) {
        let none = json!({});
        let shown = if about.is_set() { about.clone() } else { about.with(&none) };
        errors.push(shown.invalid(IMMUTABLE));
    }
    let texts = [("reason", "reason"), ("note", "message")];
    let more = [
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (field, named) in texts.iter().chain(&OLD_FIELDS).chain(&more) {
        let now = object.get(field);
        if same(now.value, &old[*field]) {
            continue;
        }
        let is_text =
            !["eventTime", "related", "count", "firstTimestamp", "lastTimestamp", "source"].contains(named);
        let now = now.named(named);
        errors.push(if is_text { now.invalid_as(now.text(), IMMUTABLE) } else { now.invalid(IMMUTABLE) });
    }
}

const IMMUTABLE: &str = "field is immutable";

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A CertificateSigningRequest.
pub(super) fn signing_request(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let request = spec.get("request");
    let bytes = BASE64_STANDARD.decode(request.text()).unwrap_or_default();
    if !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE REQUEST-----") {
        errors.push(request.invalid("PEM block type must be CERTIFICATE REQUEST"));
    }
    let usages = spec.get("usages");
    rules::required(&usages, errors);
    let mut seen = BTreeSet::new();
    for usage in usages.items() {
        rules::optional_one_of(&usage, &USAGES, errors);
        if !seen.insert(usage.text()) {
            errors.push(usage.duplicate());
        }
    }
    signer(&spec.get("signerName"), errors);
    let seconds = spec.get("expirationSeconds");
    if seconds.int().is_some_and(|n| n < 600) {
        errors.push(seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)"));
    }
    conditions(&object.get("status.conditions"), errors);
}

fn signer(name: &Field<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.push(name.required(""));
    }
    if name.text() == "kubernetes.io/legacy-unknown" {
        return errors.push(name.invalid("the legacy signerName is not allowed via this API version"));
    }
    signer_name(name, errors);
}

/// The name of a signer: a domain and a path.
pub(super) fn signer_name(name: &Field<'_>, errors: &mut Errors) {
    const MOST: usize = 253;
    if name.is_empty() {
        return errors.push(name.required(""));
    }
    let Some((domain, path)) = name.text().split_once('/').filter(|(_, path)| !path.contains('/')) else {
        return errors.push(
            name.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'"),
        );
    };
    if domain.len() > MOST {
        errors.push(name.too_long(MOST));
    }
    // Of labels that are wrong, the first is told.
    let labels = |part: &str, wrong: rules::NameCheck| {
        let first = part.split('.').map(|label| (label, wrong(label))).find(|(_, why)| !why.is_empty());
        let told = first.into_iter().flat_map(|(label, why)| {
            why.into_iter().map(move |why| format!("validating label {label:?}: {why}"))
        });
        told.map(|why| name.invalid_as(part, why)).collect::<Vec<_>>()
    };
    errors.extend(labels(domain, names::dns1123_label));
    if domain.split('.').count() < 2 {
        errors
            .push(name.invalid_as(domain, "should be a domain with at least two segments separated by dots"));
    }
    errors.extend(labels(path, names::dns1123_subdomain));
}

/// A request is approved or denied, never both, and never back.
fn conditions(conditions: &Field<'_>, errors: &mut Errors) {
    let has = |kind: &str| conditions.items().any(|condition| condition.get("type").text() == kind);
    for condition in conditions.items() {
        let (kind, status) = (condition.get("type"), condition.get("status"));
        rules::required(&kind, errors);
        let decided = ["Approved", "Denied", "Failed"].contains(&kind.text());
        let supported: &[&str] = if decided { &["True"] } else { &["True", "False", "Unknown"] };
        rules::one_of(&status, supported, errors);
    }
    if has("Approved") && has("Denied") {
        errors.push(conditions.invalid_as("Denied", "Approved and Denied conditions are mutually exclusive"));
    }
}
