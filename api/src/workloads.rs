//! Where the Pods of projects run: clusters that many projects share, and what a class lets Pods do there. Part of
//! `infrastructure.freehold.dev/v1alpha1`, served by the core plane.

use crate::infrastructure::{GROUP, VERSION};
use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use crate::{
    classes::NamespaceSelector,
    columns::{READY_COLUMN, REASON_COLUMN, column},
};
use freehold_machinery::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A Kubernetes cluster on which Pods of projects run.
pub type WorkloadCluster = Object<WorkloadClusterSpec>;

/// A key of a Secret in the core plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The Secret's namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[serde(default = "kubeconfig_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn kubeconfig_key() -> String {
    crate::keys::KUBECONFIG_KEY.to_owned()
}

fn cluster_domain() -> String {
    "cluster.local".to_owned()
}

/// The wanted state of a WorkloadCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadClusterSpec {
    /// The kubeconfig with which the syncer reaches the cluster.
    pub kubeconfig: SecretKey,
    /// No further project is placed here. Those that are stay.
    #[serde(default)]
    pub unschedulable: bool,
    /// The cluster's DNS domain.
    #[serde(default = "cluster_domain")]
    #[schemars(length(min = 1, max = 253))]
    pub dns_domain: String,
    /// Networks of the cluster that Pods of projects must not reach, as CIDRs: of Pods, Services, nodes, and of what stands
    /// beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 43)), extend("x-kubernetes-validations" = [{
        "rule": "self.all(network, isCIDR(network))", "message": "each network has to be a CIDR, such as 10.0.0.0/8"
    }]))]
    pub networks: Vec<String>,
    /// Largest number of projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_projects: Option<i64>,
}

/// The observed state of a WorkloadCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadClusterStatus {
    /// The version of its API server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Nodes that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// Projects whose Pods are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projects: Option<i64>,
    /// What its ready nodes have for Pods, together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, String>,
    /// `Ready`: the syncer reaches it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for WorkloadClusterSpec {
    type Status = WorkloadClusterStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "WorkloadCluster",
        plural: "workloadclusters",
        short_names: &["wlc"],
        namespaced: false,
        description: "A WorkloadCluster is a Kubernetes cluster on which Pods of many projects run.",
        columns: &[
            column("Version", ".status.version"),
            PrinterColumn { kind: "integer", ..column("Nodes", ".status.nodes") },
            PrinterColumn { kind: "integer", ..column("Projects", ".status.projects") },
            READY_COLUMN,
            REASON_COLUMN,
        ],
    };
}

/// A level of the Pod security standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurityLevel {
    /// Everything. For projects that are trusted with the nodes.
    Privileged,
    /// What does not lead to the node.
    #[default]
    Baseline,
    /// What follows the hardening practices of Kubernetes.
    Restricted,
}

impl PodSecurityLevel {
    /// The level as labels of namespaces have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// Where Pods of a class' projects run, and what they may do there. Only the platform writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassWorkloads {
    /// Which WorkloadClusters projects may be placed on, by their labels; empty means each. A project stays where it is.
    pub cluster_selector: NamespaceSelector,
    /// The Pod security standard that the cluster enforces.
    pub pod_security: PodSecurityLevel,
    /// The RuntimeClass of all Pods, of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub runtime_class: String,
    /// The PriorityClass of all Pods, of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub priority_class: String,
    /// Labels that nodes of Pods have to have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,
    /// StorageClasses of claims: the name in the project, and that of the cluster. `*` stands for all others. A claim whose
    /// class is not here stays pending.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub storage_classes: BTreeMap<String, String>,
    /// `hard` of a ResourceQuota in each namespace of a project.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub quota: BTreeMap<String, String>,
    /// `limits` of a LimitRange in each namespace of a project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "items")]
    pub limits: Vec<Value>,
    /// Whether Services may be of type LoadBalancer. They are of type ClusterIP otherwise.
    pub load_balancers: bool,
    /// Namespaces of the cluster whose Pods may reach those of projects, as that of an ingress controller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ingress_namespaces: Vec<String>,
}

/// Objects of a shape that the cluster checks.
fn items(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

/// Where the Pods of a project run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectWorkloads {
    /// The WorkloadCluster. A project stays on it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
}
