//! What nodes may do (<https://kubernetes.io/docs/reference/access-authn-authz/node/>): what kubelets need, and of objects of
//! Pods only those of the Pods on the node that asks.
//!
//! Pure: the caller keeps the [`NodeGraph`] of a plane up to date.

mod graph;
mod references;
#[cfg(test)]
mod tests;

pub use graph::{Kind, Name, NodeGraph, Said};
pub use references::said;

use crate::{Attributes, Decision, Rule, bootstrap_objects};
use freehold_machinery::{User, meta};
use std::sync::LazyLock;

/// What the names of nodes begin with, and their group.
const PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
/// The role that has what nodes may do with what is not of Pods.
const ROLE: &str = "system:node";

/// Collections whose objects say something of nodes, by group and resource.
pub const COLLECTIONS: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "volumeattachments"),
    ("resource.k8s.io", "resourceslices"),
];

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let objects = bootstrap_objects();
    let role = objects.iter().find(|object| object["kind"] == "ClusterRole" && meta::name(object) == ROLE);
    role.and_then(|role| role["rules"].as_array()).into_iter().flatten().map(Rule::from_value).collect()
});

/// The name of the node that a user is; `None` for everybody else.
pub fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(PREFIX)?;
    user.is_in(GROUP).then_some(name)
}

/// Whether a decision on a question needs the graph.
pub fn needs_graph(asked: &Attributes<'_>) -> bool {
    kind_of(asked).is_some()
}

fn kind_of(asked: &Attributes<'_>) -> Option<Kind> {
    Some(match (asked.group, asked.resource) {
        ("", "secrets") => Kind::Secret,
        ("", "configmaps") => Kind::ConfigMap,
        ("", "persistentvolumeclaims") => Kind::Claim,
        ("", "persistentvolumes") => Kind::Volume,
        ("", "serviceaccounts") => Kind::Account,
        ("", "pods") => Kind::Pod,
        ("resource.k8s.io", "resourceclaims") => Kind::ResourceClaim,
        ("resource.k8s.io", "resourceslices") => Kind::Slice,
        ("storage.k8s.io", "volumeattachments") => Kind::Attachment,
        _ => return None,
    })
}

/// Whether something is allowed to a node, and if not why, where there is something to say. Others may still allow it.
pub fn authorize(node: &str, asked: &Attributes<'_>, graph: &NodeGraph) -> Decision {
    if node.is_empty() {
        return Decision::refuse(format!("unknown node for user {:?}", asked.user.name));
    }
    let question = Question { node, asked, graph };
    let answer = match (asked.group, asked.resource) {
        ("coordination.k8s.io", "leases") => question.lease(),
        ("storage.k8s.io", "csinodes") => question.csi_node(),
        ("", "nodes") => question.own_node(),
        _ => match kind_of(asked) {
            Some(kind) => question.of_kind(kind),
            None if RULES.iter().any(|rule| rule.allows(asked)) => Ok(()),
            None => Err(String::new()),
        },
    };
    answer.map_or_else(Decision::refuse, |()| Decision::allow(""))
}

struct Question<'a> {
    node: &'a str,
    asked: &'a Attributes<'a>,
    graph: &'a NodeGraph,
}

type Answer = Result<(), String>;

fn no(why: &str) -> Answer {
    Err(why.to_owned())
}

impl Question<'_> {
    fn of_kind(&self, kind: Kind) -> Answer {
        let Attributes { verb, subresource, .. } = *self.asked;
        match kind {
            Kind::Secret | Kind::ConfigMap => self.read(kind),
            Kind::Account if verb == "get" && subresource.is_empty() => self.read(kind),
            Kind::Account => self.token(),
            Kind::Claim if subresource == "status" => match verb {
                "update" | "patch" => self.related(kind),
                _ => no("can only get/update/patch this type"),
            },
            Kind::Claim | Kind::Volume | Kind::ResourceClaim | Kind::Attachment => self.get(kind),
            Kind::Pod => self.pod(),
            Kind::Slice => self.slice(),
            Kind::Node => no(""),
        }
    }

    /// Objects whose names are theirs to know: those of their Pods.
    fn related(&self, kind: Kind) -> Answer {
        let Attributes { namespace, name, .. } = *self.asked;
        if name.is_empty() {
            return no("No Object name found");
        }
        match self.graph.sees(self.node, (kind, namespace, name)) {
            true => Ok(()),
            false => Err(format!("no relationship found between node '{}' and this object", self.node)),
        }
    }

    fn get(&self, kind: Kind) -> Answer {
        match (self.asked.verb, self.asked.subresource) {
            ("get", "") => self.related(kind),
            ("get", _) => no("cannot get subresource"),
            _ => no("can only get individual resources of this type"),
        }
    }

    fn read(&self, kind: Kind) -> Answer {
        if !self.asked.is_read() {
            return no("can only read resources of this type");
        }
        if !self.asked.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if self.asked.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(kind)
    }

    fn token(&self) -> Answer {
        let Attributes { verb, subresource, namespace, name, .. } = *self.asked;
        if verb != "create" || name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        match self.graph.sees(self.node, (Kind::Account, namespace, name)) {
            true => Ok(()),
            false => Err(format!("no relationship found between node '{}' and this object", self.node)),
        }
    }

    fn lease(&self) -> Answer {
        let Attributes { verb, namespace, name, .. } = *self.asked;
        if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
            return no("can only get, create, update, patch, or delete a node lease");
        }
        if namespace != LEASES {
            return Err(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        match verb == "create" || name == self.node {
            true => Ok(()),
            false => no("can only access node lease with the same name as the requesting node"),
        }
    }

    fn csi_node(&self) -> Answer {
        let Attributes { verb, subresource, name, .. } = *self.asked;
        if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
            return no("can only get, create, update, patch, or delete a CSINode");
        }
        if !subresource.is_empty() {
            return no("cannot authorize CSINode subresources");
        }
        match verb == "create" || name == self.node {
            true => Ok(()),
            false => no("can only access CSINode with the same name as the requesting node"),
        }
    }

    fn own_node(&self) -> Answer {
        let Attributes { verb, subresource, name, .. } = *self.asked;
        let node = self.node;
        match (subresource, verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match name {
                name if name == node => Ok(()),
                "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
                other => Err(format!("node '{node}' cannot read '{other}', only its own Node object")),
            },
            _ => no(""),
        }
    }

    fn pod(&self) -> Answer {
        let Attributes { verb, subresource, name, .. } = *self.asked;
        match (subresource, verb) {
            ("", "get") => self.get(Kind::Pod),
            ("", "list" | "watch") if self.is_narrowed_to_node() => Ok(()),
            ("", "list" | "watch") if !name.is_empty() => self.related(Kind::Pod),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => no(""),
        }
    }

    fn slice(&self) -> Answer {
        if !self.asked.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match self.asked.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(Kind::Slice),
            "watch" | "list" | "deletecollection" if self.is_narrowed_to_node() => Ok(()),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn is_narrowed_to_node(&self) -> bool {
        self.asked.selectors.fields.of_fields().iter().any(|requirement| {
            requirement["key"] == "spec.nodeName"
                && requirement["operator"] == "In"
                && requirement["values"][0] == self.node
        })
    }
}
