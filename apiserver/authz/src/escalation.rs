//! Nobody may grant what they don't have
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>).

use crate::{Policy, Rule};
use freehold_machinery::User;

impl Policy {
    /// The parts of `wanted` that a user does not have in a namespace (empty: everywhere). Empty when there are none.
    pub fn uncovered(&self, user: &User, namespace: &str, wanted: &[Rule]) -> Vec<Rule> {
        let owned = self.rules_for(user, namespace);
        wanted
            .iter()
            .flat_map(breakdown)
            .filter(|part| !owned.iter().any(|rule| covers(rule, part)))
            .collect()
    }
}

/// One rule as rules of one verb, group, resource, name or path each.
fn breakdown(rule: &Rule) -> Vec<Rule> {
    let mut parts = Vec::new();
    for verb in &rule.verbs {
        for path in &rule.paths {
            parts.push(Rule { verbs: vec![verb.clone()], paths: vec![path.clone()], ..Rule::default() });
        }
        for group in &rule.groups {
            for resource in &rule.resources {
                let part = Rule {
                    verbs: vec![verb.clone()],
                    groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..Rule::default()
                };
                if rule.names.is_empty() {
                    parts.push(part);
                } else {
                    parts.extend(
                        rule.names.iter().map(|name| Rule { names: vec![name.clone()], ..part.clone() }),
                    );
                }
            }
        }
    }
    parts
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// Whether a rule allows all that a part (of one each) does.
fn covers(rule: &Rule, part: &Rule) -> bool {
    if !has(&rule.verbs, &part.verbs[0]) {
        return false;
    }
    if let Some(path) = part.paths.first() {
        return rule
            .paths
            .iter()
            .any(|own| own == path || own.strip_suffix('*').is_some_and(|p| path.starts_with(p)));
    }
    let resource = &part.resources[0];
    let same = has(&rule.resources, resource)
        || resource
            .split_once('/')
            .is_some_and(|(_, sub)| rule.resources.iter().any(|own| own.strip_prefix("*/") == Some(sub)));
    let named = rule.names.is_empty() || part.names.first().is_some_and(|name| rule.names.contains(name));
    has(&rule.groups, &part.groups[0]) && same && named
}
