//! The bindings of one namespace, found by their subjects.

use super::{Held, SYSTEM, Scope, facts::Namespace, is_account_of, permission, service_account};
use crate::{Attributes, RuleCache, Rules, rule::Probe};
use freehold_machinery::Value;
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

/// How deep roles may inherit.
const DEEPEST: usize = 16;
/// How many roles one binding may reach by inheritance.
const MOST_ROLES: usize = 256;

/// Stands for the role of a member without one: bindings count for them, and nothing else.
const NO_ROLE: &str = "";

type Grants = HashMap<Arc<str>, Vec<Grant>>;

/// What a namespace gives, by subject.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub(super) users: Grants,
    /// By `namespace/name`.
    pub(super) groups: Grants,
    /// By the names of groups that authentication gives.
    pub(super) claims: Grants,
}

/// What one binding gives one subject.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(super) source: Arc<Source>,
    to: To,
}

/// Whom something is given to.
#[derive(Clone, Debug)]
enum To {
    /// A subject of a binding, in words.
    Subject(Arc<str>),
    /// A member of an organization.
    Member {
        /// The name of the membership.
        membership: Arc<str>,
        user: Arc<str>,
    },
}

/// A binding, or all memberships of a namespace with a role.
#[derive(Debug)]
pub(super) struct Source {
    /// `namespace/name` of a binding; the namespace of memberships.
    name: String,
    /// `Role "namespace/name"`.
    role: String,
    target: Target,
    resource: Option<Selector>,
    /// What the role and those that it inherits allow; `None` where there is no such role.
    pub(super) rules: Option<Vec<Arc<Rules>>>,
}

#[derive(Debug)]
enum Target {
    Platform,
    Organization(Box<str>),
    Project(Box<str>),
}

/// A kind of resource, or one of that kind.
#[derive(Debug)]
struct Selector {
    group: String,
    resource: String,
    namespace: String,
    name: String,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Compiled {
    pub(super) fn new(
        namespace: &str,
        own: &Namespace,
        system: Option<&Namespace>,
        cache: &RuleCache,
    ) -> Self {
        let roles = Roles { namespace, own, system, cache, found: RefCell::default() };
        let mut compiled = Self::default();
        let mut bindings: Vec<_> = own.bindings.iter().collect();
        bindings.sort_unstable_by_key(|(name, _)| *name);
        for (name, spec) in bindings {
            if let Some(source) = Source::of_binding(&roles, name, spec) {
                compiled.bind(&Arc::new(source), namespace, &spec["subjects"]);
            }
        }
        let organization = namespace.strip_prefix("organization-").unwrap_or_default();
        let mut memberships: Vec<_> = own.memberships.iter().collect();
        memberships.sort_unstable_by_key(|(name, _)| *name);
        let mut known: HashMap<&str, Arc<Source>> = HashMap::new();
        for (membership, member) in memberships {
            if organization.is_empty() || !member.at_home {
                continue;
            }
            let mut names: Vec<&str> = member.roles.iter().map(|role| &**role).collect();
            if names.is_empty() {
                names.push(NO_ROLE);
            }
            for role in names {
                let source = || Source {
                    name: namespace.to_owned(),
                    role: match role {
                        NO_ROLE => "no role".to_owned(),
                        _ => format!("Role {:?}", format!("{SYSTEM}/{role}")),
                    },
                    target: Target::Organization(organization.into()),
                    resource: None,
                    rules: Some(roles.find(SYSTEM, role).unwrap_or_default()),
                };
                let source = known.entry(role).or_insert_with(|| Arc::new(source())).clone();
                let (membership, user) = (membership.clone(), member.user.clone());
                // Most have one role.
                let grants = compiled.users.entry(user.clone()).or_insert_with(|| Vec::with_capacity(1));
                grants.push(Grant { source, to: To::Member { membership, user } });
            }
        }
        compiled
    }

    /// Whether what the namespace of an organization says counts for a user.
    pub(super) fn counts_for(&self, namespace: &str, user: &str) -> bool {
        let named = self.users.get(user).into_iter().flatten();
        named.into_iter().any(|grant| matches!(grant.to, To::Member { .. })) || is_account_of(namespace, user)
    }

    fn bind(&mut self, source: &Arc<Source>, namespace: &str, subjects: &Value) {
        for subject in subjects.as_array().into_iter().flatten() {
            let (kind, name, given) =
                (text(subject, "kind"), text(subject, "name"), text(subject, "namespace"));
            let home = if given.is_empty() { namespace } else { given };
            let (grants, key) = match kind {
                "User" => (&mut self.users, name.to_owned()),
                "ServiceAccount" => (&mut self.users, service_account(home, name)),
                "Group" if namespace == SYSTEM && given.is_empty() => (&mut self.claims, name.to_owned()),
                "Group" => (&mut self.groups, format!("{home}/{name}")),
                _ => continue,
            };
            let words = match kind {
                "User" => format!("User {name:?}"),
                _ => format!("{kind} {key:?}"),
            };
            let to = To::Subject(words.into());
            grants.entry(key.into()).or_default().push(Grant { source: source.clone(), to });
        }
    }
}

/// What a role and those that it inherits allow, where a namespace uses it.
pub(super) fn role(
    namespace: &str,
    own: &Namespace,
    system: Option<&Namespace>,
    cache: &RuleCache,
    (home, name): (&str, &str),
) -> Option<Vec<Arc<Rules>>> {
    Roles { namespace, own, system, cache, found: RefCell::default() }.find(home, name)
}

/// The rules of a role's own permissions, and what they do not reach to.
fn permissions(spec: &Value) -> (Value, Value) {
    let allow = permission::with_paths(permission::rules(&spec["includedPermissions"]));
    (allow, permission::rules(&spec["excludedPermissions"]))
}

/// What a role allows itself.
pub(super) fn rules_of(spec: &Value) -> Rules {
    let (allow, except) = permissions(spec);
    Rules::but(&allow, &except)
}

/// By namespace and name.
type Found = HashMap<(String, String), Option<Vec<Arc<Rules>>>>;

/// The roles that a namespace may use.
struct Roles<'a> {
    namespace: &'a str,
    own: &'a Namespace,
    system: Option<&'a Namespace>,
    cache: &'a RuleCache,
    /// What was found of a role, which many bindings name.
    found: RefCell<Found>,
}

impl Roles<'_> {
    /// What a role and those that it inherits allow; `None` where there is no such role.
    fn find(&self, namespace: &str, name: &str) -> Option<Vec<Arc<Rules>>> {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(known) = self.found.borrow().get(&key) {
            return known.clone();
        }
        let mut rules = Vec::new();
        let there = self.collect(namespace, name, 0, &mut HashSet::new(), &mut rules);
        let found = there.map(|()| rules);
        self.found.borrow_mut().insert(key, found.clone());
        found
    }

    fn collect(
        &self,
        namespace: &str,
        name: &str,
        depth: usize,
        seen: &mut HashSet<String>,
        found: &mut Vec<Arc<Rules>>,
    ) -> Option<()> {
        let home = match namespace {
            _ if namespace == self.namespace => self.own,
            SYSTEM => self.system?,
            _ => return None,
        };
        let spec = home.roles.get(name)?;
        if depth > DEEPEST || seen.len() >= MOST_ROLES || !seen.insert(format!("{namespace}/{name}")) {
            return Some(());
        }
        let (allow, except) = permissions(spec);
        found.push(self.cache.get_but(&allow, &except));
        for inherited in spec["inheritedRoles"].as_array().into_iter().flatten() {
            let given = text(inherited, "namespace");
            let at = if given.is_empty() { namespace } else { given };
            // A role that is not there gives nothing, and keeps nothing away.
            let _ = self.collect(at, text(inherited, "name"), depth + 1, seen, found);
        }
        Some(())
    }
}

impl Source {
    /// `None` for a binding that reaches for what is not its namespace's.
    fn of_binding(roles: &Roles<'_>, name: &str, spec: &Value) -> Option<Self> {
        let namespace = roles.namespace;
        let (target, at) = (&spec["target"], text(&spec["target"], "name"));
        let target_kind = match text(target, "kind") {
            "Platform" if namespace == SYSTEM => Target::Platform,
            "Organization" if namespace == SYSTEM || namespace.strip_prefix("organization-") == Some(at) => {
                Target::Organization(at.into())
            }
            "Project" if namespace == SYSTEM || namespace.starts_with("organization-") => {
                Target::Project(at.into())
            }
            _ => return None,
        };
        let resource =
            target.get("resource").filter(|resource| !resource.is_null()).map(|resource| Selector {
                group: text(resource, "apiGroup").to_owned(),
                resource: text(resource, "resource").to_owned(),
                namespace: text(resource, "namespace").to_owned(),
                name: text(resource, "name").to_owned(),
            });
        let (role, given) = (text(&spec["roleRef"], "name"), text(&spec["roleRef"], "namespace"));
        let home = if given.is_empty() { namespace } else { given };
        Some(Self {
            name: format!("{namespace}/{name}"),
            role: format!("Role {:?}", format!("{home}/{role}")),
            target: target_kind,
            resource,
            rules: roles.find(home, role),
        })
    }
}

impl Selector {
    fn matches(&self, asked: &Attributes<'_>) -> bool {
        let free = |own: &str, asked: &str| own.is_empty() || own == asked;
        self.group == asked.group
            && self.resource == asked.resource
            && free(&self.namespace, asked.namespace)
            && free(&self.name, asked.name)
    }
}

impl Grant {
    /// Whether the binding is about that place.
    pub(super) fn reaches(&self, scope: &Scope) -> bool {
        match (&self.source.target, scope) {
            (Target::Platform, _) => true,
            (Target::Organization(own), scope) => scope.organization() == Some(own),
            (Target::Project(own), Scope::Project { project, .. }) => **own == **project,
            (Target::Project(_), _) => false,
        }
    }

    /// Whether the binding gives anything of what a project's plane has, there.
    pub(super) fn reaches_into(&self, scope: &Scope) -> bool {
        let is_inside =
            |group: &str| ![super::GROUP, super::RESOURCES_GROUP, super::QUOTA_GROUP].contains(&group);
        let rules = self.source.rules.iter().flatten().flat_map(|rules| rules.as_slice());
        self.reaches(scope)
            && self.source.resource.as_ref().is_none_or(|resource| is_inside(&resource.group))
            && rules.flat_map(|rule| &rule.groups).any(|group| is_inside(group))
    }

    /// Whether the binding is about what is asked, apart from its role.
    pub(super) fn is_about(&self, asked: &Attributes<'_>) -> bool {
        self.source.resource.as_ref().is_none_or(|resource| resource.matches(asked))
    }

    pub(super) fn allows(&self, scope: &Scope, asked: &Attributes<'_>, probe: Probe) -> bool {
        let rules = self.source.rules.as_deref().unwrap_or_default();
        self.reaches(scope) && self.is_about(asked) && rules.iter().any(|rules| rules.allow(asked, probe))
    }

    /// What it gives, and where: all that an organization's namespace can reach where it reaches further.
    pub(super) fn gives(&self, namespace: &str) -> (Scope, Vec<Arc<Rules>>) {
        let own = || Arc::from(namespace.strip_prefix("organization-").unwrap_or_default());
        let scope = match &self.source.target {
            Target::Platform => Scope::Platform,
            Target::Organization(name) => Scope::Organization((**name).into()),
            Target::Project(name) => Scope::Project { organization: own(), project: (**name).into() },
        };
        (scope, self.source.rules.clone().unwrap_or_default())
    }

    /// Adds what the subject holds in a namespace (empty: everywhere) of a place.
    pub(super) fn hold(&self, scope: &Scope, namespace: &str, held: &mut Vec<Held>) {
        if !self.reaches(scope) {
            return;
        }
        for rules in self.source.rules.iter().flatten() {
            let except: Arc<[crate::Rule]> = rules.exceptions().into();
            for rule in rules.as_slice() {
                let rule = match &self.source.resource {
                    None => Some(rule.clone()),
                    Some(selector) => selector.narrow(rule, namespace),
                };
                held.extend(rule.map(|rule| Held { rule, except: except.clone() }));
            }
        }
    }
}

impl Selector {
    /// What is left of a rule.
    fn narrow(&self, rule: &crate::Rule, namespace: &str) -> Option<crate::Rule> {
        let has = |list: &[String], one: &str| list.iter().any(|item| item == "*" || item == one);
        let here = self.namespace.is_empty() || self.namespace == namespace;
        (here && has(&rule.groups, &self.group) && has(&rule.resources, &self.resource)).then(|| {
            crate::Rule {
                verbs: rule.verbs.clone(),
                groups: vec![self.group.clone()],
                resources: vec![self.resource.clone()],
                names: Some(self.name.clone()).filter(|name| !name.is_empty()).into_iter().collect(),
                urls: Vec::new(),
            }
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => f.write_str("the platform"),
            Self::Organization(name) => write!(f, "Organization {name:?}"),
            Self::Project(name) => write!(f, "Project {name:?}"),
        }
    }
}

impl Source {
    /// What it is about, in words.
    pub(super) fn target(&self) -> String {
        match &self.resource {
            None => self.target.to_string(),
            Some(Selector { group, resource, namespace, name }) => {
                let dot = if group.is_empty() { "" } else { "." };
                let name = if name.is_empty() { String::new() } else { format!(" {name:?}") };
                let place =
                    if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace:?}") };
                format!("{resource}{dot}{group}{name}{place} of {}", self.target)
            }
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Source { name, role, .. } = &*self.source;
        match &self.to {
            To::Subject(words) => write!(f, "PolicyBinding {name:?} of {role} to {words}")?,
            To::Member { membership, user } => {
                let name = format!("{name}/{membership}");
                write!(f, "OrganizationMembership {name:?} of {role} to User {user:?}")?;
            }
        }
        write!(f, " at {}", self.source.target())
    }
}
