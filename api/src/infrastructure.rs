//! `infrastructure.freehold.dev/v1alpha1`: the control plane processes of a project. Served by the infra plane.

use crate::columns::{READY_COLUMN, REASON_COLUMN, column};
use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "infrastructure.freehold.dev";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";

/// The apiserver and controller manager of one project. Its name is the project's uid.
pub type ProjectControlPlane = Object<ProjectControlPlaneSpec>;

/// The project that a pair serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectRef {
    /// The project's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The project's uid, which is also the identifier of its plane.
    #[schemars(length(min = 1, max = 63))]
    pub uid: String,
}

/// The wanted state of a ProjectControlPlane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectControlPlaneSpec {
    /// Whose pair it is. Can't be changed.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "projectRef is immutable"
    }]))]
    pub project_ref: ProjectRef,
    /// The organization that owns the project.
    #[schemars(length(min = 1, max = 63))]
    pub organization: String,
    /// The ControlPlaneClass of the plane.
    #[serde(default = "default_class")]
    #[schemars(length(min = 1, max = 63))]
    pub class: String,
    /// Why none of its programs is to run; without it they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rest")]
    pub rest: Option<Rest>,
    /// Seconds without a request of a user after which the pair is put to rest; without it, it never is. The class says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub sleep_after_seconds: Option<u32>,
}

/// Why a pair is at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Rest {
    /// Nobody used it for the time of its class: the next request of a user wakes it.
    Idle,
    /// Its project says so, and requests do not wake it.
    ByHand,
}

fn default_class() -> String {
    crate::keys::DEFAULT_CLASS.to_owned()
}

/// The observed state of a ProjectControlPlane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectControlPlaneStatus {
    /// The https URL of the pair's apiserver, as the core server reaches it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The CA certificates that the endpoint's certificate is checked against, PEM in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_bundle: String,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the pair's apiserver answers at `endpoint`. Reasons against it are `Asleep` and `Waking`, among others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ProjectControlPlaneSpec {
    type Status = ProjectControlPlaneStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ProjectControlPlane",
        plural: "projectcontrolplanes",
        short_names: &["pcp"],
        namespaced: false,
        description: "A ProjectControlPlane is the apiserver and controller manager of one project.",
        columns: &[
            column("Project", ".spec.projectRef.name"),
            column("Organization", ".spec.organization"),
            READY_COLUMN,
            REASON_COLUMN,
            PrinterColumn { priority: 1, ..column("Endpoint", ".status.endpoint") },
        ],
    };
}
