//! Requirements of node selectors, tolerations, and terms about other Pods.

use super::read::{LabelMap, items, list, selector, selects, text};
use freehold_machinery::Value;
use freehold_machinery::selector::Labels;

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: Box<str>,
    /// Its value, which may be empty.
    pub value: Box<str>,
    /// What it does: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Box<str>,
}

impl Taint {
    /// Reads a taint from a Node's list.
    pub fn read(taint: &Value) -> Self {
        let part = |pointer| text(taint, pointer).into();
        Self { key: part("/key"), value: part("/value"), effect: part("/effect") }
    }
}

/// What a Pod tolerates.
#[derive(Clone, Debug)]
pub struct Toleration {
    taint: Taint,
    operator: Box<str>,
}

impl Toleration {
    /// Reads a toleration from a Pod's list.
    pub fn read(toleration: &Value) -> Self {
        Self { taint: Taint::read(toleration), operator: text(toleration, "/operator").into() }
    }

    /// Whether the toleration is one of a taint.
    pub fn covers(&self, taint: &Taint) -> bool {
        let own = &self.taint;
        let fits = |own: &str, other: &str| own.is_empty() || own == other;
        if !fits(&own.effect, &taint.effect) || !fits(&own.key, &taint.key) {
            return false;
        }
        match &*self.operator {
            "" | "Equal" => own.value == taint.value,
            "Exists" => true,
            _ => false,
        }
    }

    /// Whether the toleration counts towards taints that only make a node less wanted.
    pub fn is_soft(&self) -> bool {
        matches!(&*self.taint.effect, "" | "PreferNoSchedule")
    }
}

#[derive(Clone, Debug)]
struct Requirement {
    key: Box<str>,
    operator: Box<str>,
    values: Vec<Box<str>>,
}

impl Requirement {
    fn read(requirement: &Value) -> Self {
        Self {
            key: text(requirement, "/key").into(),
            operator: text(requirement, "/operator").into(),
            values: list(requirement, "/values"),
        }
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values.iter().any(|own| **own == *value));
        let compare = |is: fn(&i64, &i64) -> bool| {
            let own = value.and_then(|value| value.parse().ok());
            let bound = self.values.first().and_then(|bound| bound.parse().ok());
            own.zip(bound).is_some_and(|(own, bound)| is(&own, &bound))
        };
        match &*self.operator {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare(i64::gt),
            "Lt" => compare(i64::lt),
            _ => false,
        }
    }
}

/// One term of a node selector: all of its requirements have to hold. An empty one holds nowhere.
#[derive(Clone, Debug)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Reads a `NodeSelectorTerm` of a Pod or a volume.
    pub fn read(term: &Value) -> Self {
        let all = |pointer| items(term, pointer).iter().map(Requirement::read).collect();
        Self { labels: all("/matchExpressions"), fields: all("/matchFields") }
    }

    /// Reads the terms of a `NodeSelector`; `None` where there is none.
    pub fn read_selector(object: &Value, pointer: &str) -> Option<Vec<Self>> {
        let selector = object.pointer(pointer).filter(|value| !value.is_null())?;
        Some(items(selector, "/nodeSelectorTerms").iter().map(Self::read).collect())
    }

    /// Whether the term holds for a node of this name with these labels.
    pub fn holds(&self, name: &str, labels: &LabelMap) -> bool {
        let label = |key: &str| labels.get(key).map(|value| &**value);
        !(self.labels.is_empty() && self.fields.is_empty())
            && self.labels.iter().all(|one| one.holds(label(&one.key)))
            && self.fields.iter().all(|one| one.holds((*one.key == *"metadata.name").then_some(name)))
    }

    /// The names of nodes that the term is limited to; `None` where it names none.
    pub fn names(&self) -> Option<Vec<&str>> {
        let mut by_name =
            self.fields.iter().filter(|one| *one.key == *"metadata.name" && *one.operator == *"In");
        let first = by_name.next()?;
        let rest: Vec<_> = by_name.collect();
        let has = |one: &&Requirement, name: &str| one.values.iter().any(|own| **own == *name);
        let in_all = |name: &&str| rest.iter().all(|one| has(one, name));
        Some(first.values.iter().map(|name| &**name).filter(in_all).collect())
    }
}

/// A term of Pod affinity or anti-affinity: Pods that it is about, and the label of nodes that says what near is.
#[derive(Clone, Debug)]
pub struct PodTerm {
    selector: Option<Labels>,
    namespaces: Vec<Box<str>>,
    namespace_selector: Option<Labels>,
    /// The label of nodes whose value is that of all nodes that are near to each other.
    pub topology_key: Box<str>,
    /// What the term adds to a score; 0 where it is required.
    pub weight: i64,
}

impl PodTerm {
    /// Reads a `PodAffinityTerm` of a Pod in a namespace.
    pub fn read(term: &Value, namespace: &str, weight: i64) -> Self {
        let mut namespaces = list(term, "/namespaces");
        let names_others = term.get("namespaceSelector").is_some_and(|value| !value.is_null());
        if namespaces.is_empty() && !names_others {
            namespaces.push(namespace.into());
        }
        Self {
            selector: selector(term, "/labelSelector"),
            namespaces,
            namespace_selector: selector(term, "/namespaceSelector"),
            topology_key: text(term, "/topologyKey").into(),
            weight,
        }
    }

    /// Whether the term is about a Pod with these labels in this namespace, which has labels of its own.
    pub fn is_about(&self, labels: &LabelMap, namespace: &str, namespace_labels: &LabelMap) -> bool {
        let is_near = self.namespaces.iter().any(|own| **own == *namespace)
            || selects(self.namespace_selector.as_ref(), namespace_labels);
        is_near && selects(self.selector.as_ref(), labels)
    }

    /// Whether the term selects namespaces by their labels.
    pub fn selects_namespaces(&self) -> bool {
        self.namespace_selector.is_some()
    }
}

/// A topology spread constraint.
#[derive(Clone, Debug)]
pub struct Spread {
    /// By how many Pods two domains may differ.
    pub max_skew: i64,
    /// The label of nodes whose values are the domains.
    pub topology_key: Box<str>,
    /// Which Pods are counted.
    pub selector: Option<Labels>,
    /// With fewer domains than this, the smallest counts as empty.
    pub min_domains: i64,
    /// Whether nodes that the Pod's selector and affinity exclude are left out.
    pub honors_affinity: bool,
    /// Whether nodes with taints that the Pod does not tolerate are left out.
    pub honors_taints: bool,
    /// Whether a node that does not satisfy it is refused, and not only less wanted.
    pub is_required: bool,
}

impl Spread {
    /// Reads a `TopologySpreadConstraint` of a Pod with these labels.
    pub fn read(constraint: &Value, pod_labels: &LabelMap) -> Self {
        let mut wanted = constraint.get("labelSelector").cloned().unwrap_or(Value::Null);
        for key in list(constraint, "/matchLabelKeys") {
            // As kube-scheduler has it, a key that the Pod lacks is left out.
            if let Some(value) = pod_labels.get(&key).filter(|_| !wanted.is_null()) {
                let expression = serde_json::json!({"key": &*key, "operator": "In", "values": [&**value]});
                match wanted.get_mut("matchExpressions").and_then(Value::as_array_mut) {
                    Some(expressions) => expressions.push(expression),
                    None => wanted["matchExpressions"] = serde_json::json!([expression]),
                }
            }
        }
        let number = |name, default| constraint.get(name).and_then(Value::as_i64).unwrap_or(default);
        Self {
            max_skew: number("maxSkew", 1),
            topology_key: text(constraint, "/topologyKey").into(),
            selector: selector(&wanted, ""),
            min_domains: number("minDomains", 1),
            honors_affinity: text(constraint, "/nodeAffinityPolicy") != "Ignore",
            honors_taints: text(constraint, "/nodeTaintsPolicy") == "Honor",
            is_required: text(constraint, "/whenUnsatisfiable") == "DoNotSchedule",
        }
    }
}
