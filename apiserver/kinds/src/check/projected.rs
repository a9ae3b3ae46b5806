//! Files in volumes that are made from other objects, and references to fields of the pod.

use super::{
    field::{Errors, Field},
    rows::{REQUIRED, Row, Rule, check},
    rules,
};
use freehold_machinery::names;
use std::collections::BTreeSet;

/// What an environment variable may be filled from.
const POD_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// What a file of a downward API volume may be filled from.
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields of pods that have a name, though nothing may be filled from them.
const OTHER_FIELDS: [&str; 6] = [
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.hostNetwork",
    "status.phase",
    "status.nominatedNodeName",
    "spec.host",
];
const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

/// A key of a Secret or ConfigMap and the file that it becomes.
pub(super) const KEY_TO_PATH: &[Row] =
    &[("key", REQUIRED), ("path", REQUIRED), ("path", Rule::Also(local_path)), ("mode", Rule::Also(mode))];

/// The permissions of a file.
pub(super) fn mode(mode: &Field<'_>, errors: &mut Errors) {
    if mode.int().is_some_and(|bits| !(0..=0o777).contains(&bits)) {
        errors.push(mode.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}

/// A path below the volume that is not among those that the kubelet makes.
pub(super) fn local_path(path: &Field<'_>, errors: &mut Errors) {
    rules::relative_path(path, errors);
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        errors.push(path.invalid("must not start with '..'"));
    }
}

/// A volume of the downward API. Errors do not say which file they are about.
pub(super) fn downward(source: &Field<'_>, errors: &mut Errors) {
    mode(&source.get("defaultMode"), errors);
    files(source, errors);
}

fn files(source: &Field<'_>, errors: &mut Errors) {
    source.get("items").items().for_each(|file| downward_file(&file.named(source.path()), errors));
}

fn downward_file(file: &Field<'_>, errors: &mut Errors) {
    rules::required(&file.get("path"), errors);
    local_path(&file.get("path"), errors);
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.is_set() {
        field_reference(&field, false, errors);
        if resource.is_set() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.push(file.invalid_as("resource", detail));
        }
    } else if resource.is_set() {
        resource_reference(&resource, true, errors);
    } else {
        errors.push(file.required("one of fieldRef and resourceFieldRef is required"));
    }
    mode(&file.get("mode"), errors);
}

/// What a variable or file takes from its pod.
pub(super) fn field_reference(reference: &Field<'_>, variable: bool, errors: &mut Errors) {
    let (version, path) = (reference.get("apiVersion"), reference.get("fieldPath"));
    if version.is_empty() {
        return errors.push(version.required(""));
    }
    if path.is_empty() {
        return errors.push(path.required(""));
    }
    if version.text() != "v1" {
        let why = format!("error converting fieldPath: unsupported pod version: {}", version.text());
        return errors.push(path.invalid(why));
    }
    let subscript = path.text().strip_suffix("']").and_then(|rest| rest.split_once("['"));
    let check = |key: &str| names::qualified_name(key).into_iter();
    match subscript {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            return errors.extend(check(&key).map(|why| reference.invalid_as(key.clone(), why)));
        }
        Some(("metadata.labels", key)) => {
            return errors.extend(check(key).map(|why| reference.invalid_as(key, why)));
        }
        Some(_) => {
            let why = format!(
                "error converting fieldPath: field label does not support subscript: {}",
                path.text()
            );
            return errors.push(path.invalid(why));
        }
        None => {}
    }
    let known = POD_FIELDS.iter().chain(&FILE_FIELDS).chain(&OTHER_FIELDS);
    if !known.into_iter().any(|field| *field == path.text()) {
        let why = format!("error converting fieldPath: field label not supported: {}", path.text());
        return errors.push(path.invalid(why));
    }
    let supported: &[&str] = if variable { &POD_FIELDS } else { &FILE_FIELDS };
    let shown = if path.text() == "spec.host" { "spec.nodeName" } else { path.text() };
    if !supported.contains(&shown) {
        errors.push(path.not_supported(supported));
    }
}

/// What a variable or file takes from a container's requests and limits.
pub(super) fn resource_reference(reference: &Field<'_>, in_volume: bool, errors: &mut Errors) {
    let resource = reference.get("resource");
    if in_volume && reference.get("containerName").is_empty() {
        errors.push(reference.get("containerName").required(""));
    } else if resource.is_empty() {
        errors.push(resource.required(""));
    } else {
        let pages = ["limits.hugepages-", "requests.hugepages-"];
        if !RESOURCE_FIELDS.contains(&resource.text())
            && !pages.iter().any(|prefix| resource.text().starts_with(prefix))
        {
            errors.push(resource.not_supported(&RESOURCE_FIELDS));
        }
    }
    divisor(reference, resource.text(), errors);
}

fn divisor(reference: &Field<'_>, resource: &str, errors: &mut Errors) {
    let field = reference.get("divisor");
    let Some(divisor) = rules::amount(&field).filter(|amount| amount.sign() != 0) else { return };
    let what = resource.split_once('.').map_or("", |(_, what)| what);
    let (values, words): (&[&str], &str) = match what {
        "cpu" => (&["1m", "1"], "cpu"),
        "memory" => (&SIZES, "memory"),
        "ephemeral-storage" => (&SIZES, "local ephemeral storage"),
        pages if pages.starts_with("hugepages-") => (&SIZES, "hugepages"),
        _ => return,
    };
    if values.contains(&divisor.to_string().as_str()) {
        return;
    }
    let list = if what == "cpu" { "1m and 1".to_owned() } else { SIZES.join(", ") };
    let detail = format!("only divisor's values {list} are supported with the {words} resource");
    errors.push(field.invalid_as(resource, detail));
}

/// A volume of several sources, of which no two make the same file.
pub(super) fn projected(source: &Field<'_>, errors: &mut Errors) {
    mode(&source.get("defaultMode"), errors);
    let mut taken = BTreeSet::new();
    for part in source.get("sources").items() {
        let given = PARTS.iter().filter(|(kind, _)| part.get(kind).is_set());
        for (kind, check) in given.clone() {
            check(source, &part.get(kind), &mut taken, errors);
        }
        if given.count() > 1 {
            errors.push(part.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

/// Checks a part of a projected volume: the volume, the part, and the files that there are.
type CheckPart = fn(&Field<'_>, &Field<'_>, &mut BTreeSet<String>, &mut Errors);

const PARTS: &[(&str, CheckPart)] = &[
    ("secret", keys),
    ("configMap", keys),
    ("downwardAPI", |volume, part, taken, errors| {
        for file in part.get("items").items() {
            downward_file(&file.named(part.path()), errors);
            take(volume, file.get("path").text(), file.get("path").text(), taken, errors);
        }
    }),
    ("serviceAccountToken", |volume, part, _, errors| token(volume, part, errors)),
    ("clusterTrustBundle", trust_bundle),
    ("podCertificate", certificate),
];

fn take(volume: &Field<'_>, path: &str, shown: &str, taken: &mut BTreeSet<String>, errors: &mut Errors) {
    if !path.is_empty() && !taken.insert(path.to_owned()) {
        errors.push(volume.invalid_as(shown, "conflicting duplicate paths"));
    }
}

fn keys(volume: &Field<'_>, part: &Field<'_>, taken: &mut BTreeSet<String>, errors: &mut Errors) {
    let name = part.get("name");
    rules::required(&name, errors);
    for item in part.get("items").items() {
        check(&item, KEY_TO_PATH, errors);
        take(volume, item.get("path").text(), name.text(), taken, errors);
    }
}

fn token(volume: &Field<'_>, part: &Field<'_>, errors: &mut Errors) {
    let seconds = part.get("expirationSeconds");
    match seconds.int() {
        Some(short) if short < 600 => {
            errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
        }
        Some(long) if long > 1 << 32 => {
            errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
        }
        _ => {}
    }
    let path = part.get("path").named(volume.get("path").path());
    if path.is_empty() {
        errors.push(path.required(""));
    } else {
        local_path(&path, errors);
    }
}

fn trust_bundle(volume: &Field<'_>, part: &Field<'_>, taken: &mut BTreeSet<String>, errors: &mut Errors) {
    let [name, signer, selector] = ["name", "signerName", "labelSelector"].map(|field| part.get(field));
    match (name.is_set(), signer.is_set()) {
        (true, true) => {
            errors.push(part.invalid("only one of name and signerName may be used"));
        }
        (true, false) => {
            if name.is_empty() {
                errors.push(name.required("must be a valid object name"));
            }
            let wrong = names::dns1123_subdomain(name.text()).into_iter();
            errors
                .extend(wrong.map(|why| name.invalid(format!("not a valid clustertrustbundlename: {why}"))));
            if selector.is_set() {
                errors.push(selector.invalid("labelSelector must be unset if name is specified"));
            }
        }
        (false, true) => {
            if signer.is_empty() {
                errors.push(signer.required("must be a valid signer name"));
            }
            super::cluster::signer_name(&signer, errors);
            rules::label_selector(&selector, errors);
        }
        (false, false) => errors.push(part.required("either name or signerName must be specified")),
    }
    let path = part.get("path");
    rules::required(&path, errors);
    local_path(&path, errors);
    take(volume, path.text(), path.text(), taken, errors);
}

fn certificate(volume: &Field<'_>, part: &Field<'_>, taken: &mut BTreeSet<String>, errors: &mut Errors) {
    super::cluster::signer_name(&part.get("signerName"), errors);
    if !KEY_TYPES.contains(&part.get("keyType").text()) {
        errors.push(part.get("keyType").not_supported(&KEY_TYPES));
    }
    let seconds = part.get("maxExpirationSeconds");
    let most = if part.get("signerName").text().starts_with("kubernetes.io/") { 86_400 } else { 7_862_400 };
    if seconds.int().is_some_and(|n| n < 3600) {
        errors.push(seconds.invalid("if provided, maxExpirationSeconds must be >= 3600"));
    }
    if seconds.int().is_some_and(|n| n > most) {
        errors.push(seconds.invalid(format!("if provided, maxExpirationSeconds must be <= {most}")));
    }
    let paths = ["credentialBundlePath", "keyPath", "certificateChainPath"].map(|field| part.get(field));
    for path in paths.iter().filter(|path| !path.is_empty()) {
        local_path(path, errors);
        take(volume, path.text(), path.text(), taken, errors);
    }
    if paths.iter().all(Field::is_empty) {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.push(part.required(detail));
    }
}
