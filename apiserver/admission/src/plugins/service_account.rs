//! Pods run as a service account of their namespace, and get its token
//! (<https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#serviceaccount-admission-controller>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{items, list_mut, text},
};
use freehold_machinery::{Result, Value, meta};
use serde_json::json;
use std::sync::Arc;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long a mounted token lives, in seconds: an hour, and seven seconds to tell it from others.
const TOKEN_SECONDS: i64 = 3607;
/// The letters of generated names: without vowels, so that they spell nothing.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The plugin.
pub struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let creates = attributes.is("", "pods") && attributes.verb == Verb::Create;
        let Some(pod) = attributes.object().filter(|_| creates) else { return Ok(()) };
        if meta::annotation(pod, MIRROR).is_some() {
            return mirror_refusal(pod).map_or(Ok(()), |why| Err(attributes.forbidden(why)));
        }
        let named = text(pod, "/spec/serviceAccountName");
        let name = if named.is_empty() { "default" } else { named }.to_owned();
        let account = account(attributes, lookup, &name)?;
        let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
        pod["spec"]["serviceAccountName"] = name.clone().into();
        // The deprecated field says the same, as the API's conversion has it.
        pod["spec"]["serviceAccount"] = name.into();
        if automounts(pod, &account) {
            mount_token(pod);
        }
        let own = items(pod, "/spec/imagePullSecrets").next().is_some();
        let secrets: Vec<Value> = items(&account, "/imagePullSecrets").cloned().collect();
        if !own && !secrets.is_empty() {
            pod["spec"]["imagePullSecrets"] = Value::Array(secrets);
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let creates = attributes.is("", "pods") && attributes.verb == Verb::Create;
        let Some(pod) = attributes.object().filter(|_| creates) else { return Ok(()) };
        if meta::annotation(pod, MIRROR).is_some() {
            return mirror_refusal(pod).map_or(Ok(()), |why| Err(attributes.forbidden(why)));
        }
        account(attributes, lookup, text(pod, "/spec/serviceAccountName")).map(|_| ())
    }
}

fn account(attributes: &Attributes<'_>, lookup: &dyn Lookup, name: &str) -> Result<Arc<Value>> {
    let namespace = attributes.namespace;
    // It stands in the path of a request there.
    let odd: Vec<String> =
        ['/', '%'].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect();
    if !odd.is_empty() {
        return Err(attributes.forbidden(&format!(
            "error looking up service account {namespace}/{name}: invalid resource name {name:?}: [{}]",
            odd.join(" ")
        )));
    }
    lookup.get(attributes.plane, "", "serviceaccounts", namespace, name).ok_or_else(|| {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        attributes.forbidden(&why)
    })
}

/// A mirror Pod stands for one that a kubelet runs by itself: it has nothing that the API would have to give it.
fn mirror_refusal(pod: &Value) -> Option<&'static str> {
    let volumes = |source: &str| items(pod, "/spec/volumes").any(|volume| volume.get(source).is_some());
    let env = |source: &str| {
        let lists = ["/spec/containers", "/spec/initContainers"];
        let containers = lists.into_iter().flat_map(|list| items(pod, list));
        containers
            .flat_map(|c| items(c, "/env"))
            .any(|e| e.pointer(&format!("/valueFrom/{source}")).is_some())
    };
    let tokens = items(pod, "/spec/volumes")
        .flat_map(|volume| items(volume, "/projected/sources"))
        .any(|source| source.get("serviceAccountToken").is_some());
    let refusals = [
        (
            !text(pod, "/spec/serviceAccountName").is_empty(),
            "a mirror pod may not reference service accounts",
        ),
        (volumes("secret") || env("secretKeyRef"), "a mirror pod may not reference secrets"),
        (volumes("configMap") || env("configMapKeyRef"), "a mirror pod may not reference configmaps"),
        (volumes("persistentVolumeClaim"), "a mirror pod may not reference persistentvolumeclaims"),
        (tokens, "a mirror pod may not use ServiceAccountToken volume projections"),
    ];
    refusals.into_iter().find(|(found, _)| *found).map(|(_, why)| why)
}

/// The Pod's word counts before the account's; without either, tokens are mounted.
fn automounts(pod: &Value, account: &Value) -> bool {
    let said = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_bool);
    said(pod, "/spec/automountServiceAccountToken")
        .or_else(|| said(account, "/automountServiceAccountToken"))
        .unwrap_or(true)
}

/// Mounts the token, the plane's certificates and the namespace in each container that has nothing at that path.
fn mount_token(pod: &mut Value) {
    let existing = items(pod, "/spec/volumes").map(|volume| text(volume, "/name"));
    let existing = existing.filter(|name| name.starts_with(&format!("{VOLUME}-"))).map(str::to_owned).next();
    let volume = existing.clone().unwrap_or_else(|| format!("{VOLUME}-{}", suffix()));
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if items(container, "/volumeMounts").any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
            list_mut(container, "volumeMounts").into_iter().for_each(|mounts| mounts.push(mount.clone()));
            mounted = true;
        }
    }
    if let (true, None, Some(volumes)) = (mounted, existing, list_mut(&mut pod["spec"], "volumes")) {
        volumes.push(token_volume(&volume));
    }
}

fn token_volume(name: &str) -> Value {
    let namespace =
        json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]}})
}

fn suffix() -> String {
    let random = uuid::Uuid::new_v4().into_bytes();
    random[..5].iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}
