//! Volumes, claims of volumes and classes of storage.

use super::{
    field::{Errors, Field, same},
    placement,
    rows::{Row, Rule, check},
    rules, volumes,
};
use crate::access;
use freehold_machinery::{Value, names, status::FieldError};
use serde_json::json;

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
/// What of a PersistentVolume is not its source.
const NOT_SOURCES: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 * 1024;

fn access_modes(modes: &Field<'_>, errors: &mut Errors) {
    for mode in modes.texts().filter(|mode| !MODES.contains(mode)) {
        errors.push(modes.not_supported_as(mode, &MODES));
    }
    let alone = |mode: &str| mode == "ReadWriteOncePod";
    if modes.texts().any(alone) && modes.texts().any(|mode| !alone(mode) && MODES.contains(&mode)) {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

const SOURCE: &[Row] = &[
    ("name", Rule::Required("")),
    ("kind", Rule::Required("")),
    ("", Rule::Also(group_of_source)),
    ("apiGroup", Rule::Also(|group, errors| rules::optional_name(group, names::dns1123_subdomain, errors))),
    ("namespace", Rule::Also(|space, errors| rules::optional_name(space, names::dns1123_label, errors))),
];

fn group_of_source(source: &Field<'_>, errors: &mut Errors) {
    let kind = source.get("kind").text();
    if source.get("apiGroup").is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(source.invalid_as(kind, detail));
    }
}

/// The spec of a claim, or of a template of claims.
pub(super) fn claim_spec(spec: &Field<'_>, errors: &mut Errors) {
    let modes = spec.get("accessModes");
    check(&modes, &[("", Rule::Required("at least 1 access mode is required"))], errors);
    rules::label_selector(&spec.get("selector"), errors);
    access_modes(&modes, errors);
    let requested = spec.get("resources.requests").key("storage");
    let path = spec.get("resources").key("storage").required("").field;
    let storage = requested.named(&path);
    if storage.is_set() {
        rules::positive_amount(&storage, errors);
    } else {
        errors.push(storage.required(""));
    }
    rules::optional_name(&spec.get("storageClassName"), names::dns1123_subdomain, errors);
    rules::optional_one_of(&spec.get("volumeMode"), &VOLUME_MODES, errors);
    let [old_way, new_way] = ["dataSource", "dataSourceRef"].map(|field| spec.get(field));
    for source in [&old_way, &new_way] {
        check(source, &[("", Rule::Fields(SOURCE))], errors);
    }
    let differ = ["apiGroup", "kind", "name"].iter().any(|f| old_way.get(f).text() != new_way.get(f).text());
    if old_way.is_set() && !new_way.get("namespace").is_empty() {
        errors.push(without_content(spec, "may not be specified when dataSourceRef.namespace is specified"));
    } else if old_way.is_set() && new_way.is_set() && differ {
        errors.push(without_content(spec, "must match dataSourceRef"));
    }
    rules::optional_name(&spec.get("volumeAttributesClassName"), names::dns1123_subdomain, errors);
}

/// Kubernetes shows a path here, which has nothing to show.
fn without_content(spec: &Field<'_>, detail: &str) -> FieldError {
    FieldError { shown: Some("{}".to_owned()), ..spec.invalid_as(json!({}), detail) }
}

/// An update of the status of a claim.
pub(super) fn claim_status(object: &Field<'_>, _: &Value, errors: &mut Errors) {
    const RESIZES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let status = object.get("status");
    status.get("capacity").entries().for_each(|(_, amount)| rules::basic_amount(&amount, errors));
    let resizes = status.get("allocatedResourceStatuses");
    for (resource, state) in resizes.entries() {
        resource_of_claim(&resizes, resource, errors);
        if !RESIZES.contains(&state.text()) {
            errors.push(resizes.not_supported_as(resource, &RESIZES));
        }
    }
    let allocated = status.get("allocatedResources");
    for (resource, amount) in allocated.entries() {
        let before = errors.len();
        resource_of_claim(&allocated, resource, errors);
        if errors.len() == before {
            rules::basic_amount(&amount, errors);
        }
    }
}

fn resource_of_claim(field: &Field<'_>, name: &str, errors: &mut Errors) {
    let wrong = names::qualified_name(name);
    if wrong.is_empty() && name != "storage" && super::resources::is_native(name) {
        errors.push(field.not_supported_as(name, &["storage"]));
    }
    errors.extend(wrong.into_iter().map(|why| field.invalid_as(name, why)));
}

/// The name of a driver.
pub(super) fn driver_name(driver: &Field<'_>, errors: &mut Errors) {
    if driver.is_empty() {
        return errors.push(driver.required(""));
    }
    if driver.text().len() > 63 {
        errors.push(driver.too_long(63));
    }
    let wrong = names::dns1123_subdomain(&driver.text().to_lowercase()).into_iter();
    errors.extend(wrong.map(|why| driver.invalid_as(driver.text(), why)));
}

/// A PersistentVolumeClaim.
pub(super) fn claim(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    claim_spec(&spec, errors);
    let Some(old) = old else { return };
    let bound = object.get("status.phase").text() == "Bound";
    let before = &old["spec"];
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if crate::access::is_empty(&before["volumeName"]) {
            spec["volumeName"] = Value::Null;
        }
        if before["storageClassName"].is_null() {
            spec["storageClassName"] = Value::Null;
        }
        if bound {
            spec["volumeAttributesClassName"] = Value::Null;
            if spec["resources"]["requests"].is_object() {
                spec["resources"]["requests"]["storage"] = Value::Null;
            }
        }
        spec
    };
    let (now, then) = (fixed(spec.value), fixed(before));
    if !same(&now, &then) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName \
                      for bound claims";
        errors.push(spec.forbidden_change(detail, &then, &now));
    }
    let size = |spec: &Field<'_>| rules::amount(&spec.get("resources.requests.storage"));
    if size(&spec) < size(&Field::root(before)) {
        let held = rules::amount(&Field::root(old).get("status.capacity.storage"));
        if size(&spec) <= held {
            let field = spec.get("resources.requests.storage");
            errors.push(field.forbidden("field can not be less than status.capacity"));
        }
    }
    rules::immutable(&spec.get("volumeMode").named("volumeMode"), &before["volumeMode"], errors);
}

/// A PersistentVolume.
pub(super) fn volume(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let before = errors.len();
    rules::required(&spec.get("accessModes"), errors);
    access_modes(&spec.get("accessModes"), errors);
    capacity(&spec.get("capacity"), errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    rules::optional_one_of(&policy, &POLICIES, errors);
    let affinity = spec.get("nodeAffinity");
    if affinity.is_set() {
        if affinity.get("required").is_set() {
            placement::node_selector(&affinity.get("required"), true, errors);
        } else {
            errors.push(affinity.get("required").required("must specify required node constraints"));
        }
    }
    volumes::of_persistent(&spec, errors);
    if spec.get("local").is_set() && !affinity.get("required").is_set() {
        errors.push(affinity.required("Local volume requires node affinity"));
    }
    let host = spec.get("hostPath.path");
    let is_root = !host.is_empty() && host.text().split('/').all(|part| part.is_empty() || part == ".");
    if is_root && host.text().starts_with('/') && policy.text() == "Recycle" {
        errors.push(policy.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
    }
    rules::optional_name(&spec.get("storageClassName"), names::dns1123_subdomain, errors);
    rules::optional_one_of(&spec.get("volumeMode"), &VOLUME_MODES, errors);
    let class = spec.get("volumeAttributesClassName");
    if class.is_set() {
        if class.is_empty() {
            errors.push(class.required("an empty string is disallowed"));
        }
        rules::optional_name(&class, names::dns1123_subdomain, errors);
        if !spec.get("csi").is_set() {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.push(spec.get("csi").required(detail));
        }
    }
    if let Some(old) = old {
        // The rules for all volumes and those for updates both look at the whole.
        errors.extend_from_within(before..);
        volume_update(&spec, &old["spec"], errors);
    }
}

/// A volume that an attachment brings along: a driver's, and nothing that somebody could claim.
pub(super) fn inline_volume(spec: &Field<'_>, errors: &mut Errors) {
    const DETAIL: &str = "may not be specified in the context of inline volumes";
    let refuse = |field: &str, errors: &mut Errors| {
        if !spec.get(field).is_empty() {
            errors.push(spec.get(field).forbidden(DETAIL));
        }
    };
    ["claimRef", "capacity"].iter().for_each(|field| refuse(field, errors));
    if !spec.get("csi").is_set() {
        errors.push(spec.get("csi").required("has to be specified in the context of inline volumes"));
    }
    rules::required(&spec.get("accessModes"), errors);
    access_modes(&spec.get("accessModes"), errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if policy.is_set() && policy.text() != "Retain" {
        errors.push(policy.forbidden("may only be Retain in the context of inline volumes"));
    }
    refuse("nodeAffinity", errors);
    volumes::of_persistent(spec, errors);
    refuse("storageClassName", errors);
    let mode = spec.get("volumeMode");
    if mode.is_set() && mode.text() != "Filesystem" {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.push(mode.forbidden(detail));
    }
}

fn capacity(capacity: &Field<'_>, errors: &mut Errors) {
    rules::required(capacity, errors);
    if !capacity.key("storage").is_set() || capacity.len() > 1 {
        errors.push(capacity.not_supported_whole(&["storage"]));
    }
    for (_, amount) in capacity.entries() {
        rules::basic_amount(&amount, errors);
        rules::positive_amount(&amount, errors);
    }
}

/// Labels of nodes that have other names than at first, and these.
const RENAMED: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

/// The affinity as it was, with the new names of labels where it has them now. Kubernetes takes no key for the new name of a
/// label that has none.
fn relabelled(old: &Value, new: &Value) -> Value {
    let mut renewed = old.clone();
    let terms = access::list_mut(&mut renewed, "required.nodeSelectorTerms");
    for (term, new) in terms.zip(access::list(new, "required.nodeSelectorTerms")) {
        for part in ["matchExpressions", "matchFields"] {
            for (old, new) in access::list_mut(term, part).zip(access::list(new, part)) {
                let name = RENAMED.iter().find(|(name, _)| *name == access::text(old, "key"));
                if access::text(new, "key") == name.map_or("", |(_, now)| now) {
                    old["key"] = new["key"].clone();
                }
            }
        }
    }
    renewed
}

fn volume_update(spec: &Field<'_>, old: &Value, errors: &mut Errors) {
    let source = |spec: &Value| {
        let mut spec = spec.clone();
        NOT_SOURCES.iter().for_each(|field| spec[*field] = Value::Null);
        if old["csi"]["controllerExpandSecretRef"].is_null() && spec["csi"].is_object() {
            spec["csi"]["controllerExpandSecretRef"] = Value::Null;
        }
        spec
    };
    if !same(&source(spec.value), &source(old)) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        let place = spec.get("persistentvolumesource").shown_as("spec");
        errors.push(place.forbidden_change(detail, &source(old), &source(spec.value)));
    }
    rules::immutable(&spec.get("volumeMode").named("volumeMode"), &old["volumeMode"], errors);
    if spec.value.is_null() {
        // There is nothing that could be compared further.
        return;
    }
    let affinity = spec.get("nodeAffinity");
    let before = &old["nodeAffinity"];
    if !before.is_null() && !same(affinity.value, &relabelled(before, affinity.value)) {
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(affinity.named("nodeAffinity").invalid(detail));
    }
    let class = spec.get("volumeAttributesClassName");
    if !old["volumeAttributesClassName"].is_null() && !class.is_set() {
        errors.push(class.forbidden("update from non-nil value to nil is forbidden"));
    }
}

/// A StorageClass.
pub(super) fn class(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    provisioner(&object.get("provisioner"), errors);
    parameters(&object.get("parameters"), errors);
    let policy = object.get("reclaimPolicy");
    if !policy.text().is_empty() {
        rules::optional_one_of(&policy, &["Delete", "Retain"], errors);
    }
    let mode = object.get("volumeBindingMode");
    if mode.is_set() {
        rules::optional_one_of(&mode, &["Immediate", "WaitForFirstConsumer"], errors);
    } else {
        errors.push(mode.required(""));
    }
    let terms: Vec<_> = object.get("allowedTopologies").items().collect();
    for (index, term) in terms.iter().enumerate() {
        placement::topology_term(term, errors);
        let expressions = term.get("matchLabelExpressions");
        // One without anything is the same as those that were not looked at yet.
        let known = terms[..index].iter().any(|before| same(before.value, term.value));
        if known || expressions.is_empty() {
            errors.push(expressions.duplicate_as(""));
        }
    }
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        let now = object.get(field);
        if !same(now.value, &old[field]) {
            errors.push(now.invalid("field is immutable"));
        }
    }
}

/// Who makes the volumes of a class.
pub(super) fn provisioner(provisioner: &Field<'_>, errors: &mut Errors) {
    rules::required(provisioner, errors);
    if !provisioner.is_empty() {
        let name = provisioner.text().to_lowercase();
        let wrong = names::qualified_name(&name).into_iter();
        errors.extend(wrong.map(|why| provisioner.invalid_as(name.as_str(), why)));
    }
}

/// What a class tells its driver.
pub(super) fn parameters(parameters: &Field<'_>, errors: &mut Errors) {
    if parameters.len() > MAX_PARAMETERS {
        return errors.push(parameters.too_long(MAX_PARAMETERS));
    }
    if parameters.entries().any(|(key, _)| key.is_empty()) {
        errors.push(parameters.invalid_as("", "field can not be empty."));
    }
    let size: usize = parameters.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if size > MAX_PARAMETER_BYTES {
        errors.push(parameters.too_long(MAX_PARAMETER_BYTES));
    }
}
