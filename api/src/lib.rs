//! The kinds that Freehold defines, as Rust types.
//!
//! Everything else about a kind follows from its type: the CustomResourceDefinition that makes a plane serve it
//! ([`core_crds`], [`infra_crds`]) and its reference page ([`reference`]). Keys and URL shapes that several programs
//! must agree on are in [`keys`] and [`urls`].
//!
//! Subsystems describe kinds of their own with [`KindSpec`], and [`crd`] makes their definitions.
//!
//! This crate must not know how the kinds are stored, served or reconciled.

pub mod apis;
mod classes;
mod columns;
mod crd;
pub mod iam;
pub mod identity;
pub mod infrastructure;
pub mod keys;
mod object;
pub mod quota;
mod reference;
pub mod resourcemanager;
pub mod rollouts;
pub mod urls;
pub mod workloads;

pub use crd::{api_crds, core_crds, crd, infra_crds};
pub use identity::{IdentityProvider, IdentityProviderSpec};
pub use infrastructure::{
    ProjectControlPlane, ProjectControlPlaneSpec, ProjectControlPlaneStatus, ProjectRef, Rest,
};
pub use object::{Condition, Definition, KindSpec, Object, ObjectMeta, OwnerReference, PrinterColumn};
pub use reference::reference;
pub use resourcemanager::{
    ClassDedicated, ControlPlaneClass, ControlPlaneClassSpec, ControlPlaneClassStatus, ControlPlaneMode,
    ControlPlaneSpec, ControlPlaneStatus, ForkSource, LocalRef, ObjectDeletion, Organization,
    OrganizationMembership, OrganizationMembershipSpec, OrganizationMembershipStatus, OrganizationSpec,
    OrganizationStatus, OrganizationType, OwnerKind, OwnerRef, PlaneLimits, Project, ProjectRestore,
    ProjectRestoreSpec, ProjectRestoreStatus, ProjectSnapshot, ProjectSnapshotSpec, ProjectSnapshotStatus,
    ProjectSpec, ProjectStatus, Role, Suspension, SuspensionLift,
};
pub use workloads::{
    ClassWorkloads, PodSecurityLevel, ProjectWorkloads, WorkloadCluster, WorkloadClusterSpec,
    WorkloadClusterStatus,
};
