//! ClusterRoles with an `aggregationRule`: their rules are those of the roles that it selects
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>).
//!
//! The built-in roles aggregate each other from the start. So nothing is done in a plane before someone adds a role
//! that others may aggregate, or one that aggregates.

use freehold_client::{ListOptions, Patch, PatchOptions};
use freehold_controllers_context::kinds::CLUSTER_ROLES;
use freehold_controllers_context::object::{items, labels, selects};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, selector::Labels};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled};
use serde_json::json;

/// The label of built-in roles.
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

/// The aggregating roles whose rules are not as they should be, each with those rules.
fn decide(roles: &[Value]) -> Vec<(&Value, Vec<Value>)> {
    let mut sorted: Vec<&Value> = roles.iter().collect();
    sorted.sort_by_key(|role| meta::name(role));
    let wrong = |role: &&Value| {
        let selectors = items(role, "/aggregationRule/clusterRoleSelectors");
        let wanted = aggregate(&sorted, role, selectors);
        (!selectors.is_empty() && wanted != items(role, "/rules")).then_some(wanted)
    };
    sorted.iter().filter_map(|role| Some((*role, wrong(role)?))).collect()
}

/// The rules of the selected roles, in the order of their names, each once.
fn aggregate(roles: &[&Value], into: &Value, selectors: &[Value]) -> Vec<Value> {
    let selectors: Vec<Labels> =
        selectors.iter().filter(|s| s.is_object()).filter_map(|s| Labels::from_value(s).ok()).collect();
    let mut rules: Vec<Value> = Vec::new();
    for role in roles.iter().filter(|role| meta::name(role) != meta::name(into)) {
        if !selectors.iter().any(|selector| selects(selector, labels(role))) {
            continue;
        }
        for rule in items(role, "/rules") {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

struct Aggregation {
    planes: Planes,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let counts = |role: Value| {
        let aggregates = !items(&role, "/aggregationRule/clusterRoleSelectors").is_empty();
        (aggregates || labels(&role).is_some_and(|l| !l.is_empty())).then_some(())
    };
    let interest = Interest::projected(CLUSTER_ROLES, counts).labels(format!("!{BOOTSTRAPPING}"));
    let mut informer = Informer::new(&context.planes, interest);
    let on_roles = queue.clone();
    informer.on_change(move |change| on_roles.add(Key::new(change.key.plane.clone(), "", "")));
    let roles = context.run_informer(informer);
    let planes = context.planes.clone();
    context.control("cluster-role-aggregation", 2, &queue, &[&roles], Aggregation { planes });
}

impl Reconcile for Aggregation {
    type Key = Key;

    /// The key is a plane's: aggregating roles can aggregate each other.
    async fn reconcile(&self, key: Key) -> Reconciled {
        let client = self.planes.client(&key.plane);
        let roles = client.list_all(&CLUSTER_ROLES, None, &ListOptions::default()).await?.items;
        let wrong = decide(&roles);
        for (role, rules) in &wrong {
            let patch =
                json!({"metadata": {"resourceVersion": meta::resource_version(role)}, "rules": rules});
            client
                .patch(&CLUSTER_ROLES, None, meta::name(role), &Patch::Merge(patch), &PatchOptions::default())
                .await?;
        }
        // A role that was changed may be part of another one, built-in ones among them, of which no event comes.
        if !wrong.is_empty() {
            tracing::debug!(plane = %key.plane, roles = wrong.len(), "aggregated");
            return Ok(Outcome::After(std::time::Duration::from_millis(100)));
        }
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, label: Option<&str>, selects: Option<&str>, rules: Value) -> Value {
        let mut role = json!({"metadata": {"name": name}, "rules": rules});
        if let Some(label) = label {
            role["metadata"]["labels"] = json!({ label: "true" });
        }
        if let Some(label) = selects {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
        role
    }

    #[test]
    fn rules_are_those_of_the_selected_roles_each_once() {
        let (pods, nodes) = (json!({"resources": ["pods"]}), json!({"resources": ["nodes"]}));
        let roles = [
            role("view", None, Some("to-view"), json!([])),
            role("b", Some("to-view"), None, json!([pods, nodes])),
            role("a", Some("to-view"), None, json!([pods])),
            role("c", Some("to-edit"), None, json!([{"resources": ["secrets"]}])),
        ];
        let wrong = decide(&roles);
        assert_eq!(wrong.len(), 1);
        assert_eq!((meta::name(wrong[0].0), &wrong[0].1), ("view", &vec![pods.clone(), nodes.clone()]));
        let settled = [
            role("view", None, Some("to-view"), json!([pods])),
            role("a", Some("to-view"), None, json!([pods])),
        ];
        assert!(decide(&settled).is_empty());
    }

    #[test]
    fn a_broken_selector_selects_nothing() {
        let mut broken = role("x", None, Some("l"), json!([]));
        broken["aggregationRule"]["clusterRoleSelectors"] =
            json!([{"matchExpressions": [{"key": "l", "operator": "Like"}]}, null]);
        assert!(decide(&[broken, role("a", Some("l"), None, json!([{"verbs": ["get"]}]))]).is_empty());
    }
}
