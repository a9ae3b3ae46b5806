//! One plane's roles and bindings, indexed by subject.

use crate::{Attributes, Decision, GROUP, Rule, RuleCache, Rules, rule::Probe};
use freehold_machinery::{User, Value, meta, user::MASTERS};
use std::{
    collections::HashMap,
    fmt,
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

/// How many unresolvable bindings a refusal names.
const MAX_ERRORS: usize = 10;
/// How many bindings an explanation names.
const MAX_LINES: usize = 50;
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// What a plane's roles and bindings allow. Immutable: when one of them changes, a new one is compiled.
#[derive(Debug, Default)]
pub struct Policy {
    cluster: Scope,
    namespaces: HashMap<Box<str>, Scope>,
    cluster_roles: HashMap<Box<str>, Arc<Rules>>,
    /// By namespace, then name.
    roles: HashMap<Box<str>, HashMap<Box<str>, Arc<Rules>>>,
    /// Where subjects have RoleBindings; made when it is first asked for.
    places: OnceLock<Places>,
}

/// The namespaces in which a subject has RoleBindings, with the rules of their roles.
pub(crate) type PlacesOf = Vec<(Arc<str>, Arc<Rules>)>;

/// Where subjects have RoleBindings, by user name and by group.
#[derive(Debug, Default)]
pub(crate) struct Places {
    users: HashMap<Box<str>, PlacesOf>,
    groups: HashMap<Box<str>, PlacesOf>,
}

impl Places {
    /// The places of a user and of the user's groups.
    pub(crate) fn of<'p>(&'p self, user: &'p User) -> impl Iterator<Item = &'p PlacesOf> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.name.as_str()).into_iter().chain(groups)
    }
}

/// Bindings that count everywhere, or in one namespace.
#[derive(Debug, Default)]
struct Scope {
    users: HashMap<Box<str>, Vec<Grant>>,
    groups: HashMap<Box<str>, Vec<Grant>>,
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

impl Policy {
    /// Compiles a plane's ClusterRoles, ClusterRoleBindings, Roles and RoleBindings, in any order; objects of other
    /// kinds are passed over.
    pub fn compile<'a>(cache: &RuleCache, objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut policy = Self::default();
        let mut bindings = Vec::new();
        for object in objects {
            let name = || Box::from(meta::name(object));
            match object["kind"].as_str().unwrap_or_default() {
                "ClusterRole" => {
                    policy.cluster_roles.insert(name(), cache.get(&object["rules"]));
                }
                "Role" => {
                    let roles = policy.roles.entry(Box::from(meta::namespace(object))).or_default();
                    roles.insert(name(), cache.get(&object["rules"]));
                }
                "ClusterRoleBinding" => bindings.push((object, "")),
                "RoleBinding" => bindings.push((object, meta::namespace(object))),
                _ => {}
            }
        }
        bindings.into_iter().for_each(|(object, namespace)| policy.bind(object, namespace));
        policy
    }

    /// Where subjects have RoleBindings.
    pub(crate) fn places(&self) -> &Places {
        self.places.get_or_init(|| {
            let mut places = Places::default();
            for (namespace, scope) in &self.namespaces {
                let namespace: Arc<str> = namespace.as_ref().into();
                for (table, subjects) in
                    [(&mut places.users, &scope.users), (&mut places.groups, &scope.groups)]
                {
                    for (subject, grants) in subjects {
                        let rules = grants.iter().filter_map(|grant| grant.rules.clone());
                        let found = table.entry(subject.clone()).or_default();
                        found.extend(rules.map(|rules| (namespace.clone(), rules)));
                    }
                }
            }
            places
        })
    }

    /// The rules that ClusterRoleBindings give a user.
    pub(crate) fn cluster_rules<'p>(&'p self, user: &'p User) -> impl Iterator<Item = &'p Arc<Rules>> {
        let own = self.cluster.users.get(user.name.as_str());
        let groups = user.groups.iter().filter_map(|group| self.cluster.groups.get(group.as_str()));
        own.into_iter().chain(groups).flatten().filter_map(|grant| grant.rules.as_ref())
    }

    fn bind(&mut self, object: &Value, namespace: &str) {
        let role = RoleRef::of(object);
        let rules = self.rules_of(&role, namespace).cloned();
        let binding =
            Arc::new(Binding { name: meta::name(object).to_owned(), namespace: namespace.to_owned(), role });
        let scope = match namespace {
            "" => &mut self.cluster,
            namespace => self.namespaces.entry(Box::from(namespace)).or_default(),
        };
        for subject in object["subjects"].as_array().into_iter().flatten() {
            let Some((kind, key)) = subject_key(subject, namespace) else { continue };
            let grants =
                if matches!(kind, SubjectKind::Group) { &mut scope.groups } else { &mut scope.users };
            let grant = Grant { rules: rules.clone(), binding: binding.clone(), kind };
            grants.entry(key.into_boxed_str()).or_default().push(grant);
        }
    }

    /// The rules of a role as a binding in `namespace` (empty: of the cluster) sees it.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<Rules>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(role.name.as_str()),
            "Role" => self.roles.get(namespace)?.get(role.name.as_str()),
            _ => None,
        }
    }

    /// Whether a namespace has RoleBindings.
    pub(crate) fn has_bindings_in(&self, namespace: &str) -> bool {
        self.namespaces.contains_key(namespace)
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
        for scope in std::iter::once(&self.cluster).chain(inner) {
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
