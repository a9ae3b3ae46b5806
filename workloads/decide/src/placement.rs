//! Which cluster a project's Pods run on.

use crate::names::short_hash;
use freehold_api::ClassWorkloads;
use freehold_machinery::{Value, meta, selector};
use serde_json::json;

/// A cluster that a project could be placed on.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The name of the WorkloadCluster.
    pub name: String,
    /// Whether the syncer reaches it.
    pub is_ready: bool,
    /// Projects that are there.
    pub projects: usize,
    /// The WorkloadCluster.
    pub object: std::sync::Arc<Value>,
}

impl Candidate {
    fn takes(&self, selector: &selector::Labels) -> bool {
        let spec = &self.object["spec"];
        let is_full = spec["maxProjects"].as_u64().is_some_and(|most| self.projects as u64 >= most);
        let fits = selector.matches(|key| meta::label(&self.object, key));
        self.is_ready && !is_full && fits && spec["unschedulable"] != true && !meta::is_deleting(&self.object)
    }
}

/// The cluster for a project that has none yet: of those that take it the same one whoever asks, and another for most other
/// projects (rendezvous hashing), so that projects are spread and two syncers agree.
pub fn choose<'a>(
    candidates: &'a [Candidate],
    class: &ClassWorkloads,
    project: &str,
) -> Option<&'a Candidate> {
    let selector = selector::Labels::from_value(&json!(class.cluster_selector)).ok()?;
    let fitting = candidates.iter().filter(|candidate| candidate.takes(&selector));
    fitting.max_by_key(|candidate| short_hash(&[project, &candidate.name]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn cluster(name: &str, tier: &str, spec: Value) -> Candidate {
        let object = json!({"metadata": {"name": name, "labels": {"tier": tier}}, "spec": spec});
        Candidate { name: name.into(), is_ready: true, projects: 3, object: Arc::new(object) }
    }

    fn class(selector: Value) -> ClassWorkloads {
        serde_json::from_value(json!({"clusterSelector": selector})).unwrap()
    }

    #[test]
    fn a_project_goes_to_a_cluster_that_the_class_selects_and_that_has_room() {
        let mut clusters = vec![
            cluster("a", "gold", json!({})),
            cluster("b", "gold", json!({"unschedulable": true})),
            cluster("c", "gold", json!({"maxProjects": 3})),
            cluster("d", "tin", json!({})),
        ];
        let gold = class(json!({"matchLabels": {"tier": "gold"}}));
        for project in 0..20 {
            let chosen = choose(&clusters, &gold, &project.to_string());
            assert_eq!(chosen.map(|c| c.name.as_str()), Some("a"));
        }
        clusters[0].is_ready = false;
        assert_eq!(choose(&clusters, &gold, "p"), None);
        let wrong = json!({"matchExpressions": [{"key": "tier", "operator": "In"}]});
        assert_eq!(choose(&clusters, &class(wrong), "p"), None, "a selector that is none selects nothing");
    }

    #[test]
    fn projects_are_spread_and_each_is_placed_the_same_way_by_everybody() {
        let clusters: Vec<Candidate> = ["a", "b", "c"].map(|n| cluster(n, "x", json!({}))).into();
        let reversed: Vec<Candidate> = clusters.iter().rev().cloned().collect();
        let all = class(json!({}));
        let mut counts = std::collections::BTreeMap::new();
        for project in 0..300 {
            let project = project.to_string();
            let one = choose(&clusters, &all, &project).unwrap();
            assert_eq!(choose(&reversed, &all, &project).unwrap().name, one.name);
            *counts.entry(one.name.clone()).or_insert(0) += 1;
        }
        assert!(counts.len() == 3 && counts.values().all(|count| (60..140).contains(count)), "{counts:?}");
    }
}
