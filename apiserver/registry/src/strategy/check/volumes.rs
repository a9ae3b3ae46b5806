//! Volumes of pods, and what refers to fields of the pod.

use super::{
    containers::Pod,
    field::{Errors, Field},
    rules, storage,
};
use freehold_machinery::names;
use std::collections::BTreeSet;

/// Sources in the order in which Kubernetes looks for them, each with the fields that must be there.
const SOURCES: &[(&str, &[&str])] = &[
    ("emptyDir", &[]),
    ("hostPath", &["path"]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("quobyte", &["registry", "volume"]),
    ("downwardAPI", &[]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("storageos", &[]),
    ("projected", &[]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", &["driver"]),
    ("ephemeral", &["volumeClaimTemplate"]),
    ("image", &[]),
];
const HOST_PATHS: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];
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
const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Checks the volumes of a pod spec; containers may mount those that are good.
pub(super) fn volumes<'a>(volumes: &Field<'a>, errors: &mut Errors) -> Pod<'a> {
    let mut pod = Pod { volumes: BTreeSet::new(), claims: BTreeSet::new() };
    for volume in volumes.items() {
        let mut found = Errors::new();
        source(&volume, &mut found);
        let name = volume.get("name");
        rules::required_name(&name, names::dns1123_label, &mut found);
        if pod.volumes.contains(name.text()) {
            found.push(name.duplicate());
        }
        if found.is_empty() {
            pod.volumes.insert(name.text());
            if ["persistentVolumeClaim", "ephemeral"].iter().any(|kind| volume.get(kind).is_set()) {
                pod.claims.insert(name.text());
            }
        }
        errors.extend(found);
    }
    pod
}

/// Exactly one source, with what it needs.
pub(super) fn source(parent: &Field<'_>, errors: &mut Errors) {
    let mut given = SOURCES.iter().filter(|(kind, _)| parent.get(kind).is_set());
    let Some((kind, required)) = given.next() else {
        return errors.push(parent.required("must specify a volume type"));
    };
    let field = parent.get(kind);
    required.iter().for_each(|name| rules::required(&field.get(name), errors));
    special(kind, &field, errors);
    errors
        .extend(given.map(|(kind, _)| parent.get(kind).forbidden("may not specify more than 1 volume type")));
}

fn special(kind: &str, source: &Field<'_>, errors: &mut Errors) {
    match kind {
        "hostPath" => {
            rules::no_backsteps(&source.get("path"), errors);
            rules::optional_one_of(&source.get("type"), &HOST_PATHS, errors);
        }
        "emptyDir" => {
            let limit = source.get("sizeLimit");
            if rules::amount(&limit).is_some_and(|limit| limit.sign() < 0) {
                errors.push(limit.forbidden("SizeLimit field must be a valid resource quantity"));
            }
        }
        "nfs" if !source.get("path").text().starts_with('/') && !source.get("path").is_empty() => {
            errors.push(source.get("path").invalid("must be an absolute path"));
        }
        "secret" | "configMap" => {
            mode(&source.get("defaultMode"), errors);
            source.get("items").items().for_each(|item| key_to_path(&item, errors));
        }
        "downwardAPI" => {
            mode(&source.get("defaultMode"), errors);
            source.get("items").items().for_each(|file| downward_file(&file, errors));
        }
        "projected" => projected(source, errors),
        "ephemeral" => storage::claim_spec(&source.get("volumeClaimTemplate.spec"), errors),
        _ => {}
    }
}

fn mode(mode: &Field<'_>, errors: &mut Errors) {
    if mode.int().is_some_and(|bits| !(0..=0o777).contains(&bits)) {
        errors.push(mode.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}

fn local_path(path: &Field<'_>, errors: &mut Errors) {
    rules::required(path, errors);
    rules::relative_path(path, errors);
    if path.text().starts_with("..") && !path.text().starts_with("../") && path.text() != ".." {
        errors.push(path.invalid("must not start with '..'"));
    }
}

fn key_to_path(item: &Field<'_>, errors: &mut Errors) {
    rules::required(&item.get("key"), errors);
    local_path(&item.get("path"), errors);
    mode(&item.get("mode"), errors);
}

fn downward_file(file: &Field<'_>, errors: &mut Errors) {
    local_path(&file.get("path"), errors);
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.is_set() {
        field_reference(&field, false, errors);
        if resource.is_set() {
            errors.push(
                file.invalid_as(
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                ),
            );
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
    let path = reference.get("fieldPath");
    rules::required(&reference.get("apiVersion"), errors);
    if path.is_empty() {
        return errors.push(path.required(""));
    }
    let subscript = path.text().strip_suffix("']").and_then(|rest| rest.split_once("['"));
    if let Some(("metadata.annotations" | "metadata.labels", key)) = subscript {
        let found = names::qualified_name(&key.to_lowercase());
        return errors.extend(found.into_iter().map(|why| reference.invalid_as(key, why)));
    }
    if subscript.is_none() && !POD_FIELDS.iter().chain(&FILE_FIELDS).any(|field| *field == path.text()) {
        let why = format!("error converting fieldPath: field label not supported: {}", path.text());
        return errors.push(path.invalid(why));
    }
    if let Some((field, _)) = subscript {
        return errors.push(reference.invalid_as(field, "does not support subscript"));
    }
    let supported: &[&str] = if variable { &POD_FIELDS } else { &FILE_FIELDS };
    if !supported.contains(&path.text()) {
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
}

fn projected(source: &Field<'_>, errors: &mut Errors) {
    const KINDS: [&str; 6] =
        ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
    mode(&source.get("defaultMode"), errors);
    for part in source.get("sources").items() {
        let mut given = KINDS.into_iter().filter(|kind| part.get(kind).is_set());
        let Some(kind) = given.next() else { continue };
        errors.extend(
            given.map(|kind| part.get(kind).forbidden("may not specify more than 1 volume type per source")),
        );
        let field = part.get(kind);
        match kind {
            "secret" | "configMap" => {
                rules::required(&field.get("name"), errors);
                field.get("items").items().for_each(|item| key_to_path(&item, errors));
            }
            "downwardAPI" => field.get("items").items().for_each(|file| downward_file(&file, errors)),
            "serviceAccountToken" => token(&field, errors),
            _ => {}
        }
    }
}

fn token(field: &Field<'_>, errors: &mut Errors) {
    let seconds = field.get("expirationSeconds");
    match seconds.int() {
        Some(short) if short < 600 => {
            errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
        }
        Some(long) if long > 1 << 32 => {
            errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"))
        }
        _ => {}
    }
    rules::required(&field.get("path"), errors);
}
