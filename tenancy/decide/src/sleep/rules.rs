//! How objects of each kind sleep, as data.

use crate::target;
use freehold_machinery::selector::Labels;
use freehold_machinery::{Value, meta};
use freehold_tenancy_api::supervisor::{
    ASLEEP_ANNOTATION, ASLEEP_NODE_LABEL, ScalableKind, WORKLOAD_ANNOTATION, WorkloadKind, WorkloadMatch,
};
use serde_json::json;

/// How objects of one kind sleep.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Group of the kind.
    pub group: String,
    /// Version in which its objects are read and written.
    pub version: String,
    /// Plural of the kind.
    pub resource: String,
    /// The kind.
    pub kind: String,
    /// Rules with lower numbers put to sleep first, and wake last.
    pub order: u8,
    /// The field that holds the state, as a JSON pointer.
    pub path: String,
    /// The state while asleep, merged into the original where both are objects; `Null`: the object is deleted.
    pub asleep: Value,
    /// Whether changes that others make to the field during sleep outlast it.
    pub keeps_changes: bool,
    /// What chooses the objects.
    pub choice: Choice,
}

/// What chooses the objects that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The kinds of [`Selection`].
    Workload(WorkloadKind),
    /// The list of scalable custom resources.
    Scalable,
    /// The setting for load balancers.
    LoadBalancer,
    /// The setting for Argo CD.
    ArgoCd,
}

/// Workloads that a supervisor selects.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    kinds: Vec<WorkloadKind>,
    excluded: Vec<(WorkloadMatch, Option<Labels>)>,
}

/// An object, as far as its sleep is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The revision at which it was observed.
    pub resource_version: String,
    /// Its unique id.
    pub uid: String,
    /// The state; `None` where the field is not set. The whole object where the rule deletes it.
    pub state: Option<Value>,
    /// The original state that its annotation tells of, in JSON; `None` for an object that was not put to sleep.
    pub mark: Option<String>,
    /// Whether it has annotations.
    pub has_annotations: bool,
    /// Whether it has the annotation that keeps it running.
    pub never_sleeps: bool,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// The namespace that it acts on: its own, except for Applications of Argo CD.
    pub about: String,
}

fn rule(group: &str, version: &str, resource: &str, kind: WorkloadKind, order: u8) -> Rule {
    Rule {
        group: group.into(),
        version: version.into(),
        resource: resource.into(),
        kind: format!("{kind:?}"),
        order,
        path: "/spec/replicas".into(),
        asleep: json!(0),
        keeps_changes: false,
        choice: Choice::Workload(kind),
    }
}

/// Rules for the kinds that are known.
///
/// An autoscaler does nothing to a target with 0 replicas unless it may scale to 0 itself; `selectPolicy: Disabled` covers
/// that case.
pub fn builtin_rules() -> Vec<Rule> {
    use WorkloadKind as Kind;
    let other =
        |group: &str, version: &str, resource: &str, kind: &str, order, path: &str, asleep, choice| Rule {
            kind: kind.into(),
            path: path.into(),
            asleep,
            choice,
            ..rule(group, version, resource, Kind::Deployment, order)
        };
    vec![
        other(
            "argoproj.io",
            "v1alpha1",
            "applications",
            "Application",
            0,
            "/metadata/annotations/argocd.argoproj.io~1skip-reconcile",
            json!("true"),
            Choice::ArgoCd,
        ),
        Rule {
            path: "/metadata/annotations/autoscaling.keda.sh~1paused-replicas".into(),
            asleep: json!("0"),
            ..rule("keda.sh", "v1alpha1", "scaledobjects", Kind::ScaledObject, 1)
        },
        Rule {
            path: "/spec/behavior".into(),
            asleep: json!({"scaleUp": {"selectPolicy": "Disabled"}}),
            ..rule("autoscaling", "v2", "horizontalpodautoscalers", Kind::HorizontalPodAutoscaler, 1)
        },
        rule("apps", "v1", "deployments", Kind::Deployment, 2),
        rule("apps", "v1", "statefulsets", Kind::StatefulSet, 2),
        rule("apps", "v1", "replicasets", Kind::ReplicaSet, 2),
        Rule {
            path: "/spec/template/spec/nodeSelector".into(),
            asleep: json!({ASLEEP_NODE_LABEL: "true"}),
            keeps_changes: true,
            ..rule("apps", "v1", "daemonsets", Kind::DaemonSet, 2)
        },
        Rule {
            path: "/spec/suspend".into(),
            asleep: json!(true),
            ..rule("batch", "v1", "cronjobs", Kind::CronJob, 2)
        },
        other("", "v1", "services", "Service", 3, "", Value::Null, Choice::LoadBalancer),
    ]
}

/// The rule for a custom resource whose `scale` subresource reads its replicas at `path` (`.spec.replicas`).
pub fn scalable_rule(kind: &ScalableKind, version: &str, name: &str, path: &str) -> Rule {
    let path = path.replace('~', "~0").replace('/', "~1").replace('.', "/");
    Rule {
        group: kind.group.clone(),
        version: version.into(),
        resource: kind.resource.clone(),
        kind: name.into(),
        order: 2,
        path,
        asleep: json!(0),
        keeps_changes: false,
        choice: Choice::Scalable,
    }
}

impl Rule {
    /// Whether sleeping deletes the object.
    pub fn deletes(&self) -> bool {
        self.asleep.is_null()
    }

    /// The part of an object that its sleep is about. `None` for objects that others control, that are being deleted, or
    /// that have no state to change.
    pub fn observe(&self, object: &Value) -> Option<Observed> {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let controlled = owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true));
        if controlled || meta::is_deleting(object) {
            return None;
        }
        let about = match self.choice {
            Choice::ArgoCd => deploys_into(object)?,
            _ => meta::namespace(object),
        };
        if self.choice == Choice::LoadBalancer && object["spec"]["type"] != "LoadBalancer" {
            return None;
        }
        let parent = self.path.rfind('/').map_or("", |at| &self.path[..at]);
        if !parent.starts_with("/metadata/annotations") && object.pointer(parent).is_none() {
            return None;
        }
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        Some(Observed {
            namespace: meta::namespace(object).to_owned(),
            name: meta::name(object).to_owned(),
            resource_version: meta::resource_version(object).to_owned(),
            uid: meta::uid(object).to_owned(),
            state: if self.deletes() {
                Some(recreatable(object))
            } else {
                object.pointer(&self.path).cloned()
            },
            mark: meta::annotation(object, ASLEEP_ANNOTATION).map(str::to_owned),
            has_annotations: object["metadata"]["annotations"].is_object(),
            never_sleeps: meta::annotation(object, WORKLOAD_ANNOTATION) == Some("never"),
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            about: about.to_owned(),
        })
    }

    /// Whether a state is that of sleep.
    pub fn is_asleep(&self, state: Option<&Value>) -> bool {
        !self.deletes() && state.is_some_and(|state| contains(state, &self.asleep))
    }

    /// The state while asleep, for an original.
    pub fn asleep_state(&self, original: Option<&Value>) -> Value {
        match original {
            Some(original) if original.is_object() => freehold_machinery_patch::merge(original, &self.asleep),
            _ => self.asleep.clone(),
        }
    }

    /// The state to restore: the original, or what others made of it meanwhile.
    pub fn restored(&self, current: Option<&Value>, original: Option<Value>) -> Option<Value> {
        let (Some(Value::Object(current)), Value::Object(asleep)) = (current, &self.asleep) else {
            return original;
        };
        if !self.keeps_changes {
            return original;
        }
        let mut without = current.clone();
        without.retain(|key, _| !asleep.contains_key(key));
        let before = original.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        if without == before { original } else { Some(Value::Object(without)).filter(|v| v != &json!({})) }
    }
}

impl Selection {
    /// Compiles what a supervisor selects.
    ///
    /// # Errors
    /// A selector that cannot be read.
    pub fn new(kinds: &[WorkloadKind], excluded: &[WorkloadMatch]) -> Result<Self, String> {
        let excluded = excluded.iter().enumerate().map(|(at, row)| {
            let labels = row.selector.as_ref().map(target::labels).transpose();
            let labels =
                labels.map_err(|error| format!("spec.workloads.excluded[{at}].selector: {error}"))?;
            Ok::<_, String>((row.clone(), labels))
        });
        Ok(Self { kinds: kinds.to_vec(), excluded: excluded.collect::<Result<_, _>>()? })
    }

    /// Whether objects of a kind sleep.
    pub fn has(&self, kind: WorkloadKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// Whether an object goes on running.
    pub fn excludes(&self, kind: &str, object: &Observed) -> bool {
        object.never_sleeps
            || self.excluded.iter().any(|(row, labels)| {
                let label = |key: &str| object.labels.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
                (row.kind.is_empty() || row.kind == kind)
                    && (row.name.is_empty() || row.name == object.name)
                    && labels.as_ref().is_none_or(|labels| labels.matches(label))
            })
    }
}

/// The namespace of this cluster that an Application of Argo CD deploys into.
fn deploys_into(application: &Value) -> Option<&str> {
    let destination = &application["spec"]["destination"];
    let here = match (destination["server"].as_str(), destination["name"].as_str()) {
        (Some(server), _) if !server.is_empty() => server == "https://kubernetes.default.svc",
        (_, Some(name)) => name == "in-cluster",
        _ => false,
    };
    destination["namespace"].as_str().filter(|namespace| here && !namespace.is_empty())
}

/// An object without what the server sets, to be created again.
fn recreatable(object: &Value) -> Value {
    let mut copy = object.clone();
    if let Some(map) = copy.as_object_mut() {
        map.remove("status");
    }
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "selfLink",
        "finalizers",
    ] {
        meta::remove(&mut copy, field);
    }
    copy
}

/// Whether a value has everything that another has.
fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Object(value), Value::Object(part)) => {
            part.iter().all(|(key, part)| value.get(key).is_some_and(|value| contains(value, part)))
        }
        (value, part) => value == part,
    }
}
