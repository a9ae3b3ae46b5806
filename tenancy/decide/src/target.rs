//! Which namespaces a [`Target`] selects.

use freehold_machinery::selector::Labels;
use freehold_tenancy_api::TENANT_LABEL;
use freehold_tenancy_api::target::{LabelSelector, Target};
use std::collections::{BTreeMap, BTreeSet};

/// A target, compiled to be matched against many namespaces.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    tenants: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    selector: Option<Labels>,
    excluded: BTreeSet<String>,
}

/// Whether a namespace belongs to the plane itself, and is no tenant's: nothing here may put it to sleep or delete it.
pub fn is_protected(namespace: &str) -> bool {
    namespace == "default"
        || ["kube-", "freehold-", "openshift-"].iter().any(|prefix| namespace.starts_with(prefix))
}

/// Compiles a label selector.
///
/// # Errors
/// A requirement that no selector can have, in the words of Kubernetes.
pub fn labels(selector: &LabelSelector) -> Result<Labels, String> {
    let value = serde_json::to_value(selector).map_err(|error| error.to_string())?;
    Labels::from_value(&value)
}

impl Targets {
    /// Compiles a target.
    ///
    /// # Errors
    /// Its selector cannot be read.
    pub fn new(target: &Target) -> Result<Self, String> {
        Ok(Self {
            tenants: target.tenants.iter().cloned().collect(),
            namespaces: target.namespaces.iter().cloned().collect(),
            selector: target.selector.as_ref().map(labels).transpose()?,
            excluded: target.excluded.iter().cloned().collect(),
        })
    }

    /// Whether a namespace is selected.
    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let tenant = labels.get(TENANT_LABEL);
        !is_protected(name)
            && !self.excluded.contains(name)
            && (self.namespaces.contains(name)
                || tenant.is_some_and(|tenant| self.tenants.contains(tenant))
                || self
                    .selector
                    .as_ref()
                    .is_some_and(|selector| selector.matches(|key| labels.get(key).map(String::as_str))))
    }

    /// Tenants and namespaces that the target names, unless a selector may match any namespace.
    pub fn named(&self) -> Option<(&BTreeSet<String>, &BTreeSet<String>)> {
        self.selector.is_none().then_some((&self.tenants, &self.namespaces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn any_of_tenant_name_and_label_selects_and_exclusion_counts_more() {
        let target = Target {
            tenants: vec!["acme".into()],
            namespaces: vec!["one".into(), "kube-system".into()],
            selector: Some(LabelSelector {
                match_labels: labels_of(&[("env", "dev")]),
                ..Default::default()
            }),
            excluded: vec!["out".into()],
        };
        let targets = Targets::new(&target).unwrap();
        let rows = [
            ("a", labels_of(&[(TENANT_LABEL, "acme")]), true),
            ("a", labels_of(&[(TENANT_LABEL, "other")]), false),
            ("one", labels_of(&[]), true),
            ("b", labels_of(&[("env", "dev")]), true),
            ("out", labels_of(&[("env", "dev")]), false),
            ("kube-system", labels_of(&[("env", "dev")]), false),
            ("default", labels_of(&[("env", "dev")]), false),
        ];
        for (name, labels, expected) in rows {
            assert_eq!(targets.matches(name, &labels), expected, "{name} {labels:?}");
        }
        assert!(!Targets::default().matches("a", &labels_of(&[])), "an empty target selects nothing");
    }
}
