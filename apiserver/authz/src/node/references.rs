//! What objects say of others, as far as nodes are concerned.

use super::graph::{Kind, Said};
use freehold_machinery::{Value, meta};

/// The annotation of a Pod that a node made from a file of its own.
const MIRROR: &str = "kubernetes.io/config.mirror";

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// What an object of a resource says; nothing where the resource says nothing of nodes.
pub fn said(resource: &str, object: &Value) -> Option<(Kind, Said)> {
    let own = |kind: Kind, node: &Value| {
        let node = text(node).unwrap_or_default().to_owned();
        let named = (kind, meta::namespace(object).to_owned(), meta::name(object).to_owned());
        let seen = if node.is_empty() { Vec::new() } else { vec![named] };
        Said { node, seen, through: Vec::new() }
    };
    Some(match resource {
        "pods" => (Kind::Pod, of_pod(object, own(Kind::Pod, &object["spec"]["nodeName"]))),
        "persistentvolumes" => (Kind::Volume, of_volume(object)),
        "volumeattachments" => (Kind::Attachment, own(Kind::Attachment, &object["spec"]["nodeName"])),
        "resourceslices" => (Kind::Slice, own(Kind::Slice, &object["spec"]["nodeName"])),
        _ => return None,
    })
}

/// What a Pod uses. One that its node made itself gives it nothing.
fn of_pod(pod: &Value, mut said: Said) -> Said {
    if said.node.is_empty() || meta::annotation(pod, MIRROR).is_some() {
        return said;
    }
    let mut names = vec![(Kind::Account, text(&pod["spec"]["serviceAccountName"]))];
    names.extend(list(&pod["spec"]["imagePullSecrets"]).map(|secret| (Kind::Secret, text(&secret["name"]))));
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        list(&pod["spec"][field]).for_each(|container| names.extend(of_container(container)));
    }
    list(&pod["spec"]["volumes"]).for_each(|volume| names.extend(of_pod_volume(volume)));
    let extended = &pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"];
    names.push((Kind::ResourceClaim, text(extended)));
    names.extend(
        list(&pod["spec"]["resourceClaims"]).map(|claim| (Kind::ResourceClaim, resource_claim(pod, claim))),
    );
    let ephemeral = list(&pod["spec"]["volumes"]).filter(|volume| volume["ephemeral"].is_object());
    let ephemeral: Vec<String> = ephemeral
        .filter_map(|volume| Some(format!("{}-{}", meta::name(pod), text(&volume["name"])?)))
        .collect();
    names.extend(ephemeral.iter().map(|name| (Kind::Claim, Some(name.as_str()))));
    let namespace = meta::namespace(pod);
    for (kind, name) in names {
        let Some(name) = name else { continue };
        let named = (kind, namespace.to_owned(), name.to_owned());
        if !said.seen.contains(&named) {
            said.seen.push(named);
        }
    }
    said
}

type Reference<'a> = (Kind, Option<&'a str>);

fn of_container(container: &Value) -> impl Iterator<Item = Reference<'_>> {
    let all = list(&container["envFrom"]).flat_map(|from| {
        [
            (Kind::Secret, text(&from["secretRef"]["name"])),
            (Kind::ConfigMap, text(&from["configMapRef"]["name"])),
        ]
    });
    let single = list(&container["env"]).flat_map(|variable| {
        let from = &variable["valueFrom"];
        [
            (Kind::Secret, text(&from["secretKeyRef"]["name"])),
            (Kind::ConfigMap, text(&from["configMapKeyRef"]["name"])),
        ]
    });
    all.chain(single)
}

/// Sources of volumes that name a Secret of the Pod's namespace.
const SECRET_REFS: [&str; 7] = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];

fn of_pod_volume(volume: &Value) -> Vec<Reference<'_>> {
    let mut names = vec![
        (Kind::Secret, text(&volume["secret"]["secretName"])),
        (Kind::Secret, text(&volume["azureFile"]["secretName"])),
        (Kind::Secret, text(&volume["csi"]["nodePublishSecretRef"]["name"])),
        (Kind::ConfigMap, text(&volume["configMap"]["name"])),
        (Kind::Claim, text(&volume["persistentVolumeClaim"]["claimName"])),
    ];
    names.extend(SECRET_REFS.map(|source| (Kind::Secret, text(&volume[source]["secretRef"]["name"]))));
    for source in list(&volume["projected"]["sources"]) {
        names.push((Kind::Secret, text(&source["secret"]["name"])));
        names.push((Kind::ConfigMap, text(&source["configMap"]["name"])));
    }
    names
}

fn resource_claim<'a>(pod: &'a Value, claim: &'a Value) -> Option<&'a str> {
    text(&claim["resourceClaimName"]).or_else(|| {
        let status =
            list(&pod["status"]["resourceClaimStatuses"]).find(|status| status["name"] == claim["name"])?;
        text(&status["resourceClaimName"])
    })
}

/// References of volumes to Secrets that nodes see. They are in the claim's namespace where they name none.
const VOLUME_SECRETS: [(&str, &str); 10] = [
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
    ("csi", "nodeStageSecretRef"),
    ("csi", "nodeExpandSecretRef"),
];

/// A bound volume is seen through its claim, and so are the Secrets that it takes to mount it.
fn of_volume(volume: &Value) -> Said {
    let spec = &volume["spec"];
    let (Some(namespace), Some(claim)) =
        (text(&spec["claimRef"]["namespace"]), text(&spec["claimRef"]["name"]))
    else {
        return Said::default();
    };
    let mut secrets: Vec<(&str, &str)> = Vec::new();
    for (source, field) in VOLUME_SECRETS {
        let reference = &spec[source][field];
        if let Some(name) = text(&reference["name"]) {
            secrets.push((text(&reference["namespace"]).unwrap_or(namespace), name));
        }
    }
    if let Some(name) = text(&spec["azureFile"]["secretName"]) {
        secrets.push((text(&spec["azureFile"]["secretNamespace"]).unwrap_or(namespace), name));
    }
    let claim = || (Kind::Claim, namespace.to_owned(), claim.to_owned());
    let own = ((Kind::Volume, String::new(), meta::name(volume).to_owned()), claim());
    let of_secret =
        |(namespace, name): (&str, &str)| ((Kind::Secret, namespace.to_owned(), name.to_owned()), claim());
    Said {
        through: std::iter::once(own).chain(secrets.into_iter().map(of_secret)).collect(),
        ..Said::default()
    }
}
