//! The FlowSchemas and PriorityLevelConfigurations that every plane starts with: those of Kubernetes 1.36.

use freehold_machinery::{
    Value,
    user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED},
};
use serde_json::json;

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
const MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

fn object(kind: &str, name: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": {"name": name, "generation": 1, "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec, "status": status,
    })
}

/// Name, shares, percent that is lent, and queues with the size of a hand.
type Row = (&'static str, i64, i64, Option<(i64, i64)>);

const LEVELS: [Row; 7] = [
    ("catch-all", 5, 0, None),
    ("system", 30, 33, Some((64, 6))),
    ("node-high", 40, 25, Some((64, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
    ("global-default", 20, 50, Some((128, 6))),
];

/// The PriorityLevelConfigurations that each plane starts with, without uid, version and time.
pub fn priority_levels() -> Vec<Value> {
    let level = |name: &str, spec: Value| object("PriorityLevelConfiguration", name, spec, json!({}));
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let limited = LEVELS.map(|(name, shares, lendable, queues)| {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some((queues, hand)) => json!({
                "type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50},
            }),
        };
        let limits = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response,
        });
        level(name, json!({"type": "Limited", "limited": limits}))
    });
    [level("exempt", exempt)].into_iter().chain(limited).collect()
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

fn system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}})
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// Everything: resources and paths.
fn all(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn all_resources(subjects: Vec<Value>) -> Value {
    json!({"subjects": subjects, "resourceRules": [resources(&["*"], "*", &["*"], true)]})
}

/// The FlowSchemas that each plane starts with, without uid, version and time.
pub fn flow_schemas() -> Vec<Value> {
    let everybody = || groups(&[UNAUTHENTICATED, AUTHENTICATED]);
    let accounts = || vec![system_accounts()];
    let electing: Vec<Value> = users(&[MANAGER, SCHEDULER]).into_iter().chain(accounts()).collect();
    let leases = "coordination.k8s.io";
    let probes = json!({
        "subjects": everybody(),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    });
    let election = json!({
        "subjects": electing,
        "resourceRules": [resources(&["get", "create", "update"], leases, &["leases"], false)],
    });
    let node_high = json!({
        "subjects": groups(&["system:nodes"]),
        "resourceRules": [
            resources(&["*"], "", &["nodes", "nodes/status"], true),
            resources(&["*"], leases, &["leases"], false),
        ],
    });
    let by_user = Some("ByUser");
    let by_namespace = Some("ByNamespace");
    let rows = [
        ("exempt", "exempt", 1, None, all(groups(&[MASTERS]))),
        ("probes", "exempt", 2, None, probes),
        ("system-leader-election", "leader-election", 100, by_user, election),
        ("system-node-high", "node-high", 400, by_user, node_high),
        ("system-nodes", "system", 500, by_user, all(groups(&["system:nodes"]))),
        ("kube-controller-manager", "workload-high", 800, by_namespace, all(users(&[MANAGER]))),
        ("kube-scheduler", "workload-high", 800, by_namespace, all(users(&[SCHEDULER]))),
        ("kube-system-service-accounts", "workload-high", 900, by_namespace, all(accounts())),
        ("service-accounts", "workload-low", 9000, by_user, all(groups(&["system:serviceaccounts"]))),
        ("global-default", "global-default", 9900, by_user, all_resources(everybody())),
        ("catch-all", "catch-all", 10000, by_user, all(everybody())),
    ];
    rows.map(|(name, level, precedence, distinguisher, rule)| {
        let mut spec = json!({
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule],
        });
        if let Some(method) = distinguisher {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        let message = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists"
        );
        let status = json!({"conditions": [
            {"type": "Dangling", "status": "False", "reason": "Found", "message": message},
        ]});
        object("FlowSchema", name, spec, status)
    })
    .into()
}
