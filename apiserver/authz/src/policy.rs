//! One plane's roles and bindings, indexed by subject.

use crate::{
    Attributes, Decision, GROUP, Rule, RuleCache, Rules,
    namespaces::{Namespace, Namespaces},
    rule::Probe,
};
use freehold_machinery::{User, Value, meta, user::MASTERS};
use std::{collections::HashMap, fmt, ops::ControlFlow, sync::Arc};

/// How many unresolvable bindings a refusal names.
const MAX_ERRORS: usize = 10;
/// How many bindings an explanation names.
const MAX_LINES: usize = 50;
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// What a plane's roles and bindings allow. Immutable: when one of them changes, another one is compiled, which shares what
/// has not changed.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    cluster: Arc<Scope>,
    cluster_roles: Arc<HashMap<Box<str>, Arc<Rules>>>,
    namespaces: Namespaces,
}

/// Bindings that count everywhere, or in one namespace.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) users: HashMap<Box<str>, Vec<Grant>>,
    pub(crate) groups: HashMap<Box<str>, Vec<Grant>>,
}

/// What one binding gives one subject.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// `None` where the role does not exist.
    pub(crate) rules: Option<Arc<Rules>>,
    binding: Arc<Binding>,
    kind: SubjectKind,
}

#[derive(Debug)]
struct Binding {
    name: String,
    /// Empty for a ClusterRoleBinding.
    namespace: String,
    role: RoleRef,
}

/// The role that a binding names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug)]
enum SubjectKind {
    User,
    Group,
    ServiceAccount,
}

impl RoleRef {
    pub(crate) fn of(binding: &Value) -> Self {
        let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default().to_owned();
        Self { kind: text("kind"), name: text("name") }
    }

    /// The plural resource of the role's kind.
    pub(crate) fn resource(&self) -> &'static str {
        if self.kind == "ClusterRole" { "clusterroles" } else { "roles" }
    }
}

impl Scope {
    fn bind(&mut self, object: &Value, namespace: &str, role: RoleRef, rules: Option<Arc<Rules>>) {
        let binding =
            Arc::new(Binding { name: meta::name(object).to_owned(), namespace: namespace.to_owned(), role });
        for subject in object["subjects"].as_array().into_iter().flatten() {
            let Some((kind, key)) = subject_key(subject, namespace) else { continue };
            let grants = if matches!(kind, SubjectKind::Group) { &mut self.groups } else { &mut self.users };
            let grant = Grant { rules: rules.clone(), binding: binding.clone(), kind };
            grants.entry(key.into_boxed_str()).or_default().push(grant);
        }
    }
}

impl Policy {
    /// Compiles a plane's ClusterRoles, ClusterRoleBindings, Roles and RoleBindings, in any order; objects of other
    /// kinds are passed over.
    pub fn compile<'a>(cache: &RuleCache, objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut cluster_roles = HashMap::new();
        let mut places: HashMap<&str, Vec<&Value>> = HashMap::new();
        for object in objects {
            match object["kind"].as_str().unwrap_or_default() {
                "ClusterRole" => {
                    cluster_roles.insert(Box::from(meta::name(object)), cache.get(&object["rules"]));
                }
                "ClusterRoleBinding" => places.entry("").or_default().push(object),
                "Role" | "RoleBinding" => places.entry(meta::namespace(object)).or_default().push(object),
                _ => {}
            }
        }
        let mut policy = Self { cluster_roles: Arc::new(cluster_roles), ..Self::default() };
        for (namespace, objects) in places {
            policy.replace(cache, namespace, objects);
        }
        policy
    }

    /// The policy once a namespace's Roles and RoleBindings, or, where it is empty, the plane's ClusterRoleBindings, are
    /// `objects`. It costs by how many these are.
    #[must_use]
    pub fn with<'a>(
        &self,
        cache: &RuleCache,
        namespace: &str,
        objects: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let mut policy = self.clone();
        policy.replace(cache, namespace, objects.into_iter().collect());
        policy
    }

    fn replace(&mut self, cache: &RuleCache, namespace: &str, objects: Vec<&Value>) {
        let (roles, bindings): (Vec<&Value>, Vec<&Value>) =
            objects.iter().partition(|object| object["kind"] == "Role");
        let roles: HashMap<Box<str>, Arc<Rules>> =
            roles.into_iter().map(|role| (Box::from(meta::name(role)), cache.get(&role["rules"]))).collect();
        let mut scope = Scope::default();
        for binding in &bindings {
            let role = RoleRef::of(binding);
            let rules = match role.kind.as_str() {
                "ClusterRole" => self.cluster_roles.get(role.name.as_str()),
                "Role" => roles.get(role.name.as_str()),
                _ => None,
            };
            scope.bind(binding, namespace, role, rules.cloned());
        }
        if namespace.is_empty() {
            self.cluster = Arc::new(scope);
        } else {
            let found = Namespace { roles, scope, is_bound: !bindings.is_empty() };
            self.namespaces.set(namespace, (!objects.is_empty()).then_some(found));
        }
    }

    /// Where a user and the user's groups have RoleBindings, with the rules of their roles.
    pub(crate) fn places_of<'p>(
        &'p self,
        user: &'p User,
    ) -> impl Iterator<Item = &'p (Arc<str>, Arc<Rules>)> {
        self.namespaces.places_of(user)
    }

    /// The rules that ClusterRoleBindings give a user.
    pub(crate) fn cluster_rules<'p>(&'p self, user: &'p User) -> impl Iterator<Item = &'p Arc<Rules>> {
        let own = self.cluster.users.get(user.name.as_str());
        let groups = user.groups.iter().filter_map(|group| self.cluster.groups.get(group.as_str()));
        own.into_iter().chain(groups).flatten().filter_map(|grant| grant.rules.as_ref())
    }

    /// The rules of a role as a binding in `namespace` (empty: of the cluster) sees it.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<Rules>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(role.name.as_str()),
            "Role" => self.namespaces.get(namespace)?.roles.get(role.name.as_str()),
            _ => None,
        }
    }

    /// Whether a namespace has RoleBindings.
    pub(crate) fn has_bindings_in(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(|found| found.is_bound)
    }

    /// Whether the user may do that.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.authorize_by(attributes, attributes.namespace)
    }

    /// Whether ClusterRoleBindings, or the RoleBindings of a namespace (empty: none), let the user do that.
    pub(crate) fn authorize_by(&self, attributes: &Attributes<'_>, namespace: &str) -> Decision {
        if attributes.user.is_in(MASTERS) {
            return Decision::allow("");
        }
        let probe = Probe::new(attributes);
        let mut errors: Vec<String> = Vec::new();
        // Paths belong to no namespace.
        let namespace = if attributes.is_resource() { namespace } else { "" };
        let found = self.visit(attributes.user, namespace, |grant, key| match &grant.rules {
            Some(rules) if rules.allow(attributes, probe) => {
                ControlFlow::Break(format!("RBAC: allowed by {}", Described(grant, key)))
            }
            Some(_) => ControlFlow::Continue(()),
            None => {
                note(&mut errors, &grant.binding.role);
                ControlFlow::Continue(())
            }
        });
        match found {
            Some(reason) => Decision::allow(reason),
            None => Decision::refuse(refusal(&errors)),
        }
    }

    /// The rules that apply to a user in a namespace (empty: at the cluster scope), and what went wrong finding them.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let mut rules = Vec::new();
        let mut errors = Vec::new();
        if user.is_in(MASTERS) {
            rules.extend(Rule::everything());
        }
        self.visit(user, namespace, |grant, _| {
            match &grant.rules {
                Some(found) => rules.extend_from_slice(found.as_slice()),
                None => note(&mut errors, &grant.binding.role),
            }
            ControlFlow::<()>::Continue(())
        });
        (rules, errors)
    }

    /// What each binding of who asks lacks to allow this, a line each: ClusterRoleBindings, and the RoleBindings of a
    /// namespace (empty: none).
    pub(crate) fn explain(&self, attributes: &Attributes<'_>, namespace: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let namespace = if attributes.is_resource() { namespace } else { "" };
        self.visit::<()>(attributes.user, namespace, |grant, key| {
            let lack =
                if grant.rules.is_some() { "the role does not allow it" } else { "there is no such role" };
            lines.push(format!("{}: {lack}", Described(grant, key)));
            if lines.len() < MAX_LINES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        lines
    }

    /// Shows `see` each grant that applies to the user there with the key of its subject, until it breaks.
    fn visit<B>(
        &self,
        user: &User,
        namespace: &str,
        mut see: impl FnMut(&Grant, &str) -> ControlFlow<B>,
    ) -> Option<B> {
        let inner = if namespace.is_empty() { None } else { self.namespaces.get(namespace) };
        for scope in std::iter::once(&*self.cluster).chain(inner.map(|inner| &inner.scope)) {
            let own = scope.users.get(user.name.as_str()).map(|grants| (user.name.as_str(), grants));
            let groups = user
                .groups
                .iter()
                .filter_map(|group| Some((group.as_str(), scope.groups.get(group.as_str())?)));
            for (key, grants) in own.into_iter().chain(groups) {
                for grant in grants {
                    if let ControlFlow::Break(answer) = see(grant, key) {
                        return Some(answer);
                    }
                }
            }
        }
        None
    }
}

/// How a subject is found: users and service accounts by user name, groups by theirs.
fn subject_key(subject: &Value, namespace: &str) -> Option<(SubjectKind, String)> {
    let name = subject["name"].as_str().filter(|name| !name.is_empty())?;
    match subject["kind"].as_str()? {
        "User" => Some((SubjectKind::User, name.to_owned())),
        "Group" => Some((SubjectKind::Group, name.to_owned())),
        "ServiceAccount" => {
            let namespace = subject["namespace"].as_str().filter(|ns| !ns.is_empty()).unwrap_or(namespace);
            (!namespace.is_empty())
                .then(|| (SubjectKind::ServiceAccount, format!("{SERVICE_ACCOUNT}{namespace}:{name}")))
        }
        _ => None,
    }
}

fn note(errors: &mut Vec<String>, role: &RoleRef) {
    let error = format!("{}.{GROUP} {:?} not found", role.kind.to_lowercase(), role.name);
    if errors.len() < MAX_ERRORS && !errors.contains(&error) {
        errors.push(error);
    }
}

fn refusal(errors: &[String]) -> String {
    match errors {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    }
}

/// A grant as Kubernetes describes it in audit annotations.
struct Described<'a>(&'a Grant, &'a str);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Grant { binding, kind, .. }, key) = self;
        match binding.namespace.as_str() {
            "" => write!(f, "ClusterRoleBinding {:?}", binding.name)?,
            namespace => write!(f, "RoleBinding {:?}", format!("{}/{namespace}", binding.name))?,
        }
        write!(f, " of {} {:?} to ", binding.role.kind, binding.role.name)?;
        match kind {
            SubjectKind::User => write!(f, "User {key:?}"),
            SubjectKind::Group => write!(f, "Group {key:?}"),
            SubjectKind::ServiceAccount => {
                let account = key.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':'));
                let (namespace, name) = account.unwrap_or_default();
                write!(f, "ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
        }
    }
}
