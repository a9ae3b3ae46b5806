//! What an update of the status may say: counts that are not negative and fit together, conditions that are whole.

use super::{
    devices,
    field::{Errors, Field},
    job_status, pod_update, resources,
    rows::{Row, Rule, check},
    rules, services, storage,
};
use freehold_machinery::{ResourceType, Value, names};
use std::collections::BTreeSet;

type Check = fn(&Field<'_>, &Value, &mut Errors);

/// The status of a kind.
struct Kind {
    group: &'static str,
    resource: &'static str,
    /// Counts that are not negative, in Kubernetes' order.
    counts: &'static [&'static str],
    /// A count, one that it is at most, and what that is called in the error.
    at_most: &'static [(&'static str, &'static str, &'static str)],
    more: Check,
}

const fn kind(group: &'static str, resource: &'static str, counts: &'static [&'static str]) -> Kind {
    Kind { group, resource, counts, at_most: &[], more: |_, _, _| {} }
}

const ALL: &str = "status.replicas";
const REPLICA_COUNTS: &[&str] =
    &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
const REPLICAS_AT_MOST: &[(&str, &str, &str)] = &[
    ("fullyLabeledReplicas", "replicas", ALL),
    ("readyReplicas", "replicas", ALL),
    ("availableReplicas", "replicas", ALL),
    ("availableReplicas", "readyReplicas", "readyReplicas"),
];

static KINDS: &[Kind] = &[
    Kind { more: pod_update::status, ..kind("", "pods", &[]) },
    Kind { more: resources::quota_status, ..kind("", "resourcequotas", &[]) },
    Kind { more: node, ..kind("", "nodes", &[]) },
    Kind { more: flow_schema, ..kind("flowcontrol.apiserver.k8s.io", "flowschemas", &[]) },
    Kind { at_most: REPLICAS_AT_MOST, ..kind("", "replicationcontrollers", REPLICA_COUNTS) },
    Kind { at_most: REPLICAS_AT_MOST, ..kind("apps", "replicasets", REPLICA_COUNTS) },
    Kind {
        at_most: &[
            ("updatedReplicas", "replicas", ALL),
            ("readyReplicas", "replicas", ALL),
            ("availableReplicas", "replicas", ALL),
            ("availableReplicas", "readyReplicas", "readyReplicas"),
        ],
        more: collisions,
        ..kind(
            "apps",
            "deployments",
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "collisionCount",
            ],
        )
    },
    Kind {
        at_most: &[
            ("readyReplicas", "replicas", ALL),
            ("currentReplicas", "replicas", ALL),
            ("updatedReplicas", "replicas", ALL),
            ("availableReplicas", "replicas", ALL),
            ("availableReplicas", "readyReplicas", "status.readyReplicas"),
        ],
        more: collisions,
        ..kind(
            "apps",
            "statefulsets",
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
        )
    },
    Kind {
        more: collisions,
        ..kind(
            "apps",
            "daemonsets",
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
        )
    },
    Kind {
        more: job_status::status,
        ..kind("batch", "jobs", &["active", "succeeded", "failed", "ready", "terminating"])
    },
    Kind {
        more: |object, _, errors| conditions(&object.get("status.conditions"), errors),
        ..kind(
            "policy",
            "poddisruptionbudgets",
            &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"],
        )
    },
    kind("autoscaling", "horizontalpodautoscalers", &["currentReplicas", "desiredReplicas"]),
    Kind { more: services::status, ..kind("", "services", &[]) },
    Kind { more: services::status, ..kind("networking.k8s.io", "ingresses", &[]) },
    Kind { more: storage::claim_status, ..kind("", "persistentvolumeclaims", &[]) },
    Kind { more: devices::claim_status, ..kind("resource.k8s.io", "resourceclaims", &[]) },
];

/// Checks an object of which the status is updated.
pub(super) fn run(ty: &ResourceType, object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let found = KINDS.iter().find(|kind| kind.group == ty.group && kind.resource == ty.plural);
    let Some((kind, old)) = found.zip(old) else { return };
    let status = object.get("status");
    for field in kind.counts {
        rules::nonnegative(&status.get(field), errors);
    }
    for (field, most, words) in kind.at_most {
        let count = status.get(field);
        if count.number() > status.get(most).number() {
            errors.push(count.invalid(format!("cannot be greater than {words}")));
        }
    }
    (kind.more)(object, old, errors);
}

/// Amounts of a Node, which are not negative, and its addresses, each of which it has once.
fn node(object: &Field<'_>, _: &Value, errors: &mut Errors) {
    let mut seen: Vec<&Value> = Vec::new();
    for address in object.get("status.addresses").items() {
        if seen.contains(&address.value) {
            errors.push(address.duplicate());
        }
        seen.push(address.value);
    }
    for map in ["status.capacity", "status.allocatable"] {
        for (name, amount) in object.get(map).entries() {
            let path = format!("{map}.{name}");
            rules::resource_amount(&amount.named(&path), false, errors);
        }
    }
}

/// Conditions of a FlowSchema have a type, each another.
fn flow_schema(object: &Field<'_>, _: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for condition in object.get("status.conditions").items() {
        let kind = condition.get("type");
        if kind.is_empty() {
            errors.push(kind.required(""));
        } else if !seen.insert(kind.text().to_owned()) {
            errors.push(kind.duplicate());
        }
    }
}

/// What counts the names that were taken only grows.
fn collisions(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    let count = object.get("status.collisionCount");
    if old["status"]["collisionCount"]
        .as_i64()
        .is_some_and(|before| count.int().is_none_or(|now| now < before))
    {
        errors.push(count.invalid_as(count.number(), "cannot be decremented"));
    }
}

const CONDITION: &[Row] = &[
    ("type", Rule::AlwaysName(names::qualified_name)),
    ("status", Rule::AlwaysOneOf(&["False", "True", "Unknown"])),
];

/// Conditions of `metav1`.
pub(super) fn conditions(conditions: &Field<'_>, errors: &mut Errors) {
    const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
        alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or \
        'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
        '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
    const LONGEST_REASON: usize = 1024;
    const LONGEST_MESSAGE: usize = 32 << 10;
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let [kind, reason, message] = ["type", "reason", "message"].map(|field| condition.get(field));
        check(&condition, &CONDITION[..1], errors);
        if !kind.is_empty() && !seen.insert(kind.text()) {
            errors.push(kind.duplicate());
        }
        check(&condition, &CONDITION[1..], errors);
        let generation = condition.get("observedGeneration");
        if generation.number() < 0 {
            errors.push(generation.invalid("must be greater than or equal to zero"));
        }
        rules::required(&condition.get("lastTransitionTime"), errors);
        if reason.is_empty() {
            errors.push(reason.required(""));
        } else {
            let text = reason.text();
            let inner = |c: char| c.is_ascii_alphanumeric() || "_,:".contains(c);
            let good = text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.chars().all(inner)
                && !text.ends_with([',', ':']);
            if !good {
                errors.push(reason.invalid(REASON));
            }
            if text.len() > LONGEST_REASON {
                errors.push(reason.too_long(LONGEST_REASON));
            }
        }
        if message.text().len() > LONGEST_MESSAGE {
            errors.push(message.too_long(LONGEST_MESSAGE));
        }
    }
}
