//! Explanations of a refusal: what each binding of a user lacks.

use super::{Iam, Scope, compile::Grant, permission};
use crate::Attributes;

/// How many bindings an explanation names.
const MAX_LINES: usize = 50;

impl Iam {
    /// What each binding of who asks lacks to allow this, a line each. Empty where there is none.
    pub fn explain(&self, scope: &Scope, asked: &Attributes<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        self.visit::<()>(asked.user, scope, |grant| {
            lines.push(format!("{grant}: {}", lack(grant, scope, asked)));
            (lines.len() >= MAX_LINES).then_some(())
        });
        lines
    }
}

/// What a binding lacks to allow something.
fn lack(grant: &Grant, scope: &Scope, asked: &Attributes<'_>) -> String {
    let missing = permission(asked);
    match &grant.source.rules {
        _ if !grant.reaches(scope) => "its target is another".to_owned(),
        _ if !grant.is_about(asked) => "its target is another resource".to_owned(),
        None => "there is no such role".to_owned(),
        Some(rules) => {
            let except = rules.iter().flat_map(|rules| rules.exceptions()).find(|rule| rule.allows(asked));
            match except {
                Some(rule) => format!("the role excludes {}", permission::describe(rule)),
                None => format!("the role does not include {missing}"),
            }
        }
    }
}

/// What would allow this.
pub(crate) fn permission(asked: &Attributes<'_>) -> String {
    if !asked.is_resource() {
        return format!("{} {}", asked.verb, asked.path);
    }
    let group = if asked.group.is_empty() { "core" } else { asked.group };
    let slash = if asked.subresource.is_empty() { "" } else { "/" };
    format!("{group}/{}{slash}{}.{}", asked.resource, asked.subresource, asked.verb)
}
