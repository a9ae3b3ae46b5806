//! What extends the API: webhooks and aggregated servers.

use super::{
    field::{Errors, Field},
    rows::{Rule, check},
    rules,
};
use freehold_apiserver_admission::webhook::check_conditions;
use freehold_machinery::{Value, crd, meta, names};
use std::collections::BTreeSet;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
/// Versions of reviews that are sent.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// A ValidatingWebhookConfiguration or MutatingWebhookConfiguration.
pub(super) fn webhooks(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    // Conditions that did not change are not judged anew, by rules that may have become stricter.
    let conditions = |object: &Value| -> Vec<Value> {
        let hooks = object["webhooks"].as_array().into_iter().flatten();
        hooks.map(|hook| hook["matchConditions"].clone()).collect()
    };
    let judged = old.is_none_or(|old| conditions(old) != conditions(object.value));
    let mut names = BTreeSet::new();
    for (index, hook) in object.get("webhooks").items().enumerate() {
        let name = hook.get("name");
        webhook(&hook, errors);
        if judged {
            let path = format!("webhooks[{index}].matchConditions");
            errors.extend(check_conditions(&hook.value["matchConditions"], &path, false));
        }
        review_versions(&hook.get("admissionReviewVersions"), errors);
        if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
}

fn webhook(hook: &Field<'_>, errors: &mut Errors) {
    qualified(&hook.get("name"), errors);
    hook.get("rules").items().for_each(|rule| rule_with_operations(&rule, errors));
    rules::optional_one_of(&hook.get("failurePolicy"), &["Fail", "Ignore"], errors);
    rules::optional_one_of(&hook.get("matchPolicy"), &["Equivalent", "Exact"], errors);
    rules::optional_one_of(&hook.get("reinvocationPolicy"), &["IfNeeded", "Never"], errors);
    let effects = hook.get("sideEffects");
    if !effects.is_set() {
        errors.push(effects.required("must specify one of None, NoneOnDryRun"));
    }
    rules::optional_one_of(&effects, &SIDE_EFFECTS, errors);
    let timeout = hook.get("timeoutSeconds");
    if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        errors.push(timeout.invalid("the timeout value must be between 1 and 30 seconds"));
    }
    rules::label_selector(&hook.get("namespaceSelector"), errors);
    rules::label_selector(&hook.get("objectSelector"), errors);
    client(&hook.get("clientConfig"), errors);
}

fn review_versions(versions: &Field<'_>, errors: &mut Errors) {
    if versions.is_empty() {
        return errors.push(versions.required("must specify one of v1, v1beta1"));
    }
    let mut seen = BTreeSet::new();
    for version in versions.items() {
        if seen.insert(version.text()) {
            rules::name(&version, names::dns1035_label, errors);
        } else {
            errors.push(version.invalid("duplicate version"));
        }
    }
    if !versions.texts().any(|version| REVIEWS.contains(&version)) {
        errors.push(versions.invalid("must include at least one of v1, v1beta1"));
    }
}

/// A name of three segments at least.
fn qualified(name: &Field<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.push(name.required(""));
    }
    let wrong = names::dns1123_subdomain(name.text());
    if !wrong.is_empty() {
        errors.push(name.invalid(wrong.join(",")));
    } else if name.text().split('.').count() < 3 {
        errors.push(name.invalid("should be a domain with at least three segments separated by dots"));
    }
}

/// A rule that says which requests are meant.
pub(super) fn rule_with_operations(rule: &Field<'_>, errors: &mut Errors) {
    let operations = rule.get("operations");
    rules::required(&operations, errors);
    alone(&operations, "operations", errors);
    operations
        .items()
        .for_each(|operation| check(&operation, &[("", Rule::AlwaysOneOf(&OPERATIONS))], errors));
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        rules::required(&rule.get(field), errors);
        alone(&rule.get(field), what, errors);
    }
    for version in rule.get("apiVersions").items().filter(Field::is_empty) {
        errors.push(version.required(""));
    }
    resources(&rule.get("resources"), errors);
    rules::optional_one_of(&rule.get("scope"), &["*", "Cluster", "Namespaced"], errors);
}

fn client(client: &Field<'_>, errors: &mut Errors) {
    let (url, service) = (client.get("url"), client.get("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => errors.extend(crd::check_webhook_url(url.text(), url.path())),
        (false, true) => {
            // Kubernetes takes the one for the other here.
            let [name, namespace] = ["name", "namespace"].map(|field| service.get(field));
            errors.extend(namespace.is_empty().then(|| name.required("")));
            errors.extend(name.is_empty().then(|| namespace.required("")));
            let port = service.get("port");
            if port.int().is_some_and(|n| !(1..=65_535).contains(&n)) {
                errors.push(port.invalid("port is not valid: must be between 1 and 65535, inclusive"));
            }
            service_path(&service.get("path"), errors);
        }
        _ => errors.push(client.required("exactly one of url or service is required")),
    }
}

/// A path of names, with or without a slash at its end. An empty one is the root.
fn service_path(path: &Field<'_>, errors: &mut Errors) {
    let text = path.text();
    match text {
        "" | "/" => return,
        "//" => return errors.push(path.invalid("segment[0] may not be empty")),
        _ => {}
    }
    if !text.starts_with('/') {
        errors.push(path.invalid("must start with a '/'"));
    }
    // The first character is that slash.
    let inside: &str = text.char_indices().nth(1).map_or("", |(at, _)| &text[at..]);
    for (index, segment) in inside.strip_suffix('/').unwrap_or(inside).split('/').enumerate() {
        if segment.is_empty() {
            errors.push(path.invalid(format!("segment[{index}] may not be empty")));
        } else {
            let wrong = names::dns1123_subdomain(segment).into_iter();
            errors.extend(wrong.map(|why| path.invalid(format!("segment[{index}]: {why}"))));
        }
    }
}

/// `*` stands alone, since it says everything.
fn alone(list: &Field<'_>, what: &str, errors: &mut Errors) {
    if list.len() > 1 && list.texts().any(|item| item == "*") {
        errors.push(list.invalid(format!("if '*' is present, must not specify other {what}")));
    }
}

/// Resources with their subresources, of which none may be named that another item has in it.
fn resources(list: &Field<'_>, errors: &mut Errors) {
    rules::required(list, errors);
    let (mut resources, mut subresources) = (BTreeSet::new(), BTreeSet::new());
    let mut plain = false;
    for item in list.items() {
        if item.is_empty() {
            errors.push(item.required(""));
            continue;
        }
        let Some((resource, sub)) = item.text().split_once('/') else {
            plain = item.text() != "*";
            continue;
        };
        let text = item.text();
        if resources.contains(resource) {
            errors.push(item.invalid(format!("if '{resource}/*' is present, must not specify {text}")));
        }
        if subresources.contains(sub) {
            errors.push(item.invalid(format!("if '*/{sub}' is present, must not specify {text}")));
        }
        if sub == "*" {
            resources.insert(resource);
        }
        if resource == "*" {
            subresources.insert(sub);
        }
    }
    if list.len() > 1 && list.texts().any(|item| item == "*/*") {
        errors.push(list.invalid("if '*/*' is present, must not specify other resources"));
    }
    if plain && list.texts().any(|item| item == "*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(list.invalid(detail));
    }
}

/// An APIService: its name is its version and group.
pub(super) fn api_service(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let (group, version) = (spec.get("group"), spec.get("version"));
    let name = format!("{}.{}", version.text(), group.text());
    if names::path_segment_name(meta::name(object.value)).is_empty() && meta::name(object.value) != name {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {name:?}");
        errors.push(object.get("metadata.name").invalid(detail));
    }
    if group.is_empty() && version.text() != "v1" {
        errors.push(group.required("only v1 may have an empty group and it better be legacy kube"));
    }
    rules::optional_name(&group, names::dns1123_subdomain, errors);
    rules::name(&version, names::dns1035_label, errors);
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = spec.get(field);
        let given = priority.int().unwrap_or(0);
        if given <= 0 || given > most {
            errors.push(priority.invalid_as(given, format!("must be positive and less than {most}")));
        }
    }
    behind(&spec, errors);
}

fn behind(spec: &Field<'_>, errors: &mut Errors) {
    let [service, bundle, insecure] =
        ["service", "caBundle", "insecureSkipTLSVerify"].map(|field| spec.get(field));
    if service.is_set() {
        rules::required(&service.get("namespace"), errors);
        rules::required(&service.get("name"), errors);
        let port = service.get("port");
        if port.int().is_some_and(|n| !(1..=65_535).contains(&n)) {
            errors.push(port.invalid("port is not valid: must be between 1 and 65535, inclusive"));
        }
        if insecure.flag() && !bundle.is_empty() {
            errors.push(insecure.invalid("may not be true if caBundle is present"));
        }
        return;
    }
    if !bundle.is_empty() {
        let bytes = format!("{} bytes", bundle.text().trim_end_matches('=').len() * 3 / 4);
        errors.push(bundle.invalid_as(bytes, "local APIServices may not have a caBundle"));
    }
    if insecure.flag() {
        errors.push(insecure.invalid("local APIServices may not have insecureSkipTLSVerify"));
    }
}
