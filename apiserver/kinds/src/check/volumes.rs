//! Volumes of pods.

use super::{
    containers::Pod,
    field::{Errors, Field},
    projected,
    rows::{REQUIRED, Row, Rule, check},
    rules, storage,
};
use freehold_machinery::names;
use std::collections::BTreeSet;

/// A kind of volume.
pub(super) struct Source {
    /// Its field.
    kind: &'static str,
    /// The field that an error names where it is one too many.
    surplus: &'static str,
    /// The field below which errors name its own fields.
    at: &'static str,
    rows: &'static [Row],
}

const fn source(kind: &'static str, rows: &'static [Row]) -> Source {
    Source { kind, surplus: kind, at: kind, rows }
}

const MODE: Rule = Rule::Also(projected::mode);
const PARTITION: Rule = Rule::Also(partition);
const SECRET: Rule = Rule::Fields(&[("name", REQUIRED)]);
const HOST_PATHS: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// Sources in the order in which Kubernetes looks for them.
static SOURCES: &[Source] = &[
    source("emptyDir", &[("sizeLimit", Rule::Also(size_limit))]),
    source(
        "hostPath",
        &[("path", REQUIRED), ("path", Rule::Also(rules::no_backsteps)), ("type", Rule::OneOf(&HOST_PATHS))],
    ),
    source("gitRepo", &[("repository", REQUIRED), ("directory", Rule::Also(rules::relative_path))]),
    Source {
        at: "persistentDisk",
        ..source("gcePersistentDisk", &[("pdName", REQUIRED), ("partition", PARTITION)])
    },
    source("awsElasticBlockStore", &[("volumeID", REQUIRED), ("partition", PARTITION)]),
    source(
        "secret",
        &[("secretName", REQUIRED), ("defaultMode", MODE), ("items", Rule::Each(projected::KEY_TO_PATH))],
    ),
    source("nfs", NFS),
    source("iscsi", &[("", Rule::Also(iscsi))]),
    source("glusterfs", &[("endpoints", REQUIRED), ("path", REQUIRED)]),
    source("flocker", FLOCKER),
    source("persistentVolumeClaim", &[("claimName", REQUIRED)]),
    source("rbd", &[("monitors", REQUIRED), ("image", REQUIRED)]),
    source("cinder", &[("volumeID", REQUIRED), ("secretRef", SECRET)]),
    Source { surplus: "cephFS", ..source("cephfs", &[("monitors", REQUIRED)]) },
    source("quobyte", QUOBYTE),
    Source { surplus: "downwarAPI", ..source("downwardAPI", &[("", Rule::Also(projected::downward))]) },
    source("fc", FC),
    source("flexVolume", FLEX),
    source(
        "configMap",
        &[("name", REQUIRED), ("defaultMode", MODE), ("items", Rule::Each(projected::KEY_TO_PATH))],
    ),
    source("azureFile", &[("secretName", REQUIRED), ("shareName", REQUIRED)]),
    source("vsphereVolume", &[("volumePath", REQUIRED)]),
    source("photonPersistentDisk", &[("pdID", REQUIRED)]),
    source("portworxVolume", &[("volumeID", REQUIRED)]),
    source("azureDisk", AZURE_DISK),
    source(
        "storageos",
        &[
            ("volumeName", Rule::RequiredName(names::dns1123_label)),
            ("volumeNamespace", Rule::Name(names::dns1123_label)),
            ("secretRef", SECRET),
        ],
    ),
    source("projected", &[("", Rule::Also(projected::projected))]),
    source("scaleIO", SCALE_IO),
    source("csi", &[("driver", Rule::Also(driver_name)), ("", Rule::Also(publish_secret))]),
    source("ephemeral", &[("", Rule::Also(ephemeral))]),
    source("image", &[("reference", REQUIRED), ("pullPolicy", Rule::RequiredOneOf(&PULL_POLICIES))]),
];

/// A share of an NFS server.
pub(super) const NFS: &[Row] = &[("server", REQUIRED), ("path", REQUIRED), ("path", Rule::Also(absolute))];
/// A Flocker dataset.
pub(super) const FLOCKER: &[Row] = &[("", Rule::Also(flocker))];
/// A Quobyte volume.
pub(super) const QUOBYTE: &[Row] = &[("", Rule::Also(quobyte)), ("volume", REQUIRED)];
/// A Fibre Channel volume.
pub(super) const FC: &[Row] = &[("", Rule::Also(fibre_channel))];
/// A volume of a plugin.
pub(super) const FLEX: &[Row] = &[("driver", REQUIRED), ("options", Rule::Also(flex_options))];
/// A disk of Azure.
pub(super) const AZURE_DISK: &[Row] = &[
    ("diskName", REQUIRED),
    ("diskURI", REQUIRED),
    ("cachingMode", Rule::OneOf(&["None", "ReadOnly", "ReadWrite"])),
    ("kind", Rule::OneOf(&["Dedicated", "Managed", "Shared"])),
    ("", Rule::Also(azure_uri)),
];
/// A ScaleIO volume.
pub(super) const SCALE_IO: &[Row] = &[("gateway", REQUIRED), ("system", REQUIRED), ("volumeName", REQUIRED)];
const IMAGE_AT_LEAST: &str = "must specify a volume type";

/// Checks the volumes of a pod spec; containers may mount those that are good.
pub(super) fn volumes<'a>(volumes: &Field<'a>, pod_name: &str, errors: &mut Errors) -> Pod<'a> {
    let mut pod = Pod { volumes: BTreeSet::new(), claims: BTreeSet::new() };
    let made = |volume: &Field<'_>| volume.get("ephemeral").is_set() && !pod_name.is_empty();
    let created: BTreeSet<String> = volumes
        .items()
        .filter(made)
        .map(|volume| format!("{pod_name}-{}", volume.get("name").text()))
        .collect();
    for volume in volumes.items() {
        let mut found = Errors::new();
        one_source(&volume, SOURCES, &mut found);
        let name = volume.get("name");
        if made(&volume) && !name.is_empty() {
            let claim = format!("{pod_name}-{}", name.text());
            let wrong = names::dns1123_subdomain(&claim).into_iter();
            found.extend(wrong.map(|why| name.invalid(format!("PVC name {claim:?}: {why}"))));
        }
        portal(&volume, &mut found);
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
        let claim = volume.get("persistentVolumeClaim.claimName");
        if created.contains(claim.text()) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(claim.invalid(detail));
        }
    }
    pod
}

/// Exactly one source, with what it needs.
pub(super) fn one_source<'s>(
    parent: &Field<'_>,
    sources: impl IntoIterator<Item = &'s Source>,
    errors: &mut Errors,
) {
    let mut found = false;
    for source in sources {
        let field = parent.get(source.kind);
        if !field.is_set() {
            continue;
        }
        if found {
            let surplus = parent.get(source.surplus);
            errors.push(surplus.forbidden("may not specify more than 1 volume type"));
        } else {
            let at = parent.get(source.at).path().to_owned();
            check(&field.named(&at), source.rows, errors);
        }
        found = true;
    }
    if !found {
        errors.push(parent.required(IMAGE_AT_LEAST));
    }
}

/// Sources of persistent volumes of which something else must hold than of those of pods. Secrets have namespaces there.
static PERSISTENT: &[Source] = &[
    source(
        "glusterfs",
        &[
            ("endpoints", REQUIRED),
            ("path", REQUIRED),
            ("endpointsNamespace", Rule::Also(endpoints_namespace)),
        ],
    ),
    source("cinder", &[("volumeID", REQUIRED), ("secretRef", NAMED_SECRET)]),
    source(
        "azureFile",
        &[
            ("secretName", REQUIRED),
            ("shareName", REQUIRED),
            (
                "secretNamespace",
                Rule::Also(|namespace, errors| {
                    if namespace.is_set() {
                        rules::required(namespace, errors);
                    }
                }),
            ),
        ],
    ),
    source("iscsi", &[("", Rule::Also(persistent_iscsi))]),
    source(
        "storageos",
        &[
            ("volumeName", Rule::RequiredName(names::dns1123_label)),
            ("volumeNamespace", Rule::Name(names::dns1123_label)),
            ("secretRef", NAMED_SECRET),
        ],
    ),
    source(
        "csi",
        &[
            ("driver", Rule::Also(driver_name)),
            ("volumeHandle", REQUIRED),
            ("controllerPublishSecretRef", SECRET_OF_DRIVER),
            ("controllerExpandSecretRef", SECRET_OF_DRIVER),
            ("nodePublishSecretRef", SECRET_OF_DRIVER),
            ("nodeExpandSecretRef", SECRET_OF_DRIVER),
        ],
    ),
];

const NAMED_SECRET: Rule = Rule::Fields(&[("name", REQUIRED), ("namespace", REQUIRED)]);
const SECRET_OF_DRIVER: Rule = Rule::Fields(&[
    ("name", Rule::RequiredName(names::dns1123_subdomain)),
    ("namespace", Rule::RequiredName(names::dns1123_label)),
]);

/// A directory of a node; `local` of a persistent volume stands behind all others but these two.
static LOCAL: Source = source("local", &[("path", REQUIRED), ("path", Rule::Also(rules::no_backsteps))]);

/// The source of a persistent volume.
pub(super) fn of_persistent(spec: &Field<'_>, errors: &mut Errors) {
    let of =
        |source: &'static Source| PERSISTENT.iter().find(|own| own.kind == source.kind).unwrap_or(source);
    let at = SOURCES.iter().position(|source| source.kind == "storageos").unwrap_or(SOURCES.len());
    let (before, after) = SOURCES.split_at(at);
    let sources = before.iter().map(of).chain([&LOCAL]).chain(after.iter().map(of));
    one_source(spec, sources, errors);
}

fn endpoints_namespace(namespace: &Field<'_>, errors: &mut Errors) {
    if namespace.is_set() && namespace.is_empty() {
        errors.push(namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name"));
    } else {
        rules::optional_name(namespace, names::dns1123_label, errors);
    }
}

fn persistent_iscsi(source: &Field<'_>, errors: &mut Errors) {
    let mut found = Errors::new();
    iscsi(source, &mut found);
    let short = "must be valid format";
    let shortened = |mut error: freehold_machinery::status::FieldError| {
        if error.detail.starts_with(short) {
            error.detail = short.to_owned();
        }
        error
    };
    errors.extend(found.into_iter().map(shortened));
}

fn size_limit(limit: &Field<'_>, errors: &mut Errors) {
    if rules::amount(limit).is_some_and(|limit| limit.sign() < 0) {
        errors.push(limit.forbidden("SizeLimit field must be a valid resource quantity"));
    }
}

/// A partition of a disk; zero is the whole disk.
pub(super) fn partition(partition: &Field<'_>, errors: &mut Errors) {
    if !(0..=255).contains(&partition.number()) {
        errors.push(partition.invalid("must be between 1 and 255, inclusive"));
    }
}

fn absolute(path: &Field<'_>, errors: &mut Errors) {
    if !path.text().starts_with('/') {
        errors.push(path.invalid_as(path.text(), "must be an absolute path"));
    }
}

fn driver_name(driver: &Field<'_>, errors: &mut Errors) {
    storage::driver_name(driver, errors);
}

fn publish_secret(source: &Field<'_>, errors: &mut Errors) {
    let name = source.get("nodePublishSecretRef.name");
    if name.is_set() {
        rules::name(&name.named(source.get("name").path()), names::dns1123_subdomain, errors);
    } else if source.get("nodePublishSecretRef").is_set() {
        errors.push(name.required(""));
    }
}

fn is_alphanumeric(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|c| c.is_ascii_alphanumeric())
}

/// What is wrong with the name of an iSCSI target (RFC 3720, 3.2.6.3).
pub(super) fn iscsi_name(name: &str) -> Option<&'static str> {
    let rest = |prefix: &str| name.strip_prefix(prefix);
    let good = match name.get(..3) {
        Some("iqn") => {
            let date_and_more = rest("iqn.").and_then(|rest| rest.split_once('.'));
            date_and_more.is_some_and(|(date, rest)| {
                let date = date.split_once('-');
                let digits = |text: &str, n| text.len() == n && text.bytes().all(|c| c.is_ascii_digit());
                let host = rest.split_once(':');
                date.is_some_and(|(year, month)| digits(year, 4) && digits(month, 2))
                    && host.is_some_and(|(host, id)| {
                        let of_host = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
                        !host.is_empty()
                            && host.chars().all(of_host)
                            && !id.is_empty()
                            && !id.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n'])
                    })
            })
        }
        Some("eui") => rest("eui.").is_some_and(|id| is_alphanumeric(id, 16)),
        Some("naa") => rest("naa.").is_some_and(|id| is_alphanumeric(id, 32)),
        _ => return Some("must be valid format starting with iqn, eui, or naa"),
    };
    (!good).then_some("must be valid format")
}

fn iscsi(source: &Field<'_>, errors: &mut Errors) {
    rules::required(&source.get("targetPortal"), errors);
    let iqn = source.get("iqn");
    if iqn.is_empty() {
        errors.push(iqn.required(""));
    } else if let Some(why) = iscsi_name(iqn.text()) {
        errors.push(iqn.invalid(why));
    }
    let lun = source.get("lun");
    if !(0..=255).contains(&lun.number()) {
        errors.push(lun.invalid("must be between 0 and 255, inclusive"));
    }
    let secured = source.get("chapAuthDiscovery").flag() || source.get("chapAuthSession").flag();
    if secured && !source.get("secretRef").is_set() {
        errors.push(source.get("secretRef").required(""));
    }
    let initiator = source.get("initiatorName");
    if let Some(why) = initiator.value.as_str().and_then(iscsi_name) {
        errors.push(source.get("initiatorname").invalid_as(initiator.text(), why));
    }
}

/// What identifies an iSCSI volume to its initiator.
fn portal(volume: &Field<'_>, errors: &mut Errors) {
    const LONGEST: usize = 64;
    let (name, source) = (volume.get("name"), volume.get("iscsi"));
    let length = name.text().len() + 1 + source.get("targetPortal").text().len();
    if source.get("initiatorName").is_set() && length > LONGEST {
        errors.push(name.invalid_as(
            name.text(),
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
        ));
    }
}

fn flocker(source: &Field<'_>, errors: &mut Errors) {
    let (name, id) = (source.get("datasetName"), source.get("datasetUUID"));
    match (name.is_empty(), id.is_empty()) {
        (true, true) => errors.push(source.required("one of datasetName and datasetUUID is required")),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(source.invalid_as("resource", detail));
        }
        _ => {}
    }
    if name.text().contains('/') {
        errors.push(name.invalid("must not contain '/'"));
    }
}

fn quobyte(source: &Field<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (source.get("registry"), source.get("tenant"));
    if registry.is_empty() {
        return errors.push(registry.required(PAIRS));
    }
    if tenant.text().len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        return errors.push(tenant.required(detail));
    }
    for _ in registry.text().split(',').filter(|pair| pair.matches(':').count() != 1) {
        errors.push(registry.invalid(PAIRS));
    }
}

fn fibre_channel(source: &Field<'_>, errors: &mut Errors) {
    let (names, ids, lun) = (source.get("targetWWNs"), source.get("wwids"), source.get("lun"));
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => {
            errors.push(names.required("must specify either targetWWNs or wwids, but not both"));
        }
        (false, false) => {
            errors.push(names.invalid("targetWWNs and wwids can not be specified simultaneously"));
        }
        _ => {}
    }
    if names.is_empty() {
        return;
    }
    match lun.int() {
        None => errors.push(lun.required("lun is required if targetWWNs is specified")),
        Some(_) => rules::within(&lun, 0, 255, errors),
    }
}

fn flex_options(options: &Field<'_>, errors: &mut Errors) {
    for (key, option) in options.entries() {
        let namespace = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        let namespace = if key.contains('/') { namespace } else { format!(".{}", key.to_lowercase()) };
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            errors.push(option.invalid_as(key, "kubernetes.io and k8s.io namespaces are reserved"));
        }
    }
}

fn azure_uri(source: &Field<'_>, errors: &mut Errors) {
    let (kind, uri) = (source.get("kind"), source.get("diskURI"));
    let (prefix, form) = if kind.text() == "Managed" {
        (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        )
    } else {
        ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    };
    if kind.is_set() && !uri.text().starts_with(prefix) {
        errors.push(uri.not_supported(&[form]));
    }
}

fn ephemeral(source: &Field<'_>, errors: &mut Errors) {
    let template = source.get("volumeClaimTemplate");
    if !template.is_set() {
        return errors.push(template.required(""));
    }
    let metadata = template.get("metadata");
    rules::annotations(&metadata.get("annotations"), errors);
    rules::labels(&metadata.get("labels"), errors);
    const OTHERS: [(&str, &str); 5] = [
        ("name", "name"),
        ("generateName", "generateName"),
        ("namespace", "namespace"),
        ("ownerReferences", "ownerReferences"),
        ("finalizers", "finalizers"),
    ];
    for (field, named) in OTHERS {
        if !metadata.get(field).is_empty() {
            errors.push(metadata.get(named).forbidden("cannot be set"));
        }
    }
    storage::claim_spec(&template.get("spec"), errors);
}
