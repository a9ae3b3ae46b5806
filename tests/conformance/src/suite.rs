//! The lists of tests.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A list of tests with what they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Suite {
    /// What needs an API and the controllers that belong to one: Freehold alone.
    Api,
    /// What Kubernetes tests of its controllers besides conformance, as far as no Pod has to run: Freehold alone.
    Controllers,
    /// What needs the controllers of workloads too: Freehold with the real kube-controller-manager.
    KubeControllerManager,
    /// What needs a webhook server in a Pod.
    Webhooks,
    /// What needs another API server in a Pod.
    Aggregation,
}

impl Suite {
    /// Those that run where none is named, in their order.
    pub(crate) const ALL: [Self; 3] = [Self::Api, Self::KubeControllerManager, Self::Webhooks];

    /// Whether its Pods run.
    pub(crate) fn has_node(self) -> bool {
        matches!(self, Self::Webhooks | Self::Aggregation)
    }

    /// How many of its tests may run at once. Servers of several would want the same port of one machine.
    pub(crate) fn procs(self, wanted: usize) -> usize {
        if self.has_node() { 1 } else { wanted }
    }

    /// The names of its tests.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let text = match self {
            Self::Api => include_str!("../suites/api.txt"),
            Self::Controllers => include_str!("../suites/controllers.txt"),
            Self::KubeControllerManager => include_str!("../suites/kube-controller-manager.txt"),
            Self::Webhooks => include_str!("../suites/webhooks.txt"),
            Self::Aggregation => include_str!("../suites/aggregation.txt"),
        };
        text.lines().filter(|line| !line.is_empty())
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "api",
            Self::Controllers => "controllers",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Webhooks => "webhooks",
            Self::Aggregation => "aggregation",
        })
    }
}

/// Expressions that match these names and no longer ones, for `ginkgo --focus`. Ginkgo puts its suite's name in front.
pub(crate) fn focus(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("--focus= {}$", regex::escape(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_focus_matches_its_name_alone() {
        let focus = focus(&["[sig-node] a `b` (c) [Conformance]"]);
        let pattern = regex::Regex::new(focus[0].trim_start_matches("--focus=")).unwrap();
        assert!(pattern.is_match("Kubernetes e2e suite [sig-node] a `b` (c) [Conformance]"));
        assert!(!pattern.is_match("Kubernetes e2e suite [sig-node] a `b` (c) [Conformance] more"));
    }

    #[test]
    fn no_suite_names_a_test_twice() {
        for suite in Suite::ALL {
            let mut names: Vec<_> = suite.names().collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{suite}");
        }
    }
}
