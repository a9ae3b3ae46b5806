//! `tenancy.freehold.dev/v1alpha1`: the kinds of the tenancy subsystem.
//!
//! A module holds one kind. [`crds`] lists the definitions of all of them.
//!
//! This crate must not know how the kinds are enforced.

pub mod integration;
pub mod quota;
pub mod supervisor;
pub mod target;
pub mod template;
pub mod tenant;

use freehold_api::{PrinterColumn, crd};
use freehold_machinery::Value;

pub use integration::{Extension, IntegrationConfig};
pub use quota::{Quota, QuotaLedger};
pub use supervisor::{ResourceSupervisor, SleepRecord};
pub use template::{Template, TemplateGroupInstance, TemplateInstance, TemplateRevision};
pub use tenant::Tenant;

/// The API group.
pub const GROUP: &str = "tenancy.freehold.dev";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";

/// The label of a namespace with the name of its tenant.
pub const TENANT_LABEL: &str = "tenancy.freehold.dev/tenant";
/// The label of objects that the tenancy controllers keep in a namespace. Its value is [`MANAGED_VALUE`].
pub const MANAGED_LABEL: &str = "tenancy.freehold.dev/managed-by";
/// The value of [`MANAGED_LABEL`] on objects of the namespace controller.
pub const MANAGED_VALUE: &str = "namespace-controller";
/// The label of namespaces of a cordoned tenant.
pub const CORDONED_LABEL: &str = "tenancy.freehold.dev/cordoned";

/// The label of namespaces whose writes the webhook must be asked about: limits of several namespaces hold there.
pub const METERED_LABEL: &str = "tenancy.freehold.dev/metered";

/// The CustomResourceDefinitions of the subsystem, as `apiextensions.k8s.io/v1` objects.
pub fn crds() -> Vec<Value> {
    vec![
        crd::<tenant::TenantSpec>(),
        crd::<quota::QuotaSpec>(),
        crd::<quota::QuotaLedgerSpec>(),
        crd::<supervisor::ResourceSupervisorSpec>(),
        crd::<supervisor::SleepRecordSpec>(),
        crd::<template::TemplateSpec>(),
        crd::<template::TemplateRevisionSpec>(),
        crd::<template::TemplateInstanceSpec>(),
        crd::<template::TemplateGroupInstanceSpec>(),
        crd::<integration::IntegrationConfigSpec>(),
        crd::<integration::ExtensionSpec>(),
    ]
}

/// A text column that is always shown.
pub(crate) const fn column(name: &'static str, json_path: &'static str) -> PrinterColumn {
    PrinterColumn { name, kind: "string", json_path, priority: 0 }
}

/// A column with the status of the `Ready` condition.
pub(crate) const READY_COLUMN: PrinterColumn =
    column("Ready", ".status.conditions[?(@.type==\"Ready\")].status");
