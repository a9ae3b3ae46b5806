//! Escalation prevention: nobody grants rights that they do not hold
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>).
//!
//! A write of a role needs each of its permissions, or the verb `escalate`; a write of a binding needs those of the
//! role that it refers to, or the verb `bind` on that role.

use crate::{Access, Attributes, GROUP, Policy, Rule, iam::Held, policy::RoleRef, rule::covers_path};
use freehold_machinery::{GroupResource, Status, User, Value, meta, user::MASTERS};
use std::collections::{BTreeMap, BTreeSet};

/// Into how many single permissions a role may fall apart, where no rule of the user covers it as a whole.
const MAX_PARTS: usize = 100_000;

/// What the checks ask of those who know what a user may do.
pub(crate) trait Holder {
    /// The plane's own roles and bindings.
    fn policy(&self) -> &Policy;
    /// Whether that is allowed.
    fn allows(&self, attributes: &Attributes<'_>) -> bool;
    /// What a user holds in a namespace of the plane (empty: everywhere), and what went wrong finding it.
    fn held(&self, user: &User, namespace: &str) -> (Vec<Held>, Vec<String>);
}

impl Holder for Policy {
    fn policy(&self) -> &Policy {
        self
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.authorize(attributes).allowed
    }

    fn held(&self, user: &User, namespace: &str) -> (Vec<Held>, Vec<String>) {
        let (rules, errors) = self.rules_for(user, namespace);
        (rules.into_iter().map(|rule| Held { rule, except: [].into() }).collect(), errors)
    }
}

impl Policy {
    /// Checks that `user` may write that Role or ClusterRole; `old` is the existing object, for updates.
    ///
    /// # Errors
    /// 403, which names the missing rules.
    pub fn check_role(&self, user: &User, role: &Value, old: Option<&Value>) -> Result<(), Status> {
        check_role(self, user, role, old)
    }

    /// Checks that `user` may write that RoleBinding or ClusterRoleBinding; `old` is the existing object, for
    /// updates.
    ///
    /// # Errors
    /// 404 if the role does not exist and the user may not bind it unseen, else 403.
    pub fn check_binding(&self, user: &User, binding: &Value, old: Option<&Value>) -> Result<(), Status> {
        check_binding(self, user, binding, old)
    }
}

impl Access {
    /// Checks like [`Policy::check_role`], with what the platform grants added.
    ///
    /// # Errors
    /// 403, which names the missing rules.
    pub fn check_role(&self, user: &User, role: &Value, old: Option<&Value>) -> Result<(), Status> {
        check_role(self, user, role, old)
    }

    /// Checks like [`Policy::check_binding`], with what the platform grants added.
    ///
    /// # Errors
    /// 404 if the role does not exist and the user may not bind it unseen, else 403.
    pub fn check_binding(&self, user: &User, binding: &Value, old: Option<&Value>) -> Result<(), Status> {
        check_binding(self, user, binding, old)
    }
}

fn check_role(holder: &impl Holder, user: &User, role: &Value, old: Option<&Value>) -> Result<(), Status> {
    let resource = if role["kind"] == "ClusterRole" { "clusterroles" } else { "roles" };
    let namespace = meta::namespace(role);
    if user.is_in(MASTERS) || old.is_some_and(|old| only_collector_fields(role, old)) {
        return Ok(());
    }
    // As in Kubernetes: a creation has no name yet, so `escalate` on single names covers updates only.
    let name = old.map(meta::name).unwrap_or_default();
    let escalate = Attributes { namespace, name, ..Attributes::resource(user, "escalate", GROUP, resource) };
    if holder.allows(&escalate) {
        return Ok(());
    }
    let refuse = |why: &str| Status::forbidden(&GroupResource::new(GROUP, resource), meta::name(role), why);
    let rules: Vec<Rule> = role["rules"].as_array().into_iter().flatten().map(Rule::from_value).collect();
    let held = holder.held(user, namespace);
    covered(user, &held, &rules).map_err(|why| refuse(&why))?;
    let aggregates = |role: &Value| role.get("aggregationRule").filter(|rule| !rule.is_null()).cloned();
    if aggregates(role).is_some_and(|rule| old.and_then(aggregates) != Some(rule)) {
        covered(user, &held, &Rule::everything())
            .map_err(|_| refuse("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

fn check_binding(
    holder: &impl Holder,
    user: &User,
    binding: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let resource =
        if binding["kind"] == "ClusterRoleBinding" { "clusterrolebindings" } else { "rolebindings" };
    let namespace = meta::namespace(binding);
    if user.is_in(MASTERS) || old.is_some_and(|old| only_collector_fields(binding, old)) {
        return Ok(());
    }
    let role = RoleRef::of(binding);
    let bind = Attributes::resource(user, "bind", GROUP, role.resource());
    if holder.allows(&Attributes { namespace, name: &role.name, ..bind }) {
        return Ok(());
    }
    let missing = || Status::not_found(&GroupResource::new(GROUP, role.resource()), &role.name);
    let rules = holder.policy().rules_of(&role, namespace).ok_or_else(missing)?;
    covered(user, &holder.held(user, namespace), rules.as_slice())
        .map_err(|why| Status::forbidden(&GroupResource::new(GROUP, resource), meta::name(binding), &why))
}

/// Whether the user holds all of `rules`; if not, what is missing, in Kubernetes' words.
fn covered(user: &User, (held, errors): &(Vec<Held>, Vec<String>), rules: &[Rule]) -> Result<(), String> {
    let mut missing = BTreeSet::new();
    let mut budget = MAX_PARTS;
    let is_held = |rule: &Rule| held.iter().any(|own| holds(own, rule, &[]));
    for rule in rules.iter().filter(|rule| !is_held(rule)) {
        budget = budget
            .checked_sub(parts_of(rule))
            .ok_or("the role is too large to be compared with the permissions that the user holds")?;
        missing.extend(break_down(rule).into_iter().filter(|part| !is_held(part)));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let described: BTreeSet<String> = compact(missing).iter().map(describe).collect();
    let described: Vec<String> = described.into_iter().collect();
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        described.join("\n")
    );
    if !errors.is_empty() {
        why.push_str(&format!("; resolution errors: [{}]", errors.join(", ")));
    }
    Err(why)
}

/// Whether what is held reaches all of a rule, apart from what the rule itself leaves out.
pub(crate) fn holds(own: &Held, other: &Rule, but: &[Rule]) -> bool {
    let left_out =
        |kept: &Rule| !meets(kept, other) || but.iter().any(|out| covers(out, &within(kept, other)));
    covers(&own.rule, other) && own.except.iter().all(left_out)
}

/// A rule with those of its verbs that the other has, too: what somebody lacks with other verbs is not asked for.
fn within(rule: &Rule, other: &Rule) -> Rule {
    let has_all = |rule: &Rule| rule.verbs.iter().any(|verb| verb == "*");
    let verbs = match (has_all(rule), has_all(other)) {
        (_, true) => rule.verbs.clone(),
        (true, false) => other.verbs.clone(),
        (false, false) => rule.verbs.iter().filter(|verb| other.verbs.contains(verb)).cloned().collect(),
    };
    Rule { verbs, ..rule.clone() }
}

/// Whether there is anything that both rules are about.
fn meets(one: &Rule, other: &Rule) -> bool {
    let any = |one: &[String], other: &[String]| {
        one.iter().any(|a| a == "*" || other.iter().any(|b| b == "*" || a == b))
    };
    let sub = |resource: &str| resource.split_once('/').map(|(_, sub)| sub.to_owned());
    let resources = one.resources.iter().any(|a| {
        other.resources.iter().any(|b| {
            a == "*" || b == "*" || a == b || (a.starts_with("*/") || b.starts_with("*/")) && sub(a) == sub(b)
        })
    });
    any(&one.verbs, &other.verbs) && any(&one.groups, &other.groups) && resources
}

/// Whether an update changes nothing but what the garbage collector writes.
fn only_collector_fields(new: &Value, old: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            meta::remove(&mut object, field);
        }
        object
    };
    stripped(new) == stripped(old)
}

fn covers(own: &Rule, other: &Rule) -> bool {
    let all = |own: &[String], other: &[String]| {
        own.iter().any(|o| o == "*") || other.iter().all(|o| own.contains(o))
    };
    let resource = |wanted: &String| {
        let any_parent =
            || wanted.split_once('/').is_some_and(|(_, sub)| own.resources.contains(&format!("*/{sub}")));
        own.resources.contains(wanted) || any_parent()
    };
    let resources = own.resources.iter().any(|r| r == "*") || other.resources.iter().all(resource);
    let names =
        own.names.is_empty() || !other.names.is_empty() && other.names.iter().all(|n| own.names.contains(n));
    let urls = other.urls.iter().all(|url| own.urls.iter().any(|own| covers_path(own, url)));
    all(&own.verbs, &other.verbs) && all(&own.groups, &other.groups) && resources && names && urls
}

fn parts_of(rule: &Rule) -> usize {
    let product = |lengths: &[usize]| lengths.iter().fold(1_usize, |product, n| product.saturating_mul(*n));
    let resources =
        product(&[rule.verbs.len(), rule.groups.len(), rule.resources.len(), rule.names.len().max(1)]);
    resources.saturating_add(product(&[rule.verbs.len(), rule.urls.len()]))
}

/// A rule as rules of one verb, group, resource and name each.
fn break_down(rule: &Rule) -> Vec<Rule> {
    let one = |item: &String| vec![item.clone()];
    let names: Vec<Vec<String>> = match rule.names.as_slice() {
        [] => vec![Vec::new()],
        names => names.iter().map(one).collect(),
    };
    let mut parts = Vec::new();
    for verb in &rule.verbs {
        for group in &rule.groups {
            for resource in &rule.resources {
                parts.extend(names.iter().map(|names| Rule {
                    verbs: one(verb),
                    groups: one(group),
                    resources: one(resource),
                    names: names.clone(),
                    urls: Vec::new(),
                }));
            }
        }
        parts.extend(rule.urls.iter().map(|url| Rule {
            verbs: one(verb),
            urls: one(url),
            ..Rule::default()
        }));
    }
    parts
}

/// Joins the verbs of parts that are otherwise the same resource. Paths stay apart, as in Kubernetes.
fn compact(parts: BTreeSet<Rule>) -> Vec<Rule> {
    let mut joined: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut paths = Vec::new();
    for mut part in parts {
        if part.urls.is_empty() {
            let verbs = std::mem::take(&mut part.verbs);
            joined.entry(part).or_default().extend(verbs);
        } else {
            paths.push(part);
        }
    }
    joined.into_iter().map(|(rule, verbs)| Rule { verbs, ..rule }).chain(paths).collect()
}

/// `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`
fn describe(rule: &Rule) -> String {
    let fields = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let present = fields.into_iter().filter(|(_, list)| !list.is_empty());
    let parts: Vec<String> = present.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
    format!("{{{}}}", parts.join(", "))
}

/// `["a" "b"]`
fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}
