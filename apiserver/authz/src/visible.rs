//! What somebody sees of a resource without the right to list all of it.
//!
//! RBAC lets a caller read objects one by one, or in one namespace, and refuses a list over all of them. Who has the verb
//! [`LIST_VISIBLE`] on the resource gets that list nevertheless, of what the caller may read anyway: of a namespaced kind
//! the namespaces in which the caller may list it, of Namespaces those that the caller may read, and of other kinds the
//! objects that rules name. Nobody gets to see what could not be read without it.

use crate::{Access, Attributes, Policy, Rules, rule::Probe};
use freehold_machinery::User;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// The verb that turns a refused list or watch over everything into one of what the caller may read. RBAC of a plane
/// grants it, on resources and not on single objects; kube-apiserver knows it not and refuses as ever.
pub const LIST_VISIBLE: &str = "listvisible";

/// Names of namespaces or of objects.
pub type Names = BTreeSet<Arc<str>>;

/// What names stand for in a set of visible names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Namespaces, all objects of a kind in which are visible.
    Namespaces,
    /// Objects at the cluster scope.
    Objects,
}

/// Whether a question is about Namespaces, which are objects at the cluster scope and themselves places of RoleBindings.
fn is_namespaces(asked: &Attributes<'_>) -> bool {
    asked.group.is_empty() && asked.resource == "namespaces"
}

impl Policy {
    /// The names for which a user may do what is asked: in a namespace for [`Reach::Namespaces`], with an object of the
    /// name for [`Reach::Objects`]. The cost is that of the caller's own bindings, however many there are of others.
    pub fn visible(&self, asked: &Attributes<'_>, reach: Reach) -> Names {
        let asked = Attributes { namespace: "", name: "", ..*asked };
        let mut names = Names::new();
        if reach == Reach::Namespaces || is_namespaces(&asked) {
            self.add_namespaces(&asked, &mut names);
        }
        if reach == Reach::Objects {
            self.add_named(&asked, &mut names);
        }
        names
    }

    fn add_namespaces(&self, asked: &Attributes<'_>, names: &mut Names) {
        let probe = Probe::new(asked);
        // Most namespaces have bindings to the same few roles: each is looked at once.
        let mut everywhere: HashMap<*const Rules, bool> = HashMap::new();
        for (namespace, rules) in self.places_of(asked.user) {
            let whole = *everywhere.entry(Arc::as_ptr(rules)).or_insert_with(|| rules.allow(asked, probe));
            let named = || {
                let one = Attributes { namespace, name: namespace, ..*asked };
                is_namespaces(asked) && rules.allow(&one, probe)
            };
            if whole || named() {
                names.insert(namespace.clone());
            }
        }
    }

    /// Adds the names in rules of ClusterRoleBindings.
    fn add_named(&self, asked: &Attributes<'_>, names: &mut Names) {
        let probe = Probe::new(asked);
        for rules in self.cluster_rules(asked.user) {
            let candidates = rules.as_slice().iter().flat_map(|rule| &rule.names);
            let allowed = candidates.filter(|name| rules.allow(&Attributes { name, ..*asked }, probe));
            names.extend(allowed.map(|name| Arc::from(name.as_str())));
        }
    }
}

impl Access {
    /// The names for which RBAC of this plane lets a user do what is asked ([`Policy::visible`]).
    pub fn visible(&self, asked: &Attributes<'_>, reach: Reach) -> Names {
        let user: &User = self.seen(asked.user);
        self.rbac().visible(&Attributes { user, ..*asked }, reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuleCache;
    use freehold_machinery::Value;
    use serde_json::json;

    fn role(kind: &str, name: &str, rules: Value) -> Value {
        json!({"kind": kind, "metadata": {"name": name}, "rules": rules})
    }

    fn binding(namespace: &str, role: &str, subject: (&str, &str)) -> Value {
        let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
        json!({
            "kind": kind, "metadata": {"name": "b", "namespace": namespace},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": subject.0, "name": subject.1}],
        })
    }

    fn policy() -> Policy {
        let read = json!(["get", "list", "watch"]);
        let objects = [
            role(
                "ClusterRole",
                "view",
                json!([{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": read}]),
            ),
            role(
                "ClusterRole",
                "pods",
                json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]),
            ),
            role(
                "ClusterRole",
                "self",
                json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": read, "resourceNames": ["c", "a"]}]),
            ),
            role(
                "ClusterRole",
                "classes",
                json!([{"apiGroups": ["s"], "resources": ["classes"], "verbs": read, "resourceNames": ["fast", "slow"]}]),
            ),
            binding("a", "view", ("User", "ann")),
            binding("b", "view", ("Group", "devs")),
            binding("c", "self", ("User", "ann")),
            binding("d", "self", ("User", "ann")),
            binding("e", "pods", ("User", "ann")),
            binding("f", "view", ("Group", "ann")),
            binding("g", "gone", ("User", "ann")),
            binding("", "classes", ("Group", "devs")),
        ];
        Policy::compile(&RuleCache::default(), &objects)
    }

    fn seen(verb: &str, (group, resource): (&str, &str), reach: Reach) -> Vec<String> {
        let user = User { name: "ann".into(), groups: vec!["devs".into()], ..User::default() };
        let names = policy().visible(&Attributes::resource(&user, verb, group, resource), reach);
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_may_be_read_one_by_one_is_visible_and_nothing_else() {
        assert_eq!(seen("list", ("", "pods"), Reach::Namespaces), ["a", "b", "e"]);
        assert_eq!(seen("watch", ("", "pods"), Reach::Namespaces), ["a", "b"]);
        assert!(seen("list", ("", "secrets"), Reach::Namespaces).is_empty());
        // Of `d` a rule names another namespace, and of `f` the group has the user's name.
        assert_eq!(seen("list", ("", "namespaces"), Reach::Objects), ["a", "b", "c"]);
        assert_eq!(seen("list", ("s", "classes"), Reach::Objects), ["fast", "slow"]);
        assert!(seen("delete", ("s", "classes"), Reach::Objects).is_empty());
        assert!(seen("list", ("s", "classes"), Reach::Namespaces).is_empty());
    }

    #[test]
    fn what_three_hundred_groups_may_see_of_ten_thousand_namespaces_is_found() {
        let rules = json!([{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list"]}]);
        let mut objects = vec![role("ClusterRole", "view", rules)];
        objects.extend((0..10_000).map(|n| {
            let subject = format!("group-{}", n % 600);
            binding(&format!("n{n}"), "view", ("Group", &subject))
        }));
        let policy = Policy::compile(&RuleCache::default(), &objects);
        let groups = (0..300).map(|n| format!("group-{n}")).collect();
        let user = User { name: "ann".into(), groups, ..User::default() };
        let asked = Attributes::resource(&user, "list", "", "namespaces");
        assert_eq!(policy.visible(&asked, Reach::Objects).len(), 5_100);
    }
}
