//! The plugins in their order, and which of them run.

use crate::{Attributes, Lookup, Plugin, plugins::*};
use freehold_machinery::Result;
use std::collections::BTreeSet;

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

const fn off(plugin: &'static dyn Plugin) -> Registered {
    Registered { plugin, default: false }
}

/// The plugins that are no [`Plugin`]s, in the order in which they run, behind all others.
pub const LATE: [&str; 5] = [MUTATING_POLICY, MUTATING_WEBHOOK, VALIDATING_POLICY, VALIDATING_WEBHOOK, QUOTA];
/// `MutatingAdmissionPolicy` objects.
pub const MUTATING_POLICY: &str = "MutatingAdmissionPolicy";
/// `MutatingWebhookConfiguration` objects.
pub const MUTATING_WEBHOOK: &str = "MutatingAdmissionWebhook";
/// `ValidatingAdmissionPolicy` objects.
pub const VALIDATING_POLICY: &str = "ValidatingAdmissionPolicy";
/// `ValidatingWebhookConfiguration` objects.
pub const VALIDATING_WEBHOOK: &str = "ValidatingAdmissionWebhook";
/// `ResourceQuota` objects.
pub const QUOTA: &str = "ResourceQuota";

/// All plugins, in the order in which they run: kube-apiserver's.
pub static PLUGINS: [Registered; 26] = [
    // First: nothing else matters where the namespace is gone.
    on(&lifecycle::NamespaceLifecycle),
    // Off, as in Kubernetes: the first one is enough, but for changes in namespaces that are gone.
    off(&lifecycle::NamespaceExists),
    // Off, as in Kubernetes: it is for those who share nodes and must not keep others away from many.
    off(&anti_affinity::LimitPodHardAntiAffinityTopology),
    // Before quota, which needs requests and limits to be there.
    on(&limit_ranger::LimitRanger),
    // Before webhooks, which expect to see the token's volume.
    on(&service_account::ServiceAccount),
    // Off, as in Kubernetes: it is for servers that kubelets write to.
    off(&node_restriction::NodeRestriction),
    on(&node_taint::TaintNodesByCondition),
    // Off, as in Kubernetes: it is for those who share nodes, and with them images.
    off(&always_pull::AlwaysPullImages),
    // As namespaces say with their labels.
    on(&pod_security::PodSecurity),
    // Before quota, whose scopes select by priority class.
    on(&priority::Priority),
    on(&tolerations::DefaultTolerationSeconds),
    // Off, as in Kubernetes: it is for clusters that keep nodes with devices apart.
    off(&extended_toleration::ExtendedResourceToleration),
    // Before quota, which counts storage by class.
    on(&default_class::DefaultStorageClass),
    on(&storage_in_use::StorageObjectInUseProtection),
    // Off, as in Kubernetes: operators are seldom allowed to set finalizers on what they own things by.
    off(&owner_references::OwnerReferencesPermissionEnforcement),
    // In the core plane, where organizations are beside each other.
    on(&owner_references::OrganizationOwnerReferences),
    on(&claim_resize::PersistentVolumeClaimResize),
    // Before quota, which counts what a Pod takes beyond its containers.
    on(&runtime_class::RuntimeClass),
    on(&certificates::CertificateApproval),
    on(&certificates::CertificateSigning),
    on(&certificates::CertificateSubjectRestriction),
    on(&default_class::DefaultIngressClass),
    // Off, as in Kubernetes: it is for providers whose projects must not have such addresses.
    off(&external_ips::DenyServiceExternalIPs),
    on(&topology_labels::PodTopologyLabels),
    on(&declared_features::NodeDeclaredFeatureValidator),
    on(&pod_resize::PodResizeValidator),
];

/// Names of plugins that are switched on and off, as `--enable-admission-plugins` and `--disable-admission-plugins` have
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Those that run though they do not by default.
    pub enable: Vec<String>,
    /// Those that do not run.
    pub disable: Vec<String>,
}

impl Switches {
    /// Whether they make sense.
    ///
    /// # Errors
    /// A name that is not known, or one in both lists, in the words of kube-apiserver.
    pub fn check(&self) -> std::result::Result<(), String> {
        let known: Vec<&str> = PLUGINS.iter().map(|entry| entry.plugin.name()).chain(LATE).collect();
        for (flag, names) in
            [("enable-admission-plugins", &self.enable), ("disable-admission-plugins", &self.disable)]
        {
            if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(format!("{flag} plugin {name:?} is unknown"));
            }
        }
        let both: BTreeSet<&str> =
            self.enable.iter().filter(|name| self.disable.contains(name)).map(String::as_str).collect();
        if both.is_empty() {
            return Ok(());
        }
        let both = both.into_iter().collect::<Vec<_>>().join(" ");
        Err(format!("[{both}] in enable-admission-plugins and disable-admission-plugins overlapped"))
    }
}

/// The plugins that a server runs.
#[derive(Clone)]
pub struct Chain {
    plugins: Vec<&'static dyn Plugin>,
    late: Vec<&'static str>,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new(&Switches::default())
    }
}

impl Chain {
    /// The default plugins, with some switched on and off by name. Names that are not known change nothing.
    pub fn new(switches: &Switches) -> Self {
        let named = |list: &[String], name: &str| list.iter().any(|other| other == name);
        let runs = |name: &str, default: bool| {
            (default || named(&switches.enable, name)) && !named(&switches.disable, name)
        };
        let plugins = PLUGINS.iter().filter(|entry| runs(entry.plugin.name(), entry.default));
        Self {
            plugins: plugins.map(|entry| entry.plugin).collect(),
            late: LATE.into_iter().filter(|name| runs(name, true)).collect(),
        }
    }

    /// Adds plugins that the caller brings, behind the built-in ones.
    #[must_use]
    pub fn with(mut self, plugins: &[&'static dyn Plugin]) -> Self {
        self.plugins.extend(plugins);
        self
    }

    /// Their names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.plugins.iter().map(|plugin| plugin.name()).chain(self.late.iter().copied()).collect()
    }

    /// Whether one of [`LATE`] runs.
    pub fn runs(&self, late: &str) -> bool {
        self.late.contains(&late)
    }

    /// Runs the first pass, in which plugins may change the object.
    ///
    /// # Errors
    /// The `Status` of the first plugin that refuses the write.
    pub fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        self.admit_telling(attributes, lookup, |_, _, _| {})
    }

    /// Runs the first pass and reports each plugin to `told`: its place, its name, and whether it refused the write.
    ///
    /// # Errors
    /// The `Status` of the first plugin that refuses the write.
    pub fn admit_telling(
        &self,
        attributes: &mut Attributes<'_>,
        lookup: &dyn Lookup,
        mut told: impl FnMut(usize, &'static str, bool),
    ) -> Result<()> {
        self.plugins.iter().enumerate().try_for_each(|(index, plugin)| {
            let result = plugin.admit(attributes, lookup);
            told(index, plugin.name(), result.is_err());
            result
        })
    }

    /// Runs the second pass, in which plugins may refuse the object and not change it.
    ///
    /// # Errors
    /// The `Status` of the first plugin that refuses the write.
    pub fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        self.validate_telling(attributes, lookup, |_, _, _| {})
    }

    /// Runs the second pass and reports each plugin as [`Chain::admit_telling`] does.
    ///
    /// # Errors
    /// The `Status` of the first plugin that refuses the write.
    pub fn validate_telling(
        &self,
        attributes: &Attributes<'_>,
        lookup: &dyn Lookup,
        mut told: impl FnMut(usize, &'static str, bool),
    ) -> Result<()> {
        self.plugins.iter().enumerate().try_for_each(|(index, plugin)| {
            let result = plugin.validate(attributes, lookup);
            told(index, plugin.name(), result.is_err());
            result
        })
    }
}
