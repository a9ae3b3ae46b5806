//! What a namespace of a tenant has to look like, and the writes that make it so.

use crate::quota;
use crate::rules;
use crate::tenant::{Chain, Namespace, declared_name, rbac_subjects};
use freehold_machinery::{Map, Value, quantity::Quantity};
use freehold_tenancy_api::quota::Quota;
use freehold_tenancy_api::tenant::{CollisionScope, Member, NamedSpec, Tenant};
use freehold_tenancy_api::{CORDONED_LABEL, MANAGED_LABEL, MANAGED_VALUE, METERED_LABEL, TENANT_LABEL};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The type of the condition that the namespace controller keeps on namespaces.
pub const CONDITION: &str = "tenancy.freehold.dev/Ready";
/// The annotation with the keys of labels and annotations that the controller set.
pub const KEYS_ANNOTATION: &str = "tenancy.freehold.dev/managed-keys";
/// The ClusterRole of owners beside `admin`: to change and delete the namespace itself.
pub const OWNER_ROLE: &str = "tenancy.freehold.dev:namespace-owner";
/// The annotation of the PodNodeSelector admission plugin.
const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// A kind of object that the controller keeps in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildKind {
    /// Rights of members.
    RoleBinding,
    /// Limits of one namespace.
    ResourceQuota,
    /// Defaults and limits of Pods.
    LimitRange,
    /// Who may talk to Pods.
    NetworkPolicy,
}

impl ChildKind {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::RoleBinding, Self::ResourceQuota, Self::LimitRange, Self::NetworkPolicy];

    /// Group, version and plural.
    pub const fn resource(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::RoleBinding => ("rbac.authorization.k8s.io", "v1", "rolebindings"),
            Self::ResourceQuota => ("", "v1", "resourcequotas"),
            Self::LimitRange => ("", "v1", "limitranges"),
            Self::NetworkPolicy => ("networking.k8s.io", "v1", "networkpolicies"),
        }
    }

    /// Fields beside `spec` fields that the server fills in.
    const fn defaulted(self) -> &'static [&'static str] {
        match self {
            Self::NetworkPolicy => &["podSelector", "policyTypes"],
            _ => &[],
        }
    }
}

/// Objects that the controller keeps in a namespace, by kind and name.
pub type Children = BTreeMap<(ChildKind, String), Arc<Value>>;

/// A write that brings a namespace closer to what it has to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Merge-patch labels and annotations of the namespace.
    Metadata(Value),
    /// Create a child; where the name is taken, take it over.
    Create(ChildKind, Value),
    /// Replace a child that differs. It carries the resource version that it replaces.
    Replace(ChildKind, Value),
    /// Delete a child and create it, since its role reference cannot be changed.
    Recreate(ChildKind, Value),
    /// Delete a child that nobody wants any more.
    Delete(ChildKind, String),
}

/// Who keeps limits over several namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// The webhook, which is asked about each object of the namespace.
    Webhook,
    /// The API server itself, in the write's own transaction: Freehold.
    Server,
}

/// Decides what is to be written in a namespace. `chain` is `None` for namespaces without tenant: what the controller left
/// there goes. `quotas` looks up Quotas by name.
pub fn plan(
    namespace: &Namespace,
    (chain, meter): (Option<&Chain>, Meter),
    quotas: impl Fn(&str) -> Option<Arc<Quota>>,
    existing: &Children,
) -> Vec<Write> {
    if namespace.deleting {
        return Vec::new();
    }
    let wanted = chain.map(|chain| children(&namespace.name, chain, quotas)).unwrap_or_default();
    let mut writes: Vec<Write> = metadata(namespace, chain, meter).map(Write::Metadata).into_iter().collect();
    for ((kind, name), object) in &wanted {
        match existing.get(&(*kind, name.clone())) {
            None => writes.push(Write::Create(*kind, object.clone())),
            Some(current) => writes.extend(repair(*kind, object, current)),
        }
    }
    let unwanted = existing.keys().filter(|key| !wanted.contains_key(key));
    writes.extend(unwanted.map(|(kind, name)| Write::Delete(*kind, name.clone())));
    writes
}

/// The write that makes `current` what is wanted, if it isn't.
pub fn repair(kind: ChildKind, wanted: &Value, current: &Value) -> Option<Write> {
    if kind == ChildKind::RoleBinding && !covers(&current["roleRef"], &wanted["roleRef"]) {
        return Some(Write::Recreate(kind, wanted.clone()));
    }
    let field = if kind == ChildKind::RoleBinding { "subjects" } else { "spec" };
    let known = |key: &String| wanted[field].get(key).is_some() || kind.defaulted().contains(&key.as_str());
    let strict = current[field].as_object().is_none_or(|spec| spec.keys().all(known));
    if strict
        && covers(&current[field], &wanted[field])
        && covers(&current["metadata"]["labels"], &wanted["metadata"]["labels"])
    {
        return None;
    }
    let mut new = wanted.clone();
    new["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
    Some(Write::Replace(kind, new))
}

/// Whether `current` says all that `wanted` says. The server may have filled in further fields and written quantities in
/// another way.
pub fn covers(current: &Value, wanted: &Value) -> bool {
    match (current, wanted) {
        (Value::Object(current), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| current.get(key).map_or(is_empty(value), |c| covers(c, value)))
        }
        (Value::Array(current), Value::Array(wanted)) => {
            current.len() == wanted.len() && current.iter().zip(wanted).all(|(c, w)| covers(c, w))
        }
        (current, wanted) if current == wanted => true,
        (Value::Null, wanted) => is_empty(wanted),
        (current, wanted) => {
            let quantity = |value: &Value| match value {
                Value::String(text) => text.parse::<Quantity>().ok(),
                Value::Number(number) => number.to_string().parse().ok(),
                _ => None,
            };
            quantity(current).zip(quantity(wanted)).is_some_and(|(a, b)| a.minus(&b).is_zero())
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Labels and annotations that a namespace of a tenant gets.
fn wanted_metadata(namespace: &Namespace, chain: &Chain, meter: Meter) -> [BTreeMap<String, String>; 2] {
    let (mut labels, mut annotations) = (BTreeMap::new(), BTreeMap::new());
    for tenant in chain.tenants.iter().rev() {
        labels.extend(tenant.spec.metadata.labels.clone());
        annotations.extend(tenant.spec.metadata.annotations.clone());
    }
    let Some(tenant) = chain.tenant() else { return [labels, annotations] };
    let name = &tenant.metadata.name;
    let mut declared = tenant.spec.namespaces.declared.iter();
    if let Some(declared) = declared.find(|declared| declared_name(name, declared) == namespace.name) {
        labels.extend(declared.labels.clone());
        annotations.extend(declared.annotations.clone());
    }
    let selector = rules::node_selector(chain);
    if !selector.is_empty() {
        annotations.insert(NODE_SELECTOR.into(), rules::pairs(&selector));
    }
    annotations.extend(rules::annotations(chain));
    if chain.tenants.iter().any(|tenant| tenant.spec.cordoned) {
        labels.insert(CORDONED_LABEL.into(), "true".into());
    }
    let metered = |tenant: &Arc<Tenant>| {
        (meter == Meter::Webhook && !tenant.spec.quota.is_empty())
            || tenant.spec.hosts.collision_scope != CollisionScope::Disabled
    };
    if chain.tenants.iter().any(metered) {
        labels.insert(METERED_LABEL.into(), "true".into());
    }
    labels.insert(TENANT_LABEL.into(), name.clone());
    [labels, annotations]
}

/// The merge patch that gives a namespace its labels and annotations, and takes those away that the controller set
/// before and that are not wanted any more.
pub fn metadata(namespace: &Namespace, chain: Option<&Chain>, meter: Meter) -> Option<Value> {
    let [labels, mut annotations] = chain.map(|c| wanted_metadata(namespace, c, meter)).unwrap_or_default();
    let keys = labels.keys().filter(|key| *key != TENANT_LABEL).map(|key| format!("l:{key}"));
    let keys: Vec<String> = keys.chain(annotations.keys().map(|key| format!("a:{key}"))).collect();
    let before = namespace.annotations.get(KEYS_ANNOTATION).map(String::as_str).unwrap_or_default();
    if !keys.is_empty() {
        annotations.insert(KEYS_ANNOTATION.into(), keys.join(","));
    }
    let mut patches = [Map::new(), Map::new()];
    let sides = [(&namespace.labels, &labels, "l:"), (&namespace.annotations, &annotations, "a:")];
    for (patch, (current, wanted, mark)) in patches.iter_mut().zip(sides) {
        for (key, value) in wanted.iter().filter(|(key, value)| current.get(*key) != Some(value)) {
            patch.insert(key.clone(), value.as_str().into());
        }
        let old = before.split(',').filter_map(|key| key.strip_prefix(mark));
        for key in old.filter(|key| !wanted.contains_key(*key) && current.contains_key(*key)) {
            patch.insert(key.to_owned(), Value::Null);
        }
    }
    let [labels, mut annotations] = patches;
    if keys.is_empty() && !before.is_empty() {
        annotations.insert(KEYS_ANNOTATION.into(), Value::Null);
    }
    let mut metadata = Map::new();
    for (field, patch) in [("labels", labels), ("annotations", annotations)] {
        if !patch.is_empty() {
            metadata.insert(field.into(), patch.into());
        }
    }
    if metadata.is_empty() { None } else { Some(json!({"metadata": metadata})) }
}

/// The objects that a namespace of a tenant has.
pub fn children(
    namespace: &str,
    chain: &Chain,
    quotas: impl Fn(&str) -> Option<Arc<Quota>>,
) -> BTreeMap<(ChildKind, String), Value> {
    let Some(tenant) = chain.tenant() else { return BTreeMap::new() };
    let place = Place { namespace, tenant: &tenant.metadata.name };
    let mut children = BTreeMap::new();
    let mut put = |kind: ChildKind, object: Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        children.entry((kind, name)).or_insert(object);
    };
    for binding in role_bindings(&place, chain) {
        put(ChildKind::RoleBinding, binding);
    }
    for tenant in &chain.tenants {
        for policy in &tenant.spec.network_policies {
            put(ChildKind::NetworkPolicy, place.spec("networking.k8s.io/v1", "NetworkPolicy", "", policy));
        }
        for range in &tenant.spec.limit_ranges {
            put(ChildKind::LimitRange, place.spec("v1", "LimitRange", "", range));
        }
        let Some(quota) = quotas(&tenant.spec.quota) else { continue };
        for range in &quota.spec.limit_ranges {
            put(ChildKind::LimitRange, place.spec("v1", "LimitRange", "quota-", range));
        }
        for named in quota::resource_quotas(&quota) {
            put(ChildKind::ResourceQuota, place.spec("v1", "ResourceQuota", "", &named));
        }
    }
    children
}

struct Place<'a> {
    namespace: &'a str,
    tenant: &'a str,
}

impl Place<'_> {
    fn metadata(&self, name: &str) -> Value {
        json!({
            "name": name, "namespace": self.namespace,
            "labels": {MANAGED_LABEL: MANAGED_VALUE, TENANT_LABEL: self.tenant},
        })
    }

    fn spec(&self, api_version: &str, kind: &str, infix: &str, named: &NamedSpec) -> Value {
        json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": self.metadata(&format!("tenancy-{infix}{}", named.name)), "spec": named.spec,
        })
    }
}

/// The ClusterRoles that a role of members stands for.
fn cluster_roles(role: &str) -> Vec<&str> {
    match role {
        "owner" => vec!["admin", OWNER_ROLE],
        "editor" => vec!["edit"],
        "viewer" => vec!["view"],
        other => vec![other],
    }
}

/// One RoleBinding for each ClusterRole. Owners of the tenants above are owners here too.
fn role_bindings(place: &Place<'_>, chain: &Chain) -> Vec<Value> {
    let mut members: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    for (depth, tenant) in chain.tenants.iter().enumerate() {
        for member in tenant.spec.members.iter().filter(|member| depth == 0 || member.role == "owner") {
            for role in cluster_roles(&member.role) {
                members.entry(role).or_default().push(member);
            }
        }
    }
    let binding = |(role, members): (&str, Vec<&Member>)| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": place.metadata(&format!("tenancy:{role}")),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": rbac_subjects(members.iter().flat_map(|member| &member.subjects)),
        })
    };
    members.into_iter().map(binding).collect()
}

/// The condition of the namespace controller, of a namespace.
pub fn condition_of(namespace: &Value) -> Option<&Value> {
    namespace["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == CONDITION)
}

/// What keeps a namespace from being as its tenant wants it, as a reason and a message.
pub fn problem(chain: &Chain, quotas: impl Fn(&str) -> Option<Arc<Quota>>) -> Option<(&'static str, String)> {
    let missing: BTreeSet<&str> = chain
        .tenants
        .iter()
        .map(|tenant| tenant.spec.quota.as_str())
        .filter(|quota| !quota.is_empty() && quotas(quota).is_none())
        .collect();
    if let Some(quota) = missing.first() {
        return Some(("QuotaMissing", format!("quota {quota:?} does not exist; nothing is limited by it")));
    }
    chain.problem.as_ref().map(|problem| (problem.reason(), problem.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_tenancy_api::tenant::{Subject, TenantSpec};

    fn chain(spec: TenantSpec) -> Chain {
        Chain { tenants: vec![Arc::new(Tenant::new("web", spec))], problem: None }
    }

    fn spec() -> TenantSpec {
        let mut spec = TenantSpec::default();
        spec.members.push(Member {
            role: "owner".into(),
            subjects: vec![Subject { name: "ann".into(), ..Subject::default() }],
        });
        spec.metadata.labels.insert("team".into(), "web".into());
        let policy = json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]});
        let policy = NamedSpec { name: "deny".into(), spec: policy.as_object().unwrap().clone() };
        spec.network_policies.push(policy);
        spec
    }

    fn after(writes: &[Write]) -> Children {
        let created = writes.iter().filter_map(|write| match write {
            Write::Create(kind, object) => {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                Some(((*kind, name), Arc::new(object.clone())))
            }
            _ => None,
        });
        created.collect()
    }

    #[test]
    fn a_namespace_gets_its_objects_once_and_loses_them_when_it_leaves() {
        let (chain, none) = (chain(spec()), |_: &str| None);
        let mut namespace = Namespace { name: "web-a".into(), ..Namespace::default() };
        let writes = plan(&namespace, (Some(&chain), Meter::Webhook), none, &Children::new());
        assert_eq!(writes.len(), 4, "{writes:?}");
        let children = after(&writes);
        namespace.labels = [(TENANT_LABEL.into(), "web".into()), ("team".into(), "web".into())].into();
        namespace.annotations = [(KEYS_ANNOTATION.into(), "l:team".into())].into();
        assert_eq!(plan(&namespace, (Some(&chain), Meter::Webhook), none, &children), []);
        namespace.labels.remove(TENANT_LABEL);
        let writes = plan(&namespace, (None, Meter::Webhook), none, &children);
        let patch = json!({"metadata": {"labels": {"team": null}, "annotations": {KEYS_ANNOTATION: null}}});
        assert_eq!(writes[0], Write::Metadata(patch));
        assert_eq!(writes.iter().filter(|write| matches!(write, Write::Delete(..))).count(), 3);
    }

    #[test]
    fn the_webhook_is_asked_about_objects_where_the_server_keeps_no_limits() {
        let chain = chain(TenantSpec { quota: "q".into(), ..spec() });
        let namespace = Namespace { name: "web-a".into(), ..Namespace::default() };
        let label = |meter| {
            metadata(&namespace, Some(&chain), meter).unwrap()["metadata"]["labels"][METERED_LABEL].clone()
        };
        assert_eq!(label(Meter::Webhook), "true");
        assert_eq!(label(Meter::Server), Value::Null);
    }

    #[test]
    fn drift_is_repaired_and_defaults_of_the_server_are_not_drift() {
        let wanted =
            &children("web-a", &chain(spec()), |_| None)[&(ChildKind::NetworkPolicy, "tenancy-deny".into())];
        let mut current = wanted.clone();
        current["spec"]["policyTypes"] = json!(["Ingress"]);
        assert_eq!(repair(ChildKind::NetworkPolicy, wanted, &current), None);
        current["spec"]["egress"] = json!([{}]);
        assert!(repair(ChildKind::NetworkPolicy, wanted, &current).is_some());
        let binding =
            &children("web-a", &chain(spec()), |_| None)[&(ChildKind::RoleBinding, "tenancy:admin".into())];
        let mut current = binding.clone();
        current["subjects"].as_array_mut().unwrap().push(json!({"kind": "User", "name": "eve"}));
        assert!(matches!(repair(ChildKind::RoleBinding, binding, &current), Some(Write::Replace(..))));
        current["roleRef"]["name"] = "cluster-admin".into();
        assert!(matches!(repair(ChildKind::RoleBinding, binding, &current), Some(Write::Recreate(..))));
    }

    #[test]
    fn quantities_are_compared_by_value() {
        assert!(covers(&json!({"cpu": "1"}), &json!({"cpu": "1000m"})));
        assert!(covers(&json!({"cpu": "1"}), &json!({"cpu": 1})));
        assert!(!covers(&json!({"cpu": "1"}), &json!({"cpu": "2"})));
    }
}
