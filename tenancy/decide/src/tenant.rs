//! What a Tenant wants of its plane: namespaces, rights of its members, and the tenants above it.

use crate::rules::{CLASSES, allowed_classes};
use freehold_machinery::{Value, time};
use freehold_tenancy_api::tenant::{DeclaredNamespace, Subject, SubjectKind, Tenant};
use freehold_tenancy_api::{GROUP, TENANT_LABEL};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The verb that lets members list what they may read, on servers that filter lists.
const LIST_VISIBLE: &str = "listvisible";

/// The annotation with the user whose personal namespace a namespace is.
pub const PERSONAL_ANNOTATION: &str = "tenancy.freehold.dev/personal-of";
/// The annotation with the time at which a namespace is deleted, RFC 3339.
pub const EXPIRES_ANNOTATION: &str = "tenancy.freehold.dev/expires-at";
/// The annotation with the user who created a namespace.
pub const CREATOR_ANNOTATION: &str = "tenancy.freehold.dev/created-by";
/// Most tenants above a tenant.
pub const MAX_DEPTH: usize = 8;

/// A tenant with all tenants above it, itself first.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The tenants. A tenant of a cycle stands here once.
    pub tenants: Vec<Arc<Tenant>>,
    /// Why the chain has no proper end.
    pub problem: Option<ChainProblem>,
}

/// Why a tenant's ancestors cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainProblem {
    /// This tenant does not exist.
    Missing(String),
    /// This tenant comes twice.
    Cycle(String),
    /// There are more than [`MAX_DEPTH`] tenants above.
    TooDeep,
}

impl ChainProblem {
    /// The reason of a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) => "ParentMissing",
            Self::Cycle(_) => "ParentCycle",
            Self::TooDeep => "ParentTooDeep",
        }
    }

    /// The reason in words.
    pub fn message(&self) -> String {
        match self {
            Self::Missing(name) => format!("parent tenant {name:?} does not exist; its limits do not hold"),
            Self::Cycle(name) => {
                format!(
                    "tenant {name:?} is its own ancestor; limits of each tenant of the cycle hold for all"
                )
            }
            Self::TooDeep => {
                format!("more than {MAX_DEPTH} tenants above; limits of further ones do not hold")
            }
        }
    }
}

/// Follows `spec.parent` from a tenant upwards.
pub fn chain(tenant: Arc<Tenant>, get: impl Fn(&str) -> Option<Arc<Tenant>>) -> Chain {
    let mut chain = Chain { tenants: vec![tenant], problem: None };
    loop {
        let parent = match chain.tenants.last() {
            Some(last) if !last.spec.parent.is_empty() => last.spec.parent.clone(),
            _ => return chain,
        };
        if chain.tenants.iter().any(|tenant| tenant.metadata.name == parent) {
            chain.problem = Some(ChainProblem::Cycle(parent));
            return chain;
        }
        if chain.tenants.len() > MAX_DEPTH {
            chain.problem = Some(ChainProblem::TooDeep);
            return chain;
        }
        let Some(next) = get(&parent) else {
            chain.problem = Some(ChainProblem::Missing(parent));
            return chain;
        };
        chain.tenants.push(next);
    }
}

impl Chain {
    /// Returns the tenant that this is about.
    pub fn tenant(&self) -> Option<&Arc<Tenant>> {
        self.tenants.first()
    }
}

/// Whose a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// No tenant's.
    None,
    /// Its label says so.
    Labelled(String),
    /// Its name begins with that of a tenant that adopts by prefix.
    ByPrefix(String),
    /// Its label names a tenant that does not exist.
    Unknown(String),
    /// Its label names a tenant, but it belongs to the plane.
    Protected(String),
}

/// Decides whose a namespace is. `get` looks up tenants by name; the longest prefix wins.
pub fn assign(
    name: &str,
    labels: &BTreeMap<String, String>,
    get: impl Fn(&str) -> Option<Arc<Tenant>>,
) -> Assignment {
    let label = labels.get(TENANT_LABEL).filter(|label| !label.is_empty());
    if crate::target::is_protected(name) {
        return label.map_or(Assignment::None, |label| Assignment::Protected(label.clone()));
    }
    if let Some(label) = label {
        return match get(label) {
            Some(_) => Assignment::Labelled(label.clone()),
            None => Assignment::Unknown(label.clone()),
        };
    }
    let adopts = |prefix: &str| get(prefix).is_some_and(|tenant| tenant.spec.namespaces.adopt_by_prefix);
    let dashes = name.rmatch_indices('-').map(|(at, _)| &name[..at]);
    match dashes.into_iter().find(|prefix| adopts(prefix)) {
        Some(prefix) => Assignment::ByPrefix(prefix.to_owned()),
        None => Assignment::None,
    }
}

/// A namespace as controllers keep it in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The condition of the namespace controller.
    pub condition: Option<Value>,
}

impl Namespace {
    /// Reads the fields that decisions need.
    pub fn of(object: &Value) -> Self {
        let texts = |field: &str| -> BTreeMap<String, String> {
            let map = object["metadata"][field].as_object();
            let pairs = map.into_iter().flatten();
            pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        Self {
            name: text("name").to_owned(),
            uid: text("uid").to_owned(),
            labels: texts("labels"),
            annotations: texts("annotations"),
            created: time::parse(text("creationTimestamp")),
            deleting: object["metadata"]["deletionTimestamp"].is_string(),
            condition: crate::namespace::condition_of(object).cloned(),
        }
    }

    /// The name of its tenant, by label.
    pub fn tenant(&self) -> Option<&str> {
        self.labels.get(TENANT_LABEL).map(String::as_str).filter(|label| !label.is_empty())
    }

    /// Whether the namespace controller has done all for it.
    pub fn is_ready(&self) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition["status"] == "True")
    }

    /// Returns the time at which it expires.
    pub fn expires(&self) -> Option<Timestamp> {
        time::parse(self.annotations.get(EXPIRES_ANNOTATION)?)
    }
}

/// A namespace that a Tenant wants to exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Whether an existing namespace without tenant is adopted.
    pub adopt: bool,
    /// The user whose personal namespace it is.
    pub personal_of: Option<String>,
    /// After how many seconds it expires; 0: never.
    pub ttl_seconds: u32,
}

/// The name of a declared namespace.
pub fn declared_name(tenant: &str, declared: &DeclaredNamespace) -> String {
    if declared.prefixed { format!("{tenant}-{}", declared.name) } else { declared.name.clone() }
}

/// The name of a user's personal namespace. Users whose names differ only in characters that namespaces cannot have get
/// different names.
pub fn personal_name(tenant: &str, user: &str) -> String {
    let lower = user.to_lowercase();
    let plain: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let plain = plain.trim_matches('-');
    let room = 63usize.saturating_sub(tenant.len() + 1);
    if plain == user && plain.len() <= room {
        return format!("{tenant}-{plain}");
    }
    let cut = plain[..plain.len().min(room.saturating_sub(9))].trim_end_matches('-');
    format!("{tenant}-{cut}-{:08x}", fnv(user)).replace("--", "-")
}

/// FNV-1a, which is the same in each version of the program.
fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The namespaces that a Tenant wants: declared ones, then personal ones.
pub fn wanted(tenant: &Tenant) -> Vec<Wanted> {
    let (name, spec) = (&tenant.metadata.name, &tenant.spec.namespaces);
    let declared = spec.declared.iter().map(|declared| Wanted {
        name: declared_name(name, declared),
        adopt: declared.adopt,
        ..Wanted::default()
    });
    let users = spec.personal.iter().flat_map(|personal| {
        let users: BTreeSet<&str> = writers(tenant)
            .filter(|subject| subject.kind == SubjectKind::User)
            .map(|subject| subject.name.as_str())
            .collect();
        users.into_iter().map(|user| Wanted {
            name: personal_name(name, user),
            adopt: false,
            personal_of: Some(user.to_owned()),
            ttl_seconds: personal.ttl_seconds,
        })
    });
    declared.chain(users).collect()
}

/// Owners and editors of a tenant.
pub fn writers(tenant: &Tenant) -> impl Iterator<Item = &Subject> {
    let members = tenant.spec.members.iter();
    members.filter(|m| m.role == "owner" || m.role == "editor").flat_map(|member| &member.subjects)
}

/// A step towards the namespaces that a Tenant wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create a namespace.
    Create(Value),
    /// Label an existing namespace with the tenant, if it still has this uid.
    Adopt {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

/// Why a wanted namespace cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The name.
    pub name: String,
    /// The tenant that has it; `None`: it has none, and `adopt` is not set.
    pub by: Option<String>,
}

/// Compares the wanted namespaces with those that exist.
pub fn plan(
    tenant: &Tenant,
    now: Timestamp,
    get: impl Fn(&str) -> Option<Arc<Namespace>>,
) -> (Vec<Step>, Vec<Taken>) {
    let (mut steps, mut taken) = (Vec::new(), Vec::new());
    for wanted in wanted(tenant) {
        let own = tenant.metadata.name.as_str();
        match get(&wanted.name) {
            None if crate::target::is_protected(&wanted.name) => {
                taken.push(Taken { name: wanted.name, by: None });
            }
            None => steps.push(Step::Create(new_namespace(own, &wanted, now))),
            Some(existing) if existing.tenant() == Some(own) => {}
            Some(existing) => match existing.tenant() {
                None if wanted.adopt && !crate::target::is_protected(&wanted.name) => {
                    steps.push(Step::Adopt { name: wanted.name, uid: existing.uid.clone() });
                }
                other => taken.push(Taken { name: wanted.name, by: other.map(str::to_owned) }),
            },
        }
    }
    (steps, taken)
}

fn new_namespace(tenant: &str, wanted: &Wanted, now: Timestamp) -> Value {
    let mut annotations = json!({});
    if let Some(user) = &wanted.personal_of {
        annotations[PERSONAL_ANNOTATION] = user.as_str().into();
    }
    if wanted.ttl_seconds > 0 {
        let expires = now.saturating_add(SignedDuration::from_secs(i64::from(wanted.ttl_seconds)));
        let expires = expires.unwrap_or(Timestamp::MAX);
        annotations[EXPIRES_ANNOTATION] = time::format_seconds(expires).into();
    }
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": wanted.name, "labels": {TENANT_LABEL: tenant}, "annotations": annotations},
    })
}

/// RBAC subjects, as `rbac.authorization.k8s.io/v1` writes them.
pub fn rbac_subjects<'a>(subjects: impl Iterator<Item = &'a Subject>) -> Vec<Value> {
    let unique: BTreeSet<&Subject> = subjects.collect();
    let rbac = "rbac.authorization.k8s.io";
    let value = |subject: &Subject| match subject.kind {
        SubjectKind::User => json!({"kind": "User", "apiGroup": rbac, "name": subject.name}),
        SubjectKind::Group => json!({"kind": "Group", "apiGroup": rbac, "name": subject.name}),
        SubjectKind::ServiceAccount => {
            json!({"kind": "ServiceAccount", "name": subject.name, "namespace": subject.namespace})
        }
    };
    unique.into_iter().map(value).collect()
}

/// Rules with which members read the classes that their tenant may use: all of a kind that is not limited, and by name those
/// that are allowed of one that is.
fn class_rules(chain: &Chain) -> impl Iterator<Item = Value> {
    CLASSES.iter().filter_map(|class| {
        let mut rule =
            json!({"apiGroups": [class.group], "resources": [class.resource], "verbs": ["get", "list", "watch"]});
        match allowed_classes(chain, class) {
            // A rule without names would be one for all.
            Some(names) if names.is_empty() => None,
            Some(names) => {
                rule["resourceNames"] = json!(names);
                Some(rule)
            }
            None => Some(rule),
        }
    })
}

/// ClusterRoles and ClusterRoleBindings of a tenant's members: to read the Tenant and classes, to list what they may read on
/// servers that filter lists, and to create namespaces. Owners of the tenants above are members in this. Owned by the Tenant,
/// so that they go with it.
pub fn cluster_rbac(chain: &Chain) -> Vec<Value> {
    let Some(tenant) = chain.tenants.first() else { return Vec::new() };
    let name = &tenant.metadata.name;
    let owner = json!([{
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Tenant", "name": name, "uid": tenant.metadata.uid,
    }]);
    let labels = json!({
        freehold_tenancy_api::MANAGED_LABEL: freehold_tenancy_api::MANAGED_VALUE, TENANT_LABEL: name,
    });
    let pair = |suffix: &str, rules: Value, subjects: Vec<Value>| {
        let metadata = json!({
            "name": format!("tenancy:{name}:{suffix}"), "labels": labels, "ownerReferences": owner,
        });
        let api_version = "rbac.authorization.k8s.io/v1";
        [
            json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}),
            json!({
                "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata,
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": format!("tenancy:{name}:{suffix}"),
                },
                "subjects": subjects,
            }),
        ]
    };
    let mut read = vec![
        json!({"apiGroups": [GROUP], "resources": ["tenants"], "resourceNames": [name], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": ["*"], "resources": ["*"], "verbs": [LIST_VISIBLE]}),
    ];
    read.extend(class_rules(chain));
    let create = json!([
        {"apiGroups": [GROUP], "resources": ["tenants"], "resourceNames": [name], "verbs": ["provision"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]},
    ]);
    let above = chain.tenants.iter().skip(1).flat_map(|tenant| &tenant.spec.members);
    let owners = above.filter(|member| member.role == "owner");
    let everybody = tenant.spec.members.iter().chain(owners).flat_map(|member| &member.subjects);
    let creators = writers(tenant).filter(|_| tenant.spec.namespaces.self_service);
    let mut objects = Vec::from(pair("member", read.into(), rbac_subjects(everybody)));
    objects.extend(pair("namespace-creator", create, rbac_subjects(creators)));
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_tenancy_api::tenant::{Member, Personal, TenantSpec};

    pub(crate) fn tenant(name: &str, spec: TenantSpec) -> Arc<Tenant> {
        Arc::new(Tenant::new(name, spec))
    }

    fn lookup(tenants: Vec<Arc<Tenant>>) -> impl Fn(&str) -> Option<Arc<Tenant>> {
        move |name| tenants.iter().find(|tenant| tenant.metadata.name == name).cloned()
    }

    fn below(name: &str, parent: &str) -> Arc<Tenant> {
        tenant(name, TenantSpec { parent: parent.into(), ..TenantSpec::default() })
    }

    #[test]
    fn a_chain_ends_at_the_top_at_a_gap_or_where_it_closes() {
        let get =
            lookup(vec![below("a", ""), below("b", "a"), below("x", "y"), below("y", "x"), below("g", "no")]);
        let follow = |name: &str| {
            let chain = chain(get(name).unwrap(), &get);
            let names: Vec<String> = chain.tenants.iter().map(|t| t.metadata.name.clone()).collect();
            (names.join(","), chain.problem.map(|problem| problem.reason()))
        };
        assert_eq!(follow("b"), ("b,a".into(), None));
        assert_eq!(follow("x"), ("x,y".into(), Some("ParentCycle")));
        assert_eq!(follow("g"), ("g".into(), Some("ParentMissing")));
        let many: Vec<_> = (0..12).map(|n| below(&format!("t{n}"), &format!("t{}", n + 1))).collect();
        let get = lookup(many);
        assert_eq!(chain(get("t0").unwrap(), &get).problem, Some(ChainProblem::TooDeep));
    }

    #[test]
    fn members_read_allowed_classes_by_name_and_all_of_a_kind_that_is_not_limited() {
        let member = |role: &str, name: &str| Member {
            role: role.into(),
            subjects: vec![Subject { name: name.into(), ..Subject::default() }],
        };
        let mut spec = TenantSpec {
            parent: "top".into(),
            members: vec![member("viewer", "ann")],
            ..TenantSpec::default()
        };
        let allowed = |names: &[&str]| {
            Some(freehold_tenancy_api::tenant::AllowedClasses {
                allowed: names.iter().map(|name| (*name).to_owned()).collect(),
                ..Default::default()
            })
        };
        spec.classes.storage = allowed(&["fast", "slow"]);
        spec.classes.ingress = allowed(&[]);
        let mut above = TenantSpec {
            members: vec![member("owner", "bob"), member("viewer", "eve")],
            ..TenantSpec::default()
        };
        above.classes.storage = allowed(&["fast"]);
        let chain = Chain { tenants: vec![tenant("web", spec), tenant("top", above)], problem: None };
        let objects = cluster_rbac(&chain);
        let rules = objects[0]["rules"].as_array().unwrap();
        let of = |resource: &str| rules.iter().find(|rule| rule["resources"][0] == resource);
        assert_eq!(of("storageclasses").unwrap()["resourceNames"], json!(["fast"]));
        assert!(of("ingressclasses").is_none(), "an empty list allows nothing, and no names would allow all");
        assert!(of("priorityclasses").unwrap()["resourceNames"].is_null());
        assert_eq!(of("*").unwrap()["verbs"], json!(["listvisible"]));
        let names: Vec<&str> =
            objects[1]["subjects"].as_array().unwrap().iter().filter_map(|s| s["name"].as_str()).collect();
        assert_eq!(names, ["ann", "bob"], "owners of tenants above are members in this");
        assert!(cluster_rbac(&Chain::default()).is_empty());
    }

    #[test]
    fn a_namespace_is_of_its_label_or_of_the_longest_prefix() {
        let adopting = |name: &str| {
            let mut spec = TenantSpec::default();
            spec.namespaces.adopt_by_prefix = true;
            tenant(name, spec)
        };
        let get = lookup(vec![adopting("web"), adopting("web-shop"), tenant("db", TenantSpec::default())]);
        let of = |name: &str, label: &str| {
            let labels =
                [(TENANT_LABEL.to_owned(), label.to_owned())].into_iter().filter(|(_, v)| !v.is_empty());
            assign(name, &labels.collect(), &get)
        };
        assert_eq!(of("web-shop-test", ""), Assignment::ByPrefix("web-shop".into()));
        assert_eq!(of("web-shop", ""), Assignment::ByPrefix("web".into()));
        assert_eq!(of("db-test", ""), Assignment::None);
        assert_eq!(of("web-test", "db"), Assignment::Labelled("db".into()));
        assert_eq!(of("web-test", "gone"), Assignment::Unknown("gone".into()));
        assert_eq!(of("kube-system", "db"), Assignment::Protected("db".into()));
    }

    #[test]
    fn names_of_personal_namespaces_are_valid_and_differ() {
        let users = ["ann", "Ann", "ann@example.com", "ann_example.com", &"x".repeat(80)];
        let names: BTreeSet<String> = users.iter().map(|user| personal_name("web", user)).collect();
        assert_eq!(names.len(), users.len());
        for name in names {
            assert!(freehold_machinery::names::dns1123_label(&name).is_empty(), "{name}");
        }
    }

    #[test]
    fn a_name_that_another_has_is_not_taken_over() {
        let mut spec = TenantSpec::default();
        for (name, adopt) in [("new", false), ("free", true), ("plain", false), ("theirs", true)] {
            let declared = DeclaredNamespace { name: name.into(), adopt, ..DeclaredNamespace::default() };
            spec.namespaces.declared.push(declared);
        }
        spec.members.push(Member {
            role: "editor".into(),
            subjects: vec![Subject { name: "ann".into(), ..Subject::default() }],
        });
        spec.namespaces.personal = Some(Personal { ttl_seconds: 60 });
        let existing = |name: &str| {
            let labels = match name {
                "theirs" => [(TENANT_LABEL.to_owned(), "db".to_owned())].into(),
                "free" | "plain" => BTreeMap::new(),
                _ => return None,
            };
            Some(Arc::new(Namespace { name: name.into(), uid: "1".into(), labels, ..Namespace::default() }))
        };
        let (steps, taken) = plan(&tenant("web", spec), Timestamp::UNIX_EPOCH, existing);
        assert_eq!(steps[1], Step::Adopt { name: "free".into(), uid: "1".into() });
        let Step::Create(personal) = &steps[2] else { panic!("{steps:?}") };
        assert_eq!(personal["metadata"]["annotations"][EXPIRES_ANNOTATION], "1970-01-01T00:01:00Z");
        let by: Vec<_> = taken.iter().map(|taken| (taken.name.as_str(), taken.by.as_deref())).collect();
        assert_eq!(by, [("plain", None), ("theirs", Some("db"))]);
    }
}
