//! Volumes, claims of volumes and classes of storage.

use super::{
    field::{Errors, Field, same},
    placement, rules, volumes,
};
use freehold_machinery::{Value, names};

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

fn access_modes(modes: &Field<'_>, detail: &str, errors: &mut Errors) {
    if modes.is_empty() {
        errors.push(modes.required(detail));
    }
    for mode in modes.texts().filter(|mode| !MODES.contains(mode)) {
        let mut error = modes.not_supported(&MODES);
        error.value = Some(mode.into());
        errors.push(error);
    }
    let alone = |mode: &str| mode == "ReadWriteOncePod";
    if modes.texts().any(alone) && modes.texts().any(|mode| !alone(mode) && MODES.contains(&mode)) {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

/// The spec of a claim, or of a template of claims.
pub(super) fn claim_spec(spec: &Field<'_>, errors: &mut Errors) {
    access_modes(&spec.get("accessModes"), "at least 1 access mode is required", errors);
    rules::label_selector(&spec.get("selector"), errors);
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
    rules::optional_name(&spec.get("volumeAttributesClassName"), names::dns1123_subdomain, errors);
    for source in ["dataSource", "dataSourceRef"].map(|field| spec.get(field)) {
        if source.is_set() {
            rules::required(&source.get("kind"), errors);
            rules::required(&source.get("name"), errors);
        }
    }
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
        if super::super::access::is_empty(&before["volumeName"]) {
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
    if !same(&fixed(spec.value), &fixed(before)) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName \
                      for bound claims";
        errors.push(spec.forbidden(detail));
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
    access_modes(&spec.get("accessModes"), "", errors);
    let capacity = spec.get("capacity");
    rules::required(&capacity, errors);
    if !capacity.key("storage").is_set() || capacity.len() > 1 {
        errors.push(capacity.not_supported(&["storage"]));
    }
    capacity.entries().for_each(|(_, amount)| rules::positive_amount(&amount, errors));
    rules::optional_one_of(&spec.get("persistentVolumeReclaimPolicy"), &POLICIES, errors);
    let affinity = spec.get("nodeAffinity");
    if affinity.is_set() {
        if affinity.get("required").is_set() {
            placement::node_selector(&affinity.get("required"), true, errors);
        } else {
            errors.push(affinity.get("required").required("must specify required node constraints"));
        }
    }
    volume_source(&spec, errors);
    rules::optional_name(&spec.get("storageClassName"), names::dns1123_subdomain, errors);
    rules::optional_one_of(&spec.get("volumeMode"), &VOLUME_MODES, errors);
    if let Some(old) = old {
        let source = |spec: &Value| {
            let mut spec = spec.clone();
            NOT_SOURCES.iter().for_each(|field| spec[*field] = Value::Null);
            spec
        };
        if !same(&source(spec.value), &source(&old["spec"])) {
            let detail = "spec.persistentvolumesource is immutable after creation";
            errors.push(spec.get("persistentvolumesource").forbidden(detail));
        }
        rules::immutable(&spec.get("volumeMode").named("volumeMode"), &old["spec"]["volumeMode"], errors);
    }
}

fn volume_source(spec: &Field<'_>, errors: &mut Errors) {
    let local = spec.get("local");
    if !local.is_set() {
        return volumes::of_persistent(spec, errors);
    }
    rules::required(&local.get("path"), errors);
    rules::no_backsteps(&local.get("path"), errors);
    if !spec.get("nodeAffinity.required").is_set() {
        errors.push(spec.get("nodeAffinity").required("Local volume requires node affinity"));
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
    object.get("allowedTopologies").items().for_each(|term| placement::topology_term(&term, errors));
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        let now = object.get(field);
        if !same(now.value, &old[field]) {
            let absent: Value = if field == "parameters" { serde_json::json!({}) } else { "".into() };
            let shown = if now.is_set() { now.value.clone() } else { absent };
            errors.push(now.invalid_as(shown, "field is immutable"));
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
