//! The plugins in their order.

use crate::{Attributes, Lookup, Plugin, plugins::*};
use freehold_machinery::Result;

/// A plugin in the list of all.
pub struct Registered {
    /// The plugin.
    pub plugin: &'static dyn Plugin,
    /// Whether it runs unless it is switched off.
    pub default: bool,
}

const fn on(plugin: &'static dyn Plugin) -> Registered {
    Registered { plugin, default: true }
}

/// All plugins, in the order in which they run: kube-apiserver's.
pub static PLUGINS: [Registered; 14] = [
    // First: nothing else matters where the namespace is gone.
    on(&lifecycle::NamespaceLifecycle),
    // Before quota, which needs requests and limits to be there.
    on(&limit_ranger::LimitRanger),
    // Before webhooks, which expect to see the token's volume.
    on(&service_account::ServiceAccount),
    // As namespaces say with their labels.
    on(&pod_security::PodSecurity),
    // Before quota, whose scopes select by priority class.
    on(&priority::Priority),
    on(&tolerations::DefaultTolerationSeconds),
    // Before quota, which counts storage by class.
    on(&default_class::DefaultStorageClass),
    // Off, as in Kubernetes: operators are seldom allowed to set finalizers on what they own things by.
    Registered { plugin: &owner_references::OwnerReferencesPermissionEnforcement, default: false },
    on(&claim_resize::PersistentVolumeClaimResize),
    // Before quota, which counts what a Pod takes beyond its containers.
    on(&runtime_class::RuntimeClass),
    on(&certificates::CertificateApproval),
    on(&certificates::CertificateSigning),
    on(&certificates::CertificateSubjectRestriction),
    on(&default_class::DefaultIngressClass),
];

/// The plugins that a server runs.
#[derive(Clone)]
pub struct Chain {
    plugins: Vec<&'static dyn Plugin>,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new(&[], &[])
    }
}

impl Chain {
    /// The default plugins, with some switched on and off by name. Names that are not known change nothing.
    pub fn new(enable: &[&str], disable: &[&str]) -> Self {
        let runs = |entry: &&Registered| {
            let name = entry.plugin.name();
            (entry.default || enable.contains(&name)) && !disable.contains(&name)
        };
        Self { plugins: PLUGINS.iter().filter(runs).map(|entry| entry.plugin).collect() }
    }

    /// Their names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.plugins.iter().map(|plugin| plugin.name()).collect()
    }

    /// The first pass, in which the object may change.
    pub fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        self.plugins.iter().try_for_each(|plugin| plugin.admit(attributes, lookup))
    }

    /// The second pass, in which it may not.
    pub fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        self.plugins.iter().try_for_each(|plugin| plugin.validate(attributes, lookup))
    }
}
