//! Integrations: the objects by which another system knows a tenant.
//!
//! An integration is a pure function from a tenant, its namespaces and the Secrets that it names to objects in this
//! cluster; the controller reads, applies, repairs and deletes. A further one implements [`Integration`] and gets a variant
//! of `IntegrationType`. A system without objects in the cluster (an identity provider, a registry) needs a controller of
//! its own for them: the integration then renders the custom resources that it reads.

mod argocd;

pub use argocd::ArgoCd;

use freehold_machinery::{Map, Value};
use freehold_tenancy_api::integration::{ExtensionSpec, IntegrationConfigSpec, IntegrationType, SecretRef};
use std::collections::BTreeMap;

/// What an integration knows of a tenant.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Its name.
    pub tenant: String,
    /// Groups among its members, by role.
    pub groups: BTreeMap<String, Vec<String>>,
    /// Its namespaces, sorted.
    pub namespaces: Vec<String>,
    /// `data` of the Secrets that the integration asked for.
    pub secrets: BTreeMap<SecretRef, Map>,
}

/// Why a tenant is not set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Why, in CamelCase.
    pub reason: &'static str,
    /// Why, in words.
    pub message: String,
}

impl Refusal {
    /// A refusal with a reason.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// A kind of object that an integration keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptKind {
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural.
    pub plural: &'static str,
}

/// A system that tenants are set up in.
pub trait Integration: Send + Sync {
    /// The kinds of its objects, all namespaced.
    fn kinds(&self) -> &'static [KeptKind];

    /// The namespace of its objects.
    fn namespace<'a>(&self, config: &'a IntegrationConfigSpec) -> &'a str;

    /// Secrets that it needs.
    fn secrets(&self, extension: &ExtensionSpec) -> Vec<SecretRef>;

    /// The objects of a tenant.
    ///
    /// # Errors
    /// What the configuration does not allow, or the system would not accept.
    fn objects(
        &self,
        config: &IntegrationConfigSpec,
        extension: &ExtensionSpec,
        input: &Input,
    ) -> Result<Vec<Value>, Refusal>;

    /// An existing object without what reaches beyond the tenant's namespaces; `None` where nothing does. It is written where
    /// objects are refused or the tenant is gone: what a tenant has lost does not stay within its reach meanwhile.
    fn narrowed(
        &self,
        _config: &IntegrationConfigSpec,
        _extension: &ExtensionSpec,
        _existing: &Value,
        _namespaces: &[String],
    ) -> Option<Value> {
        None
    }
}

/// The integration of a type.
pub fn integration(type_: IntegrationType) -> &'static dyn Integration {
    match type_ {
        IntegrationType::ArgoCD => &ArgoCd,
    }
}
