//! A plane's roles and bindings, ready to answer.

use crate::{
    Attributes, Decision, Rule,
    rule::{self, Rules},
};
use freehold_machinery::{User, Value, meta, user::MASTERS};
use std::{collections::HashMap, sync::Arc};

/// Who may do what in a plane.
///
/// Bindings are found by subject, so that the cost of an answer is that of the bindings of one user and their groups.
#[derive(Default)]
pub struct Policy {
    users: HashMap<Box<str>, Vec<Bound>>,
    groups: HashMap<Box<str>, Vec<Bound>>,
    cluster_roles: HashMap<Box<str>, Rules>,
    /// By `namespace/name`.
    roles: HashMap<Box<str>, Rules>,
}

/// A binding of one subject.
#[derive(Clone)]
struct Bound {
    /// Where it holds; `None` everywhere.
    namespace: Option<Arc<str>>,
    rules: Rules,
    binding: Arc<str>,
    role: Arc<str>,
    /// Whether the role is a ClusterRole.
    cluster_role: bool,
}

/// The kind of a subject and its name.
enum Subject {
    User(String),
    Group(String),
}

fn subject(value: &Value, namespace: &str) -> Option<Subject> {
    let name = value["name"].as_str()?;
    match value["kind"].as_str()? {
        "User" => Some(Subject::User(name.to_owned())),
        "Group" => Some(Subject::Group(name.to_owned())),
        "ServiceAccount" => {
            let namespace = value["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(namespace);
            Some(Subject::User(format!("system:serviceaccount:{namespace}:{name}")))
        }
        _ => None,
    }
}

impl Policy {
    /// Compiles the objects of a plane. Bindings to roles that are not there allow nothing.
    pub fn compile<'a>(
        cluster_roles: impl IntoIterator<Item = &'a Value>,
        cluster_role_bindings: impl IntoIterator<Item = &'a Value>,
        roles: impl IntoIterator<Item = &'a Value>,
        role_bindings: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let mut policy = Self::default();
        for role in cluster_roles {
            policy.cluster_roles.insert(meta::name(role).into(), rule::compile(role));
        }
        for role in roles {
            let key = format!("{}/{}", meta::namespace(role), meta::name(role));
            policy.roles.insert(key.into(), rule::compile(role));
        }
        for binding in cluster_role_bindings {
            policy.bind(binding, None);
        }
        for binding in role_bindings {
            policy.bind(binding, Some(meta::namespace(binding).into()));
        }
        policy
    }

    fn bind(&mut self, binding: &Value, namespace: Option<Arc<str>>) {
        let (kind, role) =
            (&binding["roleRef"]["kind"], binding["roleRef"]["name"].as_str().unwrap_or_default());
        let cluster_role = kind == "ClusterRole";
        let rules = match (cluster_role, &namespace) {
            (true, _) => self.cluster_roles.get(role),
            (false, Some(namespace)) => self.roles.get(format!("{namespace}/{role}").as_str()),
            (false, None) => None,
        };
        let Some(rules) = rules.cloned() else { return };
        let here = namespace.as_deref().unwrap_or_default().to_owned();
        let bound =
            Bound { namespace, rules, binding: meta::name(binding).into(), role: role.into(), cluster_role };
        for value in binding["subjects"].as_array().into_iter().flatten() {
            let (table, name) = match subject(value, &here) {
                Some(Subject::User(name)) => (&mut self.users, name),
                Some(Subject::Group(name)) => (&mut self.groups, name),
                None => continue,
            };
            table.entry(name.into()).or_default().push(bound.clone());
        }
    }

    /// Bindings of a user and their groups, each with the words for its subject. Those of everywhere come first.
    fn bound<'a>(&'a self, user: &'a User) -> impl Iterator<Item = (&'a Bound, &'static str, &'a str)> {
        let mine = self.users.get(user.name.as_str()).into_iter().flatten();
        let theirs = user.groups.iter().flat_map(|group| {
            self.groups
                .get(group.as_str())
                .into_iter()
                .flatten()
                .map(move |bound| (bound, "Group", group.as_str()))
        });
        mine.map(|bound| (bound, "User", user.name.as_str())).chain(theirs)
    }

    /// Whether something is allowed. Members of `system:masters` may do everything.
    pub fn authorize(&self, asked: &Attributes<'_>) -> Decision {
        if asked.user.is_in(MASTERS) {
            return Decision::allow("");
        }
        for (bound, kind, name) in self.bound(asked.user) {
            let here = match &bound.namespace {
                None => true,
                Some(namespace) => !asked.namespace.is_empty() && **namespace == *asked.namespace,
            };
            if here && bound.rules.iter().any(|rule| rule.allows(asked)) {
                return Decision::allow(bound.explain(kind, name));
            }
        }
        Decision::no_opinion()
    }

    /// The rules that a user has in a namespace, those of everywhere included.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        if user.is_in(MASTERS) {
            let all = || vec!["*".to_owned()];
            return vec![
                Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
                Rule { verbs: all(), paths: all(), ..Rule::default() },
            ];
        }
        let here = |bound: &Bound| bound.namespace.as_deref().is_none_or(|n| n == namespace);
        let mut rules: Vec<Rule> = Vec::new();
        for (bound, _, _) in self.bound(user).filter(|(bound, _, _)| here(bound)) {
            rules.extend(bound.rules.iter().cloned());
        }
        rules.dedup();
        rules
    }

    /// The rules of the role that a binding in `namespace` (empty: a ClusterRoleBinding) refers to.
    pub fn rules_of(&self, role_ref: &Value, namespace: &str) -> Option<Vec<Rule>> {
        let name = role_ref["name"].as_str()?;
        let rules = match role_ref["kind"].as_str()? {
            "ClusterRole" => self.cluster_roles.get(name),
            _ => self.roles.get(format!("{namespace}/{name}").as_str()),
        };
        rules.map(|rules| rules.to_vec())
    }
}

impl Bound {
    fn explain(&self, kind: &str, name: &str) -> String {
        let role_kind = if self.cluster_role { "ClusterRole" } else { "Role" };
        let binding = match &self.namespace {
            None => format!("ClusterRoleBinding {:?}", self.binding),
            Some(namespace) => format!("RoleBinding {:?}", format!("{}/{namespace}", self.binding)),
        };
        format!("RBAC: allowed by {binding} of {role_kind} {:?} to {kind} {name:?}", self.role)
    }
}
