//! Pods and pod templates, for every kind that has one.

use super::{
    containers::{all_containers, containers, file_variables, trimmed},
    field::{Errors, Field},
    placement, pod_update,
    resources::pod_resources,
    rows::{Row, Rule, check},
    rules, security, volumes,
};
use freehold_machinery::{Value, meta, names};
use std::collections::BTreeSet;

const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What follows the containers in a pod spec.
const POLICIES: &[Row] = &[
    ("restartPolicy", Rule::RequiredOneOf(&RESTART_POLICIES)),
    ("dnsPolicy", Rule::RequiredOneOf(&DNS_POLICIES)),
    ("nodeSelector", Rule::Labels),
];
const GATES: &[Row] = &[
    ("affinity", Rule::Also(placement::affinity)),
    ("", Rule::Also(dns)),
    ("readinessGates", Rule::Each(&[("conditionType", Rule::AlwaysName(names::qualified_name))])),
    ("schedulingGates", Rule::Also(scheduling_gates)),
    ("topologySpreadConstraints", Rule::Also(placement::spread)),
    ("", Rule::Also(security::host_processes)),
    ("", Rule::Also(security::host_users)),
    ("", Rule::Also(host_name)),
    ("serviceAccountName", Rule::Name(names::dns1123_subdomain)),
    ("nodeName", Rule::Name(names::dns1123_subdomain)),
    ("activeDeadlineSeconds", Rule::Within(1, i32::MAX as i64)),
    ("hostname", Rule::Name(names::dns1123_label)),
    ("subdomain", Rule::Name(names::dns1123_label)),
    ("tolerations", Rule::Each(&[("", Rule::Also(placement::tolerate))])),
    (
        "hostAliases",
        Rule::Each(&[
            ("ip", Rule::Also(rules::legacy_address)),
            ("hostnames", Rule::Each(&[("", Rule::AlwaysName(names::dns1123_subdomain))])),
        ]),
    ),
    ("priorityClassName", Rule::Name(names::dns1123_subdomain)),
    ("runtimeClassName", Rule::Name(names::dns1123_subdomain)),
    ("preemptionPolicy", Rule::Also(preemption)),
    ("overhead", Rule::Also(overhead)),
    ("", Rule::Also(security::operating_system)),
    ("", Rule::Also(file_variables)),
];

/// A Pod.
pub(super) fn pod(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    annotations(object, &spec, errors);
    let mirror = meta::annotation(object.value, MIRROR).is_some();
    let before = old.map(|old| &old["spec"]);
    pod_spec(&spec, &Whose { name: meta::name(object.value), mirror, before }, errors);
    for list in ["containers", "initContainers"] {
        spec.get(list).items().for_each(|container| trimmed(&container, errors));
    }
    if let Some(old) = old {
        return pod_update::update(object, old, errors);
    }
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("cannot be set on create"));
    }
    if !spec.get("nodeName").is_empty() && !spec.get("schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(spec.get("nodeName").forbidden(detail));
    }
    security::profiles_match(&object.get("metadata.annotations"), &spec, errors);
}

/// A template; `spec` of its pods and their labels.
pub(super) fn template(template: &Field<'_>, errors: &mut Errors) {
    template_metadata(template, errors);
    pod_spec(&template.get("spec"), &Whose::default(), errors);
    security::profiles_match(&template.get("metadata.annotations"), &template.get("spec"), errors);
    let ephemeral = template.get("spec.ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
}

/// Labels and annotations of a template.
pub(super) fn template_metadata(template: &Field<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    rules::labels(&metadata.get("labels").named(template.get("labels").path()), errors);
    let noted = metadata.get("annotations").named(template.get("annotations").path());
    rules::annotations(&noted, errors);
    special_annotations(&noted, &template.get("spec"), errors);
}

/// A PodTemplate.
pub(super) fn pod_template(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    template(&object.get("template"), errors);
}

fn annotations(object: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    special_annotations(&object.get("metadata.annotations"), spec, errors);
}

fn special_annotations(noted: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let mirror = noted.key(MIRROR);
    if mirror.is_set() && spec.get("nodeName").is_empty() {
        errors.push(mirror.invalid("must set spec.nodeName if mirror pod annotation is set"));
    }
    let cost = noted.key(DELETION_COST);
    let text = cost.text();
    let odd = text.starts_with('+') || (text.starts_with('0') && text != "0");
    if cost.is_set() && (odd || text.parse::<i32>().is_err()) {
        errors.push(cost.invalid("must be a 32bit integer"));
    }
    for (key, profile) in noted.entries() {
        let Some(container) = key.strip_prefix(APP_ARMOR) else { continue };
        if !all_containers(spec).any(|c| c.get("name").text() == container) {
            errors.push(profile.invalid_as(container, "container not found"));
        }
        let text = profile.text();
        if !matches!(text, "" | "runtime/default" | "unconfined") && !text.starts_with("localhost/") {
            errors.push(profile.invalid(format!("invalid AppArmor profile name: {text:?}")));
        }
    }
}

/// The pod that a spec is of, or will be.
#[derive(Default)]
pub(super) struct Whose<'a> {
    /// Empty where it has none yet.
    pub(super) name: &'a str,
    /// Whether it stands for one that a node has made by itself.
    pub(super) mirror: bool,
    /// Its spec as it was.
    pub(super) before: Option<&'a Value>,
}

/// The spec of a pod, or of a template's pods.
pub(super) fn pod_spec(spec: &Field<'_>, whose: &Whose<'_>, errors: &mut Errors) {
    let Whose { name, mirror, before } = *whose;
    let pod = volumes::volumes(&spec.get("volumes"), name, errors);
    claims(&spec.get("resourceClaims"), mirror, errors);
    containers(spec, &pod, errors);
    pod_resources(spec, errors);
    host_network(spec, !name.is_empty(), errors);
    check(spec, POLICIES, errors);
    security::of_pod(spec, before, errors);
    check(spec, GATES, errors);
}

/// Claims of devices.
fn claims(claims: &Field<'_>, mirror: bool, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        if mirror {
            errors.push(claim.named("").forbidden("static pods do not support resource claims"));
            continue;
        }
        let name = claim.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        } else {
            rules::name(&name, names::dns1123_label, errors);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"].map(|field| claim.get(field));
        let wrong = match sources.iter().filter(|source| source.is_set()).count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        if !wrong.is_empty() {
            errors.push(claim.invalid(wrong));
        }
        for source in sources.iter().filter(|source| source.is_set()) {
            rules::name(source, names::dns1123_subdomain, errors);
        }
    }
}

fn host_network(spec: &Field<'_>, is_pod: bool, errors: &mut Errors) {
    if !spec.get("hostNetwork").flag() {
        return;
    }
    for port in spec.get("containers").items().flat_map(|container| container.get("ports").items()) {
        let (number, host) = (port.get("containerPort").number(), port.get("hostPort"));
        if (is_pod || host.number() != 0) && host.number() != number {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errors.push(host.invalid_as(host.number(), detail));
        }
    }
}

fn host_name(spec: &Field<'_>, errors: &mut Errors) {
    const LONGEST: usize = 64;
    let name = spec.get("hostnameOverride");
    if !name.is_set() {
        return;
    }
    if spec.get("setHostnameAsFQDN").flag() {
        errors.push(name.forbidden("may not be specified when setHostnameAsFQDN is true"));
    }
    if spec.get("hostNetwork").flag() {
        errors.push(name.forbidden("may not be specified when hostNetwork is true"));
    }
    if name.text().len() > LONGEST {
        errors.push(name.too_long(LONGEST));
    }
    rules::name(&name, names::dns1123_subdomain, errors);
}

fn preemption(policy: &Field<'_>, errors: &mut Errors) {
    if policy.is_set() {
        rules::one_of(policy, &["PreemptLowerPriority", "Never"], errors);
    }
}

fn overhead(overhead: &Field<'_>, errors: &mut Errors) {
    if overhead.is_set() {
        // Kubernetes looks at them as if they were limits.
        super::resources::overhead(&overhead.named(overhead.get("limits").path()), errors);
    }
}

fn scheduling_gates(gates: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for gate in gates.items() {
        let name = gate.get("name");
        rules::name(&name.named(gate.path()), names::qualified_name, errors);
        if !seen.insert(name.text()) {
            errors.push(gate.duplicate_as(name.text()));
        }
    }
}

fn dns(spec: &Field<'_>, errors: &mut Errors) {
    const MOST_SERVERS: usize = 3;
    const MOST_SEARCHES: usize = 32;
    const MOST_CHARACTERS: usize = 2048;
    let config = spec.get("dnsConfig");
    let (servers, searches) = (config.get("nameservers"), config.get("searches"));
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
    if servers.len() > MOST_SERVERS {
        errors.push(servers.invalid(format!("must not have more than {MOST_SERVERS} nameservers")));
    }
    for server in servers.items() {
        rules::address(&server, errors);
    }
    if searches.len() > MOST_SEARCHES {
        errors.push(searches.invalid(format!("must not have more than {MOST_SEARCHES} search paths")));
    }
    let length: usize = searches.texts().map(|path| path.len() + 1).sum();
    if length > MOST_CHARACTERS + 1 {
        let detail = format!(
            "must not have more than {MOST_CHARACTERS} characters (including spaces) in the search list"
        );
        errors.push(searches.invalid(detail));
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        errors.extend(rules::underscored_subdomain(name).into_iter().map(|why| search.invalid_as(name, why)));
    }
    for option in config.get("options").items().filter(|option| option.get("name").is_empty()) {
        errors.push(option.required("must not be empty"));
    }
}
