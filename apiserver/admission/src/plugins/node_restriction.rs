//! NodeRestriction: kubelets write their own Node, Lease and CSINode, the status of Pods that are bound to them,
//! mirrors of their static Pods, and tokens for their Pods
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>).
//!
//! A kubelet is a user of the group `system:nodes` with the name `system:node:NAME`.

use crate::{
    Attributes, Lookup, Permission, Plugin, Verb,
    json::{items, text},
    plugins::certificates,
};
use freehold_machinery::{GroupResource, Map, Result, Status, Value, meta};
use std::{collections::BTreeSet, sync::Arc};

const GROUP: &str = "system:nodes";
const USER: &str = "system:node:";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Labels of Kubernetes that a kubelet sets on its own Node, and the namespaces in which it may set any.
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const OWN_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// Where a volume names a Secret.
const SECRETS: [&str; 11] = [
    "/secret",
    "/azureFile",
    "/cephfs/secretRef",
    "/cinder/secretRef",
    "/flexVolume/secretRef",
    "/iscsi/secretRef",
    "/rbd/secretRef",
    "/scaleIO/secretRef",
    "/storageos/secretRef",
    "/csi/nodePublishSecretRef",
    "/glusterfs/secretRef",
];
/// Volumes, and sources of projected ones, that need the API, with what messages call them.
const VOLUMES: [(&str, &str); 4] = [
    ("/csi", "csidrivers (via CSI volumes)"),
    ("/glusterfs", "endpoints (via glusterFS volumes)"),
    ("/persistentVolumeClaim", "persistentvolumeclaims"),
    ("/ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
];
const PROJECTED: [(&str, &str); 3] = [
    ("/serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("/clusterTrustBundle", "clustertrustbundles"),
    ("/podCertificate", "podcertificates"),
];

/// The plugin.
pub struct NodeRestriction;

/// A write of a kubelet.
struct Written<'a> {
    node: &'a str,
    attributes: &'a Attributes<'a>,
    lookup: &'a dyn Lookup,
}

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let user = attributes.user;
        let Some(node) = user.name.strip_prefix(USER).filter(|_| user.is_in(GROUP)) else { return Ok(()) };
        if attributes.verb == Verb::Connect {
            return Ok(());
        }
        if node.is_empty() {
            let why = format!("could not determine node from user {:?}", user.name);
            return Err(attributes.forbidden(&why));
        }
        let written = Written { node, attributes, lookup };
        let why = match (&*attributes.ty.group, &*attributes.ty.plural) {
            ("", "pods") => written.pod()?,
            ("", "nodes") => written.node(),
            ("", "persistentvolumeclaims") => written.claim(),
            ("", "serviceaccounts") => written.token()?,
            ("coordination.k8s.io", "leases") => written.lease(),
            ("storage.k8s.io", "csinodes") => written.own("CSINode"),
            ("resource.k8s.io", "resourceslices") => written.slice(),
            ("certificates.k8s.io", "certificatesigningrequests") => written.request(),
            _ => None,
        };
        why.map_or(Ok(()), |why| Err(attributes.forbidden(&why)))
    }
}

/// Why a write is refused; nothing where it is not.
type Refused = Option<String>;

fn when(refused: bool, why: impl Into<String>) -> Refused {
    refused.then(|| why.into())
}

impl Written<'_> {
    fn object(&self) -> &Value {
        self.attributes.object().unwrap_or(&Value::Null)
    }

    fn old(&self) -> &Value {
        self.attributes.old.unwrap_or(&Value::Null)
    }

    fn unexpected(&self) -> String {
        format!("unexpected operation {:?}", self.verb())
    }

    fn verb(&self) -> &'static str {
        match self.attributes.verb {
            Verb::Create => "CREATE",
            Verb::Update => "UPDATE",
            Verb::Delete => "DELETE",
            Verb::Connect => "CONNECT",
        }
    }

    /// A Pod of the same namespace as it is.
    fn stored_pod(&self, name: &str) -> Result<Arc<Value>> {
        let Attributes { plane, namespace, .. } = self.attributes;
        let missing = || Status::not_found(&GroupResource::new("", "pods"), name);
        self.lookup.get(plane, "", "pods", namespace, name).ok_or_else(missing)
    }

    fn pod(&self) -> Result<Refused> {
        let (node, verb) = (self.node, self.attributes.verb);
        Ok(match (self.attributes.subresource, verb) {
            ("", Verb::Create) => self.mirror()?,
            ("", Verb::Delete) => when(
                text(self.old(), "/spec/nodeName") != node,
                format!("node {node:?} can only delete pods with spec.nodeName set to itself"),
            ),
            ("", _) => Some(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                self.verb()
            )),
            ("status", Verb::Update) => self.pod_status(),
            ("eviction", Verb::Create) => {
                let name = match self.attributes.name {
                    "" => meta::name(self.object()),
                    name => name,
                };
                let bound = text(&*self.stored_pod(name)?, "/spec/nodeName") == node;
                when(!bound, format!("node {node} can only evict pods with spec.nodeName set to itself"))
            }
            ("status" | "eviction", _) => Some(self.unexpected()),
            (other, _) => Some(format!(
                "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
            )),
        })
    }

    /// A Pod that stands for one which the kubelet runs by itself.
    fn mirror(&self) -> Result<Refused> {
        let (node, pod) = (self.node, self.object());
        if meta::annotation(pod, MIRROR).is_none() {
            return Ok(Some(format!(
                "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
            )));
        }
        if text(pod, "/spec/nodeName") != node {
            let why = format!("node {node:?} can only create pods with spec.nodeName set to itself");
            return Ok(Some(why));
        }
        let owners: Vec<&Value> = items(pod, "/metadata/ownerReferences").collect();
        let why = |what: &str| Some(format!("node {node:?} can only create pods with {what} set to itself"));
        let [owner] = owners.as_slice() else {
            let few = owners.is_empty();
            return Ok(why(if few { "an owner reference" } else { "a single owner reference" }));
        };
        if (text(owner, "/apiVersion"), text(owner, "/kind"), text(owner, "/name")) != ("v1", "Node", node) {
            return Ok(why("an owner reference"));
        }
        if owner["controller"] != true {
            return Ok(why("a controller owner reference"));
        }
        if owner["blockOwnerDeletion"] == true {
            let why = format!("node {node:?} must not set blockOwnerDeletion on an owner reference");
            return Ok(Some(why));
        }
        let missing = || Status::not_found(&GroupResource::new("", "nodes"), node);
        let own = self.lookup.get(self.attributes.plane, "", "nodes", "", node).ok_or_else(missing)?;
        let (wanted, found) = (text(owner, "/uid"), meta::uid(&own));
        if wanted != found {
            let why = format!("node {node} UID mismatch: expected {wanted} got {found}");
            return Ok(Some(why));
        }
        Ok(references(pod).map(|what| format!("node {node:?} can not create pods that reference {what}")))
    }

    fn pod_status(&self) -> Refused {
        let (node, old, new) = (self.node, self.old(), self.object());
        let kept = |field: &str| old["status"][field] == new["status"][field];
        when(
            text(old, "/spec/nodeName") != node,
            format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"),
        )
        .or_else(|| {
            let changed = labels(old) != labels(new);
            when(changed, format!("node {node:?} cannot update labels through pod status"))
        })
        .or_else(|| {
            let changed = !kept("resourceClaimStatuses");
            when(changed, format!("node {node:?} cannot update resource claim statues"))
        })
        .or_else(|| {
            let changed = !kept("extendedResourceClaimStatus");
            when(changed, format!("node {node:?} cannot update extended resource claim status"))
        })
    }

    fn node(&self) -> Refused {
        let (node, verb) = (self.node, self.attributes.verb);
        let (old, new) = (self.old(), self.object());
        let asked = match self.attributes.name {
            "" => meta::name(new),
            name => name,
        };
        if asked != node {
            return Some(format!("node {node:?} is not allowed to modify node {asked:?}"));
        }
        let refused = forbidden_labels(labels(new), labels(old)).join(", ");
        match verb {
            Verb::Create => when(
                !new["spec"]["configSource"].is_null(),
                format!("node {node:?} is not allowed to create pods with a non-nil configSource"),
            )
            .or_else(|| {
                let why = format!("node {node:?} is not allowed to set the following labels: {refused}");
                when(!refused.is_empty(), why)
            }),
            Verb::Update => {
                let changed = |pointer: &str| !same(old.pointer(pointer), new.pointer(pointer));
                let source = changed("/spec/configSource") && !new["spec"]["configSource"].is_null();
                let why = |what: &str| format!("node {node:?} is not allowed to {what}");
                when(source, why("update configSource to a new non-nil configSource"))
                    .or_else(|| when(changed("/spec/taints"), why("modify taints")))
                    .or_else(|| when(changed("/metadata/ownerReferences"), why("modify ownerReferences")))
                    .or_else(|| {
                        let why = format!("is not allowed to modify labels: {refused}");
                        when(!refused.is_empty(), why)
                    })
            }
            _ => None,
        }
    }

    /// Restricts a node's update of a claim to the fields of its status about resizing.
    fn claim(&self) -> Refused {
        if self.attributes.subresource != "status" {
            return Some("may only update PVC status".to_owned());
        }
        if self.attributes.verb != Verb::Update {
            return Some(self.unexpected());
        }
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            for field in ["resourceVersion", "managedFields"] {
                meta::remove(&mut claim, field);
            }
            if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
                for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                    status.remove(field);
                }
            }
            claim
        };
        when(
            rest(self.old()) != rest(self.object()),
            format!(
                "node {:?} is not allowed to update fields other than status.quantity and status.conditions",
                self.node
            ),
        )
    }

    fn token(&self) -> Result<Refused> {
        let create = self.attributes.verb == Verb::Create;
        if !create || self.attributes.subresource != "token" {
            return Ok(None);
        }
        let request = self.object();
        let bound = &request["spec"]["boundObjectRef"];
        let (name, uid) = (text(bound, "/name"), text(bound, "/uid"));
        if text(bound, "/apiVersion") != "v1" || text(bound, "/kind") != "Pod" || name.is_empty() {
            return Ok(Some("node requested token not bound to a pod".to_owned()));
        }
        if uid.is_empty() {
            return Ok(Some("node requested token with a pod binding without a uid".to_owned()));
        }
        let pod = self.stored_pod(name)?;
        if meta::uid(&pod) != uid {
            return Ok(Some(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            )));
        }
        if text(&pod, "/spec/nodeName") != self.node {
            let why = "node requested token bound to a pod scheduled on a different node";
            return Ok(Some(why.to_owned()));
        }
        Ok(self.audience(&pod, request))
    }

    /// A kubelet asks for tokens for audiences that its Pod names, or that it may ask for.
    fn audience(&self, pod: &Value, request: &Value) -> Refused {
        let audiences: Vec<&str> = items(request, "/spec/audiences").filter_map(Value::as_str).collect();
        let asked = match audiences.as_slice() {
            [] => "",
            [one] => one,
            _ => return Some("node may only request 0 or 1 audiences".to_owned()),
        };
        let named = items(pod, "/spec/volumes").any(|volume| self.names_audience(volume, asked));
        let permission = Permission {
            verb: "request-serviceaccounts-token-audience",
            version: "v1",
            resource: asked,
            namespace: self.attributes.namespace,
            name: self.attributes.name,
            ..Permission::default()
        };
        let Attributes { plane, user, .. } = self.attributes;
        let refused = !named && !self.lookup.allows(plane, user, &permission);
        when(
            refused,
            format!(
                "audience {asked:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
                user.name
            ),
        )
    }

    fn names_audience(&self, volume: &Value, asked: &str) -> bool {
        let of_token = |source: &Value| {
            let token = &source["serviceAccountToken"];
            token.is_object() && text(token, "/audience") == asked
        };
        let driver = text(volume, "/csi/driver");
        items(volume, "/projected/sources").any(of_token)
            || !driver.is_empty()
                && self
                    .lookup
                    .get(self.attributes.plane, "storage.k8s.io", "csidrivers", "", driver)
                    .is_some_and(|d| items(&d, "/spec/tokenRequests").any(|t| text(t, "/audience") == asked))
    }

    fn lease(&self) -> Refused {
        when(
            self.attributes.namespace != "kube-node-lease",
            "can only access leases in the \"kube-node-lease\" system namespace",
        )
        .or_else(|| self.own("node lease"))
    }

    /// An object that has the node's name.
    fn own(&self, what: &str) -> Refused {
        let name = match self.attributes.verb {
            Verb::Create => meta::name(self.object()),
            _ => self.attributes.name,
        };
        let why = format!("can only access {what} with the same name as the requesting node");
        when(name != self.node, why)
    }

    fn slice(&self) -> Refused {
        let (what, slice) = match self.attributes.verb {
            Verb::Create => ("create", self.object()),
            Verb::Delete => ("delete", self.old()),
            _ => return None,
        };
        let why = format!("can only {what} ResourceSlice with the same NodeName as the requesting node");
        when(text(slice, "/spec/nodeName") != self.node, why)
    }

    fn request(&self) -> Refused {
        const SIGNERS: [&str; 2] =
            ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
        let request = self.object();
        let ours = SIGNERS.contains(&text(request, "/spec/signerName"));
        if self.attributes.verb != Verb::Create || !ours {
            return None;
        }
        let wanted = format!("{USER}{}", self.node);
        match certificates::common_name(request) {
            Err(why) => Some(format!("unable to parse csr: {why}")),
            Ok(name) => when(name != wanted, format!("can only create a node CSR with CN={wanted}")),
        }
    }
}

/// Equal, where absent, null and empty are the same.
fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let given = |value: Option<&Value>| {
        let empty = value.is_none_or(|v| v.is_null() || v.as_array().is_some_and(Vec::is_empty));
        (!empty).then(|| value.cloned()).flatten()
    };
    given(a) == given(b)
}

fn labels(object: &Value) -> Option<&Map> {
    object.pointer("/metadata/labels")?.as_object().filter(|labels| !labels.is_empty())
}

/// Labels that changed and that a kubelet has nothing to say about, in order.
fn forbidden_labels(new: Option<&Map>, old: Option<&Map>) -> Vec<String> {
    let keys: BTreeSet<&String> = new.into_iter().chain(old).flat_map(Map::keys).collect();
    let changed = |key: &&String| new.and_then(|m| m.get(*key)) != old.and_then(|m| m.get(*key));
    let below = |namespace: &str, parent: &str| {
        namespace == parent || namespace.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let forbidden = |key: &&String| {
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let of_kubernetes = below(namespace, "kubernetes.io") || below(namespace, "k8s.io");
        let own = OWN_LABELS.contains(&key.as_str())
            || OWN_NAMESPACES.iter().any(|parent| below(namespace, parent));
        below(namespace, RESTRICTED) || of_kubernetes && !own
    };
    keys.into_iter().filter(changed).filter(forbidden).cloned().collect()
}

/// The first API object that a Pod refers to, as messages call such.
fn references(pod: &Value) -> Option<&'static str> {
    const CONTAINERS: [&str; 3] = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"];
    let has = |value: &Value, pointer: &str| value.pointer(pointer).is_some_and(|found| !found.is_null());
    let volumes = || items(pod, "/spec/volumes");
    let sources = || volumes().flat_map(|volume| items(volume, "/projected/sources"));
    // Of containers: a whole object, or a key of one.
    let read = |whole: &str, key: &str| {
        CONTAINERS.iter().flat_map(|list| items(pod, list)).any(|container| {
            items(container, "/envFrom").any(|from| has(from, whole))
                || items(container, "/env").any(|variable| has(variable, key))
        })
    };
    let secrets = items(pod, "/spec/imagePullSecrets").next().is_some()
        || read("/secretRef", "/valueFrom/secretKeyRef")
        || volumes().any(|volume| SECRETS.iter().any(|pointer| has(volume, pointer)))
        || sources().any(|source| has(source, "/secret"));
    let maps = || {
        read("/configMapRef", "/valueFrom/configMapKeyRef")
            || volumes().any(|volume| has(volume, "/configMap"))
            || sources().any(|source| has(source, "/configMap"))
    };
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        Some("serviceaccounts")
    } else if secrets {
        Some("secrets")
    } else if maps() {
        Some("configmaps")
    } else if items(pod, "/spec/resourceClaims").next().is_some() {
        Some("resourceclaims")
    } else {
        let find = |value: &Value, table: &'static [(&str, &'static str)]| {
            table.iter().find(|(pointer, _)| has(value, pointer)).map(|(_, what)| *what)
        };
        volumes()
            .find_map(|volume| find(volume, &VOLUMES))
            .or_else(|| sources().find_map(|s| find(s, &PROJECTED)))
    }
}
